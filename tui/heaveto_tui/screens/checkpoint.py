"""Checkpoint: what of the current run is on disk? Base, journal, report, store."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual.containers import Vertical

from heaveto.text import short_id
from heaveto_tui.actions import CHECKPOINT, twin
from heaveto_tui.lines import EMPTY
from heaveto_tui.screens.place import Place, Rule
from heaveto_tui.state import home_option
from heaveto_tui.unit_feed import UnitFeed
from heaveto_tui.widgets.detail import wrapped
from heaveto_tui.widgets.lineview import Bar, ListView, TextView
from heaveto_tui.widgets.run_table import run_key
from heaveto_tui.widgets.store_pane import (
    default_pair,
    draw_generation,
    generation_entries,
    store_about,
    store_facts,
    store_title,
)
from heaveto_tui.widgets.unit_pane import (
    draw_line,
    line_entries,
    unit_about,
    unit_facts,
    unit_title,
    why_none,
)

if TYPE_CHECKING:
    from collections.abc import Hashable

    from textual.app import ComposeResult

    from heaveto.generations.inspection import GenerationView
    from heaveto.observe.ondisk import JournalLine, UnitView
    from heaveto.observe.snapshot import RunDetail
    from heaveto_tui.availability import Situation
    from heaveto_tui.lines import Line
    from heaveto_tui.screens.place import Console
    from heaveto_tui.unit_feed import Comparison, GenerationsCompared, UnitRead

__all__ = ["CheckpointScreen"]

ABOUT = 44
"""Cells of what is beside the list, as the style sheet has it."""
ROOMY = 30
"""From this height on there is room for blank lines."""


class CheckpointScreen(Place):
    """The checkpoint of one run, and the generation store beside it."""

    PLACE: ClassVar[str] = CHECKPOINT

    def __init__(self, console: Console) -> None:
        """Start with the journal."""
        super().__init__(console)
        painter = console.painter
        self._facts = Bar(painter, id="facts")
        self._titles = Bar(painter, id="titles")
        self.journal = ListView["JournalLine"](painter, id="journal")
        self.generations = ListView["GenerationView"](painter, id="generations")
        self._pane = TextView(painter, id="about")
        self._units = UnitFeed(self.post_message, self._looked_at)
        self._key: Hashable | None = None
        self._view: UnitView | None = None
        self._compared: Comparison | None = None
        self._marked: str | None = None
        self._store_shown = False

    def panes(self) -> ComposeResult:
        """Yield facts and journal, or generations, over what is chosen."""
        with Vertical(id="disk"):
            yield self._facts
            yield self._titles
            yield self.journal
            yield self.generations
        yield Rule(self.console.painter, id="rule")
        yield self._pane

    def on_mount(self) -> None:
        """Begin to read."""
        super().on_mount()
        self.generations.display = False
        self.run_worker(self._units.run(), name="checkpoint")

    def _looked_at(self) -> RunDetail | None:
        """Return the current run while this place is in view."""
        return self.detail if self.console.place is self else None

    def main_pane(self) -> ListView[JournalLine] | ListView[GenerationView]:
        """The list in view has the keys."""
        return self.generations if self._store_shown else self.journal

    # --- what was read

    def on_unit_read(self, message: UnitRead) -> None:
        """Take the unit of the run in view."""
        message.stop()
        if self.run is None or message.key != run_key(self.run):
            return
        before, self._view = self._view, message.view
        if before is None:
            self._begin_at_the_end(message.view)
        elif before.records and self.journal.cursor == before.records[-1].line:
            self.journal.cursor = _last(message.view)
        if self._store_shown and not self._has_store():
            self._show_store(False)
        self.redraw()

    def _begin_at_the_end(self, view: UnitView) -> None:
        """Put the cursor on the bad line, else on the last one."""
        bad = (one.line for one in view.records if one.use == "refused")
        self.journal.cursor = next(bad, _last(view))
        current = None if view.store is None else view.store.current
        self.generations.cursor = current

    def on_generations_compared(self, message: GenerationsCompared) -> None:
        """Take a comparison."""
        message.stop()
        if self.run is not None and message.key == run_key(self.run):
            self._compared = message.found
            self.redraw()

    def _enter(self, key: Hashable) -> None:
        """Start looking at another run."""
        self._key = key
        self._view = self._compared = self._marked = None
        self._find = ""
        self.journal.cursor = self.generations.cursor = None
        self._pane.rewind()
        self._show_store(False)

    def _has_store(self) -> bool:
        view = self._view
        return view is not None and (
            view.store is not None or view.store_problem is not None
        )

    def _show_store(self, shown: bool) -> None:
        self._store_shown = shown
        self.journal.display = not shown
        self.generations.display = shown

    # --- drawing

    def place_title(self) -> Line:
        """Return whose checkpoint this is."""
        return self.run_title("Checkpoint")

    def head(self) -> list[Line]:
        """Return the run's state, and its checkpoint in short."""
        run = self.run
        if run is None:
            return [EMPTY]
        return [self.run_row(run)]

    def draw_body(self) -> None:
        """Build the page in view."""
        run, detail = self.run, self.detail
        if run is not None and run_key(run) != self._key:
            self._enter(run_key(run))
        self._units.look(self._pair() if self._store_shown else None)
        view = self._view
        if detail is None or (view is None and detail.run_dir is not None):
            self._draw_words("Reading …", "muted")
        elif view is None:
            self._draw_words(why_none(detail), "text")
        elif self._store_shown:
            self._draw_store(view)
        else:
            self._draw_unit(view, detail)

    def _draw_words(self, words: str, role: str) -> None:
        look = self.console.painter.look
        width = max(20, self.size.width - 4)
        self._facts.set_lines(wrapped(words, width, look, role))
        self._titles.set_lines([])
        self.journal.show_lines([])
        self._pane.set_lines([])

    def _draw_unit(self, view: UnitView, detail: RunDetail) -> None:
        console = self.console
        look = console.painter.look
        width = self._disk_width()
        self._facts.set_lines(
            unit_facts(
                view,
                detail,
                width=width,
                now=console.settings.now(),
                look=look,
                clock=console.clock,
            )
        )
        entries = line_entries(view, self._find)
        if entries:
            self._titles.set_lines([*self._gap(), unit_title(width)])
            self.journal.show(
                entries,
                lambda line, width, selected: draw_line(
                    line, width, selected, look=look
                ),
            )
        else:
            self._titles.set_lines([])
            words = self._no_lines(view)
            self.journal.show_lines([EMPTY, ((f"   {words}", "muted"),)])
        room = self._about_width()
        self._pane.set_lines(
            unit_about(view, self._line(), detail, width=room, look=look)
        )

    def _no_lines(self, view: UnitView) -> str:
        if self._find:
            return "Nothing matches. Esc shows all again."
        if view.journal_bytes is None:
            return ""
        return "The journal holds no line: everything is in the base."

    def _draw_store(self, view: UnitView) -> None:
        look = self.console.painter.look
        store = view.store
        width = self._disk_width()
        facts = store_facts(store, view.store_problem, width=width, look=look)
        self._facts.set_lines(facts)
        if store is None:
            self._titles.set_lines([])
            self.generations.show_lines([])
            self._pane.set_lines([])
            return
        self._titles.set_lines([*self._gap(), store_title(width)])
        self.generations.show(
            generation_entries(store),
            lambda one, width, selected: draw_generation(
                one, width, selected, store=store, marked=self._marked, look=look
            ),
        )
        pair = self._pair()
        chosen = next(
            (one for one in store.generations if one.name == self.generations.cursor),
            None,
        )
        room = self._about_width()
        lines = store_about(store, chosen, pair, self._compared, width=room, look=look)
        self._pane.set_lines(lines)

    def _disk_width(self) -> int:
        """Return the cells of the list; its own size comes only with the layout."""
        return self.size.width - (ABOUT + 1 if self.wide else 0)

    def _about_width(self) -> int:
        return (ABOUT if self.wide else self.size.width) - 2

    def _gap(self) -> list[Line]:
        """Return the blank line over the headings, where there is room for it."""
        return [EMPTY] if self.size.height >= ROOMY else []

    def idle_word(self) -> str:
        """Tell the command line that shows the same."""
        if self._view is None:
            return ""
        pair = self._pair() if self._store_shown else None
        if pair is not None:
            words = self._same_as("ck.compare").replace("GEN GEN", " ".join(pair))
        else:
            words = self._same_as("ck.store" if self._store_shown else "go.checkpoint")
        return f"Same as:  {words}" if words else ""

    def _same_as(self, name: str) -> str:
        """Return the command line that shows the same."""
        run = self.run
        if run is None:
            return ""
        words = {"id": short_id(run.session_id or run.run_id)}
        return twin(name, words, home_option(self.console.store, run)) or ""

    def _line(self) -> JournalLine | None:
        view = self._view
        cursor = self.journal.cursor
        if view is None:
            return None
        return next((one for one in view.records if one.line == cursor), None)

    def _pair(self) -> tuple[str, str] | None:
        store = None if self._view is None else self._view.store
        if store is None:
            return None
        return default_pair(store, self.generations.cursor, self._marked)

    # --- keys

    def situation(self) -> Situation:
        """Tell which page is in view, and that there are two panes at any width."""
        page = "store" if self._store_shown else "journal"
        view = page if self._has_store() else ""
        return replace(super().situation(), view=view, wide=True)

    def on_list_view_moved(self, event: ListView.Moved) -> None:
        """Follow the cursor with what is beside it."""
        event.stop()
        self._pane.rewind()
        self.console.last_word = ""
        self.redraw()

    def on_list_view_opened(self, event: ListView.Opened) -> None:
        """Open what was clicked twice."""
        event.stop()
        self.action_act("nav.open")

    def do_nav_open(self) -> None:
        """Open the operation whose outcome the line holds."""
        line, detail = self._line(), self.detail
        if self._store_shown or line is None or line.id is None or detail is None:
            self.console.say("No operation is chosen.")
            return
        for each in detail.operations:
            if line.id in {each.id, each.name}:
                self.console.open_operation(each.id)
                return
        self.console.say("The run shows no operation of this id.")

    def do_ck_store(self) -> None:
        """Show the generation store, or the journal again."""
        self._show_store(not self._store_shown)
        self._pane.rewind()
        self.focus_first()
        self.redraw()

    def do_ck_compare(self) -> None:
        """Mark the generation under the cursor, to compare others with it."""
        cursor = self.generations.cursor
        marked = None if cursor is None or cursor == self._marked else str(cursor)
        self._marked = marked
        self.console.say(
            "Each is compared with the one before it."
            if marked is None
            else f"{marked} is marked; move to the one to compare it with."
        )
        self.redraw()

    def do_nav_back(self) -> None:
        """End the search, else go back to the journal, else to the run."""
        if self._find:
            self.set_found("")
            self.redraw()
        elif self._store_shown:
            self.do_ck_store()
        else:
            self.console.go("run")

    def move_cursor(self, by: int) -> None:
        """Move over the list in view."""
        self.main_pane().step(by)


def _last(view: UnitView) -> int | None:
    return view.records[-1].line if view.records else None
