"""What a checkpoint says, whatever its version: outcomes, context, plan, settings.

A :class:`State` is immutable; :meth:`State.fold` makes the next one. Planned outcomes
are kept by agent id, spawned ones by node id, each in order of first appearance; a
repeated id replaces the whole entry in its place (SPEC E-18, E-19). The two collections
never touch each other (D-06).

The values inside are plain for a reader and frozen for the writer; this module looks
into entries only.

A **witness** is a spawned entry with ``escalated_from``: an escalation retry that was
spliced into the graph. Readers that do not know splices must not take it for an
ordinary edge, so a state with a witness is *guarded* only while every planned entry
carries a ``node_id`` or some spawned entry is still pending (SPEC I-35, I-36).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from heaveto.jsonvalue import Frozen, Json, encode, pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = [
    "MEMBERS",
    "UNCHANGED",
    "Entry",
    "Folding",
    "Kind",
    "State",
    "Transition",
    "plan_has_ids",
    "read_entry",
]

MEMBERS = {
    "session_id": str,
    "prompt": str,
    "plan": list,
    "flow_context": dict,
    "ops": dict,
    "spawned": list,
    "config": dict,
}
"""The required members of a snapshot and their types."""


class Kind(StrEnum):
    """Which collection an entry belongs to; also the ``kind`` of a journal record."""

    OP = "op"
    SPAWNED = "spawned"


class _Unchanged:
    """Marks a transition that leaves the context as it is."""

    __slots__ = ()


UNCHANGED = _Unchanged()

_ID = {Kind.OP: "agent_id", Kind.SPAWNED: "node_id"}
_OUTCOMES = frozenset({"completed", "failed"})
_STATUSES = {
    Kind.OP: _OUTCOMES,
    Kind.SPAWNED: _OUTCOMES | {"pending"},
}
_TEXTS = (
    "operation",
    "assignee",
    "instruction",
    "parent_id",
    "spawn_id",
    "emitter_workload",
    "escalated_from",
)


class Entry(NamedTuple):
    """One outcome, or one recorded intent; a tuple, as each record makes one.

    Attributes:
        kind: Planned or spawned.
        id: The agent id or the node id.
        status: ``completed``, ``failed``; for spawned ones also ``pending``.
        value: The whole entry as it is stored: an object, plain or frozen.
        witness: It records an escalation splice.
    """

    kind: Kind
    id: str
    status: str
    value: Json | Frozen
    witness: bool = False


def read_entry(kind: Kind, value: Json) -> Entry | None:
    """Take an entry out of a record or a version 3 base.

    Args:
        kind: Which collection it belongs to.
        value: A plain value.

    Returns:
        The entry; None when its identity, status, response or an extension field has
        the wrong form (SPEC E-10, E-11). Unknown members are kept (E-13).
    """
    if type(value) is not dict:
        return None
    identity, status = value.get(_ID[kind]), value.get("status")
    if type(identity) is not str or not identity or "response" not in value:
        return None
    if type(status) is not str or status not in _STATUSES[kind]:
        return None
    digest = value.get("result_digest")
    if digest is not None and type(digest) is not str:
        return None
    if kind is Kind.OP:
        return Entry(kind, identity, status, value)
    if not _extensions_hold(value, status):
        return None
    witness = value.get("escalated_from") is not None
    return Entry(kind, identity, status, value, witness)


def _extensions_hold(value: Mapping[str, Json], status: str) -> bool:
    """Check what a spawned entry may carry beside its outcome."""
    if status == "pending" and value["response"] is not None:
        return False
    if not isinstance(value.get("emitter_contains_user_settings", False), bool):
        return False
    texts = [value[name] for name in _TEXTS if name in value]
    return all(text is None or isinstance(text, str) for text in texts)


class Transition(NamedTuple):
    """One outcome and the context that goes with it; a tuple like :class:`Entry`."""

    entry: Entry
    context: Json | Frozen = UNCHANGED


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Everything that a checkpoint holds, but for its version's own members.

    ``extra`` holds top-level members that the format does not know; they are kept
    (amb-6).
    """

    session_id: str
    prompt: str
    plan: Json | Frozen
    flow_context: Json | Frozen
    config: Json | Frozen
    ops: Mapping[str, Entry] = field(default_factory=dict)
    spawned: Mapping[str, Entry] = field(default_factory=dict)
    max_spawn: int | None = None
    extra: Mapping[str, Json] = field(default_factory=dict)

    def fold(self, transitions: Iterable[Transition]) -> State:
        """Return the state after transitions, in their order.

        Cost: one copy of the two id tables, whatever the number of transitions.
        """
        folding = Folding(self)
        for transition in transitions:
            folding.add(transition)
        return folding.state()

    def guarded(self) -> bool:
        """Tell whether every witness in it is safe from readers without splices."""
        return Folding(self).guarded()

    def plain(self) -> dict[str, Json]:
        """Return the members of a snapshot with plain entry values, for a reader."""
        members = {
            "session_id": self.session_id,
            "prompt": self.prompt,
            "plan": self.plan,
            "flow_context": self.flow_context,
            "ops": {name: entry.value for name, entry in self.ops.items()},
            "spawned": [entry.value for entry in self.spawned.values()],
            "config": self.config,
        }
        if self.max_spawn is not None:
            members["max_spawn"] = self.max_spawn
        return {**members, **self.extra}

    def pieces(
        self,
        *,
        ops: Iterable[bytes] | None = None,
        spawned: Iterable[bytes] | None = None,
    ) -> Iterator[bytes]:
        """Give the canonical members of a snapshot, from the first name to the last.

        The text has no braces around it and no version in it.

        Args:
            ops: The planned entries as they stand in the text, by a writer that has
                them encoded already; None encodes them.
            spawned: The spawned ones likewise.
        """
        yield b'"session_id":' + encode(self.session_id)
        yield b',"prompt":' + encode(self.prompt)
        yield b',"plan":'
        yield from pieces(self.plan)
        yield b',"flow_context":'
        yield from pieces(self.flow_context)
        yield b',"ops":{'
        yield from self._planned() if ops is None else ops
        yield b'},"spawned":['
        yield from self._spawned() if spawned is None else spawned
        yield b'],"config":'
        yield from pieces(self.config)
        if self.max_spawn is not None:
            yield b',"max_spawn":' + encode(self.max_spawn)
        for name, value in self.extra.items():
            yield b"," + encode(name) + b":"
            yield from pieces(value)

    def _planned(self) -> Iterator[bytes]:
        for index, entry in enumerate(self.ops.values()):
            yield (b"," if index else b"") + encode(entry.id) + b":"
            yield from pieces(entry.value)

    def _spawned(self) -> Iterator[bytes]:
        for index, entry in enumerate(self.spawned.values()):
            if index:
                yield b","
            yield from pieces(entry.value)


class Folding:
    """A state in the making; one owner, one thread.

    Attributes:
        context: The flow context so far.
    """

    def __init__(self, start: State) -> None:
        """Begin with a state; it is not changed."""
        self._start = start
        self._tables = {Kind.OP: dict(start.ops), Kind.SPAWNED: dict(start.spawned)}
        self._planned = plan_has_ids(start.plan)
        self._witnesses = sum(entry.witness for entry in start.spawned.values())
        self._pending = sum(e.status == "pending" for e in start.spawned.values())
        self.context = start.flow_context

    def guarded(self, entry: Entry | None = None) -> bool:
        """Tell whether the state, with one more entry, is guarded."""
        if self._planned:
            return True
        witnesses, pending = self._witnesses, self._pending
        if entry is not None and entry.kind is Kind.SPAWNED:
            before = self._tables[Kind.SPAWNED].get(entry.id)
            for one, sign in ((entry, 1), (before, -1)):
                if one is not None:
                    witnesses += sign * one.witness
                    pending += sign * (one.status == "pending")
        return not witnesses or pending > 0

    def add(self, transition: Transition) -> None:
        """Take a transition in; the entry replaces the one of its id."""
        self.put(transition.entry)
        if transition.context is not UNCHANGED:
            self.context = transition.context

    def put(self, entry: Entry) -> None:
        """Take an entry in, and leave the context as it is."""
        table = self._tables[entry.kind]
        if entry.kind is Kind.SPAWNED:
            before = table.get(entry.id)
            if before is not None:
                self._witnesses -= before.witness
                self._pending -= before.status == "pending"
            self._witnesses += entry.witness
            self._pending += entry.status == "pending"
        table[entry.id] = entry

    def state(self) -> State:
        """Return what has been folded so far; later additions do not change it."""
        return replace(
            self._start,
            ops=dict(self._tables[Kind.OP]),
            spawned=dict(self._tables[Kind.SPAWNED]),
            flow_context=self.context,
        )


def plan_has_ids(plan: Json | Frozen) -> bool:
    """Tell whether the plan was promoted: every planned entry carries its node id."""
    return bool(plan) and all(
        isinstance(step, dict) and isinstance(step.get("node_id"), str) for step in plan
    )
