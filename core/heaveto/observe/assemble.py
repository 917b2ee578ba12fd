"""One run's facts put together into the snapshot that is shown.

:class:`Facts` is everything that was read of a run at one moment; :func:`detail` makes
the whole snapshot of it, :func:`counted` a summary from counts alone, for the many
ended runs of a list. Pure.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from heaveto.model import TERMINAL_RUN, OperationStatus, Origin, RunState, RunStatus
from heaveto.observe.derive import (
    Evidence,
    conclude,
    concluded_end,
    link_views,
    node_counts,
    operation_views,
    run_over,
    stored_status,
)
from heaveto.observe.ledger import control_views, gate_of
from heaveto.observe.snapshot import CheckpointView, RunDetail, RunSummary
from heaveto.observe.words import notice

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from heaveto.liveness import Liveness
    from heaveto.observe.derive import Conclusion, Gate, KnownViews
    from heaveto.observe.fold import Fold
    from heaveto.observe.saved import Saved
    from heaveto.observe.snapshot import ControlView, LinkView, Notice, OperationView
    from heaveto.statedb import ControlRow, SessionRow

__all__ = ["Facts", "Memory", "Place", "counted", "detail"]

_WEDGED_AFTER_S = 30.0
_WAITING_AFTER_S = 10.0
_CLOCK_SLACK_S = 2.0
_NO_NAME = "Session"
"""What lionagi calls every session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a run lies and what is known about its files."""

    home: str
    source: Literal["heaveto", "lionagi"]
    run_dir: str | None
    has_dir: bool
    damaged_json: bool = False
    foreign: bool = False
    generation_dir: str | None = None
    """The committed generation of its engine state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was read of one run at one moment."""

    row: SessionRow
    place: Place
    fold: Fold
    controls: Sequence[ControlRow]
    saved: Saved | None
    process: Liveness
    now: float
    last_output_at: float | None = None
    resumed_from: str | None = None
    superseded_by: str | None = None
    survivors: tuple[dict[str, object], ...] = ()
    has_row: bool = True
    gate: Gate | None = None
    """None: the controls and the phase tell whether it is closed."""

    @property
    def alive(self) -> bool | None:
        """Whether its process is there."""
        return self.process.alive


class Memory:
    """What earlier snapshots of a run were made of, to use again what did not change.

    It belongs to one fold and has one owner.
    """

    __slots__ = ("edges", "links", "shape", "views")

    def __init__(self) -> None:
        """Remember nothing."""
        self.views: KnownViews = {}
        self.shape: object = None
        self.links: tuple[LinkView, ...] = ()
        self.edges: tuple[tuple[str, str], ...] = ()

    def read_links(self, fold: Fold, saved: Saved | None) -> None:
        """Bring links and edges up to date."""
        shape = (fold.shape, None if fold.links else saved)
        if shape != self.shape:
            self.shape = shape
            self.links = link_views(fold, saved)
            self.edges = tuple((link.head, link.tail) for link in self.links)


def detail(facts: Facts, memory: Memory | None = None) -> RunDetail:
    """Return one run whole, as ``show`` prints it.

    Args:
        facts: What was read.
        memory: Of earlier snapshots of the same run.
    """
    memory = memory or Memory()
    fold, saved = facts.fold, facts.saved
    evidence = _evidence(facts)
    over = run_over(evidence.status, facts.alive)
    operations = operation_views(
        fold,
        saved,
        gate=evidence.gate,
        over=over,
        dead=over and evidence.status == RunStatus.RUNNING,
        known=memory.views,
    )
    conclusion = conclude(evidence, [view.status for view in operations])
    controls = control_views(
        facts.controls,
        saved,
        over=over,
        alive=facts.alive,
        now=facts.now,
        rendered={
            control: lane.id
            for lane in fold.lanes.values()
            for control in lane.rendered
        },
    )
    ran = any(view.executed for view in operations)
    run = _summary(
        facts,
        conclusion,
        nodes=node_counts(view.status for view in operations),
        checkpoint=None if saved is None else saved.view,
        warnings=tuple(_warnings(facts, conclusion, operations, controls, ran=ran)),
        last_sign_at=evidence.last_sign_at,
    )
    memory.read_links(fold, saved)
    return RunDetail(
        run=run,
        operations=operations,
        edges=memory.edges,
        links=memory.links,
        controls=controls,
        run_dir=facts.place.run_dir,
        artifact_root=_artifact_root(facts),
        survivors=facts.survivors,
    )


def _evidence(facts: Facts) -> Evidence:
    """Return what is known about a run beside its operations."""
    row = facts.row
    gate = facts.gate
    return Evidence(
        status=stored_status(row.status),
        phase=row.current_phase,
        alive=facts.alive,
        why=facts.process.code or None,
        reason_code=row.status_reason_code,
        now=facts.now,
        deadline_at=_number(row.node_metadata.get("deadline_at")),
        last_sign_at=_last_sign(facts),
        gate=gate_of(facts.controls, row.current_phase) if gate is None else gate,
        has_row=facts.has_row,
    )


def counted(facts: Facts, nodes: dict[str, int], *, whole: bool = True) -> RunSummary:
    """Return the summary of a run that is over, told without reading it.

    Args:
        facts: Its row, controls, place and what is known of its checkpoint; its signals
            were not read.
        nodes: ``total`` and one count a status.
        whole: Whether row and counts are known to tell all there is of it.
    """
    status = stored_status(facts.row.status)
    if status in TERMINAL_RUN:
        conclusion = concluded_end(status, facts.row.status_reason_code)
    else:
        conclusion = conclude(_evidence(facts), ())
    controls = control_views(
        facts.controls,
        facts.saved,
        over=conclusion.over,
        alive=facts.alive,
        now=facts.now,
        rendered={},
    )
    return _summary(
        facts,
        conclusion if whole else replace(conclusion, sure=False),
        nodes=nodes,
        checkpoint=None if facts.saved is None else facts.saved.view,
        warnings=tuple(
            _warnings(facts, conclusion, (), controls, ran=nodes["total"] > 0)
        ),
        last_sign_at=_last_sign(facts),
    )


def _summary(
    facts: Facts,
    conclusion: Conclusion,
    *,
    nodes: dict[str, int],
    checkpoint: CheckpointView | None,
    warnings: tuple[Notice, ...],
    last_sign_at: float | None,
) -> RunSummary:
    row = facts.row
    metadata = row.node_metadata
    return RunSummary(
        run_id=row.run_id or "",
        session_id=row.id,
        home=facts.place.home,
        source=facts.place.source,
        name=_name(facts),
        status=stored_status(row.status) or row.status,
        state=conclusion.state,
        reason_code=conclusion.reason_code,
        phase=row.current_phase,
        alive=False if _ended(conclusion) else facts.alive,
        status_source=conclusion.source,
        observed_at=facts.now,
        confidence="sure" if conclusion.sure else "derived",
        nodes=nodes,
        checkpoint=checkpoint,
        generation_dir=facts.place.generation_dir,
        started_at=row.started_at if row.started_at is not None else row.created_at,
        ended_at=row.ended_at,
        deadline_at=_number(metadata.get("deadline_at")),
        resumed_from=facts.resumed_from,
        superseded_by=facts.superseded_by,
        warnings=warnings,
        last_sign_at=last_sign_at,
        pid=facts.process.pid,
        alive_why=facts.process.why,
    )


def _name(facts: Facts) -> str | None:
    """Return what people call a run.

    lionagi names hardly any: what a run was asked for tells it from the others.
    """
    row = facts.row
    if facts.place.source == "heaveto":
        return row.name or row.playbook_name or row.agent_name
    given = None if row.name == _NO_NAME else row.name
    asked = None if facts.saved is None else facts.saved.title
    named = row.user_label or row.playbook_name or given
    return named or asked or row.agent_name or row.invocation_kind


def _ended(conclusion: Conclusion) -> bool:
    return conclusion.over and conclusion.state != RunState.DEAD


def _last_sign(facts: Facts) -> float | None:
    """Return the newest signal, output, message, save or change of the row."""
    row = facts.row
    if row.ended_at is not None:
        return row.ended_at
    saved_at = None if facts.saved is None else facts.saved.saved_at
    signs = (
        facts.fold.last_at,
        saved_at,
        facts.last_output_at,
        row.last_message_at,
        row.updated_at,
        row.created_at,
        *(control.applied_at for control in facts.controls),
    )
    return max((sign for sign in signs if sign is not None), default=None)


# --- warnings


def _warnings(
    facts: Facts,
    conclusion: Conclusion,
    operations: Sequence[OperationView],
    controls: Sequence[ControlView],
    *,
    ran: bool,
) -> Iterable[Notice]:
    """Yield what a person should know, the worst first; ``ran``: something ended."""
    yield from _about_checkpoint(facts, conclusion, operations, ran=ran)
    if facts.survivors:
        yield notice("survivors", _survivors(facts))
    if controls:
        yield from _about_controls(conclusion, controls)
    if operations:
        yield from _about_operations(conclusion, operations)
    yield from _about_place(facts, conclusion)


def _about_checkpoint(
    facts: Facts,
    conclusion: Conclusion,
    operations: Sequence[OperationView],
    *,
    ran: bool,
) -> Iterable[Notice]:
    metadata, saved = facts.row.node_metadata, facts.saved
    if metadata.get("persist_failed"):
        yield notice("persist_failed")
    if saved is None:
        wanted = conclusion.over and conclusion.state != RunState.COMPLETED
        if wanted and ran and facts.place.has_dir:
            yield notice("checkpoint_missing")
        return
    reason = saved.reasons[-1] if saved.reasons else ""
    if not saved.readable:
        yield notice(
            "checkpoint_refused",
            f"Its checkpoint is refused ({reason}), so nothing of it is shown.",
        )
    elif saved.view.status == "recovered_prefix":
        codes = ", ".join(saved.reasons)
        seq = "" if saved.view.seq is None else f" up to seq {saved.view.seq}"
        yield notice("checkpoint_prefix", f"Its checkpoint is good{seq} ({codes}).")
    unsaved = sum(1 for view in operations if _is_unsaved(view))
    if unsaved and conclusion.over:
        yield notice("unsaved", f"{_count(unsaved, 'result')} in no checkpoint.")


def _is_unsaved(view: OperationView) -> bool:
    """Tell whether a result was seen that the checkpoint does not hold.

    A summary is made anew from the results and is in no checkpoint.
    """
    done = (OperationStatus.COMPLETED, OperationStatus.FAILED)
    if view.origin == Origin.SYNTHESIS:
        return False
    return view.status in done and view.executed and view.persisted is False


def _about_controls(
    conclusion: Conclusion, controls: Sequence[ControlView]
) -> Iterable[Notice]:
    lost = sum(1 for control in controls if control.lost)
    if lost:
        yield notice("steer_lost", f"{_count(lost, 'message')} lost: applied, unsaved.")
    klasses = Counter(control.klass for control in controls)
    if klasses["never_landed"]:
        yield notice(
            "never_landed", f"{_count(klasses['never_landed'], 'control')} never taken."
        )
    if klasses["claimed"] and conclusion.over:
        yield notice(
            "not_reported",
            f"{_count(klasses['claimed'], 'control')} taken and never reported back.",
        )
    if conclusion.over:
        return
    old = [one for one in controls if one.klass in ("claimed", "queued")]
    if any(one.klass == "claimed" and one.age_s > _WEDGED_AFTER_S for one in old):
        yield notice("wedged_claim")
    if any(one.klass == "queued" and one.age_s > _WAITING_AFTER_S for one in old):
        yield notice("control_waiting")


def _about_operations(
    conclusion: Conclusion, operations: Sequence[OperationView]
) -> Iterable[Notice]:
    stale = sum(1 for view in operations if view.stale)
    if stale:
        failed = any(view.status == OperationStatus.FAILED for view in operations)
        if failed:
            verb = "rests" if stale == 1 else "rest"
            text = f"{_count(stale, 'operation')} {verb} on the error of another one."
            yield notice("input_failed", text)
        else:
            text = f"{_count(stale, 'result')} kept from before an input was made anew."
            yield notice("stale_result", text)
    lost = sum(1 for view in operations if view.status == OperationStatus.LOST)
    if lost and _ended(conclusion):
        text = f"It ended, and {_count(lost, 'operation')} without an end on record."
        yield notice("open_ends", text)


def _about_place(facts: Facts, conclusion: Conclusion) -> Iterable[Notice]:
    row, metadata = facts.row, facts.row.node_metadata
    if facts.alive is None and not conclusion.over:
        yield notice("liveness_unknown")
    if not facts.has_row:
        yield notice("row_missing")
    elif stored_status(row.status) is None:
        yield notice("status_unknown")
    if row.metadata_raw is not None:
        yield notice("row_damaged")
    if facts.has_row and row.run_id and not facts.place.has_dir:
        yield notice("run_dir_missing")
    if facts.place.damaged_json:
        yield notice("run_json_damaged")
    if facts.place.foreign:
        yield notice("foreign_owner")
    if metadata.get("signals_gap_at") or metadata.get("signal_persistence_degraded_at"):
        yield notice("signals_gap")
    if _clock_is_odd(row, facts.now):
        yield notice("clock_odd")


def _clock_is_odd(row: SessionRow, now: float) -> bool:
    """Tell whether a run began in the future or ended before it began."""
    start = row.started_at if row.started_at is not None else row.created_at
    if start is None:
        return False
    if start > now + _CLOCK_SLACK_S:
        return True
    return row.ended_at is not None and row.ended_at < start - _CLOCK_SLACK_S


def _survivors(facts: Facts) -> str:
    return f"{_count(len(facts.survivors), 'process', 'processes')} of it still there."


def _count(number: int, word: str, plural: str | None = None) -> str:
    """Return a count with its word: ``1 message``, ``3 messages``."""
    return f"{number} {word if number == 1 else plural or word + 's'}"


def _artifact_root(facts: Facts) -> str | None:
    found = _text(facts.row.node_metadata.get("artifact_root"))
    return found or facts.row.artifacts_path


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 2.0**53 else None
