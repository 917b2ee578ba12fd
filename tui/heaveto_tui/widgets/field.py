"""One line to type into: find, palette, typed confirmation.

Letters are text here and nothing else; what a key means elsewhere does not hold while
it has the focus. Pasted text is one line without control characters; no key in it does
anything. The caret is a cell in reverse video, so nothing blinks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.message import Message

from heaveto_tui.lines import cell_width, clip_start, fit
from heaveto_tui.widgets.lineview import Bar

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual import events

    from heaveto_tui.lines import Line
    from heaveto_tui.theme import Painter

__all__ = ["Field", "typed_text"]

_LIMIT = 4096
"""Characters; more of a paste is cut off."""


def typed_text(text: str) -> str:
    """Return the printable characters of typed or pasted text, as one line."""
    flat = text.replace("\t", " ").replace("\r", " ").replace("\n", " ")
    return "".join(char for char in flat if char.isprintable())


class Field(Bar):
    """A one-line editor.

    Attributes:
        value: What has been typed.
        caret: Where the next character goes.
    """

    can_focus = True
    DEFAULT_CSS = "Field { height: 1; }"

    class Changed(Message):
        """The text is another one."""

        def __init__(self, field: Field) -> None:
            """Name the field."""
            super().__init__()
            self.field = field

    class Done(Message):
        """Enter, Esc or an arrow was pressed: the owner decides what it means."""

        def __init__(self, field: Field, key: str) -> None:
            """Name the field and the key."""
            super().__init__()
            self.field = field
            self.key = key

    def __init__(
        self,
        painter: Painter,
        *,
        label: str = "",
        edge: str = "",
        value: str = "",
        limit: int = _LIMIT,
        id: str | None = None,
        panel: bool = False,
    ) -> None:
        """Start with a label before the text and, perhaps, a text."""
        super().__init__(painter, id=id, panel=panel)
        self.label = label
        self._edge = edge
        self.value = value
        self.caret = len(value)
        self._limit = limit

    def on_mount(self) -> None:
        """Draw the empty field."""
        self._redraw()

    def on_resize(self) -> None:
        """Draw for the new width."""
        self._redraw()

    def on_focus(self) -> None:
        """Show the caret."""
        self._redraw()

    def on_blur(self) -> None:
        """Hide the caret."""
        self._redraw()

    def set_value(self, value: str) -> None:
        """Take another text, with the caret at its end."""
        self.value = value
        self.caret = len(value)
        self._redraw()

    def on_key(self, event: events.Key) -> None:
        """Edit; hand on what ends the editing; swallow every other key."""
        event.stop()
        event.prevent_default()
        if event.key in {"enter", "escape", "up", "down", "tab"}:
            self.post_message(self.Done(self, event.key))
            return
        if event.is_printable and event.character:
            self.insert(event.character)
        elif event.key in _EDITS:
            self._set(*_EDITS[event.key](self.value, self.caret))

    def on_paste(self, event: events.Paste) -> None:
        """Insert pasted text as text."""
        event.stop()
        event.prevent_default()
        self.insert(event.text)

    def insert(self, text: str) -> None:
        """Put text at the caret."""
        clean = typed_text(text)[: max(0, self._limit - len(self.value))]
        self._set(
            self.value[: self.caret] + clean + self.value[self.caret :],
            self.caret + len(clean),
        )

    def _set(self, value: str, caret: int) -> None:
        changed = value != self.value
        self.value, self.caret = value, caret
        self._redraw()
        if changed:
            self.post_message(self.Changed(self))

    def _redraw(self) -> None:
        self.set_lines([self._line(self.size.width)])

    def _line(self, width: int) -> Line:
        look = self.painter.look
        before = look.plain(self.value[: self.caret])
        under = look.plain(self.value[self.caret : self.caret + 1]) or " "
        after = look.plain(self.value[self.caret + 1 :])
        used = cell_width(self.label) + cell_width(self._edge) + cell_width(under)
        room = max(4, width - used)
        before = clip_start(before, room, mark=look.cut)
        caret = "text+reverse" if self.has_focus else "text"
        line: Line = (
            (self.label, "muted"),
            (before, "text"),
            (under, caret),
            (after, "text"),
        )
        if not self._edge:
            return line
        inner = fit(line, width - cell_width(self._edge), mark=look.cut)
        return (*inner, (self._edge, "muted"))


def _word_start(value: str, caret: int) -> int:
    stripped = value[:caret].rstrip()
    return stripped.rfind(" ") + 1


_EDITS: dict[str, Callable[[str, int], tuple[str, int]]] = {
    "backspace": lambda v, c: (v[: max(0, c - 1)] + v[c:], max(0, c - 1)),
    "delete": lambda v, c: (v[:c] + v[c + 1 :], c),
    "left": lambda v, c: (v, max(0, c - 1)),
    "right": lambda v, c: (v, min(len(v), c + 1)),
    "home": lambda v, c: (v, 0),
    "end": lambda v, c: (v, len(v)),
    "ctrl+a": lambda v, c: (v, 0),
    "ctrl+e": lambda v, c: (v, len(v)),
    "ctrl+u": lambda v, c: (v[c:], 0),
    "ctrl+k": lambda v, c: (v[:c], c),
    "ctrl+w": lambda v, c: (v[: _word_start(v, c)] + v[c:], _word_start(v, c)),
}
"""Line-editing habits: each takes text and caret and returns both."""
