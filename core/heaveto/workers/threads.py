"""Work in a thread of its own that cannot keep the process from ending.

The threads of ``asyncio.to_thread`` are joined at exit, so a worker that never returns
would hold the whole process; these are daemons.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, TypeVar

from heaveto.errors import OperationError, told

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["in_thread"]

T = TypeVar("T")


async def in_thread(
    work: Callable[[], T],
    *,
    name: str,
    end: Callable[[bool], None] | None = None,
    late: Callable[[], None] | None = None,
) -> T:
    """Run a blocking function in a daemon thread.

    Args:
        work: The function.
        name: The thread's name.
        end: Called when the wait is cancelled, again (with True) when it is cancelled
            again; it makes the function return, and the wait goes on until it has.
            Without it a cancelled wait ends at once and the thread is left to itself.
        late: Called in the thread when nobody waits for its result any more.

    Raises:
        OperationError: ``not_started``: no thread could be started.
        CancelledError: The wait was cancelled.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def deliver(value: T | None, error: BaseException | None) -> None:
        if result.done():
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(value)  # type: ignore[arg-type]

    def run() -> None:
        value, error = None, None
        try:
            value = work()
        except BaseException as raised:  # a thread that dies silently loses the wait
            error = _carried(raised)
        if result.cancelled() and late is not None:
            late()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(deliver, value, error)

    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError:
        raise OperationError("no thread could be started", code="not_started") from None
    if end is None:
        return await result
    return await _ended(result, end)


async def _ended(result: asyncio.Future[T], end: Callable[[bool], None]) -> T:
    """Wait until the function has returned, also when the wait is cancelled."""
    cancelled = False
    while not result.done():
        try:
            await asyncio.shield(result)
        except asyncio.CancelledError:
            end(cancelled)
            cancelled = True
        except Exception:
            break
    if cancelled:
        result.exception()
        raise asyncio.CancelledError
    return result.result()


def _carried(error: BaseException) -> BaseException:
    """Make an exception safe to set on a future."""
    if isinstance(error, StopIteration | SystemExit | KeyboardInterrupt):
        return OperationError(told(error))
    return error
