"""The checkpoint writer: admission on the event loop, one thread for the disk.

A call of :meth:`CheckpointWriter.record` or ``record_spawned`` captures everything it
was given **in the call itself**, before anything is awaited, and takes its place in the
one order of all transitions (SPEC E-34, E-80, E-81). What the call returns is awaited
for the acknowledgement: the transition, and each one before it, survives the death of
the process. Nothing else is an acknowledgement (E-41).

From there on a thread of the writer's own takes whatever has been admitted meanwhile as
one batch: encode, write, one sync, one wake-up of the loop (E-50, E-82). It owns the
unit (:mod:`heaveto.checkpoint.unit`), so a caller that is cancelled leaves its
transition on its way and the order as it was (E-43).

What a failure means for a transition:

* :class:`CheckpointValueError` — it was not admitted; nothing changed (E-92, E-111).
* :class:`CheckpointPersistenceError` — it was admitted and keeps its place, but is not
  acknowledged. ``published`` says whether it can be on disk already. The next call that
  succeeds has published it as well, because a state without it never existed.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from heaveto.checkpoint import iothread
from heaveto.checkpoint.admission import Admission, initial_state, refuse
from heaveto.checkpoint.iothread import Close, Inbox, Job
from heaveto.checkpoint.journaled import JournaledUnit
from heaveto.checkpoint.state import Kind
from heaveto.checkpoint.unit import SnapshotUnit
from heaveto.errors import CheckpointError, CheckpointPersistenceError
from heaveto.files import OS, Directory, Os

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from heaveto.checkpoint.unit import Unit

__all__ = ["CheckpointWriter", "Statistics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What a writer has done so far."""

    admitted: int
    """Transitions that have their place in the order."""
    persisted: int
    """Of those, transitions that survive the death of the process."""
    queued: int
    """The others; it grows while the disk is slow or failing (SPEC E-102)."""
    bytes_written: int
    """Accepted by the file system: bases, journals, temps, failed attempts."""
    fsyncs: int
    """Of files and of the directory."""
    compactions: int
    """Version 3: bases published after the first."""
    capture_cpu_s: float
    """CPU seconds of the calling thread spent on capture; an ASCII text needs none."""
    nodes_copied: int
    """Values captured anew; an unchanged subtree adds nothing."""
    nodes_encoded: int
    """Values encoded for entries and patches; compaction reuses the entries' bytes."""


class CheckpointWriter:
    """Writes one checkpoint, version 2 or 3, for one run.

    Made, used and closed on an event loop's thread; the loop may be another one for
    each call, one at a time. What it is given must not be changed by another thread
    during a call; afterwards the caller may change it as it likes.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        session_id: str,
        prompt: str,
        plan: Sequence[Mapping[str, Any]],
        config: Mapping[str, Any],
        max_spawn: int | None = None,
        flow_context: Mapping[str, Any] | None = None,
        ops: Mapping[str, Mapping[str, Any]] | None = None,
        spawned: Sequence[Mapping[str, Any]] | None = None,
        version: int = 2,
        max_journal_records: int = 128,
        max_journal_bytes: int = 8_388_608,
        system: Os = OS,
    ) -> None:
        """Capture the initial state, make the folder and lock it.

        Nothing is written before :meth:`flush` or the first record. A unit that is
        there already is replaced only if each outcome in it is also in ``ops`` or
        ``spawned``; else those calls are refused with ``would_lose_outcomes``.

        Args:
            path: Of ``checkpoint.json``; parents are made with mode 0700.
            session_id: Of the run.
            prompt: What the run was asked.
            plan: The planned entries, JSON objects.
            config: The run's settings, a JSON object.
            max_spawn: How many operations may be spawned; None leaves the member out.
            flow_context: The shared context at the start.
            ops: Planned outcomes so far, by agent id.
            spawned: Spawned entries so far, in order.
            version: 2 (one file, replaced whole) or 3 (base and journal).
            max_journal_records: Version 3: records in a journal before compaction.
            max_journal_bytes: Version 3: bytes in a journal, at most.
            system: The system calls.

        Raises:
            CheckpointValueError: A value cannot be captured or has the wrong form.
            CheckpointError: Code ``splice_unguarded``: a spawned entry records a
                splice and neither node ids nor a pending entry guard it.
            CheckpointBusyError: Another writer holds the folder.
            CheckpointPersistenceError: The folder cannot be made, opened or locked.
        """
        for name, limit in (
            ("max_journal_records", max_journal_records),
            ("max_journal_bytes", max_journal_bytes),
        ):
            if type(limit) is not int or limit <= 0:
                refuse(f"$.{name}", "must be a positive integer")
        if type(version) is not int or version not in (2, 3):
            refuse("$.version", "must be 2 or 3")
        state = initial_state(
            session_id=session_id,
            prompt=prompt,
            plan=plan,
            config=config,
            max_spawn=max_spawn,
            flow_context=flow_context,
            ops=ops,
            spawned=spawned,
        )
        absolute = Path(os.path.abspath(path))

        def make(directory: Directory) -> Unit:
            if version == 2:
                return SnapshotUnit(directory, absolute.name, state)
            return JournaledUnit(
                directory,
                absolute.name,
                state,
                max_records=max_journal_records,
                max_bytes=max_journal_bytes,
            )

        self._admission = Admission(state, strict=version == 3)
        self._admitted = 0
        self._closing: Close | None = None
        self._process = os.getpid()
        self._told = False
        self._inbox = Inbox()
        self._unit = iothread.start(
            absolute, system, make, self._inbox, sync=version == 3
        )
        forgotten = weakref.finalize(self, self._inbox.put, Close(publish=False))
        forgotten.atexit = False

    # --- life

    async def __aenter__(self) -> Self:
        """Return itself; :meth:`flush` publishes the unit."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.aclose()

    async def aclose(self) -> None:
        """Wait for what was admitted, then close the files and free the folder.

        Once is enough; again waits for the same end. Cancelling the wait stops nothing.
        After a fork the writer is the parent's; in the child there is nothing to do.

        Raises:
            CheckpointError: Something admitted is not on disk and could not be put
                there now (and its own call has said so), or, with code ``cleanup`` or
                ``close``, everything is but a former file could not be removed or
                closed. Raised once.
        """
        if os.getpid() != self._process:
            return
        if self._closing is None:
            self._closing = Close(publish=True)
            self._inbox.put(self._closing)
        done = asyncio.wrap_future(self._closing.done)
        error = await asyncio.shield(done)
        if error is not None and not self._told:
            self._told = True
            raise error

    # --- what is recorded

    def flush(self) -> Coroutine[Any, Any, None]:
        """Publish the unit if it is not there yet, and wait for all before it.

        Raises:
            CheckpointPersistenceError: It could not be published.
            CheckpointRefused: A damaged unit is there; it is not replaced.
        """
        return self._do(lambda unit: unit.flush())

    def record(
        self,
        agent_id: str,
        *,
        status: str,
        response: object,
        flow_context: Mapping[str, Any] | None = None,
        result_digest: str | None = None,
    ) -> Coroutine[Any, Any, None]:
        """Record the outcome of a planned operation; awaited, it is acknowledged.

        The values are captured now, whenever the result is awaited.

        Args:
            agent_id: Its id; a repeated one replaces the outcome.
            status: ``completed`` or ``failed``.
            response: Anything; what JSON cannot hold becomes ``str(value)``.
            flow_context: The shared context as it is now; None leaves it as it was.
            result_digest: What settles the outcome later (FORMATS 10).

        Raises:
            CheckpointValueError: Not admitted.
            CheckpointPersistenceError: Admitted, not acknowledged.
        """
        value: dict[str, object] = {
            "agent_id": agent_id,
            "status": status,
            "response": response,
        }
        if result_digest is not None:
            value["result_digest"] = result_digest
        return self._record(Kind.OP, value, flow_context)

    def record_spawned(
        self,
        node_id: str,
        *,
        status: str,
        response: object,
        flow_context: Mapping[str, Any] | None = None,
        operation: str | None = None,
        assignee: str | None = None,
        instruction: str | None = None,
        parent_id: str | None = None,
        spawn_id: str | None = None,
        context: object = None,
        emitter_workload: str | None = None,
        emitter_contains_user_settings: bool = False,
        escalated_from: str | None = None,
        result_digest: str | None = None,
    ) -> Coroutine[Any, Any, None]:
        """Record the outcome, or the deferred intent, of a spawned operation.

        As :meth:`record`; a repeated ``node_id`` replaces the whole entry in its place.

        Args:
            node_id: Its operation id.
            status: ``completed``, ``failed`` or ``pending`` (then no response).
            response: As for :meth:`record`.
            flow_context: As for :meth:`record`.
            operation: What rebuilds it: the kind of operation.
            assignee: Who runs it.
            instruction: What it was told.
            parent_id: Behind which operation it stands.
            spawn_id: Its name, also of its artifacts.
            context: What it was given, captured like the response.
            emitter_workload: The class of the worker that asked for it.
            emitter_contains_user_settings: That worker read user settings.
            escalated_from: Of an escalation retry: the operation that escalated. The
                plan must carry node ids first (:meth:`replace_plan`).
            result_digest: As for :meth:`record`.

        Raises:
            CheckpointError: Code ``splice_unguarded``; not admitted (SPEC I-35..I-40).
            CheckpointValueError: Not admitted.
            CheckpointPersistenceError: Admitted, not acknowledged.
        """
        value: dict[str, object] = {
            "node_id": node_id,
            "status": status,
            "response": response,
            "operation": operation,
            "assignee": assignee,
            "instruction": instruction,
            "parent_id": parent_id,
            "spawn_id": spawn_id,
            "context": context,
        }
        if emitter_workload is not None:
            value["emitter_workload"] = emitter_workload
        if emitter_contains_user_settings:
            value["emitter_contains_user_settings"] = True
        if escalated_from is not None:
            value["escalated_from"] = escalated_from
        if result_digest is not None:
            value["result_digest"] = result_digest
        return self._record(Kind.SPAWNED, value, flow_context)

    def replace_plan(
        self, plan: Sequence[Mapping[str, Any]]
    ) -> Coroutine[Any, Any, None]:
        """Publish another plan, to promote it with node ids or to refresh them.

        It has its place in the order: what was recorded before is in the base that it
        publishes, what is recorded after follows that base.

        Raises:
            CheckpointError: Code ``splice_unguarded``: without these ids a recorded
                splice would be unguarded; not admitted.
            CheckpointValueError: Not admitted.
            CheckpointPersistenceError: Admitted, not acknowledged.
        """
        try:
            self._check_open()
            frozen = self._admission.plan(plan)
        except CheckpointError as error:
            return _raise(error)
        return self._do(lambda unit: unit.replace_plan(frozen))

    # --- what can be asked

    @property
    def generation(self) -> str | None:
        """The generation of the base on disk; None before it, and for version 2."""
        return self._unit.generation

    @property
    def journal_seq(self) -> int | None:
        """The last sequence number on disk; None like :attr:`generation`."""
        return self._unit.journal_seq

    def statistics(self) -> Statistics:
        """Return what has been done so far; cheap."""
        unit, persisted = self._unit, self._inbox.persisted
        return Statistics(
            admitted=self._admitted,
            persisted=persisted,
            queued=self._admitted - persisted,
            bytes_written=unit.directory.written,
            fsyncs=unit.directory.syncs,
            compactions=unit.compactions,
            capture_cpu_s=self._admission.cpu_s,
            nodes_copied=self._admission.tally.copied,
            nodes_encoded=unit.encoded,
        )

    # --- admission

    def _record(
        self, kind: Kind, value: dict[str, object], flow_context: object
    ) -> Coroutine[Any, Any, None]:
        """Capture a transition and give it its place, in this call."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        try:
            if self._closing is not None or os.getpid() != self._process:
                self._check_open()
            transition = self._admission.transition(kind, value, flow_context)
        except CheckpointError as error:
            return _raise(error)
        self._admitted += 1
        self._inbox.put(Job(loop, future, transition))
        return _outcome(future)

    def _do(
        self, step: Callable[[Unit], CheckpointError | None]
    ) -> Coroutine[Any, Any, None]:
        """Give a step of its own its place in the order."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        try:
            self._check_open()
        except CheckpointError as error:
            return _raise(error)
        self._inbox.put(Job(loop=loop, future=future, step=step))
        return _outcome(future)

    def _check_open(self) -> None:
        if os.getpid() != self._process:
            raise CheckpointPersistenceError(
                "the checkpoint writer belongs to the process that was forked",
                published="no",
                code="closed",
            )
        if self._closing is not None:
            raise CheckpointPersistenceError(
                "the checkpoint writer is closed", published="no", code="closed"
            )


async def _outcome(future: asyncio.Future[None]) -> None:
    """Wait for the I/O thread; a cancelled caller only stops waiting."""
    await future


async def _raise(error: CheckpointError) -> None:
    raise error
