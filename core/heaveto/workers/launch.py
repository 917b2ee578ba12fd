"""Starting a program so that it is on record before it runs and dies with its runner.

The program is not started directly but by a few lines of Python that become it;
``exec`` keeps pid, group and start time. These lines

* wait for the program's environment, which is sent when ``process.json`` is on disk; a
  runner that dies before leaves a child that just exits, so no command ever runs
  unrecorded, and what a worker's ``env`` sets cannot disturb the interpreter;
* ask the kernel (Linux) for TERM when the thread that started them ends. Doing that in
  ``preexec_fn`` would run Python between fork and exec of a process with threads;
* put back what the interpreter set for signals, and report an ``exec`` that fails
  through a pipe that a successful one closes.

The price is the start of a bare interpreter, about a hundredth of a second for each
operation (``tests/bench/bench_workers.py`` prints it).
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from heaveto.errors import OperationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import IO

__all__ = ["Launched", "launch"]

_REAP_S = 5.0

_BECOME = """
import os, sys, _signal
go, failed = int(sys.argv[1]), int(sys.argv[2])
if sys.platform == "linux":
    try:
        import _ctypes as c
        c.call_function(c.dlsym(c.dlopen(None, 2), "prctl"), (1, 15, 0, 0, 0))
    except Exception:
        try:
            import ctypes
            ctypes.CDLL(None).prctl(1, 15, 0, 0, 0)
        except Exception:
            pass
word = b""
while part := os.read(go, 65536):
    word += part
size, _, rest = word.partition(b":")
if not size or len(rest) != int(size):
    os._exit(0)
os.close(go)
os.set_inheritable(failed, False)
for name in ("SIGPIPE", "SIGXFSZ", "SIGXFZ", "SIGINT"):
    if hasattr(_signal, name):
        _signal.signal(getattr(_signal, name), _signal.SIG_DFL)
environment = dict(one.split(b"=", 1) for one in rest.split(b"\\0") if one)
try:
    os.execvpe(sys.argv[3], sys.argv[3:], environment)
except OSError as error:
    os.write(failed, str(error.errno).encode())
os._exit(127)
"""


class Launched:
    """A child that waits to become its program.

    Attributes:
        pid: The child; it leads a session and a process group of its own.
        failed: A descriptor that gives the number of the error when the program could
            not be executed, and its end when it could.
        stdin: Where its input is written; None when it has none.
        stdout: Where its output is read.
        stderr: Where its errors are read.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        *,
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        go: int,
        failed: int,
    ) -> None:
        """Adopt a process and two descriptors; see :func:`launch`."""
        self._process = process
        self._env = env
        self._argv = argv
        self._cwd = cwd
        self._go = go
        self.pid = process.pid
        self.failed = failed
        self.stdin = None if process.stdin is None else process.stdin.fileno()
        self.stdout = _fileno(process.stdout)
        self.stderr = _fileno(process.stderr)

    def release(self) -> None:
        """Let it become its program."""
        whole = b"\0".join(
            os.fsencode(f"{name}={value}") for name, value in self._env.items()
        )
        rest = memoryview(b"%d:" % len(whole) + whole)
        with contextlib.suppress(BrokenPipeError):
            while rest:
                rest = rest[os.write(self._go, rest) :]
        self._drop()

    def _drop(self) -> None:
        go, self._go = self._go, -1
        if go >= 0:
            os.close(go)

    def close_stdin(self) -> None:
        """Tell it that its input ends here."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def close(self) -> None:
        """Close everything and reap it: it has exited, was killed or not released."""
        self._drop()
        os.close(self.failed)
        for stream in (
            self._process.stdin,
            self._process.stdout,
            self._process.stderr,
        ):
            if stream is not None:
                stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # stuck in the kernel
            self._process.wait(_REAP_S)

    def refusal(self, number: int) -> OperationError:
        """Say why the program could not be executed."""
        return _refusal(number, self._argv, self._cwd)


def _fileno(stream: IO[bytes] | None) -> int:
    if stream is None:
        raise OperationError("the child has no pipes", code="not_started")
    return stream.fileno()


def launch(
    argv: Sequence[str], *, cwd: str, env: Mapping[str, str], has_stdin: bool
) -> Launched:
    """Start a child that waits for :meth:`Launched.release`.

    Blocking, some milliseconds. On Linux the child is sent TERM when the calling thread
    ends.

    Raises:
        OperationError: ``not_started``.
    """
    if not sys.executable:
        raise OperationError(
            "the interpreter's own path is unknown", code="not_started"
        )
    go_read, go_write = os.pipe()
    failed_read, failed_write = os.pipe()
    try:
        process = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", "-c", _BECOME),
                *(str(go_read), str(failed_write)),
                *argv,
            ],
            stdin=subprocess.PIPE if has_stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            pass_fds=(go_read, failed_write),
            start_new_session=True,
            bufsize=0,
        )
    except (OSError, ValueError) as error:
        os.close(go_write)
        os.close(failed_read)
        number = error.errno if isinstance(error, OSError) else None
        raise _refusal(number, argv, cwd) from None
    finally:
        os.close(go_read)
        os.close(failed_write)
    return Launched(
        process, argv=argv, cwd=cwd, env=env, go=go_write, failed=failed_read
    )


def _refusal(number: int | None, argv: Sequence[str], cwd: str) -> OperationError:
    """Say whether the folder, the size or the program is at fault."""
    if number is None:
        text = "an argument holds NUL"
    elif number == errno.E2BIG:
        text = "the arguments and the environment are too long"
    elif not os.path.isdir(cwd):
        text = f"there is no folder {cwd}"
    else:
        text = f"{argv[0]} cannot be executed: {os.strerror(number)}"
    return OperationError(text, code="not_started")
