"""One operation, whole: what it was told, what it wrote, what blocks it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING, ClassVar

from heaveto.model import OperationStatus as Status
from heaveto.text import plain_lines
from heaveto_tui.actions import OPERATION
from heaveto_tui.lines import CRUMB, EMPTY
from heaveto_tui.screens.place import Place
from heaveto_tui.widgets.detail import Growth, operation_detail
from heaveto_tui.widgets.lineview import TextView

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from heaveto.observe.snapshot import OperationView
    from heaveto_tui.lines import Line
    from heaveto_tui.messages import OperationText
    from heaveto_tui.screens.place import Console

__all__ = ["OperationScreen"]


class OperationScreen(Place):
    """One operation of the current run."""

    PLACE: ClassVar[str] = OPERATION

    def __init__(self, console: Console) -> None:
        """Start without an operation; the app chooses one before it is shown."""
        super().__init__(console)
        self.operation_id: str | None = None
        self.pane = TextView(console.painter, id="text")
        self._growth = Growth()

    def panes(self) -> ComposeResult:
        """Yield the text."""
        yield self.pane

    def main_pane(self) -> TextView:
        """The text has the keys."""
        return self.pane

    def choose(self, operation_id: str) -> None:
        """Show another operation, from its top; a running one from its end."""
        self.operation_id = operation_id
        self.pane.rewind()
        self.pane.follow = self.live_output()

    def operation(self) -> OperationView | None:
        """Return the operation as it is now."""
        detail = self.detail
        if detail is None:
            return None
        return next(
            (each for each in detail.operations if each.id == self.operation_id), None
        )

    def place_title(self) -> Line:
        """Return which run this is."""
        return self.run_title("Run")

    def head(self) -> list[Line]:
        """Return the run's state and the path to the operation."""
        run, operation = self.run, self.operation()
        if run is None:
            return [EMPTY]
        look = self.console.painter.look
        name = look.plain(operation.name) if operation is not None else "?"
        more = ""
        if self.pane.follow and self.live_output():
            more = "  following"
        elif self.pane.unseen and self.live_output():
            more = f"  +{self.pane.unseen} new lines below, f follows"
        return [
            self.run_row(run),
            (
                (f" outline {CRUMB} ", "muted"),
                (name, "text+bold"),
                (more, "live"),
            ),
            EMPTY,
        ]

    def draw_body(self) -> None:
        """Build the text."""
        detail, operation = self.detail, self.operation()
        if detail is None or operation is None:
            self.pane.set_lines([((" It is not there any more.", "muted"),)])
            return
        console = self.console
        console.feed.show_text(detail, operation.id)
        text = self.text()
        lines = operation_detail(
            operation,
            detail,
            text,
            width=max(20, self.size.width - 3),
            now=console.settings.now(),
            look=console.painter.look,
            clock=console.clock,
        )
        self.pane.set_lines(
            [((" ", "text"), *line) for line in lines],
            grown=self._growth.since(text, len(lines)),
        )

    def text(self) -> OperationText | None:
        """Return what the operation was told and wrote."""
        run = self.run
        if run is None or self.operation_id is None:
            return None
        return self.console.store.text(run.run_id, self.operation_id)

    def live_output(self) -> bool:
        """Tell whether it can still write."""
        operation = self.operation()
        return operation is not None and operation.status is Status.RUNNING

    def ticks(self) -> bool:
        """Tell whether a clock in view goes."""
        return self.live_output() and self.pane.top == 0

    def tick(self) -> None:
        """Move the clock of the operation."""
        self.draw_body()

    # --- keys

    def on_text_view_scrolled(self, event: TextView.Scrolled) -> None:
        """Tell of a follow that stopped."""
        event.stop()
        self.redraw()

    def do_nav_back(self) -> None:
        """Go back to the outline."""
        self.console.go("run")

    def do_nav_prev(self) -> None:
        """Show the operation before this one."""
        self._step(-1)

    def do_nav_next(self) -> None:
        """Show the operation after this one."""
        self._step(1)

    def _step(self, by: int) -> None:
        detail = self.detail
        if detail is None:
            return
        order = [each.id for each in detail.operations]
        place = order.index(self.operation_id) if self.operation_id in order else 0
        if not 0 <= place + by < len(order):
            self.console.say("This is the first." if by < 0 else "This is the last.")
            return
        self.console.open_operation(order[place + by])

    def do_log_follow(self) -> None:
        """Follow the end of the output."""
        self.pane.start_follow()
        self.redraw()

    def do_file_pager(self) -> None:
        """Show everything of this operation in the pager, inert."""
        argv = _pager()
        if argv is None:
            self.console.say("$PAGER is not set and less was not found.")
            return
        text = self.text()
        parts = (
            [] if text is None else [text.instruction or "", text.error, text.output]
        )
        lines = [line for part in parts if part for line in [*plain_lines(part), ""]]
        environment = {**os.environ, "LESS": "", "LESSSECURE": "1"}
        with self.app.suspend():
            subprocess.run(  # the screen is the pager's meanwhile
                argv,
                input="\n".join(lines).encode("utf-8", "replace"),
                env=environment,
                check=False,
            )


def _pager() -> list[str] | None:
    """Return the pager's command line, or None where there is none."""
    asked = shlex.split(os.environ.get("PAGER", ""))
    if asked and shutil.which(asked[0]):
        return asked
    return ["less"] if shutil.which("less") else None
