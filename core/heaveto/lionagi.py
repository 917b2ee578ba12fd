"""What lionagi makes of a resume: ``li o flow --resume`` of 0.36, predicted.

:func:`predict_lionagi` follows that program's order of refusals: the first reason is
the one that lionagi gives, the others would follow it. Where its own sentence names a
wrong cause, the reason here names the true one.

Pure: nothing here reads a file or a clock. No reason quotes a task, a response or a
context.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any

from heaveto.resume import (
    Entry,
    NodePlan,
    ResumePlan,
    ResumeReason,
    Settlement,
    Verdict,
    check_failed,
    check_spawned,
    drop_under,
    node_id,
    node_name,
)

__all__ = ["LionagiCase", "predict_lionagi"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LionagiCase:
    """Everything that a resume by lionagi depends on.

    ``state`` is None when the checkpoint is refused or absent; ``report`` says which.
    """

    target: str
    state: Mapping[str, Any] | None
    report: Mapping[str, object]
    alive: bool | None = False
    """Whether the process of a run that has not ended is there."""
    persistence: str | None = None
    """Why the run was told not to save anything, if it was."""
    has_run: bool = True
    """The session has a run on record."""
    retry_failed: bool = False
    degraded_allowed: bool = False
    stale: frozenset[str] = frozenset()
    """Agent ids and spawn ids whose results are known to rest on an error."""
    lost_steers: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    """What people call spawned nodes, by id, where the log tells."""
    reads_settings: Callable[[str | None], bool] = lambda assignee: True

    def name(self, entry: Entry) -> str:
        """Return what people call a spawned entry."""
        return self.names.get(node_id(entry)) or node_name(entry)


def predict_lionagi(case: LionagiCase) -> ResumePlan:
    """Predict what ``li o flow --resume`` does with a checkpoint (lionagi 0.36).

    A live run is refused here although lionagi would not notice it.
    """
    state = case.state
    if state is None:
        return _plan(case, (*_alive(case), _unreadable(case)), ())
    plan = [entry for entry in state["plan"] if isinstance(entry, dict)]
    ops: Mapping[str, Entry] = state["ops"]
    spawned: list[Entry] = list(state["spawned"])
    agents = [str(entry.get("agent_id")) for entry in plan]
    failed = check_failed(ops, spawned, agents)
    dropped: tuple[Entry, ...] = ()
    kept: Sequence[Entry] = spawned
    if case.retry_failed:
        # Planned nodes get new ids when they are resumed, so that only children of
        # spawned nodes are found and dropped; the others meet check 6.
        rerun = {node_id(one) for one in spawned if one.get("status") == "failed"}
        kept, dropped = drop_under(spawned, rerun)
    refusals = check_spawned(
        kept,
        parents={},
        retry_failed=case.retry_failed,
        takes_pending=False,
        reads_settings=case.reads_settings,
        name=case.name,
    )
    reasons = (
        *_alive(case),
        *_check_plan(plan),
        *(() if case.retry_failed else failed),
        *map(_lionagis_words, refusals),
        *_check_circle(case, plan, kept),
    )
    nodes = (
        *_planned(case, plan, ops),
        *_rebuilt(case, kept, {one.node for one in refusals}),
        *_left_out(case, dropped),
    )
    return _plan(case, reasons, nodes)


def _plan(
    case: LionagiCase,
    reasons: tuple[ResumeReason, ...],
    nodes: tuple[NodePlan, ...],
) -> ResumePlan:
    config = {} if case.state is None else case.state["config"]
    return ResumePlan(
        target=case.target,
        reasons=reasons,
        nodes=nodes,
        lost_steers=case.lost_steers,
        effective_config=_shown_config(config),
        checkpoint_recovery=case.report,
        notes=tuple(_notes(case, nodes, refused=bool(reasons))),
    )


def _alive(case: LionagiCase) -> tuple[ResumeReason, ...]:
    if not case.alive:
        return ()
    text = (
        "the run's process is there; lionagi would not look and run the rest twice:"
        " steer it, or end it first"
    )
    return (ResumeReason(code="run_live", node=None, text=text),)


def _unreadable(case: LionagiCase) -> ResumeReason:
    """Say why there is nothing to resume from."""
    if not case.has_run:
        text = "the session has no run on record, so it has no checkpoint"
        return ResumeReason(code="no_checkpoint", node=None, text=text)
    if case.persistence is not None:
        text = f"saving was switched off for this run: {case.persistence}"
        return ResumeReason(code="no_checkpoint", node=None, text=text)
    found = case.report.get("reasons")
    reasons = found if isinstance(found, list) else []
    code = str(reasons[-1].get("code")) if reasons else "base_missing"
    if code == "base_missing":
        text = "the run has no checkpoint.json"
        return ResumeReason(code="no_checkpoint", node=None, text=text)
    text = f"its checkpoint must not be used ({code})"
    return ResumeReason(code="checkpoint_refused", node=None, text=text)


_TAKEN = frozenset(
    {
        "agent_id",
        "dep_indices",
        "task",
        "assignee",
        "inputs",
        "exit_criteria",
        "depends_on",
        "modes",
    }
)
"""What lionagi 0.36 takes in an entry of a plan; anything else makes a resume fail."""


def _check_plan(plan: Sequence[Entry]) -> tuple[ResumeReason, ...]:
    if not plan:
        text = "the checkpoint holds an empty plan"
        return (ResumeReason(code="empty_plan", node=None, text=text),)
    return tuple(
        ResumeReason(
            code="checkpoint_refused",
            node=str(entry.get("agent_id")),
            text=f"the plan entry of {entry.get('agent_id')} {what}",
        )
        for entry in plan
        for what in _plan_faults(entry, len(plan))
    )


def _places(entry: Entry) -> list[int] | None:
    """Return which entries of the plan one depends on; None when it does not say so."""
    found = entry.get("dep_indices") or []
    if not isinstance(found, list) or not all(isinstance(one, int) for one in found):
        return None
    return found


def _plan_faults(entry: Entry, size: int) -> list[str]:
    """Return what keeps lionagi from taking an entry of the plan."""
    faults = []
    extra = sorted(set(entry) - _TAKEN)
    if extra:
        faults.append(f"has members that lionagi does not take: {', '.join(extra)}")
    faults += [
        f"has no {name}"
        for name in ("agent_id", "task", "assignee")
        if not isinstance(entry.get(name), str)
    ]
    places = _places(entry)
    if places is None or not all(0 <= place < size for place in places):
        faults.append("depends on an entry that is not there")
    return faults


def _check_circle(
    case: LionagiCase, plan: Sequence[Entry], spawned: Sequence[Entry]
) -> tuple[ResumeReason, ...]:
    """Tell what stands in a circle: lionagi builds it all and then stops at it."""
    names = {place: str(entry.get("agent_id")) for place, entry in enumerate(plan)}
    spawns = {node_id(one): one for one in spawned}
    ids = {name: len(plan) + at for at, name in enumerate(spawns)}
    names.update((ids[name], case.name(one)) for name, one in spawns.items())
    heads = {place: _places(entry) or [] for place, entry in enumerate(plan)}
    for name, one in spawns.items():
        parent = one.get("parent_id")
        head = ids.get(parent) if isinstance(parent, str) else None
        heads[ids[name]] = [] if head is None else [head]
    try:
        TopologicalSorter(heads).prepare()
    except CycleError as error:
        found = " -> ".join(names.get(one, str(one)) for one in error.args[1])
        text = f"these depend on one another in a circle: {found}"
        return (ResumeReason(code="checkpoint_refused", node=None, text=text),)
    return ()


def _lionagis_words(reason: ResumeReason) -> ResumeReason:
    """Name the true cause where lionagi's own sentence names a wrong one."""
    if reason.code != "spawn_check_6":
        return reason
    text = (
        f"{reason.text}: lionagi 0.36 gives planned operations new ids on a resume, so"
        " a run that spawned anything cannot be resumed by it"
    )
    return ResumeReason(code=reason.code, node=reason.node, text=text)


def _planned(
    case: LionagiCase, plan: Sequence[Entry], ops: Mapping[str, Entry]
) -> tuple[NodePlan, ...]:
    """Return what happens to each planned node, in the order of the plan."""
    stale = _stale(plan, ops) | case.stale
    return tuple(
        _planned_node(
            str(entry.get("agent_id")),
            ops.get(str(entry.get("agent_id")), {}).get("status"),
            retry=case.retry_failed,
            stale=stale,
        )
        for entry in plan
    )


def _planned_node(
    name: str, status: object, *, retry: bool, stale: Collection[str]
) -> NodePlan:
    if status == "completed":
        why = "its recorded result is used again"
        if name in stale:
            why += ", though it rests on an error or an older result"
        return NodePlan(
            id=name,
            name=name,
            verdict=Verdict.REUSE,
            settlement=Settlement.UNCHECKED,
            stale=name in stale,
            why=why,
        )
    if status == "failed":
        verdict = Verdict.RETRY if retry else Verdict.REFUSED
        why = "it failed and runs again" if retry else "it is recorded as failed"
        return NodePlan(id=name, name=name, verdict=verdict, why=why)
    why = "it has no recorded outcome"
    return NodePlan(id=name, name=name, verdict=Verdict.RUN, why=why)


def _stale(plan: Sequence[Entry], ops: Mapping[str, Entry]) -> frozenset[str]:
    """Return the completed nodes that rest on a failed one, directly or not."""
    names = [str(entry.get("agent_id")) for entry in plan]
    tails: dict[str, list[str]] = {}
    for name, entry in zip(names, plan, strict=True):
        for place in _places(entry) or ():
            if 0 <= place < len(names):
                tails.setdefault(names[place], []).append(name)
    open_ = [name for name in names if ops.get(name, {}).get("status") == "failed"]
    found: set[str] = set()
    while open_:
        for tail in tails.get(open_.pop(), ()):
            if tail not in found and ops.get(tail, {}).get("status") == "completed":
                found.add(tail)
                open_.append(tail)
    return frozenset(found)


def _rebuilt(
    case: LionagiCase, kept: Sequence[Entry], refused: Collection[str | None]
) -> tuple[NodePlan, ...]:
    """Return what happens to spawned nodes that are rebuilt, or keep it all back."""
    nodes = []
    for entry in kept:
        id_, name, status = node_id(entry), case.name(entry), entry.get("status")
        if id_ in refused:
            verdict, why = Verdict.REFUSED, "lionagi cannot rebuild it"
        elif status == "completed":
            verdict, why = Verdict.REUSE, "its recorded result is used again"
        elif case.retry_failed:
            verdict, why = Verdict.RETRY, "it failed and runs again"
        else:
            verdict, why = Verdict.REFUSED, "it is recorded as failed"
        used = verdict is Verdict.REUSE
        nodes.append(
            NodePlan(
                id=id_,
                name=name,
                verdict=verdict,
                settlement=Settlement.UNCHECKED if used else Settlement.NONE,
                stale=used and name in case.stale,
                why=why,
            )
        )
    return tuple(nodes)


def _left_out(case: LionagiCase, dropped: Sequence[Entry]) -> tuple[NodePlan, ...]:
    why = "its parent runs again and decides anew"
    return tuple(
        NodePlan(
            id=node_id(entry), name=case.name(entry), verdict=Verdict.DROPPED, why=why
        )
        for entry in dropped
    )


def _shown_config(config: Mapping[str, object]) -> dict[str, object]:
    """Return the recorded settings that a resume uses: plain ones, timeout first."""
    plain = (str, int, float, bool, type(None))
    shown = {"timeout": config.get("timeout")}
    shown.update(
        (name, value) for name, value in config.items() if isinstance(value, plain)
    )
    return shown


def _notes(case: LionagiCase, nodes: Sequence[NodePlan], *, refused: bool) -> list[str]:
    """Return what else a person should know before resuming."""
    notes = []
    config = {} if case.state is None else case.state["config"]
    if refused and case.state is not None and not case.alive:
        notes.append(
            "Trying it all the same starts nothing and leaves a session that reads"
            " failed. lionagi's own dry run would not tell."
        )
    if case.alive is None and case.state is not None:
        notes.append(
            "Whether its process is there cannot be told from here; where it is,"
            " lionagi runs the rest twice."
        )
    if (limit := config.get("timeout")) is not None:
        notes.append(
            f"The recorded time limit of {limit} s is used again; lionagi ignores a"
            " new one."
        )
    if nodes and not refused and all(one.verdict is Verdict.REUSE for one in nodes):
        again = "only the summary again: one paid call" if _summary(case) else "nothing"
        notes.append(f"Everything is done; lionagi would make {again}, in a new run.")
    stale = [one.name for one in nodes if one.stale]
    if stale:
        notes.append(
            "Kept although they rest on an error or an older result:"
            f" {', '.join(stale)}."
        )
    if case.lost_steers:
        notes.append(
            f"Messages that no checkpoint holds: {len(case.lost_steers)}. Send them"
            " again once the resumed run is up."
        )
    return notes


def _summary(case: LionagiCase) -> bool:
    """Tell whether lionagi writes a summary: asked for, or forced by any spawn."""
    state = case.state or {}
    config = state.get("config") or {}
    return bool(config.get("with_synthesis") or state.get("spawned"))
