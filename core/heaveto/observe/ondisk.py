"""One checkpoint as it lies on disk: its report, both files, the journal line by line.

What ``heaveto inspect`` prints and the console's Checkpoint place draws is made
here, by one function of the same bytes (SPEC F-33). The values hold positions, sizes,
counts, ids and codes, never the content of a record; a refused unit tells no outcome,
not even the status that one of its lines spells (F-44, K-19).

The journal is read beside the load: only as far as the report reaches, and again where
the base was replaced between the two. Lines are found by a scan that keeps their ends
alone, and only those asked for are decoded. Blocking; an inspector has one owner.
"""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from heaveto.checkpoint import load_checkpoint
from heaveto.checkpoint.loader import JOURNAL_SUFFIX
from heaveto.checkpoint.report import (
    Reason,
    ReasonCode,
    RecoveryReport,
    RecoveryStatus,
)
from heaveto.checkpoint.v3 import RecordError, decode_record
from heaveto.errors import CheckpointRefused, GenerationError, HeavetoError
from heaveto.files import OS, Directory
from heaveto.generations import inspect_store
from heaveto.model import OperationStatus
from heaveto.observe.saved import Saved, StateReader
from heaveto.observe.unit import Unit, bytes_left, view_of
from heaveto.seal import unit_identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import Any

    from heaveto.generations import StoreView
    from heaveto.seal import UnitIdentity

__all__ = [
    "STORE",
    "Contents",
    "Inspected",
    "Inspector",
    "JournalLine",
    "UnitView",
    "inspect_unit",
    "reason_place",
]

STORE = "engine_state"
"""The folder of a run's generation store, beside its checkpoint."""

LineUse = Literal["applied", "stale", "torn", "refused", "prefix", "unread"]

_BLOCK = 1 << 20
_PAUSES = (0.0, 0.005, 0.02, 0.05)
"""Seconds before each reading of base and journal that has to belong together."""
_SETTLED_NS = 50_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLine:
    """One line of a journal, without its content.

    Attributes:
        line: Counted from 1.
        offset: Of its first byte.
        bytes: With its LF.
        code: What is wrong with it, as in the report; None when nothing is.
        use: ``applied`` and ``stale`` as the report counts them, ``torn`` the
            unfinished end, ``refused`` where the reading stopped, ``prefix`` a good
            line of a unit that is refused, ``unread`` what no load takes in.
        status: None also in a refused unit, which tells no outcome.
    """

    line: int
    offset: int
    bytes: int
    code: str | None = None
    use: LineUse = "unread"
    generation: str | None = None
    seq: int | None = None
    kind: str | None = None
    id: str | None = None
    status: str | None = None
    context_changes: int | None = None

    def as_dict(self) -> dict[str, object]:
        """Return plain JSON values."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """How much an accepted unit holds, in counts."""

    planned: int
    completed: int
    failed: int
    spawned: int
    """Spawned operations, whatever became of them; they count above as well."""
    pending: int
    """Spawned operations that were accepted and held back."""
    messages: int
    """Operator messages in the shared context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitView:
    """A unit in detail.

    Attributes:
        path: Of ``checkpoint.json``.
        report: What the load found.
        base_bytes: None when there is no such file.
        base_written_at: Epoch seconds of its last change.
        journal_bytes: None when there is no journal.
        lines: How many lines the journal has, as far as the report reaches.
        records: The lines, or as many as were asked for.
        bytes_to_compaction: Journal bytes left before a writer's next base.
        contents: None for a refused unit.
        store: The generation store beside it, where there is one.
        store_problem: Why the store cannot be looked at.
    """

    path: str
    report: RecoveryReport
    base_bytes: int | None = None
    base_written_at: float | None = None
    journal_bytes: int | None = None
    lines: int = 0
    records: tuple[JournalLine, ...] = ()
    bytes_to_compaction: int | None = None
    contents: Contents | None = None
    store: StoreView | None = None
    store_problem: str | None = None

    @property
    def refused(self) -> bool:
        """Tell that nothing of it may be used."""
        return self.report.status is RecoveryStatus.REFUSED

    @property
    def absent(self) -> bool:
        """Tell that there is neither of the two files."""
        return self.base_bytes is None and self.journal_bytes is None


class Inspected(NamedTuple):
    """A unit in detail, with the content that the same load gave.

    ``state`` is None for a refused unit; ``prefix`` then holds what reads well, for
    inspection alone.
    """

    view: UnitView
    state: dict[str, Any] | None
    prefix: Mapping[str, object] | None


def inspect_unit(
    path: Path,
    *,
    journal: bool = True,
    limit: int | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Inspected:
    """Load a unit once and look at it in detail.

    Args:
        path: Of ``checkpoint.json``.
        journal: Also read the lines of the journal and the generation store.
        limit: Lines at most: the last ones, or those around the line that is refused.
        sleep: How to wait, in seconds.

    Returns:
        The view and what was loaded. What keeps a unit from being used is in the
        report; nothing is raised for it.
    """
    for pause in _PAUSES:
        if pause:
            sleep(pause)
        before = unit_identity(path)
        report, state, prefix = _load(path, sleep)
        saved = None
        if state is not None:
            saved = StateReader().read(state, view_of(report))
        view = _view(path, report, before, saved)
        if not journal:
            return Inspected(view, state, prefix)
        lines, records = _journal(path, report, limit)
        if _same_unit(before, unit_identity(path)):
            break
        records = tuple(replace(one, use="unread") for one in records)
    view = replace(view, lines=lines, records=records)
    return Inspected(_with_store(view, path), state, prefix)


def _load(
    path: Path, sleep: Callable[[float], None]
) -> tuple[RecoveryReport, dict[str, Any] | None, Mapping[str, object] | None]:
    """Return report, state and what of it may be looked at."""
    try:
        loaded = load_checkpoint(path, sleep=sleep)
    except CheckpointRefused as error:
        report: RecoveryReport = error.report  # type: ignore[assignment]
        return report, None, error.prefix
    return loaded.report, loaded.state, loaded.state


class Inspector:
    """Looks at one unit again and again, at the cost of what changed.

    What a living writer is about to finish is not reported before it has stood for a
    while, by the rule of :class:`heaveto.observe.unit.Unit` (F-49).
    """

    def __init__(
        self,
        path: Path,
        *,
        limit: int | None = None,
        sleep: Callable[[float], None] = time.sleep,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Remember where it is; nothing is read yet.

        Args:
            path: Of ``checkpoint.json``.
            limit: As for :func:`inspect_unit`.
            sleep: How to wait, in seconds.
            now_ns: Epoch nanoseconds.
        """
        self.path = path
        self._limit = limit
        self._sleep = sleep
        self._now_ns = now_ns
        self._unit = Unit(path, sleep=sleep)
        self._mark: object = None
        self._view: UnitView | None = None

    def read(self, *, live: bool) -> UnitView:
        """Return the unit as it is; the very object of before when nothing changed.

        Args:
            live: A writer may be at work.
        """
        mark = (live, unit_identity(self.path), _store_mark(self.path))
        if self._view is not None and mark == self._mark:
            return self._view
        view = self._read(live=live)
        self._mark = mark if self._is_settled(mark) else None
        if self._view is None or view != self._view:
            self._view = view
        return self._view

    def close(self) -> None:
        """Let go of the files and of what was loaded; a read would begin anew."""
        self._unit.close()

    def _read(self, *, live: bool) -> UnitView:
        for pause in _PAUSES:
            if pause:
                self._sleep(pause)
            before = unit_identity(self.path)
            saved = self._unit.read(live=live)
            report = _missing() if saved is None else saved.report or _missing()
            lines, records = _journal(self.path, report, self._limit)
            shown = before if saved is None else saved.files
            if _same_unit(shown, unit_identity(self.path)):
                break
            records = tuple(replace(one, use="unread") for one in records)
        view = _view(self.path, report, before, saved)
        if not live:
            self._unit.close()
        return _with_store(replace(view, lines=lines, records=records), self.path)

    def _is_settled(self, mark: tuple[bool, UnitIdentity, object]) -> bool:
        """Tell whether two changes within one tick of the clock are out of the way."""
        newest = max((max(file[3:5]) for file in mark[1] if file), default=0)
        return self._now_ns() - newest > _SETTLED_NS


def _missing() -> RecoveryReport:
    reason = Reason(code=ReasonCode.BASE_MISSING, fatal=True, where="base")
    return RecoveryReport(reasons=(reason,))


def _same_unit(before: UnitIdentity, after: UnitIdentity) -> bool:
    """Tell whether base and journal are still those files, the base as it was."""
    if before[0] != after[0]:
        return False
    if before[1] is None or after[1] is None:
        return before[1] == after[1]
    return before[1][:2] == after[1][:2] and after[1][2] >= before[1][2]


def _view(
    path: Path, report: RecoveryReport, files: UnitIdentity, saved: Saved | None
) -> UnitView:
    base, journal = files
    return UnitView(
        path=str(path),
        report=report,
        base_bytes=None if base is None else base[2],
        base_written_at=None if base is None else base[3] / 1e9,
        journal_bytes=None if journal is None else journal[2],
        bytes_to_compaction=bytes_left(report),
        contents=_contents(saved),
    )


def _contents(saved: Saved | None) -> Contents | None:
    if saved is None or not saved.readable:
        return None
    outcomes = [*saved.planned.values(), *saved.spawned.values()]
    statuses = [one.status for one in outcomes]
    return Contents(
        planned=len(saved.plan),
        completed=statuses.count(OperationStatus.COMPLETED),
        failed=statuses.count(OperationStatus.FAILED),
        spawned=len(saved.spawned),
        pending=statuses.count(OperationStatus.PENDING),
        messages=len(saved.messages),
    )


# --- the generation store


def _with_store(view: UnitView, path: Path) -> UnitView:
    try:
        return replace(view, store=inspect_store(path.parent / STORE))
    except (GenerationError, OSError) as error:
        text = error.message if isinstance(error, GenerationError) else error.strerror
        return replace(view, store_problem=text or "it cannot be read")


def _store_mark(path: Path) -> tuple[object, ...]:
    """Return what changes when a generation is begun, published or moved aside."""
    marks: list[object] = []
    for name in (STORE, f"{STORE}/current"):
        try:
            found = OS.stat(str(path.parent / name))
        except OSError:
            marks.append(None)
        else:
            marks.append((found.st_ino, found.st_size, found.st_mtime_ns))
    return tuple(marks)


# --- the journal


def _journal(
    path: Path, report: RecoveryReport, limit: int | None
) -> tuple[int, tuple[JournalLine, ...]]:
    """Return how many lines the journal has, and those that were asked for."""
    try:
        with (
            Directory.open(path.parent) as folder,
            folder.reading(path.name + JOURNAL_SUFFIX) as fd,
        ):
            ends, size = _line_ends(fd, _reach(report))
            lines = len(ends) + (size > (ends[-1] if ends else 0))
            first = _first(report, lines, limit)
            found = _read_lines(fd, ends, size, first, lines, limit)
            marked = _Marking(report)
            return lines, tuple(marked.line(*each) for each in found)
    except (OSError, HeavetoError):
        return 0, ()


def _reach(report: RecoveryReport) -> int | None:
    """Return where an accepted journal ends in the report; None: read all there is."""
    if report.valid_bytes is None or report.discarded_tail_bytes is None:
        return None
    return report.valid_bytes + report.discarded_tail_bytes


def _line_ends(fd: int, limit: int | None) -> tuple[array[int], int]:
    """Scan for line ends; also return how many bytes there are."""
    ends: array[int] = array("q")
    place = 0
    while limit is None or place < limit:
        size = _BLOCK if limit is None else min(_BLOCK, limit - place)
        block = OS.pread(fd, size, place)
        if not block:
            break
        end = block.find(b"\n") + 1
        while end:
            ends.append(place + end)
            end = block.find(b"\n", end) + 1
        place += len(block)
    return ends, place


def _first(report: RecoveryReport, lines: int, limit: int | None) -> int:
    """Return the index of the first line to read: the end, or the bad place, is in."""
    if limit is None or lines <= limit:
        return 0
    last = report.reasons[-1] if report.reasons else None
    if last is not None and last.fatal and last.line is not None:
        return max(0, min(last.line - 1 - limit // 2, lines - limit))
    return lines - limit


def _read_lines(
    fd: int, ends: array[int], size: int, first: int, lines: int, limit: int | None
) -> Iterator[tuple[int, int, bytes]]:
    """Yield number, offset and bytes of lines; what is no whole line has no LF."""
    last = lines if limit is None else min(lines, first + limit)
    for index in range(first, last):
        start = ends[index - 1] if index else 0
        end = ends[index] if index < len(ends) else size
        yield index + 1, start, _exactly(fd, end - start, start)


def _exactly(fd: int, size: int, start: int) -> bytes:
    parts = []
    while size > 0 and (part := OS.pread(fd, size, start)):
        parts.append(part)
        start += len(part)
        size -= len(part)
    return b"".join(parts)


class _Marking:
    """Says of a line what the load made of it."""

    def __init__(self, report: RecoveryReport) -> None:
        last = report.reasons[-1] if report.reasons else None
        self._fatal = last if last is not None and last.fatal else None
        self._generation = report.generation
        self._folded = report.last_seq is not None
        self._whole = report.status is not RecoveryStatus.REFUSED

    def line(self, number: int, offset: int, data: bytes) -> JournalLine:
        """Return one line without its content."""
        found = JournalLine(line=number, offset=offset, bytes=len(data))
        if not data.endswith(b"\n"):
            use: LineUse = "torn" if self._whole and self._folded else "unread"
            return replace(found, code=str(ReasonCode.TORN_TAIL), use=use)
        try:
            record = decode_record(data[:-1])
        except RecordError as error:
            return self._used(replace(found, code=str(error.code)))
        entry = record.entry
        return self._used(
            replace(
                found,
                generation=record.generation,
                seq=record.seq,
                kind=str(entry.kind),
                id=entry.id,
                status=str(entry.status) if self._whole else None,
                context_changes=len(record.patch or ()),
            )
        )

    def _used(self, line: JournalLine) -> JournalLine:
        fatal = self._fatal
        if not self._folded:
            return line
        if fatal is not None and fatal.line is not None and line.line >= fatal.line:
            if line.line > fatal.line:
                return line
            return replace(line, code=str(fatal.code), use="refused")
        if line.code is not None:
            return line
        if line.generation != self._generation:
            return replace(line, code=str(ReasonCode.STALE_GENERATION), use="stale")
        return replace(line, use="applied" if self._whole else "prefix")


def reason_place(reason: Reason) -> str:
    """Return where a reason is, in words: ``journal, line 2, offset 226, seq 3``."""
    names = ("line", "offset", "seq", "expected_seq", "op_index", "count")
    places = [
        f"{name.replace('_', ' ')} {getattr(reason, name)}"
        for name in names
        if getattr(reason, name) is not None
    ]
    return ", ".join([reason.where, *places])
