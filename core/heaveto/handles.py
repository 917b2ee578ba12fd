"""Directories and files that are known by their handles, never by their paths.

:class:`Directory` and :class:`OwnedFile` are what :mod:`heaveto.files` is made of; its
three rules (identity by handle, names relative to a directory handle, exclusive names)
are kept here. ``OSError`` passes through.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat as stat_module
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from heaveto.errors import (
    FileIdentityError,
    FileMissingError,
    FileTypeError,
    LockHeldError,
)
from heaveto.syscalls import NOT_SUPPORTED, OS, Os

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Directory", "Identity", "OwnedFile"]

_CREATE = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK = 1 << 20


class Identity(NamedTuple):
    """What tells one object on disk from another while both exist."""

    device: int
    inode: int

    @classmethod
    def of(cls, found: os.stat_result) -> Self:
        """Take the identity from a stat result."""
        return cls(found.st_dev, found.st_ino)


class Directory:
    """An open directory, known by its handle.

    Not safe for use by two threads at once; each owner opens its own.

    Attributes:
        path: Where it was when it was opened; used for messages and :meth:`verify`.
        identity: Device and inode of the handle.
        can_sync: False once the file system has said that it cannot sync a directory,
            which is a documented capability and no error (SPEC E-63).
        can_exchange: The same for exchanging two names.
        holds: True once :meth:`hold` has locked it.
        written: Bytes that the system has accepted for files of this directory.
        syncs: Syncs made of it and of its files.
    """

    def __init__(self, path: Path, fd: int, system: Os) -> None:
        """Adopt an open handle; use :meth:`open`."""
        self.path = path
        self._text = str(path)
        self.fd = fd
        self.system = system
        self.identity = _identity(system, fd)
        self.can_sync = True
        self.can_exchange = True
        self.holds = False
        self.written = 0
        self.syncs = 0

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
        """Close the handle, and let go of the lock first; again is harmless.

        A close that fails may leave the descriptor open, and a lock on it with it.
        """
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            if self.holds:
                with contextlib.suppress(OSError):
                    self.system.flock(fd, fcntl.LOCK_UN)
            self.system.close(fd)

    def verify(self, *files: OwnedFile) -> None:
        """Check that the path still leads to this directory (SPEC E-59).

        Args:
            files: Own files whose names have to lead to them as well.

        Raises:
            FileIdentityError: Something else, or nothing, is there now.
        """
        stat = self.system.stat
        try:
            found = stat(self._text, follow=True)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise
            raise FileIdentityError(f"the directory is gone: {self.path}") from None
        if (found.st_dev, found.st_ino) != self.identity:
            raise FileIdentityError(f"another directory is at {self.path}")
        for owned in files:
            owned.verify()

    def sync(self) -> None:
        """Make the directory's entries durable as far as the file system can."""
        if not self.can_sync:
            return
        self.syncs += 1
        try:
            self.system.fsync(self.fd)
        except OSError as error:
            if error.errno not in NOT_SUPPORTED:
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
        try:
            found = self.system.stat(name, dir_fd=self.fd)
        except FileNotFoundError:
            return None
        return Identity(found.st_dev, found.st_ino)

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

    def pin(self, name: str) -> OwnedFile:
        """Hold an existing regular file open, so that its identity stays its own.

        The handle only reads; what it is for is :meth:`install`.

        Raises:
            FileMissingError: No such name.
            FileTypeError: No regular file.
        """
        return OwnedFile(self, name, self._open_existing(name, _READ))

    def open_or_create(self, name: str) -> int:
        """Open a regular file for reading and writing, made when it is absent.

        Returns:
            The descriptor.

        Raises:
            FileTypeError: The name holds something else.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return self._open_existing(name, flags)

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
        try:
            regular = stat_module.S_ISREG(self.system.fstat(fd).st_mode)
        except BaseException:
            _abandon(self.system, fd)
            raise
        if not regular:
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

    def install(
        self, owned: OwnedFile, name: str, *, replacing: OwnedFile | None
    ) -> None:
        """Give an own file a name, and destroy nothing in any case (SPEC E-60).

        The name must be free, or lead to the own file that is replaced, which then has
        the other's former name. Where the system can exchange names, a file that
        somebody puts at a name between the check and the act is not lost: at worst it
        is found under the other name. Elsewhere a check, a rename and a check take its
        place, and the replaced file is gone.

        The directory is not synced; the caller does that as its own step.

        Args:
            owned: The file to install, under its present name in this directory.
            name: The name to give it.
            replacing: The file that has the name now; None when nothing has it.

        Raises:
            FileIdentityError: A name leads to something else; it is left as it is.
            OSError: It may have taken effect; :meth:`locate` tells.
        """
        owned.verify()
        self._check(name, replacing)
        if self.can_exchange:
            try:
                self._install_atomically(owned, name, replacing)
            except OSError as error:
                if error.errno not in {*NOT_SUPPORTED, errno.EPERM}:
                    raise  # some sandboxes say EPERM to a call that they do not know
                self.can_exchange = False
            else:
                return
        self.publish(owned, name)
        if replacing is not None:
            replacing.name = ""

    def _install_atomically(
        self, owned: OwnedFile, name: str, replacing: OwnedFile | None
    ) -> None:
        """Rename without replacing, or exchange, and look what came of it."""
        before = owned.name
        if replacing is not None:
            self.system.exchange(before, name, dir_fd=self.fd)
            owned.name, replacing.name = name, before
            owned.verify()
            replacing.verify()
            return
        try:
            self.system.rename_new(before, name, dir_fd=self.fd)
        except FileExistsError:
            raise FileIdentityError(f"the name is taken: {self.path / name}") from None
        owned.name = name
        owned.verify()

    def _check(self, name: str, expected: OwnedFile | None) -> None:
        """Refuse a name that leads to something else than expected."""
        found = self.identity_of(name)
        if found != (None if expected is None else expected.identity):
            raise FileIdentityError(f"another file is at {self.path / name}")

    def locate(self, owned: OwnedFile, *names: str) -> bool:
        """Find out which of some names an own file has, after an uncertain rename."""
        found = (name for name in names if self.identity_of(name) == owned.identity)
        owned.name = next(found, "")
        return owned.name != ""

    def discard(self, owned: OwnedFile) -> None:
        """Remove an own file while its name still leads to it (SPEC E-61)."""
        if owned.name and self.identity_of(owned.name) == owned.identity:
            self.system.unlink(owned.name, dir_fd=self.fd)
            owned.name = ""

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
        self.holds = True


class OwnedFile:
    """A file that this process created or opened for appending.

    Attributes:
        name: Its present name in its directory; empty when it has none there.
        identity: Device and inode of the handle.
        written: Bytes that the system has accepted through this object.
    """

    def __init__(self, directory: Directory, name: str, fd: int) -> None:
        """Adopt an open handle; use the methods of :class:`Directory`."""
        self.directory = directory
        self.name = name
        self.fd = fd
        self.written = 0
        self.identity = _identity(directory.system, fd)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the handle."""
        self.close()

    def append(self, data: bytes | memoryview) -> None:
        """Write all bytes at the end, however short single writes are (SPEC E-51)."""
        rest = data
        while rest:
            count = self.directory.system.write(self.fd, rest)
            if count <= 0:
                raise OSError(errno.EIO, "write made no progress")
            self.written += count
            self.directory.written += count
            if count == len(rest):
                return
            rest = memoryview(rest)[count:]

    def sync(self) -> None:
        """Make the content durable."""
        self.directory.syncs += 1
        self.directory.system.fsync(self.fd)

    def size(self) -> int:
        """Return the size of the open file in bytes."""
        return self.directory.system.fstat(self.fd).st_size

    def verify(self) -> None:
        """Check that the name still leads to this file.

        Raises:
            FileIdentityError: It leads elsewhere or nowhere.
        """
        directory = self.directory
        what = "another file is at"
        try:
            found = directory.system.stat(self.name, dir_fd=directory.fd)
            if (found.st_dev, found.st_ino) == self.identity:
                return
        except FileNotFoundError:
            what = "the file is gone:"
        raise FileIdentityError(f"{what} {directory.path / self.name}")

    def close(self) -> None:
        """Close the handle; again is harmless."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            self.directory.system.close(fd)


def _identity(system: Os, fd: int) -> Identity:
    """Take the identity of a handle that was just opened, or close it again."""
    try:
        return Identity.of(system.fstat(fd))
    except BaseException:
        _abandon(system, fd)
        raise


def _abandon(system: Os, fd: int) -> None:
    """Close a handle on the way out of an error that matters more."""
    with contextlib.suppress(OSError):
        system.close(fd)


def _chunks(system: Os, fd: int, limit: int | None) -> Iterator[bytes]:
    """Read to the end or to the limit."""
    left = sys.maxsize if limit is None else limit
    while left > 0 and (chunk := system.read(fd, min(_CHUNK, left))):
        left -= len(chunk)
        yield chunk
