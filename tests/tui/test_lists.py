"""Panes: the cursor keeps its item, only changes are drawn, follow gives way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import App

from heaveto_tui.lines import Line, Look
from heaveto_tui.theme import PALETTES, Painter
from heaveto_tui.widgets.lineview import Entry, ListView, TextView

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.geometry import Region

PAINTER = Painter(PALETTES["night"], Look())


class Shown(App[None]):
    """One pane."""

    def __init__(self, pane: ListView[str] | TextView) -> None:
        super().__init__()
        self.pane = pane

    def compose(self) -> ComposeResult:
        yield self.pane


class Counted(ListView[str]):
    """A list that tells which rows it marked as changed."""

    def __init__(self) -> None:
        super().__init__(PAINTER)
        self.marked: list[int] = []
        self.drawn = 0

    def refresh(self, *regions: Region, **more: bool) -> Counted:
        self.marked.extend(region.y for region in regions)
        super().refresh(*regions, **more)
        return self

    def at(self) -> object:
        return self.cursor

    def load(self, names: list[str]) -> None:
        self.show([Entry(name, name) for name in names], self.draw_one)

    def draw_one(self, name: str, width: int, selected: bool) -> Line:
        self.drawn += 1
        return ((("> " if selected else "  ") + name, "text"),)


def _names(count: int, start: int = 0) -> list[str]:
    return [f"run {index}" for index in range(start, start + count)]


async def test_the_cursor_stays_on_its_item_and_its_row() -> None:
    view = Counted()
    async with Shown(view).run_test(size=(40, 10)) as pilot:
        view.load(_names(60))
        view.select("run 30")
        row = 30 - view.top
        view.load(["new 1", "new 2", "new 3", *_names(60)])
        assert view.at() == "run 30"
        assert view.keys.index("run 30") - view.top == row
        await pilot.press("down")
        assert view.at() == "run 31"
        view.load([name for name in _names(60) if name != "run 31"])
        assert view.at() == "run 32"
        view.load([])
        assert view.at() is None
        view.load(_names(3))
        assert view.at() == "run 0"


async def test_a_key_wins_over_what_comes_meanwhile() -> None:
    view = Counted()
    async with Shown(view).run_test(size=(40, 10)) as pilot:
        view.load(_names(30))
        for index in range(5):
            await pilot.press("down")
            view.load([f"new {index}", *view.keys])  # type: ignore[list-item]
        assert view.at() == "run 5"


async def test_only_lines_that_differ_are_marked() -> None:
    view = Counted()
    async with Shown(view).run_test(size=(40, 10)) as pilot:
        view.load(_names(60))
        await pilot.pause()
        view.marked.clear()
        view.load(_names(60))
        assert view.marked == []
        names = _names(60)
        names[4] = "run 4"
        view.show(
            [Entry(name, name) for name in names],
            lambda name, width, selected: view.draw_one(
                name + (" changed" if name == "run 4" else ""), width, selected
            ),
        )
        assert view.marked == [4]
        view.marked.clear()
        await pilot.press("down")
        assert sorted(view.marked) == [0, 1]


async def test_a_list_of_many_builds_only_what_is_in_view() -> None:
    view = Counted()
    async with Shown(view).run_test(size=(40, 10)) as pilot:
        view.load(_names(20_000))
        await pilot.pause()
        view.drawn = 0
        view.load(_names(20_000))
        assert view.drawn == 10


async def test_keys_move_by_items_pages_and_ends() -> None:
    view = Counted()
    async with Shown(view).run_test(size=(40, 10)) as pilot:
        view.load(_names(50))
        await pilot.press("up")
        assert view.at() == "run 0"
        await pilot.press("end")
        assert (view.at(), view.top) == ("run 49", 40)
        await pilot.press("home", "pagedown")
        assert view.at() == "run 9"
        await pilot.press("pageup")
        assert (view.at(), view.top) == ("run 0", 0)


async def test_items_of_two_lines_are_one_item() -> None:
    view = Counted()
    async with Shown(view).run_test(size=(40, 10)) as pilot:
        entries: list[Entry[str]] = [Entry(None, "TITLE")]
        for name in _names(12):
            entries += [Entry(name, name), Entry(name, f"why {name}")]
        view.show(entries, view.draw_one)
        assert view.at() == "run 0"
        await pilot.press("down")
        assert view.at() == "run 1"
        for _ in range(10):
            await pilot.press("down")
        assert view.at() == "run 11"
        assert view.top == len(entries) - 10
        for _ in range(11):
            await pilot.press("up")
        assert view.top == 0  # the heading of the first item comes into view with it


async def test_the_mouse_selects_opens_and_scrolls() -> None:
    view = Counted()
    async with Shown(view).run_test(size=(40, 10)) as pilot:
        view.load(_names(50))
        await pilot.click(view, offset=(3, 4))
        assert view.at() == "run 4"
        await pilot._post_mouse_events([_scroll_down()], view, offset=(3, 4))
        assert view.top == 3
        assert view.at() == "run 4"


def _scroll_down() -> type:
    from textual.events import MouseScrollDown

    return MouseScrollDown


async def test_any_size_is_survived() -> None:
    view = Counted()
    async with Shown(view).run_test(size=(40, 10)) as pilot:
        view.load(_names(50))
        view.select("run 40")
        for size in ((1, 1), (3, 2), (200, 60), (10, 3), (40, 10)):
            await pilot.resize_terminal(*size)
            view.load(_names(50))
            assert view.at() == "run 40"
            assert view.top <= 40 < view.top + max(1, view.height)


def _text(count: int) -> list[Line]:
    return [((f"line {index}", "text"),) for index in range(count)]


async def test_follow_stays_at_the_end_until_somebody_scrolls() -> None:
    view = TextView(PAINTER)
    async with Shown(view).run_test(size=(40, 10)) as pilot:
        view.set_lines(_text(30))
        assert view.top == 0
        view.start_follow()
        assert view.top == 20
        view.set_lines(_text(35), grown=5)
        assert view.top == 25
        await pilot.press("up")
        assert (view.follow, view.top) == (False, 24)
        view.set_lines(_text(45), grown=10)
        assert (view.top, view.unseen) == (24, 10)
        await pilot.press("end")
        assert (view.follow, view.unseen) == (False, 0)
        view.start_follow()
        assert (view.follow, view.top) == (True, 35)


async def test_text_that_fits_keeps_following() -> None:
    view = TextView(PAINTER)
    async with Shown(view).run_test(size=(40, 10)) as pilot:
        view.set_lines(_text(3))
        view.start_follow()
        await pilot.press("up")
        assert view.follow
        view.set_lines(_text(40), grown=37)
        assert view.top == 30
