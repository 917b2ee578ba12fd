"""Values that the whole project shares: statuses, operations, edges, outcomes, signals.

``status`` is what is stored, ``state`` is what a reader concludes (PRODUCT 3). Every
enumeration here is the closed list of the public contract; a reader that meets another
word shows ``unknown`` and keeps the word.

The module is pure. Times are epoch seconds as float, unknown is None, ids are full.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "TERMINAL_OPERATION",
    "TERMINAL_RUN",
    "Condition",
    "Edge",
    "Node",
    "OnFailure",
    "OperationStatus",
    "Origin",
    "Outcome",
    "Prepared",
    "RunState",
    "RunStatus",
    "Signal",
    "SignalKind",
    "Verb",
]


class OperationStatus(StrEnum):
    """What an operation is, as written or as concluded."""

    WAITING = "waiting"
    QUEUED = "queued"
    PAUSED = "paused"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    ESCALATED = "escalated"
    PENDING = "pending"
    LOST = "lost"
    UNSTARTED = "unstarted"
    UNKNOWN = "unknown"


TERMINAL_OPERATION = frozenset(
    {
        OperationStatus.COMPLETED,
        OperationStatus.FAILED,
        OperationStatus.SKIPPED,
        OperationStatus.CANCELLED,
        OperationStatus.ESCALATED,
    }
)
"""Statuses that no further signal of the same operation follows."""


class RunStatus(StrEnum):
    """What the row of a run says."""

    RUNNING = "running"
    COMPLETED = "completed"
    COMPLETED_EMPTY = "completed_empty"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    ABORTED = "aborted"
    CANCELLED = "cancelled"


TERMINAL_RUN = frozenset(set(RunStatus) - {RunStatus.RUNNING})
"""Statuses of a run that has ended."""


class RunState(StrEnum):
    """What heaveto concludes about a run."""

    PLANNING = "planning"
    EXECUTING = "executing"
    PAUSING = "pausing"
    PAUSED = "paused"
    STOPPING = "stopping"
    DRAINING = "draining"
    SYNTHESIZING = "synthesizing"
    STALLED = "stalled"
    DEAD = "dead"
    UNKNOWN = "unknown"
    COMPLETED = "completed"
    COMPLETED_EMPTY = "completed_empty"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    ABORTED = "aborted"
    CANCELLED = "cancelled"


class Verb(StrEnum):
    """What a control asks for (SPEC A-06)."""

    PAUSE = "pause"
    RESUME = "resume"
    MESSAGE = "message"
    STOP = "stop"


class Origin(StrEnum):
    """Where an operation comes from."""

    PLANNED = "planned"
    SPAWNED = "spawned"
    RETRY = "retry"
    SYNTHESIS = "synthesis"


class OnFailure(StrEnum):
    """What a failed operation means for those that depend on it (PRODUCT 5)."""

    SKIP = "skip"
    CONTINUE = "continue"
    STOP = "stop"


class SignalKind(StrEnum):
    """The kinds of ``session_signals`` rows that heaveto writes (SPEC C-18)."""

    QUEUED = "NodeQueued"
    STARTED = "NodeStarted"
    PAUSED = "NodePaused"
    COMPLETED = "NodeCompleted"
    FAILED = "NodeFailed"
    SKIPPED = "NodeSkipped"
    CANCELLED = "NodeCancelled"
    SPAWNED = "NodeSpawned"
    ESCALATED = "NodeEscalated"


class Condition(Protocol):
    """A test on an edge (SPEC C-02, C-05)."""

    def apply(self, result: object, context: Mapping[str, object]) -> bool:
        """Tell whether the path is open, given the head's result and the context."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A dependency: ``tail`` waits for ``head``."""

    head: str
    tail: str
    condition: Condition | None = None
    text: str | None = None
    """The condition in words, as a reader shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an operation ended.

    ``error`` is None or ``{"code", "text"}``; the text may quote a worker and is
    hostile. ``response`` of a failed operation is ``{"error": text, "code": code}``.
    """

    operation_id: str
    status: OperationStatus
    response: object = None
    error_code: str | None = None
    error_text: str | None = None
    reason: Mapping[str, object] | None = None
    """Why it was skipped: ``code`` and what identifies the gate or the failed head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An operation at its place in the graph that is being run.

    ``id`` is a UUID that belongs to one run; ``name`` is the id that the author of the
    flow gave (the ``agent_id``), or the spawn id, and survives a resume.
    """

    id: str
    name: str
    assignee: str
    instruction: object
    """The text as written; None and other values are rendered as text (SPEC B-41)."""
    gate: bool = False
    origin: Origin = Origin.PLANNED
    attempt: int = 1
    """1, or one more than the attempts that earlier runs of the flow recorded."""
    restored: Outcome | None = None
    """How it ended in an earlier run; it is then never invoked (SPEC C-11)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """An operation right before its call: what its worker is given.

    ``context`` is the operation's own copy (SPEC C-12): predecessors' results as
    ``<name>_result`` with the shared context over them, without the message queue.
    """

    node: Node
    instruction: str
    """With the operator's messages in front, where there are any (SPEC B-34)."""
    context: dict[str, object]
    messages: tuple[Mapping[str, object], ...] = ()
    """The queue entries that stand in the instruction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One thing that happened to an operation, as it is stored and followed.

    ``data`` holds names, ids, codes and numbers, never a prompt or a response.
    """

    kind: SignalKind
    operation_id: str
    name: str
    at: float
    data: Mapping[str, object] = field(default_factory=dict)
