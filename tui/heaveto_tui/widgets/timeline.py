"""The timeline: a bar for each operation over an axis, with what was sent below."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.binding import Binding
from textual.message import Message

from heaveto.text import duration
from heaveto_tui.lines import EMPTY, pad
from heaveto_tui.presentation import control_word, is_over, operation_face
from heaveto_tui.timeline import SIGNS, Axis, Piece, Timeline, bars, timeline
from heaveto_tui.widgets.lineview import Entry, ListView
from heaveto_tui.widgets.outline_pane import named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.binding import BindingType

    from heaveto.observe.snapshot import ControlView, OperationView, RunDetail
    from heaveto_tui.lines import Line
    from heaveto_tui.outline import OutlineRow
    from heaveto_tui.theme import Painter
    from heaveto_tui.timeline import Kind

__all__ = ["MAX_ZOOM", "TimelineView", "timeline_lines"]

MAX_ZOOM = 64
_NAME = 22
_LETTERS = {"pause": "p", "resume": "r", "message": "m", "stop": "x"}


class TimeRow(NamedTuple):
    """A line of the timeline: an operation with its pieces, or a finished line."""

    operation: OperationView | None
    chain: bool
    pieces: tuple[Piece, ...]
    line: Line


class TimelineView(ListView[TimeRow]):
    """Bars over an axis.

    Attributes:
        folded: Long idle times are folded.
        zoom: How many times wider than the pane the axis is.
        time: What is shown.
        head: The axis, to stand above the rows.
        slid: The first column of the axis in view.
    """

    class Resized(Message):
        """There is another number of columns for the axis."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "slide(-1)", show=False),
        Binding("right", "slide(1)", show=False),
    ]

    def __init__(self, painter: Painter, *, id: str | None = None) -> None:
        """Start with the whole time in view."""
        super().__init__(painter, id=id)
        self.folded = True
        self.zoom = 1
        self.slid = 0
        self._axis: Axis | None = None
        self._borders: dict[int, tuple[str, str]] = {}
        self.time: Timeline | None = None
        self.head: list[Line] = []

    @property
    def room(self) -> int:
        """Columns for the axis."""
        return max(10, self.size.width - _NAME - 6)

    def show_time(
        self, detail: RunDetail, rows: Sequence[OutlineRow], now: float
    ) -> None:
        """Show a run.

        Args:
            detail: The run.
            rows: The operations to show, in order.
            now: Epoch seconds.
        """
        if not self.size.width:  # not laid out yet: the resize asks again
            return
        time = self.time = timeline(detail, now)
        axis = self._axis = time.axis(self.room * self.zoom, folded=self.folded)
        self.slid = max(0, min(self.slid, axis.width - self.room))
        self._borders = _edges(axis)
        self.head = self._head(axis)
        entries = [
            Entry(
                row.operation.id,
                TimeRow(
                    row.operation,
                    row.chain,
                    time.pieces.get(row.operation.id, ()),
                    EMPTY,
                ),
            )
            for row in rows
        ]
        tail = [EMPTY, *self._controls(detail, axis), EMPTY]
        tail += timeline_lines(time, rows, detail, folded=self.folded)
        entries += [Entry(None, TimeRow(None, False, (), line)) for line in tail]
        self.show(entries, self._row)

    def legend(self) -> str:
        """Return what the signs of the bars mean."""
        kinds = [] if self.time is None else _used(self.time)
        return "  ".join(f"{SIGNS[kind][0]} {_MEANS[kind]}" for kind in kinds)

    def _window(self, text: dict[int, tuple[str, str]]) -> Line:
        """Return what is in view of signs and roles by column."""
        first, last = self.slid, self.slid + self.room
        parts: list[tuple[str, str]] = []
        at = first
        for column in sorted(one for one in text if first <= one < last):
            if column > at:
                parts.append((" " * (column - at), "text"))
            sign, role = text[column]
            if parts and parts[-1][1] == role:
                parts[-1] = (parts[-1][0] + sign, role)
            else:
                parts.append((sign, role))
            at = column + 1
        return tuple(parts)

    def _head(self, axis: Axis) -> list[Line]:
        """Return the labels of the axis, and how long each folded time is."""
        labels: dict[int, tuple[str, str]] = {}
        folds: dict[int, tuple[str, str]] = {}
        for column, text in axis.ticks():
            labels.update(_written(column, text, "muted"))
        for one in axis.stretches:
            if one.fold:
                inner = one.width - 2
                labels.update(_written(one.first + 1, f"{one.fold:^{inner}}", "hold"))
                long = duration(one.end - one.start)[:inner]
                folds.update(_written(one.first + 1, f"{long:^{inner}}", "muted"))
        blank = (" " * (_NAME + 5), "text")
        lines = [(blank, *self._window(labels))]
        if folds:
            lines.append((blank, *self._window(folds | _edges(axis))))
        return lines

    def _controls(self, detail: RunDetail, axis: Axis) -> list[Line]:
        """Return a mark for each control where it took effect or was refused."""
        if not detail.controls:
            return []
        over = is_over(detail.run)
        marks: dict[int, tuple[str, str]] = {}
        for control in sorted(detail.controls, key=_moment):
            letter = _LETTERS.get(str(control.verb), "?")
            word = control_word(control, over=over)
            bad = word not in ("applied", "read", "queued", "taken", "closed by hand")
            text = f"{letter}✗" if bad else letter
            column = axis.column(_moment(control))
            while any(column + at in marks for at in range(len(text))):
                column += 1
            marks.update(_written(column, text, "hold" if bad else "note"))
        return [((pad("     controls", _NAME + 5), "muted"), *self._window(marks))]

    def _row(self, row: TimeRow, width: int, selected: bool) -> Line:
        """Return the line of an operation, or one that is finished."""
        operation, axis = row.operation, self._axis
        if operation is None or axis is None:
            return row.line
        look = self.painter.look
        face = operation_face(operation)
        return (
            ("▌" if selected else " ", "text"),
            ("★" if row.chain else " ", "muted"),
            (face.glyph, face.role),
            (" ", "text"),
            (named(operation.name, _NAME, look), "text"),
            (" ", "text"),
            *self._bars(row.pieces, axis),
        )

    def _bars(self, pieces: Sequence[Piece], axis: Axis) -> Line:
        """Return what is in view of the pieces of one operation."""
        room = self.room
        signs, roles = [" "] * room, ["text"] * room
        for column, (sign, role) in self._borders.items():
            if self.slid <= column < self.slid + room:
                signs[column - self.slid] = sign
                roles[column - self.slid] = role
        for start, end, kind in bars(pieces, axis):
            first, last = max(0, start - self.slid), min(room, end - self.slid)
            if first < last:
                sign, role = SIGNS[kind]
                signs[first:last] = [sign] * (last - first)
                roles[first:last] = [role] * (last - first)
        parts: list[tuple[str, str]] = []
        at = 0
        for role, same in groupby(roles):
            size = len(list(same))
            parts.append(("".join(signs[at : at + size]), role))
            at += size
        return tuple(parts)

    def on_resize(self) -> None:
        """Ask for an axis of the new width."""
        self.post_message(self.Resized())

    def action_slide(self, way: int) -> None:
        """Move along the axis by half of what is in view."""
        axis = self._axis
        if axis is None:
            return
        to = self.slid + way * self.room // 2
        self.slid = max(0, min(to, axis.width - self.room))
        if self.cursor is not None:
            self.post_message(self.Moved(self, self.cursor))

    def rescale(self, longer: bool) -> None:
        """Show a longer or a shorter time; the middle of the view stays."""
        middle = (self.slid + self.room // 2) / self.zoom
        zoom = self.zoom // 2 if longer else self.zoom * 2
        self.zoom = max(1, min(MAX_ZOOM, zoom))
        self.slid = max(0, int(middle * self.zoom) - self.room // 2)


def _moment(control: ControlView) -> float:
    return control.applied_at or control.claimed_at or control.created_at


def _written(column: int, text: str, role: str) -> dict[int, tuple[str, str]]:
    return {column + at: (sign, role) for at, sign in enumerate(text)}


def _edges(axis: Axis) -> dict[int, tuple[str, str]]:
    """Return the borders of folded times."""
    found: dict[int, tuple[str, str]] = {}
    for one in axis.stretches:
        if one.fold:
            found[one.first] = found[one.first + one.width - 1] = ("┊", "muted")
    return found


_MEANS: dict[Kind, str] = {
    "running": "ran",
    "now": "runs",
    "waited": "waited at the pause",
    "queued": "waited for a place",
    "cut": "never ended",
}


def _used(time: Timeline) -> list[Kind]:
    """Return the kinds of pieces that a timeline holds, in the order of the legend."""
    used = {piece.kind for pieces in time.pieces.values() for piece in pieces}
    return [kind for kind in _MEANS if kind in used]


def timeline_lines(
    time: Timeline, rows: Sequence[OutlineRow], detail: RunDetail, *, folded: bool
) -> list[Line]:
    """Return what the signs mean and what the time went into, in words."""
    legend: list[tuple[str, str]] = [("   ", "text")]
    for kind in _used(time):
        sign, role = SIGNS[kind]
        legend += [(sign, role), (f" {_MEANS[kind]}   ", "muted")]
    chain = [row.operation for row in rows if row.chain]
    chain.sort(key=lambda one: one.started_at or time.end)
    long = sum(
        piece.end - piece.start
        for one in chain
        for piece in time.pieces.get(one.id, ())
        if piece.kind in ("running", "now", "cut")
    )
    words = [
        f"Total {duration(time.end - time.start)}",
        f"work {duration(time.work)}",
    ]
    if chain:
        words.append(f"longest chain {duration(long)}")
    if time.held:
        words.append(f"waiting at the pause {duration(time.held)}")
    idle = sum(last - first for first, last in time.idle) - time.held
    if idle >= 1:
        words.append(f"nothing ran for {duration(idle)}")
    lines: list[Line] = [
        tuple(legend),
        EMPTY,
        ((f"   {', '.join(words)}.", "text"),),
    ]
    hidden = len(detail.operations) - len(time.pieces)
    if hidden:
        verb = "has" if hidden == 1 else "have"
        of = len(detail.operations)
        lines.append(((f"   {hidden} of {of} {verb} not started.", "muted"),))
    if not folded:
        lines.append((("   Idle time is shown in full; i folds it.", "muted"),))
    return lines
