"""The ``scripted`` worker: answers that were written down before.

For demonstrations, for trying a flow's shape, and for tests. It waits, logs and answers
or fails as the first reply says that applies to the operation and its attempt.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from heaveto.errors import OperationError
from heaveto.files import Directory, make_directories, replace_file
from heaveto.workers.call import as_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from heaveto.definition import Reply, ScriptedWorker
    from heaveto.workers.call import Call

__all__ = ["run_scripted"]


async def run_scripted(
    spec: ScriptedWorker,
    call: Call,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> object:
    """Answer as the script says.

    Args:
        spec: The script.
        call: What it is called with.
        sleep: Waits some seconds.

    Raises:
        OperationError: The reply is an error, or none applies.
    """
    operation = call.request.operation
    reply = next((r for r in spec.replies if r.applies(operation, call.attempt)), None)
    if reply is None:
        raise OperationError(f"no reply is scripted for attempt {call.attempt}")
    if reply.after:
        await sleep(reply.after)
    await asyncio.to_thread(_write, reply, call)
    if reply.error is not None:
        raise OperationError(reply.error)
    return reply.response


def _write(reply: Reply, call: Call) -> None:
    """Leave what a worker leaves: logs, and the conversation."""
    lines = "".join(f"{line}\n" for line in reply.log)
    if reply.error is None:
        call.write_logs(lines + as_text(reply.response))
    else:
        call.write_logs(lines, f"{reply.error}\n")
    if reply.messages:
        make_directories(call.conversations)
        with Directory.open(call.conversations) as folder:
            data = json.dumps(list(reply.messages)).encode()
            replace_file(folder, f"{call.request.operation}.json", data, sync=False)
