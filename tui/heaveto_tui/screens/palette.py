"""The command palette: any action, run or operation, by a part of its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from textual.containers import Vertical

from heaveto.text import short_id
from heaveto_tui.actions import actions_at, key_name
from heaveto_tui.availability import why_off
from heaveto_tui.lines import Line, pad
from heaveto_tui.presentation import operation_face, run_face
from heaveto_tui.screens.place import Overlay
from heaveto_tui.widgets.field import Field
from heaveto_tui.widgets.lineview import Bar, Entry, ListView
from heaveto_tui.widgets.run_table import run_key

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from textual.app import ComposeResult
    from textual.widget import Widget

    from heaveto_tui.screens.place import Console, Place

__all__ = ["Found", "Palette", "search"]

_MOST = 60


class Found(NamedTuple):
    """One thing that can be gone to or done."""

    kind: str
    """``action``, ``run`` or ``operation``."""
    key: Hashable
    sign: str
    name: str
    means: str
    off: str | None = None


def search(place: Place, text: str) -> list[Found]:
    """Return what a text finds: actions first, then runs, then operations."""
    wanted = text.strip().casefold().split()
    found: list[Found] = []
    for each in _everything(place):
        hay = f"{each.name} {each.means} {each.key}".casefold()
        if all(word in hay for word in wanted):
            found.append(each)
            if len(found) >= _MOST:
                break
    return found


def _everything(place: Place) -> Iterator[Found]:
    console = place.console
    look = console.painter.look
    at = place.situation()
    for action in actions_at(place.PLACE, read_only=console.settings.read_only):
        yield Found(
            "action",
            action.id,
            " ".join(
                key_name(key, enter=look.enter)
                for key in console.settings.keys(action.id)[:1]
            ),
            action.label,
            action.does,
            why_off(action.id, at),
        )
    detail = place.detail
    if detail is not None:
        for operation in detail.operations:
            face = operation_face(operation)
            yield Found(
                "operation",
                operation.id,
                face.glyph,
                look.plain(operation.name),
                f"operation {short_id(operation.id)}, {face.word}",
            )
    for run in console.store.runs():
        face = run_face(run)
        yield Found(
            "run",
            run_key(run),
            face.glyph,
            look.plain(run.name or run.run_id),
            f"run {short_id(run.session_id or run.run_id)}, {face.word}",
        )


class Palette(Overlay):
    """A field and what it finds."""

    def __init__(self, console: Console, place: Place) -> None:
        """Search from a place."""
        super().__init__(console)
        self._place = place
        painter = console.painter
        self._words = Field(painter, label=" : ", id="words", panel=True)
        self._found = ListView[Found](painter, id="found", panel=True)
        self._above = Bar(painter, id="above", panel=True)
        self._below = Bar(painter, id="below", panel=True)
        self.chosen: Found | None = None

    def compose(self) -> ComposeResult:
        """Stack field and list."""
        with Vertical(id="question"):
            yield self._above
            yield self._words
            yield self._found
            yield self._below

    def first(self) -> Widget:
        """The field has the keys."""
        return self._words

    def redraw(self) -> None:
        """Search again."""
        look = self.console.painter.look
        width = self._above.size.width or self.app.size.width
        rule = "─" * max(0, width - 11)
        self._above.set_lines(
            [(("─ ", "muted"), ("Command", "text+bold"), (f" {rule}", "muted"))]
        )
        found = search(self._place, self._words.value)
        view = self._found
        view.show([Entry((each.kind, each.key), each) for each in found], self._row)
        words = f"{look.arrows} choose   {look.enter} do it   Esc close"
        if not found:
            words = "Nothing matches.   Esc close"
        chosen = self._selected()
        if chosen is not None and chosen.off is not None:
            words = look.plain(chosen.off)
        self._below.set_lines([((f" {words}", "muted"),)])

    def _row(self, found: Found, width: int, selected: bool) -> Line:
        mark = self.console.painter.look.cut
        off = "(off) " if found.off is not None else ""
        return (
            ("▌" if selected else " ", "text"),
            (pad(found.sign, 8, mark=mark), "text"),
            (pad(found.name, 24, mark=mark), "muted" if off else "text"),
            (f" {off}{found.means}", "muted"),
        )

    def _selected(self) -> Found | None:
        view = self._found
        for entry in view.entries:
            if entry.key == view.cursor:
                return entry.payload
        return None

    def on_field_changed(self, event: Field.Changed) -> None:
        """Search as it is typed."""
        event.stop()
        self._found.cursor = None
        self.redraw()

    def on_field_done(self, event: Field.Done) -> None:
        """Move, take, or leave."""
        event.stop()
        view = self._found
        if event.key in {"up", "down"}:
            view.step(-1 if event.key == "up" else 1)
            self.redraw()
        elif event.key == "escape":
            self.answer_with(None)
        elif event.key == "enter":
            self._take()

    def on_list_view_moved(self, event: ListView.Moved) -> None:
        """Show why what is under the cursor is off."""
        event.stop()
        self.redraw()

    def on_list_view_opened(self, event: ListView.Opened) -> None:
        """Take what was clicked twice."""
        event.stop()
        self._take()

    def _take(self) -> None:
        self.chosen = self._selected()
        self.answer_with(None if self.chosen is None else "taken")
