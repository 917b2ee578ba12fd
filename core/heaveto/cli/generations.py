"""``generations``: what a generation store holds, and what a load would read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from heaveto.cli.exits import Exit
from heaveto.cli.output import table
from heaveto.cli.scope import Scope, common_options, is_path
from heaveto.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heaveto.generations import StoreView

__all__ = ["generations"]

_FOLDER = "engine_state"


@click.command()
@common_options
@click.argument("subject", metavar="PATH|TARGET")
@click.option(
    "--diff",
    "pair",
    nargs=2,
    metavar="GEN GEN",
    help="Compare two generations by file, size and digest.",
)
@click.pass_obj
def generations(scope: Scope, subject: str, pair: tuple[str, str] | None) -> int:
    """Show a generation store: what is committed, left over, torn or broken.

    What holds a ``/`` or exists is a path (the store, or a run directory with one),
    anything else names a run. Nothing is changed. Exit 1: something is wrong, or the
    two generations differ; 2: there is no such store or generation.
    """
    from heaveto.generations import inspect_store

    path = _path(scope, subject)
    if pair is not None:
        return _compare(scope, path, pair)
    view = inspect_store(path)
    if view is None:
        raise TargetError(f"no generation store at {path}", code="target_unknown")
    if scope.output.json:
        scope.output.answer(view.as_dict())
    else:
        for line in _lines(view):
            scope.output.line(line)
    return Exit.FAILED if view.problems else Exit.OK


def _path(scope: Scope, subject: str) -> Path:
    """Return the store that a path or a target names."""
    if is_path(subject):
        path = Path(subject)
    else:
        with scope.observer() as observer:
            detail = observer.read_run(subject)
        if detail.run_dir is None:
            raise TargetError(f"the run directory of {detail.run.run_id} is gone")
        path = Path(detail.run_dir)
        if not os.path.isdir(path / _FOLDER):
            raise TargetError(f"run {detail.run.run_id} has no generation store")
    inner = path / _FOLDER
    own = os.path.lexists(path / "current")
    return inner if os.path.isdir(inner) and not own else path


def _compare(scope: Scope, path: Path, pair: tuple[str, str]) -> int:
    """Print what differs between two generations."""
    from heaveto.generations import GenerationError, diff_generations

    try:
        changes = diff_generations(path, *pair)
    except GenerationError as error:
        raise TargetError(error.message, candidates=error.survivors) from None
    if scope.output.json:
        scope.output.answer({"equal": not changes, "files": changes})
    else:
        for line in _changed(changes, pair):
            scope.output.line(line)
    return Exit.FAILED if changes else Exit.OK


def _changed(changes: list[dict[str, object]], pair: tuple[str, str]) -> Iterator[str]:
    """Yield the comparison as text: sizes and digests, never values."""
    if not changes:
        yield "The two generations hold the same bytes."
        return
    rows = [
        [str(change["file"]), str(change["change"])]
        + [_side(change[side]) for side in ("from", "to")]
        for change in changes
    ]
    yield from table(["FILE", "CHANGE", *pair], rows)


def _side(found: object) -> str:
    """Say what one generation holds of a file."""
    if not isinstance(found, dict):
        return "-"
    digest = str(found["blake2b"])[:12]
    return f"{found['bytes']} bytes, {found['records']} records, {digest}"


def _lines(view: StoreView) -> Iterator[str]:
    """Yield the store as text."""
    yield f"store        {view.path}"
    yield f"current      {view.current or '-'} (pointer {view.pointer})"
    yield f"predecessor  {view.predecessor or '-'}"
    yield f"a load       {view.reads.removeprefix('a load ')}"
    if view.orphans:
        yield f"left over    {', '.join(view.orphans)}"
    if view.generations:
        yield ""
        yield from table(
            ["GENERATION", "TURNS", "BYTES", "FILES", "IDENTITY", "PARENT", "NOTE"],
            [
                [
                    one.name,
                    "-" if one.turn_count is None else str(one.turn_count),
                    str(one.bytes),
                    str(len(one.files)),
                    one.engine_identity or "-",
                    one.parent_engine_identity or "-",
                    one.problem or ("current" if one.name == view.current else ""),
                ]
                for one in view.generations
            ],
            right=(1, 2, 3),
        )
    if view.problems:
        yield ""
        for problem in view.problems:
            yield f"wrong: {problem}"
        yield (
            "EngineStateStore(path).recover(GENERATION) makes one of them current; "
            "reset() starts over. Neither deletes anything."
        )
