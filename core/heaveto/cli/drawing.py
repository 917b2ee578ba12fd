"""A run's operations and dependencies as a picture: of text, SVG, Mermaid or DOT.

The drawing is a pure function that the caller of :func:`heaveto.cli.main` named; it is
imported only here, and where it is not installed the other commands work all the same.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal

from heaveto.cli.console import load
from heaveto.cli.graphs import arrows, dot, mermaid
from heaveto.cli.words import operation_mark
from heaveto.errors import HomeError
from heaveto.text import plain as inert_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heaveto.observe.snapshot import RunDetail

__all__ = ["Form", "drawing_lines"]


Form = Literal["text", "svg", "mermaid", "dot"]


def drawing_lines(
    dag: str | None,
    detail: RunDetail,
    *,
    form: Form = "text",
    direction: str = "LR",
    ascii_only: bool = False,
    encoding: str | None = None,
) -> Iterator[str]:
    """Yield the picture; of text with what its marks mean.

    Mermaid and DOT need nothing but this package; the other two need the drawing.

    Args:
        dag: The function that draws, as ``module:function``.
        detail: The run.
        form: What the lines are made of.
        direction: ``LR`` or ``TB``.
        ascii_only: Text in ASCII alone; also where the encoding has nothing else.
        encoding: Of what the text is for; by default the standard output's.

    Raises:
        HomeError: ``no_drawing``: the drawing is not installed here.
    """
    if form == "mermaid":
        return mermaid(detail, direction=direction)
    if form == "dot":
        return dot(detail, direction=direction)
    if form == "svg":
        drawing = _drawing(dag, detail, direction, plain=False)
        marks = {one.id: operation_mark(one.status) for one in detail.operations}
        roles = {
            one.id: _ROLES.get(str(one.status), "muted") for one in detail.operations
        }
        picture: Iterator[str] = drawing.svg(
            marks, roles, title=detail.run.name or detail.run.run_id
        )
        return picture
    code = (encoding or sys.stdout.encoding or "ascii").lower().replace("-", "")
    return _text(dag, detail, direction, plain=ascii_only or code != "utf8")


def _text(
    dag: str | None, detail: RunDetail, direction: str, *, plain: bool
) -> Iterator[str]:
    """Yield the picture of text, then what its marks mean and what it leaves out."""
    drawing = _drawing(dag, detail, direction, plain=plain)
    marks = {
        one.id: operation_mark(one.status, ascii_only=plain)
        for one in detail.operations
    }
    for row in drawing.lines(marks):
        yield row.rstrip()
    yield ""
    used = {one.status: marks[one.id] for one in detail.operations}
    yield "  ".join(f"{mark} {status}" for status, mark in used.items())
    names = {one.id: one.name for one in detail.operations}
    for edge in drawing.dropped:
        head, tail = (_said(names.get(end, end), plain=plain) for end in edge)
        yield (
            f"! damaged plan: {head} -> {tail} closes a cycle or leads nowhere and is"
            " not drawn"
        )


def _said(name: str, *, plain: bool) -> str:
    """Return a name as the picture shows it: inert, and where wanted in ASCII."""
    line = inert_line(name)
    return line.encode("ascii", "backslashreplace").decode() if plain else line


_ROLES = {
    "running": "live",
    "paused": "hold",
    "completed": "good",
    "failed": "bad",
    "lost": "bad",
    "escalated": "note",
    "pending": "note",
    "unknown": "hold",
}


def _drawing(dag: str | None, detail: RunDetail, direction: str, *, plain: bool) -> Any:
    """Return the drawing, made by the function that a caller named."""
    if dag is None:
        raise HomeError(
            "the drawing is not part of this command; use heaveto show",
            code="no_drawing",
        )
    draw: Any = load(dag)
    return draw(
        [(one.id, one.name, one.depends_on) for one in detail.operations],
        direction,
        {
            (arrow.head, arrow.tail): arrow.kind
            for arrow in arrows(detail)
            if arrow.kind != "depends"
        },
        ascii=plain,
        mend=True,
    )
