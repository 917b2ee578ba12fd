"""A disk in memory behind the :class:`Os` seam, with processes that die.

It keeps what POSIX promises a program: names lead to objects, handles outlive names,
locks belong to open descriptions and go with them. Beside the present content it keeps
what has been **synced**, file content and directory entries apart, so that a test can
also look at what a loss of power may leave, which heaveto does not promise to survive.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from dataclasses import dataclass, field

from heaveto.files import Os

__all__ = ["MemoryOs"]


@dataclass(eq=False)
class _Node:
    """A file, a folder or a link."""

    number: int
    kind: int
    mode: int
    data: bytearray = field(default_factory=bytearray)
    entries: dict[str, _Node] = field(default_factory=dict)
    target: str = ""
    synced_data: bytes = b""
    synced_entries: dict[str, _Node] = field(default_factory=dict)
    links: int = 1
    changes: int = 0
    holder: _Handle | None = None


@dataclass(eq=False)
class _Handle:
    """An open description."""

    node: _Node
    flags: int
    position: int = 0


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class MemoryOs(Os):
    """One process's view of a disk; :meth:`restart` gives the next process its own."""

    def __init__(self) -> None:
        self._numbers = iter(range(1, 1 << 60))
        self._descriptors = iter(range(1000, 1 << 60))
        self._root = self._node(stat.S_IFDIR, 0o755)
        self._handles: dict[int, _Handle] = {}

    # --- what a test does to it

    def restart(self) -> None:
        """The process is gone, with its descriptors and locks; the disk stays."""
        for fd in list(self._handles):
            self.close(fd)

    def cut_power(self, *, keep_data: bool = False, keep_entries: bool = False) -> None:
        """The machine is gone: what was not synced is lost, as far as not kept.

        Args:
            keep_data: File content had reached the disk all the same.
            keep_entries: Directory entries likewise.
        """
        self.restart()
        self._revert(self._root, keep_data, keep_entries)

    def _revert(self, node: _Node, keep_data: bool, keep_entries: bool) -> None:
        if stat.S_ISREG(node.kind) and not keep_data:
            node.data[:] = node.synced_data
        if not keep_entries:
            node.entries = dict(node.synced_entries)
        for inner in node.entries.values():
            self._revert(inner, keep_data, keep_entries)

    def put(self, path: str, data: bytes) -> int:
        """Place a foreign file, whatever has the name now; return its inode."""
        folder, name = self._parent(path, None)
        made = self._node(stat.S_IFREG, 0o644)
        made.data[:] = data
        folder.entries[name] = made
        return made.number

    def content(self, path: str) -> bytes | None:
        """Return what a name leads to; None when it leads nowhere."""
        node = self._find(path, None)
        return None if node is None else bytes(node.data)

    def inode(self, path: str) -> int | None:
        node = self._find(path, None)
        return None if node is None else node.number

    def names(self, path: str) -> list[str]:
        node = self._find(path, None)
        return [] if node is None else sorted(node.entries)

    # --- looking things up

    def _node(self, kind: int, mode: int) -> _Node:
        return _Node(number=next(self._numbers), kind=kind, mode=mode)

    def _start(self, path: str, dir_fd: int | None) -> _Node:
        if path.startswith("/") or dir_fd is None:
            return self._root
        return self._handle(dir_fd).node

    def _parent(self, path: str, dir_fd: int | None) -> tuple[_Node, str]:
        here = self._start(path, dir_fd)
        *parts, name = [part for part in path.split("/") if part] or [""]
        for part in parts:
            if not stat.S_ISDIR(here.kind):
                raise _error(errno.ENOTDIR)
            if part not in here.entries:
                raise _error(errno.ENOENT)
            here = here.entries[part]
        if not stat.S_ISDIR(here.kind):
            raise _error(errno.ENOTDIR)
        return here, name

    def _find(self, path: str, dir_fd: int | None) -> _Node | None:
        folder, name = self._parent(path, dir_fd)
        return folder if name == "" else folder.entries.get(name)

    def _get(self, path: str, dir_fd: int | None) -> _Node:
        node = self._find(path, dir_fd)
        if node is None:
            raise _error(errno.ENOENT)
        return node

    def _handle(self, fd: int) -> _Handle:
        if fd not in self._handles:
            raise _error(errno.EBADF)
        return self._handles[fd]

    # --- the calls

    def open(
        self, path: str, flags: int, mode: int = 0o600, *, dir_fd: int | None = None
    ) -> int:
        folder, name = self._parent(path, dir_fd)
        node = folder if name == "" else folder.entries.get(name)
        if node is None:
            if not flags & os.O_CREAT:
                raise _error(errno.ENOENT)
            node = folder.entries[name] = self._node(stat.S_IFREG, mode)
        elif flags & os.O_CREAT and flags & os.O_EXCL:
            raise _error(errno.EEXIST)
        if flags & os.O_DIRECTORY and not stat.S_ISDIR(node.kind):
            raise _error(errno.ENOTDIR)
        if stat.S_ISLNK(node.kind):
            raise _error(errno.ELOOP)
        fd = next(self._descriptors)
        self._handles[fd] = _Handle(node, flags)
        return fd

    def close(self, fd: int) -> None:
        handle = self._handle(fd)
        if handle.node.holder is handle:
            handle.node.holder = None
        del self._handles[fd]

    def read(self, fd: int, size: int) -> bytes:
        handle = self._handle(fd)
        found = bytes(handle.node.data[handle.position : handle.position + size])
        handle.position += len(found)
        return found

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        return bytes(self._handle(fd).node.data[offset : offset + size])

    def write(self, fd: int, data: bytes | memoryview) -> int:
        handle = self._handle(fd)
        assert handle.flags & os.O_APPEND
        handle.node.data += bytes(data)
        handle.node.changes += 1
        return len(data)

    def fsync(self, fd: int) -> None:
        node = self._handle(fd).node
        node.synced_data = bytes(node.data)
        node.synced_entries = dict(node.entries)

    def ftruncate(self, fd: int, size: int) -> None:
        del self._handle(fd).node.data[size:]

    def fstat(self, fd: int) -> os.stat_result:
        return self._described(self._handle(fd).node)

    def fchmod(self, fd: int, mode: int) -> None:
        self._handle(fd).node.mode = mode

    def stat(
        self, path: str, *, dir_fd: int | None = None, follow: bool = False
    ) -> os.stat_result:
        return self._described(self._get(path, dir_fd))

    def _described(self, node: _Node) -> os.stat_result:
        when = node.changes
        times = (when, when, when)
        head = (node.kind | node.mode, node.number, 7, node.links, os.geteuid(), 0)
        return os.stat_result((*head, len(node.data), *times, *times, *times))

    def rename(
        self, source: str, target: str, *, dir_fd: int, target_dir_fd: int
    ) -> None:
        node = self._get(source, dir_fd)
        here, old = self._parent(source, dir_fd)
        there, new = self._parent(target, target_dir_fd)
        del here.entries[old]
        there.entries[new] = node

    def rename_new(self, source: str, target: str, *, dir_fd: int) -> None:
        self._get(source, dir_fd)
        if self._find(target, dir_fd) is not None:
            raise _error(errno.EEXIST)
        self.rename(source, target, dir_fd=dir_fd, target_dir_fd=dir_fd)

    def exchange(self, one: str, other: str, *, dir_fd: int) -> None:
        first, second = self._get(one, dir_fd), self._get(other, dir_fd)
        entries = self._handle(dir_fd).node.entries
        entries[one], entries[other] = second, first

    def unlink(self, path: str, *, dir_fd: int) -> None:
        self._get(path, dir_fd).links -= 1
        folder, name = self._parent(path, dir_fd)
        del folder.entries[name]

    def mkdir(self, path: str, mode: int = 0o700, *, dir_fd: int | None = None) -> None:
        folder, name = self._parent(path, dir_fd)
        if name in folder.entries:
            raise _error(errno.EEXIST)
        folder.entries[name] = self._node(stat.S_IFDIR, mode)

    def rmdir(self, path: str, *, dir_fd: int) -> None:
        folder, name = self._parent(path, dir_fd)
        if self._get(path, dir_fd).entries:
            raise _error(errno.ENOTEMPTY)
        del folder.entries[name]

    def listdir(self, fd: int) -> list[str]:
        return list(self._handle(fd).node.entries)

    def flock(self, fd: int, operation: int) -> None:
        handle = self._handle(fd)
        if operation & fcntl.LOCK_UN:
            if handle.node.holder is handle:
                handle.node.holder = None
        elif handle.node.holder not in (None, handle):
            raise _error(errno.EWOULDBLOCK)
        else:
            handle.node.holder = handle

    def lockf(self, fd: int, operation: int) -> None:
        self.flock(fd, operation)
