"""The checkpoint of one run, read again only when its files are others than before.

The loader is asked only when the identity of base or journal changed (device, inode,
size, modification and change time). A file that was changed a moment ago is looked at
once more after it settled, because two changes within one tick of the clock cannot be
told apart. For a live run, a tail or a stale journal that a writer is just about to
finish is not reported before it was seen again (SPEC F-49).

Blocking; one owner.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from heaveto.errors import CheckpointRefused
from heaveto.observe.saved import read_state, refused
from heaveto.observe.snapshot import CheckpointView
from heaveto.seal import unit_identity

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from heaveto.checkpoint import Loaded, RecoveryReport
    from heaveto.observe.saved import Saved
    from heaveto.seal import UnitIdentity

__all__ = ["Unit"]

_SETTLED_NS = 50_000_000
_GRACE = (0.02, 0.05, 0.1)
"""Seconds to wait before a live unit that looks unfinished is read again."""
_JOURNAL_LIMIT = 8_388_608
"""A writer's default; a base is written before a journal grows beyond it."""
_BUSY = frozenset({"incoherent_unit", "journal_missing", "base_missing"})
"""Reasons that a writer at work can cause for a moment."""


class Unit:
    """The checkpoint in one run directory, as last read."""

    def __init__(
        self,
        path: Path,
        *,
        now_ns: Callable[[], int] = time.time_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Remember where it is; nothing is read yet.

        Args:
            path: Of ``checkpoint.json``.
            now_ns: Epoch nanoseconds.
            sleep: How to wait, in seconds.
        """
        self.path = path
        self.loads = 0
        """How often the loader was asked."""
        self._now_ns = now_ns
        self._sleep = sleep
        self._identity: UnitIdentity | None = None
        self._settled = False
        self._saved: Saved | None = None

    def read(self, *, live: bool) -> Saved | None:
        """Return what the checkpoint holds, or None when the run has none.

        Args:
            live: A writer may be at work: what looks unfinished is read again.
        """
        found = unit_identity(self.path)
        if found != self._identity or not self._settled:
            self._load(found, live=live)
        return self._saved

    def _load(self, found: UnitIdentity, *, live: bool) -> None:
        """Load, and again as long as a writer may be in the middle of a step."""
        self._settled = self._is_settled(found)
        self._identity = found
        self._saved = self._load_once(found)
        if not live:
            return
        for pause in _GRACE:
            if not _unfinished(self._saved):
                return
            self._sleep(pause)
            self._identity = found = unit_identity(self.path)
            self._settled = False
            self._saved = self._load_once(found)

    def _load_once(self, found: UnitIdentity) -> Saved | None:
        if found == (None, None):
            return None
        self.loads += 1
        try:
            loaded = _load(self.path)
        except CheckpointRefused as error:
            report: RecoveryReport = error.report  # type: ignore[assignment]
            return refused(_view(report), _codes(report), found)
        view = _view(loaded.report)
        return read_state(
            loaded.state, view, reasons=_codes(loaded.report), files=found
        )

    def _is_settled(self, found: UnitIdentity) -> bool:
        newest = max((max(file[3:5]) for file in found if file is not None), default=0)
        return self._now_ns() - newest > _SETTLED_NS


def _unfinished(saved: Saved | None) -> bool:
    """Tell whether a writer at work may have caused what was read."""
    if saved is None:
        return False
    if saved.view.status == "recovered_prefix":
        return True
    return saved.view.status == "refused" and saved.reasons[-1] in _BUSY


def _codes(report: RecoveryReport) -> tuple[str, ...]:
    return tuple(str(reason.code) for reason in report.reasons)


def _view(report: RecoveryReport) -> CheckpointView:
    """Return what is shown of a report: its own numbers, also of a refused unit."""
    left = None
    if report.valid_bytes is not None:
        left = max(0, _JOURNAL_LIMIT - report.valid_bytes)
    return CheckpointView(
        version=report.checkpoint_version,
        generation=report.generation,
        seq=report.last_seq,
        status=str(report.status),
        records_since_base=report.applied_records,
        bytes_to_compaction=left,
    )


def _load(path: Path) -> Loaded:
    """Load a checkpoint; a list of sealed runs never needs the loader."""
    from heaveto.checkpoint import load_checkpoint

    return load_checkpoint(path)
