"""Which runs a home has: the rows of its database and the directories without one.

Kept up to date at the price of what changed: nothing is read while the database's
version stands still, one stamp tells whether any session or control moved, and then the
rows updated since are read. All rows are compared by their marks only now and then, for
what was changed by somebody who does not say so in ``updated_at``. A database that
cannot be read leaves the roster as it was; one that is gone leaves the directories.

Blocking; one owner.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Literal

from heaveto.errors import RunError, StateDBError
from heaveto.observe.bulk import BulkDB, mark_of
from heaveto.runs import read_run_json, run_names
from heaveto.statedb import LINEAGE, VERSION, SessionRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from heaveto.observe.bulk import Mark, Stamp
    from heaveto.runs import Home
    from heaveto.statedb import ControlRow, Schema

__all__ = ["Roster"]

_NO_FILE = ("db_missing", "db_elsewhere")
"""No database: the directories of runs are what there is."""
_SOME = 64
"""Up to so many changed rows are read one by one."""
_RESYNC_S = 3.0
"""While the database changes, all rows are compared at least so often."""
_SLACK_S = 0.001
"""Rows updated so shortly before the newest one are read again."""
_SETTLED_S = 1.0
"""A run directory is made before its row is; for so long it needs none."""


class Roster:
    """The runs of one home, in order, as last read.

    Attributes:
        rows: The sessions by their key, the newest first: the session id, or the run
            id of a directory without a row.
        controls: Control rows by session.
        folders: The names in the folder of runs.
        signalled: Sessions that have new signals since the sync before.
        changed: Keys of runs whose row or controls differ since the sync before, that
            are new, or that are gone.
        live: Keys of the runs that go on; the source keeps it. Their rows are read
            whenever the database moved: lionagi changes a phase without a trace in
            ``updated_at``.
        epoch: Moves when another database file is read than before.
        error: Why the database could not be read the last time.
        read_at: When it could be read last, epoch seconds.
        schema: What the database says about itself, as last opened.
    """

    def __init__(
        self,
        home: Home,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open nothing yet."""
        self.home = home
        self.rows: dict[str, SessionRow] = {}
        self.controls: dict[str, list[ControlRow]] = {}
        self.folders: frozenset[str] = frozenset()
        self.signalled: frozenset[str] = frozenset()
        self.changed: set[str] = set()
        self.live: set[str] = set()
        self.epoch = 0
        self.error: StateDBError | None = None
        self.read_at: float | None = None
        self._clock, self._monotonic = clock, monotonic
        self.schema: Schema | None = None
        self._database: BulkDB | None = None
        self._marks: dict[str, Mark] = {}
        self._stored: dict[str, SessionRow] = {}
        self._orphans: dict[str, SessionRow] = {}
        self._stamp: Stamp | None = None
        self._version: object = None
        self._synced_at = 0.0
        self._behind = False
        self._last_signal: int | None = None
        self._file: tuple[int, int] | None = None
        self._folder_stamp: tuple[int, int, int] | None = None
        self._young = False

    @property
    def source(self) -> Literal["heaveto", "lionagi"]:
        """The world of the home."""
        return "lionagi" if self.home.source == "lionagi" else "heaveto"

    @property
    def readable(self) -> bool:
        """Tell whether the roster is up to date, with or without a database."""
        return self.error is None or self.error.code in _NO_FILE

    def close(self) -> None:
        """Close the database; the next look opens it anew."""
        database, self._database = self._database, None
        self._version = None
        if database is not None:
            database.close()

    def open(self) -> BulkDB:
        """Return the database.

        Raises:
            StateDBError: There is none (``db_missing``), it cannot be read, or a newer
                heaveto wrote it (``db_newer``, SPEC A-18).
        """
        if self._database is None:
            database = BulkDB.open(self.home.state_db)
            assert isinstance(database, BulkDB)
            self._database = database
        self.schema = schema = self._database.schema
        if schema.lineage == LINEAGE and (schema.version or 0) > VERSION:
            self.close()
            raise StateDBError(
                f"the state database {self.home.state_db} has version {schema.version},"
                f" this heaveto reads up to {VERSION}",
                code="db_newer",
            )
        return self._database

    def sync(self) -> None:
        """Bring the roster up to date.

        Raises:
            StateDBError: The database cannot be read, and never could.
        """
        self.changed = set()
        self.signalled = frozenset()
        try:
            self._sync_database(self.open())
        except StateDBError as error:
            self.close()
            if error.code not in _NO_FILE:
                self.error = error
                if self.read_at is None:
                    raise
                return
            self._without_database(error)
        else:
            self.error, self.read_at = None, self._clock()
        if self.readable and (self._sync_folders() or self.changed):
            self._arrange()

    def _sync_database(self, database: BulkDB) -> None:
        version = database.data_version()
        file = _file(self.home.state_db)
        if file != self._file:
            self._begin_anew(file)
        if version != self._version or self._behind:
            now = self._monotonic()
            stamp = database.stamp()
            if now - self._synced_at > _RESYNC_S or not self._read_recent(
                database, stamp
            ):
                self._read_rows(database)
                self._synced_at, self._behind = now, False
            else:
                self._behind = True  # what no stamp shows is seen a little later
            self._stamp = stamp
            found = database.signalled(self._last_signal)
            self.signalled, self._last_signal = found
        self._version = version

    def _begin_anew(self, file: tuple[int, int] | None) -> None:
        """Let go of what was read of another file that was here before."""
        self._file = file
        self.epoch += 1
        self.changed |= self._stored.keys()
        self._stored, self._marks, self.controls = {}, {}, {}
        self._stamp, self._last_signal = None, None

    def _without_database(self, error: StateDBError) -> None:
        """Let go of the rows when the file is gone; keep them when the home is.

        A home that was there and is not may be a disk that comes back, and an empty
        list would tell that there were no runs.
        """
        had_any = self.read_at is not None or bool(self.folders)
        if had_any and not self.home.path.is_dir():
            self.error = StateDBError(
                f"the home is not there: {self.home.path}", code="home_missing"
            )
            return
        told = had_any or error.code == "db_elsewhere"
        self.error = error if told else None
        if self._file is not None:
            self._begin_anew(None)

    def _read_recent(self, database: BulkDB, stamp: Stamp) -> bool:
        """Read the rows that were updated since the look before, and controls.

        Returns:
            False when that does not account for what is there: compare all.
        """
        before = self._stamp
        if before is None or before.newest is None:
            return False
        if stamp.sessions != before.sessions:
            found = database.sessions(updated_after=before.newest - _SLACK_S)
            self._take_over(found)
            if len(self._stored) != stamp.rows:
                return False
        if len(self.live) <= _SOME:
            rows = (database.session(key) for key in self.live if key in self._stored)
            self._take_over(row for row in rows if row is not None)
        if stamp.controls != before.controls:
            self._read_controls(database)
        return True

    def _take_over(self, found: Iterable[SessionRow]) -> None:
        """Take over rows as they are now; new ones come first."""
        new = {}
        for row in found:
            known = self._stored.get(row.id)
            if known is None:
                new[row.id] = row
            elif known != row:
                self._stored[row.id] = row
            else:
                continue
            self._marks.pop(row.id, None)
            self.changed.add(row.id)
        if new:
            order = sorted(new.values(), key=lambda row: row.created_at or 0.0)
            self._stored = {row.id: row for row in reversed(order)} | self._stored

    def _read_rows(self, database: BulkDB) -> None:
        """Compare all rows by their marks, read those that differ, and controls."""
        if not self._stored:
            found = database.everything()
            self._stored = {row.id: row for row in found}
            self._marks = {row.id: mark_of(row) for row in found}
            self.changed |= self._stored.keys()
        else:
            self._read_differing(database)
        self._read_controls(database)

    def _read_differing(self, database: BulkDB) -> None:
        """Compare rows with what is known of them, and read those that differ."""
        marks = database.marks()
        gone = self._stored.keys() - marks.keys()
        self._stored = {
            key: self._stored[key] for key in self._stored if key not in gone
        }
        differ = [key for key, mark in marks.items() if self._marks.get(key) != mark]
        if len(differ) > max(_SOME, len(marks) // 4):
            found = database.everything()
        else:
            rows = (database.session(key) for key in differ)
            found = [row for row in rows if row is not None]
        self._take_over(found)
        self._stored = {key: self._stored[key] for key in marks if key in self._stored}
        self.changed |= gone
        self._marks = marks

    def _read_controls(self, database: BulkDB) -> None:
        controls: dict[str, list[ControlRow]] = {}
        for control in database.controls():
            controls.setdefault(control.session_id, []).append(control)
        for key in controls.keys() | self.controls.keys():
            if controls.get(key) != self.controls.get(key):
                self.changed.add(key)
        self.controls = controls

    # --- directories

    def _sync_folders(self) -> bool:
        """List the folder of runs again when it changed; tell whether it differs."""
        stamp = (0, 0, 0)
        with contextlib.suppress(OSError):
            found = os.stat(self.home.runs)
            stamp = (found.st_dev, found.st_ino, found.st_mtime_ns)
        if stamp == self._folder_stamp and not self._young:
            return False
        now = self._clock()
        # Two changes within a tick of the clock look alike: look again a little later.
        self._young = 0 <= now - stamp[2] / 1e9 < _SETTLED_S
        self._folder_stamp = stamp
        before, self.folders = self.folders, frozenset(run_names(self.home))
        return self._young or before != self.folders

    def _arrange(self) -> None:
        """Put rows and directories without a row into one order."""
        known = {row.run_id for row in self._stored.values()}
        orphans = {}
        for name in sorted(self.folders - known, reverse=True):
            row = self._orphans.get(name) or self._orphan(name)
            if row is not None:
                orphans[name] = row
        self.changed |= orphans.keys() ^ self._orphans.keys()
        self._orphans = orphans
        self.rows = {**self._stored, **orphans}

    def _orphan(self, name: str) -> SessionRow | None:
        """Return what a directory without a row says, unless its row may just come."""
        try:
            age = self._clock() - os.stat(self.home.runs / name).st_mtime
        except OSError:
            return None
        if 0 <= age < _SETTLED_S:
            self._young = True
            return None
        return self.row_of_directory(name)

    def row_of_directory(self, run_id: str) -> SessionRow | None:
        """Return what a run's directory says of it; None when it is not there."""
        try:
            run = self.home.run(run_id)
        except RunError:
            return None
        if not run.path.is_dir():
            return None
        try:
            record = read_run_json(run)
        except RunError:
            return SessionRow(id="", run_id=run_id)
        return SessionRow(
            id=record.session_id or "",
            run_id=run_id,
            status=record.status,
            started_at=record.started_at,
            ended_at=record.ended_at,
            artifacts_path=record.artifact_root,
            invocation_kind=_text(record.extra.get("invocation_kind")),
            agent_name=_text(record.extra.get("agent_name")),
            # lionagi notes the process here when its database cannot be written.
            node_metadata={
                "resumed_from": record.resumed_from,
                "pid": record.extra.get("pid"),
                "pid_create_time": record.extra.get("pid_create_time"),
            },
        )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _file(path: Path) -> tuple[int, int] | None:
    """Return what tells a database file from one that was put in its place."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
