"""Every system call that creates, writes, renames, syncs, locks or removes a file.

The rest of the project reaches the disk through this module, and this module reaches
it through one object, :class:`Os`, whose methods are system calls and nothing else.
A test wraps that object to fail, shorten, delay or observe a call at any seam, so the
code that runs in production carries no hooks.

Three rules hold everywhere (SPEC E-55..E-62):

* An object is known by the identity of its **handle** (device and inode), taken from
  ``fstat`` right after it was created or opened, never from a path.
* Names are resolved relative to a **directory handle**, so a directory that was moved
  or replaced cannot redirect a write. :meth:`Directory.verify` tells whether the path
  still leads there.
* A name is created exclusively, never through a link, and removed or replaced only
  while it still leads to the object that this process put there.

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
from typing import TYPE_CHECKING, NamedTuple, Self
from uuid import uuid4

from heaveto.errors import (
    FileIdentityError,
    FileMissingError,
    FileTypeError,
    ForeignOwnerError,
    LockHeldError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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

_CREATE = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK = 1 << 20
_NO_DIRECTORY_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}


class Os:
    """The system calls, one method each; tests wrap an instance of it."""

    def open(
        self, path: str, flags: int, mode: int = 0o600, *, dir_fd: int | None = None
    ) -> int:
        """Make the system call ``openat``."""
        return os.open(path, flags, mode, dir_fd=dir_fd)

    def close(self, fd: int) -> None:
        """Make the system call ``close``."""
        os.close(fd)

    def read(self, fd: int, size: int) -> bytes:
        """Make the system call ``read``."""
        return os.read(fd, size)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        """Make the system call ``pread``."""
        return os.pread(fd, size, offset)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Make the system call ``write``; may write less than it was given."""
        return os.write(fd, data)

    def fsync(self, fd: int) -> None:
        """Make the system call ``fsync``."""
        os.fsync(fd)

    def ftruncate(self, fd: int, size: int) -> None:
        """Make the system call ``ftruncate``."""
        os.ftruncate(fd, size)

    def fstat(self, fd: int) -> os.stat_result:
        """Make the system call ``fstat``."""
        return os.fstat(fd)

    def fchmod(self, fd: int, mode: int) -> None:
        """Make the system call ``fchmod``."""
        os.fchmod(fd, mode)

    def stat(
        self, path: str, *, dir_fd: int | None = None, follow: bool = False
    ) -> os.stat_result:
        """Make the system call ``fstatat``."""
        return os.stat(path, dir_fd=dir_fd, follow_symlinks=follow)

    def rename(
        self, source: str, target: str, *, dir_fd: int, target_dir_fd: int
    ) -> None:
        """Make the system call ``renameat``, which replaces the target atomically."""
        os.rename(source, target, src_dir_fd=dir_fd, dst_dir_fd=target_dir_fd)

    def unlink(self, path: str, *, dir_fd: int) -> None:
        """Make the system call ``unlinkat``."""
        os.unlink(path, dir_fd=dir_fd)

    def mkdir(self, path: str, mode: int = 0o700, *, dir_fd: int | None = None) -> None:
        """Make the system call ``mkdirat``."""
        os.mkdir(path, mode, dir_fd=dir_fd)

    def rmdir(self, path: str, *, dir_fd: int) -> None:
        """Make the system call ``unlinkat`` with AT_REMOVEDIR."""
        os.rmdir(path, dir_fd=dir_fd)

    def listdir(self, fd: int) -> list[str]:
        """Make the system call ``getdents`` and leave out ``.`` and ``..``."""
        return os.listdir(fd)

    def flock(self, fd: int, operation: int) -> None:
        """Make the system call ``flock``."""
        fcntl.flock(fd, operation)

    def lockf(self, fd: int, operation: int) -> None:
        """Make the system call ``fcntl`` F_SETLK on the whole file."""
        fcntl.lockf(fd, operation)


OS = Os()


class Identity(NamedTuple):
    """What tells one object on disk from another while both exist."""

    device: int
    inode: int

    @classmethod
    def of(cls, found: os.stat_result) -> Self:
        """Take the identity from a stat result."""
        return cls(found.st_dev, found.st_ino)


_held_here: set[Identity] = set()
"""The lock files whose record lock this process holds."""


def temp_name(name: str) -> str:
    """Return a fresh hidden name beside ``name``; it can never be taken for a base."""
    return f".{name}.{uuid4().hex}.tmp"


class Directory:
    """An open directory, known by its handle.

    Not safe for use by two threads at once; each owner opens its own.

    Attributes:
        path: Where it was when it was opened; used for messages and :meth:`verify`.
        identity: Device and inode of the handle.
        can_sync: False once the file system has said that it cannot sync a directory,
            which is a documented capability and no error (SPEC E-63).
    """

    def __init__(self, path: Path, fd: int, system: Os) -> None:
        """Adopt an open handle; use :meth:`open`."""
        self.path = path
        self.fd = fd
        self.system = system
        self.identity = Identity.of(system.fstat(fd))
        self.can_sync = True

    @classmethod
    def open(cls, path: Path | str, *, system: Os = OS) -> Self:
        """Open an existing directory.

        Raises:
            FileMissingError: Nothing is there.
            FileTypeError: Something else than a directory is there.
        """
        try:
            fd = system.open(str(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise FileMissingError(f"no such directory: {path}") from None
        except NotADirectoryError:
            raise FileTypeError(f"not a directory: {path}") from None
        return cls(Path(path), fd, system)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the handle."""
        self.close()

    def close(self) -> None:
        """Close the handle; again is harmless."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            self.system.close(fd)

    def verify(self) -> None:
        """Check that the path still leads to this directory (SPEC E-59).

        Raises:
            FileIdentityError: Something else, or nothing, is there now.
        """
        try:
            found = self.system.stat(str(self.path), follow=True)
        except FileNotFoundError:
            raise FileIdentityError(f"the directory is gone: {self.path}") from None
        if Identity.of(found) != self.identity:
            raise FileIdentityError(f"another directory is at {self.path}")

    def sync(self) -> None:
        """Make the directory's entries durable as far as the file system can."""
        if not self.can_sync:
            return
        try:
            self.system.fsync(self.fd)
        except OSError as error:
            if error.errno not in _NO_DIRECTORY_SYNC:
                raise
            self.can_sync = False

    def names(self) -> list[str]:
        """Return the names in it, sorted."""
        return sorted(self.system.listdir(self.fd))

    def stat(self, name: str) -> os.stat_result | None:
        """Return what a name leads to, without following a link; None when absent."""
        try:
            return self.system.stat(name, dir_fd=self.fd)
        except FileNotFoundError:
            return None

    def identity_of(self, name: str) -> Identity | None:
        """Return the identity that a name leads to; None when absent."""
        found = self.stat(name)
        return None if found is None else Identity.of(found)

    def subdirectory(self, name: str) -> Directory:
        """Open a directory in this one, not through a link.

        Raises:
            FileMissingError: No such name.
            FileTypeError: The name is no real directory.
        """
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = self.system.open(name, flags, dir_fd=self.fd)
        except FileNotFoundError:
            raise FileMissingError(f"no such directory: {self.path / name}") from None
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            raise FileTypeError(f"not a directory: {self.path / name}") from None
        return type(self)(self.path / name, fd, self.system)

    def make(self, name: str, mode: int = 0o700) -> Directory:
        """Make a directory in this one exclusively and open it.

        Raises:
            FileExistsError: The name is taken.
        """
        self.system.mkdir(name, mode, dir_fd=self.fd)
        return self.subdirectory(name)

    def create(self, name: str, *, mode: int = 0o600) -> OwnedFile:
        """Create a file exclusively for appending; never through a link (SPEC E-56).

        Raises:
            FileExistsError: The name is taken, be it by a dangling link.
        """
        flags = os.O_WRONLY | os.O_APPEND | _CREATE
        fd = self.system.open(name, flags, mode, dir_fd=self.fd)
        return OwnedFile(self, name, fd)

    def open_append(self, name: str, *, identity: Identity | None = None) -> OwnedFile:
        """Open an existing regular file for appending.

        Args:
            name: A name in this directory; a link is not followed.
            identity: What it must be; it is compared before any byte is written.

        Raises:
            FileMissingError: No such name; nothing is created (SPEC E-53).
            FileTypeError: No regular file.
            FileIdentityError: Another file.
        """
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = self._open_existing(name, flags)
        owned = OwnedFile(self, name, fd)
        if identity is not None and owned.identity != identity:
            owned.close()
            raise FileIdentityError(f"another file is at {self.path / name}")
        return owned

    def read(self, name: str, *, limit: int | None = None) -> bytes:
        """Read a regular file whole.

        Args:
            name: A name in this directory; a link is not followed, and a FIFO or a
                device does not block (SPEC F-20).
            limit: Bytes at most; what is longer is cut there.

        Raises:
            FileMissingError: No such name.
            FileTypeError: No regular file.
        """
        with self.reading(name) as fd:
            return b"".join(_chunks(self.system, fd, limit))

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[int]:
        """Hold a regular file open for reading and give its descriptor."""
        fd = self._open_existing(name, _READ)
        try:
            yield fd
        finally:
            self.system.close(fd)

    def _open_existing(self, name: str, flags: int) -> int:
        """Open a regular file by name or say why not."""
        where = self.path / name
        try:
            fd = self.system.open(name, flags, dir_fd=self.fd)
        except FileNotFoundError:
            raise FileMissingError(f"no such file: {where}") from None
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
                raise
            raise FileTypeError(f"not a regular file: {where}") from None
        if not stat_module.S_ISREG(self.system.fstat(fd).st_mode):
            self.system.close(fd)
            raise FileTypeError(f"not a regular file: {where}")
        return fd

    def publish(self, owned: OwnedFile, name: str) -> None:
        """Rename an own file over a name and check what is there afterwards.

        The directory is not synced; the caller does that as its own step.

        Raises:
            FileIdentityError: The file's present name, or the new one after the rename,
                leads to something else (SPEC E-60). The foreign object is not touched.
        """
        owned.verify()
        self.system.rename(owned.name, name, dir_fd=self.fd, target_dir_fd=self.fd)
        owned.name = name
        owned.verify()

    def discard(self, owned: OwnedFile) -> None:
        """Remove an own file while its name still leads to it (SPEC E-61)."""
        if self.identity_of(owned.name) == owned.identity:
            self.system.unlink(owned.name, dir_fd=self.fd)

    def remove(self, name: str) -> None:
        """Remove a name, whatever it is but a directory; absent is fine."""
        with contextlib.suppress(FileNotFoundError):
            self.system.unlink(name, dir_fd=self.fd)

    def remove_tree(self, name: str) -> None:
        """Remove a directory in this one with all that is in it, following no link."""
        with self.subdirectory(name) as inner:
            for entry in inner.names():
                found = inner.stat(entry)
                if found is not None and stat_module.S_ISDIR(found.st_mode):
                    inner.remove_tree(entry)
                else:
                    inner.remove(entry)
        self.system.rmdir(name, dir_fd=self.fd)

    def hold(self) -> None:
        """Take the exclusive flock on this directory until it is closed.

        Raises:
            LockHeldError: Another process, or another handle of this one, holds it.
        """
        try:
            self.system.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockHeldError(f"in use by another writer: {self.path}") from None


class OwnedFile:
    """A file that this process created or opened for appending.

    Attributes:
        name: Its present name in its directory.
        identity: Device and inode of the handle.
        written: Bytes that the system has accepted through this object.
    """

    def __init__(self, directory: Directory, name: str, fd: int) -> None:
        """Adopt an open handle; use the methods of :class:`Directory`."""
        self.directory = directory
        self.name = name
        self.fd = fd
        self.written = 0
        self.identity = Identity.of(directory.system.fstat(fd))

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the handle."""
        self.close()

    def append(self, data: bytes | memoryview) -> None:
        """Write all bytes at the end, however short single writes are (SPEC E-51)."""
        rest = memoryview(data)
        while rest:
            count = self.directory.system.write(self.fd, rest)
            if count <= 0:
                raise OSError(errno.EIO, "write made no progress")
            self.written += count
            rest = rest[count:]

    def sync(self) -> None:
        """Make the content durable."""
        self.directory.system.fsync(self.fd)

    def size(self) -> int:
        """Return the size of the open file in bytes."""
        return self.directory.system.fstat(self.fd).st_size

    def verify(self) -> None:
        """Check that the name still leads to this file.

        Raises:
            FileIdentityError: It leads elsewhere or nowhere.
        """
        found = self.directory.identity_of(self.name)
        where = self.directory.path / self.name
        if found is None:
            raise FileIdentityError(f"the file is gone: {where}")
        if found != self.identity:
            raise FileIdentityError(f"another file is at {where}")

    def close(self) -> None:
        """Close the handle; again is harmless."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            _held_here.discard(self.identity)
            self.directory.system.close(fd)


def _chunks(system: Os, fd: int, limit: int | None) -> Iterator[bytes]:
    """Read to the end or to the limit."""
    left = sys.maxsize if limit is None else limit
    while left > 0 and (chunk := system.read(fd, min(_CHUNK, left))):
        left -= len(chunk)
        yield chunk


def make_directories(path: Path, *, mode: int = 0o700, system: Os = OS) -> None:
    """Make a directory and its missing parents, each entry synced in its parent.

    Args:
        path: What shall exist afterwards; an existing one is left as it is.
        mode: The mode of what is made.
        system: The system calls.

    Raises:
        FileTypeError: Something on the way is no directory.
    """
    missing = []
    here = path.absolute()
    while not here.is_dir():
        if here.is_symlink() or here.exists():
            raise FileTypeError(f"not a directory: {here}")
        missing.append(here)
        here = here.parent
    for new in reversed(missing):
        with contextlib.suppress(FileExistsError):
            system.mkdir(str(new), mode)
        with Directory.open(new.parent, system=system) as parent:
            parent.sync()


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


def hold_file(directory: Directory, name: str) -> OwnedFile:
    """Create or open a lock file and hold the record lock on it until it is closed.

    The lock is a POSIX record lock, so that :func:`lock_holder` can ask who holds it
    without taking it. Closing any other descriptor of the file in this process would
    drop the lock, so :func:`lock_holder` answers for own locks without opening.

    Raises:
        LockHeldError: Another process holds it.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = directory.system.open(name, flags, 0o600, dir_fd=directory.fd)
    owned = OwnedFile(directory, name, fd)
    try:
        directory.system.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        pid = _holder(fd)
        owned.close()
        raise LockHeldError(f"held: {directory.path / name}", pid=pid) from None
    _held_here.add(owned.identity)
    return owned


def lock_holder(path: Path) -> int | None:
    """Ask who holds the record lock on a file, without taking it.

    Args:
        path: The lock file; a link is not followed.

    Returns:
        The holder's pid, 0 when it is held from another pid namespace, None when
        nobody holds it or the file is absent.
    """
    try:
        if Identity.of(OS.stat(str(path))) in _held_here:
            return os.getpid()
        fd = OS.open(str(path), _READ)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return _holder(fd)
    finally:
        OS.close(fd)


def _holder(fd: int) -> int | None:
    """F_GETLK: what would stop a write lock on the whole file."""
    if sys.platform == "darwin":
        layout, order = "qqihh", (3, 2)  # l_start l_len l_pid l_type l_whence
        ask = struct.pack(layout, 0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
    else:
        layout, order = "hhqqi", (0, 4)  # l_type l_whence l_start l_len l_pid
        ask = struct.pack(layout, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
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
