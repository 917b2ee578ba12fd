"""The stream of changes: what comes, when it ends, what it survives."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from harness.homes import Builder, Operation, changes_until, hold_lock
from heaveto.liveness import identity
from heaveto.model import RunState, RunStatus, SignalKind
from heaveto.observe import Observer
from heaveto.observe.hints import Hints, polling_wanted
from heaveto.observe.snapshot import HomeView, RunSummary
from heaveto.observe.watch import Change, Watcher

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


@asynccontextmanager
async def watched(builder: Builder) -> AsyncIterator[AsyncIterator[Change]]:
    """Follow a home; everything is stopped and closed afterwards."""
    observer = await asyncio.to_thread(Observer, [builder.home])
    stream = observer.watch()
    try:
        yield stream
    finally:
        await stream.aclose()  # type: ignore[attr-defined]
        await asyncio.to_thread(observer.close)


def of(change: Change, run: RunUnderWay) -> RunSummary | None:
    for one in change.runs:
        if one.session_id == run.session_id:
            return one
    return None


def reaches(run: RunUnderWay, **wanted: Any) -> Any:
    """Return a condition: the run is shown with these values."""

    def check(change: Change) -> bool:
        found = of(change, run)
        if found is None:
            return False
        told = {**found.as_dict(), "checkpoint": found.checkpoint}
        return all(told[name] == value for name, value in wanted.items())

    return check


async def test_the_first_change_is_everything(tmp_path: Path) -> None:
    async with built(tmp_path) as builder:
        run = await builder.begin([Operation("a")], metadata=identity())
        async with watched(builder) as stream:
            first = await anext(stream)
            assert first.keys is None
            assert first.concerns("whatever")
            assert [one.session_id for one in first.runs] == [run.session_id]
            assert [home.problem for home in first.homes] == [None]
        await run.close()


async def test_every_kind_of_change_comes(tmp_path: Path) -> None:
    async with built(tmp_path) as builder, watched(builder) as stream:
        assert (await anext(stream)).runs == ()
        run = await builder.begin(
            [Operation("a"), Operation("b", ("a",))], metadata=identity()
        )
        await changes_until(stream, reaches(run, state=RunState.EXECUTING))
        await run.start("a")
        counts = {"total": 2, "running": 1, "waiting": 1}
        change = await changes_until(stream, reaches(run, nodes=counts))
        assert run.session_id in (change.keys or ())
        await run.complete("a", save=False)
        counts = {"total": 2, "completed": 1, "queued": 1}
        await changes_until(stream, reaches(run, nodes=counts))
        await run.save("a")
        saved = await changes_until(stream, lambda change: _saved(change, run) == 1)
        assert saved.keys == {run.session_id}
        await run.end(RunStatus.FAILED, reason="run.failed.operation")
        ended = await changes_until(stream, reaches(run, state=RunState.FAILED))
        found = of(ended, run)
        assert found is not None
        assert found.reason_code == "run.failed.operation"


def _saved(change: Change, run: RunUnderWay) -> int | None:
    found = of(change, run)
    if found is None or found.checkpoint is None:
        return None
    return found.checkpoint.saved


async def test_a_killed_runner_is_dead_within_the_stream(tmp_path: Path) -> None:
    async with built(tmp_path) as builder:
        run = await builder.begin([Operation("a")])
        await run.start("a")
        runner = await asyncio.to_thread(hold_lock, run.run_dir)
        # The recorded process is the one that holds the lock.
        await builder.db.merge_metadata(
            run.session_id, {**identity(), "pid": runner.process.pid}
        )
        async with watched(builder) as stream:
            await changes_until(stream, reaches(run, alive=True))
            await asyncio.to_thread(runner.kill)
            change = await changes_until(stream, reaches(run, state=RunState.DEAD))
            found = of(change, run)
            assert found is not None
            assert found.nodes == {"total": 1, "lost": 1}
        await run.close()


@pytest.mark.parametrize("poll", ["1", ""])
async def test_with_and_without_notices(
    tmp_path: Path, poll: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEAVETO_POLL", poll)
    async with built(tmp_path) as builder:
        run = await builder.begin([Operation("a"), Operation("b")], metadata=identity())
        async with watched(builder) as stream:
            first = await anext(stream)
            assert [home.polling for home in first.homes] == [poll == "1"]
            for number, name in enumerate("ab", 1):
                await run.save(name)
                await changes_until(
                    stream, lambda change, n=number: _saved(change, run) == n
                )
        await run.close()


async def test_a_home_that_vanishes_and_returns(tmp_path: Path) -> None:
    async with built(tmp_path) as builder:
        run = await builder.begin([Operation("a")])
        await run.end()
    home, aside = builder.home.path, tmp_path / "aside"

    def problem(code: str | None) -> Any:
        def check(change: Change) -> bool:
            found = change.homes[0].problem
            return (None if found is None else found.code) == code

        return check

    async with watched(builder) as stream:
        await changes_until(stream, problem(None))
        await asyncio.to_thread(home.rename, aside)
        gone = await changes_until(stream, problem("home_missing"))
        assert len(gone.runs) == 1
        await asyncio.to_thread(shutil.copytree, aside, home)
        back = await changes_until(stream, problem(None))
        assert len(back.runs) == 1
        await asyncio.to_thread(_rename_runs, home / "state.db", "replaced")
        await changes_until(stream, lambda change: change.runs[0].name == "replaced")
        await asyncio.to_thread(shutil.rmtree, home)
        await changes_until(stream, problem("home_missing"))
        again = await Builder.open(tmp_path / "home")
        await again.close()
        empty = await changes_until(stream, problem(None))
        if empty.runs:
            await changes_until(stream, lambda change: change.runs == ())


def _rename_runs(path: Path, name: str) -> None:
    """Put another database in the place of one."""
    other = path.with_name("other.db")
    shutil.copy(path, other)
    with sqlite3.connect(other) as db:
        db.execute("UPDATE sessions SET name = ?", [name])
    db.close()
    other.replace(path)


async def test_a_burst_is_merged_and_nothing_is_lost(tmp_path: Path) -> None:
    operations = [Operation(f"o{number}") for number in range(400)]
    async with built(tmp_path) as builder:
        runs = [
            await builder.begin(operations_again(operations), metadata=identity())
            for _ in range(3)
        ]
        async with watched(builder) as stream:
            await anext(stream)
            for run in runs:
                events: list[tuple[K, str, dict[str, object]]] = []
                for name in run.operations:
                    events += [(K.STARTED, name, {}), (K.COMPLETED, name, {})]
                await run.emit_all(events)
            whole = {"total": 400, "completed": 400}
            seen = 0
            async for change in stream:
                seen += 1
                if all(reaches(run, nodes=whole)(change) for run in runs):
                    break
            assert seen <= 30
        for run in runs:
            await run.close()


def operations_again(operations: list[Operation]) -> list[Operation]:
    return [Operation(one.name) for one in operations]


async def test_a_slow_reader_gets_one_merged_change() -> None:
    def change(keys: set[str] | None, number: int) -> Change:
        view = HomeView(path="/h", source="heaveto", read_at=float(number))
        return Change(
            runs=(), keys=None if keys is None else frozenset(keys), homes=(view,)
        )

    a, b = change({"a"}, 1), change({"b"}, 2)
    merged = b.after(a)
    assert (merged.keys, merged.homes) == (frozenset({"a", "b"}), b.homes)
    assert b.after(None) is b
    assert b.after(change(None, 0)).keys is None
    assert change(None, 3).after(a).keys is None


async def test_the_loop_is_never_blocked(tmp_path: Path) -> None:
    """All reading is done by a thread: the loop's thread never asks a source."""
    async with built(tmp_path) as builder:
        run = await builder.begin([Operation("a")], metadata=identity())
        here = threading.get_ident()
        observer = await asyncio.to_thread(Observer, [builder.home])
        source = observer.sources[0]
        asked: set[int] = set()
        real = source.refresh

        def refresh(touched: Any = None) -> frozenset[str]:
            asked.add(threading.get_ident())
            return real(touched)

        source.refresh = refresh  # type: ignore[method-assign]
        stream = observer.watch()
        await anext(stream)
        await run.start("a")
        await changes_until(stream, reaches(run, nodes={"total": 1, "running": 1}))
        await stream.aclose()  # type: ignore[attr-defined]
        await asyncio.to_thread(observer.close)
        await run.close()
    assert here not in asked
    assert len(asked) == 1


async def test_closing_the_observer_ends_the_stream_and_its_thread(
    tmp_path: Path,
) -> None:
    async with built(tmp_path) as builder:
        observer = await asyncio.to_thread(Observer, [builder.home])
        stream = observer.watch()
        await anext(stream)
        await asyncio.to_thread(observer.close)
        assert [change async for change in stream] == []
        names = {thread.name for thread in threading.enumerate()}
        assert not {name for name in names if name.startswith("heaveto-")}


async def test_an_error_of_the_thread_reaches_the_reader(tmp_path: Path) -> None:
    async with built(tmp_path) as builder:
        observer = await asyncio.to_thread(Observer, [builder.home])

        def broken(_: Any = None) -> frozenset[str]:
            raise ZeroDivisionError

        observer.refresh = broken  # type: ignore[method-assign,assignment]
        async with Watcher(observer) as watcher:
            with pytest.raises(ZeroDivisionError):
                async for _ in watcher:
                    pass
        await asyncio.to_thread(observer.close)


# --- waiting


async def test_waiting_for_an_end(tmp_path: Path) -> None:
    async with built(tmp_path) as builder:
        run = await builder.begin([Operation("a")], metadata=identity())
        await run.start("a")
        observer = await asyncio.to_thread(Observer, [builder.home])
        detail, late = await observer.wait_for_end(run.run_id, 0.3)
        assert (late, detail.run.state) == (True, RunState.EXECUTING)
        waiting = asyncio.create_task(observer.wait_for_end(run.session_id, 60.0))
        await run.complete("a")
        await run.end()
        detail, late = await waiting
        assert (late, detail.run.state) == (False, RunState.COMPLETED)
        assert detail.run.nodes == {"total": 1, "completed": 1}
        again, late = await observer.wait_for_end(run.session_id)
        assert (late, again.run.state) == (False, RunState.COMPLETED)
        await asyncio.to_thread(observer.close)


async def test_waiting_ends_when_the_process_is_gone(tmp_path: Path) -> None:
    async with built(tmp_path) as builder:
        run = await builder.begin([Operation("a")])
        runner = await asyncio.to_thread(hold_lock, run.run_dir)
        await builder.db.merge_metadata(
            run.session_id, {**identity(), "pid": runner.process.pid}
        )
        observer = await asyncio.to_thread(Observer, [builder.home])
        waiting = asyncio.create_task(observer.wait_for_end(run.session_id, 60.0))
        await asyncio.to_thread(runner.kill)
        detail, late = await waiting
        assert (late, detail.run.state) == (False, RunState.DEAD)
        await asyncio.to_thread(observer.close)
        await run.close()


# --- hints


def test_when_notices_are_not_wanted() -> None:
    assert polling_wanted({"HEAVETO_POLL": "1"})
    assert not polling_wanted({"HEAVETO_POLL": "0"})
    assert not polling_wanted({})
    hints = Hints(wanted=False)
    hints.watch(["/tmp"])
    assert (hints.take(), hints.why_not) == (None, "polling")


def test_hints_name_the_directories_that_changed(tmp_path: Path) -> None:
    now = [100.0]
    for name in ("a", "b", ".venv"):
        (tmp_path / name).mkdir()
    hints = Hints(monotonic=lambda: now[0])
    try:
        hints.watch([str(tmp_path / "a"), str(tmp_path / "absent")])
        assert hints.take() == frozenset()
        # A new directory is watched a second later and counts as touched until then.
        hints.watch([str(tmp_path / name) for name in ("a", ".venv")])
        assert hints.take() == frozenset({".venv"})
        now[0] += 1.5
        hints.watch([str(tmp_path / name) for name in ("a", ".venv")])
        assert hints.take() == frozenset()
        found = told_of(hints, tmp_path / ".venv")
        assert found == {".venv"}
    finally:
        hints.close()


def told_of(hints: Hints, folder: Path) -> set[str]:
    """Replace a checkpoint until the system has told of it."""
    waiter = threading.Event()
    for number in range(200):
        (folder / "other.tmp").write_text(str(number))
        (folder / "other.tmp").replace(folder / "checkpoint.json")
        waiter.wait(0.05)
        if found := hints.take():
            return set(found)
    raise AssertionError("nothing was told")


def test_without_watches_everything_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import watchfiles

    tried = threading.Event()

    def none_left(*_: object, **__: object) -> Any:
        tried.set()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(watchfiles, "watch", none_left)
    hints = Hints()
    hints.watch([str(tmp_path)])
    assert tried.wait(30.0)
    hints.close()
    assert (hints.take(), hints.why_not) == (None, "watch_limited")
    hints.watch([str(tmp_path)])
    assert hints.take() is None
