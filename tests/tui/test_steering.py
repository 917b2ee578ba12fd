"""Steering from the console over a real home: the row that is written, or none."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from harness.consoles import Driven, make_app
from harness.homes import Builder, Operation, gone
from heaveto.errors import ControlError, UsageError
from heaveto.liveness import identity
from heaveto.model import RunStatus, SignalKind
from heaveto.observe import Observer
from heaveto.statedb import ControlRow, ReadDB
from heaveto_tui.ending import end_process
from heaveto_tui.launch import choose_look, choose_palette

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from harness.homes import RunUnderWay

OPERATIONS = [
    Operation("survey"),
    Operation("engine", ("survey",)),
    Operation("write", ("engine",)),
]


class World:
    """A real home with one run, and a console over it."""

    def __init__(self, builder: Builder, run: RunUnderWay, at: Driven) -> None:
        self.builder, self.run, self.at = builder, run, at

    def rows(self) -> list[ControlRow]:
        with ReadDB.open(self.builder.home.state_db) as database:
            return list(database.controls())

    async def row(self) -> ControlRow:
        """Wait for the one row that was written."""
        for _ in range(500):
            if rows := self.rows():
                [row] = rows
                return row
            await self.at.pilot.pause(0.01)
        raise AssertionError(f"no row was written; last word: {self.at.word}")


def _tree(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


async def _begin(builder: Builder, **values: Any) -> RunUnderWay:
    run = await builder.begin(
        [Operation(each.name, each.heads) for each in OPERATIONS],
        name="release-notes",
        metadata={**identity(), **values.pop("metadata", {})},
        **values,
    )
    await run.run("survey")
    await run.start("engine")
    return run


@asynccontextmanager
async def live(tmp_path: Path, **options: Any) -> AsyncIterator[World]:
    """Run a console over a home in which this process seems to run a flow."""
    builder = await Builder.open(tmp_path / "home")
    run = await _begin(builder)
    try:
        async with console_over(builder, **options) as at:
            await at.until("release-notes")
            yield World(builder, run, at)
    finally:
        await run.close()
        await builder.close()


@asynccontextmanager
async def console_over(builder: Builder, **options: Any) -> AsyncIterator[Driven]:
    """Run a console over a real home."""
    import time

    home = str(builder.home.path)
    observer = Observer([builder.home])
    app = make_app(
        observer,
        homes=(home,),
        now=time.time,
        **{"monotonic": time.monotonic, **options},
    )
    async with app.run_test(size=(100, 30)) as pilot:
        yield Driven(app, pilot)


async def test_pause_says_what_it_does_and_writes_one_row(tmp_path: Path) -> None:
    async with live(tmp_path) as world:
        at = world.at
        await at.press("p")
        await at.until("1 running operation will finish: engine.")
        assert "write waits until you resume." in at.text()
        assert "heaveto ctl pause" in at.text()
        assert world.rows() == []
        await at.press("enter")
        row = await world.row()
        assert (row.verb, row.session_id) == ("pause", world.run.session_id)
        assert row.payload is None
        await at.until(f"pause {row.id[:8]} queued.")


@pytest.mark.parametrize("no", ["escape", "q", "backspace"])
async def test_no_writes_nothing(tmp_path: Path, no: str) -> None:
    async with live(tmp_path) as world:
        await world.at.press("p", no)
        assert world.at.on_top == "RunsScreen"
        assert world.at.word == "Nothing has been sent."
        assert world.rows() == []


async def test_resume_of_a_paused_run(tmp_path: Path) -> None:
    async with live(tmp_path) as world:
        await world.builder.db.set_phase(world.run.session_id, "paused")
        await world.run.complete("engine")
        await world.run.emit(SignalKind.PAUSED, "write")
        await world.at.until("paused")
        await world.at.press("r")
        await world.at.until("write starts at once")
        await world.at.press("enter")
        assert (await world.row()).verb == "resume"


async def test_a_message_is_written_looked_at_and_queued(tmp_path: Path) -> None:
    async with live(tmp_path) as world:
        at = world.at
        await at.press("m")
        await at.type("Use [b]8811[/b]")
        await at.until("15 characters.")
        assert "Next to start is write." in at.text()
        await at.press("enter")
        await at.until("┃- (time it is taken): Use [b]8811[/b]")
        assert "ctl msg" in at.text()
        assert world.rows() == []
        await at.press("enter")
        row = await world.row()
        assert (row.verb, row.payload) == ("message", {"text": "Use [b]8811[/b]"})
        await at.until("queued.")
        assert at.app.store.history == ["Use [b]8811[/b]"]
        await at.press("m", "up")
        await at.until("Use [b]8811[/b]")  # an earlier message comes back


async def test_a_run_that_ends_takes_the_key_of_its_message(tmp_path: Path) -> None:
    async with live(tmp_path) as world:
        at = world.at
        await at.press("m")
        await at.type("hello")
        await at.press("enter")
        await at.until(" \u21b5 queue the message")
        await world.run.end()
        await at.until(" (\u21b5 queue the message)")
        await at.until("Not sent: the run ended as done")
        await at.press("enter")
        assert at.on_top == "Composer"
        assert world.rows() == []


async def test_a_draft_survives_esc_and_every_reading(tmp_path: Path) -> None:
    async with live(tmp_path) as world:
        at = world.at
        await at.press("m")
        await at.type("half a th")
        await at.press("left", "left")
        await world.run.complete("engine")
        await world.run.start("write")
        await at.settle()
        await at.pilot.resize_terminal(90, 28)
        await at.type("X")
        assert "half a Xth" in at.text()
        await at.press("escape")
        assert "It is kept as a draft." in at.word
        assert world.rows() == []


async def test_a_draft_comes_back_with_its_caret(tmp_path: Path) -> None:
    async with live(tmp_path) as world:
        at = world.at
        await at.press("m")
        await at.type("abc")
        await at.press("left", "escape", "m")
        await at.type("X")
        await at.until("abXc")


async def test_an_empty_or_too_long_message_is_not_sent(tmp_path: Path) -> None:
    async with live(tmp_path) as world:
        at = world.at
        await at.press("m", "space", "enter")
        await at.until("There is nothing to send yet.")
        editor = at.app.screen.query_one("#editor")
        editor.load_text("é" * 40_000)  # type: ignore[attr-defined]
        await at.until("80000 bytes: 14464 more than a message may have.")
        await at.press("enter")
        assert "step 1 of 2" in at.text()
        assert world.rows() == []


async def test_stop_wants_four_characters(tmp_path: Path) -> None:
    async with live(tmp_path) as world:
        at, short = world.at, world.run.session_id[:4]
        await at.press("x")
        await at.until("engine: it finishes and is saved")
        await at.press("enter")
        assert at.on_top == "Typed"
        await at.type("zzzz")
        await at.press("enter")
        assert world.rows() == []
        await at.press("ctrl+u")
        await at.type(short)
        await at.press("enter")
        assert (await world.row()).verb == "stop"


async def test_the_effect_changes_while_the_question_is_open(tmp_path: Path) -> None:
    async with live(tmp_path) as world:
        at = world.at
        await at.press("p")
        await at.until("will finish: engine.")
        await world.run.complete("engine")
        await at.until("Nothing runs right now.")
        await world.run.run("write")
        await world.run.end()
        await at.until("Not sent: the run ended as done")
        await at.press("enter")
        assert at.on_top == "Question"  # it cannot be said any more
        await at.press("escape")
        assert world.rows() == []


async def test_a_refusal_of_the_engine_is_told(tmp_path: Path) -> None:
    async with live(tmp_path) as world:
        at = world.at
        await at.press("p")
        await at.until("will finish")
        # The flow stops listening after the question was opened.
        await world.builder.db.merge_metadata(
            world.run.session_id, {"flow_control_poller": "stopped"}
        )
        await at.press("enter")
        await at.until("Not sent to")
        assert world.rows() == []


async def test_a_control_is_followed_until_it_is_applied(tmp_path: Path) -> None:
    from heaveto.controls.poller import ControlPoller

    class Gate:
        def pause(self) -> None: ...
        def resume(self) -> None: ...
        def stop(self) -> None: ...
        def has_pending(self) -> bool:
            return True

        def append_message(self, entry: object) -> None: ...

    async with live(tmp_path) as world:
        poller = ControlPoller(
            world.builder.db,
            session_id=world.run.session_id,
            run_id=world.run.run_id,
            steerable=Gate(),
        )
        listening = asyncio.create_task(poller.run())
        try:
            at = world.at
            await at.press("m")
            await at.type("hello")
            await at.press("enter", "enter")
            await at.until("Nobody has read it yet.")
            await at.press("5")
            await at.until("message  ● applied")
            row = await world.row()
            await world.run.complete("engine")
            await world.run.start("write", rendered=[row.id])
            await at.until("message  ● read")
        finally:
            await poller.stop()
            await listening


@asynccontextmanager
async def ended(
    tmp_path: Path, *, controls: Iterable[dict[str, Any]] = (), heir: bool = False
) -> AsyncIterator[World]:
    """Run a console over a run whose process is gone."""
    from harness.steering import add_control

    builder = await Builder.open(tmp_path / "home")
    run = await _begin(builder, metadata=await asyncio.to_thread(gone))
    await builder.dead(run)
    for number, values in enumerate(controls):
        await asyncio.to_thread(
            add_control, builder.home, f"{number:032x}", run.session_id, **values
        )
    later = None
    if heir:
        later = await _begin(builder, metadata={"resumed_from": run.session_id})
    try:
        async with console_over(builder) as at:
            await at.until("its process is gone" if not heir else "by ")
            yield World(builder, run, at)
    finally:
        if later is not None:
            await later.close()
        await builder.close()


async def test_a_dead_run_takes_nothing(tmp_path: Path) -> None:
    async with ended(tmp_path) as world:
        for key in ("p", "r", "m", "x"):
            await world.at.press(key)
            assert world.at.on_top == "RunsScreen"
            assert world.at.word.startswith("Not sent: its process is gone")
        assert world.rows() == []


async def test_a_dead_run_is_closed_through_the_command(tmp_path: Path) -> None:
    async with ended(tmp_path) as world:
        at = world.at
        await at.press("C")
        await at.until("Its row gets an end")
        assert "heaveto close" in at.text()
        await at.press("enter")
        for _ in range(600):
            with ReadDB.open(world.builder.home.state_db) as database:
                row = database.session(world.run.session_id)
            if row is not None and row.status != "running":
                break
            await at.settle()
        assert row is not None
        assert row.status in {RunStatus.FAILED, RunStatus.ABORTED, RunStatus.CANCELLED}
        await at.until(row.status)


@pytest.mark.parametrize(("keys", "stored"), [((), "abandoned"), (("up",), "applied")])
async def test_a_claim_is_closed_by_hand(
    tmp_path: Path, keys: tuple[str, ...], stored: str
) -> None:
    claimed = {
        "verb": "message",
        "payload": '{"text": "And why."}',
        "result": "applying:run-7",
        "claimed_at": 2.0,
    }
    async with ended(tmp_path, controls=[claimed]) as world:
        at = world.at
        await at.press("5")
        await at.until("not reported")
        await at.press("C")
        await at.until("You decide what the record says")
        assert world.rows()[0].result == "applying:run-7"
        await at.press(*keys, "enter")
        await at.until("closed by hand")
        assert (world.rows()[0].result or "").startswith(f"{stored}: resolved by ")


async def test_closing_by_hand_can_be_left(tmp_path: Path) -> None:
    claimed = {"verb": "message", "result": "applying", "claimed_at": 2.0}
    async with ended(tmp_path, controls=[claimed]) as world:
        await world.at.press("5", "C", "escape")
        assert world.rows()[0].result == "applying"
        await world.at.press("m")
        assert world.at.word.startswith("Not sent")


async def test_a_lost_message_is_sent_again_to_the_heir(tmp_path: Path) -> None:
    lost = {
        "verb": "message",
        "payload": '{"text": "Prefer the boring option."}',
        "result": "applied",
        "claimed_at": 2.0,
        "applied_at": 2.0,
    }
    async with ended(tmp_path, controls=[lost], heir=True) as world:
        at = world.at
        key = next(
            seat.key
            for seat in at.app.store.seats()
            if seat.run.session_id == world.run.session_id
        )
        at.app.choose_run(key)
        await at.press("5")
        await at.until("lost")
        await at.press("A")
        await at.until("Prefer the boring option.")
        await at.press("enter")
        for _ in range(500):
            if len(world.rows()) == 2:
                break
            await at.settle()
        new = next(
            row for row in world.rows() if row.session_id != world.run.session_id
        )
        assert new.payload == {"text": "Prefer the boring option."}


async def test_a_session_leaves_the_run_folders_as_they_were(tmp_path: Path) -> None:
    async with live(tmp_path) as world:
        before = _tree(world.builder.home.runs)
        at = world.at
        await at.press("enter")
        await at.until("OPERATION")
        await at.press("enter", "5", "question_mark", "escape", "1", "p", "enter")
        await world.row()
        await at.press("m")
        await at.type("hello")
        await at.press("enter", "escape")
        assert _tree(world.builder.home.runs) == before


# --- ending a process


async def _summary(builder: Builder, run: RunUnderWay) -> Any:
    with Observer([builder.home]) as observer:
        return (await asyncio.to_thread(observer.read_run, run.session_id)).run


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ({"host": "elsewhere"}, "not_ours"),
        ({"pid": None}, "not_ours"),
        ({"pid": 1}, "not_ours"),
        ({"pid_create_time": 5.0}, "dead_run"),
    ],
)
async def test_no_process_but_the_verified_one_is_ended(
    tmp_path: Path, metadata: dict[str, Any], code: str
) -> None:
    builder = await Builder.open(tmp_path / "home")
    run = await _begin(builder, metadata=metadata)
    try:
        found = await _summary(builder, run)
        with pytest.raises(ControlError) as refused:
            await asyncio.to_thread(end_process, found)
        assert refused.value.code == code
    finally:
        await run.close()
        await builder.close()


async def test_a_dead_process_is_not_looked_for_again(tmp_path: Path) -> None:
    builder = await Builder.open(tmp_path / "home")
    run = await _begin(builder, metadata=await asyncio.to_thread(gone))
    try:
        found = await _summary(builder, run)
        with pytest.raises(ControlError) as refused:
            await asyncio.to_thread(end_process, found)
        assert refused.value.code == "dead_run"
    finally:
        await run.close()
        await builder.close()


# --- how it is started


@pytest.mark.parametrize(
    ("environ", "asked", "expected"),
    [
        ({"LANG": "en_US.UTF-8", "TERM": "xterm"}, False, False),
        ({"LANG": "en_US.UTF-8", "TERM": "xterm"}, True, True),
        ({"LANG": "en_US.UTF-8", "TERM": "linux"}, False, True),
        ({"LANG": "en_US.ISO-8859-1", "TERM": "xterm"}, False, True),
        ({"LC_ALL": "C", "LANG": "en_US.UTF-8", "TERM": "xterm"}, False, True),
        ({"LC_ALL": "C.UTF-8", "TERM": "xterm"}, False, False),
        ({"LC_CTYPE": "C.UTF-8", "LANG": "en_US.ISO-8859-1"}, False, True),
        ({"LC_CTYPE": "C.UTF-8"}, False, False),
        ({}, False, False),
        ({"LANG": "ja_JP.UTF-8", "TERM": "xterm"}, False, True),
    ],
)
def test_ascii_where_nothing_else_can_be_drawn(
    environ: dict[str, str], asked: bool, expected: bool
) -> None:
    assert choose_look(asked, environ).ascii_only is expected


def test_a_palette_for_the_terminal() -> None:
    assert choose_palette(None, False, {"TERM": "xterm-256color"}).name == "night"
    assert choose_palette(None, False, {"TERM": "linux"}).name == "ansi"
    assert choose_palette("day", False, {}).name == "day"
    assert choose_palette("day", True, {}).name == "none"
    assert choose_palette("day", False, {"NO_COLOR": "1"}).name == "none"
    assert choose_palette("day", False, {"NO_COLOR": ""}).name == "day"
    with pytest.raises(UsageError, match="no theme is called nope"):
        choose_palette("nope", False, {})
