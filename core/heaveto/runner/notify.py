"""``--notify``: one command of the user's, once, after the end is written.

It is an argv, never a shell line. What it prints is left out, and its failure is a
warning: the run has ended as it has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
from typing import TYPE_CHECKING

from heaveto.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LIMIT_S", "notify", "parse"]

LIMIT_S = 30.0
"""Seconds that the command may take."""


def parse(command: str) -> tuple[str, ...]:
    """Return the argv of a ``--notify`` text.

    Raises:
        UsageError: It cannot be split, or nothing is in it.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--notify: {error}") from None
    if not words:
        raise UsageError("--notify: no command")
    return tuple(words)


async def notify(
    argv: Sequence[str],
    *,
    run_id: str,
    status: str,
    exit_code: int,
    limit: float = LIMIT_S,
) -> str | None:
    """Run the command and wait for it.

    Returns:
        None when it ended with 0, else one sentence on what happened.
    """
    environment = {
        **os.environ,
        "HEAVETO_RUN_ID": run_id,
        "HEAVETO_STATUS": status,
        "HEAVETO_EXIT": str(exit_code),
    }
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        return f"the notify command could not be started: {error.strerror}"
    try:
        code = await asyncio.wait_for(process.wait(), limit)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        await process.wait()
        return f"the notify command took longer than {limit:.0f}s and was ended"
    return None if code == 0 else f"the notify command ended with {code}"
