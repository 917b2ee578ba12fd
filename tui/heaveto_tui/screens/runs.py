"""Runs: who needs me? The list, and beside it the run under the cursor in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from heaveto_tui.actions import RUNS, actions_at, key_name
from heaveto_tui.availability import why_off
from heaveto_tui.lines import EMPTY, join
from heaveto_tui.screens.place import Place, Rule
from heaveto_tui.widgets.lineview import Entry, ListView, TextView
from heaveto_tui.widgets.preview import preview
from heaveto_tui.widgets.run_table import (
    SORT_ORDER,
    RunRow,
    draw_row,
    list_title,
    listing,
    run_key,
    ticking,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from textual.app import ComposeResult
    from textual.timer import Timer

    from heaveto.observe.snapshot import HomeView, RunDetail, RunSummary
    from heaveto_tui.lines import Line, Look
    from heaveto_tui.screens.place import Console
    from heaveto_tui.widgets.run_table import Listing

__all__ = ["RunsScreen"]

_SETTLE_S = 2.0
"""After a key the order waits for so long (SCREENS rule 8)."""
_STEERS = ("ctl.pause", "ctl.resume", "ctl.message", "ctl.stop", "run.close")


class RunsScreen(Place):
    """The list of runs."""

    PLACE: ClassVar[str] = RUNS

    def __init__(self, console: Console) -> None:
        """Start with the order that puts what needs somebody first."""
        super().__init__(console)
        painter = console.painter
        self.table = ListView[RunRow](painter, id="list")
        self._preview = TextView(painter, id="preview")
        self._listing: Listing | None = None
        self._made_from: tuple[object, ...] = ()
        self._reordered = False
        self._moved_at = float("-inf")
        self._settling: Timer | None = None

    def panes(self) -> ComposeResult:
        """Yield list, line, preview."""
        yield self.table
        yield Rule(self.console.painter, id="rule")
        yield self._preview

    def main_pane(self) -> ListView[RunRow]:
        """The list has the keys."""
        return self.table

    def place_title(self) -> Line:
        """Return the name of the place."""
        return (("Runs", "text+bold"),)

    def head(self) -> list[Line]:
        """Return counts, order, search; and what is wrong with a home."""
        found = self._listing
        store = self.console.store
        width, look = self.size.width, self.console.painter.look
        if found is None:
            return [EMPTY]
        left, right = list_title(found, sort=store.sort, find=look.plain(store.find))
        lines: list[Line] = [
            join(
                ((f" {left}", "muted"),),
                ((f"  {right} ", "muted"),),
                width,
                mark=look.cut,
            )
        ]
        if self.console.settings.demo:
            words = " demo: no model is called; q ends its runs and removes its folder"
            lines.append(((words, "note"),))
        named, shown = len(store.homes) > 1, bool(found.shown)
        for source in store.sources:
            if source.problem is not None:
                text = look.plain(_home_words(source, named))
                lines.append(_home_row(text, shown, width, look))
        return lines

    def draw_body(self) -> None:
        """Build list and preview."""
        store = self.console.store
        settings = self.console.settings
        now = settings.now()
        view = self.table
        made_from = (store.version, store.sort, store.find)
        held = self._listing is not None and self._holds_still()
        if not held and (made_from != self._made_from or self._reordered):
            self._listing = listing(store.seats(), sort=store.sort, find=store.find)
        elif held and made_from != self._made_from:
            self._listing = self._in_the_old_order()
            self._reordered = True
        if not held:
            self._reordered = False
        self._made_from = made_from
        self._show_table()
        if store.current != view.cursor and not view.select(store.current):
            self.console.choose_run(view.cursor)
        self._read_reasons()
        if self.wide:
            self._draw_preview(now)

    def _show_table(self) -> None:
        """Show the list as it is arranged, with the times of this moment."""
        if self._listing is None:
            return
        store = self.console.store
        look = self.console.painter.look
        entries = self._listing.entries
        if not entries:
            problems = [each for each in store.sources if each.problem is not None]
            if problems and not store.find:
                width = self.table.size.width
                self.table.show_lines(_unreadable(problems, width, look))
            else:
                self.table.show_lines(_advice(store.listed, store.find))
            return
        now = self.console.settings.now()
        homes = len(store.homes) > 1
        self.table.show(
            entries,
            lambda row, width, selected: draw_row(
                row,
                width,
                selected,
                look=look,
                now=now,
                homes=homes,
                detail_of=store.detail,
                heir_of=store.heir,
            ),
        )

    def tick(self) -> None:
        """Move the clocks of running rows."""
        self._show_table()

    def _holds_still(self) -> bool:
        """Tell whether a key was pressed so lately that rows keep their places."""
        now = self.console.settings.monotonic()
        return now - self._moved_at < _SETTLE_S

    def _in_the_old_order(self) -> Listing:
        """Return the list with fresh contents in its old order, new runs at the end."""
        store = self.console.store
        fresh = listing(store.seats(), sort=store.sort, find=store.find)
        assert self._listing is not None
        places = {
            key: place
            for place, key in enumerate(
                dict.fromkeys(e.key for e in self._listing.entries if e.key is not None)
            )
        }
        known = {e.key for e in fresh.entries if e.key is not None}
        if known != set(places):
            return fresh
        titles: list[Entry[RunRow]] = []
        rows: dict[object, list[Entry[RunRow]]] = {}
        for entry in fresh.entries:
            if entry.key is not None:
                rows.setdefault(entry.key, []).append(entry)
        for entry in self._listing.entries:
            if entry.key is None:
                titles.append(entry)
            elif entry.payload.kind == "head":
                titles.extend(rows[entry.key])
        return fresh._replace(entries=titles)

    def _read_reasons(self) -> None:
        """Read the runs in view whose sentence names an operation."""
        view = self.table
        store = self.console.store
        runs = [
            entry.payload.run
            for entry in view.in_view()
            if entry.key is not None
            and entry.payload.kind == "reason"
            and entry.payload.run is not None
        ]
        self.console.feed.want([run for run in runs if _is_old(store.detail(run), run)])

    def _draw_preview(self, now: float) -> None:
        pane = self._preview
        run = self.run
        if run is None:
            pane.set_lines([])
            return
        pane.set_lines(
            preview(
                run,
                self.detail,
                width=pane.size.width,
                now=now,
                look=self.console.painter.look,
                can=self._can(),
                checked_at=self.console.store.checked_at(run),
            )
        )

    def _can(self) -> list[tuple[str, str]]:
        """Return the keys that work on the run under the cursor."""
        at = self.situation()
        look = self.console.painter.look
        settings = self.console.settings
        return [
            (key_name(settings.keys(each.id)[0], enter=look.enter), each.does)
            for each in actions_at(RUNS, read_only=self.console.settings.read_only)
            if each.id in _STEERS and why_off(each.id, at) is None
        ]

    def ticks(self) -> bool:
        """Tell whether a clock in view goes."""
        return ticking([each for each in self.table.in_view() if each.key is not None])

    # --- keys

    def on_list_view_moved(self, event: ListView.Moved) -> None:
        """Follow the cursor with preview, keys and the current run."""
        event.stop()
        self._moved_at = self.console.settings.monotonic()
        if self._settling is not None:
            self._settling.stop()
        self._settling = self.set_timer(_SETTLE_S + 0.05, self.redraw)
        self.console.choose_run(event.key)
        if self.wide:
            self._preview.rewind()
        self.redraw()

    def on_list_view_opened(self, event: ListView.Opened) -> None:
        """Open what was clicked twice."""
        event.stop()
        self.action_act("nav.open")

    def problem_after(self, key: Hashable | None, step: int) -> Hashable | None:
        """Return the run that needs somebody next, round the end of the list."""
        needing = [
            run_key(run)
            for run in (
                entry.payload.run
                for entry in self.table.entries
                if entry.key is not None and entry.payload.kind == "reason"
            )
            if run is not None
        ]
        if not needing:
            return None
        if key in needing:
            return needing[(needing.index(key) + step) % len(needing)]
        return needing[0 if step > 0 else -1]

    def do_nav_open(self) -> None:
        """Open the run under the cursor."""
        if self.run is None:
            self.console.say("No run is chosen.")
        else:
            self.console.go("run")

    def do_nav_back(self) -> None:
        """End the search; there is nothing above."""
        if self.console.store.find:
            self.set_found("")
            self.redraw()
        else:
            self.console.say("q leaves; your flows keep running.")

    def do_list_sort(self) -> None:
        """Take the next order."""
        store = self.console.store
        place = SORT_ORDER.index(store.sort)
        store.sort = SORT_ORDER[(place + 1) % len(SORT_ORDER)]
        self._moved_at = float("-inf")
        self.console.say(f"Sorted by {store.sort}.")

    def found(self) -> str:
        """Return the present search."""
        return self.console.store.find

    def set_found(self, text: str) -> None:
        """Show only the runs that hold a text."""
        self.console.store.find = text
        self._moved_at = float("-inf")

    def move_cursor(self, by: int) -> None:
        """Move over the list."""
        self.table.step(by)


def _is_old(detail: RunDetail | None, run: RunSummary) -> bool:
    """Tell whether a detail tells of an earlier state than the list."""
    if detail is None:
        return True
    return (detail.run.state, detail.run.nodes, detail.run.warnings) != (
        run.state,
        run.nodes,
        run.warnings,
    )


def _home_words(source: HomeView, named: bool) -> str:
    """Return what is wrong with a home; named, its path stands in it once."""
    assert source.problem is not None
    text = source.problem.text
    return f"{text} ({source.path})" if named and source.path not in text else text


def _home_row(text: str, shown: bool, width: int, look: Look) -> Line:
    """Return the row that tells what is wrong with a home."""
    left = ((" HOME  ", "bad"), (text, "text"))
    right = (("  you see what was true before ", "muted"),) if shown else EMPTY
    return join(left, right, width, mark=look.cut)


def _unreadable(sources: Sequence[HomeView], width: int, look: Look) -> list[Line]:
    """Return what an empty list says where a home could not be read."""
    lines: list[Line] = [EMPTY, EMPTY]
    for source in sources:
        assert source.problem is not None
        for text in (_home_words(source, True), source.problem.what_to_do):
            parts = look.wrap(look.plain(text), max(20, width - 12))
            lines.extend(((f"     {part}", "text"),) for part in parts)
        lines.append(EMPTY)
    words = "What is there cannot be shown. It is tried again by itself."
    return [*lines, ((f"     {words}", "text+bold"),)]


def _advice(listed: bool, find: str) -> list[Line]:
    """Return what an empty list says."""
    if not listed:
        words = ["Reading …"]
    elif find:
        words = ["Nothing matches.", "", "Esc shows every run again."]
    else:
        words = [
            "No runs here yet.",
            "",
            "Run a flow of your own      heaveto run flow.toml",
            "See it work, no account     heaveto demo",
            "Open another home           heaveto --home PATH",
            "",
            "A new run shows up here by itself.",
        ]
    return [EMPTY, EMPTY, EMPTY, *(((f"          {each}", "text"),) for each in words)]
