"""The checkpoint writer's contract: what a call does, when it returns, what is left."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import logging
import os
import random
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.faults import Fault, FaultyOs
from heaveto.checkpoint import (
    CheckpointBusyError,
    CheckpointError,
    CheckpointIdentityError,
    CheckpointPersistenceError,
    CheckpointRefused,
    CheckpointValueError,
    CheckpointWriter,
    load_checkpoint,
)
from heaveto.checkpoint.v3 import MAX_SEQ
from heaveto.files import Os

if TYPE_CHECKING:
    from collections.abc import Callable

PLAN = [{"agent_id": f"op-{i}", "dep_indices": [], "task": "t"} for i in range(3)]
PROMOTED = [{**step, "node_id": f"u-{i}"} for i, step in enumerate(PLAN)]


def make(path: Path, **given: Any) -> CheckpointWriter:
    given = {"plan": PLAN, "version": 3, **given}
    return CheckpointWriter(
        path, session_id="s-1", prompt="p", config={"max_ops": 0}, **given
    )


async def put(writer: CheckpointWriter, agent_id: str, **given: Any) -> None:
    await writer.record(agent_id, **{"status": "completed", "response": "ok", **given})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "r-1" / "checkpoint.json"


def journal(path: Path) -> list[dict[str, Any]]:
    lines = Path(f"{path}.journal").read_bytes().split(b"\n")
    assert lines[-1] == b""
    return [json.loads(line) for line in lines[:-1]]


def listed(path: Path) -> list[str]:
    return sorted(os.listdir(path.parent))


# --- the first unit


async def test_a_version_3_unit_begins_with_a_base_and_an_empty_journal(
    path: Path,
) -> None:
    async with make(path, max_spawn=3, flow_context={"a": 1}) as writer:
        assert not path.exists()
        assert (writer.generation, writer.journal_seq) == (None, None)
        await writer.flush()
        base = json.loads(path.read_bytes())
        assert base == {
            "version": 3,
            "session_id": "s-1",
            "prompt": "p",
            "plan": PLAN,
            "flow_context": {"a": 1},
            "ops": {},
            "spawned": [],
            "config": {"max_ops": 0},
            "max_spawn": 3,
            "generation": writer.generation,
            "journal_seq": 0,
        }
        assert re.fullmatch("[0-9a-f]{32}", writer.generation or "")
        assert journal(path) == []
        assert writer.journal_seq == 0
        assert listed(path) == ["checkpoint.json", "checkpoint.json.journal"]


async def test_a_version_2_file_is_the_default(path: Path) -> None:
    writer = CheckpointWriter(path, session_id="s", prompt="p", plan=PLAN, config={})
    await writer.flush()
    base = json.loads(path.read_bytes())
    assert base["version"] == 2
    assert "max_spawn" not in base
    assert not {"generation", "journal_seq"} & base.keys()
    assert (writer.generation, writer.journal_seq) == (None, None)
    assert listed(path) == ["checkpoint.json"]
    await writer.aclose()


@pytest.mark.parametrize("version", [2, 3])
async def test_a_record_before_flush_publishes_the_unit(
    path: Path, version: int
) -> None:
    async with make(path, version=version) as writer:
        await put(writer, "op-0")
        assert load_checkpoint(path).state["ops"].keys() == {"op-0"}
        if version == 3:
            assert json.loads(path.read_bytes())["ops"] == {}
            assert [record["seq"] for record in journal(path)] == [1]
            assert writer.journal_seq == 1


async def test_folders_and_files_are_private_from_the_first_moment(path: Path) -> None:
    modes = []

    class Watching(Os):
        def write(self, fd: int, data: bytes | memoryview) -> int:
            modes.append(os.fstat(fd).st_mode & 0o777)
            return super().write(fd, data)

    before = os.umask(0)
    try:
        async with make(path, system=Watching(), max_journal_records=1) as writer:
            await put(writer, "op-0")
            await put(writer, "op-1")
    finally:
        os.umask(before)
    assert set(modes) == {0o600}
    for folder in (path.parent, path.parent.parent):
        assert folder.stat().st_mode & 0o777 == 0o700
    for name in listed(path):
        assert (path.parent / name).stat().st_mode & 0o777 == 0o600


async def test_a_relative_path_means_the_folder_it_named(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parents[2])
    writer = make(path.relative_to(path.parents[2]))
    monkeypatch.chdir("/")
    await put(writer, "op-0")
    await writer.aclose()
    assert load_checkpoint(path).state["ops"].keys() == {"op-0"}


@pytest.mark.parametrize("name", ["max_journal_records", "max_journal_bytes"])
@pytest.mark.parametrize("value", [0, -1, True, 1.0, "8", None])
def test_limits_are_positive_integers(path: Path, name: str, value: Any) -> None:
    with pytest.raises(CheckpointValueError):
        make(path, **{name: value})
    assert not path.parent.exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": 1},
        {"version": "3"},
        {"version": True},
        {"plan": {}},
        {"plan": [1]},
        {"flow_context": []},
        {"ops": {"op-0": {"agent_id": "op-1", "status": "completed", "response": 1}}},
        {"ops": {"op-0": {"agent_id": "op-0", "status": "running", "response": 1}}},
        {"spawned": [{"node_id": "n", "status": "pending", "response": 1}]},
        {"spawned": [{"node_id": "n", "status": "failed", "response": 1}] * 2},
        {"max_spawn": -1},
        {"max_spawn": True},
        {"flow_context": {"a": float("inf")}},
    ],
)
def test_an_initial_state_of_the_wrong_form_is_refused(path: Path, wrong: Any) -> None:
    with pytest.raises(CheckpointValueError):
        make(path, **wrong)
    assert not path.parent.exists()


# --- capture and order


async def test_a_call_captures_before_anything_is_awaited(path: Path) -> None:
    context: dict[str, Any] = {"log": ["one"]}
    response = {"items": [1]}
    async with make(path) as writer:
        first = writer.record(
            "op-0", status="completed", response=response, flow_context=context
        )
        context["log"].append("two")
        response["items"].append(2)
        second = writer.record("op-1", status="completed", response=response)
        await second
        await first
        found = journal(path)
    assert [record["entry"]["agent_id"] for record in found] == ["op-0", "op-1"]
    state = load_checkpoint(path).state
    assert state["ops"]["op-0"]["response"] == {"items": [1]}
    assert state["ops"]["op-1"]["response"] == {"items": [1, 2]}
    assert state["flow_context"] == {"log": ["one"]}


async def test_order_is_the_order_of_the_calls(path: Path) -> None:
    async with make(path) as writer:
        await writer.flush()
        calls = [
            writer.record(f"op-{i}", status="completed", response=i) for i in range(40)
        ]
        random.Random(7).shuffle(calls)
        await asyncio.gather(*calls)
        assert [r["entry"]["response"] for r in journal(path)] == list(range(40))
        assert [r["seq"] for r in journal(path)] == list(range(1, 41))


async def test_a_call_can_be_awaited_in_every_usual_way(path: Path) -> None:
    def call(name: str) -> Any:
        return writer.record(name, status="completed", response=1)

    async with make(path) as writer:
        await call("a")
        await asyncio.wait_for(call("b"), 10)
        await asyncio.create_task(call("c"))
        await asyncio.gather(call("d"), call("e"))
        async with asyncio.TaskGroup() as group:
            group.create_task(call("f"))
    assert load_checkpoint(path).state["ops"].keys() == set("abcdef")


async def test_one_loop_after_the_other(path: Path) -> None:
    writer = make(path)
    await writer.flush()
    await asyncio.to_thread(asyncio.run, put(writer, "op-0"))
    await asyncio.to_thread(asyncio.run, writer.aclose())
    assert load_checkpoint(path).state["ops"].keys() == {"op-0"}


async def test_a_refused_value_changes_nothing(path: Path) -> None:
    """E-39, E-84, E-92, E-111: no sequence number, no baseline, no poison."""

    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("no")

    cycle: list[Any] = []
    cycle.append(cycle)
    bad = [float("nan"), {float("inf"): 1}, {1: 1, "1": 2}, {(): 1}, Broken(), cycle]
    async with make(path, flow_context={"a": 1}) as writer:
        await writer.flush()
        for value in bad:
            with pytest.raises(CheckpointValueError):
                await put(writer, "op-0", response=value)
            with pytest.raises(CheckpointValueError):
                await put(writer, "op-0", flow_context={"a": 1, "b": value})
        with pytest.raises(CheckpointValueError):
            await put(writer, "op-0", flow_context=[1])
        assert writer.statistics().admitted == 0
        await put(writer, "op-0", flow_context={"a": 1})
        (record,) = journal(path)
    assert record["seq"] == 1
    assert "flow_context" not in record


async def test_a_refusal_among_gathered_calls_is_a_result(path: Path) -> None:
    async with make(path) as writer:
        found = await asyncio.gather(
            writer.record("op-0", status="completed", response=1),
            writer.record("op-1", status="completed", response=float("nan")),
            writer.record("op-2", status="completed", response=3),
            return_exceptions=True,
        )
    assert found[0] is None
    assert found[2] is None
    assert isinstance(found[1], CheckpointValueError)
    assert load_checkpoint(path).state["ops"].keys() == {"op-0", "op-2"}


@pytest.mark.parametrize(
    ("method", "given", "where"),
    [
        ("record", {"status": "running"}, "$.status"),
        ("record", {"status": "pending", "response": None}, "$.status"),
        ("record", {"result_digest": 7}, "$.result_digest"),
        ("record_spawned", {"status": "pending", "response": 1}, "$.response"),
        ("record_spawned", {"assignee": 3}, "$.assignee"),
        ("record_spawned", {"emitter_workload": 3}, "$.emitter_workload"),
    ],
)
async def test_an_entry_of_the_wrong_form_is_refused(
    path: Path, method: str, given: dict[str, Any], where: str
) -> None:
    async with make(path) as writer:
        with pytest.raises(CheckpointValueError) as refused:
            await getattr(writer, method)(
                "x", **{"status": "completed", "response": 1, **given}
            )
        assert refused.value.path == where
        with pytest.raises(CheckpointValueError):
            await getattr(writer, method)(7, status="completed", response=1)
        with pytest.raises(CheckpointValueError):
            await getattr(writer, method)("", status="completed", response=1)


async def test_a_spawned_entry_keeps_every_member(path: Path) -> None:
    given: dict[str, Any] = {
        "operation": "operate",
        "assignee": "critic",
        "instruction": "review",
        "parent_id": "u-0",
        "spawn_id": "critic-1",
        "context": {"items": [1, None]},
        "emitter_workload": "text",
        "escalated_from": "u-0",
        "result_digest": "ab",
    }
    async with make(path, plan=PROMOTED, max_journal_records=2) as writer:
        await writer.record_spawned(
            "n-1",
            status="failed",
            response={"error": "x"},
            emitter_contains_user_settings=True,
            **given,
        )
        await writer.record_spawned("n-2", status="pending", response=None)
    first, second = load_checkpoint(path).state["spawned"]
    assert first == {
        "node_id": "n-1",
        "status": "failed",
        "response": {"error": "x"},
        "emitter_contains_user_settings": True,
        **given,
    }
    nulls = dict.fromkeys(list(given)[:6])
    assert second == {"node_id": "n-2", "status": "pending", "response": None, **nulls}


async def test_entries_are_upserts_in_order_of_first_appearance(path: Path) -> None:
    async with make(path) as writer:
        for node in ("a", "b", "op-0", "a"):
            await writer.record_spawned(node, status="completed", response=node)
        await put(writer, "op-0", status="failed")
        await put(writer, "op-0")
    state = load_checkpoint(path).state
    assert [entry["node_id"] for entry in state["spawned"]] == ["a", "b", "op-0"]
    assert state["ops"]["op-0"]["status"] == "completed"


async def test_contexts_none_empty_and_unchanged(path: Path) -> None:
    """E-31, E-88, E-90."""
    async with make(path) as writer:
        await writer.flush()
        await put(writer, "a", flow_context={"n": None, "x": {"y": 1}})
        await put(writer, "b")
        await put(writer, "c", flow_context={"n": None, "x": {"y": 1}})
        await put(writer, "d", flow_context={})
        patches = [record.get("flow_context") for record in journal(path)]
    assert patches[1] is patches[2] is None
    assert patches[0] == {
        "patch": [
            {"op": "add", "path": "/n", "value": None},
            {"op": "add", "path": "/x", "value": {"y": 1}},
        ]
    }
    assert load_checkpoint(path).state["flow_context"] == {}


async def test_unchanged_parts_are_neither_copied_nor_encoded_again(path: Path) -> None:
    """E-94: the counters move with the change, not with what is around it."""
    context: dict[str, Any] = {"log": [{"n": i} for i in range(5000)], "last": None}
    async with make(path, flow_context=context) as writer:
        await writer.flush()
        moved = []
        for i in range(4):
            before = writer.statistics()
            context["log"].append({"n": i})
            await put(writer, f"op-{i}", flow_context=context)
            after = writer.statistics()
            moved.append(
                (
                    after.nodes_copied - before.nodes_copied,
                    after.nodes_encoded - before.nodes_encoded,
                )
            )
        before = writer.statistics()
        await put(writer, "op-x", flow_context=context)
        assert writer.statistics().nodes_copied == before.nodes_copied
    assert max(moved)[0] < 600
    assert {encoded for _, encoded in moved} == {6}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
).filter(lambda value: "inf" not in repr(value))


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(response=VALUES, value=VALUES, name=st.text(max_size=20), spawned=st.booleans())
async def test_a_line_of_one_added_value_has_a_bound(
    tmp_path: Path, response: Any, value: Any, name: str, spawned: bool
) -> None:
    """E-14, E-16: ASCII, one LF, and E + U + P + 256 whatever stands around it."""
    path = tmp_path / os.urandom(8).hex() / "checkpoint.json"
    context = {"box": {"~": "x" * 2000}}
    async with make(path, flow_context=context) as writer:
        await writer.flush()
        added = {"box": {"~": "x" * 2000, f"+{name}": value}}
        call = writer.record_spawned if spawned else writer.record
        await call("x", status="completed", response=response, flow_context=added)
        data = Path(f"{path}.journal").read_bytes()
    assert data.isascii()
    assert data.count(b"\n") == 1
    assert data.endswith(b"}\n")
    record = json.loads(data)
    (op,) = record["flow_context"]["patch"]
    parts = (record["entry"], op["value"], op["path"])
    dump = json.JSONEncoder(separators=(",", ":")).encode
    assert len(data) <= sum(len(dump(part)) for part in parts) + 256
    assert dump(record).encode() + b"\n" == data


# --- compaction


async def test_the_nth_record_compacts_before_it_is_acknowledged(path: Path) -> None:
    async with make(path, max_journal_records=3) as writer:
        await writer.flush()
        first = writer.generation
        await put(writer, "a")
        await put(writer, "b")
        assert (writer.generation, writer.journal_seq) == (first, 2)
        await put(writer, "c")
        assert writer.generation != first
        assert writer.journal_seq == 0
        assert journal(path) == []
        base = json.loads(path.read_bytes())
        assert base["ops"].keys() == {"a", "b", "c"}
        assert base["generation"] == writer.generation
        await put(writer, "d")
        (record,) = journal(path)
        assert (record["seq"], record["generation"]) == (1, writer.generation)
        assert writer.statistics().compactions == 1
        assert listed(path) == ["checkpoint.json", "checkpoint.json.journal"]


async def test_bytes_over_the_limit_compact_what_came_before(path: Path) -> None:
    """E-72: an exact fit is appended, one byte more begins a new generation."""
    async with make(path) as writer:
        await writer.flush()
        await put(writer, "op-0")
        length = Path(f"{path}.journal").stat().st_size
    other = path.parent / "other" / "checkpoint.json"
    async with make(other, max_journal_bytes=2 * length) as writer:
        await writer.flush()
        first = writer.generation
        await put(writer, "op-0")
        await put(writer, "op-1")
        assert (writer.generation, writer.journal_seq) == (first, 2)
        await put(writer, "op-2")
        assert writer.generation != first
        assert [record["entry"]["agent_id"] for record in journal(other)] == ["op-2"]
        assert journal(other)[0]["seq"] == 1
        assert json.loads(other.read_bytes())["ops"].keys() == {"op-0", "op-1"}


async def test_a_record_over_the_limit_goes_into_a_base(path: Path) -> None:
    """E-73."""
    async with make(path, max_journal_bytes=1024) as writer:
        await put(writer, "op-0")
        await put(writer, "big", response="x" * 10_000, flow_context={"a": 1})
        assert journal(path) == []
        await put(writer, "op-1")
        assert [record["seq"] for record in journal(path)] == [1]
    state = load_checkpoint(path).state
    assert state["ops"].keys() == {"op-0", "big", "op-1"}
    assert state["flow_context"] == {"a": 1}


async def test_sequence_numbers_end_and_begin_again(path: Path) -> None:
    """E-40: the last one is used, the next record opens a new generation."""
    async with make(path) as writer:
        await writer.flush()
        first = writer.generation
        writer._unit._seq = MAX_SEQ - 1  # type: ignore[attr-defined]
        await put(writer, "last")
        assert journal(path)[-1]["seq"] == MAX_SEQ
        assert writer.generation == first
        await put(writer, "next")
        assert writer.generation != first
        assert [record["seq"] for record in journal(path)] == [1]


async def test_flush_between_records_loses_nothing(path: Path) -> None:
    async with make(path, max_journal_records=4) as writer:
        calls = []
        for i in range(11):
            calls.append(writer.record(f"op-{i}", status="completed", response=i))
            calls.append(writer.flush())
        await asyncio.gather(*calls)
    assert len(load_checkpoint(path).state["ops"]) == 11


async def test_a_large_value_is_stored(path: Path) -> None:
    """E-78: no cap on values; written and read back whole."""
    text = "é" + "x" * 20_000_000
    async with make(path) as writer:
        await put(writer, "op-0", response="ok", flow_context={"big": text})
    assert load_checkpoint(path).state["flow_context"]["big"] == text


# --- the protocol on disk


def names_of(system: FaultyOs) -> list[str]:
    quiet = ("stat", "fstat", "open", "close", "flock")
    return [seam.name for seam in system.seams if seam.call not in quiet]


async def test_the_steps_of_publication_and_append(path: Path) -> None:
    """E-51, E-52, E-66, E-106, E-109."""
    system = FaultyOs()
    path.parent.mkdir(parents=True)
    async with make(path, system=system, max_journal_records=2) as writer:
        await writer.flush()
        assert names_of(system) == [
            "create:journal-temp",
            "fsync:journal-temp",
            "rename_new:journal",
            "fsync:folder",
            "create:base-temp",
            "write:base-temp",
            "fsync:base-temp",
            "rename_new:base",
            "fsync:folder",
        ]
        system.seams.clear()
        await put(writer, "op-0")
        assert names_of(system) == ["write:journal", "fsync:journal"]
        system.seams.clear()
        await put(writer, "op-1")
        steps = names_of(system)
    assert steps[:12] == [
        "write:journal",
        "fsync:journal",
        "create:base-temp",
        "write:base-temp",
        "fsync:base-temp",
        "exchange:base",
        "fsync:folder",
        "create:journal-temp",
        "fsync:journal-temp",
        "exchange:journal",
        "fsync:folder",
        "unlink:journal-temp",
    ]


async def test_the_disk_is_touched_by_one_other_thread(path: Path) -> None:
    """E-82."""
    threads = set()

    class Watching(FaultyOs):
        def _call(self, *given: Any, **more: Any) -> Any:
            threads.add(threading.get_ident())
            return super()._call(*given, **more)

    async with make(path, system=Watching(), max_journal_records=2) as writer:
        for i in range(5):
            await put(writer, f"op-{i}", flow_context={"n": i})
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_calls_made_together_share_a_sync(path: Path) -> None:
    """E-50."""
    async with make(path) as writer:
        await writer.flush()
        before = writer.statistics().fsyncs
        await asyncio.gather(*[put(writer, f"op-{i}") for i in range(100)])
        assert writer.statistics().fsyncs - before <= 20
        assert writer.journal_seq == 100


class Blocking(FaultyOs):
    """Holds every fsync of the journal until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.held = threading.Event()

    def fsync(self, fd: int) -> None:
        if self._names[fd].endswith(".journal"):
            self.held.set()
            self.go.wait(30)
        super().fsync(fd)


async def test_nothing_is_acknowledged_before_its_sync(path: Path) -> None:
    """E-41, E-102: meanwhile the queue is visible."""
    system = Blocking()
    writer = make(path, system=system)
    await writer.flush()
    tasks = [asyncio.create_task(put(writer, "op-0"))]
    await asyncio.to_thread(system.held.wait, 30)
    tasks += [asyncio.create_task(put(writer, f"op-{i}")) for i in range(1, 5)]
    await asyncio.sleep(0)
    stats = writer.statistics()
    assert (stats.admitted, stats.persisted, stats.queued) == (5, 0, 5)
    assert not any(task.done() for task in tasks)
    system.go.set()
    await asyncio.gather(*tasks)
    stats = writer.statistics()
    assert (stats.admitted, stats.persisted, stats.queued) == (5, 5, 0)
    await writer.aclose()


async def test_a_cancelled_caller_leaves_its_transition_on_its_way(path: Path) -> None:
    """E-43."""
    system = Blocking()
    writer = make(path, system=system)
    await writer.flush()
    first = asyncio.create_task(put(writer, "op-0"))
    await asyncio.to_thread(system.held.wait, 30)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.create_task(put(writer, "op-1"))
    closing = asyncio.create_task(writer.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    with pytest.raises(CheckpointBusyError):
        make(path)
    system.go.set()
    await second
    await writer.aclose()
    assert load_checkpoint(path).state["ops"].keys() == {"op-0", "op-1"}


async def test_readers_meet_a_coherent_unit_while_it_is_written(path: Path) -> None:
    """F-04, F-24, L-05: mixed calls, compaction every 7, readers all along."""
    done = threading.Event()
    seen: list[tuple[int, int]] = []
    problems: list[str] = []
    acknowledged = 0

    def read() -> None:
        while not done.is_set():
            least = acknowledged
            try:
                state = load_checkpoint(path).state
            except CheckpointRefused as error:
                problems.append(error.code)
                continue
            count = len(state["flow_context"].get("log", []))
            outcomes = len(state["ops"]) + len(state["spawned"])
            seen.append((least, count))
            if outcomes != count:
                problems.append(f"{outcomes} outcomes, {count} in the context")

    chance = random.Random(11)
    context: dict[str, Any] = {"log": []}
    async with make(path, max_journal_records=7) as writer:
        await writer.flush()
        readers = [asyncio.create_task(asyncio.to_thread(read)) for _ in range(4)]
        for start in range(0, 300, 5):
            calls = []
            for i in range(start, start + 5):
                context["log"].append(i)
                spawn = chance.random() < 0.5
                call = writer.record_spawned if spawn else writer.record
                calls.append(
                    call(f"x-{i}", status="completed", response=i, flow_context=context)
                )
            await asyncio.gather(*calls)
            acknowledged = start + 5
        done.set()
        await asyncio.gather(*readers)
    assert problems == []
    assert seen
    assert all(count >= least for least, count in seen)


@pytest.mark.parametrize("records", [1, 3, 128])
async def test_both_versions_agree_at_every_acknowledgement(
    tmp_path: Path, records: int
) -> None:
    """E-103."""
    paths = [tmp_path / str(version) / "checkpoint.json" for version in (2, 3)]
    writers = [
        make(path, version=version, max_journal_records=records)
        for path, version in zip(paths, (2, 3), strict=True)
    ]
    chance = random.Random(5)
    context: dict[str, Any] = {}
    for i in range(40):
        context[f"k{chance.randrange(6)}"] = chance.choice(
            [1, 1.0, True, "1", None, [i]]
        )
        if chance.random() < 0.3:
            context.pop(f"k{chance.randrange(6)}", None)
        for writer in writers:
            call = chance.choice
            name = f"op-{i % 9}"
            given: dict[str, Any] = {"status": "completed", "response": {"n": i}}
            if i % 3:
                given["flow_context"] = context
            del call
            method = writer.record if i % 2 else writer.record_spawned
            await method(name, **given)
        two, three = (load_checkpoint(path).state for path in paths)
        for name in ("ops", "spawned", "flow_context", "plan", "config"):
            assert repr(_sorted(two[name])) == repr(_sorted(three[name]))
    for writer in writers:
        await writer.aclose()


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


# --- one writer


async def test_a_second_writer_is_refused(path: Path) -> None:
    async with make(path) as writer:
        await put(writer, "op-0")
        before = path.read_bytes()
        with pytest.raises(CheckpointBusyError):
            make(path)
        code = (
            "import sys; from pathlib import Path\n"
            "from heaveto.checkpoint import CheckpointBusyError, CheckpointWriter\n"
            "try: CheckpointWriter(sys.argv[1], session_id='x', prompt='', plan=[],\n"
            "                      config={})\n"
            "except CheckpointBusyError: sys.exit(7)\n"
        )
        done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
        assert done.returncode == 7
        assert path.read_bytes() == before
    make(path, ops=load_checkpoint(path).state["ops"])
    gc.collect()


async def test_a_forgotten_writer_frees_its_folder(path: Path) -> None:
    writer = make(path)
    await put(writer, "op-0")
    del writer
    gc.collect()
    for _ in range(200):
        try:
            again = make(path, ops=load_checkpoint(path).state["ops"])
        except CheckpointBusyError:
            await asyncio.sleep(0.01)
        else:
            await again.aclose()
            return
    pytest.fail("the folder stayed locked")


async def test_closing_is_once_and_for_all(path: Path) -> None:
    writer = make(path)
    calls = [writer.record(f"op-{i}", status="completed", response=i) for i in range(9)]
    results = await asyncio.gather(writer.aclose(), writer.aclose(), *calls)
    assert results == [None] * 11
    await writer.aclose()
    for late in (
        writer.record("x", status="completed", response=1),
        writer.record_spawned("x", status="completed", response=1),
        writer.flush(),
        writer.replace_plan(PROMOTED),
    ):
        with pytest.raises(CheckpointPersistenceError) as refused:
            await late
        assert (refused.value.code, refused.value.published) == ("closed", "no")
    assert len(load_checkpoint(path).state["ops"]) == 9


async def test_closing_an_unused_writer_writes_nothing(path: Path) -> None:
    await make(path).aclose()
    assert listed(path) == []


@pytest.mark.parametrize("call", ["mkdir", "open", "fstat", "flock", "fsync"])
def test_a_folder_that_cannot_be_used(path: Path, call: str) -> None:
    system = FaultyOs()
    path.parent.mkdir(parents=True)
    make(path.parent / "whole" / "run" / "checkpoint.json", system=system)
    for seam in [seam for seam in system.seams if seam.call == call]:
        at = Fault(at=seam.number, act="fail", error=errno.EIO)
        broken = path.parent / str(seam.number) / "run" / "checkpoint.json"
        with pytest.raises(CheckpointPersistenceError) as refused:
            make(broken, system=FaultyOs([at]))
        assert refused.value.published == "no"
    gc.collect()


# --- what was there before


async def test_a_unit_is_taken_over_with_its_state(path: Path) -> None:
    """F-001: a torn tail is behind us once the next writer has published."""
    async with make(path) as writer:
        await put(writer, "op-0", flow_context={"a": [1]})
        await put(writer, "op-1")
    with Path(f"{path}.journal").open("ab") as torn:
        torn.write(b'{"version":3,"generation":"')
    old = load_checkpoint(path)
    assert old.report.status == "recovered_prefix"
    async with make(
        path, ops=old.state["ops"], flow_context=old.state["flow_context"]
    ) as writer:
        await put(writer, "op-2")
        assert listed(path) == ["checkpoint.json", "checkpoint.json.journal"]
    new = load_checkpoint(path)
    assert new.report.status == "clean"
    assert new.state["ops"].keys() == {"op-0", "op-1", "op-2"}
    assert new.state["flow_context"] == {"a": [1]}


@pytest.mark.parametrize("old", [2, 3])
@pytest.mark.parametrize("new", [2, 3])
async def test_a_unit_with_more_outcomes_is_not_replaced(
    path: Path, old: int, new: int
) -> None:
    async with make(path, version=old) as writer:
        await put(writer, "op-0")
        await writer.record_spawned("n-0", status="completed", response=1)
    before = {name: (path.parent / name).read_bytes() for name in listed(path)}
    writer = make(path, version=new)
    for call in (writer.flush, writer.flush):
        with pytest.raises(CheckpointPersistenceError) as refused:
            await call()
        assert refused.value.code == "would_lose_outcomes"
        assert refused.value.published == "no"
    with pytest.raises(CheckpointPersistenceError):
        await writer.aclose()
    assert before == {name: (path.parent / name).read_bytes() for name in listed(path)}
    state = load_checkpoint(path).state
    async with make(
        path, version=new, ops=state["ops"], spawned=state["spawned"]
    ) as again:
        await put(again, "op-1")
    after = load_checkpoint(path)
    assert after.state["version"] == new
    assert after.state["ops"].keys() == {"op-0", "op-1"}
    files = ["checkpoint.json"] + ["checkpoint.json.journal"] * (new == 3)
    assert listed(path) == files


@pytest.mark.parametrize("content", [b"", b"\0" * 300, b"not json", b'{"version":9}'])
async def test_a_damaged_unit_is_not_replaced(path: Path, content: bytes) -> None:
    """F-032, F-033."""
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    writer = make(path)
    with pytest.raises(CheckpointRefused):
        await writer.flush()
    with pytest.raises(CheckpointRefused):
        await writer.aclose()
    assert path.read_bytes() == content
    assert listed(path) == ["checkpoint.json"]


async def test_an_interrupted_first_publication_is_taken_over(path: Path) -> None:
    path.parent.mkdir(parents=True)
    Path(f"{path}.journal").touch()
    async with make(path) as writer:
        await put(writer, "op-0")
    assert load_checkpoint(path).state["ops"].keys() == {"op-0"}


async def test_a_journal_without_its_base_is_not_replaced(path: Path) -> None:
    path.parent.mkdir(parents=True)
    Path(f"{path}.journal").write_bytes(b"{}\n")
    writer = make(path)
    with pytest.raises(CheckpointPersistenceError) as refused:
        await writer.flush()
    assert refused.value.code == "would_lose_outcomes"
    with pytest.raises(CheckpointPersistenceError):
        await writer.aclose()
    assert Path(f"{path}.journal").read_bytes() == b"{}\n"


@pytest.mark.parametrize("suffix", ["", ".journal"])
@pytest.mark.parametrize("kind", ["symlink", "fifo", "folder"])
async def test_what_is_no_regular_file_is_not_replaced(
    path: Path, suffix: str, kind: str
) -> None:
    """F-038, E-56: never through a link, never blocking."""
    path.parent.mkdir(parents=True)
    there, target = Path(f"{path}{suffix}"), path.parent / "elsewhere"
    if kind == "symlink":
        there.symlink_to(target)
    elif kind == "fifo":
        os.mkfifo(there)
    else:
        there.mkdir()
    writer = make(path)
    with pytest.raises(CheckpointError):
        await asyncio.wait_for(writer.flush(), 10)
    with pytest.raises(CheckpointError):
        await writer.aclose()
    assert not target.exists()
    assert there.is_symlink() or there.exists()


# --- errors


async def failing(writer: CheckpointWriter, name: str) -> CheckpointPersistenceError:
    with pytest.raises(CheckpointPersistenceError) as failed:
        await put(writer, name)
    return failed.value


def strike(system: FaultyOs, call: str, error: int = errno.EIO, **more: Any) -> None:
    """Let the next call of a name fail."""

    class Next(Fault):
        pass

    seen = len(system.seams)
    original = system._hits

    def hits(fault: Fault, seam: Any) -> bool:
        return isinstance(fault, Next) and seam.number >= seen and seam.name == call

    system.faults = [Next(at=-1, act="fail", error=error, **more)]
    system._hits = hits  # type: ignore[method-assign]
    del original


async def test_errors_say_what_they_know_of_the_publication(path: Path) -> None:
    """E-44: nothing written is not the same as perhaps written."""
    system = FaultyOs()
    writer = make(path, system=system)
    strike(system, "create:base-temp", errno.ENOSPC)
    assert (await failing(writer, "op-0")).published == "no"
    strike(system, "rename_new:base", when="after")
    assert (await failing(writer, "op-1")).published == "uncertain"
    system.faults = []
    await put(writer, "op-2")
    strike(system, "fsync:journal")
    assert (await failing(writer, "op-3")).published == "uncertain"
    strike(system, "create:base-temp", errno.ENOSPC)
    error = await failing(writer, "op-4")
    assert error.published == "no"
    assert "No space left" in str(error)
    assert listed(path) == ["checkpoint.json", "checkpoint.json.journal"]
    system.faults = []
    await writer.aclose()
    assert len(load_checkpoint(path).state["ops"]) == 5


async def test_after_a_failed_sync_everything_is_written_anew(path: Path) -> None:
    """F-043, E-45..E-49: the call is not repeated, a fresh base takes its place."""
    system = FaultyOs()
    writer = make(path, system=system)
    await put(writer, "op-0")
    first = writer.generation
    strike(system, "fsync:journal")
    await failing(writer, "op-1")
    system.faults = []
    system.seams.clear()
    await put(writer, "op-2")
    assert "fsync:base-temp" in names_of(system)
    assert "fsync:journal" not in names_of(system)
    assert writer.generation != first
    assert load_checkpoint(path).state["ops"].keys() == {"op-0", "op-1", "op-2"}
    assert load_checkpoint(path).report.status == "clean"
    await writer.aclose()


async def test_a_failed_compaction_takes_no_acknowledgement_back(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """E-76, E-79: reported in the log, and finished before the next record."""
    system = FaultyOs()
    writer = make(path, system=system, max_journal_records=2)
    await writer.flush()
    await put(writer, "op-0")
    strike(system, "exchange:journal")
    with caplog.at_level(logging.WARNING, logger="heaveto.checkpoint"):
        await put(writer, "op-1")
    assert "compaction failed" in caplog.text
    after = load_checkpoint(path)
    assert after.state["ops"].keys() == {"op-0", "op-1"}
    strike(system, "fsync:folder")
    await failing(writer, "op-2")
    system.faults = []
    await put(writer, "op-3")
    assert load_checkpoint(path).state["ops"].keys() == {f"op-{i}" for i in range(4)}
    assert load_checkpoint(path).report.status == "clean"
    await writer.aclose()


async def test_the_generation_follows_the_disk(path: Path) -> None:
    """E-48, E-77: a replacement that was reported as failed and yet took effect."""
    system = FaultyOs()
    writer = make(path, system=system, max_journal_records=1)
    await writer.flush()
    strike(system, "exchange:base", when="after")
    await put(writer, "op-0")
    assert json.loads(path.read_bytes())["generation"] == writer.generation
    assert load_checkpoint(path).report.stale_records == 1
    system.faults = []
    await writer.aclose()
    assert load_checkpoint(path).report.status == "clean"


async def test_closing_publishes_what_an_error_left_out(path: Path) -> None:
    system = FaultyOs()
    writer = make(path, system=system)
    await writer.flush()
    strike(system, "write:journal", errno.ENOSPC)
    await failing(writer, "op-0")
    system.faults = []
    await writer.aclose()
    assert load_checkpoint(path).state["ops"].keys() == {"op-0"}


async def test_closing_says_what_is_not_on_disk(path: Path) -> None:
    system = FaultyOs()
    writer = make(path, system=system)
    await put(writer, "op-0")
    for call in ("write:journal", "create:base-temp"):
        strike(system, call, errno.ENOSPC)
        await failing(writer, f"after {call}")
    with pytest.raises(CheckpointPersistenceError) as failed:
        await writer.aclose()
    assert "No space left" in str(failed.value)
    assert "op-0" in load_checkpoint(path).state["ops"]
    make(path, ops=load_checkpoint(path).state["ops"])
    gc.collect()


@pytest.mark.parametrize("call", ["close:base", "close:journal", "close:folder"])
async def test_a_close_that_fails_is_told_and_changes_nothing(
    path: Path, call: str
) -> None:
    """E-54."""
    system = FaultyOs()
    writer = make(path, system=system)
    await put(writer, "op-0")
    strike(system, call)
    with pytest.raises(CheckpointPersistenceError) as failed:
        await writer.aclose()
    assert failed.value.code == "close"
    assert load_checkpoint(path).state["ops"].keys() == {"op-0"}
    system.faults = []
    system.release()
    await make(path, ops=load_checkpoint(path).state["ops"]).aclose()


async def test_a_cleanup_that_fails_is_repeated_and_told(path: Path) -> None:
    """E-110: the publication stands; the leftover goes later or is reported."""
    system = FaultyOs()
    writer = make(path, system=system, max_journal_records=1)
    await writer.flush()
    strike(system, "unlink:base-temp")
    await put(writer, "op-0")
    assert len(listed(path)) > 2
    assert load_checkpoint(path).state["ops"].keys() == {"op-0"}
    system.faults = []
    await put(writer, "op-1")
    assert listed(path) == ["checkpoint.json", "checkpoint.json.journal"]
    strike(system, "unlink:base-temp")
    await put(writer, "op-2")
    with pytest.raises(CheckpointPersistenceError) as failed:
        await writer.aclose()
    assert failed.value.code == "cleanup"
    assert len(load_checkpoint(path).state["ops"]) == 3


async def test_an_error_that_nobody_foresaw_stops_the_writer(path: Path) -> None:
    class Odd(FaultyOs):
        odd = False

        def write(self, fd: int, data: bytes | memoryview) -> int:
            if self.odd:
                raise ZeroDivisionError
            return super().write(fd, data)

    system = Odd()
    writer = make(path, system=system)
    await put(writer, "op-0")
    system.odd = True
    assert (await failing(writer, "op-1")).code == "poisoned"
    system.odd = False
    assert (await failing(writer, "op-2")).code == "poisoned"
    with pytest.raises(CheckpointPersistenceError):
        await writer.aclose()
    assert load_checkpoint(path).state["ops"].keys() == {"op-0"}


async def test_a_journal_that_vanished_is_not_made_by_an_append(path: Path) -> None:
    """E-53: the append fails; the next call publishes the whole unit again."""
    writer = make(path)
    await put(writer, "op-0")
    Path(f"{path}.journal").unlink()
    with pytest.raises(CheckpointIdentityError):
        await put(writer, "op-1")
    assert not Path(f"{path}.journal").exists()
    await put(writer, "op-2")
    assert load_checkpoint(path).state["ops"].keys() == {"op-0", "op-1", "op-2"}
    await writer.aclose()


async def test_another_folder_in_the_place_of_ours(path: Path) -> None:
    """E-59."""
    writer = make(path)
    await put(writer, "op-0")
    aside = path.parent.with_name("aside")
    path.parent.rename(aside)
    path.parent.mkdir()
    with pytest.raises(CheckpointIdentityError):
        await put(writer, "op-1")
    assert listed(path) == []
    path.parent.rmdir()
    aside.rename(path.parent)
    await put(writer, "op-2")
    await writer.aclose()
    assert len(load_checkpoint(path).state["ops"]) == 3


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
async def test_a_folder_that_cannot_be_synced_is_a_capability(
    path: Path, number: int
) -> None:
    """E-63."""

    class NoFolderSync(FaultyOs):
        def fsync(self, fd: int) -> None:
            if self._names[fd].startswith("/"):
                raise OSError(number, "no")
            super().fsync(fd)

    path.parent.mkdir(parents=True)
    async with make(path, system=NoFolderSync(), max_journal_records=1) as writer:
        await put(writer, "op-0")
    assert load_checkpoint(path).state["ops"].keys() == {"op-0"}


async def test_names_that_cannot_be_exchanged_are_renamed(path: Path) -> None:
    class NoExchange(FaultyOs):
        def exchange(self, one: str, other: str, *, dir_fd: int) -> None:
            raise OSError(errno.EINVAL, "no")

        def rename_new(self, source: str, target: str, *, dir_fd: int) -> None:
            raise OSError(errno.ENOSYS, "no")

    system = NoExchange()
    async with make(path, system=system, max_journal_records=2) as writer:
        for i in range(7):
            await put(writer, f"op-{i}")
        assert listed(path) == ["checkpoint.json", "checkpoint.json.journal"]
        assert "rename:base" in names_of(system)
    assert len(load_checkpoint(path).state["ops"]) == 7


# --- version 2


async def test_a_snapshot_is_replaced_without_any_sync(path: Path) -> None:
    """D-08, D-11."""
    system = FaultyOs()
    async with make(path, version=2, system=system) as writer:
        await writer.flush()
        for i in range(3):
            await put(writer, f"op-{i}")
    assert not [seam for seam in system.seams if seam.call == "fsync"]
    temps = [name for name in system._latest.values() if name.endswith(".tmp")]
    assert all(re.fullmatch(r"checkpoint\.[0-9]+\.tmp", name) for name in temps)
    assert listed(path) == ["checkpoint.json"]


async def test_a_hundred_snapshots_at_once(path: Path) -> None:
    async with make(path, version=2) as writer:
        await asyncio.gather(*[put(writer, f"op-{i}") for i in range(100)])
    assert len(load_checkpoint(path).state["ops"]) == 100


async def test_a_failed_snapshot_leaves_the_old_one_and_no_temp(path: Path) -> None:
    """D-09, D-16."""
    system = FaultyOs()
    writer = make(path, version=2, system=system)
    await put(writer, "op-0")
    before = path.read_bytes()
    with pytest.raises(CheckpointValueError):
        await put(writer, "op-1", response=float("nan"))
    assert path.read_bytes() == before
    strike(system, "write:base-temp", errno.ENOSPC)
    assert (await failing(writer, "op-1")).published == "no"
    assert path.read_bytes() == before
    assert listed(path) == ["checkpoint.json"]
    system.faults = []
    await put(writer, "op-2")
    await writer.aclose()
    assert len(load_checkpoint(path).state["ops"]) == 3


async def test_a_temp_that_a_killed_writer_left_stays_and_is_passed_over(
    path: Path,
) -> None:
    path.parent.mkdir(parents=True)
    left = path.parent / "checkpoint.1.tmp"
    left.write_bytes(b"half")
    async with make(path, version=2) as writer:
        await put(writer, "op-0")
    assert left.read_bytes() == b"half"
    assert load_checkpoint(path).state["ops"].keys() == {"op-0"}


# --- plans and splices


@pytest.mark.parametrize("version", [2, 3])
async def test_a_new_plan_has_its_place_in_the_order(path: Path, version: int) -> None:
    """I-26, I-40: nothing overtakes it."""
    async with make(path, version=version) as writer:
        before = writer.record("op-0", status="completed", response=1)
        plan = writer.replace_plan(PROMOTED)
        after = writer.record_spawned(
            "n-1", status="completed", response=1, escalated_from="u-0"
        )
        await asyncio.gather(after, plan, before)
        if version == 3:
            base = json.loads(path.read_bytes())
            assert base["plan"] == PROMOTED
            assert base["ops"].keys() == {"op-0"}
            assert [r["entry"]["node_id"] for r in journal(path)] == ["n-1"]
    state = load_checkpoint(path).state
    assert state["plan"] == PROMOTED
    assert state["spawned"][0]["escalated_from"] == "u-0"


@pytest.mark.parametrize("version", [2, 3])
async def test_a_splice_without_a_guard_is_refused(path: Path, version: int) -> None:
    """I-35, I-38."""

    def splice(status: str, response: Any = None) -> Any:
        return writer.record_spawned(
            "n-1", status=status, response=response, escalated_from="u-0"
        )

    async with make(path, version=version) as writer:
        await writer.flush()
        before = path.read_bytes()
        with pytest.raises(CheckpointError) as refused:
            await splice("completed", 1)
        assert refused.value.code == "splice_unguarded"
        assert path.read_bytes() == before
        if version == 2:
            await splice("pending")
            with pytest.raises(CheckpointError) as refused:
                await splice("failed", 1)
            assert refused.value.code == "splice_unguarded"
        else:
            with pytest.raises(CheckpointError):
                await splice("pending")
        await writer.replace_plan(PROMOTED)
        await splice("failed", 1)
        with pytest.raises(CheckpointError) as refused:
            await writer.replace_plan(PLAN)
        assert refused.value.code == "splice_unguarded"
        await put(writer, "op-0")
    assert load_checkpoint(path).state["plan"] == PROMOTED
    with pytest.raises(CheckpointError):
        make(path, version=version, spawned=load_checkpoint(path).state["spawned"])


# --- what it tells


async def test_statistics_are_a_frozen_account(path: Path) -> None:
    system = FaultyOs()
    async with make(path, system=system, max_journal_records=2) as writer:
        for i in range(5):
            await put(writer, f"op-{i}", flow_context={"n": [i]})
        stats = writer.statistics()
    written = sum(seam.size for seam in system.seams if seam.call == "write")
    folder = next(s.number for s in system.seams if s.call == "flock")
    syncs = [s for s in system.seams[folder:] if s.call == "fsync"]
    assert (stats.admitted, stats.persisted, stats.queued) == (5, 5, 0)
    assert stats.bytes_written == written
    assert stats.fsyncs == len(syncs)
    assert stats.compactions == 2
    assert stats.capture_cpu_s > 0
    assert stats.nodes_copied > 0
    assert stats.nodes_encoded > 0
    with pytest.raises(AttributeError):
        stats.admitted = 0  # type: ignore[misc]


async def test_no_error_shows_what_a_run_holds(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """F-28: a marker in every value comes out of no message and no log."""
    marker = "zanzibar-secret"
    said: list[str] = []
    system = FaultyOs()
    caplog.set_level(logging.DEBUG)

    async def say(call: Callable[[], Any]) -> None:
        try:
            await call()
        except CheckpointError as error:
            said.append(f"{error} {error!r} {error.code}")

    given: dict[str, Any] = {"response": marker, "flow_context": {marker: marker}}
    writer = make(path, system=system, max_journal_records=1)
    for call in (
        "write:journal",
        "fsync:base-temp",
        "exchange:base",
        "unlink:base-temp",
    ):
        strike(system, call)
        await say(lambda: put(writer, marker, **given))
    system.faults = []
    Path(f"{path}.journal").write_bytes(b"")
    Path(f"{path}.journal").unlink()
    await say(lambda: put(writer, marker, **given))
    await say(lambda: put(writer, "x", status=marker))
    await say(writer.aclose)
    assert len(said) >= 3
    assert marker not in "".join(said) + caplog.text
