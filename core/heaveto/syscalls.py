"""The system calls that create, write, rename, sync, lock or remove; nothing else.

:class:`Os` is the one seam to the disk: one method, one system call, no policy. Only
:mod:`heaveto.files` makes these calls in production. A test wraps an instance to fail,
shorten, delay, observe or replace a call, or stands a whole disk in memory behind it,
so the code that runs in production carries no hooks.

Two calls are not in the standard library: the atomic **exchange** of two names and the
rename that **never replaces**. With them a publication cannot destroy what somebody
else put at a name in the moment between a check and the rename.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NOT_SUPPORTED", "OS", "Os"]

NOT_SUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}
"""What a system says when it, or its file system, does not know a call."""

_DARWIN = sys.platform == "darwin"
_EXCHANGE = 2
_NO_REPLACE = 4 if _DARWIN else 1


class Os:
    """The system calls, one method each; tests wrap an instance of it."""

    def open(
        self, path: str, flags: int, mode: int = 0o600, *, dir_fd: int | None = None
    ) -> int:
        """Make the system call ``openat``."""
        return os.open(path, flags, mode, dir_fd=dir_fd)

    def close(self, fd: int) -> None:
        """Make the system call ``close``; the descriptor is gone even if it fails."""
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

    def rename_new(self, source: str, target: str, *, dir_fd: int) -> None:
        """Rename inside one directory; a target that exists is an error."""
        _rename_with(dir_fd, source, target, _NO_REPLACE)

    def exchange(self, one: str, other: str, *, dir_fd: int) -> None:
        """Exchange what two names of one directory lead to, atomically."""
        _rename_with(dir_fd, one, other, _EXCHANGE)

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


@functools.cache
def _renameat() -> Callable[[int, bytes, bytes, int], int]:
    """Find ``renameat2`` (Linux) or ``renameatx_np`` (macOS) in the C library.

    Returns:
        A call that gives 0 or the error number; its directory is both source's and
        target's.
    """
    import ctypes  # three milliseconds that most commands never need

    name = "renameatx_np" if _DARWIN else "renameat2"
    try:
        call = getattr(ctypes.CDLL(None, use_errno=True), name)
    except (OSError, AttributeError):
        return lambda dir_fd, source, target, flags: errno.ENOSYS
    number, text = ctypes.c_int, ctypes.c_char_p
    call.argtypes = (number, text, number, text, ctypes.c_uint)

    def rename(dir_fd: int, source: bytes, target: bytes, flags: int) -> int:
        done = call(dir_fd, source, dir_fd, target, flags) == 0
        return 0 if done else ctypes.get_errno()

    return rename


def _rename_with(dir_fd: int, source: str, target: str, flags: int) -> None:
    """Rename with flags, or raise the ``OSError`` that fits."""
    number = _renameat()(dir_fd, os.fsencode(source), os.fsencode(target), flags)
    if number != 0:
        raise OSError(number, os.strerror(number), source, None, target)
