"""A terminal that is too small: advice and the news, on top of whatever was shown.

What lies below stays as it is, with its cursor, its typing and its focus; it comes back
when there is room again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.screen import ModalScreen

from heaveto_tui.lines import EMPTY
from heaveto_tui.presentation import run_face
from heaveto_tui.screens.place import MIN_HEIGHT, MIN_WIDTH
from heaveto_tui.widgets.lineview import Bar

if TYPE_CHECKING:
    from textual import events
    from textual.app import ComposeResult

    from heaveto_tui.lines import Line
    from heaveto_tui.screens.place import Console

__all__ = ["Small"]


class Small(ModalScreen[None], inherit_bindings=False):
    """Advice instead of a screen."""

    ALLOW_SELECT = False

    def __init__(self, console: Console) -> None:
        """Tell the news of a console."""
        super().__init__()
        self.console = console
        self._bar = Bar(console.painter, id="news")
        self._left = False

    def compose(self) -> ComposeResult:
        """Yield the one pane."""
        yield self._bar

    def on_mount(self) -> None:
        """Draw as soon as there is a pane."""
        self.call_after_refresh(self.redraw)

    def on_resize(self) -> None:
        """Draw for the new size."""
        self.redraw()

    def leave(self) -> None:
        """Make room for what lies below, once."""
        if not self._left and self.is_active:
            self._left = True
            self.dismiss(None)

    def on_key(self, event: events.Key) -> None:
        """Only leaving works here."""
        event.stop()
        event.prevent_default()
        if event.key == "q":
            self.app.exit(0)

    def redraw(self) -> None:
        """Tell what is needed, what there is, and the worst of the news."""
        width, height = self.app.size
        store = self.console.store
        look = self.console.painter.look
        live = sum(seat.live for seat in store.seats())
        lines: list[Line] = [
            EMPTY,
            ((f" heaveto needs {MIN_WIDTH} columns and {MIN_HEIGHT} rows.", "text"),),
            ((f" This terminal has {width} and {height}.", "text"),),
            EMPTY,
            ((f" {live} live, ! {store.needs} need you.", "text+bold"),),
        ]
        worst = sorted(
            (seat for seat in store.seats() if not seat.idle),
            key=lambda seat: seat.order("attention"),
        )
        for seat in worst[: max(0, min(store.needs, height - len(lines) - 2))]:
            face = run_face(seat.run)
            name = look.plain(seat.run.name or seat.run.run_id)
            lines.append(((f" {face.glyph} {face.word} ", face.role), (name, "text")))
        lines.extend([EMPTY, ((" q leave · heaveto ls works at any size", "muted"),)])
        self._bar.set_lines(lines)
