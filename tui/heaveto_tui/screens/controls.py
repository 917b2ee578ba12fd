"""Controls: did my words arrive? Every control that was sent to the current run."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from heaveto_tui.actions import CONTROLS
from heaveto_tui.lines import EMPTY
from heaveto_tui.screens.place import Place, Rule
from heaveto_tui.widgets.ledger import (
    control_detail,
    draw_control,
    explanation,
    ledger_entries,
    ledger_title,
)
from heaveto_tui.widgets.lineview import ListView, TextView
from heaveto_tui.wording import summary_of_controls

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from heaveto.observe.snapshot import ControlView
    from heaveto_tui.lines import Line
    from heaveto_tui.screens.place import Console

__all__ = ["ControlsScreen"]


class ControlsScreen(Place):
    """The delivery ledger of one run."""

    PLACE: ClassVar[str] = CONTROLS

    def __init__(self, console: Console) -> None:
        """Start with every control."""
        super().__init__(console)
        painter = console.painter
        self.ledger = ListView["ControlView"](painter, id="ledger")
        self._pane = TextView(painter, id="control")

    def panes(self) -> ComposeResult:
        """Yield the ledger over the chosen control."""
        yield self.ledger
        yield Rule(self.console.painter, id="rule")
        yield self._pane

    def main_pane(self) -> ListView[ControlView]:
        """The ledger has the keys."""
        return self.ledger

    @property
    def control(self) -> ControlView | None:
        """The control under the cursor."""
        detail = self.detail
        if detail is None:
            return None
        cursor = self.ledger.cursor
        return next((each for each in detail.controls if each.id == cursor), None)

    def place_title(self) -> Line:
        """Return whose ledger this is."""
        return self.run_title("Controls")

    def head(self) -> list[Line]:
        """Return the run's state and the headings."""
        run = self.run
        if run is None:
            return [EMPTY]
        columns = self.ledger.size.width or self.size.width
        return [self.run_row(run), ledger_title(columns)]

    def draw_body(self) -> None:
        """Build ledger and detail."""
        detail = self.detail
        pane = self._pane
        if detail is None:
            self.ledger.show([], _nothing)
            pane.set_lines([])
            return
        console = self.console
        look, now, clock = console.painter.look, console.settings.now(), console.clock
        entries = ledger_entries(detail, self._find)
        view = self.ledger
        if view.cursor is None and entries:
            view.cursor = entries[-1].key
        if entries:
            view.show(
                entries,
                lambda control, width, selected: draw_control(
                    control,
                    width,
                    selected,
                    look=look,
                    now=now,
                    clock=clock,
                    detail=detail,
                ),
            )
        else:
            words = "Nothing matches." if self._find else summary_of_controls(detail)
            view.show_lines([((f"   {words}", "muted"),)])
        lines: list[Line] = []
        control = self.control
        if control is not None:
            width = max(20, pane.size.width - 2)
            found = control_detail(
                control, detail, width=width, now=now, look=look, clock=clock
            )
            lines = [((" ", "text"), *line) for line in found]
        pane.set_lines([*lines, EMPTY, *explanation(pane.size.width - 1, look)])

    def idle_word(self) -> str:
        """Count what became of them."""
        return "" if self.detail is None else summary_of_controls(self.detail)

    def ticks(self) -> bool:
        """Nothing here has a clock that goes."""
        return False

    # --- keys

    def on_list_view_moved(self, event: ListView.Moved) -> None:
        """Follow the cursor with the detail."""
        event.stop()
        self._pane.rewind()
        self.redraw()

    def on_list_view_opened(self, event: ListView.Opened) -> None:
        """Open what was clicked twice."""
        event.stop()
        self.action_act("nav.open")

    def do_nav_open(self) -> None:
        """Open the operation that read the message under the cursor."""
        control = self.control
        if control is None or control.rendered_into is None:
            self.console.say("No operation has read it.")
        else:
            self.console.open_operation(control.rendered_into)

    def do_nav_back(self) -> None:
        """End the search, else go back to the run."""
        if self._find:
            self.set_found("")
            self.redraw()
        else:
            self.console.go("run")

    def move_cursor(self, by: int) -> None:
        """Move over the ledger."""
        self.ledger.step(by)


def _nothing(control: ControlView, width: int, selected: bool) -> Line:
    return EMPTY
