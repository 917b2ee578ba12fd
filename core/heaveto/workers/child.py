"""One child process from its start to its end, in a thread of its own.

stdin, stdout, stderr, the exit and requests to end are waited for in one selector, so
nothing blocks on a child that closes stdin, writes without newlines or fills both
pipes. After the exit, pipes that a grandchild holds open are read for two more seconds
and then left.

The child leads its own session. TERM and KILL go to its group and to everything else in
its session, before the leader is reaped, while nobody else can have its number.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import psutil

from heaveto.errors import HeavetoError, OperationError
from heaveto.workers.launch import launch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from heaveto.workers.launch import Launched
    from heaveto.workers.logs import Log

__all__ = ["Child", "Ended", "Stream"]

_AFTER_EXIT_S = 2.0
_AFTER_KILL_S = 5.0
_POLL_S = 0.05
_CHUNK = 1 << 16


class Stream:
    """What a child writes to one descriptor: all into a log, its ends into memory.

    Attributes:
        log: Where all of it goes; set before the child runs.
        head: The first bytes, up to a limit.
        size: How many there were.
    """

    def __init__(self, *, head: int, tail: int) -> None:
        """Keep this many bytes of both ends."""
        self.log: Log | None = None
        self.head = bytearray()
        self.size = 0
        self._head_limit = head
        self._tail_limit = tail
        self._tail: deque[bytes] = deque()
        self._tail_size = 0

    def take(self, data: bytes) -> None:
        """Take what was read."""
        if self.log is not None:
            self.log.write(data)
        self.size += len(data)
        room = self._head_limit - len(self.head)
        if room > 0:
            self.head += data[:room]
        self._tail.append(data)
        self._tail_size += len(data)
        while self._tail_size - len(self._tail[0]) >= self._tail_limit:
            self._tail_size -= len(self._tail.popleft())

    @property
    def tail(self) -> bytes:
        """The last bytes."""
        return b"".join(self._tail)[-self._tail_limit :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a child ended."""

    code: int
    """Exit status, or minus the number of the signal."""
    lingering: bool
    """Whether processes of its group or session live on."""


class Child:
    """A process; :meth:`run` belongs to one thread, :meth:`end` to any."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        stdin: bytes | None,
        output: Stream,
        errors: Stream,
        on_start: Callable[[int], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Describe a child; nothing is started.

        Args:
            argv: The program and its arguments.
            cwd: Its working folder.
            env: Its whole environment.
            stdin: What it reads; None: it has no input.
            output: Gets its stdout.
            errors: Gets its stderr.
            on_start: Given the pid before the program runs; when it raises, the program
                never runs.
            monotonic: Seconds.
        """
        self._argv = argv
        self._cwd = cwd
        self._env = env
        self._stdin = stdin
        self._streams = (output, errors)
        self._on_start = on_start
        self._now = monotonic
        self._failure = b""
        self._code: int | None = None
        self._reaped = False
        self._exited_at: float | None = None
        self._kill_at: float | None = None
        self._killed_at: float | None = None
        self._lock = threading.Lock()
        self._asked: float | None = None
        self._wake: int | None = None

    def end(self, kill_after: float) -> None:
        """Ask for the end: TERM now, KILL after some seconds.

        A second call can only bring the KILL forward. Before the start it is kept,
        after the end it does nothing.
        """
        at = self._now() + kill_after
        with self._lock:
            self._asked = at if self._asked is None else min(at, self._asked)
            if self._wake is not None:
                with contextlib.suppress(BlockingIOError):
                    os.write(self._wake, b"!")

    def run(self) -> Ended:
        """Start the child and stay with it until it has ended.

        Raises:
            OperationError: ``not_started``.
        """
        launched = launch(
            self._argv,
            cwd=self._cwd,
            env=self._env,
            has_stdin=self._stdin is not None,
        )
        try:
            self._record(launched)
            self._stay(launched)
            return self._ended(launched)
        except BaseException:
            if not self._reaped:  # else its number may be somebody else's by now
                _signal_all(launched.pid, signal.SIGKILL)
            raise
        finally:
            launched.close()

    def _record(self, launched: Launched) -> None:
        try:
            self._on_start(launched.pid)
        except (OSError, HeavetoError, psutil.Error) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise OperationError(
                f"its process cannot be recorded: {reason}", code="not_started"
            ) from None
        launched.release()

    def _ended(self, launched: Launched) -> Ended:
        if self._failure.isdigit():
            raise launched.refusal(int(self._failure))
        lingering = any(_others(launched.pid))
        code = -signal.SIGKILL if self._code is None else self._code
        return Ended(code=code, lingering=lingering)

    # --- the loop

    def _stay(self, launched: Launched) -> None:
        """Pump until the child has ended and nothing more is to be read."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        exit_fd = _exit_descriptor(launched.pid)
        with contextlib.ExitStack() as stack:
            for fd in (wake_read, wake_write, exit_fd):
                if fd is not None:
                    stack.callback(os.close, fd)
            pipes = stack.enter_context(_Pipes())
            pipes.read(launched.stdout, self._streams[0].take)
            pipes.read(launched.stderr, self._streams[1].take)
            pipes.read(launched.failed, self._take_failure)
            if launched.stdin is not None:
                pipes.write(launched.stdin, self._stdin or b"", launched.close_stdin)
            pipes.watch(wake_read)
            if exit_fd is not None:
                pipes.watch(exit_fd)
            self._listen(wake_write)
            stack.callback(self._listen, None)
            while not self._is_over(launched.pid, pipes):
                pipes.wait(self._patience(exit_fd, pipes))
                self._look(launched, pipes, exit_fd)

    def _listen(self, wake: int | None) -> None:
        with self._lock:
            self._wake = wake

    def _take_failure(self, data: bytes) -> None:
        self._failure += data

    def _look(self, launched: Launched, pipes: _Pipes, exit_fd: int | None) -> None:
        """See whether the child has exited and whether it is to be ended."""
        if self._exited_at is None and self._has_exited(launched.pid):
            self._exited_at = self._now()
            if launched.stdin is not None:
                pipes.drop(launched.stdin)
            if exit_fd is not None:
                pipes.drop(exit_fd)
        with self._lock:
            asked = self._asked
        if asked is None:
            return
        if self._kill_at is None:
            _signal_all(launched.pid, signal.SIGTERM)
        self._kill_at = asked
        if self._killed_at is None and self._now() >= asked:
            _signal_all(launched.pid, signal.SIGKILL)
            self._killed_at = self._now()

    def _has_exited(self, pid: int) -> bool:
        try:
            self._code = _exit_code(pid)
        except ChildProcessError:
            self._reaped = True
            raise OperationError(
                "its exit status was lost: SIGCHLD is ignored, or another part of this "
                "program waits for all children"
            ) from None
        return self._code is not None

    def _is_over(self, pid: int, pipes: _Pipes) -> bool:
        now = self._now()
        if self._killed_at is not None and now - self._killed_at >= _AFTER_KILL_S:
            return True  # it is stuck in the kernel
        if self._exited_at is None or self._awaits_others(pid):
            return False
        return not pipes.open or now - self._exited_at >= _AFTER_EXIT_S

    def _awaits_others(self, pid: int) -> bool:
        """Whether something of a group that is being ended is still there."""
        return self._kill_at is not None and any(_others(pid))

    def _patience(self, exit_fd: int | None, pipes: _Pipes) -> float | None:
        """Return how long nothing needs to be looked at; None is for ever."""
        times: list[float] = []
        if self._exited_at is None and exit_fd is None:
            times.append(self._now() + _POLL_S)
        if self._kill_at is not None and self._killed_at is None:
            times.append(self._kill_at)
        if self._kill_at is not None and self._exited_at is not None:
            times.append(self._now() + _POLL_S)
        if self._killed_at is not None:
            times.append(self._killed_at + _AFTER_KILL_S)
        if self._exited_at is not None and pipes.open:
            times.append(self._exited_at + _AFTER_EXIT_S)
        return max(0.0, min(times) - self._now()) if times else None


class _Pipes:
    """The descriptors of a child, waited for together.

    Attributes:
        open: How many of those that are read have not come to their end.
    """

    def __init__(self) -> None:
        self.open = 0
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()

    def wait(self, patience: float | None) -> None:
        """Handle what is ready, after waiting for it."""
        for key, _ in self._selector.select(patience):
            key.data()

    def drop(self, fd: int) -> None:
        """Forget a descriptor; again is harmless."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(fd)

    def watch(self, fd: int) -> None:
        """Wake up when a descriptor is readable."""
        os.set_blocking(fd, False)

        def clear() -> None:
            with contextlib.suppress(OSError):
                os.read(fd, _CHUNK)

        self._selector.register(fd, selectors.EVENT_READ, clear)

    def read(self, fd: int, take: Callable[[bytes], None]) -> None:
        """Hand on what can be read, up to the end."""
        os.set_blocking(fd, False)
        self.open += 1

        def ready() -> None:
            try:
                data = os.read(fd, _CHUNK)
            except BlockingIOError:
                return
            if data:
                take(data)
            else:
                self.open -= 1
                self.drop(fd)

        self._selector.register(fd, selectors.EVENT_READ, ready)

    def write(self, fd: int, data: bytes, close: Callable[[], None]) -> None:
        """Write all of it; who closed the other end has read enough."""
        os.set_blocking(fd, False)
        rest = memoryview(data)

        def ready() -> None:
            nonlocal rest
            try:
                rest = rest[os.write(fd, rest[:_CHUNK]) :] if rest else rest
            except BlockingIOError:
                return
            except OSError:
                rest = rest[:0]
            if not rest:
                self.drop(fd)
                close()

        self._selector.register(fd, selectors.EVENT_WRITE, ready)


# --- what the system knows


def _exit_descriptor(pid: int) -> int | None:
    """Return a descriptor that is readable after the exit, where the system has one."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _exit_code(pid: int) -> int | None:
    """Return how our child has exited, without reaping it; None while it lives.

    Raises:
        ChildProcessError: Somebody else in this process reaped it.
    """
    if not hasattr(os, "waitid"):
        return _exit_code_by_reaping(pid)
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def _exit_code_by_reaping(pid: int) -> int | None:
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def _others(leader: int) -> Iterator[int]:
    """Go through the living processes of a group and session but for the leader."""
    for pid in psutil.pids():
        if pid != leader and leader in _group_and_session(pid) and _lives(pid):
            yield pid


def _group_and_session(pid: int) -> tuple[int, int]:
    try:
        return os.getpgid(pid), os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return 0, 0


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _signal_all(leader: int, number: signal.Signals) -> None:
    """Signal a group, and what moved into other groups of its session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
    for pid in list(_others(leader)):
        if _group_and_session(pid)[0] != leader:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
