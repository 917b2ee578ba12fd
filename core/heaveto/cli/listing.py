"""``ls`` and ``wait``: the list of runs, once or as it changes, and waiting."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import click

from heaveto.cli.exits import Exit, for_status
from heaveto.cli.output import table
from heaveto.cli.scope import (
    Scope,
    common_options,
    parse_duration,
    target_argument,
)
from heaveto.cli.words import run_word
from heaveto.errors import UsageError
from heaveto.model import RunState
from heaveto.text import age, clip, plain, short_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from heaveto.observe.snapshot import CheckpointView, RunSummary

__all__ = ["ls", "print_list", "wait"]

_JOURNALED = 3
"""The checkpoint version that has a journal."""
_SORTS = ("attention", "started", "ended", "name", "state", "done", "home")


@click.command()
@common_options
@click.option("--attention", is_flag=True, help="Only runs that need somebody.")
@click.option("--find", metavar="TEXT", help="Only runs whose name or ids hold TEXT.")
@click.option("--sort", type=click.Choice(_SORTS), default="started", show_default=True)
@click.option("--all", "every", is_flag=True, help="Also resumes that did nothing.")
@click.option("--watch", "follow", is_flag=True, help="Go on as the list changes.")
@click.option("--jsonl", is_flag=True, help="With --watch: one JSON object a line.")
@click.pass_obj
def ls(
    scope: Scope,
    attention: bool,
    find: str | None,
    sort: str,
    every: bool,
    follow: bool,
    jsonl: bool,
) -> int:
    """List the runs of every open home, the newest first."""
    if jsonl and not follow:
        raise UsageError("--jsonl needs --watch; --json prints the list once")
    if jsonl:
        scope.output.json = True
    choice = Choice(find=find, sort=sort, everything=every, attention=attention)
    if follow:
        import asyncio

        return asyncio.run(_watch(scope, choice))
    return print_list(scope, choice)


class Choice(NamedTuple):
    """Which runs are listed, and in which order."""

    find: str | None = None
    sort: str = "started"
    everything: bool = False
    attention: bool = False

    def of(self, runs: Iterable[RunSummary]) -> tuple[RunSummary, ...]:
        """Return the chosen ones of the runs."""
        from heaveto.observe.attention import arrange

        return arrange(runs, **self._asdict())


def print_list(scope: Scope, choice: Choice | None = None) -> int:
    """Print the list once."""
    with scope.observer() as observer:
        runs = (choice or Choice()).of(observer.list_runs())
        problems = [home.problem for home in observer.health() if home.problem]
    for problem in problems:
        scope.output.warn(problem.text)
    if scope.output.json:
        # Times of a summary are finite, and ten thousand of them are a lot of text.
        scope.output.answer({"runs": [run.as_dict() for run in runs]}, finite=True)
        return Exit.OK
    for line in list_lines(runs, now=time.time()):
        scope.output.line(line)
    if not runs:
        scope.output.line("No runs here yet. heaveto demo shows some.")
    return Exit.OK


def list_lines(runs: Sequence[RunSummary], *, now: float) -> list[str]:
    """Return the list as text; empty when there are no runs."""
    if not runs:
        return []
    rows = [
        (
            run_word(run.state, superseded=run.superseded_by is not None),
            short_id(run.session_id or run.run_id),
            clip(plain(run.name or "-"), 36),
            f"{run.nodes.get('completed', 0)}/{run.nodes.get('total', 0)}",
            age(run.ended_at or run.started_at, now),
            run.source,
            _on_disk(run),
        )
        for run in runs
    ]
    titles = ("STATE", "ID", "NAME", "DONE", "SINCE", "HOME", "CHECKPOINT")
    return table(titles, rows, right=(3, 4))


def _on_disk(run: RunSummary) -> str:
    """Return the checkpoint, and the committed generation where a store is kept."""
    text = _checkpoint(run.checkpoint)
    return f"{text}, {plain(run.generation_dir)}" if run.generation_dir else text


def _checkpoint(unit: CheckpointView | None) -> str:
    """Return generation prefix, sequence, records since the base, bytes to the next."""
    if unit is None:
        return "-"
    if unit.status == "refused" or unit.version != _JOURNALED:
        known = f"v{unit.version} " if unit.version else ""
        return f"{known}{unit.status}"
    parts = [f"{(unit.generation or '?')[:8]} seq {unit.seq}"]
    if unit.records_since_base is not None:
        parts.append(f"+{unit.records_since_base}")
    if unit.bytes_to_compaction is not None:
        parts.append(f"{unit.bytes_to_compaction}B to base")
    if unit.status != "clean":
        parts.append(unit.status)
    return ", ".join(parts)


async def _watch(scope: Scope, choice: Choice) -> int:
    """Print the list, then what changed in it, until interrupted."""
    with scope.observer() as observer:
        first = True
        async for change in observer.watch():
            runs = choice.of(change.runs)
            if scope.output.json:
                scope.output.answer({"runs": [run.as_dict() for run in runs]})
                continue
            changed = [run for run in runs if change.concerns(run.session_id)]
            lines = list_lines(changed, now=time.time())
            for line in lines if first else lines[1:]:
                scope.output.line(line)
            if first and not lines:
                scope.output.line("No runs here yet.")
            first = False
    return Exit.OK


@click.command()
@common_options
@target_argument
@click.option("--timeout", metavar="D", help="Give up after D (90s, 15m, 2h): exit 3.")
@click.pass_obj
def wait(scope: Scope, target: str, timeout: str | None) -> int:
    """Wait until the run that TARGET names has ended; end with its exit code.

    A run whose process is gone will not end: exit 1 at once.
    """
    limit = None if timeout is None else parse_duration(timeout, "--timeout")
    import asyncio

    return asyncio.run(_wait(scope, target, limit))


async def _wait(scope: Scope, target: str, limit: float | None) -> int:
    """Follow one run to its end or to the limit."""
    from heaveto.cli.show import print_detail

    with scope.observer() as observer:
        detail, elapsed = await observer.wait_for_end(target, limit)
    print_detail(scope, detail)
    if elapsed:
        return Exit.RUNNING
    if detail.run.state == RunState.DEAD:
        return Exit.FAILED
    return for_status(detail.run.status)
