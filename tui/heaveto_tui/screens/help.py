"""Help: the keys of this place, what is off and why, and what the signs mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.containers import Vertical

from heaveto_tui.actions import actions_at, key_name
from heaveto_tui.availability import why_off
from heaveto_tui.lines import EMPTY, Line, pad
from heaveto_tui.presentation import OPERATION_ORDER, status_face
from heaveto_tui.screens.place import Overlay
from heaveto_tui.widgets.lineview import Bar, TextView

if TYPE_CHECKING:
    from textual import events
    from textual.app import ComposeResult
    from textual.widget import Widget

    from heaveto_tui.actions import Action
    from heaveto_tui.lines import Look
    from heaveto_tui.screens.place import Console, Place
    from heaveto_tui.state import Settings

__all__ = ["Help", "help_lines"]

_GROUPS = ("GO TO", "ON A RUN", "LOOK CLOSER", "ANYWHERE")
_MARKS = (
    ("!", "ran on a failed input"),
    ("★", "the longest chain: it decides when the flow ends"),
    ("←2", "has 2 dependencies, drawn under the later one"),
    ("~", "not checked, only believed"),
    ("┃", "text that came from an operator"),
)
_WORDS = (
    ("saved", "in the checkpoint: survives a crash"),
    ("not yet", "finished, but a crash now would lose it"),
    ("seq", "number of the last saved change"),
    ("gen", "which base file the changes belong to"),
    ("resume", "undo a pause, in the same run"),
)


def help_lines(place: Place, width: int) -> list[Line]:
    """Return the whole help of a place; built from the action table."""
    console = place.console
    look = console.painter.look
    actions = actions_at(place.PLACE, read_only=console.settings.read_only)
    at = place.situation()
    lines: list[Line] = []
    for group in _GROUPS:
        members = [each for each in actions if each.group == group]
        if members:
            lines.extend([EMPTY, ((f" {group}", "text+bold"),)])
            lines.extend(
                _action(each, console.settings, width, look) for each in members
            )
    off = [(each, why_off(each.id, at)) for each in actions]
    closed = [(each, why) for each, why in off if why is not None]
    if closed:
        lines.extend([EMPTY, ((" OFF RIGHT NOW", "text+bold"),)])
        lines.extend(
            (
                (f"  {_keys(each, console.settings, look):<14}", "text"),
                (look.plain(why), "hold"),
            )
            for each, why in closed
        )
    lines.extend([EMPTY, ((" MARKS", "text+bold"),)])
    lines.extend(_statuses(width))
    lines.extend(((f"  {mark:<4}", "text"), (means, "muted")) for mark, means in _MARKS)
    lines.extend([EMPTY, ((" WORDS", "text+bold"),)])
    lines.extend(
        ((f"  {word:<10}", "text"), (means, "muted")) for word, means in _WORDS
    )
    return lines


def _keys(action: Action, settings: Settings, look: Look) -> str:
    return " ".join(key_name(key, enter=look.enter) for key in settings.keys(action.id))


def _action(action: Action, settings: Settings, width: int, look: Look) -> Line:
    twin = f"  {action.twin}" if action.twin and width >= 100 else ""
    return (
        (f"  {_keys(action, settings, look):<14}", "text"),
        (f"{action.label:<19}", "text"),
        (pad(action.does, min(62, max(20, width - 38)), mark=look.cut), "muted"),
        (twin.replace("{id}", "ID").replace("{control}", "CONTROL"), "muted"),
    )


def _statuses(width: int) -> list[Line]:
    """Return every status sign with its word, as many in a row as there is room."""
    cell = 18
    columns = max(1, (width - 2) // cell)
    known = list({status_face(each).word: each for each in OPERATION_ORDER}.values())
    lines: list[Line] = []
    for start in range(0, len(known), columns):
        line: list[tuple[str, str]] = [("  ", "text")]
        for status in known[start : start + columns]:
            face = status_face(status)
            line.append((f"{face.glyph} ", face.role))
            line.append((pad(face.word, cell - 2), "text"))
        lines.append(tuple(line))
    return lines


class Help(Overlay):
    """The help of a place, over the whole screen."""

    def __init__(self, console: Console, place: Place) -> None:
        """Explain a place."""
        super().__init__(console)
        self._place = place
        self._above = Bar(console.painter, id="above")
        self._text = TextView(console.painter, id="text")
        self._below = Bar(console.painter, id="below")

    def compose(self) -> ComposeResult:
        """Stack title, text, keys."""
        with Vertical(id="full"):
            yield self._above
            yield self._text
            yield self._below

    def first(self) -> Widget:
        """The text has the keys."""
        return self._text

    def redraw(self) -> None:
        """Build the text."""
        look = self.console.painter.look
        keys = self.console.settings.keyset
        self._above.set_lines([((" Help", "text+bold"), (f" · keys: {keys}", "muted"))])
        self._text.set_lines(help_lines(self._place, self.size.width))
        self._below.set_lines([((f" {look.arrows} scroll   Esc close", "muted"),)])

    def on_key(self, event: events.Key) -> None:
        """Close; the arrows belong to the text."""
        if event.key in {"escape", "backspace", "q", "question_mark", "enter"}:
            event.stop()
            self.answer_with(None)
