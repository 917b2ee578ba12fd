"""An app that writes only the cells that differ from what the terminal shows.

The drawing library repaints regions. :class:`CellApp` compares each of them with a
:class:`~heaveto_tui.terminal.Shadow` of the screen and sends the difference. A frame
for which the terminal has no room yet is left out, and the screen is compared whole a
moment later: a slow link sees fewer pictures, never a wrong one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.app import App
from textual.geometry import Offset

from heaveto_tui.terminal import Shadow, every_piece, pieces_of

if TYPE_CHECKING:
    from rich.console import RenderableType
    from textual import events
    from textual.screen import Screen
    from textual.timer import Timer

    from heaveto_tui.terminal import Pieces

__all__ = ["FRAME_S", "CellApp"]

FRAME_S = 0.1
"""Seconds between two drawings: 10 Hz."""
SETTLE_S = 0.5
"""Seconds after the last size; until then a terminal may move its lines about."""


class CellApp(App[int], inherit_bindings=False):
    """The drawing library's app, over a copy of what the terminal shows."""

    def __init__(self, *, colours: bool, driver_class: type[Any] | None) -> None:
        """Know nothing yet of what the terminal shows.

        Args:
            colours: Whether any colour code may be written.
            driver_class: What draws; None is the terminal.
        """
        super().__init__(driver_class=driver_class)
        self._shadow = Shadow(self.console._color_system if colours else None)
        self._late = False
        self._settling: Timer | None = None
        self._cursor_at = Offset()
        self._cursor_used = False

    def on_mount(self) -> None:
        """Draw everything again after the shell had the terminal."""
        self.app_resume_signal.subscribe(self, self._repaint)

    def _set_pointer_shape(self, shape: str) -> None:
        """Leave the pointer alone: not every terminal ignores being told."""

    def _repaint(self, app: App[Any]) -> None:
        """Draw every cell again: something else was on the screen."""
        self._shadow.forget()
        self._paint_whole_later()

    def on_resize(self, event: events.Resize) -> None:
        """Draw every cell again, also in the same size.

        A terminal that was smaller for a moment has lost cells.
        """
        self._repaint(self)
        if self._settling is not None:
            self._settling.stop()
        self._settling = self.set_timer(SETTLE_S, lambda: self._repaint(self))

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        """Write only the cells that differ from what the terminal shows.

        The drawing library repaints regions; see :mod:`heaveto_tui.terminal`.
        """
        if self.is_headless or self._batch_count:
            super()._display(screen, renderable)
            return
        pieces = pieces_of(renderable)
        if pieces is None:
            self._shadow.forget()
            super()._display(screen, renderable)
            return
        if renderable is not None:
            self._paint(screen, pieces)
        self.post_display_hook()

    def _paint(self, screen: Screen[Any], pieces: Pieces) -> None:
        """Send what differs; where the terminal is slow, later and then everything."""
        if getattr(self._driver, "behind", False):
            self._paint_whole_later()
            return
        shadow = self._shadow
        shadow.resize(*self.size)
        if not shadow.known:
            strips = screen._compositor.render_strips()
            if len(strips) < self.size.height:
                self._paint_whole_later()  # it has not been laid out yet
                return
            pieces = every_piece(strips)
        text = shadow.update(pieces)
        if text:
            self._write(text)

    def _paint_whole_later(self) -> None:
        """Compare the whole screen in a moment: frames that were left out are in it."""
        if not self._late:
            self._late = True
            self.set_timer(FRAME_S, self._paint_whole)

    def _paint_whole(self) -> None:
        self._late = False
        stack = self.screen_stack
        if stack and self._running and not self.is_headless:
            self._paint(stack[-1], every_piece(stack[-1]._compositor.render_strips()))

    def _write(self, text: str) -> None:
        """Send one frame; the hidden cursor follows only where it has moved."""
        driver = self._driver
        if driver is None or not self._running or self._closed:
            return
        place = self.screen.outer_size.clamp_offset(self.cursor_position)
        if place != self._cursor_at or self._cursor_used:
            text += f"\x1b[{place.y + 1};{place.x + 1}H"
        self._cursor_at, self._cursor_used = place, place != (0, 0)
        self._begin_update()
        try:
            driver.write(text)
        finally:
            self._end_update()
        driver.flush()
