"""The table of operations: every one in a row of columns, sorted as the operator asks.

Pure but for :mod:`heaveto_tui.widgets.lineview`, whose entries it makes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from heaveto.model import OperationStatus as Status
from heaveto.text import duration
from heaveto_tui.lines import DASH, pad
from heaveto_tui.outline import note
from heaveto_tui.presentation import (
    OPERATION_ORDER,
    is_over,
    is_unsaved,
    operation_face,
    operation_time,
    saved_face,
)
from heaveto_tui.widgets.lineview import Entry
from heaveto_tui.widgets.outline_pane import named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from heaveto.observe.snapshot import OperationView, RunDetail
    from heaveto_tui.lines import Line, Look
    from heaveto_tui.outline import OutlineRow
    from heaveto_tui.presentation import Clock

__all__ = [
    "ORDERS",
    "draw_row",
    "sorted_rows",
    "table_entries",
    "table_title",
    "waited",
]

_RANK = {status: at for at, status in enumerate(OPERATION_ORDER)}
_LAST = float("inf")


def _took(operation: OperationView, now: float) -> float:
    if operation.started_at is None:
        return 0.0
    end = operation.ended_at
    if end is None:
        end = now if operation.status is Status.RUNNING else operation.started_at
    return end - operation.started_at


def waited(
    operation: OperationView, ends: Mapping[str, float | None], now: float
) -> float | None:
    """Return seconds from being ready to the start, or to now; None when not ready.

    Args:
        operation: What to tell about.
        ends: When each operation of the run ended.
        now: Epoch seconds.
    """
    heads = [ends.get(head) for head in operation.depends_on]
    known = [end for end in (operation.queued_at, *heads) if end is not None]
    if not known:
        return None
    ready = max(known)
    if operation.started_at is not None:
        return max(0.0, operation.started_at - ready)
    if operation.status in (Status.PAUSED, Status.QUEUED):
        return max(0.0, now - ready)
    return None


ORDERS: dict[str, tuple[str, Callable[[OperationView, float], tuple[object, ...]]]] = {
    "status": ("by status, worst first", lambda one, now: (_RANK[one.status],)),
    "name": ("by name", lambda one, now: (one.name.casefold(),)),
    "time": ("by time, longest first", lambda one, now: (-_took(one, now),)),
    "start": (
        "by start",
        lambda one, now: (_LAST if one.started_at is None else one.started_at,),
    ),
    "saved": (
        "by saved, what a crash would lose first",
        lambda one, now: (not is_unsaved(one), one.persisted is not True),
    ),
}
"""The orders, with how each is told; equals keep the order of the outline."""


def sorted_rows(rows: Iterable[OutlineRow], order: str, now: float) -> list[OutlineRow]:
    """Return rows in an order of :data:`ORDERS`."""
    key = ORDERS[order][1]
    return sorted(rows, key=lambda row: key(row.operation, now))


def table_entries(rows: Iterable[OutlineRow], find: str) -> list[Entry[OutlineRow]]:
    """Return the rows that hold a text in name, id, role, status or error."""
    wanted = find.casefold()
    return [
        Entry(row.operation.id, row)
        for row in rows
        if not wanted or any(wanted in part.casefold() for part in _texts(row))
    ]


def _texts(row: OutlineRow) -> tuple[str, ...]:
    one = row.operation
    return (
        one.name,
        one.id,
        one.assignee or "",
        one.status,
        operation_face(one).word,
        one.error_text or "",
        one.error_code or "",
    )


_STATUS, _ROLE, _CLOCK, _TIME, _WAITED, _SAVED = 11, 12, 13, 8, 8, 8
_NOTE = 8
"""Fewer cells than these say nothing; the name has them then."""


class _Columns(NamedTuple):
    """The cells of the columns that give way where there is little room."""

    name: int
    role: int
    clock: int
    note: int


def _columns(width: int) -> _Columns:
    clock = _CLOCK if width >= 100 else 0
    role = _ROLE if width >= 72 else 0
    fixed = 3 + _STATUS + 2 + role + clock + _TIME + _WAITED + 2 + _SAVED
    rest = max(12, width - fixed)
    name = min(rest, max(16, rest // 2))
    note = rest - name
    if note < _NOTE:
        name, note = rest, 0
    return _Columns(name, role, clock, note)


def table_title(width: int) -> Line:
    """Return the heading of the columns."""
    columns = _columns(width)
    text = "".join(
        (
            "   ",
            pad("STATUS", _STATUS),
            pad("OPERATION", columns.name),
            "  ",
            pad("ROLE", columns.role),
            pad("STARTED", columns.clock),
            pad("TIME", _TIME, right=True),
            pad("WAITED", _WAITED, right=True),
            "  ",
            pad("SAVED", _SAVED),
            pad("NOTE", columns.note),
        )
    )
    return ((text, "text+bold"),)


def draw_row(
    row: OutlineRow,
    width: int,
    selected: bool,
    *,
    detail: RunDetail,
    ends: Mapping[str, float | None],
    now: float,
    look: Look,
    clock: Clock,
) -> Line:
    """Return one operation.

    Args:
        row: The operation.
        width: Cells.
        selected: The cursor stands on it.
        detail: Its run.
        ends: When each operation of the run ended.
        now: Epoch seconds.
        look: How text is spelled.
        clock: How moments are told.
    """
    operation = row.operation
    over = is_over(detail.run)
    face = operation_face(operation)
    saved = saved_face(operation, over=over)
    columns = _columns(width)
    stood = waited(operation, ends, now)
    began = DASH
    if operation.started_at is not None:
        began = clock.moment(operation.started_at, now)
    role = look.plain(operation.assignee) if operation.assignee else DASH
    words = look.plain(note(operation, detail, over=over))
    wait = DASH if stood is None else duration(stood) if stood >= 0.05 else "0s"
    return (
        ("▌" if selected else " ", "text"),
        (face.glyph, face.role),
        (" ", "text"),
        (pad(face.word, _STATUS, mark=look.cut), face.role),
        (named(operation.name, columns.name, look), "text"),
        ("! " if operation.stale else "  ", "hold"),
        (pad(pad(role, columns.role - 1, mark=look.cut), columns.role), "muted"),
        (pad(began, columns.clock), "muted"),
        (pad(operation_time(operation, now), _TIME, right=True), "text"),
        (pad(wait, _WAITED, right=True), "muted"),
        ("  ", "text"),
        (pad(saved.word, _SAVED), saved.role),
        (
            look.clip(words, columns.note - 1),
            "bad" if operation.status is Status.FAILED else "muted",
        ),
    )
