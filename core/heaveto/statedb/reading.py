"""Reading a state database: queries that change nothing and trust nothing.

How the file is opened is :mod:`heaveto.statedb.ways`'s. A query never holds a
transaction open between calls (the log would grow behind it), is limited in time, and
never gives more than the stated size of a column. When the files change under a reader
that holds no lock, the query is asked again on a fresh connection.

Blocking; one thread at a time for each object.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self, TypeVar

from heaveto.errors import StateDBError
from heaveto.statedb.opening import (
    Schema,
    busy_timeout,
    identity,
    mapped,
    read_schema,
    translated,
)
from heaveto.statedb.rows import (
    CONTROL_COLUMNS,
    SESSION_COLUMNS,
    SIGNAL_COLUMNS,
    TOO_LARGE,
    TRANSITION_COLUMNS,
    control_row,
    session_row,
    signal_row,
    transition_row,
)
from heaveto.statedb.ways import Look, close, decoded, open_unchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from heaveto.statedb.rows import (
        Column,
        ControlRow,
        SessionRow,
        SignalRow,
        TransitionRow,
    )
    from heaveto.statedb.ways import Opened

__all__ = ["ReadDB", "peek"]

_Row = TypeVar("_Row")

_QUERY_SECONDS = 5.0
_STEPS_BETWEEN_CHECKS = 20_000
_TRIES = 5

_NEEDED: Mapping[str, tuple[str, ...]] = {
    "sessions": ("id",),
    "session_signals": ("session_id", "seq", "kind", "op_id", "payload"),
    "session_controls": ("id", "session_id"),
    "status_transitions": ("entity_id",),
}
"""Columns without which the rows of a table tell nothing, or something wrong."""


class _TooBigError(StateDBError):
    """A value in the way of a query is larger than any that is looked at."""


class ReadDB:
    """A state database opened for reading only; see the module.

    Attributes:
        path: The database file.
        schema: Lineage, version and tables, as found when it was (re)opened.
    """

    def __init__(self, path: Path, *, busy: float) -> None:
        """Use :meth:`open`."""
        self.path = path
        self.schema = Schema(None, None, frozenset())
        self._busy = busy
        self._opened: Opened | None = None
        self._columns: dict[str, frozenset[str]] = {}
        self._reopened = 0

    @classmethod
    def open(cls, path: Path, *, busy: float | None = None) -> ReadDB:
        """Open a database that exists.

        Args:
            path: The file.
            busy: Seconds to wait for a lock; None asks the environment.

        Raises:
            StateDBError: ``db_missing db_corrupt db_busy db_readonly db_error``.
        """
        self = cls(path, busy=busy_timeout() if busy is None else busy)
        self._current()
        return self

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close the connection; again is harmless."""
        opened, self._opened = self._opened, None
        if opened is not None:
            close(opened)

    # --- what is asked

    def data_version(self) -> tuple[int, int]:
        """Return a value that differs once another process has changed something."""
        [(version,)] = self._ask("PRAGMA data_version")
        return (self._reopened, int(str(version)))

    def sessions(
        self, *, updated_after: float | None = None, run_id: str | None = None
    ) -> list[SessionRow]:
        """Return sessions, the most recently updated first.

        Args:
            updated_after: Only those whose ``updated_at`` is greater.
            run_id: Only those of this run.
        """
        where: list[str] = []
        given: list[object] = []
        if updated_after is not None:
            where.append("updated_at > ?")
            given.append(updated_after)
        if run_id is not None:
            where.append("run_id = ?")
            given.append(run_id)
        rest = f"WHERE {' AND '.join(where)}" if where else ""
        rest += self._order("sessions", "updated_at DESC", "id")
        return self._rows("sessions", SESSION_COLUMNS, session_row, rest, given)

    def session(self, session_id: str) -> SessionRow | None:
        """Return a session by its full id."""
        found = self._rows(
            "sessions", SESSION_COLUMNS, session_row, "WHERE id = ?", [session_id]
        )
        return found[0] if found else None

    def controls(self, session_id: str | None = None) -> list[ControlRow]:
        """Return the controls of a session, or all, in order of service."""
        where = "" if session_id is None else "WHERE session_id = ?"
        return self._rows(
            "session_controls",
            CONTROL_COLUMNS,
            control_row,
            where + self._order("session_controls", "created_at", "id"),
            [] if session_id is None else [session_id],
        )

    def control(self, control_id: str) -> ControlRow | None:
        """Return a control by its full id."""
        found = self._rows(
            "session_controls",
            CONTROL_COLUMNS,
            control_row,
            "WHERE id = ?",
            [control_id],
        )
        return found[0] if found else None

    def signals(
        self, session_id: str, after_seq: int = 0, *, limit: int = 10_000
    ) -> list[SignalRow]:
        """Return signals in order of ``seq`` (SPEC A-15).

        Args:
            session_id: Whose.
            after_seq: Only those with a greater ``seq``.
            limit: At most so many; ask again from the last one for more.
        """
        return self._rows(
            "session_signals",
            SIGNAL_COLUMNS,
            signal_row,
            "WHERE session_id = ? AND seq > ? ORDER BY seq LIMIT ?",
            [session_id, after_seq, limit],
        )

    def transitions(self, entity_id: str) -> list[TransitionRow]:
        """Return the status audit of a session or invocation, oldest first."""
        return self._rows(
            "status_transitions",
            TRANSITION_COLUMNS,
            transition_row,
            "WHERE entity_id = ?"
            + self._order("status_transitions", "created_at", "rowid"),
            [entity_id],
        )

    def ids(self, table: str, column: str, text: str, *, exact: bool) -> list[str]:
        """Return ids by their beginning, literal and case-exact (SPEC A-25).

        Args:
            table: sessions, invocations or plays.
            column: The column of the ids.
            text: The whole id or its beginning.
            exact: The whole id.

        Returns:
            At most eleven different ids, sorted.
        """
        if column not in self._has(table):
            return []
        name = f'"{column}"'
        # The range lets an index serve; the comparison of substr decides.
        rule = f"{name} = ? COLLATE BINARY"
        given: list[object] = [text]
        if not exact:
            rule = (
                f"{name} >= ? AND {name} < ? AND"
                f" substr({name}, 1, ?) = ? COLLATE BINARY"
            )
            given = [text, text + "\U0010ffff", len(text), text]
        found = self._ask(
            f'SELECT DISTINCT substr({name}, 1, 200) FROM "{table}" WHERE {rule}'
            " AND " + f"typeof({name}) = 'text' ORDER BY 1 LIMIT 11",
            given,
        )
        return [str(value) for (value,) in found]

    def has_column(self, table: str, column: str) -> bool:
        """Tell whether a table has a column, and is read at all."""
        return column in self._has(table)

    def unread(self, table: str) -> tuple[str, ...]:
        """Return the columns for whose want a table that is there is not read."""
        there = self._there(table)
        needed = _NEEDED.get(table, ()) if there else ()
        return tuple(name for name in needed if name not in there)

    def session_behind(self, kind: str, identifier: str) -> str | None:
        """Return the session that a run, invocation or play leads to (SPEC A-27, A-28).

        Args:
            kind: run, invocation or play.
            identifier: Its full id.
        """
        if kind == "play":
            if "session_id" not in self._has("plays"):
                return None
            sql = "SELECT session_id FROM plays WHERE id = ? LIMIT 1"
        else:
            column = "run_id" if kind == "run" else "invocation_id"
            if column not in self._has("sessions"):
                return None
            order = self._order("sessions", "updated_at DESC", "id")
            sql = f"SELECT id FROM sessions WHERE {column} = ?{order} LIMIT 1"
        found = self._ask(sql, [identifier])
        if not found or not isinstance(found[0][0], str):
            return None
        return found[0][0] if self.session(found[0][0]) is not None else None

    # --- how it is asked

    def _rows(
        self,
        table: str,
        columns: Sequence[Column],
        make: Callable[[Sequence[object]], _Row],
        rest: str,
        given: Sequence[object],
    ) -> list[_Row]:
        """Select the known columns of a table; absent ones are NULL."""
        has = self._has(table)
        if not has:
            return []
        wanted = ", ".join(
            _bounded(column) if column.name in has else "NULL" for column in columns
        )
        try:
            found = self._ask(f'SELECT {wanted} FROM "{table}" {rest}', given)
        except _TooBigError:
            found = self._row_by_row(table, columns, rest, given)
        return [make(row) for row in found]

    def _row_by_row(
        self,
        table: str,
        columns: Sequence[Column],
        rest: str,
        given: Sequence[object],
    ) -> list[tuple[object, ...]]:
        """Select rows one at a time; a value beyond all bounds is told as such."""
        has = self._has(table)
        found = []
        for (rowid,) in self._ask(f'SELECT rowid FROM "{table}" {rest}', given):
            row: list[object] = []
            for column in columns:
                if column.name not in has:
                    row.append(None)
                    continue
                sql = f'SELECT {_bounded(column)} FROM "{table}" WHERE rowid = ?'
                try:
                    values = self._ask(sql, [rowid])
                except _TooBigError:
                    values = [(TOO_LARGE,)]
                row.append(values[0][0] if values else None)
            found.append(tuple(row))
        return found

    def _order(self, table: str, by: str, last: str) -> str:
        """Return an ORDER BY, by the last alone where an old table lacks the first."""
        first = f"{by}, " if by.split()[0] in self._has(table) else ""
        return f" ORDER BY {first}{last}"

    def _has(self, table: str) -> frozenset[str]:
        """Return the columns of a table; none when it is absent or cannot be used."""
        found = self._there(table)
        return found if found.issuperset(_NEEDED.get(table, ())) else frozenset()

    def _there(self, table: str) -> frozenset[str]:
        """Return the columns of a table; none when it is absent."""
        if self._opened is None:
            self._current()
        if table not in self._columns:
            found = self._ask(f'PRAGMA table_xinfo("{table}")')
            self._columns[table] = frozenset(str(row[1]) for row in found)
        return self._columns[table]

    def _ask(self, sql: str, given: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """Run one query to its end, again when the file changed under it.

        Raises:
            StateDBError: SQLite's error, or ``db_busy`` when the files change all the
                time.
        """
        for attempt in range(_TRIES):
            opened = self._current()
            try:
                with _limited(opened.connection):
                    found = opened.connection.execute(sql, given).fetchall()
            except sqlite3.Error as error:
                if _is_undecodable(error) and opened.connection.text_factory is str:
                    opened.connection.text_factory = decoded
                    continue
                # A file that is read without locks may be caught in the middle.
                if opened.locking or Look.at(self.path) == opened.look:
                    if error.sqlite_errorcode == sqlite3.SQLITE_TOOBIG:
                        raise _TooBigError("a value is too large") from None
                    raise translated(error, self.path) from None
            else:
                if opened.locking or Look.at(self.path) == opened.look:
                    return found
            self.close()
            time.sleep(0.002 * attempt)
        raise StateDBError(
            f"the state database changes while it is read: {self.path}", code="db_busy"
        )

    def _current(self) -> Opened:
        """Return the open connection, a new one when what is on disk has changed."""
        opened = self._opened
        if opened is not None:
            if opened.locking:
                if identity(self.path) == opened.look.file:
                    return opened
            elif Look.at(self.path) == opened.look:
                return opened
            self.close()
        with mapped(self.path):
            self._opened = opened = open_unchanged(self.path, self._busy)
            self._columns = {}
            self._reopened += 1
            try:
                with _limited(opened.connection):
                    self.schema = read_schema(opened.connection)
            except sqlite3.Error:
                self.close()
                raise
        return opened


def _is_undecodable(error: sqlite3.Error) -> bool:
    """Tell whether an error is Python's own: it met text that is no UTF-8."""
    return getattr(error, "sqlite_errorcode", None) is None


def peek(path: Path, *, busy: float | None = None) -> Schema:
    """Read what a database says about itself, changing nothing.

    Raises:
        StateDBError: As :meth:`ReadDB.open`.
    """
    with ReadDB.open(path, busy=busy) as database:
        return database.schema


def _bounded(column: Column) -> str:
    """Select a column, cut to its limit.

    Bytes are counted first, which reads no text; the cut then counts characters.
    """
    name = f'"{column.name}"'
    if column.is_number:
        return (
            f"CASE WHEN typeof({name}) IN ('real', 'integer') THEN {name}"
            f" ELSE substr({name}, 1, {column.limit}) END"
        )
    return (
        f"CASE WHEN length(CAST({name} AS BLOB)) > {column.limit}"
        f" THEN substr({name}, 1, {column.limit}) ELSE {name} END"
    )


@contextlib.contextmanager
def _limited(connection: sqlite3.Connection) -> Iterator[None]:
    """Interrupt what runs longer than a query may (a hostile view, a huge scan)."""
    end = time.monotonic() + _QUERY_SECONDS
    connection.set_progress_handler(
        lambda: time.monotonic() > end, _STEPS_BETWEEN_CHECKS
    )
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)
