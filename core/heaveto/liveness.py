"""Is the process of a run there? Checked, not believed (PRODUCT 6.3).

A runner holds its run's ``.lock`` while it lives and records who it is in the row's
``node_metadata`` under the names that lionagi uses. A clock that jumps, SIGSTOP and a
sleeping machine are not death: the lock does not care, and where there is none a
process is known by its pid and its distance from the boot, which a clock step moves on
both sides alike.

The module decides; :class:`Machine` asks the system and can be replaced.
"""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heaveto.files import lock_holder
from heaveto.text import plain

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["BOOT_TOLERANCE", "MACHINE", "Liveness", "Machine", "identity", "judge"]

BOOT_TOLERANCE = 5.0
"""Seconds by which two readings of the same boot time may differ."""
_CREATE_TOLERANCE = 0.1
"""Seconds by which two readings of the same start of a process may differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Liveness:
    """Whether a run's process is there, and why we think so.

    ``alive`` is True, False, or None when it cannot be told (another host, no right to
    look, nothing recorded). Only False refuses a control.
    """

    alive: bool | None
    why: str
    pid: int | None = None
    """The verified process when ``alive`` is True, else the recorded one."""
    code: str = ""
    """``why`` for programs: ``ended lock_held process_found process_gone pid_reused
    rebooted other_host no_permission no_process_recorded``."""


class Machine:
    """What the system says about itself and its processes.

    Attributes:
        starts_stay: A stepped clock moves the boot time alone and leaves the start
            times of processes (macOS); elsewhere it moves both.
    """

    starts_stay = sys.platform == "darwin"

    def host(self) -> str:
        """Return this machine's name."""
        return socket.gethostname()

    def boot_time(self) -> float:
        """Return when it was booted, by its present clock."""
        import psutil  # its import is a tenth of a short verb; see also below

        return float(psutil.boot_time())

    def started(self, pid: int) -> float | None:
        """Return when a process was started, by the present clock; None when gone.

        Raises:
            PermissionError: It may not be looked at.
        """
        import psutil

        try:
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            return float(process.create_time())
        except psutil.NoSuchProcess:
            return None
        except psutil.AccessDenied:
            raise PermissionError(pid) from None

    def lock_holder(self, path: Path) -> int | None:
        """Return who holds a run's lock; see :func:`heaveto.files.lock_holder`."""
        return lock_holder(path)


MACHINE = Machine()


def identity(machine: Machine = MACHINE) -> dict[str, object]:
    """Return what a runner records about itself in ``node_metadata``."""
    pid = os.getpid()
    return {
        "pid": pid,
        "pid_create_time": machine.started(pid),
        "pid_host": machine.host(),
        "pid_boot_time": machine.boot_time(),
        "process_identity_mode": "local",
    }


def judge(
    metadata: Mapping[str, object],
    *,
    lock: Path | None = None,
    ended: bool = False,
    machine: Machine = MACHINE,
) -> Liveness:
    """Tell whether the process of a run is there.

    Args:
        metadata: The ``node_metadata`` of its session.
        lock: Its ``.lock`` in a heaveto home; None elsewhere.
        ended: Its row says that it is over.
        machine: Who is asked.
    """
    pid = _number(metadata.get("pid"))
    if ended:
        return Liveness(alive=False, why="the run has ended", pid=pid, code="ended")
    if lock is not None and (holder := _holder(lock, machine)) is not None:
        why = "its lock is held"
        return Liveness(alive=True, why=why, pid=holder or pid, code="lock_held")
    host = metadata.get("pid_host")
    if isinstance(host, str) and host != machine.host():
        why = f"it runs on another machine ({plain(host)})"
        return Liveness(alive=None, why=why, pid=pid, code="other_host")
    if pid is None:
        why = "it recorded no process"
        return Liveness(alive=None, why=why, code="no_process_recorded")
    return _process(pid, metadata, machine)


def _holder(lock: Path, machine: Machine) -> int | None:
    """Return the holder of the lock; an unreadable lock file says nothing."""
    try:
        return machine.lock_holder(lock)
    except OSError:
        return None


def _process(pid: int, metadata: Mapping[str, object], machine: Machine) -> Liveness:
    """Compare the recorded process with the one that has its pid now."""
    try:
        started = machine.started(pid)
    except PermissionError:
        why = f"process {pid} may not be looked at"
        return Liveness(alive=None, why=why, pid=pid, code="no_permission")
    if started is None:
        why = f"process {pid} is gone"
        return Liveness(alive=False, why=why, pid=pid, code="process_gone")
    moved = _distance(started, metadata.get("pid_create_time"))
    shift = _distance(machine.boot_time(), metadata.get("pid_boot_time")) or 0.0
    if _same(moved, shift, machine):
        why = f"process {pid} is there"
        return Liveness(alive=True, why=why, pid=pid, code="process_found")
    if abs(shift) > BOOT_TOLERANCE:
        why, code = "the machine was started anew", "rebooted"
    else:
        why, code = "its pid was reused", "pid_reused"
    why = f"process {pid} is gone: {why}"
    return Liveness(alive=False, why=why, pid=pid, code=code)


def _same(moved: float | None, shift: float, machine: Machine) -> bool:
    """Tell whether it is the recorded process, by how far start and boot moved."""
    if moved is None:
        return abs(shift) <= BOOT_TOLERANCE
    if abs(shift) <= BOOT_TOLERANCE:
        # A boot time in whole seconds can flip by one, and starts go with it.
        return min(abs(moved), abs(moved - shift)) <= _CREATE_TOLERANCE
    if machine.starts_stay:
        return abs(moved) <= _CREATE_TOLERANCE
    return abs(moved - shift) <= BOOT_TOLERANCE


def _distance(now: float, recorded: object) -> float | None:
    """Return how far a moment is from the recorded one; None if there is none."""
    return now - recorded if isinstance(recorded, int | float) else None


def _number(value: object) -> int | None:
    """Return a pid that can be asked about."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31:
        return value
    return None
