"""Run a graph of operations: pause gate, capacity, messages, signals, cancellation.

The executor knows no file, no database and no checkpoint. What it needs it is given:
``invoke`` runs an operation, ``on_outcome`` takes an ended one, ``on_signal`` is told
what happens. Everything here runs on one event loop, and every change of state is made
without an await in between. Which operation may start is decided in
:mod:`heaveto.readiness`; this module decides when.

The way of one operation (SPEC C-08)::

    ended already? -> its edges -> pause gate -> admission -> a free place
        -> gate and admission again -> prepare -> messages again -> invoke -> outcome

* A **pause** is an ``asyncio.Event`` made for it and never reused; who reaches the
  gate says NodePaused, waits for that event, and looks again when it is set. Who
  waited for a free place looks again too, so while a pause holds nothing starts, and
  nothing that runs is disturbed (SPEC B-19..B-24).
* **Admission** is closed by :meth:`~DependencyAwareExecutor.stop` or by a failure
  under ``on_failure = stop``. What runs ends by itself; what never started is withheld.
* Every announced operation gets exactly one terminal signal, also when the run is
  cancelled (SPEC C-15, C-16). A sink that raises changes nothing (SPEC C-18).
* The shared context is replaced, never changed in place: an older one stays as it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from heaveto import steer
from heaveto.errors import FlowError, OperationError
from heaveto.model import OnFailure, OperationStatus, Outcome, Prepared, Signal
from heaveto.model import SignalKind as Kind
from heaveto.readiness import Place, Readiness
from heaveto.responses import (
    completion,
    context_update,
    cut_off,
    failure,
    json_copy,
    merged,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from heaveto.model import Edge, Node

    Invoke = Callable[[Prepared], Awaitable[object]]
    Prepare = Callable[[Prepared], Awaitable[None]]
    OnOutcome = Callable[[Outcome, Mapping[str, object]], Awaitable[object] | None]
    OnRendered = Callable[[str, Sequence[Mapping[str, object]]], None]
    OnSignal = Callable[[Signal], None]

__all__ = ["DependencyAwareExecutor", "Result"]

_SIGNAL_OF = {
    OperationStatus.COMPLETED: Kind.COMPLETED,
    OperationStatus.FAILED: Kind.FAILED,
    OperationStatus.SKIPPED: Kind.SKIPPED,
    OperationStatus.CANCELLED: Kind.CANCELLED,
    OperationStatus.ESCALATED: Kind.ESCALATED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a graph ended. The first five hold ids, each id in exactly one of them."""

    completed: tuple[str, ...]
    failed: tuple[str, ...]
    skipped: tuple[str, ...]
    cancelled: tuple[str, ...]
    """Cut off while they ran: no outcome."""
    withheld: tuple[str, ...]
    """Never started, because admission was closed."""
    results: Mapping[str, object]
    """Response by id, of completed and failed operations."""
    context: Mapping[str, object]
    stale: tuple[str, ...] = ()
    """Ran on the result of a failed operation, directly or not."""
    unsaved: Mapping[str, BaseException] = field(default_factory=dict)
    """Operations whose ``on_outcome`` raised, then or later, and with what."""
    closed_by: str | None = None
    """``stop`` or ``on_failure`` when admission was closed, else None."""


class _Crowd:
    """Futures that leave when they are done, and a way to wait until none is left."""

    def __init__(self) -> None:
        self._members: set[asyncio.Future[None]] = set()
        self._empty = asyncio.Event()

    def add(self, future: asyncio.Future[None]) -> None:
        self._empty.clear()
        self._members.add(future)
        future.add_done_callback(self._leave)

    def _leave(self, future: asyncio.Future[None]) -> None:
        self._members.discard(future)
        if not self._members:
            self._empty.set()

    def cancel(self) -> None:
        for future in list(self._members):
            future.cancel()

    async def empty(self) -> None:
        while self._members:
            await self._empty.wait()


class DependencyAwareExecutor:
    """Run operations in the order that their dependencies allow.

    Not safe for threads: every method is called on the loop that runs
    :meth:`execute`, or before it runs.

    Attributes:
        sink_errors: How often ``on_signal`` or ``on_rendered`` raised.
    """

    def __init__(
        self,
        operations: Sequence[Node],
        edges: Iterable[Edge] = (),
        *,
        invoke: Invoke,
        prepare: Prepare | None = None,
        max_concurrent: int = 0,
        on_failure: OnFailure | str = OnFailure.CONTINUE,
        context: Mapping[str, object] | None = None,
        on_signal: OnSignal | None = None,
        on_outcome: OnOutcome | None = None,
        on_rendered: OnRendered | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Check the graph; nothing starts before :meth:`execute`.

        Args:
            operations: What to run, in the order of the plan.
            edges: Who waits for whom.
            invoke: Runs one operation and returns its response. It ends the operation
                by raising: :class:`~heaveto.errors.OperationError` with its code (code
                ``cancelled``: cut off, no outcome), anything else is ``worker_error``.
            prepare: Awaited before the last look at messages, gate and admission; it
                may be called again for the same operation.
            max_concurrent: Operations between prepare and outcome at most; 0: all.
            on_failure: What a failure means for dependents (PRODUCT 5).
            context: The initial shared context; it is copied.
            on_signal: Told of every signal. What it raises is counted, not obeyed.
            on_outcome: Called once for each operation that completed or failed here,
                before its signal, with the context after its merge. It takes what it
                needs before it returns; the awaitable that it may return is awaited
                before :meth:`execute` returns, and no dependent waits for it.
            on_rendered: Told which messages stand in the instruction of an operation
                that is about to be invoked.
            clock: Epoch seconds, for signals.
            monotonic: Seconds, for elapsed times.

        Raises:
            FlowError: See :class:`~heaveto.graph.Graph`; nothing was started.
        """
        if isinstance(max_concurrent, bool) or max_concurrent < 0:
            raise FlowError("max_concurrent must be 0 or more", code="bad_limit")
        self._on_failure = OnFailure(on_failure)
        self._places = Readiness(
            operations,
            edges,
            on_failure=self._on_failure,
            context=lambda: self._context,
            on_end=self._ended,
            on_ready=self._start,
        )
        self._call = invoke
        self._prepare = prepare
        self._on_signal = on_signal
        self._on_outcome = on_outcome
        self._on_rendered = on_rendered
        self._clock = clock
        self._monotonic = monotonic
        self._limiter = asyncio.Semaphore(max_concurrent or max(1, len(operations)))
        self._context: dict[str, object] = json_copy(dict(context or {}))
        self._gate: asyncio.Event | None = None
        self._closed_by: str | None = None
        self._begun = False
        self._aborting = False
        self._tasks = _Crowd()
        self._saves = _Crowd()
        self._unsaved: dict[str, BaseException] = {}
        self._crash: BaseException | None = None
        self.sink_errors = 0

    # --- steering

    def pause(self) -> None:
        """Let nothing start until :meth:`resume`; again it changes nothing."""
        if self._gate is None and self._closed_by is None:
            self._gate = asyncio.Event()

    def resume(self) -> None:
        """Open the gate, if there is one; one call undoes any number of pauses."""
        gate, self._gate = self._gate, None
        if gate is not None:
            gate.set()

    def stop(self) -> None:
        """Let nothing start any more; what runs ends by itself (SPEC B-54..B-58)."""
        self._close("stop")

    def _close(self, by: str) -> None:
        self._closed_by = self._closed_by or by
        self.resume()

    @property
    def paused(self) -> bool:
        """Whether the gate is closed."""
        return self._gate is not None

    @property
    def stopped(self) -> bool:
        """Whether admission is closed."""
        return self._closed_by is not None

    @property
    def running(self) -> tuple[str, ...]:
        """The ids of what has been invoked and has not ended."""
        return tuple(p.node.id for p in self._places if p.invoked and not p.ended)

    @property
    def context(self) -> Mapping[str, object]:
        """The shared context as it is now; a change replaces it."""
        return self._context

    def has_pending(self) -> bool:
        """Tell whether an operation is left that may still take a message."""
        return self._closed_by is None and any(
            not place.invoked and not place.ended for place in self._places
        )

    def append_message(self, entry: Mapping[str, object]) -> None:
        """Put a message into the shared context for the next prepared operation."""
        queue = self._context.get(steer.QUEUE_KEY)
        kept = queue if isinstance(queue, list) else []
        self._set_queue([*kept, dict(entry)])

    def _set_queue(self, queue: list[object]) -> None:
        self._context = {**self._context, steer.QUEUE_KEY: queue}

    # --- the run

    async def execute(self) -> Result:
        """Run the graph until nothing more can start and nothing runs.

        Returns:
            The lists, after every save that ``on_outcome`` returned has settled.

        Raises:
            CancelledError: The task was cancelled; everything that ran was cancelled
                and has ended, and each operation has its terminal signal.
            RuntimeError: It was called before.
        """
        if self._begun:
            raise RuntimeError("an executor runs once")
        self._begun = True
        try:
            for place in self._places:
                self._announce(place)
            self._places.begin()
            await self._tasks.empty()
            self._places.end_rest(self._rest)
            await self._saves.empty()
        except BaseException:
            await self._abort()
            raise
        if self._crash is not None:
            raise self._crash
        return self._result()

    async def _abort(self) -> None:
        """Cancel what runs and wait for it, however often we are cancelled again."""
        self._aborting = True
        self._close("cancelled")
        while True:
            self._tasks.cancel()
            try:
                await self._tasks.empty()
            except asyncio.CancelledError:
                continue
            break
        self._places.end_rest(self._rest)
        with contextlib.suppress(asyncio.CancelledError):
            await self._saves.empty()

    def _rest(self, place: Place) -> Outcome:
        """The end of what has not ended: cut off, or withheld (SPEC C-15, C-16)."""
        if place.invoked:
            return cut_off(place.node.id)
        return Outcome(
            operation_id=place.node.id,
            status=OperationStatus.CANCELLED,
            reason={"code": "withheld", "by": self._closed_by or "upstream"},
        )

    def _result(self) -> Result:
        def ids(status: OperationStatus, *, invoked: bool | None = None) -> list[str]:
            return [
                place.node.id
                for place in self._places
                if place.status is status and invoked in (None, place.invoked)
            ]

        kept = (OperationStatus.COMPLETED, OperationStatus.FAILED)
        return Result(
            completed=tuple(ids(OperationStatus.COMPLETED)),
            failed=tuple(ids(OperationStatus.FAILED)),
            skipped=tuple(ids(OperationStatus.SKIPPED)),
            cancelled=tuple(ids(OperationStatus.CANCELLED, invoked=True)),
            withheld=tuple(ids(OperationStatus.CANCELLED, invoked=False)),
            results={p.node.id: p.response for p in self._places if p.status in kept},
            context=self._context,
            stale=tuple(place.node.id for place in self._places if place.stale),
            unsaved=dict(self._unsaved),
            closed_by=self._closed_by,
        )

    # --- one operation

    def _start(self, place: Place) -> None:
        """Give a ready operation its task; it stays withheld when admission is over."""
        if self._closed_by is not None:
            return
        task = asyncio.get_running_loop().create_task(
            self._run(place), name=f"operation {place.node.name}"
        )
        task.add_done_callback(self._task_done)
        self._tasks.add(task)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        """Keep an error of the executor itself, which would else be lost, and end."""
        if task.cancelled() or task.exception() is None:
            return
        self._crash = self._crash or task.exception()
        self._aborting = True
        self._close("error")
        self._tasks.cancel()

    async def _run(self, place: Place) -> None:
        outcome = None
        while outcome is None:
            await self._pass_gate(place)
            if self._closed_by is not None:
                return
            async with self._limiter:
                if self._may_start:
                    outcome = await self._perform(place)
        self._places.end(place, outcome)

    @property
    def _may_start(self) -> bool:
        return self._gate is None and self._closed_by is None

    async def _pass_gate(self, place: Place) -> None:
        while (gate := self._gate) is not None:
            place.status = OperationStatus.PAUSED
            self._signal(Kind.PAUSED, place)
            await gate.wait()
            place.status = OperationStatus.QUEUED

    async def _perform(self, place: Place) -> Outcome | None:
        """Prepare and invoke an operation; None: it must not start now after all."""
        prepared = self._prepared(place, self._context_of(place))
        try:
            if self._prepare is not None:
                await self._prepare(prepared)
                if not self._may_start:
                    self._give_back(place)
                    return None
                prepared = self._prepared(place, prepared.context)
            self._mark_started(place, prepared)
            return self._accept(place, await self._call(prepared))
        except asyncio.CancelledError:
            return self._cancelled(place)
        except Exception as error:  # a worker is foreign code
            if not place.invoked:
                self._give_back(place)
            return failure(place.node.id, error)

    def _cancelled(self, place: Place) -> Outcome:
        """Tell our cancellation from one that a worker made up (SPEC C-16).

        Raises:
            CancelledError: It is ours, and goes on.
        """
        task = asyncio.current_task()
        if not self._aborting and task is not None and not task.cancelling():
            return failure(place.node.id, OperationError("the worker was cancelled"))
        if place.invoked:
            self._places.end(place, cut_off(place.node.id))
        else:
            self._give_back(place)
        raise asyncio.CancelledError

    def _prepared(self, place: Place, context: dict[str, object]) -> Prepared:
        """Take the messages that wait and put them in front (SPEC B-34..B-38)."""
        queue = self._context.get(steer.QUEUE_KEY)
        messages: tuple[Mapping[str, object], ...] = ()
        if queue is not None:
            taken, messages = steer.claim(queue, place.node.id)
            if messages:
                self._set_queue(taken)
        return Prepared(
            node=place.node,
            instruction=steer.render(messages, place.node.instruction),
            context=context,
            messages=messages,
        )

    def _give_back(self, place: Place) -> None:
        queue = self._context.get(steer.QUEUE_KEY)
        if isinstance(queue, list):
            self._set_queue(steer.release(queue, place.node.id))

    def _context_of(self, place: Place) -> dict[str, object]:
        """Copy what an operation may see (SPEC C-12)."""
        seen: dict[str, object] = {
            f"{head.node.name}_result": head.response
            for head in self._places.heads(place)
            if head.gives_result
        }
        seen.update(self._context)
        seen.pop(steer.QUEUE_KEY, None)
        copied: dict[str, object] = json_copy(seen)
        return copied

    def _mark_started(self, place: Place, prepared: Prepared) -> None:
        place.status = OperationStatus.RUNNING
        place.invoked = True
        place.started_at = self._monotonic()
        self._signal(
            Kind.STARTED,
            place,
            depends_on=list(place.open_heads),
            elapsed=0.0,
            rendered=[m["control_id"] for m in prepared.messages if "control_id" in m],
            stale=place.stale,
        )
        if prepared.messages and self._on_rendered is not None:
            try:
                self._on_rendered(place.node.id, prepared.messages)
            except Exception:  # SPEC C-18
                self.sink_errors += 1

    def _accept(self, place: Place, response: object) -> Outcome:
        """Make a response the outcome and merge its context, or neither.

        Raises:
            OperationError: The response cannot be taken.
        """
        update = context_update(response)
        outcome = completion(place.node, response)
        if update:
            self._context = merged(self._context, update)
        return outcome

    # --- what ended, what happened

    def _ended(self, place: Place) -> None:
        """Save an outcome and say it, before anything follows from it."""
        outcome = place.outcome
        if outcome is None:
            return
        if place.node.restored is None and place.gives_result:
            self._save(outcome)
            failed = outcome.status is OperationStatus.FAILED
            if failed and self._on_failure is OnFailure.STOP:
                self._close("on_failure")
        self._signal(_SIGNAL_OF[outcome.status], place, **self._ending(place, outcome))

    def _ending(self, place: Place, outcome: Outcome) -> dict[str, object]:
        """Say in a terminal signal how it ended: codes, ids and times alone."""
        began = place.started_at
        elapsed = 0.0 if began is None else self._monotonic() - began
        data: dict[str, object] = {"elapsed": elapsed}
        if outcome.error_code is not None:
            data["error"] = {"code": outcome.error_code}
        if outcome.reason is not None:
            data["reason"] = dict(outcome.reason)
        if outcome.status is OperationStatus.CANCELLED:
            data["started"] = place.invoked
        return data

    def _save(self, outcome: Outcome) -> None:
        if self._on_outcome is None:
            return
        key = outcome.operation_id
        try:
            pending = self._on_outcome(outcome, self._context)
        except Exception as error:  # reported in Result.unsaved
            self._unsaved[key] = error
            return
        if pending is not None:
            self._saves.add(asyncio.ensure_future(self._await_save(key, pending)))

    async def _await_save(self, key: str, pending: Awaitable[object]) -> None:
        try:
            await pending
        except BaseException as error:
            self._unsaved[key] = error
            if not isinstance(error, Exception | asyncio.CancelledError):
                raise

    def _announce(self, place: Place) -> None:
        edges = self._places.graph.into(place.node.id)
        data: dict[str, object] = {
            "depends_on": list(self._places.graph.heads(place.node.id)),
            "assignee": place.node.assignee,
            "origin": str(place.node.origin),
        }
        conditions = {edge.head: edge.text for edge in edges if edge.text is not None}
        if conditions:
            data["conditions"] = conditions
        self._signal(Kind.QUEUED, place, **data)

    def _signal(self, kind: Kind, place: Place, **data: object) -> None:
        if self._on_signal is None:
            return
        signal = Signal(
            kind=kind,
            operation_id=place.node.id,
            name=place.node.name,
            at=self._clock(),
            data=data,
        )
        try:
            self._on_signal(signal)
        except Exception:  # SPEC C-18
            self.sink_errors += 1
