"""Reading a state database without changing anything: not it, nor its folder.

SQLite cannot be told to "only look" in one way that serves every file, so the way is
chosen by what is there, and chosen anew when that changes:

=====================================  ===============================================
what is there                          how it is read
=====================================  ===============================================
no log, or an empty one, and nobody    ``immutable=1``: no lock, no ``-shm``. Before
connected                              and after each query the files are compared; a
                                       change means reopening and asking again.
a log, and somebody connected          ``mode=ro``: SQLite's own locking, on the log
                                       and the ``-shm`` that are there already.
a log, or a rollback journal, and      a private copy of both, recovered by SQLite in
nobody connected (a crash)             a folder of ours and removed at once.
=====================================  ===============================================

"Somebody connected" is asked with F_GETLK on the byte that every connection locks in
the ``-shm``. A query never holds a transaction open between calls (the log would grow
behind it), is limited in time, and never gives more than the stated size of a column.

Blocking; one thread at a time for each object.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar
from uuid import uuid4

from heaveto.errors import StateDBError
from heaveto.files import Directory, Identity, lock_holder, make_directories
from heaveto.statedb.opening import (
    HERE,
    Schema,
    busy_timeout,
    identity,
    mapped,
    read_schema,
    translated,
    uri,
)
from heaveto.statedb.rows import (
    CONTROL_COLUMNS,
    SESSION_COLUMNS,
    SIGNAL_COLUMNS,
    TRANSITION_COLUMNS,
    control_row,
    session_row,
    signal_row,
    transition_row,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from heaveto.statedb.rows import (
        Column,
        ControlRow,
        SessionRow,
        SignalRow,
        TransitionRow,
    )

__all__ = ["ReadDB", "peek"]

_Row = TypeVar("_Row")

_SHM_CONNECTED = 128
"""The byte of the ``-shm`` that every connection holds a shared lock on."""
_RESERVED = 0x4000_0001
"""The byte of the database that a writer in rollback mode locks."""
_QUERY_SECONDS = 10.0
_STEPS_BETWEEN_CHECKS = 20_000
_TRIES = 5
_COPY_LIMIT = 1 << 30
_LENGTH_LIMIT = 256 << 20


class _Look(NamedTuple):
    """What is on disk: enough to see that any of it changed."""

    file: Identity
    size: int
    mtime: int
    log: tuple[int, int, int] | None
    """Inode, size and time of the ``-wal``, None when absent."""
    journal: tuple[int, int, int] | None
    """The same of a rollback journal."""

    @classmethod
    def at(cls, path: Path) -> _Look:
        """Look at a database and the files beside it."""
        file = identity(path)
        found = os.stat(path)
        return cls(
            file,
            found.st_size,
            found.st_mtime_ns,
            _beside(path, "-wal"),
            _beside(path, "-journal"),
        )


def _beside(path: Path, suffix: str) -> tuple[int, int, int] | None:
    """Look at a file beside the database."""
    try:
        found = os.stat(f"{path}{suffix}")
    except OSError:
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns)


class _Opened(NamedTuple):
    """An open connection and how it was opened."""

    connection: sqlite3.Connection
    look: _Look
    locking: bool
    """SQLite locks it and sees new rows by itself."""
    copied: bool = False


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
        self._opened: _Opened | None = None
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
        if opened is None:
            return
        if opened.locking:
            opened.connection.close()
            HERE.leave(opened.look.file)
        elif opened.copied:
            opened.connection.close()
        else:
            HERE.close_unlocked(opened.look.file, opened.connection)

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
        rest += " ORDER BY updated_at DESC, id"
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
            f"{where} ORDER BY created_at, id",
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
            "WHERE entity_id = ? ORDER BY created_at, rowid",
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
        """Tell whether a table has a column."""
        return column in self._has(table)

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
            sql = (
                f"SELECT id FROM sessions WHERE {column} = ?"
                " ORDER BY updated_at DESC, id LIMIT 1"
            )
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
        found = self._ask(f'SELECT {wanted} FROM "{table}" {rest}', given)
        return [make(row) for row in found]

    def _has(self, table: str) -> frozenset[str]:
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
                # A file that is read without locks may be caught in the middle.
                if opened.locking or _Look.at(self.path) == opened.look:
                    raise translated(error, self.path) from None
            else:
                if opened.locking or _Look.at(self.path) == opened.look:
                    return found
            self.close()
            time.sleep(0.002 * attempt)
        raise StateDBError(
            f"the state database changes while it is read: {self.path}", code="db_busy"
        )

    def _current(self) -> _Opened:
        """Return the open connection, a new one when what is on disk has changed."""
        opened = self._opened
        if opened is not None:
            if opened.locking:
                if identity(self.path) == opened.look.file:
                    return opened
            elif _Look.at(self.path) == opened.look:
                return opened
            self.close()
        with mapped(self.path):
            self._opened = opened = _open(self.path, self._busy)
            self._columns = {}
            self._reopened += 1
            try:
                with _limited(opened.connection):
                    self.schema = read_schema(opened.connection)
            except sqlite3.Error:
                self.close()
                raise
        return opened


def peek(path: Path, *, busy: float | None = None) -> Schema:
    """Read what a database says about itself, changing nothing.

    Raises:
        StateDBError: As :meth:`ReadDB.open`.
    """
    with ReadDB.open(path, busy=busy) as database:
        return database.schema


def _bounded(column: Column) -> str:
    """Select a column, cut to its limit."""
    return (
        f"CASE typeof(\"{column.name}\") WHEN 'text'"
        f' THEN substr("{column.name}", 1, {column.limit})'
        f" WHEN 'blob' THEN substr(\"{column.name}\", 1, {column.limit})"
        f' ELSE "{column.name}" END'
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


def _open(path: Path, busy: float) -> _Opened:
    """Open by the table at the top of the module."""
    with HERE.guard:
        for _ in range(_TRIES):
            look = _Look.at(path)
            if _connected(path, look):
                return _open_locking(path, look, busy)
            if (look.log and look.log[1]) or (look.journal and look.journal[1]):
                opened = _open_copy(path, look)
            else:
                opened = _opened(uri(path, "immutable=1&mode=ro"), look)
            if _Look.at(path) == look:
                return opened
            opened.connection.close()
    raise StateDBError(
        f"the state database changes while it is opened: {path}", code="db_busy"
    )


def _connected(path: Path, look: _Look) -> bool:
    """Tell whether a connection to the file is open, here or in another process."""
    if HERE.locks(look.file):
        return True
    if look.log is not None:
        try:
            return (
                lock_holder(Path(f"{path}-shm"), start=_SHM_CONNECTED, length=1)
                is not None
            )
        except OSError:
            return False
    if look.journal is not None:
        return lock_holder(path, start=_RESERVED, length=1) is not None
    return False


def _open_locking(path: Path, look: _Look, busy: float) -> _Opened:
    """Open beside another connection, with SQLite's own locks."""
    HERE.enter(look.file)
    try:
        return _opened(uri(path, "mode=ro"), look, busy, locking=True)
    except BaseException:
        HERE.leave(look.file)
        raise


def _open_copy(path: Path, look: _Look) -> _Opened:
    """Recover a crashed database in a private copy and open that."""
    size = look.size + (look.log or (0, 0, 0))[1] + (look.journal or (0, 0, 0))[1]
    if size > _COPY_LIMIT:
        raise StateDBError(
            f"the state database was left by a crash and is too large to read beside"
            f" its log: {path}"
        )
    folder = Path(tempfile.gettempdir()) / f"heaveto-{uuid4().hex}"
    make_directories(folder)
    try:
        copy = folder / "state.db"
        for suffix in ("", "-wal", "-journal"):
            _copy(Path(f"{path}{suffix}"), folder, f"state.db{suffix}")
        with contextlib.closing(
            sqlite3.connect(uri(copy, "mode=rw"), uri=True, isolation_level=None)
        ) as recovering:
            recovering.execute("PRAGMA trusted_schema = OFF")
            recovering.execute("PRAGMA journal_mode = DELETE").fetchone()
        # The open handle keeps the content; the names go at once, also for a crash.
        return _opened(uri(copy, "immutable=1&mode=ro"), look)._replace(copied=True)
    finally:
        with Directory.open(folder.parent) as parent:
            parent.remove_tree(folder.name)


def _copy(source: Path, folder: Path, name: str) -> None:
    """Copy a file into the private folder; an absent one is left out."""
    if not source.exists():
        return
    with (
        Directory.open(folder) as directory,
        open(source, "rb") as reading,
        directory.create(name) as target,
    ):
        while chunk := reading.read(1 << 20):
            target.append(chunk)


def _opened(
    where: str, look: _Look, busy: float = 0.0, *, locking: bool = False
) -> _Opened:
    """Open a connection that can only read, and read a page through it."""
    connection = sqlite3.connect(
        where,
        uri=True,
        timeout=busy,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=64,
    )
    try:
        connection.text_factory = _decoded
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LENGTH_LIMIT)
        for rule in ("query_only = ON", "trusted_schema = OFF", "mmap_size = 0"):
            connection.execute(f"PRAGMA {rule}")
        # SQLite opens the file at the first page that is asked for.
        connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
    except BaseException:
        connection.close()
        raise
    return _Opened(connection, look, locking)


def _decoded(stored: bytes) -> str:
    """Decode text that may hold bytes which are no UTF-8."""
    return stored.decode("utf-8", "replace")
