"""``show --dag``: a run's operations and dependencies as a picture of text.

The drawing is a pure function that the caller of :func:`heaveto.cli.main` named; it is
imported only here, and where it is not installed the other commands work all the same.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from heaveto.cli.console import load
from heaveto.cli.words import operation_mark
from heaveto.errors import HomeError, RunError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heaveto.cli.scope import Scope
    from heaveto.observe.snapshot import RunDetail

__all__ = ["drawing_lines"]


def drawing_lines(
    scope: Scope, detail: RunDetail, *, direction: str, ascii_only: bool
) -> Iterator[str]:
    """Yield the picture, then what its marks mean.

    Args:
        scope: It names the function that draws.
        detail: The run.
        direction: ``LR`` or ``TB``.
        ascii_only: Use ASCII alone; also where the stream can carry nothing else.

    Raises:
        HomeError: ``no_drawing``: the drawing is not installed here.
        RunError: ``run_damaged``: the dependencies have a cycle.
    """
    if scope.dag is None:
        raise HomeError(
            "the drawing is not part of this command; use heaveto show --dag",
            code="no_drawing",
        )
    draw: Any = load(scope.dag)
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    plain = ascii_only or encoding != "utf8"
    known = {operation.id for operation in detail.operations}
    nodes = [
        (one.id, one.name, [head for head in one.depends_on if head in known])
        for one in detail.operations
    ]
    edges = {(head, key) for key, _, heads in nodes for head in heads}
    try:
        drawing = draw(nodes, direction, _kinds(detail, edges), ascii=plain)
    except ValueError as error:
        raise RunError(
            f"the run cannot be drawn: {error}", code="run_damaged"
        ) from None
    marks = {
        one.id: operation_mark(one.status, ascii_only=plain)
        for one in detail.operations
    }
    for row in drawing.lines(marks):
        yield row.rstrip()
    yield ""
    used = {one.status: marks[one.id] for one in detail.operations}
    yield "  ".join(f"{mark} {status}" for status, mark in used.items())


def _kinds(
    detail: RunDetail, edges: set[tuple[str, str]]
) -> dict[tuple[str, str], str]:
    """Return the kind of each edge that is not a plain dependency."""
    kinds: dict[tuple[str, str], str] = {}
    for link in detail.links:
        edge = (link.head, link.tail)
        if edge not in edges or not link.active:
            continue
        kind = "conditional" if link.condition is not None else link.kind
        if kind != "depends":
            kinds[edge] = kind
    return kinds
