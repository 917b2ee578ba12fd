"""The few queries that tell of all runs at once, for a list of ten thousand.

A list must not read every run, so it asks the database for what differs: a stamp that
moves when any session or control changed, marks that say which, and one count of the
last signals of all operations. Blocking; see :class:`heaveto.statedb.ReadDB`.
"""

from __future__ import annotations

from typing import NamedTuple

from heaveto.model import SignalKind
from heaveto.statedb import ReadDB, SessionRow
from heaveto.statedb.rows import SESSION_COLUMNS, StoredObject, session_row

__all__ = ["BulkDB", "Counts", "Mark", "Stamp", "mark_of"]

Mark = tuple[object, ...]
"""What differs when a session row was changed: time, status, phase, sizes."""


class Stamp(NamedTuple):
    """What differs once any session or control was changed.

    Attributes:
        sessions: Of the sessions; empty where they have no ``updated_at``.
        controls: Of the controls.
    """

    sessions: Mark
    controls: Mark

    @property
    def rows(self) -> int:
        """How many sessions there are."""
        count = self.sessions[0] if self.sessions else 0
        return count if isinstance(count, int) else 0

    @property
    def newest(self) -> float | None:
        """The newest ``updated_at``; None when nothing says one."""
        newest = self.sessions[1] if self.sessions else None
        return newest if isinstance(newest, int | float) else None


class Counts(NamedTuple):
    """What the signals of one run add up to.

    Attributes:
        ends: How many operations ended how.
        withheld: How many of the cancelled ones never started.
        plain: Every announced operation ended, nothing escalated and nothing ran on a
            failed input: the ends tell the whole.
        queued: How many announcements there were.
    """

    ends: dict[SignalKind, int]
    withheld: int
    plain: bool
    queued: int


class BulkDB(ReadDB):
    """A state database with the queries of a list."""

    def stamp(self) -> Stamp:
        """Return a value that differs once any session or control was changed."""
        sessions: Mark = ()
        controls: Mark = ()
        if "updated_at" in self._has("sessions"):
            [sessions] = self._ask(
                "SELECT count(*), max(updated_at), total(updated_at) FROM sessions"
            )
        if has := self._has("session_controls"):
            totals = [sql for name, sql in _STAMPED if name in has]
            [controls] = self._ask(
                f"SELECT {', '.join(['count(*)', *totals])} FROM session_controls"
            )
        return Stamp(sessions, controls)

    def marks(self) -> dict[str, Mark]:
        """Return every session's mark by its id, the most recently made first."""
        has = self._has("sessions")
        if not has:  # a database that is just being made
            return {}
        wanted = [
            name if name in has else "NULL"
            for name in ("updated_at", "status", "current_phase", "ended_at")
        ]
        size = "NULL"
        if "node_metadata" in has:
            size = "length(CAST(node_metadata AS BLOB))"  # of text it would be counted
        order = "ORDER BY created_at DESC, id" if "created_at" in has else ""
        found = self._ask(
            f"SELECT id, {', '.join(wanted)}, {size} FROM sessions {order}"
        )
        return {str(row[0]): row[1:] for row in found}

    def everything(self) -> list[SessionRow]:
        """Return every session, the most recently made first, as :meth:`marks` does."""
        found = self._rows("sessions", SESSION_COLUMNS, session_row, "", ())
        found.sort(key=_place)
        return found

    def signalled(self, after: int | None) -> tuple[frozenset[str], int]:
        """Return the sessions with signals that were written after a mark.

        Args:
            after: What this returned the last time; None: nothing was read before, so
                that nobody has to be told.

        Returns:
            The sessions, and the new mark. When rows were removed from the end, marks
            begin anew and every session is returned.
        """
        if not self._has("session_signals"):
            return frozenset(), 0
        [(last,)] = self._ask("SELECT max(rowid) FROM session_signals")
        newest = int(str(last or 0))
        if after is None:
            return frozenset(), newest
        if newest < after:
            after = 0
        found = self._ask(
            "SELECT DISTINCT session_id FROM session_signals WHERE rowid > ?", [after]
        )
        return frozenset(str(session) for (session,) in found), newest

    def continuing(self, session_id: str) -> list[SessionRow]:
        """Return the sessions whose metadata name another one, the newest first."""
        if "node_metadata" not in self._has("sessions"):
            return []
        return self._rows(
            "sessions",
            SESSION_COLUMNS,
            session_row,
            "WHERE id <> ? AND instr(node_metadata, ?) > 0 ORDER BY created_at DESC",
            [session_id, session_id],
        )

    def counts(self) -> dict[str, Counts]:
        """Return what the signals of every run add up to, by session.

        One pass in the order of an index, without a sort. Where as many operations
        were announced as ended, each once, the ends are the statuses.
        """
        if not self._has("session_signals"):
            return {}
        sums = ", ".join(f"sum(kind = '{kind.value}')" for kind in _COUNTED)
        found = self._ask(
            f"""
            SELECT session_id, {sums},
                   sum(CASE kind WHEN 'NodeStarted'
                       THEN instr(payload, '"stale":true') > 0 ELSE 0 END),
                   sum(CASE kind WHEN 'NodeCancelled'
                       THEN instr(payload, '"started":false') > 0 ELSE 0 END)
            FROM session_signals GROUP BY session_id
            """
        )
        counts = {}
        for session, queued, escalated, *ends, stale, withheld in found:
            numbers = [int(str(number)) for number in ends]
            counts[str(session)] = Counts(
                ends=dict(zip(_ENDS, numbers, strict=True)),
                withheld=int(str(withheld)),
                plain=not escalated and not stale and queued == sum(numbers),
                queued=int(str(queued)),
            )
        return counts


def mark_of(row: SessionRow) -> Mark:
    """Return the mark of a row that was just read, as :meth:`BulkDB.marks` gives it.

    Where a column holds what does not belong there, the two differ, and the row is read
    once more.
    """
    metadata = row.node_metadata
    size = metadata.size if isinstance(metadata, StoredObject) else None
    return row.updated_at, row.status, row.current_phase, row.ended_at, size


def _place(row: SessionRow) -> tuple[bool, float, str]:
    made = row.created_at
    return made is None, -(made or 0.0), row.id


_STAMPED = (
    ("applied_at", "total(applied_at)"),
    ("claimed_at", "total(claimed_at)"),
    ("result", "total(length(result))"),
)
_ENDS = (
    SignalKind.COMPLETED,
    SignalKind.FAILED,
    SignalKind.SKIPPED,
    SignalKind.CANCELLED,
)
_COUNTED = (SignalKind.QUEUED, SignalKind.ESCALATED, *_ENDS)
