"""A heaveto home as a source of runs.

A list of ten thousand runs must not read ten thousand runs. What goes on is followed,
each run by itself (:class:`~heaveto.observe.follow.Followed`). What has ended is read
once: from its row, one count of all signals and the seal of its checkpoint where that
suffices (:mod:`~heaveto.observe.ended`), else whole; and again only when its row, its
controls or its files differ.

An unreadable database does not empty the list: what was read last stays, with the
moment of that reading, and :meth:`NativeSource.health` says what is wrong.

Blocking; one thread at a time.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING

from heaveto.errors import StateDBError
from heaveto.liveness import MACHINE
from heaveto.model import TERMINAL_RUN
from heaveto.observe.derive import stored_status
from heaveto.observe.ended import EndedRuns
from heaveto.observe.follow import Followed
from heaveto.observe.relations import Relations
from heaveto.observe.roster import Roster
from heaveto.observe.snapshot import HomeView
from heaveto.observe.words import notice

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from heaveto.liveness import Machine
    from heaveto.observe.bulk import BulkDB
    from heaveto.observe.snapshot import RunDetail, RunSummary
    from heaveto.runs import Home
    from heaveto.statedb import ControlRow, SessionRow

__all__ = ["NativeSource"]

_KEPT = 64
"""Ended runs that stay in memory whole after they were looked at."""
_COOLING_S = 5.0
"""An ended run is followed for so long, for what its runner writes last."""
_REBUILT_S = 1.0
"""A run that goes on is concluded about anew at least so often: time passes."""
_UNKNOWN_S = 5.0
_RECHECK_S = 30.0
"""How often runs of which nothing goes on are looked at again."""


class _Listed:
    """One run of the list: its summary and what that rests on."""

    __slots__ = ("built_at", "controls", "due", "revision", "row", "summary")

    def __init__(
        self,
        row: SessionRow,
        controls: list[ControlRow] | None,
        summary: RunSummary,
        *,
        built_at: float,
        due: float,
        revision: int,
    ) -> None:
        self.row = row
        self.controls = controls
        self.summary = summary
        self.built_at = built_at
        self.due = due
        self.revision = revision


class NativeSource:
    """A home with a state database and run directories, read and never written."""

    def __init__(
        self,
        home: Home,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        machine: Machine = MACHINE,
    ) -> None:
        """Open nothing yet.

        Args:
            home: What to read.
            clock: Epoch seconds.
            monotonic: Seconds that no clock change moves.
            machine: Who is asked about processes.
        """
        self.home = home
        self._clock, self._monotonic, self._machine = clock, monotonic, machine
        self._roster = Roster(home, clock=clock, monotonic=monotonic)
        self._relations = Relations()
        self._followed: OrderedDict[str, Followed] = OrderedDict()
        self._cooling: dict[str, float] = {}
        self._listed: dict[str, _Listed] = {}

    def close(self) -> None:
        """Close the database; the next question opens it anew."""
        self._roster.close()

    # --- what is asked

    def runs(self) -> tuple[RunSummary, ...]:
        """Return every run, the newest first.

        Raises:
            StateDBError: The database cannot be read and nothing was read before.
        """
        self.refresh()
        return self.listed()

    def listed(self) -> tuple[RunSummary, ...]:
        """Return every run as :meth:`refresh` left it."""
        rows = self._roster.rows
        return tuple(self._listed[key].summary for key in rows if key in self._listed)

    def refresh(self) -> frozenset[str]:
        """Read what is new of every run.

        Returns:
            The keys (session ids; run ids where there is no row) of the runs that are
            shown otherwise than before, are new, or are gone.

        Raises:
            StateDBError: The database cannot be read and nothing was read before.
        """
        self._roster.sync()
        if self._roster.error is not None and self._roster.error.code != "db_missing":
            return frozenset()
        rows = self._roster.rows
        self._relations.read(rows)
        changed = set(self._listed) - set(rows)
        for key in changed:
            del self._listed[key]
            self._followed.pop(key, None)
        ended = []
        for key, row in rows.items():
            due = self._is_due(key, row)
            if not due:
                continue
            if self._goes_on(key, row):
                changed |= self._list_live(key, row)
            else:
                ended.append(key)
        if ended:
            changed |= self._list_ended(ended)
        self._forget()
        return frozenset(changed)

    def read(self, session_id: str | None, run_id: str | None) -> RunDetail | None:
        """Return one run whole, or None when there is no such run here.

        Args:
            session_id: Its session, None for a run directory without a row.
            run_id: Its run.

        Raises:
            StateDBError: The database cannot be read and nothing is known of the run.
        """
        key = session_id or run_id or ""
        try:
            database = self._roster.open()
            row = self._row(database, session_id, run_id)
        except StateDBError as error:
            return self._as_known(key, error)
        if row is None:
            return None
        followed = self._follow(key, row, has_row=session_id is not None)
        followed.update(database, row)
        if key not in self._roster.rows:
            self._relations.look(database, row)
        return self._detail(followed)

    def _as_known(self, key: str, error: StateDBError) -> RunDetail:
        """Return a run as it was read last, when its database cannot be read now."""
        self._roster.close()
        followed = self._followed.get(key)
        if followed is None:
            raise error
        return self._detail(followed)

    def health(self) -> HomeView:
        """Return how the home itself stands."""
        error = self._roster.error
        problem = None if error is None else notice(error.code, error.message)
        return HomeView(
            path=str(self.home.path),
            source=self._roster.source,
            read_at=self._roster.read_at,
            problem=problem,
        )

    def live_directories(self) -> tuple[Path, ...]:
        """Return the directories of the runs that go on."""
        return tuple(
            followed.run_dir.path
            for followed in self._followed.values()
            if followed.live and followed.run_dir is not None
        )

    # --- the list

    def _is_due(self, key: str, row: SessionRow) -> bool:
        """Tell whether a run has to be looked at again."""
        listed = self._listed.get(key)
        return (
            listed is None
            or listed.row is not row
            or self._monotonic() >= listed.due
            or listed.controls != self._roster.controls.get(key)
            or self._relations.moved(key)
        )

    def _goes_on(self, key: str, row: SessionRow) -> bool:
        """Tell whether a run is followed, also for a little while after its end."""
        if stored_status(row.status) not in TERMINAL_RUN:
            return True
        followed = self._followed.get(key)
        if followed is None or key not in self._listed:
            return False
        now = self._monotonic()
        if not followed.ended:  # it ended since the last look
            self._cooling[key] = now + _COOLING_S
        return now < self._cooling.get(key, 0.0)

    def _list_live(self, key: str, row: SessionRow) -> set[str]:
        """Look at a run that is followed; return its key if it is shown otherwise."""
        has_row = key == row.id
        if not has_row:
            row = self._roster.row_of_directory(key) or row
        followed = self._follow(key, row, has_row=has_row)
        database = self._roster.open()
        followed.update(database, row, fresh=self._roster.fresh)
        listed, now = self._listed.get(key), self._monotonic()
        if (
            listed is not None
            and listed.revision == followed.revision
            and now - listed.built_at < _REBUILT_S
            and not self._relations.moved(key)
        ):
            return set()
        revised = listed is None or listed.revision != followed.revision
        summary = self._detail(followed).run
        return self._put(key, row, summary, revision=followed.revision, changed=revised)

    def _list_ended(self, keys: list[str]) -> set[str]:
        """Look at runs of which nothing goes on."""
        changed: set[str] = set()
        runs = EndedRuns(self._roster, clock=self._clock, monotonic=self._monotonic)
        for key, row, summary in runs.summaries(keys, self._relations):
            if summary is None:
                followed = self._follow(key, row, has_row=key == row.id)
                followed.update(self._roster.open(), row)
                summary = self._detail(followed).run
            changed |= self._put(key, row, summary, revision=-1)
        return changed

    def _put(
        self,
        key: str,
        row: SessionRow,
        summary: RunSummary,
        *,
        revision: int,
        changed: bool = False,
    ) -> set[str]:
        """Keep a summary; return its key if it is shown otherwise than before."""
        now = self._monotonic()
        before = self._listed.get(key)
        self._listed[key] = _Listed(
            row,
            self._roster.controls.get(key),
            summary,
            built_at=now,
            due=now + self._rest(key, summary),
            revision=revision,
        )
        self._relations.told(key)
        if before is not None and not changed and _same(before.summary, summary):
            if revision == -1:
                self._listed[key].summary = before.summary
            return set()
        return {key}

    def _rest(self, key: str, summary: RunSummary) -> float:
        """Return for how many seconds a run need not be looked at."""
        if summary.checkpoint is not None and summary.checkpoint.status == "unread":
            return 0.0
        if summary.status in TERMINAL_RUN:
            cooling = self._monotonic() < self._cooling.get(key, 0.0)
            return 0.0 if cooling else _RECHECK_S
        if summary.alive is False:
            return _RECHECK_S
        return _UNKNOWN_S if summary.state == "unknown" else 0.0

    # --- one run

    def _row(
        self, database: BulkDB | None, session_id: str | None, run_id: str | None
    ) -> SessionRow | None:
        """Return the session of a run, or what its directory says in its place."""
        if session_id is not None:
            return None if database is None else database.session(session_id)
        return None if run_id is None else self._roster.row_of_directory(run_id)

    def _follow(self, key: str, row: SessionRow, *, has_row: bool) -> Followed:
        """Return the follower of a run; the last looked at is the last to be let go."""
        followed = self._followed.get(key)
        if followed is None or followed.has_row != has_row:
            followed = self._followed[key] = Followed(
                self.home,
                row,
                clock=self._clock,
                monotonic=self._monotonic,
                machine=self._machine,
                has_row=has_row,
            )
        self._followed.move_to_end(key)
        return followed

    def _forget(self) -> None:
        """Let go of runs that ended and were not looked at lately."""
        if len(self._followed) <= _KEPT:
            return
        idle = [key for key, one in self._followed.items() if not one.live]
        for key in idle[: max(0, len(idle) - _KEPT)]:
            del self._followed[key]
            self._cooling.pop(key, None)

    def _detail(self, followed: Followed) -> RunDetail:
        resumed_from, superseded_by = self._relations.of(followed.row)
        return followed.snapshot(
            resumed_from=resumed_from,
            superseded_by=superseded_by,
            survivors=_survivors(followed) if followed.dead else (),
        )


def _survivors(followed: Followed) -> tuple[dict[str, object], ...]:
    """Return the living children of a dead runner."""
    from heaveto.workers.records import survivors  # only where a run is dead

    if followed.run_dir is None:
        return ()
    return tuple(
        {"pid": one.pid, "operation": one.operation, "command": one.command}
        for one in survivors(followed.run_dir.path)
    )


def _same(before: RunSummary, after: RunSummary) -> bool:
    """Tell whether two summaries differ in nothing but the moment of the look."""
    return replace(before, observed_at=after.observed_at) == after
