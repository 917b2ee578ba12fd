"""Ways to open a database without changing anything: not it, nor its folder.

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
the ``-shm``. Blocking; safe in any thread.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from heaveto.errors import StateDBError
from heaveto.files import Directory, Identity, lock_holder, make_directories
from heaveto.statedb.opening import HERE, identity, uri

__all__ = ["Look", "Opened", "close", "decoded", "open_unchanged"]

_SHM_CONNECTED = 128
"""The byte of the ``-shm`` that every connection holds a shared lock on."""
_RESERVED = 0x4000_0001
"""The byte of the database that a writer in rollback mode locks."""
_TRIES = 5
_COPY_LIMIT = 1 << 30
"""Bytes of a crashed database that are copied to be read."""
_LENGTH_LIMIT = 64 << 20
"""Bytes of the largest value that SQLite may make."""


class Look(NamedTuple):
    """What is on disk: enough to see that any of it changed."""

    path: Path
    """Where the database really is, and so its log: SQLite follows links, too."""
    file: Identity
    size: int
    mtime: int
    log: tuple[int, int, int] | None
    """Inode, size and time of the ``-wal``, None when absent."""
    journal: tuple[int, int, int] | None
    """The same of a rollback journal."""

    @classmethod
    def at(cls, path: Path) -> Look:
        """Look at a database and the files beside it."""
        real = Path(os.path.realpath(path))
        file = identity(real)
        found = os.stat(real)
        return cls(
            real,
            file,
            found.st_size,
            found.st_mtime_ns,
            _beside(real, "-wal"),
            _beside(real, "-journal"),
        )


def _beside(path: Path, suffix: str) -> tuple[int, int, int] | None:
    """Look at a file beside the database."""
    try:
        found = os.stat(f"{path}{suffix}")
    except OSError:
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns)


class Opened(NamedTuple):
    """An open connection and how it was opened."""

    connection: sqlite3.Connection
    look: Look
    locking: bool
    """SQLite locks it and sees new rows by itself."""
    copied: bool = False


def open_unchanged(path: Path, busy: float) -> Opened:
    """Open by the table at the top of the module."""
    with HERE.guard:
        for _ in range(_TRIES):
            look = Look.at(path)
            if _connected(look):
                return _open_locking(look, busy)
            if (look.log and look.log[1]) or (look.journal and look.journal[1]):
                opened = _open_copy(look)
            else:
                opened = _opened(uri(look.path, "immutable=1&mode=ro"), look)
            if Look.at(path) == look:
                return opened
            close(opened)
    raise StateDBError(
        f"the state database changes while it is opened: {path}", code="db_busy"
    )


def _connected(look: Look) -> bool:
    """Tell whether a connection to the file is open, here or in another process."""
    if HERE.locks(look.file):
        return True
    if look.log is not None:
        try:
            return (
                lock_holder(Path(f"{look.path}-shm"), start=_SHM_CONNECTED, length=1)
                is not None
            )
        except OSError:
            return False
    if look.journal is not None:
        return lock_holder(look.path, start=_RESERVED, length=1) is not None
    return False


def _open_locking(look: Look, busy: float) -> Opened:
    """Open beside another connection, with SQLite's own locks."""
    HERE.enter(look.file)
    try:
        return _opened(uri(look.path, "mode=ro"), look, busy, locking=True)
    except BaseException:
        HERE.leave(look.file)
        raise


def _open_copy(look: Look) -> Opened:
    """Recover a crashed database in a private copy and open that."""
    size = look.size + (look.log or (0, 0, 0))[1] + (look.journal or (0, 0, 0))[1]
    if size > _COPY_LIMIT:
        raise StateDBError(
            f"the state database was left by a crash and is too large to read beside"
            f" its log: {look.path}"
        )
    import tempfile  # only the copy of a crashed database needs it

    folder = Path(tempfile.gettempdir()) / f"heaveto-{uuid4().hex}"
    make_directories(folder)
    try:
        copy = folder / "state.db"
        for suffix in ("", "-wal", "-journal"):
            _copy(Path(f"{look.path}{suffix}"), folder, f"state.db{suffix}")
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
    where: str, look: Look, busy: float = 0.0, *, locking: bool = False
) -> Opened:
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
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LENGTH_LIMIT)
        for rule in ("query_only = ON", "trusted_schema = OFF", "mmap_size = 0"):
            connection.execute(f"PRAGMA {rule}")
        # SQLite opens the file at the first page that is asked for.
        connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
    except BaseException:
        connection.close()
        raise
    return Opened(connection, look, locking)


def decoded(stored: bytes) -> str:
    """Decode text that holds bytes which are no UTF-8.

    For a connection (``text_factory``) that met such text; it is much slower.
    """
    return stored.decode("utf-8", "replace")


def close(opened: Opened) -> None:
    """Close what :func:`open_unchanged` gave."""
    if opened.locking:
        opened.connection.close()
        HERE.leave(opened.look.file)
    elif opened.copied:
        opened.connection.close()
    else:
        HERE.close_unlocked(opened.look.file, opened.connection)
