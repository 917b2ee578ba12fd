"""What every place shares: rows that are always there, keys from the one table, find.

A place is a function of what is known: :meth:`Place.redraw` builds every pane again and
each pane draws the lines that differ. The app calls it when something was read, when a
key was pressed, and once a second while a clock in view goes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Protocol, cast

from textual.keys import _character_to_key
from textual.screen import ModalScreen, Screen

from heaveto_tui.actions import KEYSETS, actions_at
from heaveto_tui.availability import Situation, why_off
from heaveto_tui.lines import EMPTY, Line, fit
from heaveto_tui.widgets.bars import HeadFacts, head_line, key_line, run_line, run_name
from heaveto_tui.widgets.field import Field
from heaveto_tui.widgets.lineview import Bar, LineView, Row
from heaveto_tui.widgets.run_table import run_key

if TYPE_CHECKING:
    from collections.abc import Hashable

    from textual import events
    from textual.app import ComposeResult
    from textual.geometry import Size
    from textual.strip import Strip
    from textual.widget import Widget

    from heaveto.observe.snapshot import ControlView, RunDetail, RunSummary
    from heaveto_tui.feed import Feed
    from heaveto_tui.presentation import Clock
    from heaveto_tui.state import Settings, Store
    from heaveto_tui.theme import Painter

__all__ = [
    "BURST_S",
    "MIN_HEIGHT",
    "MIN_WIDTH",
    "PASTED_S",
    "SETTLE_S",
    "WIDE",
    "Console",
    "Overlay",
    "Place",
    "Rule",
]

MIN_WIDTH, MIN_HEIGHT = 60, 16
"""Below this there is one line of advice and the worst news."""
WIDE = 120
"""From this width on two panes stand beside each other."""


def too_small(size: Size) -> bool:
    """Tell whether there is room for advice alone."""
    return size.width < MIN_WIDTH or size.height < MIN_HEIGHT


class Console(Protocol):
    """What a screen uses of the app."""

    store: Store
    settings: Settings
    painter: Painter
    clock: Clock
    feed: Feed
    last_word: str

    @property
    def place(self) -> Place | None:
        """The place in view, below anything on top of it."""
        ...

    def say(self, text: str) -> None:
        """Show the last word."""
        ...

    def go(self, place: str) -> None:
        """Show another place."""
        ...

    def choose_run(self, key: Hashable | None) -> None:
        """Make a run the current one."""
        ...

    def open_operation(self, operation_id: str) -> None:
        """Show an operation of the current run."""
        ...

    def next_problem(self, step: int) -> None:
        """Go to the next thing that needs somebody."""
        ...

    def perform(self, name: str, place: Place) -> None:
        """Do what belongs to no place in particular."""
        ...


SETTLE_S = 0.15
"""Seconds after its opening for which a question obeys no key."""
BURST_S = 0.03
"""Keys that come closer together were not typed by a hand."""
PASTED_S = 0.005
"""Keys that come closer together came as one piece."""


class Overlay(ModalScreen[str | None], inherit_bindings=False):
    """Something on top of a place that takes every key.

    Attributes:
        console: The app, as screens see it.
    """

    ALLOW_SELECT = False

    def __init__(self, console: Console) -> None:
        """Open over a place of a console."""
        super().__init__()
        self.console = console
        self._opened = 0.0
        self._last_key = 0.0
        self._answered = False

    def on_mount(self) -> None:
        """Start the time in which keys are not obeyed."""
        self._opened = self._last_key = self._time()
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        widget = self.first()
        if widget is not None:
            widget.focus(scroll_visible=False)
        self.redraw()

    def first(self) -> Widget | None:
        """Return what has the keys at first."""
        return None

    def _time(self) -> float:
        from textual._time import get_time

        return get_time()

    def meant(self, event: events.Key) -> bool:
        """Tell whether a key can have been pressed by somebody who read the question.

        A driver without a keyboard (a test, a recording) sends what is meant.
        """
        before, self._last_key = self._last_key, event.time
        if self.app.is_headless:
            return True
        return event.time - self._opened >= SETTLE_S and event.time - before >= BURST_S

    def answer_with(self, result: str | None) -> None:
        """Close with an answer, once: a key that was waiting behind it does nothing."""
        if not self._answered and self.is_active:
            self._answered = True
            self.dismiss(result)

    def redraw(self) -> None:
        """Build everything again."""

    def on_resize(self) -> None:
        """Draw for the new size."""
        self.redraw()

    def on_paste(self, event: events.Paste) -> None:
        """Pasted text decides nothing."""
        event.stop()


class Rule(LineView[None]):
    """The line between two panes."""

    DEFAULT_CSS = "Rule { width: 1; }"

    def _strip(self, row: int, width: int) -> Strip:
        return self.painter.strip((("│", "muted"),), width)


class Place(Screen[None], inherit_bindings=False):
    """One place of the console."""

    PLACE: ClassVar[str] = ""
    ALLOW_SELECT = False
    BLANK = True  # panes cover it; what they leave is blank
    FINDS: ClassVar[bool] = False

    def __init__(self, console: Console) -> None:
        """Show what a console knows."""
        super().__init__()
        self.console = console
        self.finding = False
        self._find = ""
        painter = console.painter
        self._head_bar = Bar(painter, id="head")
        self._foot_bar = Bar(painter, id="foot")
        self.find_field = Field(painter, label=" find: ", id="find")
        self.find_field.display = False
        self._bind_keys()

    # --- keys

    def _bind_keys(self) -> None:
        """Bind the table's keys of this place, and the extra names of the key set."""
        settings = self.console.settings
        for each in actions_at(self.PLACE, read_only=settings.read_only):
            for key in settings.keys(each.id):
                name = _character_to_key(key) if len(key) == 1 else key
                self._bindings.bind(name, f"act('{each.id}')", each.label, show=False)
        for key, same in KEYSETS[settings.keyset].items():
            self._bindings.bind(key, f"press('{same}')", show=False)

    def action_press(self, key: str) -> None:
        """Do what another key does."""
        self.app.simulate_key(key)

    def action_act(self, name: str) -> None:
        """Do an action of the table, or say why it does not work now."""
        if not self.is_active:
            return  # something opened on top before the key was looked at
        off = why_off(name, self.situation())
        if off is not None:
            self.console.say(off)
            return
        own = getattr(self, f"do_{name.replace('.', '_')}", None)
        if own is not None:
            own()
        else:
            self.console.perform(name, self)

    # --- what it is about

    @property
    def run(self) -> RunSummary | None:
        """The current run."""
        return self.console.store.current_run

    @property
    def detail(self) -> RunDetail | None:
        """The current run whole, as far as it has been read."""
        return self.console.store.detail(self.run)

    @property
    def control(self) -> ControlView | None:
        """The control under the cursor, in the ledger."""
        return None

    @property
    def wide(self) -> bool:
        """Two panes stand beside each other."""
        return self.app.size.width >= WIDE

    def situation(self) -> Situation:
        """Return what decides which actions work."""
        store, now = self.console.store, self.console.settings.now()
        run = self.run
        return Situation(
            place=self.PLACE,
            run=run,
            detail=self.detail,
            control=self.control,
            successor=store.successor(run),
            data_age=store.data_age(now, None if run is None else run.home) or 0.0,
            problems=self.problems(),
            wide=self.wide,
            live_output=self.live_output(),
            now=now,
        )

    def why_off_for(self, name: str, run: RunSummary) -> str | None:
        """Return why an action does not work on a run that need not be the current one.

        What is asked about a run holds for it alone, also when it goes out of the list.
        """
        store = self.console.store
        known = store.run(run_key(run))
        if known is None:
            return "Not sent: this run is not in the list any more."
        at = self.situation()
        if at.run is not known:
            age = store.data_age(at.now, known.home) or 0.0
            heir, detail = store.successor(known), store.detail(known)
            at = replace(at, run=known, detail=detail, successor=heir, data_age=age)
        return why_off(name, at)

    def problems(self) -> int:
        """Return how many things need somebody, seen from here."""
        return self.console.store.needs

    def live_output(self) -> bool:
        """Tell whether the output shown can still grow."""
        return False

    # --- drawing

    def compose(self) -> ComposeResult:
        """Stack the rows that are always there around the body."""
        yield self._head_bar
        with Row(id="body"):
            yield from self.panes()
        yield self.find_field
        yield self._foot_bar

    def panes(self) -> ComposeResult:
        """Yield the panes of this place."""
        yield from ()

    def on_mount(self) -> None:
        """Draw as soon as the panes are there."""
        self._fit()
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        self.focus_first()
        self.redraw()

    def on_screen_resume(self) -> None:
        """Draw what has changed while another place was shown."""
        self._fit()
        self.focus_first()
        self.redraw()

    def on_resize(self, event: events.Resize) -> None:
        """Take another layout where the width asks for it."""
        self._fit()
        self.redraw()

    def _fit(self) -> None:
        self.set_class(self.wide, "-wide")

    def focus_first(self) -> None:
        """Give the focus to the pane that the keys are for."""
        widget = self.main_pane()
        if widget is not None and widget.is_attached and not self.finding:
            widget.focus(scroll_visible=False)

    def main_pane(self) -> Widget | None:
        """Return the pane that has the cursor."""
        return None

    def head(self) -> list[Line]:
        """Return the rows under the first one."""
        return []

    def run_title(self, place: str) -> Line:
        """Return the title of a place that is about the current run."""
        words = run_name(self.run, self.console.painter.look)
        return ((f"{place} ", "text"), (words, "text+bold"))

    def run_row(self, run: RunSummary) -> Line:
        """Return the row of a run's state and of its checkpoint."""
        console = self.console
        return run_line(
            run,
            self.detail,
            width=self.size.width,
            now=console.settings.now(),
            look=console.painter.look,
            checked_at=console.store.checked_at(run),
        )

    def draw_body(self) -> None:
        """Build the panes of this place."""

    def ticks(self) -> bool:
        """Tell whether a clock in view goes."""
        return False

    def tick(self) -> None:
        """Move the clocks of running rows, and nothing else."""

    def redraw(self) -> None:
        """Build everything again; panes draw the lines that differ."""
        if not self.is_mounted or not self.size.width:
            return
        if too_small(self.app.size):
            return  # what stands on top then says so
        self.draw_body()
        self.draw_head()
        self._foot_bar.set_lines(self._foot(self.size.width))

    def draw_head(self) -> None:
        """Draw the rows that tell when and how fresh."""
        rows = [self._first_row(self.size.width), *self.head()]
        self._head_bar.set_lines(rows)

    def _first_row(self, width: int) -> Line:
        console = self.console
        now = console.settings.now()
        facts = HeadFacts(
            homes=console.store.homes,
            read_only=console.settings.read_only,
            data_age=console.store.data_age(now),
            needs=console.store.needs,
            now=now,
            listed=console.store.listed,
        )
        return head_line(
            self.place_title(),
            facts,
            width=width,
            look=console.painter.look,
            clock=console.clock,
            user=console.settings.user_home,
        )

    def place_title(self) -> Line:
        """Return what stands at the left of the first row: place and object."""
        return EMPTY

    def _foot(self, width: int) -> list[Line]:
        at = self.situation()
        settings = self.console.settings
        actions = [
            (each, keys[0], why_off(each.id, at) is None)
            for each in actions_at(self.PLACE, read_only=settings.read_only)
            if (keys := settings.keys(each.id))
        ]
        look = self.console.painter.look
        word = look.plain(self.console.last_word) or self.idle_word()
        return [
            fit(((f" {word}", "text"),), width, mark=look.cut),
            key_line(actions, width=width, look=look),
        ]

    def idle_word(self) -> str:
        """Return what the last row but one says when there is no last word."""
        return ""

    # --- find

    def do_nav_find(self) -> None:
        """Open the search."""
        field = self.find_field
        self.finding = True
        field.set_value(self.found())
        field.display = True
        field.focus(scroll_visible=False)

    def found(self) -> str:
        """Return the present search."""
        return self._find

    def set_found(self, text: str) -> None:
        """Show only what matches."""
        self._find = text

    def on_field_changed(self, event: Field.Changed) -> None:
        """Search as it is typed."""
        event.stop()
        self.set_found(event.field.value)
        self.redraw()

    def on_field_done(self, event: Field.Done) -> None:
        """End the typing: Enter keeps the search, Esc ends it, arrows move the list."""
        event.stop()
        if event.key in {"up", "down"}:
            self.move_cursor(-1 if event.key == "up" else 1)
            return
        if event.key == "escape":
            self.set_found("")
        self.finding = False
        event.field.display = False
        self.focus_first()
        self.redraw()

    def move_cursor(self, by: int) -> None:
        """Move the cursor of the main pane while the search has the focus."""

    # --- panes

    def do_nav_pane(self) -> None:
        """Give the focus to the other pane."""
        panes = [
            widget
            for widget in self.query(LineView)
            if widget.can_focus and widget.display and not isinstance(widget, Field)
        ]
        if not panes:
            return
        focused = cast("LineView[object]", self.focused)
        place = panes.index(focused) if focused in panes else -1
        panes[(place + 1) % len(panes)].focus(scroll_visible=False)
        self.redraw()
