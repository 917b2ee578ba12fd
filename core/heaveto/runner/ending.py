"""The end of a run from outside: a signal drains it, a second one does not wait.

The drain (PRODUCT 6.10): nothing new starts; each operation that runs is given its
worker's grace, then its worker is cancelled, which ends its processes; such an
operation has no outcome. The first signal decides the status that the run ends with.
"""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heaveto.errors import OperationError
from heaveto.model import RunStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["Cause", "Ending"]


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a run is ended from outside."""

    status: RunStatus
    reason_code: str
    word: str


_CAUSES = {
    signal.SIGINT: Cause(RunStatus.ABORTED, "run.aborted.sigint", "interrupt"),
    signal.SIGTERM: Cause(RunStatus.CANCELLED, "run.cancelled.sigterm", "SIGTERM"),
    signal.SIGHUP: Cause(RunStatus.CANCELLED, "run.cancelled.sighup", "SIGHUP"),
}


class Ending:
    """The drain of one run; for the loop thread only.

    Attributes:
        cause: Why the run is being ended; None while it is not.
    """

    def __init__(self, *, on_begin: Callable[[Cause, bool], None]) -> None:
        """Wait for a cause.

        Args:
            on_begin: Told of the cause, and whether this is the second time, which
                skips the wait. It closes the executor's admission.
        """
        self._on_begin = on_begin
        self._running: dict[asyncio.Task[object], float] = {}
        self._cut: set[asyncio.Task[object]] = set()
        self.cause: Cause | None = None
        self._hurry = False

    def listen(self, loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        """Handle the signals on the main thread; return what undoes it.

        A process that was started with SIGCHLD ignored would lose the exit status of
        every command, so that goes back to its default for good.
        """
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, cause in _CAUSES.items():
            loop.add_signal_handler(number, self.begin, cause)

        def undo() -> None:
            for number in _CAUSES:
                loop.remove_signal_handler(number)

        return undo

    def begin(self, cause: Cause) -> None:
        """Start the drain, cut it short the second time, and kill after that."""
        if self._hurry:
            for task in list(self._cut):
                task.cancel()
            return
        again = self.cause is not None
        self.cause = self.cause or cause
        self._hurry = again
        self._on_begin(cause, again)
        for task, grace in list(self._running.items()):
            self._schedule(task, 0.0 if again else grace)

    async def guard(
        self, work: Coroutine[object, object, object], grace: float
    ) -> object:
        """Run a worker under the drain.

        Args:
            work: The worker's call.
            grace: Seconds it is given once a drain begins.

        Raises:
            OperationError: ``cancelled``: it was cut off; it has no outcome.
        """
        task = asyncio.ensure_future(work)
        self._running[task] = grace
        if self.cause is not None:
            self._schedule(task, 0.0 if self._hurry else grace)
        try:
            return await task
        except asyncio.CancelledError:
            if task not in self._cut:
                raise
            raise OperationError("the run was ended", code="cancelled") from None
        except Exception:
            if task in self._cut:
                raise OperationError("the run was ended", code="cancelled") from None
            raise
        finally:
            self._running.pop(task, None)
            self._cut.discard(task)

    def _schedule(self, task: asyncio.Task[object], delay: float) -> None:
        """Cut a worker off after a while, unless it has ended by then."""

        def cut() -> None:
            if not task.done() and task not in self._cut:
                self._cut.add(task)
                task.cancel()

        task.get_loop().call_later(delay, cut)
