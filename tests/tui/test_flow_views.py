"""Canvas, around, map, timeline and table, driven by keys over one cursor."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from harness.consoles import Driven, console
from harness.flows_drawn import changed, planned
from harness.worlds import (
    NOW,
    Scripted,
    cache_review,
    detail,
    operation,
    rollback,
    summary,
    world,
)
from heaveto.model import OperationStatus as Op
from heaveto.model import Origin, RunState
from heaveto.observe.snapshot import LinkView
from heaveto_tui.screens.flow import VIEWS
from heaveto_tui.screens.run import RunScreen
from heaveto_tui.widgets import canvas as canvas_module

if TYPE_CHECKING:
    from heaveto.observe.snapshot import RunDetail

HOSTILE = "[red]x[/] \x1b[2J\x1b]52;c;QQ==\x07 \u202e 日本 \N{BOMB}"


def place(at: Driven) -> RunScreen:
    found = at.app.place
    assert isinstance(found, RunScreen)
    return found


async def opened(at: Driven, *keys: str) -> RunScreen:
    """Open the first run, and a view."""
    await at.press("enter")
    await at.until("TIME")
    await at.press(*keys)
    await at.quiet()
    return place(at)


async def drawn(at: Driven) -> None:
    """Wait until a layout that is made in a thread is shown."""
    for _ in range(2000):
        if place(at).canvas.drawing is not None:
            break
        await at.settle(1)
        await asyncio.sleep(0.005)
    await at.settle()


@pytest.fixture
def layouts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what was laid out afresh."""
    sizes: list[int] = []
    whole = canvas_module.__dict__["draw"]

    def counted(nodes: Any, *args: Any, **options: Any) -> Any:
        sizes.append(len(nodes))
        return whole(nodes, *args, **options)

    monkeypatch.setattr(canvas_module, "draw", counted)
    return sizes


# --- one cursor


async def test_every_view_shows_the_same_operation() -> None:
    async with console([cache_review()]) as at:
        run = await opened(at, "c")
        assert "[c canvas]" in at.rows()[2]
        assert "▌✗ researcher-2 ─" in at.text()
        await at.press("right")
        assert "▌● analyst!" in at.text()
        assert at.row(" ● done 3.2s").startswith(" analyst")
        await at.press("e")
        assert "▌● analyst!" in at.text()
        assert "2 steps around analyst: 8 of 9 operations" in at.text()
        await at.press("w")
        assert run.map.cursor == "analyst-id"
        assert "▌!" in at.text()
        await at.press("down")
        assert run.chosen() == "analyst-id"  # there is one operation in this step
        await at.press("right", "down")
        await at.press("t")
        await at.until("▌")  # the bars are drawn in their own time
        chosen = run.chosen()
        assert chosen in {"architect-id", "contrarian-id", "spawn-1-id"}
        name = str(chosen).removesuffix("-id")
        assert name in at.row("▌")
        await at.press("T")
        assert name in at.row("▌")
        await at.press("o")
        assert name in at.row("▌")


async def test_v_goes_round_the_views() -> None:
    async with console([cache_review()]) as at:
        run = await opened(at)
        seen = []
        for _ in VIEWS:
            seen.append(run.view)
            await at.press("v")
        assert seen == list(VIEWS)
        assert run.view == "outline"


@pytest.mark.parametrize("view", [name for name in VIEWS if name != "outline"])
async def test_problems_and_brackets_work_in_every_view(view: str) -> None:
    async with console([cache_review()]) as at:
        run = await opened(at, VIEWS[view])
        await at.press("right_square_bracket")
        assert run.chosen() != "researcher-2-id"
        await at.press("left_square_bracket")
        assert run.chosen() == "researcher-2-id"
        for _ in range(12):
            await at.press("left_square_bracket")
        await at.press("n")
        assert run.chosen() == "researcher-2-id"
        await at.press("enter")
        assert at.place == "operation"
        await at.press("escape")
        assert at.place == "run"
        assert run.view == view
        assert run.focused is run.view_pane()


async def test_the_window_of_another_run_begins_anew() -> None:
    async with console(world()) as at:
        await at.press("down", "down", "enter")
        await at.until("researcher-2")
        await at.press("c")
        assert "researcher-2" in at.text()
        await at.press("escape", "down", "enter")
        await at.quiet()
        assert place(at).view == "canvas"
        assert "‖ analyst" in at.text()
        assert "researcher-2" not in at.text()


# --- the canvas


async def test_arrows_go_along_and_across_the_flow() -> None:
    async with console([cache_review()], size=(140, 40)) as at:
        run = await opened(at, "c")
        await at.press("right", "right")
        first = run.chosen()
        await at.press("down")
        assert run.chosen() != first
        await at.press("up", "left")
        assert run.chosen() == "analyst-id"
        await at.press("end")
        assert run.chosen() == "evaluator-id"
        await at.press("home", "up")
        assert run.chosen() == "researcher-id"


async def test_the_canvas_turns() -> None:
    async with console([cache_review()]) as at:
        run = await opened(at, "c")
        assert run.canvas.direction == "LR"
        await at.press("D")
        assert "╰──────────────╯" in at.text()
        await at.press("down")
        assert run.chosen() == "analyst-id"
        await at.press("D", "w", "D")
        assert at.word == "Only the canvas has a direction."


async def test_a_status_change_is_one_line(layouts: list[int]) -> None:
    source = Scripted([planned(50)])
    async with console(source=source, size=(140, 40)) as at:
        run = await opened(at, "c")
        before = at.rows()
        drawn = list(run.canvas._strips)
        found = planned(50)
        running = next(o.id for o in found.operations if o.status is Op.RUNNING)
        source.put(changed(found, {running: Op.COMPLETED}))
        await at.until("26 done")
        await at.settle()
        made = [old is new for old, new in zip(drawn, run.canvas._strips, strict=True)]
        assert made.count(False) == 1
        assert layouts == [50]
        drawing = run.canvas.drawing
        assert drawing is not None
        x, y = drawing.slot(running)
        top = run.canvas.region
        differ = {
            (column, row)
            for row, (old, new) in enumerate(zip(before, at.rows(), strict=True))
            for column in range(max(len(old), len(new)))
            if old[column : column + 1] != new[column : column + 1]
            and top.y <= row < top.y + run.canvas.height
        }
        assert differ == {(x - run.canvas.x, y - run.canvas.y + top.y)}


async def test_a_spawned_operation_is_fitted_in(layouts: list[int]) -> None:
    found = cache_review()
    source = Scripted([found])
    async with console(source=source, size=(140, 40)) as at:
        run = await opened(at, "c")
        before = run.canvas.drawing
        assert before is not None
        await at.press("Z")
        assert at.word == "It is tidy: nothing was added."
        more = operation(
            "spawn-2", Op.RUNNING, needs=["analyst"], started=1, origin=Origin.SPAWNED
        )
        link = LinkView(
            head="analyst-id",
            tail="spawn-2-id",
            kind="spawn",
            condition=None,
            active=True,
        )
        operations = (*found.operations, more)
        source.put(detail(found.run, operations, links=(*found.links, link)))
        await at.until("spawn-2")
        assert layouts == [9]
        after = run.canvas.drawing
        assert after is not None
        assert after.boxes["analyst-id"] == before.boxes["analyst-id"]
        assert "1 fitted in, Z tidies" in at.text()
        await at.press("Z")
        assert layouts == [9, 10]
        assert "fitted in" not in at.text()


async def test_a_dependency_that_moves_is_laid_out_afresh(layouts: list[int]) -> None:
    found = cache_review()
    source = Scripted([found])
    async with console(source=source, size=(140, 40)) as at:
        run = await opened(at, "c")
        moved = tuple(
            replace(each, depends_on=("researcher-id",))
            if each.name == "architect"
            else each
            for each in found.operations
        )
        source.put(detail(found.run, moved, links=found.links))
        for _ in range(500):
            await at.settle(1)
            if len(layouts) == 2:
                break
            await asyncio.sleep(0.005)
        assert layouts == [9, 9]
        drawing = run.canvas.drawing
        assert drawing is not None
        assert set(drawing.layers[1]) == {"analyst-id", "architect-id"}


async def test_follow_keeps_the_front_in_view_until_somebody_moves() -> None:
    names = [f"step-{at:02}" for at in range(60)]

    def at_step(now: int) -> RunDetail:
        return detail(
            summary("0ddba11a", "a chain", RunState.EXECUTING),
            [
                operation(
                    name,
                    Op.COMPLETED if n < now else Op.RUNNING if n == now else Op.WAITING,
                    needs=names[n - 1 : n],
                    started=60.0 - n if n <= now else None,
                )
                for n, name in enumerate(names)
            ],
        )

    source = Scripted([at_step(2)])
    async with console(source=source) as at:
        run = await opened(at, "c", "f")
        assert "following what runs" in at.text()
        source.put(at_step(30))
        await at.until("◐ step-30")
        assert run.chosen() == "step-02-id"
        await at.press("left")
        assert not run.canvas.follow
        assert run.chosen() == "step-01-id"
        source.put(at_step(55))
        await at.quiet()
        assert "step-55" not in at.text()
        await at.press("f", "pageup")
        assert run.canvas.follow  # the drawing is lower than the window: nothing moved
        run.canvas.pan(-3, 0)
        assert not run.canvas.follow
        await at.press("c")
        assert "▌● step-01" in at.text()


async def test_a_large_flow_is_laid_out_in_a_thread_and_the_newest_wins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = canvas_module.__dict__["draw"]
    gate = threading.Event()
    made: list[str] = []

    def held(nodes: Any, direction: str, *args: Any, **options: Any) -> Any:
        assert threading.current_thread() is not threading.main_thread()
        assert gate.wait(20)
        made.append(direction)
        return whole(nodes, direction, *args, **options)

    monkeypatch.setattr(canvas_module, "draw", held)
    async with console([planned(250)], size=(140, 40)) as at:
        run = await opened(at, "c")
        assert "Laying out 250 operations" in at.text()
        await at.press("D")
        await at.press("D")
        await at.press("D")
        gate.set()
        await drawn(at)
        assert run.canvas.drawing is not None
        assert run.canvas.drawing.direction == "TB"
        assert made[0] == "LR"
        assert made[-1] == "TB"
        assert len(made) <= 3


async def test_above_four_hundred_the_canvas_wants_to_be_asked_twice(
    layouts: list[int],
) -> None:
    async with console([planned(500, of=1000)]) as at:
        run = await opened(at, "c")
        assert run.view == "outline"
        assert "500 operations: press c again" in at.word
        await at.press("w", "e", "v")
        assert run.view == "map"
        assert layouts == []
        await at.press("c")
        await drawn(at)
        assert run.view == "canvas"
        assert layouts == [500]


async def test_a_flow_drawn_is_a_hundred_rows_and_scrolls() -> None:
    async with console([planned(250)], size=(180, 45)) as at:
        run = await opened(at, "c")
        await drawn(at)
        assert run.minimap.display
        assert any("╭" in row[100:] and "╮" in row[100:] for row in at.rows()[30:])
        assert "250 operations" in at.text()
        first = (run.canvas.x, run.canvas.y)
        await at.press("pagedown")
        assert (run.canvas.x, run.canvas.y) != first
        await at.press("c")
        assert "▌" in at.text()


async def test_a_damaged_plan_is_drawn_with_a_word() -> None:
    names = ["a", "b", "c"]
    found = detail(
        summary("0ddba11a", "a cycle", RunState.FAILED),
        [
            operation(name, Op.COMPLETED, needs=[names[at - 1], "gone"], started=9)
            for at, name in enumerate(names)
        ],
    )
    async with console([found]) as at:
        await opened(at, "c")
        assert "! damaged plan: 1 dependency that closes a cycle not drawn" in at.text()
        for key in "ewtT":
            await at.press(key)
            assert "● " in at.text()


@pytest.mark.parametrize("ascii_only", [False, True])
async def test_hostile_names_stay_text_in_every_view(ascii_only: bool) -> None:
    found = detail(
        summary("0ddba11a", "hostile", RunState.FAILED),
        [
            operation(HOSTILE, Op.FAILED, started=9),
            operation("b" * 300, Op.SKIPPED, needs=[HOSTILE]),
        ],
    )
    async with console([found], ascii_only=ascii_only) as at:
        await opened(at)
        for key in "cDewtTo":
            await at.press(key)
            await at.quiet()
            assert "[red]x[/]" in at.text() or "[red]" in at.text()
            assert not {"\x1b", "\x07", "\u202e"} & set(at.text())
            if ascii_only:
                assert at.text().isascii()


async def test_clicks_choose_and_open() -> None:
    async with console([cache_review()], size=(140, 40)) as at:
        run = await opened(at, "c")
        drawing = run.canvas.drawing
        assert drawing is not None
        x, y = drawing.slot("architect-id")
        await at.pilot.click("#canvas", offset=(x - run.canvas.x, y - run.canvas.y))
        await at.settle()
        assert run.chosen() == "architect-id"
        await at.press("w")
        column, row = run.map._places["evaluator-id"]
        await at.pilot.click("#map", offset=(2 + 2 * column, row + 1))
        await at.settle()
        assert run.chosen() == "evaluator-id"
        await at.pilot.click("#map", offset=(2 + 2 * column, row + 1))
        await at.settle()
        assert at.place == "operation"


# --- around, map


async def test_around_shows_more_and_fewer_steps() -> None:
    async with console([planned(250)], size=(140, 40)) as at:
        run = await opened(at, "e")
        two = len(run.around.drawing.boxes) if run.around.drawing else 0
        await at.press("less_than_sign")
        assert "1 step around" in at.text()
        one = len(run.around.drawing.boxes) if run.around.drawing else 0
        await at.press("greater_than_sign", "greater_than_sign")
        assert "3 steps around" in at.text()
        three = len(run.around.drawing.boxes) if run.around.drawing else 0
        assert 1 < one < two < three
        await at.press("less_than_sign", "less_than_sign", "less_than_sign")
        assert "1 step around" in at.text()
        await at.press("o", "less_than_sign")
        assert at.word == "Only around and the timeline have more and less."


async def test_a_very_wide_flow_stays_quick_and_says_so() -> None:
    wide = [f"leaf-{at}" for at in range(3000)]
    found = detail(
        summary("0ddba11a", "wide", RunState.EXECUTING),
        [
            operation("root", Op.COMPLETED, started=9),
            *(operation(name, Op.WAITING, needs=["root"]) for name in wide),
            operation("end", Op.WAITING, needs=wide),
        ],
    )
    async with console([found]) as at:
        run = await opened(at, "e")
        assert "3002 operations so near: too many to draw" in at.text()
        assert run.around.drawing is None
        await at.press("w")
        assert "3 steps" in at.text()
        await at.press("right", "down", "down")
        assert run.chosen() == "leaf-2-id"
        await at.press("t", "T")
        assert "3002 of 3002 shown" in at.text()


async def test_around_follows_the_cursor_along_the_flow() -> None:
    async with console([cache_review()]) as at:
        run = await opened(at, "e")
        await at.press("right")
        assert run.chosen() == "analyst-id"
        assert "around analyst" in at.text()
        assert "evaluator" not in at.rows()[4]


async def test_the_map_frames_what_the_canvas_shows() -> None:
    async with console([planned(250)]) as at:
        run = await opened(at, "w")
        assert "╭" not in at.text()
        await at.press("c")
        await drawn(at)
        await at.press("w")
        await at.until("╭")
        assert at.rows()[3].count("╭") == 1
        width = max(len(column) for column in run.map._grid)
        marks = sum(row[:80].count(sign) for row in at.rows()[3:20] for sign in "●◐○")
        assert width > 4
        assert marks > 100


# --- timeline


async def test_the_timeline_tells_the_wait_at_a_pause() -> None:
    async with console([rollback()], size=(110, 40)) as at:
        await opened(at, "t")
        assert "░░░" in at.row("‖ analyst")
        assert "█" in at.row("● collect")
        assert "waiting at the pause 4m" in at.text()
        assert "pause" in at.rows()[3]
        await at.press("i")
        assert "┊" not in at.text()
        assert "i folds it" in at.text()
        await at.press("i")
        assert "┊" in at.text()


async def test_the_timeline_zooms_and_slides() -> None:
    async with console([cache_review()]) as at:
        run = await opened(at, "t")
        whole = at.rows()[3]
        await at.press("less_than_sign", "less_than_sign")
        assert run.timeline.zoom == 4
        middle = at.rows()[3]
        assert middle != whole
        await at.press("right")
        assert at.rows()[3] != middle
        for _ in range(9):
            await at.press("left")
        assert run.timeline.slid == 0
        for _ in range(9):
            await at.press("greater_than_sign")
        assert run.timeline.zoom == 1
        assert at.rows()[3] == whole


async def test_the_longest_chain_alone() -> None:
    async with console([cache_review()]) as at:
        await opened(at, "t")
        assert "architect" in at.text()
        await at.press("asterisk")
        assert "architect" not in at.text()
        assert at.text().count("★") == 5
        await at.press("asterisk", "o", "asterisk")
        assert at.word == "Only timeline and table show the longest chain alone."


async def test_the_timeline_of_nothing_says_so() -> None:
    found = detail(
        summary("0ddba11a", "fresh", RunState.EXECUTING),
        [operation("first", Op.WAITING)],
    )
    async with console([found]) as at:
        run = await opened(at, "t")
        assert run.view == "outline"
        assert at.word == "Nothing has started yet."


async def test_running_bars_grow_with_the_clock() -> None:
    moment = [NOW]
    async with console([cache_review()], now=lambda: moment[0]) as at:
        run = await opened(at, "t")
        assert run.ticks()
        before = at.row("spawn-1 ").count("▒")
        moment[0] += 4
        at.app._tick()
        await at.settle()
        assert at.row("spawn-1 ").count("▒") > before


# --- table


async def test_the_table_sorts_and_filters() -> None:
    async with console([cache_review()]) as at:
        run = await opened(at, "T")
        names = [entry.payload.operation.name for entry in run.table.entries]
        assert names[0] == "researcher-2"
        assert "by status, worst first" in at.text()
        await at.press("s")
        names = [entry.payload.operation.name for entry in run.table.entries]
        assert names == sorted(names)
        await at.press("s")
        names = [entry.payload.operation.name for entry in run.table.entries]
        assert names[0] == "spawn-1"
        await at.press("slash")
        await at.type("contra")
        assert "2 of 9 shown" in at.text()
        assert run.chosen() in {"contrarian-id", "contrarian-retry-id"}
        await at.press("down", "enter", "escape")
        assert "9 of 9 shown" in at.text()
        await at.press("o", "s")
        assert at.word == "Only the table is sorted; T shows it."


# --- find


@pytest.mark.parametrize("key", ["c", "e", "w", "t"])
async def test_a_search_moves_the_cursor_in_a_picture(key: str) -> None:
    async with console([cache_review()]) as at:
        run = await opened(at, key)
        await at.press("slash")
        await at.type("contra")
        assert run.chosen() == "contrarian-id"
        assert at.word == "Match 1 of 2; n and N go on."
        await at.press("enter", "n")
        assert run.chosen() == "contrarian-retry-id"
        await at.press("n")
        assert run.chosen() == "contrarian-id"
        await at.press("N")
        assert run.chosen() == "contrarian-retry-id"
        await at.press("slash", "escape")
        assert run.found() == ""
        await at.press("N")
        assert run.chosen() == "researcher-2-id"


@pytest.mark.parametrize("size", [(100, 30), (200, 50)])
async def test_arrows_move_on_a_canvas_while_a_search_is_open(
    size: tuple[int, int],
) -> None:
    """The outline beside it hides nothing, so it never takes the cursor back."""
    async with console([cache_review()], size=size) as at:
        run = await opened(at, "c", "slash")
        await at.type("researcher-2")
        await at.press("enter", "right")
        assert run.chosen() == "analyst-id"
        await at.press("right")
        assert run.chosen() == "contrarian-id"


@pytest.mark.parametrize("key", ["o", "T"])
async def test_a_search_without_a_match_keeps_the_cursor(key: str) -> None:
    async with console([cache_review()], size=(140, 30)) as at:
        run = await opened(at, key, "end")
        chosen = run.chosen()
        assert chosen not in (None, "researcher-2-id")  # where it begins
        await at.press("slash")
        await at.type("zzz")
        assert "Nothing matches" in at.text()
        await at.press("escape", "escape")
        assert run.found() == ""
        assert run.chosen() == chosen


@pytest.mark.parametrize("key", ["]", "N", "c", "right"])
async def test_whatever_moves_the_cursor_ends_following(key: str) -> None:
    async with console([cache_review()], size=(200, 50)) as at:
        run = await opened(at, "c", "right", "f")
        assert run.canvas.follow
        await at.press(key)
        assert not run.canvas.follow


@pytest.mark.parametrize("size", [(80, 24), (120, 30), (160, 40), (200, 50)])
async def test_every_width_shows_every_view(size: tuple[int, int]) -> None:
    async with console([planned(50)], size=size) as at:
        run = await opened(at)
        for name, key in VIEWS.items():
            await at.press(key)
            await at.quiet()
            assert run.view == name
            assert f"[{key} {name}]" in at.rows()[2]
            assert all(len(row) <= size[0] for row in at.rows())
            pane = run.view_pane() or run.outline
            assert pane.size.height >= 5
            assert run.focused is pane
            await at.press("tab", "tab")
            await at.press(key)
