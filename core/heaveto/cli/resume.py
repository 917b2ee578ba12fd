"""``resume --dry-run``: what a resume would do, told without running anything."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from heaveto.cli.exits import Exit
from heaveto.cli.output import table
from heaveto.cli.scope import Scope, common_options, target_argument
from heaveto.errors import CheckpointRefused, FlowResumeError, RunError, UsageError
from heaveto.model import TERMINAL_RUN
from heaveto.text import clip, plain, short_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from heaveto.observe.snapshot import RunDetail
    from heaveto.resume import NodePlan, ResumePlan

__all__ = ["resume"]


@click.command()
@common_options
@target_argument
@click.option("--dry-run", is_flag=True, help="Tell what a resume would do.")
@click.option("--retry-failed", is_flag=True, help="Run failed operations again.")
@click.option(
    "--allow-degraded-context",
    is_flag=True,
    help="Start without an earlier conversation where it was not saved.",
)
@click.pass_obj
def resume(
    scope: Scope,
    target: str,
    dry_run: bool,
    retry_failed: bool,
    allow_degraded_context: bool,
) -> int:
    """Tell what would be used again, run or refused if the run were resumed.

    Nothing is written and nothing is started. This version does it for runs of
    lionagi, which lionagi itself resumes; the command for that is printed. Exit 0: it
    would resume, 1: it would be refused, 2: no such run.
    """
    with scope.observer() as observer:
        detail = observer.read_run(target)
    if detail.run.source != "lionagi":
        raise UsageError(
            "heaveto resume is not part of this version for heaveto's own runs.",
            code="not_available",
        )
    command = li_command(
        detail, retry_failed=retry_failed, degraded=allow_degraded_context
    )
    if not dry_run:
        raise FlowResumeError(
            f"lionagi resumes its own runs: {command}", code="not_ours"
        )
    plan = predicted(
        detail, target, retry_failed=retry_failed, degraded=allow_degraded_context
    )
    if scope.output.json:
        scope.output.answer(plan.as_dict())
    else:
        for line in _lines(detail, plan, command):
            scope.output.line(line)
    return Exit.FAILED if plan.refused else Exit.OK


def li_command(
    detail: RunDetail,
    *,
    retry_failed: bool,
    degraded: bool,
    environ: Mapping[str, str] = os.environ,
) -> str:
    """Return the command line with which lionagi resumes a run."""
    words = ["li", "o", "flow", "--resume", detail.run.run_id or detail.run.session_id]
    if retry_failed:
        words.append("--retry-failed")
    if degraded:
        words.append("--allow-degraded-context")
    default = environ.get("LIONAGI_HOME") or str(Path.home() / ".lionagi")
    home = detail.run.home
    if os.path.realpath(default) != os.path.realpath(home):
        words = ["env", f"LIONAGI_HOME={home}", *words]
    return shlex.join(words)


def predicted(
    detail: RunDetail, target: str, *, retry_failed: bool, degraded: bool
) -> ResumePlan:
    """Return what lionagi would do with a run; reads its checkpoint."""
    from heaveto.lionagi import LionagiCase, predict_lionagi

    state, report = _checkpoint(detail)
    ended = detail.run.status in TERMINAL_RUN
    return predict_lionagi(
        LionagiCase(
            target=target,
            state=state,
            report=report,
            alive=False if ended else detail.run.alive,
            persistence=_persistence(detail),
            has_run=detail.run_dir is not None,
            retry_failed=retry_failed,
            degraded_allowed=degraded,
            stale=frozenset(one.name for one in detail.operations if one.stale),
            names={one.id: one.name for one in detail.operations},
            lost_steers=tuple(one.id for one in detail.controls if one.lost),
            reads_settings=_reads_settings(state),
        )
    )


def _checkpoint(
    detail: RunDetail,
) -> tuple[Mapping[str, Any] | None, Mapping[str, object]]:
    """Return the state of a run's checkpoint, None when there is none, and its report.

    The loader reports an absent file, too.
    """
    from heaveto.checkpoint import load_checkpoint

    folder = Path(detail.run_dir) if detail.run_dir else Path(detail.run.home, "runs")
    try:
        loaded = load_checkpoint(folder / "checkpoint.json")
    except CheckpointRefused as error:
        return None, error.report.as_dict()  # type: ignore[attr-defined]
    return loaded.state, loaded.report.as_dict()


def _persistence(detail: RunDetail) -> str | None:
    """Return why a run was told not to save anything, as its ``run.json`` says."""
    from heaveto.runs import RunDir, read_run_json

    if detail.run_dir is None:
        return None
    try:
        record = read_run_json(RunDir(Path(detail.run_dir)))
    except RunError:
        return None
    found = record.extra.get("persistence_degraded_reason")
    return found if isinstance(found, str) and found else None


_SETTINGS_READERS = ("claude", "gemini", "pi")
"""Command line models of lionagi that may read the user's settings."""


def _reads_settings(state: Mapping[str, Any] | None) -> Callable[[str | None], bool]:
    """Tell where the user's settings are read: the orchestrator's branch, always.

    A role's branch reads them when its model is a command line that does; which model
    a role had is recorded for the whole flow alone.
    """
    config = {} if state is None else state["config"]
    spec = config.get("model_spec")
    role_reads = not isinstance(spec, str) or spec.startswith(_SETTINGS_READERS)
    return lambda assignee: assignee is None or role_reads


# --- text


def _lines(detail: RunDetail, plan: ResumePlan, command: str) -> Iterator[str]:
    run = detail.run
    yield f"{short_id(run.session_id)}  run {run.run_id}, of lionagi"
    yield f"decision    {'refused' if plan.refused else 'resume'}"
    for reason in plan.reasons:
        yield f"  {reason.code}: {plain(reason.text)}"
    if plan.nodes:
        yield ""
        yield from table(("OPERATION", "WHAT", "STALE", "WHY"), map(_row, plan.nodes))
    limit = plan.effective_config.get("timeout")
    yield ""
    yield f"time limit  {'none' if limit is None else f'{limit} s, as recorded'}"
    yield f"checkpoint  {plan.checkpoint_recovery.get('status')}"
    for control in detail.controls:
        if control.lost:
            yield f"lost        {short_id(control.id)} {clip(plain(control.text), 60)}"
    for note in plan.notes:
        yield f"note        {plain(note)}"
    yield f"command     {plain(command)}"


def _row(node: NodePlan) -> tuple[str, ...]:
    name = clip(plain(node.name), 32)
    return name, str(node.verdict), "yes" if node.stale else "-", plain(node.why)
