"""What every reader shows: frozen snapshots of a run, the shape of PRODUCT 3.

The CLI prints them, the console draws them, ``as_dict`` gives the JSON. A snapshot is
complete and consistent in itself and never changes; a newer one replaces it whole.
Strings in it are as stored: whoever draws them sanitises them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from heaveto.model import OperationStatus, Origin, RunState, RunStatus, Verb

__all__ = [
    "CheckpointView",
    "ControlClass",
    "ControlView",
    "HomeView",
    "LinkView",
    "Notice",
    "OperationView",
    "RunDetail",
    "RunSummary",
]

StatusSource = Literal["db", "process", "signals", "checkpoint"]
ControlClass = Literal[
    "queued", "claimed", "applied", "rejected", "abandoned", "never_landed"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something a person should know, with what to do about it."""

    code: str
    text: str
    what_to_do: str

    def as_dict(self) -> dict[str, object]:
        """Return the JSON of PRODUCT 3."""
        return {"code": self.code, "text": self.text, "what_to_do": self.what_to_do}


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeView:
    """How one open home stands."""

    path: str
    source: Literal["heaveto", "lionagi"]
    read_at: float | None
    """When its database could be read last; None: never, or it has none."""
    problem: Notice | None = None
    polling: bool = False
    """Its files are looked at again and again, for want of notices of changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointView:
    """What is known of a run's checkpoint.

    ``status`` is the report's: clean, recovered_prefix or refused; in a list also
    ``unread`` where an ended run's checkpoint has not been read yet.
    """

    version: int | None
    generation: str | None
    seq: int | None
    status: str
    records_since_base: int | None
    bytes_to_compaction: int | None = None
    """Journal bytes left before the next base; shown in text, not part of the JSON."""
    saved: int = 0
    """Operations whose outcome is in it."""

    def as_dict(self) -> dict[str, object]:
        """Return the JSON of PRODUCT 3."""
        return {
            "version": self.version,
            "generation": self.generation,
            "seq": self.seq,
            "status": self.status,
            "records_since_base": self.records_since_base,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One run as the list shows it (``RUN`` of PRODUCT 3)."""

    run_id: str
    session_id: str
    home: str
    source: Literal["heaveto", "lionagi"]
    name: str | None
    status: RunStatus | str | None
    """What is stored; a word that is none of the contract's is kept as it is."""
    state: RunState
    reason_code: str | None
    phase: str | None
    alive: bool | None
    status_source: StatusSource
    observed_at: float
    confidence: Literal["sure", "derived"]
    nodes: dict[str, int]
    """``total`` and one count for every status that occurs."""
    checkpoint: CheckpointView | None
    generation_dir: str | None
    started_at: float | None
    ended_at: float | None
    deadline_at: float | None
    resumed_from: str | None
    superseded_by: str | None
    warnings: tuple[Notice, ...] = ()
    last_sign_at: float | None = None
    """The newest signal, output, message or save; not part of the JSON."""
    pid: int | None = None
    """Its process: the verified one when it is alive, else the recorded one."""
    alive_why: str | None = None
    """What ``alive`` was concluded from, in words; neither is part of the JSON."""

    def as_dict(self) -> dict[str, object]:
        """Return the JSON of PRODUCT 3."""
        return {
            "run_id": self.run_id,
            "home": self.home,
            "source": self.source,
            "session_id": self.session_id,
            "name": self.name,
            "status": self.status,
            "state": self.state,
            "reason_code": self.reason_code,
            "phase": self.phase,
            "alive": self.alive,
            "status_source": self.status_source,
            "observed_at": self.observed_at,
            "confidence": self.confidence,
            "nodes": dict(self.nodes),
            "checkpoint": None
            if self.checkpoint is None
            else self.checkpoint.as_dict(),
            "generation_dir": self.generation_dir,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "deadline_at": self.deadline_at,
            "resumed_from": self.resumed_from,
            "superseded_by": self.superseded_by,
            "warnings": [warning.as_dict() for warning in self.warnings],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationView:
    """One operation of a run."""

    id: str
    name: str
    assignee: str | None
    status: OperationStatus
    status_source: StatusSource
    depends_on: tuple[str, ...]
    origin: Origin
    stale: bool
    executed: bool
    persisted: bool | None
    started_at: float | None
    ended_at: float | None
    error_code: str | None = None
    error_text: str | None = None
    reason: str | None = None
    """Why it was skipped, in words."""
    rendered: tuple[str, ...] = ()
    """Ids of the controls whose text stands in its instruction."""
    spawned_by: str | None = None
    """The operation that asked for it; an independent spawn has no link to it."""
    queued_at: float | None = None
    paused_at: float | None = None

    def as_dict(self) -> dict[str, object]:
        """Return the JSON of PRODUCT 3."""
        error = None
        if self.error_code is not None:
            error = {"code": self.error_code, "text": self.error_text}
        return {
            "id": self.id,
            "name": self.name,
            "assignee": self.assignee,
            "status": self.status,
            "status_source": self.status_source,
            "depends_on": list(self.depends_on),
            "origin": self.origin,
            "stale": self.stale,
            "executed": self.executed,
            "persisted": self.persisted,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "error": error,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkView:
    """One dependency, spawn or escalation as it stands or stood."""

    head: str
    tail: str
    kind: Literal["depends", "spawn", "escalation"]
    condition: str | None
    active: bool

    def as_dict(self) -> dict[str, object]:
        """Return the JSON of PRODUCT 3."""
        return {
            "from": self.head,
            "to": self.tail,
            "kind": self.kind,
            "condition": self.condition,
            "active": self.active,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlView:
    """One control row and what became of it."""

    id: str
    verb: Verb | str
    result: str | None
    klass: ControlClass
    created_at: float
    claimed_at: float | None
    applied_at: float | None
    owner: str | None
    age_s: float
    by: str | None
    host: str | None
    text: str | None
    rendered_into: str | None
    lost: bool

    def as_dict(self) -> dict[str, object]:
        """Return the JSON of PRODUCT 3."""
        return {
            "id": self.id,
            "verb": self.verb,
            "result": self.result,
            "class": self.klass,
            "created_at": self.created_at,
            "claimed_at": self.claimed_at,
            "applied_at": self.applied_at,
            "owner": self.owner,
            "age_s": self.age_s,
            "by": self.by,
            "host": self.host,
            "text": self.text,
            "rendered_into": self.rendered_into,
            "lost": self.lost,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetail:
    """One run whole, as ``show`` prints it."""

    run: RunSummary
    operations: tuple[OperationView, ...] = ()
    edges: tuple[tuple[str, str], ...] = ()
    links: tuple[LinkView, ...] = ()
    controls: tuple[ControlView, ...] = ()
    run_dir: str | None = None
    artifact_root: str | None = None
    survivors: tuple[dict[str, object], ...] = field(default=())
    """Living children of a dead runner: pid, operation, command word."""

    def as_dict(self) -> dict[str, object]:
        """Return the JSON of PRODUCT 3."""
        return {
            **self.run.as_dict(),
            "operations": [operation.as_dict() for operation in self.operations],
            "edges": [list(edge) for edge in self.edges],
            "links": [link.as_dict() for link in self.links],
            "controls": [control.as_dict() for control in self.controls],
        }
