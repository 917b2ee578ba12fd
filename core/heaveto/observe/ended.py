"""Runs that are over, for a list, without reading each of them.

A run that ended with every operation at its end is fully told by its row, the count of
its operations' last signals, its controls, and the seal of its checkpoint: that is one
query for all runs and two ``stat`` calls for each. Whatever is out of the ordinary (an
operation without an end, an escalation, a failed input, a message to account for, a run
that continues another, one whose process is gone) is read whole by the caller, as long
as a budget of time lasts, and beyond that told from the row: how it stands is known all
the same, its checkpoint is ``unread``, and its turn comes with the next look. So are
checkpoints without a seal. Blocking.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from heaveto.errors import ForeignOwnerError
from heaveto.files import check_owner
from heaveto.liveness import Liveness
from heaveto.model import TERMINAL_RUN, OperationStatus, RunStatus, SignalKind, Verb
from heaveto.observe.assemble import Facts, Place, counted
from heaveto.observe.derive import stored_status
from heaveto.observe.fold import Fold
from heaveto.observe.lionagi_truth import told_nodes
from heaveto.observe.saved import sealed, unread
from heaveto.observe.unit import Unit
from heaveto.seal import read_seal, unit_identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from heaveto.observe.bulk import Counts
    from heaveto.observe.relations import Relations
    from heaveto.observe.roster import Roster
    from heaveto.observe.saved import Saved
    from heaveto.observe.snapshot import RunSummary
    from heaveto.seal import UnitIdentity
    from heaveto.statedb import SessionRow

__all__ = ["EndedRuns"]

_SOME = 8
"""Up to so many runs are read whole: cheaper than one count of everything."""
_TOLD_S = 30e-6
"""What telling a run from its row takes."""
_FREE = 1 << 18
"""Bytes of checkpoints that are loaded whatever the time: some dozens of small ones."""
_WHOLE = 1 << 12
"""What reading a run whole takes of that."""

_ENDS = {
    SignalKind.COMPLETED: OperationStatus.COMPLETED.value,
    SignalKind.FAILED: OperationStatus.FAILED.value,
    SignalKind.SKIPPED: OperationStatus.SKIPPED.value,
    SignalKind.CANCELLED: OperationStatus.CANCELLED.value,
}

_OPEN = {
    OperationStatus.LOST.value: OperationStatus.RUNNING.value,
    OperationStatus.UNSTARTED.value: OperationStatus.WAITING.value,
}
"""What has no end in a run of which nobody knows whether it is over."""


class EndedRuns:
    """Summaries of runs that are over, as many as can be told from counts."""

    def __init__(
        self,
        roster: Roster,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        began: float | None = None,
        budget: float,
    ) -> None:
        """Read nothing yet.

        Args:
            roster: The rows, controls and folders.
            clock: Epoch seconds.
            monotonic: Seconds that no clock change moves.
            began: When the look began, by ``monotonic``; None: now.
            budget: Seconds that the look may take, what it tells without reading runs
                included.
        """
        self._roster = roster
        self._monotonic = monotonic
        self._until = (monotonic() if began is None else began) + budget
        self._free = _FREE
        self._now = clock()
        self._runs = str(roster.home.runs)
        self._native = roster.source == "heaveto"
        self._there = Place(
            home=str(roster.home.path),
            source=roster.source,
            run_dir=None,
            has_dir=True,
            foreign=_is_foreign(roster.home.path),
        )
        self._elsewhere = replace(self._there, has_dir=False)

    def summaries(
        self, keys: list[str], relations: Relations, still: Mapping[str, Liveness]
    ) -> Iterator[tuple[str, RunSummary | None, UnitIdentity]]:
        """Yield each run with its summary and its checkpoint's files.

        The summary is None when the run is to be read whole: when row and counts do not
        tell all of it, and the look has time left. Beyond that such a run is told from
        the row as far as it goes, its checkpoint as unread.

        Args:
            keys: Of the roster's rows, in the order in which the time is spent.
            relations: Who continues whom.
            still: Those whose row says that they run, and whose process is gone, or
                cannot be looked at while nothing is heard of it.
        """
        if len(keys) <= _SOME:
            yield from ((key, None, _NO_FILES) for key in keys)
            return
        self._until -= _TOLD_S * len(keys)
        counts = self._counts(keys)
        # What is out of the ordinary has the first claim on the time.
        keys = sorted(keys, key=lambda key: key not in still and self._is_usual(key))
        for key in keys:
            nodes, whole = self._nodes(key, counts)
            process = still.get(key)
            if whole and process is None and self._is_plain(key, relations):
                saved = self._saved(self._roster.rows[key])
                files = _NO_FILES if saved is None else saved.files
                yield key, self._summary(key, saved, nodes, relations), files
            elif self._may_read():
                yield key, None, _NO_FILES
            else:
                process = process or _ENDED
                if process.alive is None:
                    nodes = {_OPEN.get(word, word): nodes[word] for word in nodes}
                told = self._summary(key, unread(), nodes, relations, process)
                yield key, told, _NO_FILES

    def _counts(self, keys: list[str]) -> dict[str, Counts]:
        """Return what signals add up to.

        Those of lionagi hold what every model call was asked, so that counting them
        would read gigabytes; there the row itself tells how operations ended.
        """
        if self._native and any(key == self._roster.rows[key].id for key in keys):
            return self._roster.open().counts()
        return {}

    def _nodes(
        self, key: str, counts: dict[str, Counts]
    ) -> tuple[dict[str, int], bool]:
        """Return the counts of a run by status, and whether they tell the whole."""
        if self._native:
            return _counted_nodes(counts.get(key))
        return told_nodes(self._roster.rows[key])

    def _may_read(self) -> bool:
        """Tell whether there is time left for reading a run whole."""
        self._free -= _WHOLE
        return self._free >= 0 or self._monotonic() < self._until

    def _is_usual(self, key: str) -> bool:
        """Tell whether a run ended in a way that its row and counts can tell."""
        row = self._roster.rows[key]
        if self._native:
            return key == row.id and stored_status(row.status) in TERMINAL_RUN
        return key == row.id and row.status == RunStatus.COMPLETED

    def _is_plain(self, key: str, relations: Relations) -> bool:
        """Tell whether row and counts can tell the whole of a run."""
        row = self._roster.rows[key]
        return (
            self._is_usual(key)
            and not relations.continues(key)
            and row.metadata_raw is None
            and not self._has_engine_state(row)
            and not any(
                control.verb == Verb.MESSAGE
                for control in self._roster.controls.get(key, ())
            )
        )

    def _has_engine_state(self, row: SessionRow) -> bool:
        """Tell whether a run has a generation store, which the list names too."""
        return row.run_id in self._roster.folders and os.path.lexists(
            f"{self._runs}/{row.run_id}/engine_state"
        )

    def _summary(
        self,
        key: str,
        saved: Saved | None,
        nodes: dict[str, int],
        relations: Relations,
        process: Liveness | None = None,
    ) -> RunSummary:
        """Return a summary; with a process, what it says is not the whole."""
        row = self._roster.rows[key]
        there = row.run_id in self._roster.folders
        resumed_from, superseded_by = relations.of(row)
        return counted(
            Facts(
                row=row,
                place=self._there if there else self._elsewhere,
                fold=_NOTHING,
                controls=self._roster.controls.get(row.id, ()),
                saved=saved,
                process=process or _ENDED,
                now=self._now,
                resumed_from=resumed_from,
                superseded_by=superseded_by,
                has_row=key == row.id,
            ),
            nodes,
            whole=process is None,
        )

    def _saved(self, row: SessionRow) -> Saved | None:
        """Return what is known of a checkpoint: sealed, loaded, or not read yet."""
        if row.run_id not in self._roster.folders:
            return None
        path = f"{self._runs}/{row.run_id}/checkpoint.json"
        seal = read_seal(row.node_metadata, path) if self._native else None
        if seal is not None:
            return sealed(seal)
        files = unit_identity(path)
        if files == (None, None):
            return None
        self._free -= sum(file[2] for file in files if file is not None)
        if self._free >= 0 or self._monotonic() < self._until:
            return Unit(Path(path)).read(live=False)
        return unread()


_NOTHING = Fold()
_NO_FILES: UnitIdentity = (None, None)
_ENDED = Liveness(alive=False, why="the run has ended", code="ended")


def _counted_nodes(found: Counts | None) -> tuple[dict[str, int], bool]:
    """Return counts by status, and whether they tell the whole.

    A run without any signal may have operations that only its checkpoint knows. What
    has no end yet may be lost, not begun or saved: that is not told by counting.
    """
    if found is None:
        return {"total": 0}, False
    ended = sum(found.ends.values())
    nodes = {"total": ended}
    nodes.update((_ENDS[kind], count) for kind, count in found.ends.items())
    nodes[OperationStatus.CANCELLED.value] -= found.withheld
    nodes[OperationStatus.UNSTARTED.value] = found.withheld
    if not found.plain:
        nodes["total"] = max(found.queued, ended)
        nodes[OperationStatus.UNKNOWN.value] = nodes["total"] - ended
    shown = {word: count for word, count in nodes.items() if count}
    return {"total": 0, **shown}, found.plain and nodes["total"] > 0


def _is_foreign(path: Path) -> bool:
    try:
        check_owner(path)
    except (ForeignOwnerError, OSError):
        return True
    return False
