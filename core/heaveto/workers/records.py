"""``process.json``: which processes an operation started, and which of them still live.

The record is written before the command can run and removed when nothing of its
process group is left. A process is the recorded one only when it was started at the
recorded moment: on Linux that is the kernel's own count of ticks since the boot,
together with the id of the boot, so neither a stepped clock nor a reused pid deceives;
elsewhere it is the create time.

A group outlives its leader. Its members are believed to be ours while the leader lives
or, after its death, when their environment names this run; a pid that names a living
group is never given out again, so a group that is ours cannot be somebody else's too.

What made a session of its own has left both. It is found by its environment, which
names its run, its operation and the file with its context below this very run
directory; this process and those that it descends from are never counted.

All calls block and are safe in any thread.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from heaveto.errors import HeavetoError
from heaveto.files import Directory, replace_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = [
    "RECORD",
    "ProcessRecord",
    "Survivor",
    "end_group",
    "end_survivors",
    "members",
    "remove_record",
    "survivors",
    "write_record",
]

RECORD = "process.json"

_LIMIT = 1 << 16
_TOLERANCE_S = 0.1
_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """The leader of an operation's process group."""

    run_id: str
    operation: str
    pid: int
    """Also the id of its process group and of its session."""
    create_time: float
    """Epoch seconds, by the clock of the moment it was written."""
    ticks: int | None
    """Since the boot; None where the system does not tell."""
    boot: str | None
    host: str
    command: str
    """The first word of what it runs."""

    @classmethod
    def of(
        cls, pid: int, *, run_id: str, operation: str, command: str
    ) -> ProcessRecord:
        """Describe a process that lives.

        Raises:
            psutil.Error: It does not.
        """
        return cls(
            run_id=run_id,
            operation=operation,
            pid=pid,
            create_time=psutil.Process(pid).create_time(),
            ticks=_ticks(pid),
            boot=_boot(),
            host=socket.gethostname(),
            command=command,
        )

    def as_dict(self) -> dict[str, object]:
        """Return the JSON of ``process.json``."""
        return {
            "run_id": self.run_id,
            "operation": self.operation,
            "pid": self.pid,
            "group": self.pid,
            "create_time": self.create_time,
            "ticks": self.ticks,
            "boot": self.boot,
            "host": self.host,
            "command": self.command,
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, object]) -> ProcessRecord | None:
        """Read a record; None when it names no process."""
        pid, ticks = _whole(value.get("pid")), _whole(value.get("ticks"))
        created = value.get("create_time")
        if pid is None or isinstance(created, bool):
            return None
        if not isinstance(created, int | float):
            return None
        return cls(
            run_id=_word(value.get("run_id")) or "",
            operation=_word(value.get("operation")) or "",
            pid=pid,
            create_time=float(created),
            ticks=ticks,
            boot=_word(value.get("boot")),
            host=_word(value.get("host")) or "",
            command=_word(value.get("command")) or "",
        )

    def is_led(self) -> bool | None:
        """Tell whether the leader lives; None: a stranger has its pid."""
        try:
            process = psutil.Process(self.pid)
            created = process.create_time()
            ended = process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False
        except psutil.AccessDenied:
            return None
        if self.ticks is not None and self.boot is not None:
            same = (_ticks(self.pid), _boot()) == (self.ticks, self.boot)
        else:
            same = abs(created - self.create_time) <= _TOLERANCE_S
        return not ended if same else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivor:
    """A living process that an operation of a run left behind."""

    pid: int
    operation: str
    command: str
    group: int
    create_time: float

    def as_dict(self) -> dict[str, object]:
        """Return it as a plain value."""
        return {
            "pid": self.pid,
            "operation": self.operation,
            "command": self.command,
            "group": self.group,
            "create_time": self.create_time,
        }


def write_record(directory: Directory, record: ProcessRecord) -> None:
    """Put the record into an operation's folder, whole or not at all."""
    data = json.dumps(record.as_dict()).encode()
    replace_file(directory, RECORD, data, sync=False)


def remove_record(directory: Directory) -> None:
    """Forget a process group that is gone."""
    directory.remove(RECORD)


class Census:
    """The user's own processes that name a run in their environment, at one moment.

    Whoever asks about many runs takes one: all environments are read once.
    """

    def __init__(self) -> None:
        """Read them."""
        user = os.getuid()
        ours = [psutil.Process(), *psutil.Process().parents()]
        self._of: dict[str, list[tuple[psutil.Process, Mapping[str, str]]]] = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.uids().real != user or process in ours:
                    continue
                environ = process.environ()
                if run_id := environ.get("HEAVETO_RUN_ID"):
                    self._of.setdefault(run_id, []).append((process, environ))

    def of(self, run_id: str) -> list[tuple[psutil.Process, Mapping[str, str]]]:
        """Return the processes that name a run, with their environments."""
        return self._of.get(run_id, [])


def survivors(run_dir: Path, census: Census | None = None) -> tuple[Survivor, ...]:
    """Find what still lives of the processes that a run recorded.

    Args:
        run_dir: The run directory; its runner is not asked, so this says something
            about leftovers only when the runner is dead.
        census: Taken a moment ago; None takes one.

    Returns:
        Leaders, members of their process groups and sessions (none for records of
        another machine or another boot), and what left those, by pid.
    """
    found: dict[int, Survivor] = {}
    for record in _records(run_dir):
        for process in members(record):
            with contextlib.suppress(psutil.Error):
                found[process.pid] = Survivor(
                    pid=process.pid,
                    operation=record.operation,
                    command=_command(process, record),
                    group=record.pid,
                    create_time=process.create_time(),
                )
    for process, operation in _escaped(run_dir, census or Census()):
        with contextlib.suppress(psutil.Error):
            if process.pid not in found:
                found[process.pid] = Survivor(
                    pid=process.pid,
                    operation=operation,
                    command=process.name(),
                    group=os.getpgid(process.pid),
                    create_time=process.create_time(),
                )
    return tuple(found[pid] for pid in sorted(found))


def end_survivors(run_dir: Path, grace: float = 5.0) -> tuple[Survivor, ...]:
    """End what still lives: TERM, ``grace`` seconds, KILL.

    Returns:
        What lives even then (another user's, or stuck in the kernel).
    """
    for record in _records(run_dir):
        end_group(record, grace)
    _end(lambda: [one for one, _ in _escaped(run_dir, Census())], grace)
    return survivors(run_dir)


def end_group(record: ProcessRecord, grace: float) -> None:
    """End a process group whose leader may be gone: TERM, wait, KILL, wait."""
    _end(lambda: members(record), grace)


def _end(find: Callable[[], list[psutil.Process]], grace: float) -> None:
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 1.0)):
        left = find()
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)  # checks the create time itself
        deadline = time.monotonic() + patience
        while left and time.monotonic() < deadline:
            time.sleep(_POLL_S)
            left = find()
        if not left:
            return


def members(record: ProcessRecord) -> list[psutil.Process]:
    """Return the living processes of a recorded group and session."""
    if record.host != socket.gethostname():
        return []
    if record.boot is not None and record.boot != _boot():
        return []
    led = record.is_led()
    if led is None:
        return []
    return [
        process
        for process in psutil.process_iter()
        if _belongs(process.pid, record.pid) and _is_ours(process, record, led=led)
    ]


def _escaped(run_dir: Path, census: Census) -> list[tuple[psutil.Process, str]]:
    """Return the user's own living processes whose environment names this run."""
    found = []
    for process, environ in census.of(run_dir.name):
        operation = environ.get("HEAVETO_OPERATION", "")
        with contextlib.suppress(psutil.Error, OSError):
            if (
                _is_below(environ.get("HEAVETO_CONTEXT", ""), run_dir, operation)
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append((process, operation))
    return found


def _is_below(context: str, run_dir: Path, operation: str) -> bool:
    """Tell whether a file of a context is that of an operation of this run."""
    if not operation or "/" in operation:
        return False
    wanted = os.path.join(os.path.realpath(run_dir), "operations", operation)
    return os.path.realpath(os.path.dirname(context)) == wanted


def _belongs(pid: int, group: int) -> bool:
    try:
        return os.getpgid(pid) == group or os.getsid(pid) == group
    except (ProcessLookupError, PermissionError):
        return False


def _is_ours(process: psutil.Process, record: ProcessRecord, *, led: bool) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        if led:
            return True
        return process.environ().get("HEAVETO_RUN_ID") == record.run_id
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return False


def _records(run_dir: Path) -> Iterator[ProcessRecord]:
    """Read every record of a run; what cannot be read names no process."""
    try:
        root = Directory.open(run_dir / "operations")
    except (HeavetoError, OSError):
        return
    with root:
        for name in root.names():
            with contextlib.suppress(HeavetoError, OSError, ValueError):
                with root.subdirectory(name) as folder:
                    value = json.loads(folder.read(RECORD, limit=_LIMIT))
                record = (
                    ProcessRecord.from_dict(value) if isinstance(value, dict) else None
                )
                if record is not None:
                    yield record


def _command(process: psutil.Process, record: ProcessRecord) -> str:
    """Name what a process runs: one word, never its arguments."""
    return record.command if process.pid == record.pid else process.name()


def _word(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 1:
        return None
    return value


def _ticks(pid: int) -> int | None:
    """Return when a process was started, in the kernel's ticks since the boot."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
        return int(text.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def _boot() -> str | None:
    """Return the id of the boot."""
    if sys.platform != "linux":
        return None
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
