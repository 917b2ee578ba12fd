"""End the process of a live heaveto run: SIGTERM to a pid that was just verified.

Asked for by a typed confirmation only. The process is the one that the run's row names,
alive by pid, start time, boot and lock, of this host and this user; where the system
has process handles (Linux) it is held by one from before the check on, so that a pid
that is given away meanwhile is never hit (PRODUCT 6.10).
"""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from heaveto.errors import ControlError
from heaveto.liveness import judge
from heaveto.runs import Home, RunDir
from heaveto.statedb import ReadDB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from heaveto.observe.snapshot import RunSummary

__all__ = ["end_process"]


def end_process(run: RunSummary) -> int:
    """Send SIGTERM to the runner of a run; blocking.

    Returns:
        The pid it was sent to.

    Raises:
        ControlError: ``not_ours``, ``dead_run``: nothing was sent.
        StateDBError: The row cannot be read; nothing was sent.
    """
    if run.source != "heaveto":
        raise ControlError("only a heaveto run can be ended from here", code="not_ours")
    home = Home(Path(run.home))
    with ReadDB.open(home.state_db) as database:
        row = database.session(run.session_id)
    if row is None:
        raise ControlError("the run is gone", code="unknown_session")
    metadata = row.node_metadata
    host = metadata.get("host")
    if isinstance(host, str) and host != socket.gethostname():
        raise ControlError("the run is on another host", code="not_ours")
    pid = metadata.get("pid")
    if not isinstance(pid, int) or pid <= 1:
        raise ControlError("no process is recorded for this run", code="not_ours")
    lock = RunDir(home.run(run.run_id).path).lock
    return _terminate(pid, metadata, lock)


def _terminate(pid: int, metadata: Mapping[str, object], lock: Path) -> int:
    """Hold the process, check it, send the signal."""
    opened = getattr(os, "pidfd_open", None)
    handle: int | None = None
    try:
        if opened is not None:
            handle = opened(pid)
        found = judge(metadata, lock=lock)
        if found.alive is not True or found.pid not in {None, pid}:
            raise ControlError(f"nothing was sent: {found.why}", code="dead_run")
        if psutil.Process(pid).uids().real != os.getuid():
            raise ControlError("another user's process", code="not_ours")
        if handle is not None:
            signal.pidfd_send_signal(handle, signal.SIGTERM)
        else:
            os.kill(pid, signal.SIGTERM)
    except (ProcessLookupError, psutil.NoSuchProcess):
        raise ControlError("its process has ended already", code="dead_run") from None
    except (PermissionError, psutil.AccessDenied):
        raise ControlError("the system does not allow it", code="not_ours") from None
    finally:
        if handle is not None:
            os.close(handle)
    return pid
