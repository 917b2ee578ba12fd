"""``logs``: what operations wrote, once or as they write it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from heaveto.cli.exits import Exit
from heaveto.cli.scope import Scope, common_options, target_argument
from heaveto.errors import TargetError
from heaveto.model import RunStatus
from heaveto.text import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heaveto.observe.snapshot import OperationView, RunDetail

__all__ = ["logs"]

_BLOCK = 65_536
_STREAMS = ("output", "error")


class _Source(NamedTuple):
    """One log file of one operation."""

    operation: OperationView
    stream: str
    path: Path


@click.command()
@common_options
@target_argument
@click.argument("operation", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on until the run ends.")
@click.option(
    "--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines."
)
@click.pass_obj
def logs(
    scope: Scope, target: str, operation: str | None, follow: bool, tail: int | None
) -> int:
    """Print the output of every operation of a run, or of one, named by id or name.

    Errors (what a worker wrote on standard error) are marked with ``!``.
    """
    if follow and not _is_lionagis(scope, target):
        return asyncio.run(_follow(scope, target, operation, tail))
    with scope.observer() as observer:
        detail = observer.read_run(target)
        _print_once(scope, detail, _chosen(detail, operation), tail)
    return Exit.OK


def _is_lionagis(scope: Scope, target: str) -> bool:
    """Tell whether there is no log that could be followed, and say so."""
    with scope.observer() as observer:
        run = observer.read_run(target).run
    if run.source != "lionagi":
        return False
    scope.output.progress("lionagi writes no logs: what was answered is shown once.")
    return True


def _chosen(detail: RunDetail, wanted: str | None) -> list[OperationView]:
    """Return the operations asked for, in the order of the run.

    Raises:
        TargetError: None has that id or name.
    """
    if wanted is None:
        return list(detail.operations)
    exact = [one for one in detail.operations if wanted in (one.id, one.name)]
    found = exact or [one for one in detail.operations if one.id.startswith(wanted)]
    if len(found) == 1 and wanted:
        return found
    names = [one.name for one in (found or detail.operations)]
    raise TargetError(
        f"{'several operations match' if found else 'no operation is called'} {wanted}",
        code="target_ambiguous" if found else "target_unknown",
        candidates=names,
    )


def _sources(detail: RunDetail, operations: list[OperationView]) -> list[_Source]:
    """Return the log files of operations; an absent one is simply empty."""
    from heaveto.runs import RunDir

    if detail.run_dir is None:
        return []
    folder = RunDir(Path(detail.run_dir))
    return [
        _Source(one, stream, folder.operation(one.name) / f"{stream}.log")
        for one in operations
        for stream in _STREAMS
    ]


def _print_once(
    scope: Scope, detail: RunDetail, operations: list[OperationView], tail: int | None
) -> None:
    """Print what is there now."""
    if detail.run.source == "lionagi":
        found = recorded(detail, operations)
        text = {key: _last_lines(value, tail) for key, value in found.items()}
    else:
        text = {
            (source.operation.id, source.stream): _last_lines(_read(source.path), tail)
            for source in _sources(detail, operations)
        }
    if scope.output.json:
        scope.output.answer(
            {
                "run_id": detail.run.run_id,
                "operations": [
                    {
                        "id": one.id,
                        "name": one.name,
                        "output": text.get((one.id, "output"), ""),
                        "error": text.get((one.id, "error"), ""),
                    }
                    for one in operations
                ],
            }
        )
        return
    for one in operations:
        for stream in _STREAMS:
            for line in _lines(text.get((one.id, stream), "")):
                scope.output.line(_mark(one, stream, alone=len(operations) == 1) + line)


def recorded(
    detail: RunDetail, operations: list[OperationView]
) -> dict[tuple[str, str], str]:
    """Return what operations of lionagi's answered, by id and stream.

    Its workers write no logs, and artifacts only after the whole flow: what a killed or
    timed-out run came to is in its checkpoint alone.
    """
    from heaveto.checkpoint import load_checkpoint
    from heaveto.errors import CheckpointError

    if detail.run_dir is None:
        return {}
    try:
        state = load_checkpoint(Path(detail.run_dir) / "checkpoint.json").state
    except CheckpointError:
        return {}
    entries = {one["node_id"]: one for one in state["spawned"]} | state["ops"]
    found = {}
    for one in operations:
        entry = entries.get(one.id) or entries.get(one.name)
        if entry is not None:
            failed = entry["status"] == "failed"
            stream = "error" if failed else "output"
            found[one.id, stream] = _answer(entry.get("response"), failed=failed)
    return found


def _answer(response: object, *, failed: bool) -> str:
    """Return a response as text; what is no text is shown as JSON."""
    from heaveto.cli.output import encode

    if failed and isinstance(response, dict) and isinstance(response.get("error"), str):
        response = response["error"]
    try:
        text = response if isinstance(response, str) else encode(response)
    except ValueError:  # lionagi may have stored a number that JSON does not know
        text = str(response)
    return text if text.endswith("\n") else f"{text}\n"


def _mark(operation: OperationView, stream: str, *, alone: bool) -> str:
    """Return what stands before a line: whose it is, and ``!`` for an error."""
    sign = "!" if stream == "error" else "|"
    return f"{sign} " if alone else f"{plain(operation.name)} {sign} "


def _lines(text: str) -> list[str]:
    """Split on line breaks alone; a final one ends the last line."""
    lines = text.replace("\r\n", "\n").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return lines


def _last_lines(text: str, count: int | None) -> str:
    """Return the last lines of a text."""
    if count is None:
        return text
    lines = text.splitlines(keepends=True)
    return "".join(lines[-count:]) if count else ""


def _read(path: Path, offset: int = 0) -> str:
    """Return a log from an offset on; what is no regular file reads as empty."""
    return b"".join(_blocks(path, offset)).decode("utf-8", "replace")


def _blocks(path: Path, offset: int) -> Iterator[bytes]:
    """Yield a file from an offset on, in blocks, following no link in its last step."""
    from heaveto.errors import HeavetoError
    from heaveto.files import Directory

    try:
        with Directory.open(path.parent) as folder, folder.reading(path.name) as fd:
            while block := os.pread(fd, _BLOCK, offset):
                offset += len(block)
                yield block
    except (OSError, HeavetoError):
        return


async def _follow(
    scope: Scope, target: str, wanted: str | None, tail: int | None
) -> int:
    """Print what is there, then what is added, until the run is over."""
    offsets: dict[Path, int] = {}
    rest: dict[Path, bytes] = {}
    with scope.observer() as observer:
        detail = await asyncio.to_thread(observer.read_run, target)
        exact = detail.run.session_id or detail.run.run_id
        while True:
            over = detail.run.status != RunStatus.RUNNING or detail.run.alive is False
            operations = _chosen(detail, wanted)
            alone = wanted is not None
            for source in _sources(detail, operations):
                for line in _added(source.path, offsets, rest, tail, last=over):
                    _emit(scope, source, line, alone=alone)
            tail = None
            if over:
                return Exit.OK
            await asyncio.sleep(0.2)
            detail = await asyncio.to_thread(observer.read_run, exact)


def _added(
    path: Path,
    offsets: dict[Path, int],
    rest: dict[Path, bytes],
    tail: int | None,
    *,
    last: bool,
) -> list[str]:
    """Return the whole lines added to a log since the last look."""
    data = rest.pop(path, b"")
    for block in _blocks(path, offsets.get(path, 0)):
        offsets[path] = offsets.get(path, 0) + len(block)
        data += block
    whole, newline, partial = data.rpartition(b"\n")
    if last:
        whole, newline, partial = data, b"", b""
    if partial:
        rest[path] = partial
    text = _last_lines((whole + newline).decode("utf-8", "replace"), tail)
    return _lines(text) if text else []


def _emit(scope: Scope, source: _Source, line: str, *, alone: bool) -> None:
    """Print one line, as text or as an object of its own."""
    if scope.output.json:
        scope.output.answer(
            {
                "id": source.operation.id,
                "name": source.operation.name,
                "stream": source.stream,
                "line": line,
            }
        )
        return
    scope.output.line(_mark(source.operation, source.stream, alone=alone) + line)
