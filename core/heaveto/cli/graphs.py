"""A run's operations as text for other programs: Mermaid and DOT. Pure.

Names come from runs and are hostile. Both languages give signs of a label a meaning of
their own (quotes, entities, icons, formulas, escapes), so a label passes here either as
a letter, a digit or harmless punctuation, or as a character number. Ids are ``n1, n2``
in the order of the run; names stand in labels alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from heaveto.cli.words import operation_word
from heaveto.text import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from heaveto.observe.snapshot import RunDetail

__all__ = ["Arrow", "arrows", "dot", "mermaid"]

_HARMLESS = frozenset(" _-.,")
"""Punctuation without a meaning in a quoted label of either language."""

_NO_CHARACTERS = {0xFFFE: 0xFFFD, 0xFFFF: 0xFFFD}
"""What neither XML nor HTML can hold."""

_COLOURS = {
    "running": "#0b57a8",
    "paused": "#7a5200",
    "completed": "#1a6a33",
    "failed": "#b3201a",
    "lost": "#b3201a",
    "escalated": "#6b3fa0",
    "pending": "#6b3fa0",
}


class Arrow(NamedTuple):
    """One dependency, with both ends known."""

    head: str
    tail: str
    kind: str
    """``depends``, ``spawn``, ``escalation`` or ``conditional``."""
    condition: str | None


def arrows(detail: RunDetail) -> list[Arrow]:
    """Return the dependencies of a run whose both ends are known, with their kinds."""
    known = {each.id for each in detail.operations}
    links = {
        (link.head, link.tail): link
        for link in detail.links
        if link.active and link.head in known
    }
    found: list[Arrow] = []
    for each in detail.operations:
        for head in dict.fromkeys(each.depends_on):
            if head not in known:
                continue
            link = links.get((head, each.id))
            condition = None if link is None else link.condition
            kind: str = "depends" if link is None else link.kind
            if condition is not None:
                kind = "conditional"
            found.append(Arrow(head, each.id, kind, condition))
    return found


_MERMAID_ARROWS: Mapping[str, str] = {
    "depends": "-->",
    "spawn": "-.->",
    "escalation": "==>",
    "conditional": "-.->",
}


def mermaid(detail: RunDetail, *, direction: str = "LR") -> Iterator[str]:
    """Yield a run as a Mermaid flowchart.

    Args:
        detail: The run; a cycle in it is drawn as it is.
        direction: ``LR`` or ``TB``.
    """
    ids = _ids(detail)
    yield f"flowchart {direction}"
    statuses: dict[str, list[str]] = {}
    for each in detail.operations:
        word = _mermaid_text(operation_word(each.status))
        mark = ", ran on a failed input" if each.stale else ""
        yield f'    {ids[each.id]}["{_mermaid_text(each.name)}<br/>{word}{mark}"]'
        statuses.setdefault(str(each.status), []).append(ids[each.id])
    for arrow in arrows(detail):
        line = _MERMAID_ARROWS[arrow.kind]
        label = "" if arrow.condition is None else _mermaid_text(arrow.condition)
        text = f'|"{label}"|' if label else ""
        yield f"    {ids[arrow.head]} {line}{text} {ids[arrow.tail]}"
    for status, members in statuses.items():
        colour = _COLOURS.get(status)
        if colour is not None:
            yield f"    classDef {status} stroke:{colour},stroke-width:2px"
            yield f"    class {','.join(members)} {status}"


_DOT_STYLES: Mapping[str, str] = {
    "depends": "",
    "spawn": "style=dashed",
    "escalation": "style=bold",
    "conditional": "style=dotted",
}


def dot(detail: RunDetail, *, direction: str = "LR") -> Iterator[str]:
    """Yield a run in Graphviz' language.

    Args:
        detail: The run; a cycle in it is drawn as it is.
        direction: ``LR`` or ``TB``.
    """
    ids = _ids(detail)
    yield "digraph flow {"
    yield f"    rankdir={direction};"
    yield "    node [shape=box, style=rounded];"
    for each in detail.operations:
        word = _dot_text(operation_word(each.status))
        mark = ", ran on a failed input" if each.stale else ""
        label = f'label="{_dot_text(each.name)}\\n{word}{mark}"'
        colour = _COLOURS.get(str(each.status))
        rest = f', color="{colour}"' if colour else ""
        yield f"    {ids[each.id]} [{label}{rest}];"
    for arrow in arrows(detail):
        parts = [_DOT_STYLES[arrow.kind]]
        if arrow.condition is not None:
            parts.append(f'label="{_dot_text(arrow.condition)}"')
        inside = ", ".join(part for part in parts if part)
        rest = f" [{inside}]" if inside else ""
        yield f"    {ids[arrow.head]} -> {ids[arrow.tail]}{rest};"
    yield "}"


def _ids(detail: RunDetail) -> dict[str, str]:
    return {each.id: f"n{at}" for at, each in enumerate(detail.operations, 1)}


def _mermaid_text(text: str) -> str:
    """Return a label in which nothing means anything but itself."""
    return "".join(
        char if char.isalnum() or char in _HARMLESS else f"#{ord(char)};"
        for char in plain(text).translate(_NO_CHARACTERS)
    )


def _dot_text(text: str) -> str:
    """Return the inside of a quoted string; DOT reads HTML entities in it."""
    return "".join(
        char if char.isalnum() or char in _HARMLESS else f"&#{ord(char)};"
        for char in plain(text).translate(_NO_CHARACTERS)
    )
