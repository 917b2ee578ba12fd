"""The outline of a run: a row for each operation, in words and glyphs. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from heaveto.model import OperationStatus as Status
from heaveto.model import Origin
from heaveto_tui.dag_layout.labels import cut
from heaveto_tui.lines import cell_width, pad
from heaveto_tui.outline import folded, note
from heaveto_tui.presentation import (
    OPERATION_ORDER,
    is_over,
    operation_face,
    operation_time,
    saved_face,
    status_face,
)
from heaveto_tui.widgets.lineview import Entry

if TYPE_CHECKING:
    from collections.abc import Collection

    from heaveto.observe.snapshot import RunDetail
    from heaveto_tui.lines import Line, Look
    from heaveto_tui.outline import Outline, OutlineRow

__all__ = [
    "Rows",
    "count_line",
    "draw_operation",
    "named",
    "outline_entries",
    "outline_title",
]

_STATUS = 12
_TIME, _TIME_NARROW = 8, 6
_SAVED, _SAVED_NARROW = 9, 7
_GUIDE_NARROW = 8
"""Cells of a guide beside another view: there the names need the room."""
_NARROW = 70
"""Below this width the NOTE has no column of its own."""


def outline_entries(
    tree: Outline, find: str = "", closed: Collection[str] = ()
) -> list[Entry[OutlineRow]]:
    """Return the entries of a tree; with a search only the rows that match.

    Without a search what is folded away is left out.
    """
    wanted = find.casefold()
    rows = folded(tree.rows, closed) if closed and not wanted else tree.rows
    return [
        Entry(row.operation.id, row)
        for row in rows
        if not wanted or _matches(row, wanted)
    ]


def _matches(row: OutlineRow, wanted: str) -> bool:
    operation = row.operation
    parts = (operation.name, operation.id, operation.assignee or "", operation.status)
    return any(wanted in part.casefold() for part in parts)


def _widths(width: int) -> tuple[int, int]:
    """Return the cells of the name and of the note."""
    if width < _NARROW:
        return max(8, width - 9 - _STATUS - 2 - _TIME_NARROW - 2 - _SAVED_NARROW), 0
    fixed = 5 + 4 + _STATUS + 2 + _TIME + 2 + _SAVED
    name = max(18, (width - fixed) * 5 // 12)
    return name, max(0, width - fixed - name)


def outline_title(width: int, *, focused: bool = True) -> Line:
    """Return the heading of the columns."""
    name, rest = _widths(width)
    role = "text+bold" if focused else "muted"
    return (
        ("   ", role),
        (pad("OPERATION", name + 5), role),
        (pad("STATUS", _STATUS), role),
        ("  ", role),
        (pad("TIME", _TIME if rest else _TIME_NARROW, right=True), role),
        ("  ", role),
        (pad("SAVED", _SAVED if rest else _SAVED_NARROW), role),
        (pad("NOTE", rest) if rest else "", role),
    )


def draw_operation(
    row: OutlineRow,
    width: int,
    selected: bool,
    *,
    look: Look,
    now: float,
    detail: RunDetail,
    filtered: bool = False,
) -> Line:
    """Return the row of one operation.

    Args:
        row: Its place in the tree.
        width: Cells.
        selected: The cursor stands on it.
        look: How text is spelled.
        now: Epoch seconds.
        detail: Its run.
        filtered: Rows are left out, so that no guide leads anywhere.
    """
    operation = row.operation
    over = is_over(detail.run)
    face = operation_face(operation)
    saved = saved_face(operation, over=over)
    name_width, note_width = _widths(width)
    guide = "" if filtered else row.guide
    if not note_width and len(guide) > _GUIDE_NARROW:
        guide = f"» {guide[2 - _GUIDE_NARROW :]}"
    time = _TIME if note_width else _TIME_NARROW
    kept = _SAVED if note_width else _SAVED_NARROW
    mark = "!" if operation.stale else " "
    several = f"←{row.dependencies}" if row.dependencies > 1 else ""
    if row.hidden:
        several = f"{several} ▸+{row.hidden}".lstrip()
    room = max(4, name_width + 2 - cell_width(guide))
    room -= cell_width(several) + bool(several)
    name = named(operation.name, room, look)
    line: list[tuple[str, str]] = [
        ("▌" if selected else " ", "text"),
        ("★" if row.chain else " ", "muted"),
        (" ", "text"),
        (guide, "muted"),
        (face.glyph, face.role),
        (" ", "text"),
        (name, "text"),
        (f" {several}" if several else "", "muted"),
        (" ", "text"),
        (pad(face.word, _STATUS), face.role),
        (f"{mark} ", "hold"),
        (pad(operation_time(operation, now), time, right=True), "text"),
        ("  ", "text"),
        (pad(saved.word, kept), saved.role),
    ]
    if note_width:
        words = look.plain(note(operation, detail, over=over))
        role = "bad" if operation.status is Status.FAILED else "muted"
        line.append((look.clip(words, note_width - 1), role))
    return tuple(line)


def named(name: str, width: int, look: Look) -> str:
    """Return an operation's name in some cells; a number at its end is kept."""
    text = look.plain(name)
    if cell_width(text) > width and text[-1:].isdigit():
        text = cut(text, width, mark=look.cut)
    return pad(text, width, mark=look.cut)


class Rows:
    """Lines of operations, kept as long as nothing in them can have changed."""

    def __init__(self) -> None:
        """Keep nothing yet."""
        self._kept: dict[tuple[str, bool], tuple[OutlineRow, Line]] = {}
        self._of: tuple[int, bool, bool, Look] | None = None

    def draw(
        self,
        row: OutlineRow,
        width: int,
        selected: bool,
        *,
        look: Look,
        now: float,
        detail: RunDetail,
        filtered: bool = False,
    ) -> Line:
        """Return the row of one operation; see :func:`draw_operation`."""
        of = (width, is_over(detail.run), filtered, look)
        if of != self._of:
            self._of = of
            self._kept = {}
        key = (row.operation.id, selected)
        kept = self._kept.get(key)
        if kept is not None and kept[0] is row:
            return kept[1]
        line = draw_operation(
            row,
            width,
            selected,
            look=look,
            now=now,
            detail=detail,
            filtered=filtered,
        )
        if _is_steady(row, width):
            self._kept[key] = (row, line)
        return line


def _is_steady(row: OutlineRow, width: int) -> bool:
    """Tell whether a line depends on its operation alone.

    No clock goes in it, and its note names no other operation.
    """
    if is_ticking(row) or row.hidden:
        return False
    operation = row.operation
    names_others = operation.status in (Status.WAITING, Status.SKIPPED)
    return width < _NARROW or not (
        names_others or operation.origin is not Origin.PLANNED
    )


def count_line(detail: RunDetail) -> str:
    """Return ``9 operations: 1 failed, 3 done``; what wants a look comes first."""
    words: Counter[str] = Counter()
    for status, count in Counter(each.status for each in detail.operations).items():
        words[status_face(status).word] += count
    if not words:
        return "No operation is known yet."
    order = dict.fromkeys(status_face(status).word for status in OPERATION_ORDER)
    tally = ", ".join(f"{words[word]} {word}" for word in order if word in words)
    total = len(detail.operations)
    noun = "operation" if total == 1 else "operations"
    return f"{total} {noun}: {tally}."


def is_ticking(row: OutlineRow) -> bool:
    """Tell whether a row has a clock that goes."""
    return (
        row.operation.status in {Status.RUNNING, Status.PAUSED}
        and row.operation.started_at is not None
        and row.operation.ended_at is None
    )
