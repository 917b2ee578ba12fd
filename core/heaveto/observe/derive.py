"""Conclusions: from rows, signals, checkpoint and process to what is shown.

Every function here is pure: what was read goes in as values, what is shown comes out.
There is one definition of each word of PRODUCT 3, so list, detail and JSON cannot
disagree about a run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from heaveto.model import (
    TERMINAL_OPERATION,
    TERMINAL_RUN,
    OperationStatus,
    Origin,
    RunState,
    RunStatus,
)
from heaveto.observe.snapshot import LinkView, OperationView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from heaveto.observe.fold import Fold, Lane
    from heaveto.observe.saved import Saved, SavedOutcome
    from heaveto.observe.snapshot import StatusSource

__all__ = [
    "SILENT_AFTER_S",
    "Conclusion",
    "Evidence",
    "Gate",
    "conclude",
    "concluded_end",
    "link_views",
    "node_counts",
    "operation_views",
    "stored_status",
]

_DEADLINE_SLACK_S = 1.0
SILENT_AFTER_S = 600.0
"""A run in which something runs and nothing was written for so long is stalled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What the applied controls say about a run."""

    closed: bool = False
    """A pause is applied and no resume after it."""
    stopping: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known about a run beside its operations."""

    status: RunStatus | None
    """The row's word; None when there is no row or the word is none of ours."""
    phase: str | None
    alive: bool | None
    why: str | None
    """The code of what liveness was concluded from."""
    reason_code: str | None
    now: float
    deadline_at: float | None = None
    last_sign_at: float | None = None
    """The newest signal, output, message or save."""
    gate: Gate = field(default_factory=Gate)
    has_row: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """What heaveto concludes about a run."""

    state: RunState
    source: StatusSource
    sure: bool
    reason_code: str | None
    over: bool
    """It has ended or its process is gone: nothing of it goes on."""


def stored_status(word: str | None) -> RunStatus | None:
    """Return the stored status, or None when it is no word of the contract."""
    return None if word is None else _RUN_WORDS.get(word)


def run_over(status: RunStatus | None, alive: bool | None) -> bool:
    """Tell whether nothing of the run goes on: it ended, or its process is gone."""
    return status in TERMINAL_RUN or alive is False


def conclude(evidence: Evidence, statuses: Iterable[OperationStatus]) -> Conclusion:
    """Conclude the state of a run (PRODUCT 3).

    Args:
        evidence: What is known beside the operations.
        statuses: The statuses of its operations, already concluded.
    """
    status, alive = evidence.status, evidence.alive
    if status is not None and status in TERMINAL_RUN:
        return concluded_end(status, evidence.reason_code)
    if alive is False and status is None and evidence.has_row:
        # Whether it ended by itself is in a word that is not known.
        return _conclusion(
            RunState.UNKNOWN, "process", "status_unknown", over=True, sure=False
        )
    if alive is False:
        return _conclusion(RunState.DEAD, "process", evidence.why, over=True)
    if not evidence.has_row and alive is None:
        return _conclusion(RunState.UNKNOWN, "process", "row_missing", sure=False)
    if status is None or (alive is None and _silent(evidence)):
        reason = evidence.why if status is not None else "status_unknown"
        return _conclusion(RunState.UNKNOWN, "process", reason, sure=False)
    state = _live_state(evidence, frozenset(statuses))
    source: StatusSource = "db" if state == RunState.PLANNING else "signals"
    reason = "silent" if state == RunState.STALLED else evidence.reason_code
    return _conclusion(state, source, reason, sure=alive is True)


@lru_cache(maxsize=256)
def concluded_end(status: RunStatus, reason_code: str | None) -> Conclusion:
    """Conclude about a run whose row says that it has ended: the row is believed."""
    return _conclusion(RunState(status.value), "db", reason_code, over=True)


def _conclusion(
    state: RunState,
    source: StatusSource,
    reason: str | None,
    *,
    over: bool = False,
    sure: bool = True,
) -> Conclusion:
    return Conclusion(
        state=state, source=source, sure=sure, reason_code=reason, over=over
    )


def _live_state(evidence: Evidence, statuses: frozenset[OperationStatus]) -> RunState:
    """Conclude what a run that goes on is doing, the most binding word first."""
    running = OperationStatus.RUNNING in statuses
    if evidence.gate.stopping or evidence.phase == "stopping":
        return RunState.STOPPING
    if evidence.phase == "draining" or _past_deadline(evidence):
        return RunState.DRAINING
    if evidence.gate.closed:
        return RunState.PAUSING if running else RunState.PAUSED
    if evidence.phase == "synthesizing":
        return RunState.STALLED if _silent(evidence) else RunState.SYNTHESIZING
    if evidence.phase == "planning" or not statuses:
        return RunState.PLANNING
    if running and _silent(evidence):
        return RunState.STALLED
    return RunState.EXECUTING


def _past_deadline(evidence: Evidence) -> bool:
    """Tell whether the recorded time limit came and the run has not said so yet."""
    deadline = evidence.deadline_at
    return deadline is not None and evidence.now >= deadline + _DEADLINE_SLACK_S


def _silent(evidence: Evidence) -> bool:
    """Tell whether nothing was written for ten minutes."""
    last = evidence.last_sign_at
    return last is None or evidence.now - last >= SILENT_AFTER_S


# --- operations


KnownViews = dict[str, tuple[object, OperationView]]
"""Views made before by operation id, each with what it was made of."""


def operation_views(
    fold: Fold,
    saved: Saved | None,
    *,
    gate: Gate,
    over: bool,
    dead: bool,
    known: KnownViews | None = None,
) -> tuple[OperationView, ...]:
    """Return every operation of a run, in order of announcement.

    Args:
        fold: Its signals.
        saved: What its checkpoint holds; None when there is none.
        gate: What the applied controls say.
        over: The run has ended or its process is gone.
        dead: Its process is gone and the row still says running.
        known: Views of the same fold from before: what did not change is used again,
            so that a look at a long run costs what is new. It is brought up to date.
    """
    state = _Reconciled(fold, saved, gate=gate, over=over, dead=dead)
    kept = {} if known is None else known
    views = [state.known_view(lane, kept) for lane in fold.lanes.values()]
    views.extend(state.unannounced())
    return tuple(views)


class _Reconciled:
    """Signals and checkpoint laid over each other, for one snapshot."""

    def __init__(
        self, fold: Fold, saved: Saved | None, *, gate: Gate, over: bool, dead: bool
    ) -> None:
        self.fold = fold
        self.saved = saved if saved is not None and saved.readable else None
        self.has_checkpoint = saved is not None and saved.readable
        self.gate, self.over = gate, over
        self.ended_source: StatusSource = "process" if dead else "db"
        self.stale = _stale_lanes(fold) if fold.tainted else frozenset()

    def known_view(self, lane: Lane, known: KnownViews) -> OperationView:
        """Return one operation that the signals know, made before or now."""
        outcome = self._outcome(lane)
        status, source = self._status(lane, outcome)
        stale = lane.id in self.stale
        rests_on = (lane.touched, status, source, stale, self.has_checkpoint, outcome)
        found = known.get(lane.id)
        if found is None or found[0] != rests_on:
            found = (rests_on, self._view(lane, outcome, status, source, stale=stale))
            known[lane.id] = found
        return found[1]

    def _view(
        self,
        lane: Lane,
        outcome: SavedOutcome | None,
        status: OperationStatus,
        source: StatusSource,
        *,
        stale: bool,
    ) -> OperationView:
        error_code, error_text = _error(status, lane, outcome)
        return OperationView(
            id=lane.id,
            name=lane.name,
            assignee=lane.assignee or self._assignee(lane),
            status=status,
            status_source=source,
            depends_on=lane.heads,
            origin=lane.origin,
            stale=stale,
            executed=(lane.ended and not lane.withheld) or source == "checkpoint",
            persisted=self._persisted(outcome),
            started_at=lane.started_at,
            ended_at=lane.ended_at,
            error_code=error_code,
            error_text=error_text,
            reason=_reason(lane),
            rendered=lane.rendered,
            spawned_by=lane.spawned_by,
            queued_at=lane.queued_at,
            paused_at=lane.paused_at,
        )

    def unannounced(self) -> Iterable[OperationView]:
        """Return what only the checkpoint knows."""
        if self.saved is None:
            return
        known = set(self.fold.lanes)
        names = {lane.name for lane in self.fold.lanes.values()}
        ids = {item.agent_id: item.node_id or item.agent_id for item in self.saved.plan}
        for item in self.saved.plan:
            if ids[item.agent_id] in known or item.agent_id in names:
                continue
            outcome = self.saved.planned.get(item.agent_id)
            heads = tuple(ids.get(head, head) for head in item.heads)
            yield self._from_checkpoint(
                ids[item.agent_id], item.agent_id, item.assignee, heads, outcome
            )
        for node_id, spawned in self.saved.spawned.items():
            if node_id not in known:
                heads = () if spawned.parent_id is None else (spawned.parent_id,)
                yield self._from_checkpoint(
                    node_id, spawned.name or node_id, spawned.assignee, heads, spawned
                )

    def _from_checkpoint(
        self,
        op_id: str,
        name: str,
        assignee: str | None,
        heads: tuple[str, ...],
        outcome: SavedOutcome | None,
    ) -> OperationView:
        status = OperationStatus.UNSTARTED if self.over else OperationStatus.WAITING
        source: StatusSource = self.ended_source if self.over else "checkpoint"
        if outcome is not None:
            status, source = outcome.status, "checkpoint"
        done = outcome is not None and outcome.status in TERMINAL_OPERATION
        failed = status == OperationStatus.FAILED and outcome is not None
        return OperationView(
            id=op_id,
            name=name,
            assignee=assignee,
            status=status,
            status_source=source,
            depends_on=heads,
            origin=Origin.PLANNED if outcome is None else outcome.origin,
            stale=False,
            executed=done,
            persisted=self._persisted(outcome),
            started_at=None,
            ended_at=None,
            error_code=outcome.error_code if failed and outcome else None,
            error_text=outcome.error_text if failed and outcome else None,
            spawned_by=None if outcome is None else outcome.parent_id,
        )

    def _outcome(self, lane: Lane) -> SavedOutcome | None:
        """Return what the checkpoint holds for an operation."""
        if self.saved is None:
            return None
        found = self.saved.spawned.get(lane.id)
        if found is not None:
            return found
        name = self.saved.agent_of.get(lane.id)
        if name is None and lane.origin in (Origin.PLANNED, Origin.SYNTHESIS):
            name = lane.name
        return None if name is None else self.saved.planned.get(name)

    def _status(
        self, lane: Lane, outcome: SavedOutcome | None
    ) -> tuple[OperationStatus, StatusSource]:
        """Conclude the status of one operation and where it comes from."""
        if lane.status in TERMINAL_OPERATION:
            return lane.status, "signals"
        if lane.withheld and outcome is None:
            return OperationStatus.UNSTARTED, "signals"
        if outcome is not None and (
            self.over or outcome.status == OperationStatus.PENDING
        ):
            return outcome.status, "checkpoint"
        if self.over:
            started = lane.status == OperationStatus.RUNNING
            word = OperationStatus.LOST if started else OperationStatus.UNSTARTED
            return word, self.ended_source
        return self._live_status(lane), "signals"

    def _live_status(self, lane: Lane) -> OperationStatus:
        if lane.status == OperationStatus.RUNNING:
            return OperationStatus.RUNNING
        if lane.status == OperationStatus.PAUSED and self.gate.closed:
            return OperationStatus.PAUSED
        return (
            OperationStatus.QUEUED
            if all(self._head_ended(head) for head in lane.heads)
            else OperationStatus.WAITING
        )

    def _head_ended(self, head: str) -> bool:
        lane = self.fold.lanes.get(head)
        return lane is None or lane.ended

    def _assignee(self, lane: Lane) -> str | None:
        if self.saved is None:
            return None
        spawned = self.saved.spawned.get(lane.id)
        if spawned is not None:
            return spawned.assignee
        agent = self.saved.agent_of.get(lane.id, lane.name)
        return self.saved.assignees.get(agent)

    def _persisted(self, outcome: SavedOutcome | None) -> bool | None:
        if not self.has_checkpoint:
            return None
        return outcome is not None and outcome.status in TERMINAL_OPERATION


def _error(
    status: OperationStatus, lane: Lane, outcome: SavedOutcome | None
) -> tuple[str | None, str | None]:
    """Return code and text of a failure; the text is only in the checkpoint."""
    if status != OperationStatus.FAILED:
        return None, None
    code = lane.error_code or (outcome.error_code if outcome else None)
    return code or "worker_error", outcome.error_text if outcome else None


def _reason(lane: Lane) -> str | None:
    """Return the code of why an operation was skipped."""
    code = (lane.reason or {}).get("code")
    return code if isinstance(code, str) else None


def _stale_lanes(fold: Fold) -> frozenset[str]:
    """Return the operations that rest on a failed or since repeated input.

    An operation ran on a failed input when one of the heads it stands on had failed
    before it started, or rests on such a one itself. It was kept from before when a
    head started only after it had ended: an earlier result that was made anew.
    """
    tails: dict[str, list[str]] = {}
    open_ = []
    for lane in fold.lanes.values():
        if not _ran(lane):
            continue
        for head in lane.heads:
            tails.setdefault(head, []).append(lane.id)
        if lane.ran_on_failed or any(_taints(fold, head, lane) for head in lane.heads):
            open_.append(lane.id)
    stale: set[str] = set()
    while open_:
        name = open_.pop()
        if name not in stale:
            stale.add(name)
            open_.extend(tails.get(name, ()))
    return frozenset(stale)


def _ran(lane: Lane) -> bool:
    """Tell whether an operation has run or runs, in this run or an earlier one."""
    withheld = (OperationStatus.SKIPPED, OperationStatus.CANCELLED)
    return lane.status not in withheld and (lane.started_seq > 0 or lane.ended)


def _taints(fold: Fold, name: str, lane: Lane) -> bool:
    """Tell whether a head failed before, or was repeated after, the operation ran."""
    head = fold.lanes.get(name)
    if head is None:
        return False
    if head.status == OperationStatus.FAILED:
        return True
    return lane.ended and lane.ended_seq < head.started_seq


# --- links, counts


def link_views(fold: Fold, saved: Saved | None) -> tuple[LinkView, ...]:
    """Return every dependency, spawn and escalation with whether it still stands."""
    if fold.links or saved is None or not saved.readable:
        return tuple(
            LinkView(
                head=head,
                tail=tail,
                kind=link.kind,
                condition=link.condition,
                active=link.active,
            )
            for (head, tail), link in fold.links.items()
        )
    return tuple(
        LinkView(head=head, tail=tail, kind=kind, condition=None, active=True)
        for head, tail, kind in saved.links()
    )


def node_counts(statuses: Iterable[OperationStatus]) -> dict[str, int]:
    """Return ``total`` and one count for every status that occurs."""
    counts: dict[str, int] = {"total": 0}
    for status in statuses:
        counts["total"] += 1
        counts[status.value] = counts.get(status.value, 0) + 1
    return counts


_RUN_WORDS: Mapping[str, RunStatus] = {status.value: status for status in RunStatus}
