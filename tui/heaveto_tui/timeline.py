"""When each operation waited and ran, on an axis of columns whose idle time is folded.

A row's pieces are spans of time with a kind; the axis turns moments into columns. A
long time in which nothing runs takes a few columns, marked as folded, and can be shown
in full. While something runs the axis ends at a round length beyond now, so that the
picture stands still and only the running bars grow. Pure; times are epoch seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from heaveto.model import OperationStatus as Status
from heaveto.observe.attention import is_live
from heaveto.text import duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from heaveto.observe.snapshot import ControlView, OperationView, RunDetail

__all__ = [
    "FOLD",
    "SIGNS",
    "Axis",
    "Piece",
    "Stretch",
    "Timeline",
    "bars",
    "nice",
    "timeline",
]

Kind = Literal["queued", "waited", "running", "now", "cut"]

SIGNS: Mapping[Kind, tuple[str, str]] = {
    "queued": ("·", "muted"),
    "waited": ("░", "hold"),
    "running": ("█", "text"),
    "now": ("▒", "live"),
    "cut": ("╌", "bad"),
}
"""The sign and the role of each kind of piece."""

FOLD = 7
"""Columns that a folded time takes."""
_WORTH = 2 * FOLD
"""A time is folded when it would take more columns than this."""


class Piece(NamedTuple):
    """What an operation did for some time."""

    start: float
    end: float
    kind: Kind


class Stretch(NamedTuple):
    """A part of the axis on which time goes evenly."""

    start: float
    end: float
    first: int
    """Its first column."""
    width: int
    """How many columns it takes."""
    fold: str
    """What is folded here, ``pause`` or ``idle``; empty where nothing is."""


@dataclass(frozen=True, slots=True)
class Axis:
    """From moments to columns.

    Attributes:
        stretches: In their order, without gaps.
        origin: The moment that the labels count from.
    """

    stretches: tuple[Stretch, ...]
    origin: float

    @property
    def width(self) -> int:
        """Columns altogether."""
        last = self.stretches[-1]
        return last.first + last.width

    def column(self, at: float) -> int:
        """Return the column of a moment; what lies outside stands at the edge."""
        for one in self.stretches:
            if at < one.end or one is self.stretches[-1]:
                size = one.end - one.start
                share = 0.0 if size <= 0 else (at - one.start) / size
                share = min(1.0, max(0.0, share))
                return min(self.width - 1, one.first + int(share * one.width))
        return 0

    def ticks(self, every: int = 10) -> list[tuple[int, str]]:
        """Return columns with the time since the origin there, never in a fold."""
        found: list[tuple[int, str]] = []
        free = 0
        for one in self.stretches:
            if one.fold:
                continue
            for column in range(one.first, one.first + one.width):
                if column < free or (column % every and column != one.first):
                    continue
                share = (column - one.first) / max(1, one.width)
                at = one.start + share * (one.end - one.start) - self.origin
                text = duration(max(0.0, at)) if at > 0 else "0s"
                if column + len(text) > one.first + one.width:
                    continue
                found.append((column, text))
                free = column + len(text) + 2
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A run in time.

    Attributes:
        pieces: For each operation that waited or ran, what it did.
        pauses: When the gate was closed.
        start: The first moment.
        end: The last one; now while the run is alive.
        live: Whether something runs at the end.
        work: Seconds that operations ran, added up.
        held: Seconds in which the gate was closed and nothing ran.
        idle: Times in which nothing ran.
    """

    pieces: Mapping[str, tuple[Piece, ...]]
    pauses: tuple[tuple[float, float], ...]
    start: float
    end: float
    live: bool
    work: float
    held: float
    idle: tuple[tuple[float, float], ...]

    def axis(self, width: int, *, folded: bool = True) -> Axis:
        """Return an axis over so many columns.

        Args:
            width: Columns, at least 1.
            folded: Whether long times in which nothing ran are folded.
        """
        gaps = self._folds(width) if folded else []
        bounds = [self.start, *(edge for gap in gaps for edge in gap), self.end]
        room = max(0, width - FOLD * len(gaps) - 1)
        busy = sum(bounds[at + 1] - bounds[at] for at in range(0, len(bounds), 2))
        if self.live:
            bounds[-1] += nice(busy) - busy
            busy = nice(busy)
        stretches: list[Stretch] = []
        column = 0
        passed = 0.0
        for at in range(len(bounds) - 1):
            start, end = bounds[at], bounds[at + 1]
            fold = ""
            if at % 2:
                size = FOLD
                fold = self._name((start, end))
            else:
                passed += end - start
                folds = FOLD * (at // 2)
                share = passed / busy if busy > 0 else 1.0
                size = max(0, folds + round(room * share) - column)
            if at == len(bounds) - 2:
                size += 1  # the last moment has a column of its own
            stretches.append(Stretch(start, end, column, size, fold))
            column += size
        return Axis(tuple(stretches), self.start)

    def _folds(self, width: int) -> list[tuple[float, float]]:
        """Return the idle times that are worth folding at a width."""
        whole = self.end - self.start
        gaps = [
            (first, last)
            for first, last in self.idle
            if whole > 0 and (last - first) / whole * width > _WORTH
        ]
        return gaps if FOLD * len(gaps) < width // 2 else []

    def _name(self, gap: tuple[float, float]) -> str:
        held = any(first < gap[1] and last > gap[0] for first, last in self.pauses)
        return "pause" if held else "idle"


def timeline(detail: RunDetail, now: float) -> Timeline:
    """Return a run in time.

    Args:
        detail: The run.
        now: Epoch seconds; what runs, runs until then.
    """
    live = is_live(detail.run)
    end = _end(detail, now, live=live)
    start = _start(detail, end)
    pauses = _pauses(detail.controls, end)
    ends = {each.id: each.ended_at for each in detail.operations}
    pieces = {
        each.id: found
        for each in detail.operations
        if (found := _pieces(each, ends, pauses, start, end, live=live))
    }
    ran = [
        (piece.start, piece.end)
        for found in pieces.values()
        for piece in found
        if piece.kind in ("running", "now", "cut")
    ]
    idle = _gaps(ran, start, end)
    return Timeline(
        pieces=pieces,
        pauses=pauses,
        start=start,
        end=end,
        live=any(p.kind == "now" for found in pieces.values() for p in found),
        work=sum(last - first for first, last in ran),
        held=sum(
            max(0.0, min(last, until) - max(first, since))
            for first, last in idle
            for since, until in pauses
        ),
        idle=idle,
    )


def _end(detail: RunDetail, now: float, *, live: bool) -> float:
    if live:
        return now
    moments = [
        moment
        for each in detail.operations
        for moment in (each.ended_at, each.started_at)
        if moment is not None
    ]
    if detail.run.ended_at is not None:
        moments.append(detail.run.ended_at)
    return max(moments, default=now)


def _start(detail: RunDetail, end: float) -> float:
    moments = [
        moment
        for each in detail.operations
        for moment in (each.queued_at, each.started_at)
        if moment is not None
    ]
    if detail.run.started_at is not None:
        moments.append(detail.run.started_at)
    return min([end, *moments])


def _pauses(
    controls: Iterable[ControlView], end: float
) -> tuple[tuple[float, float], ...]:
    """Return when the gate was closed, from the controls that took effect."""
    found: list[tuple[float, float]] = []
    since: float | None = None
    applied = [
        (one.applied_at, str(one.verb))
        for one in controls
        if one.klass == "applied" and one.applied_at is not None
    ]
    for at, verb in sorted(applied):
        if verb == "pause" and since is None:
            since = at
        elif verb in ("resume", "stop") and since is not None:
            found.append((since, at))
            since = None
    if since is not None and since < end:
        found.append((since, end))
    return tuple(found)


def _pieces(
    operation: OperationView,
    ends: Mapping[str, float | None],
    pauses: Sequence[tuple[float, float]],
    start: float,
    end: float,
    *,
    live: bool,
) -> tuple[Piece, ...]:
    """Return what one operation did: its wait, then its run."""
    began = operation.started_at
    waits = live and operation.status in (Status.PAUSED, Status.QUEUED)
    if began is None and not waits:
        return ()
    until = end if began is None else began
    found = _waits(_ready(operation, ends, start), until, operation, pauses)
    if began is None:
        return tuple(found)
    if operation.ended_at is not None:
        found.append(Piece(began, max(began, operation.ended_at), "running"))
    elif live and operation.status in (Status.RUNNING, Status.PAUSED):
        found.append(Piece(began, max(began, end), "now"))
    else:
        found.append(Piece(began, max(began, end), "cut"))
    return tuple(found)


def _ready(
    operation: OperationView, ends: Mapping[str, float | None], start: float
) -> float:
    """Return when nothing but a free place or the gate was missing."""
    known = [ends[head] for head in operation.depends_on if ends.get(head) is not None]
    moments = [moment for moment in (operation.queued_at, *known) if moment is not None]
    return max(moments, default=start)


def _waits(
    since: float,
    until: float,
    operation: OperationView,
    pauses: Sequence[tuple[float, float]],
) -> list[Piece]:
    """Return the wait for a place, and within it the wait at the closed gate."""
    if until <= since:
        return []
    held = [
        (max(since, first), min(until, last))
        for first, last in pauses
        if first < until and last > since
    ]
    if not held and operation.paused_at is not None and operation.paused_at < until:
        held = [(max(since, operation.paused_at), until)]
    return [
        Piece(since, until, "queued"),
        *(Piece(first, last, "waited") for first, last in held),
    ]


def _gaps(
    spans: Iterable[tuple[float, float]], start: float, end: float
) -> tuple[tuple[float, float], ...]:
    """Return the times that no span covers."""
    found: list[tuple[float, float]] = []
    covered = start
    for first, last in sorted(spans):
        if first > covered:
            found.append((covered, first))
        covered = max(covered, last)
    if end > covered:
        found.append((covered, end))
    return tuple(found)


def bars(pieces: Iterable[Piece], axis: Axis) -> list[tuple[int, int, Kind]]:
    """Return the columns that each piece takes, the last one after its end.

    The shortest piece keeps a column; a later piece lies over an earlier one.
    """
    found: list[tuple[int, int, Kind]] = []
    for start, end, kind in pieces:
        first = axis.column(start)
        found.append((first, max(first + 1, axis.column(end)), kind))
    return found


def nice(seconds: float) -> float:
    """Return the next round length, so that an axis to now changes now and then."""
    if seconds <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(seconds))
    for step in (1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0):
        if seconds <= step * power:
            return step * power
    return 12.5 * power
