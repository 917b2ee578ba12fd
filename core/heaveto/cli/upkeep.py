"""``close`` and ``prune``: end the row of a dead run, remove runs long ended."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import TYPE_CHECKING

import click

from heaveto.cli.exits import Exit
from heaveto.cli.scope import (
    Scope,
    account,
    common_options,
    parse_duration,
    target_argument,
)
from heaveto.errors import HeavetoError, RunError
from heaveto.model import TERMINAL_RUN, RunStatus
from heaveto.text import short_id

if TYPE_CHECKING:
    from heaveto.observe.snapshot import RunSummary
    from heaveto.runs import Home, RunDir

__all__ = ["close", "prune"]


@click.command()
@common_options
@target_argument
@click.pass_obj
def close(scope: Scope, target: str) -> int:
    """End the row of a run whose process is gone.

    The run then counts as failed, or as what its run.json says it came to. Controls
    that nobody took are closed. A run that is alive, or may be, is refused.
    """
    homes = {str(home.path): home for home in scope.homes()}
    with scope.observer() as observer:
        run = observer.read_run(target).run
        _check_dead(run)
        if run.status == RunStatus.RUNNING:
            asyncio.run(_end_row(homes[run.home], run))
            run = observer.read_run(run.session_id).run
    if scope.output.json:
        scope.output.answer({"run": run.as_dict()})
    else:
        scope.output.line(f"{short_id(run.session_id)} is closed as {run.status}.")
    return Exit.OK


def _check_dead(run: RunSummary) -> None:
    """Refuse what is not ours to end, or not dead.

    Raises:
        RunError: It is lionagi's, alive, or perhaps alive; or it has no row.
    """
    if run.source != "heaveto":
        raise RunError(
            f"lionagi's rows are not ours to end; li kill {short_id(run.session_id)}"
            " does it",
            code="not_ours",
        )
    if not run.session_id or run.status is None:
        raise RunError("the run has no row that could be ended", code="run_missing")
    if run.status != RunStatus.RUNNING or run.alive is False:
        return
    if run.alive:
        raise RunError(
            "the run is alive; heaveto ctl stop ends it in order", code="run_live"
        )
    raise RunError("it cannot be told from here that the run is dead", code="not_dead")


async def _end_row(home: Home, run: RunSummary) -> None:
    """Write the end of a dead run into its row, under its lock."""
    from heaveto.controls.words import SWEPT
    from heaveto.statedb.store import StateDB

    home.check_writable()
    place = home.run(run.run_id)
    lock = place.hold() if place.path.is_dir() else None
    try:
        status, reason = _verdict(place)
        async with await StateDB.open(home.state_db, create=False) as db:
            await db.set_status(
                run.session_id,
                status,
                reason_code=reason,
                source="admin",
                actor=account() or None,
                metadata={"flow_control_poller": "stopped"},
            )
            await db.sweep_controls(run.session_id, SWEPT)
        if lock is not None:
            _end_record(place, status)
    finally:
        if lock is not None:
            lock.close()


def _verdict(place: RunDir) -> tuple[RunStatus, str]:
    """Return what the run came to as far as its record says, else that it failed."""
    from heaveto.runs import read_run_json

    try:
        recorded = read_run_json(place).status
    except HeavetoError:
        recorded = None
    if recorded in TERMINAL_RUN:
        return RunStatus(recorded), f"run.{recorded}.closed"
    return RunStatus.FAILED, "run.failed.process_gone"


def _end_record(place: RunDir, status: RunStatus) -> None:
    """Write the end into ``run.json``; a record that cannot be read is left."""
    from heaveto.runs import read_run_json, write_run_json

    try:
        record = read_run_json(place)
    except HeavetoError:
        return
    if record.status not in TERMINAL_RUN:
        now = time.time()
        write_run_json(
            place, dataclasses.replace(record, status=str(status), ended_at=now)
        )


@click.command()
@common_options
@click.option(
    "--older", metavar="D", required=True, help="Ended longer ago (30d, 12h)."
)
@click.option("--dry-run", is_flag=True, help="Say what would be removed.")
@click.pass_obj
def prune(scope: Scope, older: str, dry_run: bool) -> int:
    """Remove the directories and rows of runs that ended longer ago than D.

    Base and journal of a checkpoint go together. Runs that live, may live, or are dead
    and not closed are kept, and so is everything of lionagi.
    """
    before = time.time() - parse_duration(older, "--older")
    homes = {str(home.path): home for home in scope.homes()}
    removed: list[str] = []
    kept: list[dict[str, object]] = []
    with scope.observer() as observer:
        runs = observer.list_runs()
    needed = {run.resumed_from for run in runs if _why_kept(run, before, set())}
    for run in runs:
        why = _why_kept(run, before, needed)
        if why is None and not dry_run:
            why = _remove(homes[run.home], run)
        if why is None:
            removed.append(run.run_id)
        else:
            kept.append({"run_id": run.run_id, "why": why})
    _report(scope, removed, kept, dry_run=dry_run)
    return Exit.OK


def _why_kept(run: RunSummary, before: float, needed: set[str | None]) -> str | None:
    """Return why a run must stay, None when it may go."""
    if run.source != "heaveto":
        return "lionagi's"
    if run.status not in TERMINAL_RUN:
        return "dead and not closed" if run.alive is False else "not ended"
    if run.ended_at is None or run.ended_at >= before:
        return "ended later"
    if run.run_id in needed:
        return "a run that is kept was resumed from it"
    return None


def _remove(home: Home, run: RunSummary) -> str | None:
    """Remove one run: its directory under another name first, then its row.

    Returns:
        None, or why it could not be removed.
    """
    from heaveto.files import Directory
    from heaveto.statedb.store import StateDB

    async def forget() -> None:
        async with await StateDB.open(home.state_db, create=False) as db:
            await db.delete_session(run.session_id)

    try:
        home.check_writable()
        place = home.run(run.run_id)
        if place.path.is_dir():
            lock = place.hold()
            try:
                with Directory.open(home.runs) as runs:
                    runs.remove_tree(place.path.name)
            finally:
                lock.close()
        asyncio.run(forget())
    except (HeavetoError, OSError) as error:
        return str(error)
    return None


def _report(
    scope: Scope,
    removed: list[str],
    kept: list[dict[str, object]],
    *,
    dry_run: bool,
) -> None:
    """Say what was removed and what was kept."""
    if scope.output.json:
        scope.output.answer({"removed": removed, "kept": kept})
        return
    word = "would be removed" if dry_run else "removed"
    for run_id in removed:
        scope.output.line(f"{run_id}  {word}")
    for one in kept:
        scope.output.line(f"{one['run_id']}  kept: {one['why']}")
    if not removed and not kept:
        scope.output.line("There are no runs here.")
