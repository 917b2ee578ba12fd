"""The composition root of one run: everything is made here, connected and ended here.

The order is what recovery rests on:

1. home checked, database open, run directory, ``.lock``, ``run.json``, session row with
   the process's identity: from here on the run is *registered*;
2. the checkpoint's initial unit is published before any operation starts;
3. execution: outcomes go to the checkpoint, signals to the database, controls come from
   it; none of the three stops the others when it fails;
4. the end: the consumer of controls is marked stopped, every result inspected, writer
   closed, signals written, then the row ends (with the seal of the checkpoint),
   leftovers are swept, ``run.json`` ends, and last the lock is released, so that a run
   that is not terminal always has a process or is dead.

What could not be saved is a :class:`Trouble` and part of the answer; it never
disappears.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from heaveto import liveness
from heaveto.checkpoint import CheckpointWriter
from heaveto.controls.poller import ControlPoller
from heaveto.controls.words import SWEPT
from heaveto.errors import (
    CheckpointError,
    CheckpointPersistenceError,
    HeavetoError,
    StateDBError,
)
from heaveto.executor import DependencyAwareExecutor
from heaveto.model import OperationStatus, Outcome, RunStatus
from heaveto.runner.contract import (
    SILENT,
    Finished,
    Options,
    Registered,
    Reporter,
    Trouble,
)
from heaveto.runner.ending import Cause, Ending
from heaveto.runner.feed import SignalFeed
from heaveto.runner.outputs import result_digest
from heaveto.runner.saves import Saves
from heaveto.runner.verdict import Verdict, judge
from heaveto.runs import (
    RunDir,
    RunRecord,
    check_file_system,
    new_run_id,
    write_run_json,
)
from heaveto.seal import seal
from heaveto.statedb.store import StateDB
from heaveto.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from heaveto.executor import Result
    from heaveto.files import OwnedFile
    from heaveto.flowfile import Flow
    from heaveto.model import Prepared, Signal
    from heaveto.runs import Home

__all__ = ["run_flow"]

_LAST_WRITES_S = 20.0
"""Seconds that signals, and then the row, get at the end while the database refuses."""


async def run_flow(
    flow: Flow,
    home: Home,
    options: Options | None = None,
    reporter: Reporter | None = None,
    *,
    clock: Callable[[], float] = time.time,
) -> Finished:
    """Run a flow in a home, from its directory to its end.

    Args:
        flow: A checked flow.
        home: Where the run goes; it is made when absent.
        options: What the flow does not say.
        reporter: Told what happens, on the loop's thread.
        clock: Epoch seconds.

    Raises:
        FlowError: ``worker_unusable``; nothing was created.
        HomeError: The home or its file system cannot be used; nothing was created.
        StateDBError: The database cannot be used; no run was registered.
        CheckpointError: The initial checkpoint could not be published; the run is
            registered and has ended as failed.
        ForeignOwnerError: The home is not ours alone.
    """
    run = _Run(flow, home, options or Options(), reporter or SILENT, clock)
    return await run.whole()


class _Run:
    """One run while it goes; changed on the loop's thread only."""

    def __init__(
        self,
        flow: Flow,
        home: Home,
        options: Options,
        reporter: Reporter,
        clock: Callable[[], float],
    ) -> None:
        self.flow = flow
        self.home = home
        self.options = options
        self.reporter = reporter
        self.clock = clock
        self.ids = {one.id: str(uuid4()) for one in flow.operations}
        self.names = {key: name for name, key in self.ids.items()}
        self.troubles: list[Trouble] = []
        self.outcomes: dict[str, Outcome] = {}
        self.ending = Ending(on_begin=self._begin_end)
        self.session_id = str(uuid4())
        self.executor: DependencyAwareExecutor | None = None
        self.saves: Saves | None = None
        self._writes: set[asyncio.Task[None]] = set()

    # --- the whole

    async def whole(self) -> Finished:
        """Go through the four steps of the module."""
        self.started_at = self.clock()
        self.run_dir = self.home.run(new_run_id(self.started_at))
        root = self.options.artifact_root or self.run_dir.artifacts_root
        self.workers = Workers(
            self.flow.workers,
            run_id=self.run_dir.run_id,
            run_dir=self.run_dir.path,
            artifacts=root,
        )
        await asyncio.to_thread(self.workers.check)
        await asyncio.to_thread(check_file_system, self.home.path)
        await asyncio.to_thread(self.home.make)
        async with contextlib.AsyncExitStack() as stack:
            self.db = await StateDB.open(self.home.state_db, clock=self.clock)
            stack.push_async_callback(self.db.close)
            if self.options.signals:
                stack.callback(self.ending.listen(asyncio.get_running_loop()))
            await self._register(stack, str(root))
            verdict, context = await self._run()
        return Finished(
            registered=self.registered,
            verdict=verdict,
            outcomes=self.outcomes,
            context=context,
            troubles=tuple(self.troubles),
        )

    async def _register(self, stack: contextlib.AsyncExitStack, root: str) -> None:
        """Make the directory, take the lock, write record and row."""
        run_id = self.run_dir.run_id
        await asyncio.to_thread(RunDir.create, self.home, run_id)
        lock: OwnedFile = await asyncio.to_thread(self.run_dir.hold)
        stack.callback(lock.close)
        self.record = RunRecord(
            run_id=run_id,
            state_root=str(self.run_dir.path),
            artifact_root=root,
            cwd=os.getcwd(),
            status=str(RunStatus.RUNNING),
            started_at=self.started_at,
            session_id=self.session_id,
            checkpoint_format=self.options.checkpoint_format,
        )
        await asyncio.to_thread(write_run_json, self.run_dir, self.record)
        process = await asyncio.to_thread(liveness.identity)
        await self.db.create_session(
            session_id=self.session_id,
            run_id=run_id,
            name=self.flow.name,
            metadata={**process, "artifact_root": root},
            phase="planning",
            artifacts_path=root,
        )
        self.registered = Registered(
            run_id=run_id,
            session_id=self.session_id,
            home=self.home,
            run_dir=self.run_dir,
        )

    async def _run(self) -> tuple[Verdict, Mapping[str, object]]:
        """Run what is registered, and end it whatever happens."""
        verdict = Verdict(RunStatus.FAILED, "run.failed.internal", "")
        context: Mapping[str, object] = {}
        self.writer: CheckpointWriter | None = None
        try:
            await self._open_writer()
            self.reporter.registered(self.registered)
            result = await self._execute()
            context = result.context
            self._note_without_outcome(result)
            verdict = judge(result, cause=self.ending.cause, gates=self._rejected())
        except CheckpointError:
            verdict = Verdict(RunStatus.FAILED, "run.failed.checkpoint", "")
            raise
        except asyncio.CancelledError:
            verdict = Verdict(RunStatus.CANCELLED, "run.cancelled.task", "")
            raise
        finally:
            await _settled(self._end(verdict))
        return verdict, context

    async def _open_writer(self) -> None:
        """Publish the initial unit, before anything starts (SPEC D-02)."""
        flow, version = self.flow, self.options.checkpoint_format
        definition = flow.normalised()
        if flow.path is not None:
            definition |= {"flow_path": str(flow.path), "flow_sha256": flow.sha256}
        self.writer = CheckpointWriter(
            self.run_dir.checkpoint,
            session_id=self.session_id,
            prompt=flow.prompt,
            plan=flow.plan(self.ids if version == 3 else None),
            config={"flow": definition, **self._settings()},
            flow_context=dict(flow.context),
            version=version,
        )
        await self.writer.flush()

    def _settings(self) -> dict[str, object]:
        """Return the settings that hold for this run, as a resume will use them."""
        given, flow = self.options, self.flow
        limit = given.max_concurrent
        return {
            "max_concurrent": flow.max_concurrent if limit is None else limit,
            "on_failure": given.on_failure or str(flow.on_failure),
            "artifact_root": self.record.artifact_root,
        }

    # --- execution

    async def _execute(self) -> Result:
        """Execute the graph beside the feed of signals and the poller of controls."""
        assert self.writer is not None
        settings = self._settings()
        self.saves = saves = Saves(
            self.writer,
            self.names,
            on_executed=self._executed,
            on_persisted=self.reporter.persisted,
            on_failed=self._not_saved,
        )
        nodes, edges = self.flow.graph(self.ids)
        self.executor = executor = DependencyAwareExecutor(
            nodes,
            edges,
            invoke=self._invoke,
            prepare=self.workers.prepare,
            max_concurrent=settings["max_concurrent"],  # type: ignore[arg-type]
            on_failure=settings["on_failure"],  # type: ignore[arg-type]
            context=self.flow.context,
            on_signal=self._signal,
            on_outcome=saves.take,
            clock=self.clock,
        )
        self.feed = SignalFeed(self.db, self.session_id, on_trouble=self._signals_wait)
        self.feeding = asyncio.create_task(self.feed.run(), name="signals")
        self.poller = ControlPoller(
            self.db, self.session_id, self.registered.run_id, _Steering(self)
        )
        self.polling = asyncio.create_task(self.poller.run(), name="controls")
        self._write_phase("executing")
        if self.ending.cause is not None:
            executor.stop()
        return await executor.execute()

    async def _invoke(self, prepared: Prepared) -> object:
        """Run one operation's worker; the digest of its answer is made off the loop."""
        node = prepared.node
        response = await self.ending.guard(
            self.workers.invoke(prepared), self.workers.grace(node.assignee)
        )
        assert self.saves is not None
        self.saves.digests[node.id] = await asyncio.to_thread(result_digest, response)
        return response

    def _note_without_outcome(self, result: Result) -> None:
        """Say of the other operations what became of them."""
        for status, ids in (
            (OperationStatus.SKIPPED, result.skipped),
            (OperationStatus.CANCELLED, result.cancelled),
            (OperationStatus.UNSTARTED, result.withheld),
        ):
            for key in ids:
                self.outcomes[self.names[key]] = Outcome(
                    operation_id=key, status=status
                )

    def _rejected(self) -> bool:
        """Tell whether a gate said no."""
        gates = {one.id for one in self.flow.operations if one.gate}
        return any(
            isinstance(outcome.response, dict)
            and outcome.response.get("gate_verdict") == "reject"
            for name, outcome in self.outcomes.items()
            if name in gates
        )

    def _signal(self, signal: Signal) -> None:
        """Send a signal on its way and tell of it."""
        self.feed.put(signal)
        self.reporter.signal(signal)

    def _executed(self, name: str, outcome: Outcome) -> None:
        """Keep an outcome and tell of it; it is not saved yet."""
        self.outcomes[name] = outcome
        self.reporter.executed(name, outcome)

    def _write_phase(self, phase: str) -> None:
        """Show a phase in the row, as well as it can be done."""
        self._write(self.db.set_phase(self.session_id, phase))

    def _write(self, work: Coroutine[Any, Any, None]) -> None:
        """Write something into the row that nothing waits for and that may fail."""

        async def write() -> None:
            with contextlib.suppress(StateDBError):
                await work

        task = asyncio.create_task(write(), name="row")
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    def _begin_end(self, cause: Cause, again: bool) -> None:
        """Close admission because of a signal, and say so."""
        self.reporter.ending(cause, again)
        if self.executor is not None:
            self.executor.stop()
            self._write_phase("stopping")

    # --- trouble

    def _trouble(self, code: str, text: str) -> None:
        """Keep a trouble and tell of it."""
        trouble = Trouble(code=code, text=text)
        self.troubles.append(trouble)
        self.reporter.trouble(trouble)

    def _not_saved(self, name: str, error: CheckpointError) -> None:
        """An outcome is in no acknowledged checkpoint; the flow goes on.

        The writer tries again with each later outcome and at its end, so only then is
        it known what is really missing.
        """
        self.reporter.trouble(
            Trouble(
                code="persist_failed", text=f"{name} was not saved: {error.message}"
            )
        )
        self._write(self.db.merge_metadata(self.session_id, {"persist_failed": True}))

    def _signals_wait(self, error: StateDBError) -> None:
        """The database refuses signals; they are kept and tried again."""
        self.reporter.trouble(
            Trouble(code="signals_wait", text=f"the log waits: {error.message}")
        )

    # --- the end

    async def _end(self, verdict: Verdict) -> None:
        """End everything in the order of the module; nothing in it stops the rest."""
        if self.executor is not None:
            await self.poller.stop()
            await self._quiet(self.polling)
            lost = await self.feed.close(self.feeding, _LAST_WRITES_S)
            if lost:
                self._trouble("signals_gap", f"{lost} signals could not be written")
        await self.workers.aclose()
        for name, error in self.workers.log_errors.items():
            text = f"the log of {name} is incomplete: {error.strerror or error}"
            self.reporter.trouble(Trouble(code="log_gap", text=text))
        while self._writes:
            await asyncio.wait(self._writes)
        sealed = await self._close_writer()
        await self._end_row(verdict, sealed)
        await self._end_record(verdict)

    async def _quiet(self, task: asyncio.Task[None]) -> None:
        """Wait for a helper task; an error of it is a trouble and no more."""
        await asyncio.wait({task})
        if not task.cancelled() and (error := task.exception()) is not None:
            self._trouble("controls_failed", f"controls: {type(error).__name__}")

    async def _close_writer(self) -> dict[str, object] | None:
        """Close the checkpoint and return its seal; None when it must not be sealed."""
        writer = self.writer
        if writer is None:
            return None
        try:
            await writer.aclose()
        except CheckpointError as error:
            self._trouble("persist_failed", f"the checkpoint: {error.message}")
            if error.code not in ("cleanup", "close"):
                return None
        saved = [] if self.saves is None else self._all_saved(self.saves)
        return await asyncio.to_thread(
            seal,
            self.run_dir.checkpoint,
            version=self.options.checkpoint_format,
            generation=writer.generation,
            seq=writer.journal_seq,
            saved=len(saved),
        )

    def _all_saved(self, saves: Saves) -> list[str]:
        """Return what is saved once the writer has closed without an error.

        What was admitted and failed at first is on disk by now; what was never admitted
        is missing for good (SPEC E-42).
        """
        for name, error in saves.failures.items():
            if isinstance(error, CheckpointPersistenceError):
                saves.persisted.append(name)
                self.reporter.persisted(name, None)
            else:
                self._trouble("persist_failed", f"{name} is not in the checkpoint")
        return saves.persisted

    async def _end_row(
        self, verdict: Verdict, sealed: dict[str, object] | None
    ) -> None:
        """Write the terminal status, again and again for a bounded time, then sweep."""
        codes = {one.code for one in self.troubles}
        metadata: dict[str, object] = {"flow_control_poller": "stopped"}
        if sealed is not None:
            metadata["checkpoint_seal"] = sealed
        if self.saves is not None and self.saves.failures:
            metadata["persist_failed"] = "persist_failed" in codes
        if "signals_gap" in codes:
            metadata["signals_gap_at"] = self.clock()
        give_up = time.monotonic() + _LAST_WRITES_S
        while True:
            try:
                await self.db.set_status(
                    self.session_id,
                    verdict.status,
                    reason_code=verdict.reason_code,
                    reason_summary=verdict.summary or None,
                    metadata=metadata,
                )
                await self.db.sweep_controls(self.session_id, SWEPT)
            except StateDBError as error:
                if error.code == "db_busy" and time.monotonic() < give_up:
                    await asyncio.sleep(0.2)
                    continue
                self._trouble("row_open", f"the row was not ended: {error.message}")
            return

    async def _end_record(self, verdict: Verdict) -> None:
        """Write the end into ``run.json``."""
        record = dataclasses.replace(
            self.record, status=str(verdict.status), ended_at=self.clock()
        )
        try:
            await asyncio.to_thread(write_run_json, self.run_dir, record)
        except (OSError, HeavetoError) as error:
            self._trouble("record_failed", f"run.json was not written: {error}")


class _Steering:
    """What the poller steers: the executor, with the phase that a stop shows."""

    def __init__(self, run: _Run) -> None:
        assert run.executor is not None
        self._run = run
        self._executor = run.executor
        self.pause = run.executor.pause
        self.resume = run.executor.resume
        self.has_pending = run.executor.has_pending
        self.append_message = run.executor.append_message

    def stop(self) -> None:
        """Close admission; the row says that the run is stopping."""
        self._executor.stop()
        self._run._write_phase("stopping")


async def _settled(work: Coroutine[Any, Any, None]) -> None:
    """Run work to its end, however often the caller is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled
