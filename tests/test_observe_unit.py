"""The checkpoint followed: equal to a load at every step, quiet beside a writer."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from typing import TYPE_CHECKING, Any

import pytest

from heaveto.checkpoint.writer import CheckpointWriter
from heaveto.model import OperationStatus
from heaveto.observe.unit import Unit

if TYPE_CHECKING:
    from pathlib import Path

    from heaveto.observe.saved import Saved

PLAN: list[dict[str, Any]] = [
    {"agent_id": f"o{number}", "dep_indices": [], "assignee": "w", "task": "t"}
    for number in range(6)
]


def writer(path: Path, **given: Any) -> CheckpointWriter:
    known: dict[str, Any] = {
        "session_id": "s",
        "prompt": "p",
        "plan": [
            {**item, "node_id": f"00000000-0000-4000-8000-00000000000{number}"}
            for number, item in enumerate(PLAN)
        ],
        "config": {},
        "version": 3,
        "max_journal_records": 5,
    }
    return CheckpointWriter(path, **{**known, **given})


async def step(w: CheckpointWriter, chance: random.Random, context: Any) -> None:
    """Record something, new or again."""
    if chance.random() < 0.3:
        context.setdefault("operator_messages", []).append(
            {
                "ts": chance.random() * 1e9,
                "text": "t",
                "control_id": f"{chance.random()}",
            }
        )
    status = chance.choice(["completed", "failed"])
    response: Any = {"error": "e", "code": "timeout"} if status == "failed" else 1
    if chance.random() < 0.6:
        name = f"o{chance.randrange(6)}"
        await w.record(name, status=status, response=response, flow_context=context)
        return
    node = f"10000000-0000-4000-8000-00000000000{chance.randrange(4)}"
    pending = chance.random() < 0.3
    await w.record_spawned(
        node,
        status="pending" if pending else status,
        response=None if pending else response,
        operation="operate",
        assignee="critic",
        instruction="i",
        parent_id=PLAN[0].get("node_id", "00000000-0000-4000-8000-000000000000"),
        spawn_id=f"critic-{node[-1]}",
        flow_context=context,
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("version", [2, 3])
async def test_followed_or_loaded_whole_is_the_same(
    tmp_path: Path, seed: int, version: int
) -> None:
    chance = random.Random(seed)
    path = tmp_path / "run" / "checkpoint.json"
    followed, lazy = Unit(path), Unit(path)
    context: dict[str, Any] = {}
    async with writer(path, version=version) as w:
        await w.flush()
        for _ in range(25):
            await step(w, chance, context)
            found = await asyncio.to_thread(followed.read, live=True)
            whole = await asyncio.to_thread(Unit(path).read, live=False)
            assert found == whole
            assert found is not None
            assert found.view.status == "clean"
            if chance.random() < 0.3:
                assert await asyncio.to_thread(lazy.read, live=True) == whole
            assert followed.read(live=True) is found


async def test_a_writer_at_work_causes_no_warning(tmp_path: Path) -> None:
    """Neither an append in progress nor a compaction is ever reported (F-49)."""
    path = tmp_path / "run" / "checkpoint.json"
    words: set[str] = set()
    counts: list[int] = []
    stop = threading.Event()

    def read_on() -> None:
        unit = Unit(path)
        while not stop.is_set():
            found = unit.read(live=True)
            assert found is not None
            words.add(found.view.status)
            counts.append(found.view.saved)

    async with writer(path, max_journal_records=3) as w:
        await w.flush()
        reading = asyncio.create_task(asyncio.to_thread(read_on))
        for number in range(150):
            await w.record(f"o{number % 6}", status="completed", response="x" * 2000)
        stop.set()
        await reading
    assert words == {"clean"}
    assert counts == sorted(counts)


async def test_what_stands_unfinished_beside_a_living_writer_is_reported(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run" / "checkpoint.json"
    async with writer(path) as w:
        await w.record("o1", status="completed", response=1)
        await w.record("o2", status="completed", response=1)
    now = [0.0]
    slept: list[float] = []
    journal = path.parent / "checkpoint.json.journal"
    whole = journal.read_bytes()
    unit = Unit(path, monotonic=lambda: now[0], sleep=slept.append)
    first = await asyncio.to_thread(unit.read, live=True)
    assert first is not None
    journal.write_bytes(whole[:-3])
    assert await asyncio.to_thread(unit.read, live=True) is first
    now[0] += 1.9
    assert await asyncio.to_thread(unit.read, live=True) is first
    now[0] += 0.2
    torn = await asyncio.to_thread(unit.read, live=True)
    assert torn is not None
    assert torn.view.status == "recovered_prefix"
    assert slept == []
    journal.write_bytes(whole)
    again = await asyncio.to_thread(unit.read, live=True)
    assert again is not None
    assert again.view.status == "clean"


async def test_a_first_look_beside_a_writer_waits_for_it(tmp_path: Path) -> None:
    path = tmp_path / "run" / "checkpoint.json"
    async with writer(path) as w:
        await w.flush()
        await w.record("o1", status="completed", response=1)
    journal = path.parent / "checkpoint.json.journal"
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-3])
    slept: list[float] = []

    def finish(pause: float) -> None:
        slept.append(pause)
        if sum(slept) > 0.3:
            journal.write_bytes(whole)

    found = await asyncio.to_thread(Unit(path, sleep=finish).read, live=True)
    assert found is not None
    assert found.view.status == "clean"
    journal.write_bytes(whole[:-3])
    ended = await asyncio.to_thread(Unit(path, sleep=slept.append).read, live=False)
    assert ended is not None
    assert ended.view.status == "recovered_prefix"


async def test_a_change_that_time_cannot_tell_is_seen_after_it_settled(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run" / "checkpoint.json"
    async with writer(path, version=2) as w:
        await w.record("o1", status="completed", response="aa")
    now = [os.stat(path).st_ctime_ns + 1_000_000]
    unit = Unit(path, now_ns=lambda: now[0])
    first = await asyncio.to_thread(unit.read, live=False)
    assert first is not None
    # The same size and, as far as the unit can tell, the same times.
    data = path.read_bytes().replace(b'"completed"', b'"failed"   ')
    path.write_bytes(data)
    unit._identity = identity_now(path)
    assert await asyncio.to_thread(unit.read, live=False) is first
    now[0] += 10_000_000_000
    later = await asyncio.to_thread(unit.read, live=False)
    assert later is not None
    assert later.planned["o1"].status == OperationStatus.FAILED
    assert await asyncio.to_thread(unit.read, live=False) is later


def identity_now(path: Path) -> Any:
    from heaveto.seal import unit_identity

    return unit_identity(path)


async def test_what_is_there_and_what_is_not(tmp_path: Path) -> None:
    path = tmp_path / "run" / "checkpoint.json"
    unit = Unit(path, sleep=lambda _: None)

    def read() -> Saved | None:
        return unit.read(live=False)

    assert await asyncio.to_thread(read) is None
    async with writer(path) as w:
        await w.record("o1", status="completed", response=1)
    found = await asyncio.to_thread(read)
    assert found is not None
    assert found.view.saved == 1
    journal = path.parent / "checkpoint.json.journal"
    kept = journal.read_bytes()
    journal.unlink()
    missing = await asyncio.to_thread(read)
    assert missing is not None
    assert (missing.view.status, missing.reasons) == ("refused", ("journal_missing",))
    assert (missing.planned, missing.plan, missing.messages) == ({}, (), ())
    journal.write_bytes(kept)
    path.unlink()
    base = await asyncio.to_thread(read)
    assert base is not None
    assert base.reasons == ("base_missing",)
    path.write_bytes(b'{"version":99}')
    newer = await asyncio.to_thread(read)
    assert newer is not None
    assert newer.reasons == ("version_unsupported",)
    assert newer.view.version == 99
    path.unlink()
    journal.unlink()
    assert await asyncio.to_thread(read) is None
