"""How a state database is written: created, brought up to date, held for a change.

Own homes are in WAL mode with foreign keys; a file of another lineage is opened
without any change to its modes. Nothing is opened for writing before a reader that
changes nothing has found that the file is ours and not newer than this program
(SPEC A-18): even closing a writing connection may move a log into the file.

Blocking; safe in any thread, one thread at a time for a connection.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from typing import TYPE_CHECKING

from heaveto.errors import StateDBError
from heaveto.files import Directory
from heaveto.statedb.opening import (
    HERE,
    LINEAGE,
    VERSION,
    Schema,
    identity,
    mapped,
    read_schema,
    uri,
)
from heaveto.statedb.reading import peek

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["check_schema", "prepare", "writing"]


def check_schema(schema: Schema, path: Path) -> None:
    """Refuse to write what is not ours or newer than us (SPEC A-18).

    Raises:
        StateDBError: ``db_newer``, or ``db_error`` for another lineage.
    """
    if not schema.tables:
        return
    if schema.lineage != LINEAGE:
        raise StateDBError(f"not a state database of heaveto: {path}")
    if schema.version is None or schema.version > VERSION:
        raise StateDBError(
            f"the state database {path} has version {schema.version or 'unknown'},"
            f" this heaveto knows up to {VERSION}",
            code="db_newer",
        )


def prepare(path: Path, *, create: bool, busy: float) -> None:
    """Make the file and its tables, or bring an older one up to date.

    The file is created by us with mode 0600 and never by SQLite, whose files would
    follow the umask; the ``-wal`` and ``-shm`` take the mode of the file.

    Args:
        path: The database.
        create: False refuses an absent file.
        busy: Seconds to wait for a lock.

    Raises:
        StateDBError: As the codes say; a newer or foreign file is left untouched.
    """
    if create and not path.exists():
        _create(path)
    check_schema(peek(path, busy=busy), path)
    with writing(path, busy=busy, own=True) as connection:
        _set_wal(connection, time.monotonic() + busy)
        connection.execute("PRAGMA synchronous = NORMAL")
        _apply_schema(connection, path)


def _create(path: Path) -> None:
    """Make an empty file unless another process just did."""
    with (
        mapped(path),
        Directory.open(path.parent) as home,
        contextlib.suppress(FileExistsError),
    ):
        home.create(path.name).close()


def _apply_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Apply the schema once, however many processes open the file together."""
    schema = read_schema(connection)
    check_schema(schema, path)
    if schema.version == VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        schema = read_schema(connection)
        check_schema(schema, path)
        if schema.version == VERSION:
            return
        from importlib import resources  # only a new or older file needs it

        script = resources.files(__package__).joinpath("schema.sql").read_text("utf-8")
        _add_columns(connection, schema, script)
        for statement in _statements(script):
            connection.execute(statement)
        connection.executemany(
            "INSERT INTO schema_meta VALUES (?, ?)"
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            [("lineage", LINEAGE), ("version", str(VERSION))],
        )
        connection.execute(
            "INSERT OR IGNORE INTO schema_meta VALUES ('created_at', ?)",
            (repr(time.time()),),
        )


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script, which run inside the caller's transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _add_columns(connection: sqlite3.Connection, schema: Schema, script: str) -> None:
    """Add to existing tables the columns that they lack."""
    with contextlib.closing(sqlite3.connect(":memory:")) as model:
        model.executescript(script)
        for table in schema.tables & read_schema(model).tables:
            wanted = model.execute(f'PRAGMA table_info("{table}")').fetchall()
            present = {
                row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')
            }
            for _, name, kind, not_null, default, _ in wanted:
                if name in present:
                    continue
                rule = f" NOT NULL DEFAULT {default or 0}" if not_null else ""
                if default is not None and not not_null:
                    rule = f" DEFAULT {default}"
                connection.execute(
                    f'ALTER TABLE "{table}" ADD COLUMN "{name}" {kind}{rule}'
                )


@contextlib.contextmanager
def writing(path: Path, *, busy: float, own: bool) -> Iterator[sqlite3.Connection]:
    """Hold a connection for writing to an existing file, in autocommit mode.

    Args:
        path: The database; it is never created here.
        busy: Seconds to wait for a lock.
        own: Refuse a file that is not ours or is newer. False is the way into a
            foreign home, whose owner of the rules is another program.

    Raises:
        StateDBError: SQLite's errors, mapped; ``db_missing``.
    """
    file = identity(path)
    HERE.enter(file)
    try:
        with mapped(path):
            connection = sqlite3.connect(
                uri(path, "mode=rw"),
                uri=True,
                timeout=busy,
                isolation_level=None,
                check_same_thread=False,
            )
            with contextlib.closing(connection):
                connection.execute("PRAGMA trusted_schema = OFF")
                connection.execute("PRAGMA foreign_keys = ON")
                if own:
                    check_schema(read_schema(connection), path)
                yield connection
    finally:
        HERE.leave(file)


def _set_wal(connection: sqlite3.Connection, deadline: float) -> None:
    """Switch to WAL, which SQLite refuses without waiting while others read."""
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
