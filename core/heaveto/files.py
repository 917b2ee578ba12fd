"""Every system call that creates, writes, renames, syncs, locks or removes a file.

The rest of the project reaches the disk through this module. Below it lie
:mod:`heaveto.handles` (directories and files known by their handles, named here for
everybody's use) and :mod:`heaveto.syscalls`, whose one class :class:`Os` is the seam: a
test wraps an instance of it to fail, shorten, delay or observe any call, so the code
that runs in production carries no hooks.

Three rules hold everywhere (SPEC E-55..E-62):

* An object is known by the identity of its **handle** (device and inode), taken from
  ``fstat`` right after it was created or opened, never from a path.
* Names are resolved relative to a **directory handle**, so a directory that was moved
  or replaced cannot redirect a write. :meth:`Directory.verify` tells whether the path
  still leads there.
* A name is created exclusively, never through a link, and removed or replaced only
  while it still leads to the object that this process put there. Between a check and
  the call that relies on it another process may act: :meth:`Directory.install` leaves
  no such gap where the system can exchange two names; an unlink always has one.

``OSError`` leaves this module as it is: whether an error means *nothing was published*
or *perhaps something was* depends on the caller's step, and only the caller knows it.
All calls block; event loops call them from a thread of their own.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat as stat_module
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from heaveto.errors import FileMissingError, ForeignOwnerError, LockHeldError
from heaveto.handles import Directory, Identity, OwnedFile
from heaveto.syscalls import OS, Os

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "OS",
    "Directory",
    "Identity",
    "Os",
    "OwnedFile",
    "check_owner",
    "hold_file",
    "lock_holder",
    "make_directories",
    "replace_file",
    "temp_name",
]

_held_here: set[Identity] = set()
"""The lock files whose record lock this process holds."""


def temp_name(name: str) -> str:
    """Return a fresh hidden name beside ``name``; it can never be taken for a base."""
    return f".{name}.{uuid4().hex}.tmp"


def make_directories(
    path: Path, *, mode: int = 0o700, sync: bool = True, system: Os = OS
) -> None:
    """Make a directory and its missing parents, each entry synced in its parent.

    Each is made in, and opened from, the handle of the one before, so nothing that is
    put in the way meanwhile is followed.

    Args:
        path: What shall exist afterwards; an existing one is left as it is.
        mode: The mode of what is made.
        sync: False leaves the syncs out, for a caller who claims no durability.
        system: The system calls.

    Raises:
        FileTypeError: Something on the way is no directory.
    """
    here = Path(os.path.abspath(path))
    missing: list[str] = []
    while (directory := _opened(here, system)) is None:
        missing.append(here.name)
        here = here.parent
    try:
        for name in reversed(missing):
            with contextlib.suppress(FileExistsError):
                system.mkdir(name, mode, dir_fd=directory.fd)
            if sync:
                directory.sync()
            inner = directory.subdirectory(name)
            directory.close()
            directory = inner
    finally:
        directory.close()


def _opened(path: Path, system: Os) -> Directory | None:
    """Open a directory; None when it is absent."""
    try:
        return Directory.open(path, system=system)
    except FileMissingError:
        return None


def replace_file(
    directory: Directory,
    name: str,
    data: bytes,
    *,
    mode: int = 0o600,
    sync: bool = True,
    sync_directory: bool = True,
) -> None:
    """Replace a file whole: exclusive temp, all bytes, sync, rename, directory sync.

    Args:
        directory: Where.
        name: The final name.
        data: The new content.
        mode: The mode of the new file.
        sync: False leaves out both syncs: readers see old or new, no durability claim.
        sync_directory: False leaves the directory's sync to the caller, who has more
            entries to make before it.

    Raises:
        OSError: As the system says; the old file is untouched unless the rename was
            done. The temp is removed where it can be.
    """
    owned = directory.create(temp_name(name), mode=mode)
    try:
        owned.append(data)
        if sync:
            owned.sync()
        directory.publish(owned, name)
    except BaseException:
        if owned.name != name:
            with contextlib.suppress(OSError):
                directory.discard(owned)
        raise
    finally:
        owned.close()
    if sync and sync_directory:
        directory.sync()


class _LockFile(OwnedFile):
    """A file whose record lock ends with its handle."""

    def close(self) -> None:
        """Close the handle, which drops the lock; again is harmless."""
        if self.fd >= 0:
            _held_here.discard(self.identity)
        super().close()


def hold_file(directory: Directory, name: str) -> OwnedFile:
    """Create or open a lock file and hold the record lock on it until it is closed.

    The lock is a POSIX record lock, so that :func:`lock_holder` can ask who holds it
    without taking it. Closing any other descriptor of the file in this process would
    drop the lock, so :func:`lock_holder` answers for own locks without opening.

    Raises:
        LockHeldError: Another process holds it.
        FileTypeError: The name holds something else than a regular file.
    """
    owned = _LockFile(directory, name, directory.open_or_create(name))
    try:
        directory.system.lockf(owned.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        pid = _holder(owned.fd)
        owned.close()
        raise LockHeldError(f"held: {directory.path / name}", pid=pid) from None
    except BaseException:
        owned.close()
        raise
    _held_here.add(owned.identity)
    return owned


def lock_holder(path: Path, *, start: int = 0, length: int = 0) -> int | None:
    """Ask who holds a record lock on a file, without taking it.

    Opening and closing the file drops every record lock that this process has on it, so
    the caller knows that it has none, but for one taken with :func:`hold_file`.

    Args:
        path: The lock file; a link is not followed.
        start: The first byte asked about.
        length: How many bytes; 0 is to the end and beyond.

    Returns:
        The holder's pid, 0 when it is held from another pid namespace, None when
        nobody holds it, the file is absent or it is no regular file.
    """
    try:
        found = OS.stat(str(path))
        if Identity.of(found) in _held_here:
            return os.getpid()
        if not stat_module.S_ISREG(found.st_mode):
            return None
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = OS.open(str(path), flags)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
        return None
    try:
        return _holder(fd, start, length)
    finally:
        OS.close(fd)


def _holder(fd: int, start: int = 0, length: int = 0) -> int | None:
    """F_GETLK: what would stop a write lock on these bytes."""
    if sys.platform == "darwin":
        layout, order = "qqihh", (3, 2)  # l_start l_len l_pid l_type l_whence
        ask = struct.pack(layout, start, length, 0, fcntl.F_WRLCK, os.SEEK_SET)
    else:
        layout, order = "hhqqi", (0, 4)  # l_type l_whence l_start l_len l_pid
        ask = struct.pack(layout, fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
    answer = struct.unpack(
        layout, fcntl.fcntl(fd, fcntl.F_GETLK, ask)[: struct.calcsize(layout)]
    )
    kind, pid = answer[order[0]], answer[order[1]]
    return None if kind == fcntl.F_UNLCK else pid


def check_owner(
    path: Path, *, uid: Callable[[], int] = os.geteuid, system: Os = OS
) -> None:
    """Refuse a path that another user owns or that group or others may write to.

    Args:
        path: A home, a run directory or a file in it; absent is fine.
        uid: Who we are.
        system: The system calls.

    Raises:
        ForeignOwnerError: PRODUCT 6.9; viewing it is still allowed.
    """
    try:
        found = system.stat(str(path), follow=True)
    except FileNotFoundError:
        return
    if found.st_uid != uid():
        raise ForeignOwnerError(f"another user owns {path}")
    if stat_module.S_IMODE(found.st_mode) & 0o022:
        raise ForeignOwnerError(f"group or others may write to {path}")
