"""What a state looks like: its word, its glyph, its role. Word first, colour last.

The JSON keeps the words of the contract; the screen keeps the operator's. The tables
here are the one place where the first become the second, for runs, operations, controls
and checkpoints; the help overlay draws its legend from them.

Pure: values of :mod:`heaveto.observe.snapshot` in, words and roles out. Times are epoch
seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

from heaveto.cli import words
from heaveto.model import OperationStatus, RunState
from heaveto.observe.attention import is_live
from heaveto.text import duration
from heaveto_tui.lines import DASH

if TYPE_CHECKING:
    from datetime import tzinfo

    from heaveto.observe.snapshot import (
        CheckpointView,
        ControlView,
        OperationView,
        RunSummary,
    )

__all__ = [
    "OPERATION_ORDER",
    "SOURCE_WORDS",
    "Clock",
    "Face",
    "checkpoint_face",
    "checkpoint_words",
    "control_face",
    "control_word",
    "counts",
    "is_live",
    "is_over",
    "is_unsaved",
    "operation_face",
    "operation_time",
    "run_face",
    "saved_face",
    "status_face",
    "whole_duration",
]


@dataclass(frozen=True, slots=True)
class Face:
    """A state as it is drawn."""

    word: str
    glyph: str
    role: str


_RUN_SIGNS: dict[RunState, tuple[str, str]] = {
    RunState.PLANNING: ("◐", "live"),
    RunState.EXECUTING: ("◐", "live"),
    RunState.PAUSING: ("¦", "hold"),
    RunState.PAUSED: ("‖", "hold"),
    RunState.STOPPING: ("▼", "hold"),
    RunState.DRAINING: ("▼", "hold"),
    RunState.SYNTHESIZING: ("◐", "live"),
    RunState.STALLED: ("◌", "hold"),
    RunState.DEAD: ("†", "bad"),
    RunState.UNKNOWN: ("?", "hold"),
    RunState.COMPLETED: ("●", "good"),
    RunState.COMPLETED_EMPTY: ("□", "hold"),
    RunState.FAILED: ("✗", "bad"),
    RunState.TIMED_OUT: ("◷", "bad"),
    RunState.ABORTED: ("⊗", "bad"),
    RunState.CANCELLED: ("⊘", "muted"),
}
_SUPERSEDED = ("→", "muted")

_OPERATION_SIGNS: dict[OperationStatus, tuple[str, str]] = {
    OperationStatus.WAITING: ("○", "muted"),
    OperationStatus.QUEUED: ("○", "muted"),
    OperationStatus.PAUSED: ("‖", "hold"),
    OperationStatus.RUNNING: ("◐", "live"),
    OperationStatus.COMPLETED: ("●", "good"),
    OperationStatus.FAILED: ("✗", "bad"),
    OperationStatus.SKIPPED: (DASH, "muted"),
    OperationStatus.CANCELLED: ("⊘", "muted"),
    OperationStatus.ESCALATED: ("▲", "note"),
    OperationStatus.PENDING: ("◊", "note"),
    OperationStatus.LOST: ("/", "bad"),
    OperationStatus.UNSTARTED: ("○", "muted"),
    OperationStatus.UNKNOWN: ("?", "hold"),
}

OPERATION_ORDER: tuple[OperationStatus, ...] = (
    OperationStatus.FAILED,
    OperationStatus.LOST,
    OperationStatus.RUNNING,
    OperationStatus.PAUSED,
    OperationStatus.QUEUED,
    OperationStatus.WAITING,
    OperationStatus.ESCALATED,
    OperationStatus.PENDING,
    OperationStatus.COMPLETED,
    OperationStatus.SKIPPED,
    OperationStatus.CANCELLED,
    OperationStatus.UNSTARTED,
    OperationStatus.UNKNOWN,
)
"""The order in which counts are told: what wants a look first."""


def is_over(run: RunSummary) -> bool:
    """Tell whether nothing of a run can happen any more."""
    return not is_live(run)


def run_face(run: RunSummary) -> Face:
    """Return what a run looks like; ``~`` before the word when it is only believed."""
    word = words.run_word(run.state, superseded=run.superseded_by is not None)
    glyph, role = _RUN_SIGNS.get(run.state, _RUN_SIGNS[RunState.UNKNOWN])
    if word == "superseded":
        glyph, role = _SUPERSEDED
    if run.state is RunState.COMPLETED and _rests_on_a_failure(run):
        word, role = f"{word}, stale", "hold"
    if is_live(run) and run.state is not RunState.UNKNOWN and run.alive is None:
        word = f"~{word}"
    return Face(word, glyph, role)


def _rests_on_a_failure(run: RunSummary) -> bool:
    return any(w.code in {"input_failed", "stale_result"} for w in run.warnings)


def operation_face(operation: OperationView) -> Face:
    """Return what an operation looks like."""
    if operation.stale and operation.status is OperationStatus.COMPLETED:
        return _stale_face()
    return status_face(operation.status)


@cache
def _stale_face() -> Face:
    return replace(status_face(OperationStatus.COMPLETED), role="hold")


@cache
def status_face(status: OperationStatus) -> Face:
    """Return what a status looks like on its own."""
    glyph, role = _OPERATION_SIGNS.get(
        status, _OPERATION_SIGNS[OperationStatus.UNKNOWN]
    )
    return Face(words.operation_word(status), glyph, role)


_CONTROL_SIGNS: dict[str, tuple[str, str]] = {
    "queued": ("○", "muted"),
    "taken": ("◑", "live"),
    "applied": ("●", "good"),
    "read": ("●", "good"),
    "refused": ("✗", "hold"),
    "too late": ("⊘", "muted"),
    "never landed": ("⊘", "hold"),
    "not reported": ("?", "bad"),
    "lost": ("/", "bad"),
    "closed by hand": ("●", "muted"),
}


def control_word(control: ControlView, *, over: bool) -> str:
    """Return the operator's word for what became of a control.

    Args:
        control: The row, by its class; results are matched by prefix (ADR-0069).
        over: Whether its run has ended or is dead.
    """
    return words.control_word(
        klass=control.klass,
        result=control.result,
        run_over=over,
        rendered=control.rendered_into is not None,
        lost=control.lost,
    )


def control_face(control: ControlView, *, over: bool) -> Face:
    """Return what a control looks like; see :func:`control_word`."""
    word = control_word(control, over=over)
    glyph, role = _CONTROL_SIGNS.get(word, ("?", "hold"))
    return Face(word, glyph, role)


def checkpoint_face(view: CheckpointView | None) -> Face:
    """Return what a checkpoint looks like."""
    if view is None:
        return Face("none", DASH, "muted")
    if view.status == "clean":
        return Face("clean", "●", "good")
    if view.status == "recovered_prefix":
        seq = "?" if view.seq is None else str(view.seq)
        return Face(f"good up to seq {seq}", "◑", "hold")
    if view.status == "refused":
        return Face("refused", "✗", "bad")
    return Face("unknown", "?", "hold")


def checkpoint_words(view: CheckpointView | None, total: int) -> str:
    """Return version, generation prefix and sequence as the second row shows them.

    A version 3 unit is named by the first eight digits of its base's generation and
    the last sequence; version 2 has neither and tells what it holds (SPEC K-16).
    """
    if view is None:
        return "no checkpoint"
    if view.status == "refused":
        return f"checkpoint v{view.version or '?'} refused"
    if view.version == 3:
        prefix = (view.generation or "?")[:8]
        seq = "?" if view.seq is None else str(view.seq)
        since = view.records_since_base
        tail = "" if since is None else f" (+{since})"
        return f"gen {prefix} seq {seq}{tail}"
    return f"v{view.version or '?'} · {view.saved} of {total} saved"


def saved_face(operation: OperationView, *, over: bool) -> Face:
    """Return the SAVED column: executed and persisted are never one word.

    Args:
        operation: What to tell about.
        over: Whether its run has ended or is dead: then what is not saved stays so.
    """
    if operation.persisted is None:
        return Face(DASH, "", "muted")
    if operation.persisted:
        return Face("yes", "", "text")
    if is_unsaved(operation):
        return Face("no", "", "bad") if over else Face("not yet", "", "hold")
    if operation.status is OperationStatus.LOST:
        return Face("no", "", "bad")
    return Face(DASH, "", "muted")


def is_unsaved(operation: OperationView) -> bool:
    """Tell whether a result is there that a crash would lose."""
    return operation.persisted is False and operation.status in _WITH_RESULT


_WITH_RESULT = frozenset(
    {OperationStatus.COMPLETED, OperationStatus.FAILED, OperationStatus.ESCALATED}
)


def operation_time(operation: OperationView, now: float) -> str:
    """Return how long an operation took, or takes already; a dash before it started."""
    if operation.started_at is None:
        return DASH
    if operation.ended_at is not None:
        return duration(operation.ended_at - operation.started_at)
    if operation.status in {OperationStatus.RUNNING, OperationStatus.PAUSED}:
        return whole_duration(now - operation.started_at)
    return DASH


def whole_duration(seconds: float) -> str:
    """Return a length in whole seconds: a clock that ticks once a second."""
    if seconds < 60:
        return f"{max(0, int(seconds))}s"
    return duration(seconds)


def counts(nodes: dict[str, int]) -> str:
    """Return ``done/total`` of a run; nothing when it has no operations yet."""
    total = nodes.get("total", 0)
    if not total:
        return DASH
    return f"{nodes.get(OperationStatus.COMPLETED, 0)}/{total}"


@dataclass(frozen=True, slots=True)
class Clock:
    """How moments are told: local time or UTC, and where the day is another one."""

    zone: tzinfo | None = UTC
    """None is the machine's own zone."""

    def moment(self, at: float, now: float) -> str:
        """Return a clock time, with the day when it is not today's.

        Of another year it is the day alone, in as many cells at most; ``?`` stands for
        a number that is no moment of any calendar.
        """
        then, today = self._local(at), self._local(now)
        if then is None or today is None:
            return "?"
        if then.date() == today.date():
            return then.strftime("%H:%M:%S")
        if then.year != today.year:
            return f"{then.day} {then.strftime('%b %Y')}"
        return f"{then.day} {then.strftime('%b %H:%M')}"

    def now(self, at: float) -> str:
        """Return the clock of the first row, with its zone."""
        moment = self._local(at)
        if moment is None:
            return "?"
        return f"{moment.strftime('%H:%M:%S')} {moment.tzname() or ''}".rstrip()

    def _local(self, at: float) -> datetime | None:
        """Return a moment in the zone; None where a row holds any number at all."""
        try:
            moment = datetime.fromtimestamp(at, UTC)
            return moment if self.zone is UTC else moment.astimezone(self.zone)
        except (ValueError, OverflowError, OSError):
            return None


SOURCE_WORDS: dict[str, str] = {
    "db": "row",
    "process": "process",
    "signals": "signals",
    "checkpoint": "checkpoint",
}
"""What a status was read from, as the second row calls it."""
