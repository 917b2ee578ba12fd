"""``inspect``: what a checkpoint holds and how far it can be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from heaveto.cli.exits import Exit
from heaveto.cli.output import table
from heaveto.cli.scope import Scope, common_options
from heaveto.cli.words import explain
from heaveto.errors import CheckpointRefused, HeavetoError, TargetError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
    from heaveto.checkpoint import load_checkpoint

    path = _path(scope, subject)
    refused: CheckpointRefused | None = None
    try:
        loaded = load_checkpoint(path)
    except CheckpointRefused as error:
        refused = error
        report = error.report.as_dict()  # type: ignore[attr-defined]
        state: Mapping[str, object] | None = None
    else:
        report, state = loaded.report.as_dict(), loaded.state
    answer: dict[str, object] = {"path": str(path), "checkpoint_recovery": report}
    if with_state:
        answer["state"] = _state(state)
    if journal:
        answer["journal"] = list(_records(path))
    if prefix:
        answer["prefix"] = _state(refused.prefix if refused else state)
    if scope.output.json:
        scope.output.answer(answer)
    else:
        for line in _lines(answer):
            scope.output.line(line)
    return Exit.FAILED if refused else Exit.OK


def _path(scope: Scope, subject: str) -> Path:
    """Return the checkpoint that a path or a target names.

    Raises:
        TargetError: The run has no run directory.
    """
    if "/" in subject or Path(subject).exists():
        path = Path(subject)
        return path / "checkpoint.json" if path.is_dir() else path
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


def _records(path: Path) -> Iterator[dict[str, object]]:
    """Yield what each line of the journal is: positions, kinds and ids, no content."""
    from heaveto.checkpoint.loader import JOURNAL_SUFFIX
    from heaveto.files import Directory

    try:
        with Directory.open(path.parent) as folder:
            data = folder.read(path.name + JOURNAL_SUFFIX)
    except (OSError, HeavetoError):
        return
    offset = 0
    for number, line in enumerate(data.split(b"\n"), 1):
        whole = offset + len(line) < len(data)
        if whole or line:
            place = {"line": number, "offset": offset, "bytes": len(line) + whole}
            yield {**place, **(_described(line) if whole else {"code": "torn_tail"})}
        offset += len(line) + 1


def _described(line: bytes) -> dict[str, object]:
    """Return what a whole line is, or the code of what is wrong with it."""
    from heaveto.checkpoint.v3 import RecordError, decode_record

    try:
        record = decode_record(line)
    except RecordError as error:
        return {"code": str(error.code)}
    return {
        "code": None,
        "generation": record.generation,
        "seq": record.seq,
        "kind": str(record.entry.kind),
        "id": record.entry.id,
        "status": str(record.entry.status),
        "context_changes": len(record.patch or ()),
    }


def _lines(answer: Mapping[str, object]) -> Iterator[str]:
    """Yield the answer as text."""
    from heaveto.cli.output import encode

    report = answer["checkpoint_recovery"]
    assert isinstance(report, dict)
    yield f"{'path':<22}{answer['path']}"
    for name in (
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
    ):
        value = report[name]
        yield f"{name.replace('_', ' '):<22}{'-' if value is None else value}"
    for reason in report["reasons"]:
        yield from _reason(reason)
    for name in ("state", "prefix"):
        if name in answer:
            yield f"{name}:"
            yield encode(answer[name])
    records = answer.get("journal")
    if isinstance(records, list):
        yield from _journal(records)


def _reason(reason: Mapping[str, object]) -> Iterator[str]:
    """Yield one reason in words, with its place."""
    places = [
        f"{name.replace('_', ' ')} {reason[name]}"
        for name in ("where", "line", "offset", "seq", "expected_seq", "op_index")
        if reason.get(name) is not None
    ]
    found = explain(str(reason["code"]))
    text = found.text if found else "A reason this version does not know."
    yield f"{text} ({', '.join([str(reason['code']), *places])})"
    if found and found.what_to_do:
        yield f"  {found.what_to_do}"


def _journal(records: list[Mapping[str, object]]) -> Iterator[str]:
    """Yield a table of records."""
    if not records:
        yield "The journal holds no record."
        return
    names = list(dict.fromkeys(name for row in records for name in row))
    yield from table(
        [name.upper() for name in names],
        [
            ["-" if row.get(n) is None else str(row[n]) for n in names]
            for row in records
        ],
    )
