"""Homes, rows, steerables and child processes for the tests of steering."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import heaveto
from heaveto import liveness
from heaveto.runs import Home
from heaveto.statedb import prepare, writing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CORE = Path(heaveto.__file__).parents[1]
TESTS = Path(__file__).parents[1]


def make_home(path: Path) -> Home:
    """Make a home with an empty database."""
    home = Home(path)
    home.make()
    prepare(home.state_db, create=True, busy=5)
    return home


def sql(home: Home | Path, statement: str, given: Any = ()) -> list[tuple[Any, ...]]:
    """Run a statement as another program would."""
    path = home.state_db if isinstance(home, Home) else home
    with writing(path, busy=5, own=False) as connection:
        return connection.execute(statement, given).fetchall()


def add_session(
    home: Home,
    session_id: str,
    *,
    run_id: str | None = "20261129T101500-a1b2c3",
    status: str = "running",
    kind: str | None = "flow",
    marker: str | None = "active",
    updated_at: float = 1.0,
    invocation_id: str | None = None,
    metadata: dict[str, object] | None = None,
) -> str:
    """Write a session of this process and return its id."""
    stored = {**liveness.identity(), **(metadata or {})}
    if marker is not None:
        stored["flow_control_poller"] = marker
    sql(
        home,
        "INSERT INTO sessions (id, run_id, status, invocation_kind, invocation_id,"
        " node_metadata, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, 1.0, ?)",
        (
            session_id,
            run_id,
            status,
            kind,
            invocation_id,
            json.dumps(stored),
            updated_at,
        ),
    )
    return session_id


def add_control(
    home: Home,
    control_id: str,
    session_id: str,
    verb: str = "pause",
    *,
    payload: str | None = None,
    created_at: float = 1.0,
    result: str | None = None,
    claimed_at: float | None = None,
    applied_at: float | None = None,
) -> str:
    """Write a control as another program would and return its id."""
    sql(
        home,
        "INSERT INTO session_controls (id, session_id, verb, payload, created_at,"
        " claimed_at, applied_at, result) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            control_id,
            session_id,
            verb,
            payload,
            created_at,
            claimed_at,
            applied_at,
            result,
        ),
    )
    return control_id


class Recorder:
    """A steerable that remembers what was done to it."""

    def __init__(self, *, pending: bool = True) -> None:
        self.done: list[str] = []
        self.messages: list[dict[str, object]] = []
        self.pending = pending
        self.fails: BaseException | None = None

    def _do(self, what: str) -> None:
        if self.fails is not None:
            raise self.fails
        self.done.append(what)

    def pause(self) -> None:
        self._do("pause")

    def resume(self) -> None:
        self._do("resume")

    def stop(self) -> None:
        self._do("stop")

    def has_pending(self) -> bool:
        return self.pending

    def append_message(self, entry: dict[str, object]) -> None:
        self._do("message")
        self.messages.append(entry)

    @property
    def texts(self) -> list[object]:
        return [entry["text"] for entry in self.messages]


def fingerprint(folder: Path) -> dict[str, tuple[str, int]]:
    """Return every file below a folder with the digest of its bytes and its mode."""
    found = {}
    for path in sorted(folder.rglob("*")):
        digest = ""
        if path.is_file():
            digest = hashlib.blake2b(path.read_bytes()).hexdigest()
        found[str(path.relative_to(folder))] = (digest, path.stat().st_mode)
    return found


class Child:
    """A child process that runs a piece of Python and talks over pipes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid

    def expect(self, word: str) -> str:
        """Wait for a line that begins with a word and return the rest of it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(word):
                return line.removeprefix(word).strip()
        rest = self.process.stderr.read() if self.process.stderr else ""
        raise AssertionError(f"the child ended before it said {word!r}: {rest}")

    def tell(self, line: str = "") -> None:
        """Write a line to the child."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """Kill it and wait for its end."""
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """Wait for its own end and return its status."""
        return self.process.wait(timeout=60)


@contextmanager
def child(code: str, *arguments: object) -> Iterator[Child]:
    """Run a piece of Python in a process of its own; kill it in the end.

    Args:
        code: The program; ``sys.argv[1:]`` holds the arguments.
        arguments: Given as text.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (CORE, TESTS)))},
    )
    try:
        yield Child(process)
    finally:
        process.kill()
        process.communicate()


def run_child(code: str, *arguments: object) -> str:
    """Run a piece of Python to its end and return what it printed."""
    with child(code, *arguments) as running:
        out, err = running.process.communicate(timeout=60)
        assert running.process.returncode == 0, err
        return out


def run_children(codes: Sequence[tuple[str, Sequence[object]]]) -> list[str]:
    """Run several programs at once to their ends and return what each printed."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (CORE, TESTS)))},
        )
        for code, arguments in codes
    ]
    said = []
    for process in running:
        out, err = process.communicate(timeout=100)
        assert process.returncode == 0, err
        said.append(out)
    return said
