"""``inspect``: what a checkpoint holds and how far it can be trusted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from heaveto.cli.exits import Exit
from heaveto.cli.output import table
from heaveto.cli.scope import Scope, common_options, is_path
from heaveto.cli.words import explain
from heaveto.errors import TargetError
from heaveto.text import clip, plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from heaveto.checkpoint.report import Reason
    from heaveto.observe.ondisk import JournalLine, UnitView

__all__ = ["inspect"]

_STATE_MEMBERS = (
    "version",
    "session_id",
    "prompt",
    "plan",
    "flow_context",
    "ops",
    "spawned",
    "config",
    "max_spawn",
)
_FACTS = (
    "status",
    "checkpoint_version",
    "generation",
    "base_seq",
    "last_seq",
    "applied_records",
    "stale_records",
    "valid_bytes",
    "discarded_tail_bytes",
    "attempts",
)
_TITLES = (
    "LINE",
    "OFFSET",
    "BYTES",
    "GEN",
    "SEQ",
    "KIND",
    "ID",
    "STATUS",
    "CHANGES",
    "USE",
    "CODE",
)


@click.command()
@common_options
@click.argument("subject", metavar="PATH|TARGET")
@click.option("--state", "with_state", is_flag=True, help="Also the state itself.")
@click.option("--journal", is_flag=True, help="Also the records, without content.")
@click.option("--prefix", is_flag=True, help="Of a refused unit: what reads well.")
@click.pass_obj
def inspect(
    scope: Scope, subject: str, with_state: bool, journal: bool, prefix: bool
) -> int:
    """Read a checkpoint and report what can be trusted.

    What holds a ``/`` or exists is a path (a folder: its checkpoint.json), anything
    else names a run. Exit 1: the unit is refused, or there is none. Base and journal
    are one unit: they are copied, moved and backed up together.
    """
    from heaveto.observe.ondisk import inspect_unit

    path = _path(scope, subject)
    found = inspect_unit(path, journal=journal)
    view = found.view
    answer: dict[str, object] = {
        "path": str(path),
        "checkpoint_recovery": view.report.as_dict(),
    }
    if with_state:
        answer["state"] = _state(found.state)
    if journal:
        answer["journal"] = [line.as_dict() for line in view.records]
    if prefix:
        answer["prefix"] = _state(found.prefix)
    if scope.output.json:
        scope.output.answer(answer)
    else:
        for text in _lines(answer, view):
            scope.output.line(text)
    return Exit.FAILED if view.refused else Exit.OK


def _path(scope: Scope, subject: str) -> Path:
    """Return the checkpoint that a path or a target names.

    Raises:
        TargetError: The run has no run directory.
    """
    if is_path(subject):
        path = Path(subject)
        return path / "checkpoint.json" if os.path.isdir(path) else path
    with scope.observer() as observer:
        detail = observer.read_run(subject)
    if detail.run_dir is None:
        raise TargetError(f"the run directory of {detail.run.run_id} is gone")
    return Path(detail.run_dir) / "checkpoint.json"


def _state(state: Mapping[str, object] | None) -> dict[str, object] | None:
    """Return the members of PRODUCT 3 of a state, whatever else it may hold."""
    if state is None:
        return None
    return {name: state.get(name) for name in _STATE_MEMBERS}


def _lines(answer: Mapping[str, object], view: UnitView) -> Iterator[str]:
    """Yield the answer as text."""
    from heaveto.cli.output import encode

    report = view.report
    facts: dict[str, object] = {"path": view.path}
    for name in _FACTS:
        facts[name.replace("_", " ")] = getattr(report, name)
    facts["base bytes"] = view.base_bytes
    facts["journal bytes"] = view.journal_bytes
    facts["bytes to next base"] = view.bytes_to_compaction
    for name, value in facts.items():
        yield f"{name:<22}{'-' if value is None else value}"
    for reason in report.reasons:
        yield from _reason(reason)
    for name in ("state", "prefix"):
        if name in answer:
            yield f"{name}:"
            yield encode(answer[name])
    if "journal" in answer:
        yield from _journal(view.records)


def _reason(reason: Reason) -> Iterator[str]:
    """Yield one reason in words, with its place."""
    from heaveto.observe.ondisk import reason_place

    found = explain(str(reason.code))
    text = found.text if found else "A reason this version does not know."
    yield f"{text} ({reason.code}: {reason_place(reason)})"
    if found and found.what_to_do:
        yield f"  {found.what_to_do}"


def _journal(records: Sequence[JournalLine]) -> Iterator[str]:
    """Yield a table of records."""
    if not records:
        yield "The journal holds no record."
        return
    rows = [
        [
            *(str(value) for value in (one.line, one.offset, one.bytes)),
            one.generation[:8] if one.generation else "-",
            *(
                "-" if value is None else clip(plain(value), 40)
                for value in (one.seq, one.kind, one.id, one.status)
            ),
            "-" if one.context_changes is None else str(one.context_changes),
            one.use,
            one.code or "-",
        ]
        for one in records
    ]
    yield from table(_TITLES, rows, right=(0, 1, 2, 4, 8))
