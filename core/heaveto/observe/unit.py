"""The checkpoint of one run, read again only when its files are others than before.

The loader is asked only when the identity of base or journal changed (device, inode,
size, modification and change time); its follower then reads what was appended and no
more. A writer appends and replaces, so for a live run that is all. An ended run's file
that was changed a moment ago is read once more after it settled, because two changes
within one tick of the clock cannot be told apart.

For a live run, what a writer is just about to finish (a tail, a journal that belongs to
the base before) is not reported before it has stood for a while (SPEC F-49): between a
new base and its journal lies a sync of the disk, which can take long. The loader waits
a little; beyond that the state before goes on being shown, and a first look waits.

Blocking; one owner.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from heaveto.errors import CheckpointRefused
from heaveto.observe.saved import StateReader, journal_left, refused
from heaveto.observe.snapshot import CheckpointView
from heaveto.seal import unit_identity

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from heaveto.checkpoint import RecoveryReport
    from heaveto.checkpoint.loader import Follower
    from heaveto.observe.saved import Saved
    from heaveto.seal import UnitIdentity

__all__ = ["Unit", "bytes_left", "view_of"]

_SETTLED_NS = 50_000_000
_STANDS_S = 2.0
"""What looks unfinished for so long beside a living writer is reported."""
_PAUSES = (0.1, 0.2, 0.4)
"""Seconds to wait on a first look, when there is no state before."""
_PASSING = frozenset({"incoherent_unit", "journal_missing", "base_missing"})
"""Fatal reasons that a writer at work can cause for a moment."""


class Unit:
    """The checkpoint in one run directory, as last read."""

    def __init__(
        self,
        path: Path,
        *,
        now_ns: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Remember where it is; nothing is read yet.

        Args:
            path: Of ``checkpoint.json``.
            now_ns: Epoch nanoseconds.
            monotonic: Seconds that no clock change moves.
            sleep: How to wait, in seconds.
        """
        self.path = path
        self._now_ns, self._monotonic, self._sleep = now_ns, monotonic, sleep
        self._identity: UnitIdentity | None = None
        self._settled = False
        self._follower: Follower | None = None
        self._reader = StateReader()
        self._saved: Saved | None = None
        self._unfinished_at: float | None = None

    def read(self, *, live: bool) -> Saved | None:
        """Return what the checkpoint holds, or None when the run has none.

        Args:
            live: A writer may be at work: what looks unfinished is read again.
        """
        found = unit_identity(self.path)
        if found == self._identity:
            if live or self._settled or not self._is_settled(found):
                return self._saved
            self._follower = None  # it would take the files for unchanged
        self._settled = self._is_settled(found)
        loaded = self._load(found, live=live and self._saved is None)
        if live and _is_unfinished(loaded):
            if self._saved is None:
                found, loaded = self._first_look(found, loaded)
            elif self._is_recent():
                return self._saved
        self._saved, self._identity, self._unfinished_at = loaded, found, None
        return loaded

    def _first_look(
        self, found: UnitIdentity, loaded: Saved | None
    ) -> tuple[UnitIdentity, Saved | None]:
        """Wait for the writer, as there is no state before that could be shown."""
        for pause in _PAUSES:
            if not _is_unfinished(loaded):
                break
            self._sleep(pause)
            found = unit_identity(self.path)
            loaded = self._load(found, live=True)
        return found, loaded

    def _is_recent(self) -> bool:
        """Tell whether what looks unfinished has not stood for long enough."""
        now = self._monotonic()
        if self._unfinished_at is None:
            self._unfinished_at = now
        return now - self._unfinished_at < _STANDS_S

    def _load(self, found: UnitIdentity, *, live: bool) -> Saved | None:
        if found == (None, None):
            self._follower = None
            return None
        if self._follower is None:
            self._follower = _follower(self.path, self._sleep)
        try:
            loaded = self._follower.poll(live=live)
        except CheckpointRefused as error:
            report: RecoveryReport = error.report  # type: ignore[assignment]
            return replace(
                refused(view_of(report), _codes(report), found), report=report
            )
        report = loaded.report
        saved = self._reader.read(
            loaded.state, view_of(report), reasons=_codes(report), files=found
        )
        return replace(saved, report=report)

    def close(self) -> None:
        """Close the files; the next change is loaded anew."""
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.close()

    def _is_settled(self, found: UnitIdentity) -> bool:
        newest = max((max(file[3:5]) for file in found if file is not None), default=0)
        return self._now_ns() - newest > _SETTLED_NS


def _is_unfinished(saved: Saved | None) -> bool:
    """Tell whether a writer at work may have caused what was read."""
    if saved is None or saved.view.status == "clean":
        return False
    if saved.view.status == "recovered_prefix":
        return True
    return saved.reasons[-1] in _PASSING


def _follower(path: Path, sleep: Callable[[float], None]) -> Follower:
    """Return a follower; a list of sealed runs never needs the loader."""
    from heaveto.checkpoint.loader import Follower

    return Follower(path, sleep=sleep)


def _codes(report: RecoveryReport) -> tuple[str, ...]:
    return tuple(str(reason.code) for reason in report.reasons)


def bytes_left(report: RecoveryReport) -> int | None:
    """Return the journal bytes before a writer's next base; None where unknown."""
    if report.valid_bytes is None or report.status == "refused":
        return None
    return journal_left(report.valid_bytes)


def view_of(report: RecoveryReport) -> CheckpointView:
    """Return what is shown of a report: its own numbers, also of a refused unit."""
    return CheckpointView(
        version=report.checkpoint_version,
        generation=report.generation,
        seq=report.last_seq,
        status=str(report.status),
        records_since_base=report.applied_records,
        bytes_to_compaction=bytes_left(report),
    )
