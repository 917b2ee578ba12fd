"""Writer processes that are really killed.

As a program (``python -m harness.child``) it reads one job a line, forks for each, and
answers with what the child told before it ended. The child runs one script over system
calls that strike at a given seam with a real SIGKILL; nothing of it survives but the
files and the words that it had already sent. :class:`Killer` is the other side.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.faults import Fault
    from harness.scenario import Script

__all__ = ["Killer"]

ROOT = Path(__file__).resolve().parents[2]


class Killer:
    """Starts writer processes and lets them die where it is told."""

    def __enter__(self) -> Self:
        path = os.pathsep.join(str(ROOT / part) for part in ("core", "tests"))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "harness.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(self, script: Script, path: Path, faults: Sequence[Fault]) -> list[str]:
        """Run a script in a new process; return what it told and how it ended.

        The last line is ``signal N`` or ``exit N``; ``struck`` comes where a fault was
        carried out.
        """
        job = {
            "script": asdict(script),
            "path": str(path),
            "faults": [asdict(fault) for fault in faults],
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        lines: list[str] = json.loads(self._process.stdout.readline())
        return lines


def _serve() -> None:
    """Fork for each job and pass on what the child told."""
    for line in sys.stdin:
        job = json.loads(line)
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            _child(job, writer)
        os.close(writer)
        with os.fdopen(reader) as told:
            lines = told.read().splitlines()
        status = os.waitpid(pid, 0)[1]
        if os.WIFSIGNALED(status):
            lines.append(f"signal {os.WTERMSIG(status)}")
        else:
            lines.append(f"exit {os.waitstatus_to_exitcode(status)}")
        sys.stdout.write(json.dumps(lines) + "\n")
        sys.stdout.flush()


def _child(job: dict[str, Any], out: int) -> None:
    """Run one script and end without any cleanup."""
    from harness.faults import Fault, FaultyOs
    from harness.scenario import Script, drive

    signal.signal(signal.SIGINT, signal.SIG_DFL)

    def tell(line: str) -> None:
        os.write(out, line.encode() + b"\n")

    path = Path(job["path"])
    system = FaultyOs(
        [Fault(**fault) for fault in job["faults"]],
        real_kill=True,
        on_strike=lambda fault: tell("struck"),
        folder=path.parent,
    )
    code = 0
    try:
        asyncio.run(drive(Script(**job["script"]), path, tell, system=system))
    except BaseException as error:
        tell(f"raised {type(error).__name__}")
        code = 1
    os._exit(code)


if __name__ == "__main__":
    import harness.faults
    import harness.scenario  # noqa: F401  (loaded before the first fork)

    _serve()
