"""Ended runs for a list, without reading each of them.

A run that ended with every operation at its end is fully told by its row, the count of
its operations' last signals, its controls, and the seal of its checkpoint: that is one
query for all runs and two ``stat`` calls for each. Whatever is out of the ordinary (an
operation without an end, an escalation, a failed input, a message to account for, a run
that continues another) is read whole by the caller.

A checkpoint without a seal is loaded as long as a budget of time lasts; what is left
over is shown as ``unread`` and its turn comes with the next look. Blocking.
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
from heaveto.observe.relations import source_of
from heaveto.observe.saved import sealed, unread
from heaveto.observe.unit import Unit
from heaveto.seal import read_seal, unit_identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
_BUDGET_S = 0.2
_FREE = 1 << 18
"""Bytes of checkpoints that are loaded whatever the time: some dozens of small ones."""

_ENDS = {
    SignalKind.COMPLETED: OperationStatus.COMPLETED.value,
    SignalKind.FAILED: OperationStatus.FAILED.value,
    SignalKind.SKIPPED: OperationStatus.SKIPPED.value,
    SignalKind.CANCELLED: OperationStatus.CANCELLED.value,
}


class EndedRuns:
    """Summaries of ended runs, as many as can be told from counts."""

    def __init__(
        self,
        roster: Roster,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        budget: float = _BUDGET_S,
    ) -> None:
        """Read nothing yet.

        Args:
            roster: The rows, controls and folders.
            clock: Epoch seconds.
            monotonic: Seconds that no clock change moves.
            budget: Seconds for loading checkpoints that have no seal.
        """
        self._roster = roster
        self._monotonic = monotonic
        self._until = monotonic() + budget
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
        self, keys: list[str], relations: Relations
    ) -> Iterator[tuple[str, RunSummary | None, UnitIdentity]]:
        """Yield each run with its summary and its checkpoint's files.

        The summary is None when the run must be read whole.

        Args:
            keys: Of the roster's rows, in the order in which a budget is spent.
            relations: Who continues whom.
        """
        counts: dict[str, Counts] | None = None
        many = len(keys) > _SOME
        if not self._native:
            yield from self._foreign(keys, relations, many=many)
            return
        if many and any(key == self._roster.rows[key].id for key in keys):
            counts = self._roster.open().counts()
        for key in keys:
            row = self._roster.rows[key]
            nodes = None
            if counts is not None and row.id == key and self._is_plain(row):
                nodes = _nodes(counts.get(key))
            if nodes is None:
                yield key, None, _NO_FILES
                continue
            saved = self._saved(row)
            files = _NO_FILES if saved is None else saved.files
            yield key, self._summary(row, saved, nodes, relations), files

    def _foreign(
        self, keys: list[str], relations: Relations, *, many: bool
    ) -> Iterator[tuple[str, RunSummary | None, UnitIdentity]]:
        """Yield runs of lionagi.

        Its signals hold what every model call was asked, so that counting them would
        read gigabytes; the row itself tells how its operations ended. What that does
        not tell whole is read as long as the budget lasts, and shown from the row, as
        not read yet, beyond that.
        """
        for key in keys:
            row = self._roster.rows[key]
            nodes, whole = told_nodes(row)
            plain = many and whole and row.id == key and self._is_plain(row)
            if not plain and not (many and self._is_spent() and row.id == key):
                yield key, None, _NO_FILES
                continue
            saved = self._saved(row) if plain else unread()
            files = _NO_FILES if saved is None else saved.files
            yield key, self._summary(row, saved, nodes, relations), files

    def _is_spent(self) -> bool:
        """Tell whether the budget for reading runs whole is used up."""
        self._free -= 1
        return self._free < 0 and self._monotonic() >= self._until

    def _is_plain(self, row: SessionRow) -> bool:
        """Tell whether row and counts can tell the whole of a run."""
        return (
            stored_status(row.status) in TERMINAL_RUN
            and source_of(row) is None
            and (self._native or row.status == RunStatus.COMPLETED)
            and row.metadata_raw is None
            and not self._has_engine_state(row)
            and not any(
                control.verb == Verb.MESSAGE
                for control in self._roster.controls.get(row.id, ())
            )
        )

    def _has_engine_state(self, row: SessionRow) -> bool:
        """Tell whether a run has a generation store, which the list names too."""
        return row.run_id in self._roster.folders and os.path.lexists(
            f"{self._runs}/{row.run_id}/engine_state"
        )

    def _summary(
        self,
        row: SessionRow,
        saved: Saved | None,
        nodes: dict[str, int],
        relations: Relations,
    ) -> RunSummary:
        there = row.run_id in self._roster.folders
        resumed_from, superseded_by = relations.of(row)
        return counted(
            Facts(
                row=row,
                place=self._there if there else self._elsewhere,
                fold=_NOTHING,
                controls=self._roster.controls.get(row.id, ()),
                saved=saved,
                process=_ENDED,
                now=self._now,
                resumed_from=resumed_from,
                superseded_by=superseded_by,
            ),
            nodes,
        )

    def _saved(self, row: SessionRow) -> Saved | None:
        """Return what is known of a checkpoint: sealed, loaded, or not read yet."""
        if row.run_id not in self._roster.folders:
            return None
        path = f"{self._runs}/{row.run_id}/checkpoint.json"
        seal = read_seal(row.node_metadata, path)
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
_ENDED = Liveness(alive=False, why="the run has ended")


def _nodes(found: Counts | None) -> dict[str, int] | None:
    """Return counts by status; None when they do not tell the whole.

    A run without any signal may have operations that only its checkpoint knows.
    """
    if found is None or not found.plain:
        return None
    nodes = {"total": sum(found.ends.values())}
    nodes.update((_ENDS[kind], count) for kind, count in found.ends.items())
    nodes[OperationStatus.CANCELLED.value] -= found.withheld
    nodes[OperationStatus.UNSTARTED.value] = found.withheld
    if not nodes["total"]:
        return None
    return {word: count for word, count in nodes.items() if count}


def _is_foreign(path: Path) -> bool:
    try:
        check_owner(path)
    except (ForeignOwnerError, OSError):
        return True
    return False
