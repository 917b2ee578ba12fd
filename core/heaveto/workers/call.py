"""What one call of a worker is given: its request, its folder, its logs.

A worker is a coroutine function ``run(spec, call) -> response``. It raises
:class:`~heaveto.errors.OperationError` with a code of PRODUCT 3, and when it is
cancelled it first ends everything that it started.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from heaveto.errors import HeavetoError, OperationError
from heaveto.files import Directory
from heaveto.workers.logs import Log

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["KILL_AFTER_S", "Call", "Request", "as_text", "no_files"]

KILL_AFTER_S = 5.0
"""Seconds between TERM and KILL when an operation is ended from outside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What an operation asks of its worker; a python worker's function gets it.

    ``messages`` is the conversation that the operation inherits; this version has no
    worker that converses, so it is empty.
    """

    instruction: str
    context: dict[str, object]
    """The operation's own copy; it may be changed."""
    run_id: str
    operation: str
    artifacts: Path
    """A folder that exists."""
    messages: tuple[object, ...] = ()


@dataclass(slots=True, kw_only=True)
class Call:
    """One call while it goes."""

    request: Request
    attempt: int
    folder: Path
    """``operations/<operation>`` of the run directory; it exists."""
    conversations: Path
    log_limit: int
    kill_after: float
    """What a cancelled worker gives its processes between TERM and KILL."""
    log_errors: list[OSError] = field(default_factory=list)
    """Why logs are incomplete."""

    def open_logs(self) -> tuple[Log, Log]:
        """Open both logs; blocking."""
        with Directory.open(self.folder) as folder:
            output = Log(folder, "output.log", self.log_limit)
            try:
                return output, Log(folder, "error.log", self.log_limit)
            except BaseException:
                output.close()
                raise

    def close_logs(self, *logs: Log) -> None:
        """Close logs and remember why they are incomplete; blocking."""
        for log in logs:
            log.close()
            if log.error is not None:
                self.log_errors.append(log.error)

    def write_logs(self, output: str, errors: str = "") -> None:
        """Write both logs of a worker that has no streams; blocking.

        What cannot be written is remembered and changes no outcome.
        """
        try:
            logs = self.open_logs()
        except (OSError, HeavetoError) as error:
            self.log_errors.append(_as_os_error(error))
            return
        for log, text in zip(logs, (output, errors), strict=True):
            log.write(text.encode("utf-8", "replace"))
        self.close_logs(*logs)


def as_text(response: object) -> str:
    """Return a response as a log shows it: text as it is, anything else as JSON."""
    text = response if isinstance(response, str) else json.dumps(response)
    return text if text.endswith("\n") else f"{text}\n"


def _as_os_error(error: OSError | HeavetoError) -> OSError:
    return error if isinstance(error, OSError) else OSError(error.message)


def no_files(error: OSError | HeavetoError) -> OperationError:
    """Say that an operation could not start because its files cannot be written."""
    if isinstance(error, HeavetoError):
        return OperationError(
            f"its files cannot be written: {error.message}", code="not_started"
        )
    reason = error.strerror or type(error).__name__
    return OperationError(f"its files cannot be written: {reason}", code="not_started")
