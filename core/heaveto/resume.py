"""What a resume would do, decided before anything runs: values and pure checks.

A :class:`ResumePlan` says for every node of a checkpoint whether its result is used
again, it runs, or the whole resume is refused, and why. The checks of spawned entries
(SPEC G.3) are functions of plain values, so that one implementation serves every
engine; what differs between engines comes in as arguments.

Nothing here reads a file or a clock. No reason quotes a task, a response or a context.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from heaveto.errors import FlowResumeError

__all__ = [
    "Entry",
    "FlowResumeError",
    "NodePlan",
    "ResumePlan",
    "ResumeReason",
    "Settlement",
    "Verdict",
    "check_failed",
    "check_spawned",
    "drop_under",
    "node_id",
    "node_name",
]

Entry = Mapping[str, Any]
"""One entry of ``ops``, ``spawned`` or ``plan`` as it stands in a checkpoint."""


class Verdict(StrEnum):
    """What a resume does with one node."""

    REUSE = "reuse"
    RUN = "run"
    RETRY = "retry"
    PENDING = "pending"
    DROPPED = "dropped"
    REFUSED = "refused"


class Settlement(StrEnum):
    """Whether what a node left behind is what was recorded (SPEC H-31)."""

    SETTLED = "settled"
    UNCHECKED = "unchecked"
    MISSING = "missing"
    CHANGED = "changed"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeReason:
    """One thing that refuses a resume."""

    code: str
    node: str | None
    text: str

    def as_dict(self) -> dict[str, object]:
        """Return the JSON of PRODUCT 3."""
        return {"code": self.code, "node": self.node, "text": self.text}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """What a resume does with one node."""

    id: str
    name: str
    verdict: Verdict
    settlement: Settlement = Settlement.NONE
    stale: bool = False
    """Its result rests on an error, or on a result that is made anew, and is kept."""
    why: str = ""

    def as_dict(self) -> dict[str, object]:
        """Return the JSON of PRODUCT 3."""
        return {
            "id": self.id,
            "name": self.name,
            "verdict": str(self.verdict),
            "settlement": str(self.settlement),
            "stale": self.stale,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePlan:
    """A decision about a resume, complete before the first step.

    ``notes`` are sentences for a person and no part of the JSON.
    """

    target: str
    reasons: tuple[ResumeReason, ...] = ()
    nodes: tuple[NodePlan, ...] = ()
    degraded: tuple[str, ...] = ()
    lost_steers: tuple[str, ...] = ()
    effective_config: Mapping[str, object] = field(default_factory=dict)
    checkpoint_recovery: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def refused(self) -> bool:
        """Tell whether nothing would run."""
        return bool(self.reasons)

    def require(self) -> ResumePlan:
        """Return itself.

        Raises:
            FlowResumeError: The resume is refused.
        """
        if self.reasons:
            raise FlowResumeError(self.reasons[0].text, reasons=self.reasons)
        return self

    def as_dict(self) -> dict[str, object]:
        """Return the JSON of PRODUCT 3."""
        return {
            "target": self.target,
            "decision": "refused" if self.refused else "resume",
            "reasons": [reason.as_dict() for reason in self.reasons],
            "nodes": [node.as_dict() for node in self.nodes],
            "degraded": list(self.degraded),
            "lost_steers": list(self.lost_steers),
            "effective_config": dict(self.effective_config),
            "checkpoint_recovery": dict(self.checkpoint_recovery),
        }


# --- checks of entries, for any engine


def check_failed(
    ops: Mapping[str, Entry], spawned: Sequence[Entry], planned: Collection[str]
) -> tuple[ResumeReason, ...]:
    """Name every recorded failure; without a retry each refuses the resume (G-14).

    Args:
        ops: Outcomes by agent id.
        spawned: Spawned entries.
        planned: The agent ids of the plan.
    """
    names = [name for name in planned if ops.get(name, {}).get("status") == "failed"]
    ids = [node_id(entry) for entry in spawned if entry.get("status") == "failed"]
    return tuple(
        ResumeReason(
            code="failed_entries",
            node=name,
            text=f"{name} is recorded as failed; --retry-failed runs it again",
        )
        for name in (*names, *ids)
    )


def check_spawned(
    spawned: Sequence[Entry],
    *,
    parents: Mapping[str, bool],
    retry_failed: bool,
    takes_pending: bool = True,
    reads_settings: Callable[[str | None], bool] = lambda assignee: True,
    name: Callable[[Entry], str] | None = None,
) -> tuple[ResumeReason, ...]:
    """Check spawned entries; any reason refuses the whole resume (SPEC G-26..G-34).

    Args:
        spawned: The entries that are to be rebuilt.
        parents: Planned nodes by the id under which entries name them: whether the
            outcome that made them spawn can be replayed.
        retry_failed: Failed entries run again.
        takes_pending: The engine knows entries that were accepted and never invoked.
        reads_settings: Whether a node of this assignee would run where the user's
            settings are read; None is a node without one.
        name: What people call an entry; None takes what the entry says itself.
    """
    listed = {node_id(entry) for entry in spawned}
    called = name or node_name

    def runs(entry: Entry) -> bool:
        status = entry.get("status")
        return status == "pending" or (status == "failed" and retry_failed)

    def status_holds(entry: Entry) -> bool:
        status = entry.get("status")
        if status == "pending":
            return takes_pending and entry.get("response") is None
        return status in ("completed", "failed")

    def parent_holds(entry: Entry) -> bool:
        parent = _parent(entry)
        return not parent or parent in listed or parents.get(parent, False)

    def role_lost(entry: Entry) -> bool:
        workload = entry.get("emitter_workload")
        return runs(entry) and not entry.get("assignee") and workload is not None

    def settings_leak(entry: Entry) -> bool:
        contained = entry.get("emitter_contains_user_settings")
        return bool(
            runs(entry) and contained and reads_settings(entry.get("assignee") or None)
        )

    checks: tuple[tuple[str, Callable[[Entry], bool]], ...] = (
        ("spawn_check_1", lambda entry: not entry.get("operation")),
        ("spawn_check_2", lambda entry: not status_holds(entry)),
        (
            "spawn_check_3",
            lambda entry: bool(entry.get("assignee")) and not entry.get("spawn_id"),
        ),
        ("spawn_check_4", role_lost),
        ("spawn_check_5", settings_leak),
        ("spawn_check_6", lambda entry: not parent_holds(entry)),
    )
    return tuple(
        ResumeReason(
            code=code,
            node=node_id(entry),
            text=f"{called(entry)} {_SPAWN_TEXT[code]}",
        )
        for code, refuses in checks
        for entry in spawned
        if refuses(entry)
    )


def drop_under(
    spawned: Sequence[Entry], rerun: Collection[str]
) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
    """Leave out what descends from nodes that run again: they decide anew (G-35).

    Args:
        spawned: All entries.
        rerun: Ids of planned and spawned nodes that run again.

    Returns:
        The entries that stay, and those that are dropped.
    """
    gone = set(rerun)
    dropped: list[Entry] = []
    kept = list(spawned)
    while True:
        found = [entry for entry in kept if _parent(entry) in gone]
        if not found:
            return tuple(kept), tuple(dropped)
        kept = [entry for entry in kept if _parent(entry) not in gone]
        gone.update(node_id(entry) for entry in found)
        dropped.extend(found)


def node_id(entry: Entry) -> str:
    """Return the id of a spawned entry, ``?`` where it has none."""
    found = entry.get("node_id")
    return found if isinstance(found, str) and found else "?"


def _parent(entry: Entry) -> str | None:
    """Return the parent of a spawned entry; what is no id is one that nobody has."""
    found = entry.get("parent_id")
    if not found:
        return None
    return found if isinstance(found, str) else "(no id)"


def node_name(entry: Entry) -> str:
    """Return what people call a spawned entry."""
    found = entry.get("spawn_id")
    return found if isinstance(found, str) and found else node_id(entry)


_SPAWN_TEXT = {
    "spawn_check_1": "was recorded without the kind of its operation, so it cannot be"
    " rebuilt",
    "spawn_check_2": "has a recorded status that cannot be replayed",
    "spawn_check_3": "names a role but no spawn id, so it cannot be rebuilt",
    "spawn_check_4": "ran with the class of the worker that asked for it and would run"
    " again with another one",
    "spawn_check_5": "was asked for where no settings of the user are read and would"
    " run again where they are",
    "spawn_check_6": "names a parent that the resumed plan does not have, or that has"
    " no outcome to replay",
}
