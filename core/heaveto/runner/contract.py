"""What goes into a run and what comes out of it: values, and who is told meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from heaveto.model import Outcome, Signal
    from heaveto.runner.ending import Cause
    from heaveto.runner.verdict import Verdict
    from heaveto.runs import Home, RunDir

__all__ = ["SILENT", "Finished", "Options", "Registered", "Reporter", "Trouble"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a flow is run, where the flow itself does not say."""

    checkpoint_format: int = 3
    max_concurrent: int | None = None
    on_failure: str | None = None
    artifact_root: Path | None = None
    signals: bool = False
    """Handle SIGINT, SIGTERM and SIGHUP; only in a process that is the runner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A run that other processes can see."""

    run_id: str
    session_id: str
    home: Home
    run_dir: RunDir


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Something that could not be saved; the run went on.

    Codes of what the answer keeps: ``persist_failed`` (an outcome), ``signals_gap``,
    ``row_open`` (the end of the row), ``record_failed`` (``run.json``),
    ``controls_failed``. Only told: ``signals_wait`` (tried again), ``log_gap``.
    """

    code: str
    text: str


class Reporter(Protocol):
    """What a run tells while it goes, on the loop's thread."""

    def registered(self, run: Registered) -> None:
        """Other processes can see the run from now on."""

    def signal(self, signal: Signal) -> None:
        """Something happened to an operation."""

    def executed(self, name: str, outcome: Outcome) -> None:
        """An operation has ended; nothing of it is saved yet."""

    def persisted(self, name: str, seq: int | None) -> None:
        """The outcome of an operation is in an acknowledged checkpoint."""

    def trouble(self, trouble: Trouble) -> None:
        """Something could not be saved."""

    def ending(self, cause: Cause, again: bool) -> None:
        """The run is being ended from outside."""


class _Silent:
    """Tells nobody."""

    def registered(self, run: Registered) -> None: ...

    def signal(self, signal: Signal) -> None: ...

    def executed(self, name: str, outcome: Outcome) -> None: ...

    def persisted(self, name: str, seq: int | None) -> None: ...

    def trouble(self, trouble: Trouble) -> None: ...

    def ending(self, cause: Cause, again: bool) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A run that has ended."""

    registered: Registered
    verdict: Verdict
    outcomes: Mapping[str, Outcome]
    """Every operation by name."""
    context: Mapping[str, object]
    troubles: tuple[Trouble, ...]


SILENT: Reporter = _Silent()
"""A reporter for programs that look elsewhere."""
