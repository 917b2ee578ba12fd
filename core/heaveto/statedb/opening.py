"""How a state database is opened: rules, version, errors, and locks of this process.

SQLite keeps its locks as POSIX record locks, and those belong to the process, not to
the connection: closing **any** descriptor of the file drops them all. A connection that
was opened without locks (``immutable=1``), or a plain read of the file, would so break
a connection of the same process that does lock. :class:`Here` keeps count, so that an
unlocked handle is closed only while this process holds no locked one.

Blocking; safe in any thread.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import math
import os
import sqlite3
import stat
import threading
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from heaveto.errors import StateDBError
from heaveto.files import Identity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = [
    "BOUND",
    "HERE",
    "LINEAGE",
    "VERSION",
    "Here",
    "Schema",
    "busy_timeout",
    "identity",
    "mapped",
    "read_schema",
    "translated",
    "uri",
]

log = logging.getLogger(__name__)

LINEAGE = "heaveto"
VERSION = 1
"""The schema version this program writes; a newer one is refused (SPEC A-18)."""
BOUND = 10.0
"""Seconds that one steering command may take in all (SPEC A-37, A-47)."""
_DEFAULT_TIMEOUT_MS = 5000

_CODES = {
    sqlite3.SQLITE_BUSY: ("db_busy", "the state database is busy"),
    sqlite3.SQLITE_LOCKED: ("db_busy", "the state database is busy"),
    sqlite3.SQLITE_CORRUPT: ("db_corrupt", "the state database is damaged"),
    sqlite3.SQLITE_NOTADB: ("db_corrupt", "this is no SQLite database"),
    sqlite3.SQLITE_READONLY: ("db_readonly", "the state database is read-only here"),
    sqlite3.SQLITE_FULL: ("db_full", "the disk is full: the state database"),
    sqlite3.SQLITE_CANTOPEN: ("db_error", "the state database cannot be opened"),
    sqlite3.SQLITE_PERM: ("db_readonly", "no permission to open the state database"),
    sqlite3.SQLITE_AUTH: ("db_readonly", "no permission to open the state database"),
    sqlite3.SQLITE_IOERR: ("db_error", "input or output failed: the state database"),
    sqlite3.SQLITE_PROTOCOL: ("db_error", "the file system does not lock reliably"),
    sqlite3.SQLITE_INTERRUPT: ("db_error", "a query took too long"),
}


class Here:
    """What this process has open, by file identity."""

    def __init__(self) -> None:
        """Begin with nothing open."""
        self.guard = threading.RLock()
        self._locking: dict[Identity, int] = {}
        self._parked: dict[Identity, list[sqlite3.Connection]] = {}

    def locks(self, file: Identity) -> bool:
        """Tell whether a connection of this process may hold locks on the file."""
        with self.guard:
            return self._locking.get(file, 0) > 0

    def enter(self, file: Identity) -> None:
        """Note a connection that locks, before it is opened."""
        with self.guard:
            self._locking[file] = self._locking.get(file, 0) + 1

    def leave(self, file: Identity) -> None:
        """Note that such a connection is closed."""
        with self.guard:
            left = self._locking.get(file, 0) - 1
            if left > 0:
                self._locking[file] = left
                return
            self._locking.pop(file, None)
            for parked in self._parked.pop(file, ()):
                parked.close()

    def close_unlocked(self, file: Identity, connection: sqlite3.Connection) -> None:
        """Close a connection that was opened without locks, now or when it may be."""
        with self.guard:
            if self.locks(file):
                self._parked.setdefault(file, []).append(connection)
            else:
                connection.close()


HERE = Here()


class Schema(NamedTuple):
    """What a database says about itself; all None in one without tables."""

    lineage: str | None
    version: int | None
    tables: frozenset[str]


def translated(error: sqlite3.Error | OSError, path: Path | str) -> StateDBError:
    """Return the typed error for one of SQLite's or of the system's.

    The words of neither quote a row.
    """
    if isinstance(error, OSError):
        return _of_system(error, path)
    number = getattr(error, "sqlite_errorcode", None)
    if number is None:
        return StateDBError(f"the state database failed: {path}: {error}")
    if number == sqlite3.SQLITE_IOERR_SHMSIZE:  # the -shm could not grow
        number = sqlite3.SQLITE_FULL
    if number & 0xFF == sqlite3.SQLITE_CANTOPEN and not os.access(path, os.R_OK):
        number = sqlite3.SQLITE_PERM
    code, words = _CODES.get(number & 0xFF, ("db_error", ""))
    detail = f" ({error})" if code == "db_error" else ""
    return StateDBError(
        f"{words or 'the state database failed'}: {path}{detail}", code=code
    )


def _of_system(error: OSError, path: Path | str) -> StateDBError:
    """Return the typed error for an error of the system."""
    codes = {
        errno.ENOSPC: "db_full",
        errno.EDQUOT: "db_full",
        errno.EROFS: "db_readonly",
        errno.EACCES: "db_readonly",
        errno.EPERM: "db_readonly",
    }
    code = codes.get(error.errno or 0, "db_error")
    return StateDBError(f"the state database {path}: {error.strerror}", code=code)


@contextlib.contextmanager
def mapped(path: Path | str) -> Iterator[None]:
    """Turn SQLite's and the system's errors into :class:`StateDBError`."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise translated(error, path) from None


def busy_timeout(environ: Mapping[str, str] = os.environ) -> float:
    """Return how long SQLite waits for a lock, in seconds (SPEC A-03).

    ``HEAVETO_BUSY_TIMEOUT_MS`` that is no number, negative or endless falls back to
    5000 ms with one notice in the log.
    """
    given = environ.get("HEAVETO_BUSY_TIMEOUT_MS", "").strip()
    return _milliseconds(given) / 1000 if given else _DEFAULT_TIMEOUT_MS / 1000


@functools.lru_cache(maxsize=8)
def _milliseconds(given: str) -> float:
    """Read a number of milliseconds; what is none is said once."""
    try:
        wanted = float(given)
    except ValueError:
        wanted = math.nan
    if 0 <= wanted < 1 << 31:
        return wanted
    log.warning(
        "HEAVETO_BUSY_TIMEOUT_MS is not a number of milliseconds: using %d",
        _DEFAULT_TIMEOUT_MS,
    )
    return _DEFAULT_TIMEOUT_MS


def identity(path: Path) -> Identity:
    """Return the identity of a database file.

    Raises:
        StateDBError: ``db_missing`` when it is absent, ``db_error`` when it is no file.
    """
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise StateDBError(f"no state database: {path}", code="db_missing") from None
    except OSError as error:
        raise _of_system(error, path) from None
    if not stat.S_ISREG(found.st_mode):
        raise StateDBError(f"the state database is no file: {path}")
    return Identity.of(found)


def uri(path: Path, query: str) -> str:
    """Return the URI by which SQLite opens a path."""
    return f"file:{quote(os.path.abspath(path))}?{query}"


def read_schema(connection: sqlite3.Connection) -> Schema:
    """Read lineage, version and tables; a strange ``schema_meta`` gives None."""
    tables = frozenset(
        str(name)
        for (name,) in connection.execute(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
            " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' LIMIT 1000"
        )
    )
    if "schema_meta" not in tables:
        return Schema(None, None, tables)
    try:
        found = connection.execute(
            "SELECT key, substr(value, 1, 64) FROM schema_meta"
            " WHERE key IN ('lineage', 'version')"
        ).fetchall()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        return Schema(None, None, tables)
    meta = {key: str(value) for key, value in found}
    version = meta.get("version", "")
    known = int(version) if version.isascii() and version.isdigit() else None
    return Schema(meta.get("lineage"), known, tables)
