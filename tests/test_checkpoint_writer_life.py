"""The writer among other processes and forks, in loops that end, on full disks."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.units import text
from heaveto.checkpoint import (
    CheckpointBusyError,
    CheckpointWriter,
    load_checkpoint,
)

CORE = Path(__file__).resolve().parents[1] / "core"


def make(path: Path, **given: Any) -> CheckpointWriter:
    given = {"version": 3, "plan": [], **given}
    return CheckpointWriter(path, session_id="s", prompt="p", config={}, **given)


def program(code: str, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *args],
        env={**os.environ, "PYTHONPATH": str(CORE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def in_a_child(act: Any) -> str:
    """Do something in a fork and return what it says; the child runs nothing else."""
    source, target = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            said = str(act())
        except BaseException as error:
            said = f"{type(error).__name__} {getattr(error, 'code', error)}"
        os.write(target, said.encode())
        os._exit(0)
    os.close(target)
    os.waitpid(pid, 0)
    with os.fdopen(source) as reading:
        return reading.read()


# --- forks


async def test_after_a_fork_the_writer_is_the_parents(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.json"
    writer = make(path)
    await writer.record("a", status="completed", response=1)

    async def record() -> None:
        await writer.record("b", status="completed", response=2)

    async def flush() -> None:
        await writer.flush()

    refusal = "CheckpointPersistenceError closed"
    assert in_a_child(lambda: asyncio.run(record())) == refusal
    assert in_a_child(lambda: asyncio.run(flush())) == refusal
    assert in_a_child(lambda: asyncio.run(writer.aclose())) == "None"
    with pytest.raises(CheckpointBusyError):
        make(path)
    await writer.record("c", status="completed", response=3)
    await writer.aclose()
    assert list(load_checkpoint(path).state["ops"]) == ["a", "c"]


async def test_a_child_that_lives_on_does_not_keep_the_folder(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.json"
    writer = make(path)
    await writer.record("a", status="completed", response=1)
    source, target = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(target)
        os.read(source, 1)
        os._exit(0)
    os.close(source)
    await writer.aclose()
    async with make(path, ops=load_checkpoint(path).state["ops"]) as following:
        await following.record("b", status="completed", response=2)
    os.close(target)
    os.waitpid(pid, 0)
    assert list(load_checkpoint(path).state["ops"]) == ["a", "b"]


# --- loops and cancellation


def test_a_loop_that_ends_before_its_acknowledgements(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.json"

    async def begin() -> CheckpointWriter:
        writer = make(path, max_journal_records=7)
        await writer.flush()
        for number in range(40):
            call = writer.record(f"op-{number}", status="completed", response="x" * 999)
            asyncio.ensure_future(call)  # noqa: RUF006 (left alone on purpose)
        return writer

    writer = asyncio.run(begin())

    async def end() -> None:
        await writer.record("last", status="completed", response=None)
        await writer.aclose()

    asyncio.run(end())
    state = load_checkpoint(path).state
    assert list(state["ops"]) == [*(f"op-{n}" for n in range(40)), "last"]


@pytest.mark.parametrize("seed", range(3))
async def test_a_storm_of_cancellations(tmp_path: Path, seed: int) -> None:
    path, rng = tmp_path / "checkpoint.json", random.Random(seed)
    acknowledged: list[int] = []
    contexts: list[dict[str, Any]] = []
    writer = make(path, max_journal_records=7)
    await writer.flush()

    async def one(number: int) -> None:
        contexts.append({"n": list(range(rng.randrange(30)))})
        await writer.record(
            f"op-{len(contexts) - 1}",
            status="completed",
            response=number,
            flow_context=contexts[-1],
        )
        acknowledged.append(number)

    waiting: list[asyncio.Task[None]] = []
    for number in range(500):
        waiting.append(asyncio.create_task(one(number)))
        if rng.random() < 0.3:
            await asyncio.sleep(0)
        if rng.random() < 0.5:
            rng.choice(waiting[-5:]).cancel()
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(end) for end in ends} == {type(None), asyncio.CancelledError}
    assert writer.statistics().admitted == len(contexts)
    loaded = load_checkpoint(path).state
    there = len(loaded["ops"])
    assert list(loaded["ops"]) == [f"op-{n}" for n in range(there)]
    assert text(loaded["flow_context"]) == text(contexts[there - 1])
    assert {*acknowledged} <= {one["response"] for one in loaded["ops"].values()}
    await writer.aclose()
    assert len(load_checkpoint(path).state["ops"]) == len(contexts)
    assert writer.statistics().queued == 0


# --- other processes

IN_TURNS = """
import asyncio, os, sys
from heaveto.checkpoint import *

async def main(path):
    said = turns = 0
    while turns < 6:
        try:
            state = load_checkpoint(path).state
        except CheckpointRefused as error:
            if error.code != "base_missing":
                raise
            state = {"ops": {}, "spawned": [], "flow_context": {}}
        try:
            writer = CheckpointWriter(
                path, session_id="s", prompt="p", plan=[], config={}, version=3,
                ops=state["ops"], spawned=state["spawned"],
                flow_context=state["flow_context"], max_journal_records=3,
            )
        except CheckpointBusyError:
            await asyncio.sleep(0.001)
            continue
        try:
            await writer.flush()
            for _ in range(5):
                name = f"{os.getpid()}-{said}"
                await writer.record(name, status="completed", response=said)
                print(name, flush=True)
                said += 1
            turns += 1
        except CheckpointPersistenceError as error:
            if error.code != "would_lose_outcomes":
                raise
        try:
            await writer.aclose()
        except CheckpointPersistenceError as error:
            if error.code != "would_lose_outcomes":
                raise

asyncio.run(main(sys.argv[1]))
"""


def test_writers_of_several_processes_take_turns(tmp_path: Path) -> None:
    """Each loads, writes and closes; one that loaded too early is refused."""
    path = tmp_path / "run" / "checkpoint.json"
    running = [program(IN_TURNS, str(path)) for _ in range(3)]
    ends = [one.communicate() for one in running]
    assert [
        (one.returncode, end[1]) for one, end in zip(running, ends, strict=True)
    ] == [(0, "")] * 3
    acknowledged = [name for said, _ in ends for name in said.split()]
    assert len(acknowledged) == 90
    loaded = load_checkpoint(path)
    assert loaded.report.status == "clean"
    assert sorted(loaded.state["ops"]) == sorted(acknowledged)


# --- a disk that is full for a while

FULL = """
import asyncio, logging, resource, signal, sys
from heaveto.checkpoint import *

logging.disable()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

async def main(path, records):
    writer = CheckpointWriter(
        path, session_id="s", prompt="p", plan=[], config={}, version=3,
        max_journal_records=records,
    )
    await writer.flush()
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    context, acknowledged, codes = {"log": []}, 0, set()
    for number in range(40):
        if number == 30:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        context["log"].append("c" * 2000)
        try:
            await writer.record(
                f"op-{number}", status="completed", response="r" * 20_000,
                flow_context=context,
            )
            acknowledged = number + 1
        except CheckpointPersistenceError as error:
            codes.add((error.code, error.published))
        there = load_checkpoint(path).state
        names = list(there["ops"])
        assert names == [f"op-{n}" for n in range(len(names))]
        assert len(there["flow_context"]["log"]) == len(names) >= acknowledged
    await writer.aclose()
    assert len(load_checkpoint(path).state["ops"]) == 40 == acknowledged
    print(sorted(codes))

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@pytest.mark.parametrize("records", [4, 1000])
def test_a_disk_that_takes_no_more_for_a_while(tmp_path: Path, records: int) -> None:
    path = tmp_path / "run" / "checkpoint.json"
    running = program(FULL, str(path), str(records))
    said, complaint = running.communicate()
    assert (running.returncode, complaint) == (0, "")
    assert "('persistence', 'no')" in said
    assert sorted(os.listdir(path.parent)) == [path.name, f"{path.name}.journal"]
