"""The program as a user has it: processes, their output, their exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from heaveto.files import lock_holder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Answer", "Program", "program", "until"]

LIMIT_S = 60.0
T = TypeVar("T")
COMMAND = (sys.executable, "-P", "-m", "heaveto")


@dataclass(frozen=True, slots=True)
class Answer:
    """What one command line came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one object on standard output."""
        lines = self.out.splitlines()
        assert len(lines) == 1, self
        return json.loads(lines[0])

    @property
    def error(self) -> str:
        """The code of the error object."""
        code = self.json["error"]["code"]
        assert isinstance(code, str)
        return code


@dataclass
class Program:
    """heaveto with a home and an environment of its own."""

    home: Path
    environment: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Keep the user's own homes and settings out."""
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("HEAVETO_")},
            "HEAVETO_HOME": str(self.home),
            "HEAVETO_CONFIG": str(self.home.parent / "no-config.toml"),
            "LIONAGI_HOME": str(self.home.parent / "no-lionagi"),
            "XDG_STATE_HOME": str(self.home.parent / "state"),
            "PYTHONUTF8": "1",
            **self.environment,
        }

    def __call__(
        self, *words: str | Path, stdin: bytes = b"", timeout: float = LIMIT_S
    ) -> Answer:
        """Run a command line to its end."""
        done = subprocess.run(
            [*COMMAND, *map(str, words)],
            input=stdin,
            capture_output=True,
            env=self.environment,
            timeout=timeout,
            check=False,
            cwd=self.home.parent,
        )
        return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *words: str | Path) -> subprocess.Popen[bytes]:
        """Start a command line and leave it running."""
        process = subprocess.Popen(
            [*COMMAND, *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
            cwd=self.home.parent,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def run_live(self, flow: Path, *words: str) -> tuple[subprocess.Popen[bytes], str]:
        """Start ``run`` and wait until its session is there; return its id."""
        before = {run["session_id"] for run in self.runs()}
        process = self.start("run", flow, *words)

        def found() -> str | None:
            new = [r for r in self.runs() if r["session_id"] not in before]
            assert process.poll() is None or new, process.communicate()
            return new[0]["session_id"] if new else None

        return process, until(found)

    def runs(self) -> list[dict[str, Any]]:
        """Return the list."""
        answer = self("ls", "--json", "--all")
        assert answer.code == 0, answer
        runs = answer.json["runs"]
        assert isinstance(runs, list)
        return runs

    def show(self, target: str) -> dict[str, Any]:
        """Return one run."""
        answer = self("show", target, "--json")
        assert answer.code == 0, answer
        shown = answer.json
        assert isinstance(shown, dict)
        return shown

    def end(self, process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
        """Wait for a started one and return code, stdout, stderr."""
        out, err = process.communicate(timeout=LIMIT_S)
        return process.returncode, out.decode(), err.decode()

    def close(self) -> None:
        """End whatever was started and still runs."""
        for process in self.started:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        self._end_detached()

    def _end_detached(self) -> None:
        """End runners of this home that a failed test left behind."""
        for lock in self.home.glob("runs/*/.lock"):
            pid = lock_holder(lock)
            if pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def until(ask: Callable[[], T | None], *, limit: float = LIMIT_S) -> T:
    """Ask again and again until the answer is something, and return it."""
    deadline = time.monotonic() + limit
    while True:
        found = ask()
        if found:
            return found
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


@contextlib.contextmanager
def program(folder: Path, **environment: str) -> Iterator[Program]:
    """Give a program with a fresh home below a folder."""
    made = Program(folder / "home", environment)
    try:
        yield made
    finally:
        made.close()
