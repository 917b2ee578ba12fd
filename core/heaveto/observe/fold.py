"""Signals folded into the operations and dependencies of one run.

A :class:`Fold` takes the rows of ``session_signals`` in order of ``seq`` and keeps what
they say: one :class:`Lane` per operation, every dependency ever announced, and which of
them still stand. Work is proportional to the rows added, so a live run is followed
without reading it again. The same fold serves heaveto's own rows and lionagi's; what
is missing or of the wrong type is treated as not said.

What a lane's status means in an ended or paused run is not decided here but in
``derive``. A fold has one owner and is not shared between threads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from heaveto.model import OperationStatus, Origin, SignalKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["LANE_KINDS", "Fold", "Lane", "Link", "SignalLike"]

LinkKind = Literal["depends", "spawn", "escalation"]


class SignalLike(Protocol):
    """What is read of a row of ``session_signals``."""

    @property
    def seq(self) -> int: ...  # noqa: D102
    @property
    def kind(self) -> str: ...  # noqa: D102
    @property
    def op_id(self) -> str | None: ...  # noqa: D102
    @property
    def ts(self) -> float: ...  # noqa: D102
    @property
    def payload(self) -> Mapping[str, object]: ...  # noqa: D102


_ENDS = {
    SignalKind.COMPLETED: OperationStatus.COMPLETED,
    SignalKind.FAILED: OperationStatus.FAILED,
    SignalKind.SKIPPED: OperationStatus.SKIPPED,
    SignalKind.CANCELLED: OperationStatus.CANCELLED,
}

LANE_KINDS = (
    SignalKind.QUEUED,
    SignalKind.STARTED,
    SignalKind.PAUSED,
    *_ENDS,
)
"""The kinds after which an operation is something else than before."""


@dataclass(slots=True)
class Link:
    """One dependency and whether it still stands."""

    kind: LinkKind
    condition: str | None = None
    active: bool = True


@dataclass(slots=True)
class Lane:
    """What the signals say about one operation.

    ``status`` is queued (announced), paused, running, or how it ended; whether an
    announced operation waits or is ready depends on its heads.
    """

    id: str
    name: str
    status: OperationStatus = OperationStatus.QUEUED
    assignee: str | None = None
    origin: Origin = Origin.PLANNED
    heads: tuple[str, ...] = ()
    spawned_by: str | None = None
    escalated_from: str | None = None
    escalated: bool = False
    queued_at: float | None = None
    paused_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    started_seq: int = 0
    ended_seq: int = 0
    error_code: str | None = None
    reason: Mapping[str, object] | None = None
    rendered: tuple[str, ...] = ()
    ran_on_failed: bool = False
    withheld: bool = False
    """Its end says that it never started: a stop or a signal came first."""
    touched: int = 0
    """The ``seq`` of the last signal that changed anything here."""

    @property
    def ended(self) -> bool:
        """Tell whether its end was seen."""
        return self.ended_seq > 0


@dataclass(slots=True)
class Fold:
    """The operations and dependencies of one run, as far as its signals were read."""

    last_seq: int = 0
    last_at: float | None = None
    """The time of the newest signal of any kind."""
    lanes: dict[str, Lane] = field(default_factory=dict)
    links: dict[tuple[str, str], Link] = field(default_factory=dict)
    replaced_by: dict[str, str] = field(default_factory=dict)
    """An escalated operation and the retry that stands in its place."""
    shape: int = 0
    """Moves when a link is new, ends or stands again."""
    tainted: bool = False
    """An operation failed, was restored or was begun anew: results may be stale."""
    _tails: dict[str, set[str]] = field(default_factory=dict)

    def add(self, rows: Iterable[SignalLike]) -> bool:
        """Fold rows in order of ``seq``; rows already folded are passed over.

        Returns:
            Whether any row was new.
        """
        before = self.last_seq
        for row in rows:
            if row.seq <= self.last_seq:
                continue
            self.last_seq = row.seq
            if self.last_at is None or row.ts > self.last_at:
                self.last_at = row.ts
            self._add(row)
        return self.last_seq != before

    def edges(self) -> tuple[tuple[str, str], ...]:
        """Return every dependency ever announced, in order of announcement."""
        return tuple(self.links)

    def _add(self, row: SignalLike) -> None:
        """Fold one row whose kind and operation are known."""
        if not row.op_id:
            return
        end = _ENDS.get(row.kind)  # type: ignore[call-overload]
        if end is not None:
            self._end(self._lane(row), end, row)
        elif row.kind == SignalKind.QUEUED:
            self._queue(self._lane(row), row)
        elif row.kind == SignalKind.STARTED:
            self._start(self._lane(row), row)
        elif row.kind == SignalKind.PAUSED:
            self._pause(self._lane(row), row)
        elif row.kind == SignalKind.SPAWNED:
            self._spawn(self._lane(row), row.payload)
        elif row.kind == SignalKind.ESCALATED:
            self._escalate(self._lane(row), row)

    def _lane(self, row: SignalLike) -> Lane:
        """Return the operation's lane, made on its first signal, with what it names."""
        op_id = row.op_id or ""
        lane = self.lanes.get(op_id)
        if lane is None:
            lane = self.lanes[op_id] = Lane(op_id, op_id)
        lane.touched = row.seq
        name = _text(row.payload, "name")
        if name and lane.id.startswith(
            lane.name
        ):  # an id is no name; the first one stays
            if lane.name not in (lane.id, name):
                # lionagi announces its summary under a piece of its id.
                lane.origin = Origin.SYNTHESIS
            lane.name = name
        lane.assignee = _text(row.payload, "assignee") or lane.assignee
        origin = _text(row.payload, "origin")
        if origin in _ORIGINS:
            lane.origin = Origin(origin)
        return lane

    def _queue(self, lane: Lane, row: SignalLike) -> None:
        self._begin(lane)
        if lane.status not in (OperationStatus.RUNNING, OperationStatus.PAUSED):
            lane.status = OperationStatus.QUEUED
        if lane.queued_at is None:
            lane.queued_at = row.ts
        self._announce(lane, row.payload)

    def _start(self, lane: Lane, row: SignalLike) -> None:
        self._begin(lane)
        lane.status = OperationStatus.RUNNING
        lane.started_at, lane.started_seq = row.ts, row.seq
        lane.rendered = _texts(row.payload.get("rendered")) or lane.rendered
        lane.ran_on_failed = row.payload.get("stale") is True
        self.tainted |= lane.ran_on_failed
        self._announce(lane, row.payload)

    def _begin(self, lane: Lane) -> None:
        """Begin an operation anew that had ended: it is run again in the same run."""
        if lane.ended:
            self.tainted = True
            _forget_end(lane)

    def _pause(self, lane: Lane, row: SignalLike) -> None:
        if not lane.ended and lane.status != OperationStatus.RUNNING:
            lane.status = OperationStatus.PAUSED
            lane.paused_at = row.ts

    def _end(self, lane: Lane, status: OperationStatus, row: SignalLike) -> None:
        """Keep the first end; a second one without a new start is noise."""
        if lane.ended:
            return
        lane.ended_seq = row.seq
        self.tainted |= status == OperationStatus.FAILED or not lane.started_seq
        lane.withheld = (
            status == OperationStatus.CANCELLED and row.payload.get("started") is False
        )
        if lane.withheld:
            return
        lane.ended_at = row.ts
        if not lane.escalated:
            lane.status = status
        error = row.payload.get("error")
        if isinstance(error, dict):
            lane.error_code = _text(error, "code")
        reason = row.payload.get("reason")
        if isinstance(reason, dict):
            lane.reason = reason

    def _spawn(self, lane: Lane, payload: Mapping[str, object]) -> None:
        """Place an accepted spawn, or a retry, which takes its emitter's place."""
        parent = _text(payload, "parent_id")
        lane.spawned_by = parent or lane.spawned_by
        emitter = _text(payload, "escalated_from")
        if emitter is None and parent is not None and self._retries(lane, parent):
            emitter = parent
        if lane.origin == Origin.PLANNED:
            lane.origin = Origin.SPAWNED if emitter is None else Origin.RETRY
        if emitter is not None:
            self._splice(lane, emitter, parent or emitter)
        elif parent is not None and payload.get("independent") is not True:
            self._depend(lane, (parent,), "spawn")

    def _retries(self, lane: Lane, parent: str) -> bool:
        """Tell whether a spawn without a worker's name answers an escalation.

        lionagi does not say so; its retries are the spawns of an escalated operation
        that name no assignee.
        """
        emitter = self.lanes.get(parent)
        return emitter is not None and emitter.escalated and lane.assignee is None

    def _splice(self, lane: Lane, emitter: str, anchor: str) -> None:
        """Put a retry behind its anchor and hand the anchor's dependents over to it."""
        lane.escalated_from = emitter
        tails = sorted(self._tails.get(anchor, set()) - {lane.id})
        self.replaced_by[anchor] = lane.id
        self._depend(lane, (anchor,), "escalation")
        for tail in tails:
            moved = self.lanes.get(tail)
            if moved is not None and not moved.started_seq and not moved.ended:
                old = self.links[anchor, tail]
                self._depend(moved, moved.heads, old.kind, {lane.id: old.condition})

    def _escalate(self, lane: Lane, row: SignalLike) -> None:
        """Mark an operation whose outcome a retry will replace (SPEC C-32, C-33)."""
        route = _text(row.payload, "route")
        urgency = _text(row.payload, "urgency")
        if route == "higher_tier" or (route is None and urgency == "blocked"):
            lane.escalated = True
            lane.status = OperationStatus.ESCALATED

    def _announce(self, lane: Lane, payload: Mapping[str, object]) -> None:
        """Take over announced dependencies.

        An empty list does not undo what the spawn said: the queue signal of a spawned
        operation names no head.
        """
        heads = _texts(payload.get("depends_on"))
        if heads or (lane.spawned_by is None and "depends_on" in payload):
            conditions = payload.get("conditions")
            said = conditions if isinstance(conditions, dict) else {}
            texts = {k: v for k, v in said.items() if isinstance(v, str)}
            self._depend(lane, heads, "depends", texts)

    def _depend(
        self,
        lane: Lane,
        heads: Iterable[str],
        kind: LinkKind,
        conditions: Mapping[str, str | None] | None = None,
    ) -> None:
        """Let a lane depend on these heads and on nothing else."""
        now = dict.fromkeys(self._present(head, lane.id) for head in heads)
        before, lane.heads = lane.heads, tuple(now)
        if before != lane.heads:
            self.shape += 1
            lane.touched = self.last_seq
        for head in before:
            if head not in now:
                self.links[head, lane.id].active = False
        for head in now:
            link = self.links.setdefault((head, lane.id), Link(kind))
            link.active = True
            if conditions and head in conditions:
                link.condition = conditions[head]
                self.shape += 1
            self._tails.setdefault(head, set()).add(lane.id)

    def _present(self, head: str, tail: str) -> str:
        """Follow retries to what stands in a head's place, short of ``tail``."""
        seen = {head}
        while (after := self.replaced_by.get(head)) not in (None, tail) and (
            after not in seen
        ):
            head = after
            seen.add(head)
        return head


_ORIGINS = frozenset(Origin)


def _forget_end(lane: Lane) -> None:
    """Forget how an operation ended."""
    lane.status = OperationStatus.QUEUED
    lane.escalated = False
    lane.paused_at = lane.started_at = lane.ended_at = None
    lane.started_seq = lane.ended_seq = 0
    lane.error_code = lane.reason = None
    lane.rendered = ()
    lane.ran_on_failed = lane.withheld = False


def _text(payload: Mapping[str, object], name: str) -> str | None:
    """Return a member that is a non-empty string."""
    value = payload.get(name)
    return value if isinstance(value, str) and value else None


def _texts(value: object) -> tuple[str, ...]:
    """Return the strings of a list."""
    if not isinstance(value, list):
        return ()
    return tuple(item for item in value if isinstance(item, str) and item)
