"""Exit codes, in one place (PRODUCT 2).

A verb ends with what happened to its subject; a refusal ends with what kind of error
it is. No code is chosen by the words of a message.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from heaveto.errors import (
    CheckpointError,
    FlowResumeError,
    HomeError,
    StateDBError,
)
from heaveto.model import RunStatus

if TYPE_CHECKING:
    from heaveto.errors import HeavetoError

__all__ = ["CONTROL_VERBS", "Exit", "for_error", "for_status", "for_status_query"]


class Exit(IntEnum):
    """Every code that ``heaveto`` ends with."""

    OK = 0
    FAILED = 1
    REFUSED = 2
    RUNNING = 3
    INTERNAL = 70
    UNUSABLE = 78
    TIMED_OUT = 124
    ABORTED = 130
    PIPE_CLOSED = 141
    CANCELLED = 143


CONTROL_VERBS = frozenset({"ctl"})
"""Verbs for which an unusable home or database is a refusal, like any other."""

_OF_STATUS = {
    RunStatus.COMPLETED: Exit.OK,
    RunStatus.COMPLETED_EMPTY: Exit.FAILED,
    RunStatus.FAILED: Exit.FAILED,
    RunStatus.TIMED_OUT: Exit.TIMED_OUT,
    RunStatus.ABORTED: Exit.ABORTED,
    RunStatus.CANCELLED: Exit.CANCELLED,
}


def for_status(status: RunStatus | str | None) -> Exit:
    """Return the code of a run that ended with a status; unknown ones are a failure."""
    try:
        return _OF_STATUS[RunStatus(status or "")]
    except (ValueError, KeyError):
        return Exit.FAILED


def for_status_query(status: RunStatus | str | None, *, alive: bool | None) -> Exit:
    """Return the code of ``ctl status``: 0 completed, 3 running, 1 any other end.

    Args:
        status: The stored status.
        alive: Whether its process is there; a running row without one is an end.
    """
    if status == RunStatus.RUNNING:
        return Exit.FAILED if alive is False else Exit.RUNNING
    return Exit.OK if status == RunStatus.COMPLETED else Exit.FAILED


def for_error(error: HeavetoError, verb: str | None) -> Exit:
    """Return the code for an error that ended a verb.

    Args:
        error: What was raised.
        verb: The first word of the command line after the options.
    """
    unusable = isinstance(error, HomeError | StateDBError)
    if unusable or error.code == "worker_unusable":
        return Exit.REFUSED if verb in CONTROL_VERBS else Exit.UNUSABLE
    if isinstance(error, CheckpointError | FlowResumeError):
        return Exit.FAILED
    return Exit.REFUSED
