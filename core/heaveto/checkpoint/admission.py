"""What may enter a checkpoint: capture and checks, in the caller's own call.

:class:`Admission` is the writer's picture of everything admitted so far, as much of it
as capture needs: the context to compare with, the plan's promotion, the guards of
spawned entries. It captures values and keeps no reference to what it was given. A
refusal changes nothing (SPEC E-92).

Synchronous, without I/O; belongs to the thread that owns the live values.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from heaveto.checkpoint.state import (
    UNCHANGED,
    Entry,
    Folding,
    Kind,
    State,
    Transition,
    plan_has_ids,
    read_entry,
)
from heaveto.errors import CheckpointError, CheckpointValueError
from heaveto.frozen import is_object
from heaveto.jsonvalue import Tally, freeze, normalize

if TYPE_CHECKING:
    from collections.abc import Iterable

    from heaveto.jsonvalue import Frozen, Json

__all__ = ["Admission", "initial_state", "refuse"]

_FREE = ("response", "context")
"""Members of an entry that may be anything."""


def refuse(path: str, text: str) -> NoReturn:
    """Refuse a value by its place."""
    raise CheckpointValueError("serialization", path, text)


class Admission:
    """Admits transitions and plans one after the other.

    Attributes:
        tally: What capture has done so far.
        cpu_s: CPU seconds of this thread that it has taken.
    """

    def __init__(self, state: State, *, strict: bool) -> None:
        """Begin at the initial state.

        Args:
            state: Its values frozen.
            strict: A splice needs a promoted plan, not only a pending entry beside it;
                version 3 asks for that, since a pending entry in a journal guards no
                reader that knows bases alone (SPEC I-40).

        Raises:
            CheckpointError: ``splice_unguarded``.
        """
        self.tally = Tally()
        self.cpu_s = 0.0
        self._strict = strict
        self._context = state.flow_context
        self._promoted = plan_has_ids(state.plan)
        spawned = {name: _outline(entry) for name, entry in state.spawned.items()}
        self._guard = Folding(replace(state, ops={}, spawned=spawned))
        if not self._guard.guarded():
            _refuse_splice()

    def transition(
        self, kind: Kind, value: dict[str, object], flow_context: object
    ) -> Transition:
        """Capture an outcome and the context that goes with it.

        Args:
            kind: Which collection it belongs to.
            value: The entry's members, in the order of the format; becomes its own.
            flow_context: None leaves the context as it was.

        Raises:
            CheckpointValueError: A value cannot be captured or has the wrong form.
            CheckpointError: ``splice_unguarded``.
        """
        entry = self._entry(kind, value)
        context = UNCHANGED if flow_context is None else self._change(flow_context)
        if context is not UNCHANGED:
            self._context = context
        if kind is Kind.SPAWNED:
            self._guard.put(_outline(entry))
        return Transition(entry, context)

    def plan(self, value: object) -> Json:
        """Capture a plan that takes the place of the former one.

        Raises:
            CheckpointValueError: It is no list of objects.
            CheckpointError: ``splice_unguarded``: a splice would lose its guard.
        """
        plan = _plan(value)
        promoted = plan_has_ids(plan)
        guard = Folding(replace(self._guard.state(), plan=plan))
        lost = self._strict and self._promoted and not promoted
        if not guard.guarded() or (lost and self._has_witness()):
            _refuse_splice()
        self._guard, self._promoted = guard, promoted
        return plan

    def _has_witness(self) -> bool:
        return any(entry.witness for entry in self._guard.state().spawned.values())

    def _entry(self, kind: Kind, value: dict[str, object]) -> Entry:
        if value["status"] == "pending" and value["response"] is not None:
            refuse("$.response", "a pending entry has no response")
        for name, item in value.items():
            if item is not None and (type(item) is not str or not item.isascii()):
                value[name] = self._capture(item)
        entry = read_entry(kind, value)
        if entry is None:
            _refuse_entry(kind, value)
        if kind is Kind.SPAWNED:
            unsafe = self._strict and entry.witness and not self._promoted
            if unsafe or not self._guard.guarded(_outline(entry)):
                _refuse_splice()
        return entry

    def _change(self, flow_context: object) -> Frozen:
        """Capture the context; ``UNCHANGED`` when it is the one before."""
        frozen = self._capture(flow_context, self._context)
        if frozen is self._context:
            return UNCHANGED
        if not is_object(frozen):
            refuse("$", "the flow context must be an object")
        return frozen

    def _capture(self, live: object, previous: Frozen = None) -> Frozen:
        """Freeze a value and count what that takes."""
        started = time.thread_time()
        try:
            return freeze(live, previous, tally=self.tally)
        finally:
            self.cpu_s += time.thread_time() - started


def _refuse_entry(kind: Kind, value: dict[str, object]) -> NoReturn:
    """Name the first member of an entry that has the wrong form."""
    statuses = ["completed", "failed", *(["pending"] if kind is Kind.SPAWNED else [])]
    if value["status"] not in statuses:
        refuse("$.status", f"must be one of {', '.join(statuses)}")
    for name, item in value.items():
        if name not in _FREE and not isinstance(item, str | None):
            refuse(f"$.{name}", "must be a string")
    refuse("$.agent_id" if kind is Kind.OP else "$.node_id", "must be a name")


def _refuse_splice() -> NoReturn:
    text = "an escalation splice needs node ids in the plan first"
    raise CheckpointError(text, code="splice_unguarded")


def _outline(entry: Entry) -> Entry:
    """Leave out the value, so that nothing is held twice."""
    return entry._replace(value=None)


def initial_state(
    *,
    session_id: object,
    prompt: object,
    plan: object,
    config: object,
    max_spawn: object,
    flow_context: object,
    ops: object,
    spawned: object,
) -> State:
    """Capture what a writer begins with.

    Raises:
        CheckpointValueError: Something cannot be captured or has the wrong form.
    """
    if max_spawn is not None and (type(max_spawn) is not int or max_spawn < 0):
        refuse("$.max_spawn", "must be an integer of at least 0")
    planned = _object("ops", ops)
    return State(
        session_id=_text("session_id", session_id),
        prompt=_text("prompt", prompt),
        plan=_plan(plan),
        flow_context=freeze(_object("flow_context", flow_context)),
        config=_object("config", config),
        ops=_table(Kind.OP, planned.values(), names=list(planned)),
        spawned=_table(Kind.SPAWNED, _array("spawned", spawned)),
        max_spawn=max_spawn,
    )


def _text(name: str, value: object) -> str:
    plain = normalize(value)
    if not isinstance(value, str) or not isinstance(plain, str):
        refuse(f"$.{name}", "must be a string")
    return plain


def _object(name: str, value: object) -> dict[str, Json]:
    plain = normalize({} if value is None else value)
    if not isinstance(plain, dict):
        refuse(f"$.{name}", "must be an object")
    return plain


def _array(name: str, value: object) -> list[Json]:
    plain = normalize([] if value is None else value)
    if not isinstance(plain, list):
        refuse(f"$.{name}", "must be an array")
    return plain


def _plan(value: object) -> list[Json]:
    plan = _array("plan", value)
    if not all(isinstance(step, dict) for step in plan):
        refuse("$.plan", "must hold objects")
    return plan


def _table(
    kind: Kind, values: Iterable[Json], *, names: list[str] | None = None
) -> dict[str, Entry]:
    """Check entries that the caller brings along and key them by their ids."""
    member = "ops" if kind is Kind.OP else "spawned"
    table: dict[str, Entry] = {}
    for index, value in enumerate(values):
        entry = read_entry(kind, value)
        if entry is None or entry.id in table:
            refuse(f"$.{member}[{index}]", "is no valid entry")
        if names is not None and names[index] != entry.id:
            refuse(f"$.{member}[{index}]", "is not under its own id")
        table[entry.id] = entry
    return table
