"""``heaveto.run``: a flow as a coroutine of the program that calls it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from heaveto.homes import default_home, open_home
from heaveto.runner.contract import Options, Trouble
from heaveto.runner.lifecycle import run_flow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from heaveto.flowfile import Flow
    from heaveto.model import Outcome, RunStatus
    from heaveto.runs import Home

__all__ = ["RunResult", "run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run ended."""

    run_id: str
    status: RunStatus
    operations: Mapping[str, Outcome]
    """Every operation by its id in the flow; ``status`` says what became of it."""
    context: Mapping[str, object]
    """The shared context at the end."""
    troubles: tuple[Trouble, ...] = ()
    """What could not be saved; empty when everything was."""


async def run(
    flow: Flow,
    *,
    home: Path | str | None = None,
    checkpoint_format: int = 3,
    max_concurrent: int | None = None,
    on_failure: str | None = None,
    artifact_root: Path | str | None = None,
) -> RunResult:
    """Run a flow here and return when it has ended.

    The run has its directory, its row and its checkpoint like every other, so that
    ``heaveto ls``, ``show`` and ``ctl`` work on it meanwhile. Cancelling the task ends
    what runs and writes the end of the run before it returns. Signals are left to the
    program.

    Args:
        flow: A checked flow.
        home: Where the run is kept; None is ``$HEAVETO_HOME`` or the user's own.
        checkpoint_format: 3, base and journal, or 2, one file.
        max_concurrent: Operations at a time, 0 is all; None as the flow says.
        on_failure: ``skip``, ``continue`` or ``stop``; None as the flow says.
        artifact_root: Where artifacts go; None is the run directory.

    Raises:
        FlowError: ``worker_unusable``; nothing was created.
        HomeError: The home cannot be used; nothing was created.
        StateDBError: The database cannot be used; no run was registered.
        CheckpointError: The first checkpoint could not be published; nothing started.
        ForeignOwnerError: The home is not ours alone.
    """
    where = await asyncio.to_thread(_home, home)
    finished = await run_flow(
        flow,
        where,
        Options(
            checkpoint_format=checkpoint_format,
            max_concurrent=max_concurrent,
            on_failure=on_failure,
            artifact_root=None if artifact_root is None else Path(artifact_root),
        ),
    )
    return RunResult(
        run_id=finished.registered.run_id,
        status=finished.verdict.status,
        operations=finished.outcomes,
        context=finished.context,
        troubles=finished.troubles,
    )


def _home(given: Path | str | None) -> Home:
    """Look what kind of home was given; blocking."""
    return open_home(default_home() if given is None else Path(given))
