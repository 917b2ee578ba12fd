"""The console over real homes that change, break and come back (SPEC K-14, K-25)."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from harness.consoles import Driven, make_app
from harness.homes import Builder, Operation, gone
from heaveto.liveness import identity
from heaveto.observe import Observer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@asynccontextmanager
async def over(*homes: Path, **options: Any) -> AsyncIterator[Driven]:
    app = make_app(
        Observer(homes),
        homes=tuple(str(home) for home in homes),
        now=time.time,
        monotonic=time.monotonic,
        **options,
    )
    async with app.run_test(size=(100, 30)) as pilot:
        yield Driven(app, pilot)


async def _flow(builder: Builder, name: str, count: int = 3) -> Any:
    names = [f"{name}-{number}" for number in range(count)]
    operations = [
        Operation(each, tuple(names[index - 1 : index]))
        for index, each in enumerate(names)
    ]
    return await builder.begin(operations, name=name, metadata=identity())


async def test_a_run_that_begins_shows_up(tmp_path: Path) -> None:
    builder = await Builder.open(tmp_path / "home")
    async with over(tmp_path / "home") as at:
        await at.until("No runs here yet.")
        run = await _flow(builder, "later")
        await at.until("later")
        await run.run("later-0")
        await at.until("1/3")
        await at.press("enter")
        await at.until("later-2")
        await run.start("later-1")
        await at.until("1 running, 1 queued, 1 done")
    await run.close()
    await builder.close()


async def test_where_nothing_is_to_be_read_nothing_is_said_to_be_read(
    tmp_path: Path,
) -> None:
    (tmp_path / "empty").mkdir(mode=0o700)
    for home in (tmp_path / "missing", tmp_path / "empty"):
        async with over(home) as at:
            await at.until("No runs here yet.")
            await at.until("no data yet")
            assert "reading" not in at.rows()[0]
    builder = await Builder.open(tmp_path / "missing")
    run = await _flow(builder, "first")
    async with over(tmp_path / "missing") as at:
        await at.until("first")
        await at.until("data 0s")
    await run.close()
    await builder.close()


async def test_a_home_that_cannot_be_read_is_not_called_empty(tmp_path: Path) -> None:
    builder = await Builder.open(tmp_path / "home")
    run = await _flow(builder, "hidden")
    await run.close()
    await builder.close()
    with sqlite3.connect(tmp_path / "home" / "state.db") as database:
        database.execute("UPDATE schema_meta SET value = '99' WHERE key = 'version'")
    database.close()
    async with over(tmp_path / "home") as at:
        await at.until("What is there cannot be shown.")
        await at.until(" HOME  ")
        assert "version 99" in " ".join(at.text().split())
        assert "No runs here yet." not in at.text()
        assert "what was true before" not in at.text()
        assert at.row(" HOME  ").count("home/state.db") <= 1


async def test_several_homes_are_one_list(tmp_path: Path) -> None:
    builders = [await Builder.open(tmp_path / name) for name in ("one", "two")]
    runs = [
        await _flow(builder, f"flow-{index}") for index, builder in enumerate(builders)
    ]
    async with over(tmp_path / "one", tmp_path / "two") as at:
        await at.until("flow-1")
        assert "flow-0" in at.text()
        assert "+1" in at.rows()[0]
        at.app.store.find = str(tmp_path / "two")
        at.app.draw_now()
        await at.settle()
        assert "flow-0" not in at.text()
    for run, builder in zip(runs, builders, strict=True):
        await run.close()
        await builder.close()


async def test_a_run_folder_that_goes_away_ends_nothing(tmp_path: Path) -> None:
    builder = await Builder.open(tmp_path / "home")
    run = await _flow(builder, "doomed")
    await run.run("doomed-0")
    async with over(tmp_path / "home") as at:
        await at.until("doomed")
        await at.press("enter")
        await at.until("doomed-2")
        await run.close()
        await asyncio.to_thread(shutil.rmtree, run.run_dir.path)
        await builder.db.set_phase(run.session_id, "paused")
        await at.until("no checkpoint")
        await at.press("enter", "escape", "escape", "5", "1")
        assert at.app.is_running
    await builder.close()


async def test_a_home_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    builder = await Builder.open(tmp_path / "home")
    run = await _flow(builder, "steady")
    await run.close()
    await builder.close()
    async with over(tmp_path / "home") as at:
        await at.until("steady")
        await asyncio.to_thread((tmp_path / "home").rename, tmp_path / "away")
        for _ in range(20):
            await at.settle()
            await asyncio.sleep(0.02)
        await at.press("enter", "escape", "?", "escape")
        assert at.app.is_running
        await asyncio.to_thread((tmp_path / "away").rename, tmp_path / "home")
        await at.until("steady")


async def test_a_locked_database_is_told_and_the_keys_go_on(tmp_path: Path) -> None:
    builder = await Builder.open(tmp_path / "home")
    run = await _flow(builder, "locked-out")
    await run.close()
    await builder.close()
    async with over(tmp_path / "home") as at:
        await at.until("locked-out")
        other = sqlite3.connect(
            tmp_path / "home" / "state.db", isolation_level=None, timeout=5
        )
        try:
            other.execute("PRAGMA locking_mode = EXCLUSIVE")
            other.execute("BEGIN EXCLUSIVE")
            other.execute("UPDATE sessions SET name = 'changed'")
            began = time.monotonic()
            await at.press("enter", "escape", "slash")
            await at.type("lock")
            assert time.monotonic() - began < 20
            assert "locked-out" in at.text()
            other.execute("COMMIT")
        finally:
            other.close()
        await at.press("escape")
        await at.until("changed")


async def test_a_dead_run_and_a_flow_of_three_hundred(tmp_path: Path) -> None:
    builder = await Builder.open(tmp_path / "home")
    big = await _flow(builder, "big", 300)
    lost = await builder.begin(
        [Operation("only")], name="lost", metadata=await asyncio.to_thread(gone)
    )
    await lost.start("only")
    await builder.dead(lost)
    async with over(tmp_path / "home") as at:
        await at.until("its process is gone")
        await at.press("down", "enter")
        await at.until("300 operations")
        await at.press("end")
        assert "big-299" in at.row("▌")
        await at.press("home", "enter", "escape", "slash")
        await at.type("big-15")
        assert "big-150" in at.text()
    await big.close()
    await builder.close()
