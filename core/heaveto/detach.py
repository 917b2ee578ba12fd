"""Runners of their own session: started, registered, then left alone.

A started runner is ``python -m heaveto <verb> …`` with ``--announce``: standard input
is nothing, standard output and error are pipes until the run is registered. Then the
runner writes one JSON line, puts both on ``runner.log`` and goes on without its parent.
A runner that cannot start writes the error object of PRODUCT 2 instead, or dies with
words on standard error; either way :func:`start` raises, and nothing is left unsaid.

The protocol is one line::

    {"schema":1,"run_id":…,"session_id":…,"home":…,"pid":…}
    {"schema":1,"error":{"code":…,"message":…,"candidates":[…]}}
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from heaveto.errors import HeavetoError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["ANNOUNCE", "StartError", "Started", "announce", "start"]

ANNOUNCE = "--announce"
"""The hidden flag by which a verb knows that it is a started runner."""

_ERROR_LIMIT = 4000
_OF_AN_OPERATION = frozenset(
    f"HEAVETO_{name}" for name in ("RUN_ID", "OPERATION", "ARTIFACTS", "CONTEXT")
)


class StartError(HeavetoError):
    """A runner ended before its run was registered.

    Attributes:
        exit_code: What it ended with; negative for a signal.
    """

    default_code = "runner_failed"

    def __init__(
        self,
        message: str,
        *,
        exit_code: int,
        code: str | None = None,
        candidates: Sequence[str] = (),
    ) -> None:
        """Keep the exit code beside the sentence."""
        super().__init__(message, code=code, candidates=candidates)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A registered run and its process."""

    run_id: str
    session_id: str
    home: str
    pid: int


def _outside(environ: Mapping[str, str]) -> dict[str, str]:
    """Leave out what says that a process belongs to an operation of another run."""
    return {name: environ[name] for name in environ if name not in _OF_AN_OPERATION}


def start(
    words: Sequence[str],
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    python: str = sys.executable,
) -> Started:
    """Start a runner in its own session and wait until its run is registered.

    Args:
        words: The command line after ``heaveto``, without :data:`ANNOUNCE`; the verb
            stands first.
        cwd: Where it runs; None keeps the present folder.
        environment: Added to its inherited environment.
        python: The interpreter.

    Raises:
        StartError: It ended before the run was registered; with its own code, sentence
            and exit code where it gave them.
    """
    child = subprocess.Popen(
        [python, "-P", "-m", "heaveto", words[0], ANNOUNCE, *words[1:]],
        cwd=cwd,
        env={**_outside(os.environ), **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdout is not None
    assert child.stderr is not None
    said: list[bytes] = []
    listener = threading.Thread(
        target=_listen, args=(child.stderr, said), name="runner-stderr", daemon=True
    )
    listener.start()
    line = child.stdout.readline()
    child.stdout.close()
    message = _read(line)
    if message is not None and "run_id" in message:
        listener.join()
        threading.Thread(target=child.wait, name="runner-reaper", daemon=True).start()
        return Started(
            run_id=str(message["run_id"]),
            session_id=str(message["session_id"]),
            home=str(message["home"]),
            pid=child.pid,
        )
    code = child.wait()
    listener.join()
    raise _failure(message, b"".join(said), code)


def announce(*, run_id: str, session_id: str, home: Path, log: int) -> None:
    """Tell the parent that the run is registered, then write to the log alone.

    Args:
        run_id: The run.
        session_id: Its session.
        home: Its home.
        log: A descriptor of ``runner.log``, open for appending.
    """
    line = json.dumps(
        {
            "schema": 1,
            "run_id": run_id,
            "session_id": session_id,
            "home": str(home),
            "pid": os.getpid(),
        }
    )
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), line.encode() + b"\n")
    os.dup2(log, sys.stdout.fileno())
    os.dup2(log, sys.stderr.fileno())


def _listen(stream: IO[bytes], said: list[bytes]) -> None:
    """Keep the first part of what a runner says, and drain the rest."""
    kept = 0
    while chunk := stream.read1(65_536):  # type: ignore[attr-defined]
        if kept < _ERROR_LIMIT:
            said.append(chunk[: _ERROR_LIMIT - kept])
            kept += len(said[-1])
    stream.close()


def _read(line: bytes) -> dict[str, object] | None:
    """Return the object that a runner wrote, None when it is none."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _failure(
    message: dict[str, object] | None, said: bytes, exit_code: int
) -> StartError:
    """Return the error for a runner that ended before it was registered."""
    error = message.get("error") if message else None
    if isinstance(error, dict):
        candidates = error.get("candidates")
        return StartError(
            str(error.get("message")),
            code=str(error.get("code")),
            candidates=candidates if isinstance(candidates, list) else (),
            exit_code=exit_code,
        )
    words = said.decode("utf-8", "replace").strip().splitlines()
    how = f"signal {-exit_code}" if exit_code < 0 else f"status {exit_code}"
    last = f": {words[-1]}" if words else ""
    return StartError(f"the runner ended with {how}{last}", exit_code=exit_code)
