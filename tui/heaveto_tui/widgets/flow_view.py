"""A window on a drawing: a cursor on a node, and cells repainted one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, cast

from textual.binding import Binding
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip

from heaveto.text import cell_width
from heaveto_tui.lines import EMPTY
from heaveto_tui.pictures import State
from heaveto_tui.widgets.lineview import LineView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from textual import events
    from textual.binding import BindingType

    from heaveto_tui.dag_layout import Drawing, Span
    from heaveto_tui.lines import Line
    from heaveto_tui.theme import Painter

__all__ = ["ARROWS", "FlowView", "PictureView"]

Way = Literal["left", "right", "up", "down"]

ARROWS: list[BindingType] = [
    Binding(way, f"step('{way}')", show=False)
    for way in ("left", "right", "up", "down")
]
_NO_STATE = State("?", "hold", " ")


class _Sign(NamedTuple):
    """A cell that tells a status: part of its strip, column of the window, which."""

    part: int
    column: int
    role: str


_MARGIN = 2
"""Cells that a node under the cursor keeps from the edge of the window."""


class FlowView(LineView[None]):
    """A pane in which the cursor stands on an operation.

    Attributes:
        cursor: The operation's id.
    """

    can_focus = True

    class Moved(Message):
        """The cursor was moved to another operation by a key or a click."""

        def __init__(self, view: FlowView, key: str) -> None:
            """Name the pane and the operation."""
            super().__init__()
            self.view = view
            self.key = key

    class Opened(Message):
        """An operation was clicked while the cursor stood on it."""

    class Panned(Message):
        """Another part is in view, by hand or by another size."""

    def __init__(self, painter: Painter, *, id: str | None = None) -> None:
        """Start without a cursor."""
        super().__init__(painter, id=id)
        self.cursor: str | None = None

    def move_to(self, key: str | None) -> None:
        """Tell that the operator has chosen an operation."""
        if key is not None and key != self.cursor:
            self.post_message(self.Moved(self, key))

    def clicked(self, key: str | None) -> None:
        """Choose what was clicked; a click on the chosen one opens it."""
        if key is not None and key == self.cursor:
            self.post_message(self.Opened())
        else:
            self.move_to(key)


class PictureView(FlowView):
    """A pane that shows a part of a drawing.

    Attributes:
        drawing: What is shown, or None while there is nothing yet.
        x: The first column in view.
        y: The first row in view.
        words: What to say while there is no drawing.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        *ARROWS,
        Binding("pageup", "pan(0, -1)", show=False),
        Binding("pagedown", "pan(0, 1)", show=False),
        Binding("home", "edge(0)", show=False),
        Binding("end", "edge(-1)", show=False),
    ]

    def __init__(self, painter: Painter, *, id: str | None = None) -> None:
        """Start without a drawing."""
        super().__init__(painter, id=id)
        self.drawing: Drawing | None = None
        self.x = 0
        self.y = 0
        self.words = ""
        self._states: Mapping[str, State] = {}
        self._lit: dict[int, list[tuple[int, int]]] = {}
        self._cut: tuple[object, int, int] = (None, 0, 0)
        self._spans: dict[int, list[Span]] = {}
        self._signs: dict[int, dict[str, list[_Sign]]] = {}
        self._fitted = self.size

    # --- what is shown

    def set_drawing(self, drawing: Drawing | None, states: Mapping[str, State]) -> None:
        """Show another drawing; the node under the cursor stays where it is seen."""
        held = self._seen_at()
        self.drawing = drawing
        self._states = states
        self._light()
        if held is not None and (now := self._slot()) is not None:
            self.x += now[0] - held[0]
            self.y += now[1] - held[1]
            self._clamp()
        else:
            self.centre(self.cursor)
        self.repaint()

    def set_states(self, states: Mapping[str, State]) -> None:
        """Show other statuses: only rows are built in which one differs."""
        before, self._states = self._states, states
        drawing = self.drawing
        if drawing is None or not self.in_size:
            self.repaint()
            return
        rows: dict[int, list[str]] = {}
        for name, state in states.items():
            if before.get(name) != state and name in drawing.boxes:
                rows.setdefault(drawing.slot(name)[1], []).append(name)
        changed = [
            region
            for row, names in rows.items()
            for region in self._renew(row - self.y, names)
        ]
        if changed:
            self.refresh(*changed)

    def _renew(self, y: int, names: Iterable[str]) -> list[Region]:
        """Put other signs into a row in view; return the cells that differ."""
        if not 0 <= y < len(self._strips):
            return []
        before, signs = self._strips[y], self._signs.get(y)
        if signs is None:
            self._strips[y] = self._strip(y, before.cell_length)
            return [Region(0, y, before.cell_length, 1)]
        segments = list(before)
        columns = []
        for name in names:
            for sign in signs.get(name, ()):
                segment = self.painter.segment(*self._sign(name, sign.role))
                if segment != segments[sign.part]:
                    segments[sign.part] = segment
                    columns.append(sign.column)
        if not columns:
            return []
        self._strips[y] = Strip(segments, before.cell_length)
        return [Region(min(columns), y, max(columns) + 1 - min(columns), 1)]

    def _sign(self, name: str, role: str) -> tuple[str, str]:
        """Return what stands in one of the two cells of a node that tell its status."""
        state = self._states.get(name, _NO_STATE)
        if role == "glyph":
            return state.glyph, state.role
        return state.mark, "hold"

    def select(self, key: str | None) -> None:
        """Put the cursor on a node; the view moves when it would leave it."""
        if key == self.cursor:
            return
        self.cursor = key
        self._light()
        if not self._in_view(key):
            self.centre(key)
        self.repaint()

    def _light(self) -> None:
        """Collect the cells of the wires that lead to and from the cursor."""
        lit: dict[int, list[tuple[int, int]]] = {}
        drawing = self.drawing
        if drawing is not None and self.cursor in drawing.boxes:
            for pieces in drawing.wires(self.cursor).values():
                for x, y, width, height in pieces:
                    for row in range(y, y + height):
                        lit.setdefault(row, []).append((x, x + width))
        self._lit = lit

    # --- where the window is

    def _slot(self) -> tuple[int, int] | None:
        if self.drawing is None or self.cursor not in self.drawing.boxes:
            return None
        return self.drawing.slot(self.cursor)

    def _seen_at(self) -> tuple[int, int] | None:
        """Return where the cursor's node lies, if it is in view."""
        return self._slot() if self._in_view(self.cursor) else None

    def _in_view(self, key: str | None) -> bool:
        drawing = self.drawing
        if drawing is None or key is None or key not in drawing.boxes:
            return False
        x, y, width, height = drawing.boxes[key]
        wide, high = self.size
        margin = _MARGIN if drawing.width > wide else 0
        return (
            self.x + margin <= max(x, margin)
            and min(x + width, drawing.width - margin) <= self.x + wide - margin
            and self.y <= y
            and y + height <= self.y + high
        )

    def centre(self, key: str | None) -> None:
        """Move the window so that a node stands in its middle."""
        drawing = self.drawing
        if drawing is None or key is None or key not in drawing.boxes:
            self._clamp()
            return
        x, y, width, height = drawing.boxes[key]
        self.x = x + width // 2 - self.size.width // 2
        self.y = y + height // 2 - self.height // 2
        self._clamp()

    def _clamp(self) -> None:
        """Keep the window on the drawing."""
        drawing = self.drawing
        if drawing is None:
            self.x = self.y = 0
            return
        self.x = max(0, min(self.x, drawing.width - self.size.width))
        self.y = max(0, min(self.y, drawing.height - self.height))

    def pan(self, right: int, down: int) -> None:
        """Move the window by cells, by hand."""
        at = (self.x, self.y)
        self.x += right
        self.y += down
        self._clamp()
        if (self.x, self.y) != at:
            self.repaint()
            self.post_message(self.Panned())

    def on_resize(self) -> None:
        """Keep the cursor in view in the new size."""
        self._refit()
        self.post_message(self.Panned())

    def _refit(self) -> None:
        """Place the window for the present size."""
        self._fitted = self.size
        if not self._in_view(self.cursor):
            self.centre(self.cursor)
        self._clamp()
        self._strips = []

    def _ready(self) -> list[Strip]:
        """Return what is in view; in a new size the window is placed first."""
        if self.size != self._fitted:
            self._refit()
        return super()._ready()

    # --- keys and the mouse

    def action_step(self, way: str) -> None:
        """Go along the flow or across it."""
        if self.drawing is not None and self.cursor in self.drawing.boxes:
            self.move_to(self.drawing.step(self.cursor, cast("Way", way)))
        elif self.drawing is not None:
            self.move_to(next(iter(self.drawing.boxes), None))

    def action_pan(self, right: int, down: int) -> None:
        """Move the window by half its size."""
        self.pan(right * self.size.width // 2, down * self.height // 2)

    def action_edge(self, place: int) -> None:
        """Go to the first or the last step of the flow."""
        if self.drawing is not None and self.drawing.layers:
            self.move_to(next(iter(self.drawing.layers[place]), None))

    def scroll_rows(self, rows: int) -> None:
        """Move the window as the mouse wheel does."""
        self.pan(0, rows)

    def on_mouse_scroll_left(self, event: events.MouseScrollLeft) -> None:
        """Move the window back along the rows."""
        event.stop()
        self.pan(-8, 0)

    def on_mouse_scroll_right(self, event: events.MouseScrollRight) -> None:
        """Move the window forth along the rows."""
        event.stop()
        self.pan(8, 0)

    def on_click(self, event: events.Click) -> None:
        """Choose the node that was clicked."""
        if self.drawing is None:
            return
        left, top = event.x + self.x, event.y + self.y
        for name, (x, y, width, height) in self.drawing.boxes.items():
            if x <= left < x + width and y <= top < y + height:
                self.clicked(name)
                return

    # --- drawing

    def _strip(self, row: int, width: int) -> Strip:
        signs: dict[str, list[_Sign]] = {}
        line = self._line(row, width, signs)
        strip = self.painter.strip(line, width)
        self._signs.pop(row, None)
        if len(line) <= len(list(strip)) <= len(line) + 1:  # as it is, maybe filled up
            self._signs[row] = signs
        return strip

    def _line(self, row: int, width: int, signs: dict[str, list[_Sign]]) -> Line:
        """Return a row of the window; where its signs stand is put into ``signs``."""
        drawing = self.drawing
        if drawing is None:
            return ((f" {self.words}", "muted"),) if row == 1 else EMPTY
        y = self.y + row
        if not 0 <= y < drawing.height:
            return EMPTY
        parts: list[tuple[str, str]] = []
        at = self.x
        for span in self._spans_of(drawing, y, width):
            if span.x > at:
                parts.append((" " * (span.x - at), "text"))
            if span.role in ("glyph", "mark"):
                sign = _Sign(len(parts), span.x - self.x, span.role)
                signs.setdefault(span.id, []).append(sign)
            parts += self._span(drawing, span, y)
            at = span.x + cell_width(span.text)
        return tuple(parts)

    def _spans_of(self, drawing: Drawing, y: int, width: int) -> list[Span]:
        """Return the part of a row that is in view, cut once while nothing moves."""
        cut = (drawing, self.x, width)
        if cut != self._cut:
            self._cut = cut
            self._spans = {}
        found = self._spans.get(y)
        if found is None:
            found = self._spans[y] = drawing.spans(y, self.x, self.x + width)
        return found

    def _span(self, drawing: Drawing, span: Span, y: int) -> list[tuple[str, str]]:
        chosen = span.id == self.cursor
        if span.role in ("glyph", "mark"):
            return [self._sign(span.id, span.role)]
        if span.role == "label":
            return [(span.text, "text+reverse+bold" if chosen else "text")]
        if span.role == "box":
            text = span.text
            before_glyph = span.x < drawing.slot(span.id)[0]
            if chosen and before_glyph and y == drawing.slot(span.id)[1]:
                head, blank, _ = text.rpartition(" ")
                text = f"{head}▌" if blank else text
            return [(text, "text+bold" if chosen else "muted")]
        return self._wire(span, y) if span.role else [(span.text, "text")]

    def _wire(self, span: Span, y: int) -> list[tuple[str, str]]:
        """Return a wire; what leads to and from the cursor stands out."""
        lit = self._lit.get(y)
        if not lit:
            return [(span.text, "muted")]
        parts: list[tuple[str, str]] = []
        for x, sign in enumerate(span.text, span.x):
            role = "muted"
            if any(first <= x < last for first, last in lit):
                role = "text+bold"
            if parts and parts[-1][1] == role:
                parts[-1] = (parts[-1][0] + sign, role)
            else:
                parts.append((sign, role))
        return parts
