"""Which run continues which (``resumed_from`` and ``superseded_by``).

A row names the session it continues; a reader shows run ids. A run is superseded by the
newest run that continues it and got past its start: a resume that was refused or ended
before it listened to anybody takes nothing over.

Pure, but for :meth:`Relations.look`; one owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heaveto.statedb.rows import StoredObject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from heaveto.observe.bulk import BulkDB
    from heaveto.statedb import SessionRow

__all__ = ["Relations", "source_of"]


def source_of(row: SessionRow) -> str | None:
    """Return the session that a run continues."""
    metadata = row.node_metadata
    if isinstance(metadata, StoredObject) and not metadata.may_hold("resumed_from"):
        return None
    found = metadata.get("resumed_from")
    return found if isinstance(found, str) and found else None


class Relations:
    """Who continues whom, as the rows say.

    Attributes:
        moved: Sessions that have another heir than :meth:`told` was told of.
    """

    def __init__(self) -> None:
        """Know nothing."""
        self.moved: set[str] = set()
        self._rows: Mapping[str, SessionRow] | None = None
        self._run_ids: dict[str, str] = {}
        self._sources: dict[str, str] = {}
        self._heirs: dict[str, str] = {}
        self._attempts: dict[str, list[str]] = {}

    def read(self, rows: Mapping[str, SessionRow]) -> None:
        """Take over all rows, the newest first; the same mapping changes nothing."""
        if rows is self._rows:
            return
        self._rows = rows
        before, tried = self._heirs, self._attempts
        self._run_ids = {key: row.run_id for key, row in rows.items() if row.run_id}
        self._heirs, self._attempts, self._sources = {}, {}, {}
        for key, row in rows.items():
            source = source_of(row)
            if source is None:
                continue
            self._sources[key] = source
            if row.run_id and _got_going(row):
                self._heirs.setdefault(source, row.run_id)
            elif row.run_id and row.ended_at is not None:
                self._attempts.setdefault(source, []).append(row.run_id)
        for key in before.keys() | self._heirs.keys():
            if before.get(key) != self._heirs.get(key):
                self.moved.add(key)
        for key in tried.keys() | self._attempts.keys():
            if tried.get(key) != self._attempts.get(key):
                self.moved.add(key)

    def look(self, database: BulkDB, row: SessionRow) -> None:
        """Ask the database about one run, where the rows were never read."""
        if self._rows is not None:
            return
        source = source_of(row)
        if source is not None:
            other = database.session(source)
            if other is not None and other.run_id:
                self._run_ids[source] = other.run_id
        self._heirs.pop(row.id, None)
        self._attempts.pop(row.id, None)
        for heir in database.continuing(row.id):
            if not heir.run_id or source_of(heir) != row.id:
                continue
            if _got_going(heir):
                self._heirs.setdefault(row.id, heir.run_id)
            elif heir.ended_at is not None:
                self._attempts.setdefault(row.id, []).append(heir.run_id)

    def continues(self, key: str) -> bool:
        """Tell whether one of the rows that were read continues another one."""
        return key in self._sources

    def of(self, row: SessionRow) -> tuple[str | None, str | None]:
        """Return the run ids a run continues and is continued by."""
        key = row.id or row.run_id or ""
        source = self._sources.get(key) if self._rows is not None else source_of(row)
        resumed_from = None if source is None else self._run_ids.get(source)
        return resumed_from, self._heirs.get(row.id)

    def attempts(self, row: SessionRow) -> tuple[str, ...]:
        """Return the run ids of resumes of a run that ended before they began."""
        return tuple(self._attempts.get(row.id, ()))

    def told(self, key: str) -> None:
        """Note that a run is shown with its present heir."""
        self.moved.discard(key)


def _got_going(row: SessionRow) -> bool:
    """Tell whether a run got past its start, which is when it listens to controls."""
    return row.poller != "pending"
