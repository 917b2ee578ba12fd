"""The workers of one run: folders, calls, timeouts, and what is left behind.

``prepare`` and ``invoke`` are what an executor needs. Cancelling ``invoke`` ends the
operation's processes; the wait for that is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING

from heaveto.definition import GRACE_S, CommandWorker, PythonWorker, ScriptedWorker
from heaveto.errors import FlowError, HeavetoError, OperationError
from heaveto.files import Directory, make_directories, replace_file
from heaveto.jsonvalue import encode
from heaveto.runs import RunDir
from heaveto.workers.call import KILL_AFTER_S, Call, Request, no_files
from heaveto.workers.command import run_command
from heaveto.workers.python import find_function, run_python
from heaveto.workers.records import end_group, remove_record
from heaveto.workers.scripted import run_scripted

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping
    from pathlib import Path

    from heaveto.definition import WorkerSpec
    from heaveto.model import Prepared
    from heaveto.workers.records import ProcessRecord

__all__ = ["Workers"]

_LOG_LIMIT = 64 << 20
_PATIENCE_S = 15.0
"""How long, beyond TERM and KILL, a cancelled worker is waited for."""


class Workers:
    """Who does the work of one run; for the loop's thread only.

    Attributes:
        log_errors: Operations whose logs are incomplete, and why.
    """

    def __init__(
        self,
        specs: Mapping[str, WorkerSpec],
        *,
        run_id: str,
        run_dir: Path,
        artifacts: Path,
        kill_after: float = KILL_AFTER_S,
    ) -> None:
        """Take the workers of a flow.

        Args:
            specs: By name.
            run_id: The run that they work for.
            run_dir: Its directory, which exists.
            artifacts: Where each operation gets a folder for what it makes.
            kill_after: Seconds between TERM and KILL when a call is cancelled.
        """
        self._specs = dict(specs)
        self._run_id = run_id
        self._run = RunDir(run_dir)
        self._artifacts = artifacts
        self._kill_after = kill_after
        self._lingering: list[ProcessRecord] = []
        self._abandoned: set[asyncio.Task[object]] = set()
        self.log_errors: dict[str, OSError] = {}

    def check(self) -> None:
        """Find the functions of all python workers; blocking, runs their modules.

        Raises:
            FlowError: ``worker_unusable``.
        """
        for name, spec in self._specs.items():
            if isinstance(spec, PythonWorker):
                try:
                    find_function(spec)
                except FlowError as error:
                    raise FlowError(
                        f"worker {name}: {error}", code=error.code
                    ) from None

    def grace(self, worker: str) -> float:
        """Return how long a drain waits for an operation of a worker, in seconds."""
        return _grace(self._specs.get(worker))

    async def prepare(self, prepared: Prepared) -> None:
        """Make an operation's folders and write its context.

        Raises:
            OperationError: ``not_started``: they cannot be made.
        """
        try:
            await asyncio.to_thread(self._prepare, prepared)
        except (OSError, HeavetoError) as error:
            raise no_files(error) from None

    def _prepare(self, prepared: Prepared) -> None:
        name = prepared.node.name
        folder = self._run.operation(name)
        for wanted in (self._artifacts / name, folder):
            _make(wanted)
        with Directory.open(folder) as directory:
            data = encode(prepared.context) + b"\n"
            replace_file(directory, "context.json", data, sync=False)

    async def invoke(self, prepared: Prepared) -> object:
        """Run an operation and return its response; :meth:`prepare` came before.

        Raises:
            OperationError: With a code of PRODUCT 3.
            CancelledError: It was cancelled, and what it started has ended.
        """
        spec = self._specs.get(prepared.node.assignee)
        if spec is None:
            raise OperationError("there is no such worker", code="not_started")
        call = self._call(prepared, spec)
        try:
            await asyncio.to_thread(_write_instruction, call)
        except (OSError, HeavetoError) as error:
            raise no_files(error) from None
        work = asyncio.ensure_future(self._work(spec, call))
        try:
            return await self._finished(work, spec, call)
        finally:
            if call.log_errors:
                self.log_errors[call.request.operation] = call.log_errors[0]

    def _call(self, prepared: Prepared, spec: WorkerSpec) -> Call:
        name = prepared.node.name
        return Call(
            request=Request(
                instruction=prepared.instruction,
                context=prepared.context,
                run_id=self._run_id,
                operation=name,
                artifacts=self._artifacts / name,
            ),
            attempt=prepared.node.attempt,
            folder=self._run.operation(name),
            conversations=self._run.conversations,
            log_limit=getattr(spec, "log_limit", _LOG_LIMIT),
            kill_after=self._kill_after,
        )

    def _work(self, spec: WorkerSpec, call: Call) -> Coroutine[None, None, object]:
        if isinstance(spec, CommandWorker):
            return run_command(spec, call, self._lingering.append)
        if isinstance(spec, ScriptedWorker):
            return run_scripted(spec, call)
        return run_python(spec, call)

    async def _finished(
        self, work: asyncio.Task[object], spec: WorkerSpec, call: Call
    ) -> object:
        """Wait for a worker as long as it may take."""
        try:
            done, _ = await asyncio.wait({work}, timeout=spec.timeout)
        except asyncio.CancelledError:
            await self._end(work, call)
            raise
        if done:
            return work.result()
        call.kill_after = _grace(spec)
        await self._end(work, call)
        raise OperationError(f"no end within {spec.timeout:g} s", code="timeout")

    async def _end(self, work: asyncio.Task[object], call: Call) -> None:
        """Cancel a worker and wait, within bounds, until it has ended."""
        work.cancel()
        while not work.done():
            try:
                patience = call.kill_after + _PATIENCE_S
                await asyncio.wait({work}, timeout=patience)
            except asyncio.CancelledError:
                work.cancel()
                continue
            if not work.done():  # it ignores its cancellation
                self._abandoned.add(work)
                work.add_done_callback(self._abandoned.discard)
                return
        if not work.cancelled():
            work.exception()

    async def aclose(self) -> None:
        """End processes that operations left in the background, and forget them."""
        for record in self._lingering:
            await asyncio.to_thread(partial(self._end_group, record))
        self._lingering.clear()

    def _end_group(self, record: ProcessRecord) -> None:
        end_group(record, self._kill_after)
        folder = self._run.operation(record.operation)
        with (
            contextlib.suppress(OSError, HeavetoError),
            Directory.open(folder) as directory,
        ):
            remove_record(directory)


def _grace(spec: WorkerSpec | None) -> float:
    return spec.grace if isinstance(spec, CommandWorker) else GRACE_S


def _make(folder: Path) -> None:
    """Make a folder that no recovery rests on, so that it need not be synced."""
    make_directories(folder.parent)
    with Directory.open(folder.parent) as parent:
        try:
            made = parent.make(folder.name)
        except FileExistsError:
            made = parent.subdirectory(folder.name)
        made.close()


def _write_instruction(call: Call) -> None:
    with Directory.open(call.folder) as folder:
        data = call.request.instruction.encode("utf-8", "replace")
        replace_file(folder, "instruction.txt", data, sync=False)
