"""The ``command`` worker: a program, its input, its output, its exit.

The response is stdout, or the JSON in it. What ends an operation badly, in this order:
it could not be executed (``not_started``), it exited with another status than 0
(``exit_nonzero``, with the end of stderr), it wrote more than ``output_limit``
(``output_limit``), its output is no JSON (``output_invalid``).
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

from heaveto.errors import HeavetoError, OperationError
from heaveto.files import Directory
from heaveto.jsonvalue import JsonError, loads_strict
from heaveto.workers.call import no_files
from heaveto.workers.child import Child, Stream
from heaveto.workers.records import ProcessRecord, remove_record, write_record
from heaveto.workers.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from heaveto.definition import CommandWorker
    from heaveto.workers.call import Call
    from heaveto.workers.child import Ended

__all__ = ["run_command"]

_STDERR_END = 4096
_TEXT_END = 2000


async def run_command(
    spec: CommandWorker, call: Call, on_lingering: Callable[[ProcessRecord], None]
) -> object:
    """Run a program for an operation.

    Args:
        spec: The program.
        call: What it is called with.
        on_lingering: Given the record of a process group that outlives its leader.

    Raises:
        OperationError: See the module.
    """
    job = _Job(spec, call, on_lingering)
    ended = await in_thread(
        job.run, name=f"command {call.request.operation}", end=job.end
    )
    return job.response(ended)


class _Job:
    """One program while it runs."""

    def __init__(
        self,
        spec: CommandWorker,
        call: Call,
        on_lingering: Callable[[ProcessRecord], None],
    ) -> None:
        self.spec = spec
        self.call = call
        self.on_lingering = on_lingering
        self.record: ProcessRecord | None = None
        self.stdout = Stream(head=spec.output_limit, tail=1)
        self.stderr = Stream(head=0, tail=_STDERR_END)
        request = call.request
        by_argument = spec.input == "argument"
        self.child = Child(
            [*spec.argv, request.instruction] if by_argument else spec.argv,
            cwd=spec.cwd,
            env=self._environment(),
            stdin=None if by_argument else _encoded(request.instruction),
            output=self.stdout,
            errors=self.stderr,
            on_start=self._started,
        )

    def _environment(self) -> dict[str, str]:
        request = self.call.request
        return {
            **os.environ,
            **self.spec.env,
            "HEAVETO_RUN_ID": request.run_id,
            "HEAVETO_OPERATION": request.operation,
            "HEAVETO_ARTIFACTS": str(request.artifacts),
            "HEAVETO_CONTEXT": str(self.call.folder / "context.json"),
        }

    def run(self) -> Ended:
        """Stay with the program to its end; in its thread."""
        try:
            logs = self.call.open_logs()
        except (OSError, HeavetoError) as error:
            raise no_files(error) from None
        self.stdout.log, self.stderr.log = logs
        lingering = False
        try:
            ended = self.child.run()
            lingering = ended.lingering
        finally:
            self.call.close_logs(*logs)
            self._forget(lingering)
        return ended

    def _forget(self, lingering: bool) -> None:
        """Take the process off the record unless some of it lives on."""
        if self.record is None:
            return
        if lingering:
            self.on_lingering(self.record)
            return
        # A record that stays is harmless, it names a process that is gone; what the
        # operation did must not fail over it.
        with (
            contextlib.suppress(OSError, HeavetoError),
            Directory.open(self.call.folder) as folder,
        ):
            remove_record(folder)

    def end(self, again: bool) -> None:
        """End the program; again: at once."""
        self.child.end(0.0 if again else self.call.kill_after)

    def _started(self, pid: int) -> None:
        self.record = ProcessRecord.of(
            pid,
            run_id=self.call.request.run_id,
            operation=self.call.request.operation,
            command=self.spec.argv[0],
        )
        with Directory.open(self.call.folder) as folder:
            write_record(folder, self.record)

    def response(self, ended: Ended) -> object:
        """Make what the program wrote the response."""
        if ended.code:
            raise OperationError(self._why(ended.code), code="exit_nonzero")
        if self.stdout.size > self.spec.output_limit:
            raise OperationError(
                f"{self.stdout.size} bytes of output; the limit is "
                f"{self.spec.output_limit}",
                code="output_limit",
            )
        data = bytes(self.stdout.head)
        if self.spec.output == "text":
            return data.decode("utf-8", "replace")
        try:
            return loads_strict(data)
        except JsonError as error:
            raise OperationError(
                f"the output is no strict JSON ({error.kind})", code="output_invalid"
            ) from None

    def _why(self, code: int) -> str:
        what = f"exit status {code}" if code > 0 else f"ended by {_signal_name(-code)}"
        end = self.stderr.tail.decode("utf-8", "replace").strip()[-_TEXT_END:]
        return f"{what}: {end}" if end else what


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")
