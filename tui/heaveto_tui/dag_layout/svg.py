"""A drawing as SVG: the same cells, with wires as strokes instead of signs. Pure.

Every sign of a wire is a set of arms from the middle of its cell, which its Unicode
name tells; so what the picture on the terminal says and what this one says is the same
by construction. Text is placed by cells, its length given, so that no font can move it.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from heaveto.text import cell_width, plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from heaveto_tui.dag_layout.drawing import Drawing, Span

__all__ = ["svg_lines"]

_CELL, _ROW = 8.4, 18.0
"""Width and height of a cell, in pixels."""
_AIR = 12.0

_STYLE = """\
text { font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; \
white-space: pre; fill: #1d2126 }
path { fill: none; stroke: #8a929c; stroke-width: 1.3 }
.tip { fill: #8a929c; stroke: none }
.spawn { stroke-dasharray: 3 3 }
.escalation { stroke-width: 2.6 }
.conditional { stroke-dasharray: 1 3 }
.muted { fill: #545b65 } .good { fill: #1a6a33 } .live { fill: #0b57a8 }
.hold { fill: #7a5200 } .bad { fill: #b3201a } .note { fill: #6b3fa0 }"""


def svg_lines(
    drawing: Drawing,
    glyphs: Mapping[str, str],
    roles: Mapping[str, str] | None = None,
    *,
    title: str = "",
) -> Iterator[str]:
    """Yield a drawing as the lines of an SVG document.

    Args:
        drawing: The flow; one drawn in ASCII has no strokes and is refused.
        glyphs: For ids, the sign of the status.
        roles: For ids, ``muted good live hold bad note``: the colour of that sign.
        title: What the picture shows; any text.

    Raises:
        ValueError: The drawing is in ASCII.
    """
    if drawing.ascii_only:
        raise ValueError("an SVG is made from a drawing with line signs, not ASCII")
    width = drawing.width * _CELL + 2 * _AIR
    height = drawing.height * _ROW + 2 * _AIR
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="0 0 {width:.1f} {height:.1f}" role="img">'
    )
    if title:
        yield f"<title>{_text(title)}</title>"
    yield from f"<style>{_STYLE}</style>".split("\n")
    yield '<rect width="100%" height="100%" fill="#fbfbf8"/>'
    for row in range(drawing.height):
        for span in drawing.spans(row):
            yield from _span(span, row, glyphs, roles or {})
    yield "</svg>"


def _span(
    span: Span, row: int, glyphs: Mapping[str, str], roles: Mapping[str, str]
) -> Iterator[str]:
    """Yield the shapes of neighbouring cells of one kind."""
    if span.role == "glyph":
        role = roles.get(span.id, "muted")
        yield _words(span.x, row, glyphs.get(span.id, span.text), role)
    elif span.role in ("label", "mark"):
        yield from _label(span, row)
    elif span.text.strip():
        strokes: list[str] = []
        for x, sign in enumerate(span.text, span.x):
            if sign in _TIPS:
                yield f'<path class="tip" d="{_tip(sign, x, row)}"/>'
            strokes += _strokes(sign, x, row)
        if strokes:
            kind = "" if span.role in ("box", "depends") else span.role
            name = f" class={quoteattr(kind)}" if kind else ""
            yield f'<path{name} d="{" ".join(strokes)}"/>'


def _label(span: Span, row: int) -> Iterator[str]:
    if span.text.strip():
        yield _words(span.x, row, span.text, "")


def _words(x: int, row: int, text: str, role: str) -> str:
    """Return a piece of text that takes exactly its cells."""
    size = cell_width(text) * _CELL
    name = f" class={quoteattr(role)}" if role else ""
    return (
        f'<text{name} x="{_AIR + x * _CELL:.1f}" y="{_AIR + row * _ROW + 13:.1f}" '
        f'textLength="{size:.1f}" lengthAdjust="spacingAndGlyphs">{_text(text)}</text>'
    )


def _text(text: str) -> str:
    """Return inert text for XML, without the two characters it cannot hold."""
    return escape(plain(text).translate({0xFFFE: 0xFFFD, 0xFFFF: 0xFFFD}))


_TIPS = "►▼"


def _tip(sign: str, x: int, row: int) -> str:
    left, top = _AIR + x * _CELL, _AIR + row * _ROW
    middle = top + _ROW / 2
    if sign == "►":
        return (
            f"M{left:.1f} {middle - 4:.1f}L{left + _CELL:.1f} {middle:.1f}"
            f"L{left:.1f} {middle + 4:.1f}Z"
        )
    centre = left + _CELL / 2
    return (
        f"M{centre - 4:.1f} {middle - 4:.1f}L{centre + 4:.1f} {middle - 4:.1f}"
        f"L{centre:.1f} {top + _ROW:.1f}Z"
    )


@cache
def _arms(sign: str) -> frozenset[str]:
    """Return the sides of its cell that a line sign touches: ``U D L R``."""
    words = unicodedata.name(sign, "").split()
    if words[:2] != ["BOX", "DRAWINGS"]:
        return frozenset()
    found = {word[0] for word in words if word in ("UP", "DOWN", "LEFT", "RIGHT")}
    if "HORIZONTAL" in words:
        found |= {"L", "R"}
    if "VERTICAL" in words:
        found |= {"U", "D"}
    return frozenset(found)


def _strokes(sign: str, x: int, row: int) -> list[str]:
    """Return the path of a line sign: straight where it goes through, else bent."""
    arms = _arms(sign)
    left, top = _AIR + x * _CELL, _AIR + row * _ROW
    centre, middle = left + _CELL / 2, top + _ROW / 2
    ends = {
        "L": f"{left:.1f} {middle:.1f}",
        "R": f"{left + _CELL:.1f} {middle:.1f}",
        "U": f"{centre:.1f} {top:.1f}",
        "D": f"{centre:.1f} {top + _ROW:.1f}",
    }
    if len(arms) == 2 and arms not in ({"L", "R"}, {"U", "D"}):
        one, other = sorted(arms)
        return [f"M{ends[one]}Q{centre:.1f} {middle:.1f} {ends[other]}"]
    strokes = []
    for pair in ("LR", "UD"):
        if arms >= set(pair):
            strokes.append(f"M{ends[pair[0]]}L{ends[pair[1]]}")
        else:
            strokes += [
                f"M{ends[arm]}L{centre:.1f} {middle:.1f}" for arm in pair if arm in arms
            ]
    return strokes
