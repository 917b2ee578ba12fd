"""The list: cheap for ended runs, never another answer than the run read whole."""

from __future__ import annotations

import asyncio
import itertools
import random
import shutil
import sqlite3
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.homes import Builder, Operation, multiply
from heaveto.checkpoint import loader
from heaveto.liveness import identity
from heaveto.model import RunState, RunStatus, Signal, SignalKind
from heaveto.observe import Observer
from heaveto.observe.attention import SORT_KEYS, Group, arrange, rank
from heaveto.observe.native import NativeSource
from heaveto.observe.rotation import Rotation
from heaveto.observe.snapshot import CheckpointView, Notice, RunSummary
from heaveto.seal import read_seal, seal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from harness.homes import RunUnderWay

K = SignalKind


@asynccontextmanager
async def built(path: Path) -> AsyncIterator[Builder]:
    builder = await Builder.open(path / "home")
    try:
        yield builder
    finally:
        await builder.close()


def told(run: RunSummary) -> dict[str, Any]:
    whole = run.as_dict()
    del whole["observed_at"]
    return whole


def seal_of(run: RunUnderWay, saved: int) -> dict[str, object]:
    assert run.writer is not None
    made = seal(
        run.run_dir.checkpoint,
        version=3,
        generation=run.writer.generation,
        seq=run.writer.journal_seq,
        saved=saved,
    )
    assert made is not None
    return {"checkpoint_seal": made}


async def any_run(builder: Builder, chance: random.Random) -> None:
    """Make an ended run of any shape."""
    operations = [Operation(f"o{number}") for number in range(chance.randint(0, 4))]
    run = await builder.begin(
        operations, checkpoint=chance.choice([2, 3, 3, None]), metadata=identity()
    )
    saved = 0
    for one in operations:
        fate = chance.choice(["run", "run", "fail", "skip", "cancel", "open", "none"])
        if fate in ("run", "fail", "open"):
            await run.start(one.name, stale=chance.random() < 0.1)
        if fate == "run":
            await run.complete(one.name, save=True)
            saved += 1
        elif fate == "fail":
            await run.fail(one.name, save=True)
            saved += 1
        elif fate == "skip":
            await run.emit(K.SKIPPED, one.name, reason={"code": "condition_false"})
        elif fate == "cancel":
            await run.emit(K.CANCELLED, one.name)
        if fate == "run" and chance.random() < 0.1:
            await run.emit(K.ESCALATED, one.name, route="higher_tier")
    metadata = {}
    if run.writer is not None and chance.random() < 0.5:
        writer = run.writer
        await writer.aclose()
        if writer.generation is not None:
            metadata = seal_of(run, saved)
    await run.end(
        chance.choice([RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED]),
        metadata=metadata,
    )


@pytest.mark.parametrize("seed", range(3))
async def test_the_list_says_what_each_run_says(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with built(tmp_path) as builder:
        for _ in range(30):
            await any_run(builder, chance)

        def compare() -> int:
            with Observer([builder.home]) as observer:
                listed = observer.list_runs()
            cheap = 0
            with Observer([builder.home]) as other:
                for run in listed:
                    detail = other.read_run(run.session_id)
                    assert told(run) == told(detail.run)
            source = observer.sources[0]
            assert isinstance(source, NativeSource)
            for key in (run.session_id for run in listed):
                cheap += source._listed[key].revision is None
            return cheap

        cheap = await asyncio.to_thread(compare)
    assert cheap == 30


async def test_a_sealed_checkpoint_is_not_loaded_and_a_changed_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[str] = []
    real = loader.Follower.poll

    def counting(self: loader.Follower, **given: Any) -> Any:
        loads.append(self._path.parent.name)
        return real(self, **given)

    monkeypatch.setattr(loader.Follower, "poll", counting)
    async with built(tmp_path) as builder:
        run = await builder.begin([Operation("a"), Operation("b")])
        await run.run("a")
        await run.run("b")
        await run.end()
        await asyncio.to_thread(multiply, run, 20, sealed=True)

        def look() -> dict[str, str]:
            with Observer([builder.home]) as observer:
                return {
                    one.run_id: one.checkpoint.status
                    for one in observer.list_runs()
                    if one.checkpoint is not None
                }

        first = await asyncio.to_thread(look)
        assert loads == [run.run_id]
        spoilt = builder.home.runs / "20261128T101500-000003" / "checkpoint.json"
        spoilt.write_bytes(b"{")
        second = await asyncio.to_thread(look)
    assert set(first.values()) == {"clean"}
    assert len(first) == 21
    assert sorted(loads[1:]) == ["20261128T101500-000003", run.run_id]
    assert second["20261128T101500-000003"] == "refused"


async def test_what_is_not_read_in_time_comes_with_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from heaveto.observe import ended

    async with built(tmp_path) as builder:
        run = await builder.begin([Operation("a")])
        await run.run("a")
        await run.end()
        size = sum(
            path.stat().st_size
            for path in (run.run_dir.checkpoint, run.run_dir.journal)
        )
        monkeypatch.setattr(ended, "_FREE", 5 * size)
        await asyncio.to_thread(multiply, run, 11, sealed=False)

        def looks() -> list[int]:
            with Observer([builder.home]) as observer:
                found = []
                for _ in range(4):
                    runs = observer.list_runs()
                    words = [one.checkpoint.status for one in runs if one.checkpoint]
                    found.append(words.count("unread"))
                return found

        monkeypatch.setattr(
            "heaveto.observe.native.EndedRuns",
            lambda roster, **given: ended.EndedRuns(roster, **given | {"budget": 0.0}),
        )
        unread = await asyncio.to_thread(looks)
    assert unread[0] == 7
    assert unread[-1] == 0
    assert unread == sorted(unread, reverse=True)


async def test_dead_runs_beyond_the_time_are_dead_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no time was left for is told from its row, and read by later looks."""
    from heaveto.observe import ended

    async with built(tmp_path) as builder:
        run = await builder.begin([Operation("a"), Operation("b", ("a",))])
        await run.run("a")
        await run.start("b")
        await builder.dead(run)
        await asyncio.to_thread(multiply, run, 19, sealed=False)
        monkeypatch.setattr(ended, "_FREE", 5 * ended._WHOLE)
        monkeypatch.setattr(
            "heaveto.observe.native.EndedRuns",
            lambda roster, **given: ended.EndedRuns(roster, **given | {"budget": 0.0}),
        )

        def looks() -> list[Any]:
            with Observer([builder.home]) as observer:
                found: list[Any] = []
                for _ in range(5):
                    runs = observer.list_runs()
                    assert {one.state for one in runs} == {"dead"}
                    assert {one.alive for one in runs} == {False}
                    assert len(observer.watch_paths()) == 1
                    found.append(
                        [
                            Counter(
                                (one.checkpoint.status, one.confidence)
                                for one in runs
                                if one.checkpoint
                            ),
                            Counter(tuple(sorted(one.nodes.items())) for one in runs),
                        ]
                    )
                return found

        found = await asyncio.to_thread(looks)
    assert found[0] == [
        Counter({("clean", "sure"): 5, ("unread", "derived"): 15}),
        Counter(
            {
                (("completed", 1), ("lost", 1), ("total", 2)): 5,
                (("completed", 1), ("total", 2), ("unknown", 1)): 15,
            }
        ),
    ]
    assert found[1][0]["clean", "sure"] == 10
    assert found[-1] == [
        Counter({("clean", "sure"): 20}),
        Counter({(("completed", 1), ("lost", 1), ("total", 2)): 20}),
    ]


async def test_an_ended_run_is_looked_at_again_in_its_turn(tmp_path: Path) -> None:
    moments = [100.0]
    async with built(tmp_path) as builder:
        runs = []
        for _ in range(3):
            run = await builder.begin([Operation("a")])
            await run.run("a")
            await run.end()
            runs.append(run)

        def look() -> None:
            source = NativeSource(builder.home, monotonic=lambda: moments[0])
            try:
                assert len(source.refresh()) == 3
                before = source.listed()
                assert source.refresh() == frozenset()
                assert all(a is b for a, b in zip(before, source.listed(), strict=True))
                runs[1].run_dir.journal.unlink()
                assert source.refresh() == frozenset()
                changed: set[str] = set()
                for _ in range(121):
                    moments[0] += 1.0
                    changed |= source.refresh()
                assert changed == {runs[1].session_id}
                [spoilt] = [one for one in source.listed() if one.session_id in changed]
                assert spoilt.checkpoint is not None
                assert spoilt.checkpoint.status == "refused"
            finally:
                source.close()

        await asyncio.to_thread(look)


async def test_a_home_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    async with built(tmp_path) as builder:
        run = await builder.begin([Operation("a")])
        await run.end()
    home = builder.home.path

    def look() -> None:
        with Observer([builder.home]) as observer:
            assert len(observer.list_runs()) == 1
            home.rename(tmp_path / "elsewhere")
            assert len(observer.list_runs()) == 1  # no fake empty list
            [view] = observer.health()
            assert view.problem is not None
            assert view.problem.code == "home_missing"
            shutil.copytree(tmp_path / "elsewhere", home)
            with sqlite3.connect(home / "state.db") as db:
                db.execute("UPDATE sessions SET name = 'other'")
            db.close()
            [one] = observer.list_runs()
            assert one.name == "other"
            [view] = observer.health()
            assert view.problem is None
            (home / "state.db").unlink()
            observer.list_runs()
            [view] = observer.health()
            assert view.problem is not None
            assert view.problem.code == "db_missing"

    await asyncio.to_thread(look)


async def test_another_database_in_the_same_place_is_read_from_the_start(
    tmp_path: Path,
) -> None:
    async with built(tmp_path) as builder:
        run = await builder.begin([Operation("a"), Operation("b")], metadata=identity())
        await run.run("a")
        await run.close()
    backup = tmp_path / "backup.db"
    shutil.copy(builder.home.state_db, backup)
    again = await Builder.open(tmp_path / "home", start=builder.now)
    await again.db.emit_signals(
        run.session_id,
        [
            Signal(kind=K.STARTED, operation_id=run.id("b"), name="b", at=again.tick()),
            Signal(kind=K.FAILED, operation_id=run.id("b"), name="b", at=again.tick()),
        ],
    )
    await again.close()

    def look() -> tuple[dict[str, int], dict[str, int]]:
        with Observer([builder.home]) as observer:
            [before] = observer.list_runs()
            backup.replace(builder.home.state_db)
            [after] = observer.list_runs()
            return before.nodes, after.nodes

    before, after = await asyncio.to_thread(look)
    assert before == {"total": 2, "completed": 1, "failed": 1}
    assert after == {"total": 2, "completed": 1, "queued": 1}


@pytest.mark.parametrize("seed", range(4))
async def test_looks_in_between_change_nothing(tmp_path: Path, seed: int) -> None:
    """An observer that looks all the time ends at what one sees who looks once."""
    chance = random.Random(seed)
    moments = [100.0]
    async with built(tmp_path) as builder:
        source = NativeSource(builder.home, monotonic=lambda: moments[0])
        runs: list[RunUnderWay] = []
        try:
            for _ in range(40):
                deed = chance.choice(["begin", "signal", "save", "end", "edit", "wait"])
                if deed == "begin" or not runs:
                    operations = [Operation("a"), Operation("b", ("a",))]
                    runs.append(await builder.begin(operations, metadata=identity()))
                run = chance.choice(runs)
                if deed == "signal":
                    kind = chance.choice([K.STARTED, K.COMPLETED, K.FAILED, K.PAUSED])
                    await run.emit(kind, chance.choice("ab"))
                elif deed == "save":
                    await run.save(chance.choice("ab"))
                elif deed == "end":
                    runs.remove(run)
                    await run.end()
                elif deed == "edit":  # by somebody who leaves updated_at as it is
                    await asyncio.to_thread(edit, builder, run, f"name {moments[0]}")
                moments[0] += chance.choice([0.01, 0.5, 1.5, 10.0])
                if chance.random() < 0.7:
                    await asyncio.to_thread(source.refresh, frozenset())
            moments[0] += 300.0
            for _ in range(3):
                await asyncio.to_thread(source.refresh)
                moments[0] += 5.0

            def compare() -> None:
                with Observer([builder.home]) as fresh:
                    expected = {one.session_id: told(one) for one in fresh.list_runs()}
                assert {
                    one.session_id: told(one) for one in source.listed()
                } == expected
                assert [one.session_id for one in source.listed()] == list(expected)

            await asyncio.to_thread(compare)
        finally:
            await asyncio.to_thread(source.close)
            for run in runs:
                await run.close()


def edit(builder: Builder, run: RunUnderWay, name: str) -> None:
    with sqlite3.connect(builder.home.state_db) as db:
        db.execute(
            "UPDATE sessions SET current_phase = ? WHERE id = ?", [name, run.session_id]
        )
    db.close()


async def test_a_locked_database_keeps_what_was_read(tmp_path: Path) -> None:
    async with built(tmp_path) as builder:
        run = await builder.begin([Operation("a")])
        await run.end()

    def look() -> None:
        with Observer([builder.home]) as observer:
            observer.list_runs()
            [fresh] = observer.health()
            (builder.home.state_db).rename(tmp_path / "aside")
            (builder.home.state_db).write_bytes(b"x" * 4096)
            assert len(observer.list_runs()) == 1
            [stale] = observer.health()
            assert stale.problem is not None
            assert stale.problem.code == "db_corrupt"
            assert stale.read_at == fresh.read_at
            assert observer.listed()[0].run_id == run.run_id

    await asyncio.to_thread(look)


def test_a_seal_holds_only_for_the_files_it_was_made_of(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.json"
    assert seal(path, version=3, generation=None, seq=1, saved=1) is None
    path.write_bytes(b"base")
    (tmp_path / "checkpoint.json.journal").write_bytes(b"journal")
    made = seal(path, version=3, generation="a" * 32, seq=7, saved=2)
    held = read_seal({"checkpoint_seal": made}, path)
    assert held is not None
    assert (held.seq, held.saved, held.generation) == (7, 2, "a" * 32)
    assert made is not None
    bad: list[object] = [
        None,
        [],
        {},
        {**made, "version": "3"},
        {**made, "seq": "7"},
        {**made, "base": None},
        {**made, "journal": None},
    ]
    for spoilt in bad:
        assert read_seal({"checkpoint_seal": spoilt}, path) is None
    (tmp_path / "checkpoint.json.journal").write_bytes(b"jourNal")
    assert read_seal({"checkpoint_seal": made}, path) is None


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 40),
    st.lists(st.floats(0.01, 20.0), min_size=1, max_size=40),
)
def test_everything_has_its_turn_once_in_a_period(
    count: int, pauses: list[float]
) -> None:
    now = [0.0]
    rotation = Rotation(30.0, lambda: now[0])
    keys = [f"k{number}" for number in range(count)]
    for key in keys:
        rotation.add(key)
        rotation.add(key)
    turns: dict[str, list[float]] = {key: [0.0] for key in keys}
    for pause in pauses:
        now[0] += pause
        for key in rotation.turn():
            turns[key].append(now[0])
    for times in turns.values():
        longest = max((b - a for a, b in itertools.pairwise(times)), default=0)
        assert longest <= 30.0 + 2 * max(pauses)


# --- order


def summary(number: int = 1, **given: Any) -> RunSummary:
    known: dict[str, Any] = {
        "run_id": f"20261129T101500-{number:06x}",
        "session_id": f"{number:032x}",
        "home": "/h",
        "source": "heaveto",
        "name": "flow",
        "status": RunStatus.COMPLETED,
        "state": RunState.COMPLETED,
        "reason_code": None,
        "phase": None,
        "alive": False,
        "status_source": "db",
        "observed_at": 1000.0,
        "confidence": "sure",
        "nodes": {"total": 1, "completed": 1},
        "checkpoint": None,
        "generation_dir": None,
        "started_at": 10.0,
        "ended_at": 20.0,
        "deadline_at": None,
        "resumed_from": None,
        "superseded_by": None,
    }
    return RunSummary(**{**known, **given})


def live(number: int, state: RunState, **given: Any) -> RunSummary:
    known: dict[str, Any] = {
        "status": RunStatus.RUNNING,
        "state": state,
        "alive": True,
        "ended_at": None,
        "last_sign_at": 990.0,
    }
    return summary(number, **{**known, **given})


def warned(number: int, code: str, **given: Any) -> RunSummary:
    return summary(
        number, warnings=(Notice(code=code, text="", what_to_do=""),), **given
    )


REFUSED = CheckpointView(
    version=3, generation=None, seq=None, status="refused", records_since_base=None
)


@pytest.mark.parametrize(
    ("run", "group", "weight"),
    [
        (summary(), Group.ENDED, 0),
        (live(1, RunState.EXECUTING), Group.LIVE, 0),
        (live(1, RunState.DEAD, alive=False), Group.NEEDS, 90),
        (summary(status=RunStatus.FAILED, state=RunState.FAILED), Group.NEEDS, 80),
        (live(1, RunState.STALLED), Group.NEEDS, 60),
        (live(1, RunState.PAUSED), Group.LIVE, 0),
        (live(1, RunState.PAUSED, last_sign_at=800.0), Group.NEEDS, 40),
        (live(1, RunState.EXECUTING, nodes={"total": 2, "failed": 1}), Group.NEEDS, 80),
        (warned(1, "checkpoint_refused", checkpoint=REFUSED), Group.NEEDS, 85),
        (warned(1, "steer_lost"), Group.NEEDS, 65),
        (warned(1, "clock_odd"), Group.ENDED, 0),
        (
            live(1, RunState.DEAD, alive=False, superseded_by="20261129T101500-ffffff"),
            Group.ENDED,
            0,
        ),
        (
            summary(status=RunStatus.CANCELLED, state=RunState.CANCELLED),
            Group.NEEDS,
            20,
        ),
    ],
)
def test_who_needs_somebody(run: RunSummary, group: Group, weight: int) -> None:
    found = rank(run)
    assert (found.group, found.weight) == (group, weight)


def test_the_order_of_attention() -> None:
    runs = [
        summary(1),
        live(2, RunState.EXECUTING),
        live(3, RunState.DEAD, alive=False, last_sign_at=500.0),
        live(4, RunState.DEAD, alive=False, last_sign_at=400.0),
        summary(5, status=RunStatus.FAILED, state=RunState.FAILED),
        summary(6, resumed_from="x", nodes={"total": 0}),
    ]
    order = [int(run.session_id, 16) for run in arrange(runs)]
    assert order == [4, 3, 5, 2, 1]
    assert [int(r.session_id, 16) for r in arrange(runs, attention=True)] == [4, 3, 5]
    assert len(arrange(runs, everything=True)) == 6
    for sort in SORT_KEYS:
        assert len(arrange(runs, sort=sort)) == 5


def test_find_looks_into_names_ids_and_states() -> None:
    runs = [summary(1, name="Release Notes"), live(2, RunState.PAUSED, name=None)]
    assert len(arrange(runs, find="release")) == 1
    assert len(arrange(runs, find="PAUSED")) == 1
    assert len(arrange(runs, find="20261129")) == 2
    assert arrange(runs, find="nowhere") == ()


def test_odd_times_do_not_break_the_order() -> None:
    runs = [
        summary(1, started_at=None, ended_at=None),
        summary(2, started_at=5e12, ended_at=-1.0),
        replace(summary(3), name="\x1b[2J"),
    ]
    for sort in SORT_KEYS:
        assert len(arrange(runs, sort=sort, everything=True)) == 3
