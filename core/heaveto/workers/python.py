"""The ``python`` worker: a function of the user's own, in this process.

An ``async def`` runs on the run's event loop, anything else in a daemon thread of its
own. A thread cannot be cancelled: when its operation times out or is ended, the
operation ends at once, and what the function returns later is dropped and noted in
``error.log``.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import signal
import sys
import threading
import traceback
from typing import TYPE_CHECKING

from heaveto.errors import CheckpointValueError, FlowError, OperationError, told
from heaveto.jsonvalue import normalize
from heaveto.workers.call import as_text
from heaveto.workers.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from heaveto.definition import PythonWorker
    from heaveto.workers.call import Call

__all__ = ["find_function", "run_python"]

_importing = threading.Lock()


def find_function(spec: PythonWorker) -> Callable[..., object]:
    """Import the module of a worker and return its function; blocking.

    The module is also looked for in the flow's folder, after all other places, so that
    nothing there can take the place of a library.

    Raises:
        FlowError: ``worker_unusable``.
    """
    if spec.function is not None:
        return spec.function
    module, _, name = spec.call.partition(":")
    with _importing:
        if spec.folder not in sys.path:
            sys.path.append(spec.folder)
        try:
            found: object = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except BaseException as error:
            if _is_ctrl_c(error):
                raise
            raise FlowError(
                f"{spec.call} cannot be loaded: {told(error)}",
                code="worker_unusable",
            ) from None
    if not callable(found):
        raise FlowError(f"{spec.call} is no function", code="worker_unusable")
    return found


async def run_python(spec: PythonWorker, call: Call) -> object:
    """Call the function and take what it returns as JSON (SPEC E-83).

    Raises:
        OperationError: It raised, or its result is no JSON value.
    """
    try:
        function = await in_thread(lambda: find_function(spec), name="import")
    except FlowError as error:
        raise OperationError(str(error), code="not_started") from None
    try:
        response = normalize(await _called(function, call))
    except CheckpointValueError as error:
        await _log(call, "", f"{error}\n")
        raise OperationError(
            f"the result is no JSON value: {error}", code="output_invalid"
        ) from None
    except Exception as error:
        await _log(call, "", _traceback(error))
        raise
    await _log(call, as_text(response))
    return response


async def _called(function: Callable[..., object], call: Call) -> object:
    request = call.request
    try:
        if inspect.iscoroutinefunction(function):
            return await function(request)
        result = await in_thread(
            lambda: function(request),
            name=f"python {request.operation}",
            late=lambda: _note_late(call),
        )
        return await result if inspect.isawaitable(result) else result
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as error:  # foreign code must not take the run with it
        if _is_ctrl_c(error):
            raise
        await _log(call, "", _traceback(error))
        raise OperationError(told(error)) from None


def _is_ctrl_c(error: BaseException) -> bool:
    """Tell a key press from a KeyboardInterrupt that foreign code made up.

    A press raises only in the main thread, and only where Python's own handler is in
    place; a run that handles signals itself, or an event loop's, has another one.
    """
    return (
        isinstance(error, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


def _traceback(error: BaseException) -> str:
    """Write where a function failed, without the way that led to it."""
    trace = error.__traceback__
    while trace is not None and _is_ours(trace):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


def _is_ours(trace: TracebackType) -> bool:
    name = trace.tb_frame.f_globals.get("__name__", "")
    return str(name).startswith("heaveto.workers.")


async def _log(call: Call, output: str, errors: str = "") -> None:
    await in_thread(lambda: call.write_logs(output, errors), name="log")


def _note_late(call: Call) -> None:
    """Say in the log that a result came after the end of its operation."""
    call.write_logs("", "[the function returned after the end of its operation]\n")
