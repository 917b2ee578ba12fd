"""One run followed: each look reads only what is new since the last one.

Signals are read from the last sequence number on, the checkpoint only when its files
changed; the process is asked once a second. Blocking; one owner.
"""

from __future__ import annotations

import os
import stat
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from heaveto.errors import ForeignOwnerError, RunError
from heaveto.files import check_owner
from heaveto.liveness import MACHINE, Liveness, judge
from heaveto.model import TERMINAL_RUN, OperationStatus
from heaveto.observe.assemble import Facts, Memory, Place, detail
from heaveto.observe.derive import stored_status
from heaveto.observe.engine import committed_generation
from heaveto.observe.fold import Fold
from heaveto.observe.unit import Unit
from heaveto.runs import read_run_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from heaveto.liveness import Machine
    from heaveto.observe.bulk import BulkDB
    from heaveto.observe.saved import Saved
    from heaveto.observe.snapshot import RunDetail
    from heaveto.runs import Home, RunDir
    from heaveto.seal import UnitIdentity
    from heaveto.statedb import ControlRow, SessionRow

__all__ = ["Followed", "run_dir_of"]

_LOOK_S = 0.9
"""Process and files are looked at so often; a death shows within three seconds."""
_PAGE = 10_000


class Followed:
    """One run and what was read of it so far."""

    def __init__(
        self,
        home: Home,
        row: SessionRow,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        machine: Machine = MACHINE,
        has_row: bool = True,
    ) -> None:
        """Begin with nothing read.

        Args:
            home: Where it lies.
            row: Its session, or what its directory says in place of one.
            clock: Epoch seconds.
            monotonic: Seconds that no clock change moves.
            machine: Who is asked about processes.
            has_row: The database has a row of it.
        """
        self.home = home
        self.row = row
        self.has_row = has_row
        self.fold = Fold()
        self.saved: Saved | None = None
        self.controls: Sequence[ControlRow] = ()
        self.revision = 0
        """Moves when anything that is shown of the run has changed."""
        self.run_dir = run_dir_of(home, row)
        self._clock, self._monotonic, self._machine = clock, monotonic, machine
        self._unit = None if self.run_dir is None else Unit(self.run_dir.checkpoint)
        self._read = False
        self._process: Liveness | None = None
        self._place: Place | None = None
        self._looked_at = 0.0
        self._memory = Memory()

    @property
    def ended(self) -> bool:
        """Tell whether the row says that the run is over."""
        return stored_status(self.row.status) in TERMINAL_RUN

    @property
    def live(self) -> bool:
        """Tell whether something of the run may go on, as far as is known."""
        return not self.ended and (
            self._process is None or self._process.alive is not False
        )

    @property
    def dead(self) -> bool:
        """Tell whether its process is gone and its row still says running."""
        return not self.ended and not self.live

    @property
    def files(self) -> UnitIdentity:
        """Base and journal of its checkpoint as they were read last."""
        return (None, None) if self.saved is None else self.saved.files

    def update(
        self,
        database: BulkDB | None,
        row: SessionRow,
        controls: Sequence[ControlRow],
        *,
        signals: bool = True,
        files: bool = True,
    ) -> bool:
        """Read what is new.

        Args:
            database: None when there is none; then files alone are read.
            row: The session as just read.
            controls: Its controls as just read.
            signals: False: no signal was added since the last update.
            files: False: nothing was told of changed files; they are looked at once a
                second all the same.

        Returns:
            Whether anything that is shown changed.
        """
        changed = row is not self.row and row != self.row
        changed |= controls is not self.controls and controls != self.controls
        self.row, self.controls = row, controls
        if database is not None and self.has_row and (signals or not self._read):
            self._read = True
            changed |= self._read_signals(database)
        now = self._monotonic()
        beat = changed or now - self._looked_at >= _LOOK_S or self._process is None
        if beat:
            self._looked_at = now
            changed |= self._ask_process()
            changed |= self._look()
        if beat or files:
            changed |= self._read_unit()
        self.revision += changed
        return changed

    def _ask_process(self) -> bool:
        lock = None
        if self.run_dir is not None and self.home.source == "heaveto":
            lock = self.run_dir.lock
        before = self._process
        self._process = judge(
            self.row.node_metadata, lock=lock, ended=self.ended, machine=self._machine
        )
        return before is None or before.code != self._process.code

    def _read_signals(self, database: BulkDB) -> bool:
        changed = False
        while rows := database.signals(self.row.id, self.fold.last_seq, limit=_PAGE):
            changed |= self.fold.add(rows)
            if len(rows) < _PAGE:
                break
        return changed

    def _read_unit(self) -> bool:
        if self._unit is None:
            return False
        before = self.saved
        self.saved = self._unit.read(live=self.live)
        return self.saved is not before

    def _look(self) -> bool:
        """Look at the directory itself."""
        before, self._place = self._place, self._place_now()
        return self._place != before

    def _place_now(self) -> Place:
        run = self.run_dir
        has_dir = run is not None and _is_directory(str(run.path))
        return Place(
            home=str(self.home.path),
            source="lionagi" if self.home.source == "lionagi" else "heaveto",
            run_dir=None if run is None else str(run.path),
            has_dir=has_dir,
            damaged_json=has_dir and run is not None and _is_damaged(run),
            foreign=run is not None and _is_foreign(self.home, run),
            generation_dir=None if run is None else committed_generation(str(run.path)),
        )

    def snapshot(
        self,
        *,
        resumed_from: str | None,
        superseded_by: str | None,
        survivors: Sequence[dict[str, object]] = (),
    ) -> RunDetail:
        """Return the run as it was read last.

        Args:
            resumed_from: The run id it continues.
            superseded_by: The run id that took it over.
            survivors: Living children of its dead runner.
        """
        facts = self._facts(resumed_from, superseded_by)
        return detail(replace(facts, survivors=tuple(survivors)), self._memory)

    def _facts(self, resumed_from: str | None, superseded_by: str | None) -> Facts:
        """Return what was read of the run last."""
        return Facts(
            row=self.row,
            place=self._place or self._place_now(),
            fold=self.fold,
            controls=self.controls,
            saved=self.saved,
            process=self._process or Liveness(alive=None, why="it was not asked for"),
            now=self._clock(),
            last_output_at=self._last_output(),
            resumed_from=resumed_from,
            superseded_by=superseded_by,
            has_row=self.has_row,
        )

    def _last_output(self) -> float | None:
        """Return when a running operation last wrote something."""
        if self.run_dir is None or not self.live:
            return None
        newest = None
        for lane in self.fold.lanes.values():
            if lane.status == OperationStatus.RUNNING:
                for name in ("output.log", "error.log"):
                    at = _changed_at(self.run_dir, lane.name, name)
                    if at is not None and (newest is None or at > newest):
                        newest = at
        return newest


def run_dir_of(home: Home, row: SessionRow) -> RunDir | None:
    """Return the directory of a run; a name that can be no path has none."""
    if not row.run_id:
        return None
    try:
        return home.run(row.run_id)
    except RunError:
        return None


def _changed_at(run: RunDir, operation: str, name: str) -> float | None:
    try:
        return os.stat(run.operation(operation) / name, follow_symlinks=False).st_mtime
    except (OSError, RunError):
        return None


def _is_directory(path: str) -> bool:
    """Tell whether a path is a directory and no link to one."""
    try:
        return stat.S_ISDIR(os.stat(path, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _is_damaged(run: RunDir) -> bool:
    """Tell whether there is a ``run.json`` that cannot be read."""
    try:
        read_run_json(run)
    except RunError as error:
        return error.code == "run_damaged"
    return False


def _is_foreign(home: Home, run: RunDir) -> bool:
    try:
        check_owner(home.path)
        check_owner(run.path)
    except (ForeignOwnerError, OSError):
        return True
    return False
