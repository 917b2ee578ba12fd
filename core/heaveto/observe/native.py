"""A heaveto home as a source of runs.

A list of ten thousand runs must not read ten thousand runs. What goes on is followed,
each run by itself (:class:`~heaveto.observe.follow.Followed`), and looked at each time.
What is over is read once: from its row, one count of all signals and the seal of its
checkpoint where that suffices (:mod:`~heaveto.observe.ended`), else whole; then again
when its row, its controls or its files differ, which are compared in turns. A run whose
row says that it runs, and whose process is gone, is over as well; one whose process
cannot be looked at, and of which nothing was heard for long, is treated alike.

An unreadable database does not empty the list: what was read last stays, with the
moment of that reading, and :meth:`NativeSource.health` says what is wrong.

Blocking; one thread at a time.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from heaveto.errors import StateDBError
from heaveto.liveness import MACHINE, judge
from heaveto.model import TERMINAL_RUN, RunState
from heaveto.observe.derive import SILENT_AFTER_S, stored_status
from heaveto.observe.ended import EndedRuns
from heaveto.observe.follow import Followed, run_dir_of
from heaveto.observe.relations import Relations
from heaveto.observe.roster import Roster
from heaveto.observe.rotation import Rotation
from heaveto.observe.snapshot import HomeView
from heaveto.observe.words import notice
from heaveto.seal import unit_identity

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from heaveto.liveness import Liveness, Machine
    from heaveto.observe.snapshot import RunDetail, RunSummary
    from heaveto.runs import Home
    from heaveto.seal import UnitIdentity
    from heaveto.statedb import SessionRow
    from heaveto.workers.records import Census

__all__ = ["NativeSource"]

_CAUGHT_UP = 256
"""Checkpoints left for later that are read in one look, as far as time allows."""
_KEPT = 64
"""Ended runs that stay in memory whole after they were looked at."""
_COOLING_S = 5.0
"""An ended run is followed for so long, for what its runner writes last."""
_REBUILT_S = 1.0
"""A run that goes on is concluded about anew at least so often: time passes."""
_DOUBTFUL_S = 2.0
"""A run whose process cannot be looked at is looked at so often when nothing comes."""
_FIRST_S = 0.4
"""A first list may take about so long; what is not read by then comes later."""
_BUDGET_S = 0.15
"""So may a later look: what goes on must be seen meanwhile."""
_CENSUS_S = 0.5
"""One look at all processes serves for so long, however many runs are dead."""
_RECHECK_S = 120.0
"""Every run of which nothing goes on is looked at once in this time."""


class _Listed:
    """One run of the list: its summary and what that rests on."""

    __slots__ = ("built_at", "files", "revision", "summary")

    def __init__(
        self,
        summary: RunSummary,
        *,
        built_at: float,
        revision: int | None = None,
        files: UnitIdentity | None = None,
    ) -> None:
        self.summary = summary
        self.built_at = built_at
        self.revision = revision
        """Of the follower; None: it was told without reading the run whole."""
        self.files = files
        """The checkpoint's files of an ended run, as they were then."""


class NativeSource:
    """A home with a state database and run directories, read and never written."""

    follower: ClassVar[type[Followed]] = Followed
    """What follows one run; another kind of home has another one."""

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
        self._rotation = Rotation(_RECHECK_S, monotonic)
        self._doubtful = Rotation(_DOUBTFUL_S, monotonic)
        self._followed: OrderedDict[str, Followed] = OrderedDict()
        self._live = self._roster.live
        self._epoch = 0
        self._cooling: dict[str, float] = {}
        self._listed: dict[str, _Listed] = {}
        self._census: tuple[float, Census] | None = None

    def close(self) -> None:
        """Close the database; the next question opens it anew."""
        self._roster.close()

    # --- what is asked

    def listed(self) -> tuple[RunSummary, ...]:
        """Return every run as :meth:`refresh` left it, the newest first."""
        rows = self._roster.rows
        return tuple(self._listed[key].summary for key in rows if key in self._listed)

    def refresh(self, touched: Collection[str] | None = None) -> frozenset[str]:
        """Read what is new of every run.

        Args:
            touched: Names of run directories in which files changed; None: look at all.

        Returns:
            The keys (session ids; run ids where there is no row) of the runs that are
            shown otherwise than before, are new, or are gone.

        Raises:
            StateDBError: The database cannot be read, and never could.
        """
        if not self._listed:
            with _uncollected():
                return self._refresh(touched)
        return self._refresh(touched)

    def _refresh(self, touched: Collection[str] | None) -> frozenset[str]:
        roster, began = self._roster, self._monotonic()
        roster.sync()
        if not roster.readable:
            return frozenset()
        if roster.epoch != self._epoch:  # signals of another file begin at 1 again
            self._epoch = roster.epoch
            self._followed.clear()
            self._listed.clear()
            self._live.clear()
        self._relations.read(roster.rows)
        changed = self._let_go()
        over: list[str] = []
        still: dict[str, Liveness] = {}
        waiting = 0
        for key in self._due():
            row = roster.rows[key]
            if self._waits(key):
                # Thousands that are left for later are not gone through at each look.
                waiting += 1
                if waiting > _CAUGHT_UP:
                    continue
            if not self._goes_on(key, row):
                over.append(key)
            elif (process := self._stillness(key, row)) is not None:
                over.append(key)
                still[key] = process
            else:
                changed |= self._list_live(key, touched)
        if over:
            changed |= self._list_over(over, still, began)
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
            return self._read(key, session_id, run_id)
        except StateDBError:
            self._roster.close()
            followed = self._followed.get(key)
            if followed is None:
                raise
            return self._detail(followed)

    def _read(
        self, key: str, session_id: str | None, run_id: str | None
    ) -> RunDetail | None:
        if session_id is None:
            row = self._roster.row_of_directory(run_id or "")
            if row is None:
                return None
            followed = self._follow(key, row, has_row=False)
            followed.update(None, row, ())
            return self._detail(followed)
        database = self._roster.open()
        row = database.session(session_id)
        if row is None:
            return None
        followed = self._follow(key, row, has_row=True)
        followed.update(database, row, database.controls(session_id))
        self._relations.look(database, row)
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

    def watch_paths(self) -> tuple[str, ...]:
        """Return the folder of runs and the directories of the runs that go on."""
        rows, runs = self._roster.rows, str(self.home.runs)
        # What is over and only not read yet is in the same set, and nothing happens in
        # its directory.
        going_on = (
            rows[key].run_id
            for key in self._live
            if key in rows and (key in self._cooling or self._may_move(key))
        )
        return runs, *(f"{runs}/{name}" for name in going_on if name)

    def _may_move(self, key: str) -> bool:
        """Tell whether something of a run may go on, as it was seen last."""
        listed = self._listed.get(key)
        return listed is not None and listed.summary.alive is True

    # --- the list

    def _let_go(self) -> set[str]:
        """Forget the runs that are gone; return their keys."""
        gone = {key for key in self._roster.changed if key not in self._roster.rows}
        for key in gone:
            self._listed.pop(key, None)
            self._followed.pop(key, None)
            self._cooling.pop(key, None)
            self._live.discard(key)
            self._rotation.remove(key)
            self._doubtful.remove(key)
        return gone

    def _due(self) -> list[str]:
        """Return the runs to look at now, in the order of the list."""
        rows = self._roster.rows
        due = self._live | self._roster.changed | self._relations.moved
        due.update(self._roster.signalled, self._doubtful.turn(), self._rotation.turn())
        if len(due) > len(rows) // 8:
            return [key for key in rows if key in due]
        found = [key for key in due if key in rows]
        return sorted(found, key=lambda key: rows[key].created_at or 0.0, reverse=True)

    def _goes_on(self, key: str, row: SessionRow) -> bool:
        """Tell whether a run is followed, also for a little while after its end."""
        if stored_status(row.status) not in TERMINAL_RUN:
            return True
        followed = self._followed.get(key)
        if followed is None or key not in self._live:
            return False
        now = self._monotonic()
        if not followed.ended:  # it ended since the last look
            self._cooling[key] = now + _COOLING_S
        return now < self._cooling.get(key, 0.0)

    def _stillness(self, key: str, row: SessionRow) -> Liveness | None:
        """Return why nothing of an unended run goes on; None when something may.

        Its process is gone, or cannot be looked at from here and its row has long been
        silent. A run that is followed is told by its follower, which sees its last
        words.
        """
        if key in self._followed or key != row.id:
            return None
        lock = None
        if self.home.source == "heaveto" and (run := run_dir_of(self.home, row)):
            lock = run.lock
        process = judge(row.node_metadata, lock=lock, machine=self._machine)
        silent = process.alive is None and self._is_silent(row)
        return process if process.alive is False or silent else None

    def _is_silent(self, row: SessionRow) -> bool:
        signs = (row.updated_at, row.last_message_at, row.started_at, row.created_at)
        newest = max((sign for sign in signs if sign is not None), default=0.0)
        return self._clock() - newest >= SILENT_AFTER_S

    def _list_live(self, key: str, touched: Collection[str] | None) -> set[str]:
        """Look at a run that is followed; return its key if it is shown otherwise."""
        roster = self._roster
        row = roster.rows[key]
        has_row = key == row.id
        if not has_row:
            row = roster.row_of_directory(key) or row
        followed = self._follow(key, row, has_row=has_row)
        followed.update(
            roster.open() if has_row else None,
            row,
            roster.controls.get(key, ()),
            signals=key in roster.signalled,
            files=touched is None or row.run_id in touched,
        )
        listed = self._listed.get(key)
        revised = listed is None or listed.revision != followed.revision
        if (
            listed is not None
            and not revised
            and self._monotonic() - listed.built_at < _REBUILT_S
            and key not in self._relations.moved
        ):
            return set()
        summary = self._detail(followed).run
        return self._put(key, summary, revision=followed.revision, changed=revised)

    def _list_over(
        self, keys: list[str], still: Mapping[str, Liveness], began: float
    ) -> set[str]:
        """Look at runs of which nothing goes on."""
        changed: set[str] = set()
        keys = [key for key in keys if self._differs(key)]
        runs = EndedRuns(
            self._roster,
            clock=self._clock,
            monotonic=self._monotonic,
            began=began,
            budget=_BUDGET_S if self._listed else _FIRST_S,
        )
        for key, told, files in runs.summaries(keys, self._relations, still):
            summary = told
            if summary is None:
                row = self._roster.rows[key]
                has_row = key == row.id
                followed = self._follow(key, row, has_row=has_row)
                followed.update(
                    self._roster.open() if has_row else None,
                    row,
                    self._roster.controls.get(key, ()),
                )
                summary, files = self._detail(followed).run, followed.files
            elif _is_unread(summary) and self._is_known(key):
                continue  # more is known of it than the time allows to tell now
            changed |= self._put(key, summary, files=files)
        return changed

    def _is_known(self, key: str) -> bool:
        """Tell whether a run was read whole and its row is as it was then."""
        listed = self._listed.get(key)
        return (
            listed is not None
            and not _is_unread(listed.summary)
            and key not in self._roster.changed
            and key not in self._roster.signalled
        )

    def _waits(self, key: str) -> bool:
        """Tell whether a run was left for later, and nothing new is known of it."""
        listed = self._listed.get(key)
        return (
            listed is not None
            and _is_unread(listed.summary)
            and key not in self._roster.changed
            and key not in self._roster.signalled
        )

    def _differs(self, key: str) -> bool:
        """Tell whether an ended run's row, controls or files are not as before.

        Of a dead run of heaveto's also what it left running is looked for anew.
        """
        listed = self._listed.get(key)
        if (
            listed is None
            or listed.revision is not None
            or key in self._roster.changed
            or key in self._roster.signalled
            or key in self._relations.moved
            or _is_unread(listed.summary)
        ):
            return True
        dead = listed.summary.status not in TERMINAL_RUN
        if dead and self.home.source == "heaveto":
            return True
        if listed.files == self._files(key):
            self._schedule(key, listed.summary)
            return False
        return True

    def _files(self, key: str) -> UnitIdentity:
        run_id = self._roster.rows[key].run_id
        if run_id not in self._roster.folders:
            return None, None
        return unit_identity(f"{self.home.runs}/{run_id}/checkpoint.json")

    def _put(
        self,
        key: str,
        summary: RunSummary,
        *,
        revision: int | None = None,
        files: UnitIdentity | None = None,
        changed: bool = False,
    ) -> set[str]:
        """Keep a summary; return its key if it is shown otherwise than before."""
        before = self._listed.get(key)
        same = before is not None and not changed and _same(before.summary, summary)
        self._listed[key] = _Listed(
            summary, built_at=self._monotonic(), revision=revision, files=files
        )
        self._relations.told(key)
        self._schedule(key, summary)
        return set() if same else {key}

    def _schedule(self, key: str, summary: RunSummary) -> None:
        """Decide when a run is looked at again: every time, or in its turn."""
        ended = summary.status in TERMINAL_RUN
        cooling = ended and self._monotonic() < self._cooling.get(key, 0.0)
        if (not ended and summary.alive) or cooling or _is_unread(summary):
            self._live.add(key)
            return
        self._live.discard(key)
        doubtful = (
            not ended and summary.alive is None and summary.state != RunState.UNKNOWN
        )
        (self._doubtful if doubtful else self._rotation).add(key)
        (self._rotation if doubtful else self._doubtful).remove(key)

    # --- one run

    def _follow(self, key: str, row: SessionRow, *, has_row: bool) -> Followed:
        """Return the follower of a run; the last looked at is the last to be let go."""
        followed = self._followed.get(key)
        if followed is None or followed.has_row != has_row:
            followed = self._followed[key] = self.follower(
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
        """Let go of runs of which nothing goes on and that nobody looked at lately."""
        spare = len(self._followed) - len(self._live) - len(self._doubtful) - _KEPT
        if spare > 0:
            needed = (self._live, self._doubtful)
            idle = [k for k in self._followed if not any(k in one for one in needed)]
            for key in idle[:spare]:
                del self._followed[key]
                self._cooling.pop(key, None)

    def _detail(self, followed: Followed) -> RunDetail:
        resumed_from, superseded_by = self._relations.of(followed.row)
        return followed.snapshot(
            resumed_from=resumed_from,
            superseded_by=superseded_by,
            survivors=self._survivors(followed) if followed.dead else (),
        )

    def _survivors(self, followed: Followed) -> tuple[dict[str, object], ...]:
        """Return the living children of a dead runner."""
        from heaveto.workers.records import Census, survivors  # only for a dead run

        if followed.run_dir is None:
            return ()
        now = self._monotonic()
        if self._census is None or now - self._census[0] > _CENSUS_S:
            self._census = (now, Census())
        return tuple(
            {"pid": one.pid, "operation": one.operation, "command": one.command}
            for one in survivors(followed.run_dir.path, self._census[1])
        )


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Hold back the search for cycles: a first list only makes what stays."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _is_unread(summary: RunSummary) -> bool:
    return summary.checkpoint is not None and summary.checkpoint.status == "unread"


def _same(before: RunSummary, after: RunSummary) -> bool:
    """Tell whether two summaries differ in nothing but the moment of the look."""
    return replace(before, observed_at=after.observed_at) == after
