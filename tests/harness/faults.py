"""A wrapped :class:`Os` that numbers every system call and strikes where it is told.

Every call is a **seam** with a number and a name such as ``fsync:journal``. A
:class:`Fault` strikes at one seam (or from it on): it fails the call before or after
its effect, shortens a write, puts a foreign object in a path's place, or ends the
process, which is either a real SIGKILL or, in this process, :class:`Killed` from every
call that follows.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from heaveto.files import OS, Os

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["SENTINEL", "Fault", "FaultyOs", "Killed", "Seam", "role_of"]

SENTINEL = b"SENTINEL: not a checkpoint\n"
"""What a substitute holds."""


class Killed(BaseException):
    """The process is gone: nothing after this has any effect."""


class Seam(NamedTuple):
    """One system call of a run."""

    number: int
    call: str
    role: str
    size: int = 0
    """Of a write, in bytes."""

    @property
    def name(self) -> str:
        return f"{self.call}:{self.role}"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What happens at a seam."""

    at: int
    act: str
    """``kill``, ``fail``, ``odd``, ``short``, ``swap``, or ``note`` (tell only)."""
    when: str = "before"
    """``before`` or ``after`` the call's effect."""
    error: int = 0
    keep: int | None = None
    """Bytes of a write that go through before ``kill``, ``fail`` or ``short``."""
    lasting: bool = False
    """Every later seam of the same name is struck as well."""
    what: str = ""
    """``swap``: ``<role> <file|symlink|hardlink|gone>``."""


_ROLES = (
    ("base", re.compile(r"checkpoint\.json")),
    ("journal", re.compile(r"checkpoint\.json\.journal")),
    ("journal-temp", re.compile(r"\.checkpoint\.json\.journal\.[0-9a-f]{32}\.tmp")),
    ("base-temp", re.compile(r"\.checkpoint\.json\.[0-9a-f]{32}\.tmp")),
    ("base-temp", re.compile(r"checkpoint\.[0-9]+\.tmp")),
)


def role_of(path: str) -> str:
    """Say what part a path plays in a unit."""
    for role, pattern in _ROLES:
        if pattern.fullmatch(os.path.basename(path)):
            return role
    return "folder"


class FaultyOs(Os):
    """Counts, names and strikes; everything else goes to the wrapped system calls.

    Attributes:
        seams: Every call so far, in order.
        struck: Faults that were carried out.
        sentinels: Substitutes that were put somewhere: (path, identity).
    """

    def __init__(
        self,
        faults: Sequence[Fault] = (),
        *,
        inner: Os = OS,
        real_kill: bool = False,
        on_strike: Callable[[Fault], None] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.inner = inner
        self.faults = list(faults)
        self.real_kill = real_kill
        self.on_strike = on_strike
        self.folder = folder
        self.seams: list[Seam] = []
        self.struck: list[Fault] = []
        self.sentinels: list[tuple[Path, int]] = []
        self.dead = False
        self.reached = threading.Event()
        self._gate = threading.Event()
        self._gate.set()
        self._names: dict[int, str] = {}
        self._latest: dict[str, str] = {}

    # --- the engine

    def _call(
        self, call: str, path: str, run: Callable[[], Any], data: Any = None
    ) -> Any:
        self.reached.set()
        self._gate.wait()
        if self.dead:
            raise Killed
        size = 0 if data is None else len(data)
        seam = Seam(len(self.seams), call, role_of(path), size)
        self.seams.append(seam)
        for fault in self._due(seam, "before"):
            self._strike(fault)
        after = self._due(seam, "after")
        try:
            result = run()
        except OSError:
            for fault in after:
                self._strike(fault)
            raise
        for fault in after:
            self._strike(fault)
        return result

    def _due(self, seam: Seam, when: str) -> list[Fault]:
        return [
            fault
            for fault in self.faults
            if fault.when == when and fault.keep is None and self._hits(fault, seam)
        ]

    def _hits(self, fault: Fault, seam: Seam) -> bool:
        if fault.at == seam.number:
            return True
        return (
            fault.lasting
            and fault.at < seam.number
            and self.seams[fault.at].name == seam.name
        )

    def _strike(self, fault: Fault) -> None:
        self.struck.append(fault)
        if self.on_strike is not None:
            self.on_strike(fault)
        if fault.act == "kill":
            self._kill()
        elif fault.act == "fail":
            raise OSError(fault.error, os.strerror(fault.error))
        elif fault.act == "odd":
            raise ZeroDivisionError
        elif fault.act == "swap":
            self._swap(*fault.what.split())

    def _kill(self) -> None:
        if self.real_kill:
            os.kill(os.getpid(), signal.SIGKILL)
        self.dead = True
        raise Killed

    def _swap(self, role: str, by: str) -> None:
        """Move what is there aside and put a foreign object in its place."""
        assert self.folder is not None
        aside = self.folder.parent / f"aside-{len(self.sentinels)}"
        if role == "folder":
            os.rename(self.folder, aside)
            self.folder.mkdir()
            return
        names = {"base": "checkpoint.json", "journal": "checkpoint.json.journal"}
        name = names.get(role) or self._latest.get(role)
        if name is None:
            return
        path = self.folder / name
        if os.path.lexists(path):
            os.rename(path, aside)
        if by == "gone":
            return
        kept = self.folder.parent / f"sentinel-{len(self.sentinels)}"
        kept.write_bytes(SENTINEL)
        if by == "file":
            path.write_bytes(SENTINEL)
        elif by == "hardlink":
            os.link(kept, path)
        else:
            path.symlink_to(kept)
        self.sentinels.append((path, os.lstat(path).st_ino))

    def hold(self) -> None:
        """Stop the next call before it is made, until :meth:`let_go`."""
        self.reached.clear()
        self._gate.clear()

    def let_go(self) -> None:
        """Let a held call go on."""
        self._gate.set()

    def release(self) -> None:
        """Close what a killed run left open, as the kernel would."""
        for fd in list(self._names):
            self._names.pop(fd)
            self.inner.close(fd)

    # --- the calls

    def open(
        self, path: str, flags: int, mode: int = 0o600, *, dir_fd: int | None = None
    ) -> int:
        def run() -> int:
            fd = self.inner.open(path, flags, mode, dir_fd=dir_fd)
            self._names[fd] = path
            return fd

        if flags & os.O_CREAT:
            self._latest[role_of(path)] = path
        call = "create" if flags & os.O_CREAT else "open"
        return int(self._call(call, path, run))

    def close(self, fd: int) -> None:
        def run() -> None:
            name = self._names.pop(fd, "")
            try:
                self.inner.close(fd)
            except OSError:
                self._names[fd] = name
                raise

        self._call("close", self._names.get(fd, ""), run)

    def read(self, fd: int, size: int) -> bytes:
        return bytes(
            self._call("read", self._names[fd], lambda: self.inner.read(fd, size))
        )

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        run = lambda: self.inner.pread(fd, size, offset)  # noqa: E731
        return bytes(self._call("pread", self._names[fd], run))

    def write(self, fd: int, data: bytes | memoryview) -> int:
        def run() -> int:
            seam = self.seams[-1]
            for fault in self.faults:
                if fault.keep is not None and self._hits(fault, seam):
                    count = self.inner.write(fd, data[: fault.keep])
                    if fault.act == "short":
                        self.struck.append(fault)
                        return count
                    self._strike(fault)
            return self.inner.write(fd, data)

        return int(self._call("write", self._names[fd], run, data))

    def fsync(self, fd: int) -> None:
        self._call("fsync", self._names[fd], lambda: self.inner.fsync(fd))

    def ftruncate(self, fd: int, size: int) -> None:
        run = lambda: self.inner.ftruncate(fd, size)  # noqa: E731
        self._call("ftruncate", self._names[fd], run)

    def fstat(self, fd: int) -> os.stat_result:
        found: os.stat_result = self._call(
            "fstat", self._names[fd], lambda: self.inner.fstat(fd)
        )
        return found

    def fchmod(self, fd: int, mode: int) -> None:
        self._call("fchmod", self._names[fd], lambda: self.inner.fchmod(fd, mode))

    def stat(
        self, path: str, *, dir_fd: int | None = None, follow: bool = False
    ) -> os.stat_result:
        run = lambda: self.inner.stat(path, dir_fd=dir_fd, follow=follow)  # noqa: E731
        found: os.stat_result = self._call("stat", path, run)
        return found

    def rename(
        self, source: str, target: str, *, dir_fd: int, target_dir_fd: int
    ) -> None:
        def run() -> None:
            self.inner.rename(
                source, target, dir_fd=dir_fd, target_dir_fd=target_dir_fd
            )
            self._renamed(source, target, exchanged=False)

        self._call("rename", target, run)

    def rename_new(self, source: str, target: str, *, dir_fd: int) -> None:
        def run() -> None:
            self.inner.rename_new(source, target, dir_fd=dir_fd)
            self._renamed(source, target, exchanged=False)

        self._call("rename_new", target, run)

    def exchange(self, one: str, other: str, *, dir_fd: int) -> None:
        def run() -> None:
            self.inner.exchange(one, other, dir_fd=dir_fd)
            self._renamed(one, other, exchanged=True)

        self._call("exchange", other, run)

    def _renamed(self, source: str, target: str, *, exchanged: bool) -> None:
        moves = {source: target, target: source} if exchanged else {source: target}
        self._names = {fd: moves.get(name, name) for fd, name in self._names.items()}

    def unlink(self, path: str, *, dir_fd: int) -> None:
        self._call("unlink", path, lambda: self.inner.unlink(path, dir_fd=dir_fd))

    def mkdir(self, path: str, mode: int = 0o700, *, dir_fd: int | None = None) -> None:
        self._call("mkdir", path, lambda: self.inner.mkdir(path, mode, dir_fd=dir_fd))

    def rmdir(self, path: str, *, dir_fd: int) -> None:
        self._call("rmdir", path, lambda: self.inner.rmdir(path, dir_fd=dir_fd))

    def listdir(self, fd: int) -> list[str]:
        names: list[str] = self._call(
            "listdir", self._names[fd], lambda: self.inner.listdir(fd)
        )
        return names

    def flock(self, fd: int, operation: int) -> None:
        run = lambda: self.inner.flock(fd, operation)  # noqa: E731
        self._call("flock", self._names[fd], run)

    def lockf(self, fd: int, operation: int) -> None:
        run = lambda: self.inner.lockf(fd, operation)  # noqa: E731
        self._call("lockf", self._names[fd], run)
