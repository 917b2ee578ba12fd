"""Following a unit: at every step the same as a load from nothing."""

from __future__ import annotations

import json
import os
import random
from typing import TYPE_CHECKING, Any

import pytest

from harness.units import OTHER, base, entry, line, text, write_unit
from heaveto.checkpoint import CheckpointRefused, load_checkpoint
from heaveto.checkpoint.loader import Follower
from heaveto.files import Os
from test_jsonvalue import grown

if TYPE_CHECKING:
    from pathlib import Path


def outcome(loader: Any) -> tuple[str, str]:
    """Return the report and the state, or the prefix, of a look at a unit."""
    try:
        loaded = loader()
    except CheckpointRefused as error:
        report: Any = error.report
        return text(report.as_dict()), text(error.prefix)
    return text(loaded.report.as_dict()), text(loaded.state)


class Scribe:
    """Writes a unit step by step, well or badly."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.path = write_unit(folder, base())
        self.journal = folder / "checkpoint.json.journal"
        self.temp = folder / "temp"
        self.generation = base()["generation"]
        self.seq = 0
        self.context: dict[str, Any] = {"log": []}
        self.published = 0

    def append(self, data: bytes) -> None:
        with self.journal.open("ab") as file:
            file.write(data)

    def record(self) -> bytes:
        rng = self.rng
        self.seq += 1
        ops = []
        if rng.random() < 0.7:
            value = grown(rng, 2)
            self.context["log"].append(value)
            ops = [{"op": "add", "path": "/log/-", "value": value}]
        name = f"op-{rng.randrange(6)}"
        spawned: dict[str, Any] = {"operation": "o"} if rng.random() < 0.4 else {}
        return line(
            self.seq,
            *json.loads(text(ops)),
            kind="spawned" if spawned else "op",
            generation=self.generation,
            entry=entry(name, self.seq, **spawned),
        )

    def replace(self, path: Path, data: bytes) -> None:
        self.temp.write_bytes(data)
        os.replace(self.temp, path)

    def step(self) -> None:
        rng = self.rng
        how = rng.randrange(16)
        if how < 6:
            self.append(b"".join(self.record() for _ in range(rng.choice([1, 1, 3]))))
        elif how == 6:
            self.append(self.record()[: rng.randrange(40, 100)])
        elif how == 7:  # the tail is cut, then the journal goes on
            data = self.journal.read_bytes() if self.journal.exists() else b""
            os.truncate(self.journal, data.rfind(b"\n") + 1) if data else None
        elif how == 8:
            self.append(line(3, generation=OTHER))
        elif how == 9 and rng.random() < 0.4:
            self.append(rng.choice([b"{}\n", line(9, generation=self.generation)]))
        elif how < 13:
            self.publish()
            if rng.random() < 0.8:
                self.replace(self.journal, b"")
                self.seq = 0
        elif how == 13 and rng.random() < 0.3:
            self.journal.unlink(missing_ok=True)
        elif how == 14 and rng.random() < 0.5:
            self.replace(self.path, json.dumps(base(2)).encode())
        elif how == 15 and rng.random() < 0.3:
            self.path.write_bytes(b'{"version":3}')
        if not self.journal.exists() and rng.random() < 0.5:
            self.journal.write_bytes(b"")

    def publish(self) -> None:
        self.published += 1
        self.generation = f"{self.published:032x}"
        document = base(
            flow_context=self.context, generation=self.generation, ops={}, spawned=[]
        )
        self.replace(self.path, text(document).encode())
        self.seq = 0


def follow(folder: Path, seed: int) -> None:
    scribe = Scribe(folder, seed)
    seen: list[tuple[Any, str]] = []
    with Follower(scribe.path) as follower:
        for _ in range(40):
            if scribe.rng.random() < 0.9:
                scribe.step()
            expected = outcome(lambda: load_checkpoint(scribe.path))
            assert outcome(follower.poll) == expected
            assert outcome(follower.poll) == expected
            if '"refused"' not in expected[0]:
                loaded = follower.poll()
                assert follower.poll() is loaded
                seen.append((loaded, text(loaded.state)))
    for loaded, spelled in seen:
        assert text(loaded.state) == spelled


@pytest.mark.parametrize("seed", range(40))
def test_following_is_loading(tmp_path: Path, seed: int) -> None:
    follow(tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40, 1500))
def test_following_for_long_is_loading(tmp_path: Path, seed: int) -> None:
    follow(tmp_path, seed)


class Counting(Os):
    """Counts the bytes that are read."""

    def __init__(self) -> None:
        self.read_bytes = 0

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        data = super().pread(fd, size, offset)
        self.read_bytes += len(data)
        return data


@pytest.mark.parametrize("size", [10, 5000])
def test_a_poll_reads_what_is_new(tmp_path: Path, size: int) -> None:
    content = base(flow_context={"log": [f"item {n}" for n in range(size)]})
    path = write_unit(tmp_path, content, *(line(n) for n in range(1, 51)))
    system = Counting()
    with Follower(path, system=system) as follower:
        first = follower.poll()
        assert system.read_bytes > 50 * len(line(1))
        system.read_bytes = 0
        assert follower.poll() is first
        assert system.read_bytes == 0
        new = line(51, {"op": "add", "path": "/log/-", "value": "new"})
        with path.with_name("checkpoint.json.journal").open("ab") as file:
            file.write(new + b"torn")
        second = follower.poll()
        assert system.read_bytes == len(new) + 4
        assert second.report.last_seq == 51
        assert second.state["flow_context"]["log"][-1] == "new"
        assert len(first.state["flow_context"]["log"]) == size
        assert second.state["plan"] is first.state["plan"]


def test_files_are_let_go(tmp_path: Path) -> None:
    path = write_unit(tmp_path, base(), line(1))
    before = len(os.listdir("/dev/fd"))
    for _ in range(20):
        with Follower(path) as follower:
            follower.poll()
            write_unit(tmp_path, base(), line(1), line(2))
            follower.poll()
            path.unlink()
            with pytest.raises(CheckpointRefused):
                follower.poll()
            write_unit(tmp_path, base(), line(1))
            follower.poll()
        load_checkpoint(path)
    assert len(os.listdir("/dev/fd")) == before


def test_a_read_error_is_told_and_forgotten(tmp_path: Path) -> None:
    path = write_unit(tmp_path, base(), line(1))
    failing: list[bool] = []

    class Sometimes(Os):
        def pread(self, fd: int, size: int, offset: int) -> bytes:
            if failing:
                raise OSError(5, "input/output error")
            return super().pread(fd, size, offset)

    with Follower(path, system=Sometimes()) as follower:
        follower.poll()
        failing.append(True)
        assert follower.poll().report.last_seq == 1
        with path.with_name("checkpoint.json.journal").open("ab") as file:
            file.write(line(2))
        for _ in range(2):
            with pytest.raises(CheckpointRefused):
                follower.poll()
        failing.clear()
        assert follower.poll().report.last_seq == 2
