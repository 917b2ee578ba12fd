"""What a checkpoint holds, as far as a reader shows it.

The values here are made from a loaded state and its report and nothing else: the
checkpoint loader is the only way to the files. A refused unit has no outcomes, no plan
and no messages (SPEC K-19, F-44). Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from heaveto.model import OperationStatus, Origin
from heaveto.observe.snapshot import CheckpointView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from heaveto.checkpoint import RecoveryReport
    from heaveto.seal import Seal, UnitIdentity

__all__ = [
    "Message",
    "PlanItem",
    "Saved",
    "SavedOutcome",
    "journal_left",
    "refused",
    "sealed",
    "unread",
]

_STATUSES = {
    "completed": OperationStatus.COMPLETED,
    "failed": OperationStatus.FAILED,
    "pending": OperationStatus.PENDING,
}
_TITLE = 200
_NO_TIME = 2.0**53
"""No time is as late as this; an integer beyond it may not even fit a float."""
_JOURNAL_LIMIT = 8_388_608
"""A writer's default; a base is written before a journal grows beyond it."""
_MATCH_S = 5.0
"""A message without a control id matches a control when its time lies between claim and
stamp plus this (FORMATS 8)."""


_NOTHING: Mapping[str, Any] = MappingProxyType({})


def _nothing() -> Mapping[str, Any]:
    """Return the one empty mapping: a long list holds thousands of them."""
    return _NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedOutcome:
    """One recorded outcome or intent; for a spawned operation also who asked for it."""

    status: OperationStatus
    error_code: str | None = None
    error_text: str | None = None
    origin: Origin = Origin.PLANNED
    name: str | None = None
    assignee: str | None = None
    parent_id: str | None = None
    escalated_from: str | None = None
    asks: bool = False
    """The answer of a spawned operation holds a request for another one, by lionagi's
    name for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanItem:
    """One planned operation; ``heads`` are agent ids."""

    agent_id: str
    node_id: str | None
    assignee: str | None
    heads: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One operator message in the shared context."""

    control_id: str | None
    at: float | None
    text: str | None
    rendered_into: str | None

    def is_of(
        self, control_id: str, text: str | None, since: float, until: float
    ) -> bool:
        """Tell whether it came from a control (FORMATS 8)."""
        if self.control_id is not None:
            return self.control_id == control_id
        if text is None or self.text != text or self.at is None:
            return False
        return since <= self.at <= until + _MATCH_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What a reader shows of one checkpoint."""

    view: CheckpointView
    reasons: tuple[str, ...] = ()
    """Codes of the recovery report; the fatal one is last."""
    planned: Mapping[str, SavedOutcome] = field(default_factory=_nothing)
    """By agent id."""
    spawned: Mapping[str, SavedOutcome] = field(default_factory=_nothing)
    """By operation id."""
    plan: tuple[PlanItem, ...] = ()
    messages: tuple[Message, ...] = ()
    agent_of: Mapping[str, str] = field(default_factory=_nothing)
    """Agent ids by planned operation id, where the plan names them."""
    assignees: Mapping[str, str] = field(default_factory=_nothing)
    """Workers by agent id."""
    title: str | None = None
    """The beginning of what the run was asked for."""
    saved_at: float | None = None
    files: UnitIdentity = (None, None)
    """Base and journal as they were when this was read of them."""
    report: RecoveryReport | None = None
    """What the load found; None where nothing was loaded."""

    @property
    def readable(self) -> bool:
        """Tell whether its content may be shown."""
        return self.view.status != "refused"

    def links(
        self,
    ) -> Iterable[tuple[str, str, Literal["depends", "spawn", "escalation"]]]:
        """Return the dependencies the checkpoint knows, for a run without signals."""
        ids = {item.agent_id: item.node_id or item.agent_id for item in self.plan}
        for item in self.plan:
            for head in item.heads:
                yield ids.get(head, head), ids[item.agent_id], "depends"
        for node_id, spawned in self.spawned.items():
            if spawned.parent_id is not None:
                retry = spawned.escalated_from is not None
                yield spawned.parent_id, node_id, "escalation" if retry else "spawn"


def refused(
    view: CheckpointView, reasons: tuple[str, ...], files: UnitIdentity
) -> Saved:
    """Return what is shown of a refused unit: that it is refused, and why."""
    return Saved(view=view, reasons=reasons, files=files)


def sealed(seal: Seal) -> Saved:
    """Return what a seal tells of a checkpoint whose files are as they were sealed."""
    journal = seal.files[1] if seal.version == 3 else None
    view = CheckpointView(
        version=seal.version,
        generation=seal.generation,
        seq=seal.seq,
        status="clean",
        records_since_base=seal.records_since_base,
        bytes_to_compaction=None if journal is None else journal_left(journal[2]),
        saved=seal.saved,
    )
    return Saved(view=view, files=seal.files)


def unread() -> Saved:
    """Return what is shown of a checkpoint that was not read for a list."""
    return _UNREAD


_UNREAD = Saved(
    view=CheckpointView(
        version=None,
        generation=None,
        seq=None,
        status="unread",
        records_since_base=None,
    )
)
"""One for all: a list of ten thousand runs holds nearly as many."""


def journal_left(used: int) -> int:
    """Return the bytes that a journal can grow before a writer's next base."""
    return max(0, _JOURNAL_LIMIT - used)


class StateReader:
    """Reads states of one checkpoint, one after the other.

    A follower's states share what did not change; what was read of a shared part is
    used again, so a poll costs what is new and one look at each entry.
    """

    def __init__(self) -> None:
        """Begin with nothing read."""
        self._plan: tuple[object, tuple[PlanItem, ...]] = (None, ())
        self._queue: tuple[object, tuple[Message, ...]] = (None, ())
        self._entries: dict[int, tuple[object, SavedOutcome | None]] = {}

    def read(
        self,
        state: Mapping[str, object],
        view: CheckpointView,
        *,
        reasons: tuple[str, ...] = (),
        files: UnitIdentity = (None, None),
    ) -> Saved:
        """Read what is shown of an accepted state.

        Args:
            state: ``Loaded.state``.
            view: What the report says; the count of outcomes is filled in here.
            reasons: Codes of the report.
            files: Base and journal as they were read.
        """
        before, self._entries = self._entries, {}
        planned = dict(self._planned(state.get("ops"), before))
        spawned = dict(self._spawned(state.get("spawned"), before))
        plan = self._plan_of(state.get("plan"))
        done = [*planned.values(), *spawned.values()]
        count = sum(1 for one in done if one.status != OperationStatus.PENDING)
        return Saved(
            view=_with_count(view, count),
            reasons=reasons,
            planned=planned,
            spawned=spawned,
            plan=plan,
            messages=self._messages(state.get("flow_context")),
            agent_of={item.node_id: item.agent_id for item in plan if item.node_id},
            assignees={item.agent_id: item.assignee for item in plan if item.assignee},
            title=_title(state.get("prompt")),
            saved_at=max((file[3] / 1e9 for file in files if file), default=None),
            files=files,
        )

    def _plan_of(self, value: object) -> tuple[PlanItem, ...]:
        if self._plan[0] is not value:
            self._plan = (value, tuple(_plan(value)))
        return self._plan[1]

    def _messages(self, context: object) -> tuple[Message, ...]:
        queue = context.get("operator_messages") if isinstance(context, dict) else None
        if self._queue[0] is not queue:
            self._queue = (queue, tuple(_messages(queue)))
        return self._queue[1]

    def _planned(
        self, value: object, before: _Entries
    ) -> Iterable[tuple[str, SavedOutcome]]:
        for agent, entry in value.items() if isinstance(value, dict) else ():
            outcome = self._outcome(entry, before, spawned=False)
            if outcome is not None:
                yield agent, outcome

    def _spawned(
        self, value: object, before: _Entries
    ) -> Iterable[tuple[str, SavedOutcome]]:
        for entry in _objects(value):
            node_id = _text(entry, "node_id")
            outcome = self._outcome(entry, before, spawned=True)
            if node_id is not None and outcome is not None:
                yield node_id, outcome

    def _outcome(
        self, entry: object, before: _Entries, *, spawned: bool
    ) -> SavedOutcome | None:
        """Read an entry, or take what was read of the very same one."""
        known = before.get(id(entry))
        if known is None or known[0] is not entry:
            known = (entry, _outcome(entry, spawned=spawned))
        self._entries[id(entry)] = known
        return known[1]


_Entries = dict[int, tuple[object, SavedOutcome | None]]


def _with_count(view: CheckpointView, count: int) -> CheckpointView:
    return CheckpointView(
        version=view.version,
        generation=view.generation,
        seq=view.seq,
        status=view.status,
        records_since_base=view.records_since_base,
        bytes_to_compaction=view.bytes_to_compaction,
        saved=count,
    )


def _title(prompt: object) -> str | None:
    """Return the first line of a prompt that says anything, cut."""
    if not isinstance(prompt, str):
        return None
    lines = (line.strip() for line in prompt[:4096].splitlines())
    return next((line[:_TITLE] for line in lines if line), None)


def _objects(value: object) -> Iterable[dict[str, object]]:
    """Return the objects of a list; the loader has refused what must not be there."""
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def _plan(value: object) -> Iterable[PlanItem]:
    items = list(_objects(value))
    agents = [_text(item, "agent_id") for item in items]
    for item, agent in zip(items, agents, strict=True):
        if agent is None:
            continue
        places = item.get("dep_indices")
        heads = [
            agents[place]
            for place in (places if isinstance(places, list) else ())
            if isinstance(place, int) and 0 <= place < len(agents)
        ]
        yield PlanItem(
            agent_id=agent,
            node_id=_text(item, "node_id"),
            assignee=_text(item, "assignee"),
            heads=tuple(head for head in heads if head),
        )


def _outcome(entry: object, *, spawned: bool) -> SavedOutcome | None:
    """Read one entry; None when it says nothing that is known."""
    if not isinstance(entry, dict):
        return None
    status = _STATUSES.get(str(entry.get("status")))
    if status is None or (status == OperationStatus.PENDING and not spawned):
        return None
    code = text = None
    response = entry.get("response")
    if status == OperationStatus.FAILED and isinstance(response, dict):
        code, text = _text(response, "code"), _text(response, "error")
    if not spawned:
        return SavedOutcome(status=status, error_code=code, error_text=text)
    emitter = _text(entry, "escalated_from")
    return SavedOutcome(
        status=status,
        error_code=code,
        error_text=text,
        origin=Origin.SPAWNED if emitter is None else Origin.RETRY,
        name=_text(entry, "spawn_id"),
        assignee=_text(entry, "assignee"),
        parent_id=_text(entry, "parent_id"),
        escalated_from=emitter,
        asks=isinstance(response, str) and '"spawn_request"' in response,
    )


def _messages(queue: object) -> Iterable[Message]:
    for entry in _objects(queue):
        at, text = entry.get("ts"), entry.get("text")
        timed = isinstance(at, (int, float)) and 0 <= at < _NO_TIME
        yield Message(
            control_id=_text(entry, "control_id"),
            at=float(at) if timed else None,  # type: ignore[arg-type]
            text=text if isinstance(text, str) else None,
            rendered_into=_text(entry, "rendered_into_op"),
        )


def _text(entry: Mapping[str, object], name: str) -> str | None:
    value = entry.get(name)
    return value if isinstance(value, str) and value else None
