"""``show``: one run whole, as text or as the object of PRODUCT 3."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from heaveto.cli.exits import Exit
from heaveto.cli.output import table
from heaveto.cli.scope import Scope, common_options, target_argument
from heaveto.cli.words import control_word, operation_word, run_word
from heaveto.errors import UsageError
from heaveto.model import OperationStatus, RunStatus
from heaveto.text import age, clip, duration, plain, short_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heaveto.observe.snapshot import (
        ControlView,
        OperationView,
        RunDetail,
        RunSummary,
    )

__all__ = ["control_rows", "detail_lines", "print_detail", "show", "state_line"]


@click.command()
@common_options
@target_argument
@click.option("--dag", is_flag=True, help="Draw the operations.")
@click.option(
    "--direction",
    type=click.Choice(["LR", "TB"]),
    default="LR",
    show_default=True,
    help="Of a drawing: from left to right, or from top to bottom.",
)
@click.option("--ascii", "ascii_only", is_flag=True, help="With --dag: ASCII alone.")
@click.option("--mermaid", is_flag=True, help="The operations as a Mermaid flowchart.")
@click.option("--dot", is_flag=True, help="The operations in Graphviz' language.")
@click.option("--svg", is_flag=True, help="The drawing of --dag as an SVG document.")
@click.pass_obj
def show(
    scope: Scope, /, target: str, direction: str, ascii_only: bool, **forms: bool
) -> int:
    """Show the run that TARGET names: its operations, controls and warnings."""
    wanted = [name for name, on in forms.items() if on and name != "dag"]
    if len(wanted) > 1:
        raise UsageError("--dot, --mermaid, --svg exclude each other")
    if forms["dag"] and not wanted:
        wanted = ["dag"]
    with scope.observer() as observer:
        detail = observer.read_run(target)
    if not wanted or scope.output.json:
        print_detail(scope, detail)
        return Exit.OK
    from heaveto.cli.drawing import drawing_lines

    form: Any = "text" if wanted == ["dag"] else wanted[0]
    for line in drawing_lines(
        scope.dag, detail, form=form, direction=direction, ascii_only=ascii_only
    ):
        scope.output.line(line)
    return Exit.OK


def print_detail(scope: Scope, detail: RunDetail) -> None:
    """Print one run as the output asks for."""
    if scope.output.json:
        scope.output.answer(detail.as_dict())
        return
    for line in detail_lines(detail, now=time.time()):
        scope.output.line(line)


def detail_lines(detail: RunDetail, *, now: float) -> list[str]:
    """Return one run as lines of text.

    Args:
        detail: The run.
        now: Epoch seconds; ages are counted back from it.
    """
    return [
        *_head(detail, now),
        *_operations(detail, now),
        *_controls(detail, now),
        *_survivors(detail),
        *_warnings(detail.run),
    ]


def _head(detail: RunDetail, now: float) -> Iterator[str]:
    """Yield who the run is and how it stands."""
    run = detail.run
    yield f"{run.session_id}  run {run.run_id}"
    if run.name:
        yield clip(plain(run.name), 100)
    yield f"home        {run.home} ({run.source})"
    yield f"state       {state_line(run, now)}"
    yield f"checkpoint  {_checkpoint(run)}"
    if run.generation_dir:
        yield f"engine      {run.generation_dir} (heaveto generations)"
    if run.superseded_by:
        yield f"superseded  by {run.superseded_by}"
    if run.resumed_from:
        yield f"resumed     from {run.resumed_from}"


def state_line(run: RunSummary, now: float) -> str:
    """Return the state with what it rests on."""
    parts = [run_word(run.state, superseded=run.superseded_by is not None)]
    if run.reason_code:
        parts.append(f"({run.reason_code})")
    if run.status == RunStatus.RUNNING and run.started_at is not None:
        parts.append(f"since {age(run.started_at, now)}")
    elif run.ended_at is not None and run.started_at is not None:
        parts.append(f"after {duration(run.ended_at - run.started_at)}")
    if run.alive is not None and run.status == RunStatus.RUNNING:
        parts.append("process alive" if run.alive else "process gone")
    parts.append(f"[{run.status_source}, {run.confidence}]")
    return " ".join(parts)


def _checkpoint(run: RunSummary) -> str:
    """Return what is on disk of a run."""
    unit = run.checkpoint
    if unit is None:
        return "none"
    parts = [f"version {unit.version}" if unit.version else "version unknown"]
    parts.append(unit.status)
    if unit.generation is not None:
        parts.append(f"generation {unit.generation[:8]}")
    if unit.seq is not None:
        parts.append(f"seq {unit.seq}")
    if unit.records_since_base is not None:
        parts.append(f"{unit.records_since_base} since the base")
    if unit.bytes_to_compaction is not None:
        parts.append(f"{unit.bytes_to_compaction} bytes to the next base")
    parts.append(f"{unit.saved} of {run.nodes.get('total', 0)} saved")
    return ", ".join(parts)


def _operations(detail: RunDetail, now: float) -> Iterator[str]:
    """Yield the table of operations."""
    if not detail.operations:
        return
    names = {operation.id: operation.name for operation in detail.operations}
    over = detail.run.status != RunStatus.RUNNING or detail.run.alive is False
    yield ""
    yield from table(
        ("OPERATION", "STATE", "TIME", "SAVED", "NEEDS", "NOTE"),
        [
            _operation(operation, names, now, over=over)
            for operation in detail.operations
        ],
        right=(2,),
    )


def _operation(
    operation: OperationView, names: dict[str, str], now: float, *, over: bool
) -> tuple[str, ...]:
    """Return one row of the table."""
    end = operation.ended_at
    if end is None and operation.status == OperationStatus.RUNNING:
        end = now
    took = "-"
    if operation.started_at is not None and end is not None:
        took = duration(end - operation.started_at)
    needs = " ".join(plain(names.get(head, head)) for head in operation.depends_on)
    return (
        clip(plain(operation.name), 32),
        operation_word(operation.status),
        took,
        _saved(operation, over=over),
        clip(needs or "-", 40),
        clip(_note(operation), 60),
    )


_WITH_OUTCOME = frozenset(
    {OperationStatus.COMPLETED, OperationStatus.FAILED, OperationStatus.ESCALATED}
)


def _saved(operation: OperationView, *, over: bool) -> str:
    """Return whether an outcome is saved: yes, not yet, no; "-" where there is none."""
    if operation.persisted:
        return "yes"
    if operation.persisted is None or operation.status not in _WITH_OUTCOME:
        return "-"
    return "no" if over else "not yet"


def _note(operation: OperationView) -> str:
    """Return what else is to be said about an operation, in one line."""
    parts = []
    if operation.stale:
        parts.append("ran on a failed input")
    if operation.error_code:
        text = f": {operation.error_text}" if operation.error_text else ""
        parts.append(f"{operation.error_code}{text}")
    if operation.reason:
        parts.append(operation.reason)
    if operation.rendered:
        parts.append(f"read {' '.join(short_id(one) for one in operation.rendered)}")
    return plain("; ".join(parts))


def _controls(detail: RunDetail, now: float) -> Iterator[str]:
    """Yield the table of controls."""
    if not detail.controls:
        return
    over = detail.run.status != RunStatus.RUNNING or detail.run.alive is False
    yield ""
    yield from table(
        ("CONTROL", "WHAT", "CAME TO", "AGE", "BY", "TEXT"),
        control_rows(detail, over=over, now=now),
        right=(3,),
    )


def control_rows(detail: RunDetail, *, over: bool, now: float) -> list[tuple[str, ...]]:
    """Return the rows of a table of controls: what each came to, and how soon."""
    names = {operation.id: operation.name for operation in detail.operations}
    return [
        (
            short_id(control.id),
            control.verb,
            _came_to(control, names, over=over),
            age(control.created_at, now),
            plain(control.by or "-"),
            clip(plain(control.text or ""), 48),
        )
        for control in detail.controls
    ]


def _came_to(control: ControlView, names: dict[str, str], *, over: bool) -> str:
    """Return what a control came to, who read it, and how long that took."""
    reader = control.rendered_into
    word = control_word(
        klass=control.klass,
        result=control.result,
        run_over=over,
        rendered=reader is not None,
        lost=control.lost,
    )
    if reader is not None:
        word += f" by {clip(plain(names.get(reader, reader)), 24)}"
    if control.applied_at is not None:
        word += f" after {duration(max(0.0, control.applied_at - control.created_at))}"
    return word


def _survivors(detail: RunDetail) -> Iterator[str]:
    """Yield the living children of a dead runner."""
    if not detail.survivors:
        return
    yield ""
    yield "STILL RUNNING though the run is dead:"
    for one in detail.survivors:
        yield "  ".join(f"{name} {value}" for name, value in one.items())


def _warnings(run: RunSummary) -> Iterator[str]:
    """Yield the warnings with what to do."""
    if not run.warnings:
        return
    yield ""
    yield "WARNINGS"
    for warning in run.warnings:
        yield f"{warning.code}: {warning.text}"
        if warning.what_to_do:
            yield f"  {warning.what_to_do}"
