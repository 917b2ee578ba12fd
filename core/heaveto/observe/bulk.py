"""The few queries that tell of all runs at once, for a list of ten thousand.

A list must not read every run, so it asks the database for what differs: a stamp that
moves when any session or control changed, marks that say which, and one count of the
last signals of all operations. Blocking; see :class:`heaveto.statedb.ReadDB`.
"""

from __future__ import annotations

from typing import NamedTuple

from heaveto.observe.fold import LANE_KINDS
from heaveto.statedb import ReadDB, SessionRow
from heaveto.statedb.rows import SESSION_COLUMNS, session_row

__all__ = ["BulkDB", "Counts", "Mark"]

Mark = tuple[object, ...]
"""What differs when a session row was changed: time, status, phase, sizes."""


class Counts(NamedTuple):
    """The last words of one run's operations.

    Attributes:
        kinds: Operations by the kind of their last signal.
        special: An escalation, or an operation that ran on a failed input: the counts
            alone do not tell the whole.
    """

    kinds: dict[str, int]
    special: bool


class BulkDB(ReadDB):
    """A state database with the queries of a list."""

    def stamp(self) -> Mark:
        """Return a value that differs once any session or control was changed."""
        parts: list[object] = []
        if "updated_at" in self._has("sessions"):
            parts += self._ask(
                "SELECT count(*), max(updated_at), total(updated_at) FROM sessions"
            )
        if self._has("session_controls"):
            parts += self._ask(
                "SELECT count(*), count(result), total(applied_at), total(claimed_at)"
                " FROM session_controls"
            )
        return tuple(parts)

    def marks(self) -> dict[str, Mark]:
        """Return every session's mark by its id, the most recently made first."""
        has = self._has("sessions")
        wanted = [
            name if name in has else "NULL"
            for name in ("updated_at", "status", "current_phase", "ended_at")
        ]
        size = "length(node_metadata)" if "node_metadata" in has else "NULL"
        order = "ORDER BY created_at DESC, id" if "created_at" in has else ""
        found = self._ask(
            f"SELECT id, {', '.join(wanted)}, {size} FROM sessions {order}"
        )
        return {str(row[0]): row[1:] for row in found}

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
        """Return the last words of the operations of every run, by session.

        One pass over the signals. SQLite takes the bare columns from the row that
        holds the maximum, which is the last signal of the operation.
        """
        if not self._has("session_signals"):
            return {}
        kinds = ", ".join(f"'{kind.value}'" for kind in LANE_KINDS)
        found = self._ask(
            f"""
            SELECT session_id, kind, count(*), total(special) FROM (
                SELECT session_id, kind, max(seq),
                       total(kind = 'NodeEscalated' OR (kind = 'NodeStarted' AND
                             instr(payload, '"stale":true') > 0)) AS special
                FROM session_signals
                WHERE op_id <> '' AND kind IN ({kinds}, 'NodeEscalated')
                GROUP BY session_id, op_id
            ) GROUP BY session_id, kind
            """
        )
        counts: dict[str, Counts] = {}
        for session, kind, number, special in found:
            known = counts.get(str(session))
            if known is None:
                known = counts[str(session)] = Counts({}, False)
            known.kinds[str(kind)] = int(str(number))
            if special:
                counts[str(session)] = Counts(known.kinds, True)
        return counts
