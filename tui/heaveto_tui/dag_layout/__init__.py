"""A flow drawn on a terminal: layers, order, wires, text. Pure; knows no widget.

The promise is that the picture is *true*: whoever follows the wires from a box, always
forward along the flow, finds exactly the operations that depend on it. Two edges share
a wire only if they share their source or their target. A wire that crosses another is
drawn as a bridge (the vertical one is seen); a cross is always a junction.

    d = draw([("a", "plan", []), ("b", "write", ["a"])])
    d.rows     ->  [" · plan ─► · write "]
    d.boxes    ->  {"a": (0, 0, 8, 1), "b": (10, 0, 9, 1)}    x, y, width, height
    d.with_node(("c", "check", ["a"]))    a new drawing in which hardly anything moved

The picture depends on nothing but the graph: not on the order in which nodes,
dependencies or kinds are given, nor on hash seeds or time.

For a widget (see :class:`Drawing`): ``slot(id)`` is the one cell that a new status
repaints; ``lines(glyphs)`` are the rows with statuses; ``spans(row, first, last)`` are
the cells of a row tagged by node, part and kind of edge, to be made into styled
segments; ``window`` is a viewport as text; ``wires(id)`` are the cells of a node's
edges, to highlight them; ``step(id, way)`` is where an arrow key leads; ``layers`` is
the grid for a map, one mark a node and one column a layer; ``tidy()`` lays out afresh
after many additions. :func:`ego` draws what is around one node; :func:`break_cycles`
makes a damaged plan drawable.

On one core 250 nodes take about 0.1 s, 1000 about 0.4 s, 5000 about 3 s, :func:`ego`
and ``with_node`` a few milliseconds. Above some 100 nodes, draw in a thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heaveto_tui.dag_layout.drawing import Drawing, Span
from heaveto_tui.dag_layout.graph import Kind
from heaveto_tui.dag_layout.layout import Direction, Look, lay_out
from heaveto_tui.dag_layout.plans import around, break_cycles, find_cycle

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from heaveto_tui.dag_layout.plans import Edge, NodeSpec

__all__ = [
    "LABEL_WIDTH",
    "Direction",
    "Drawing",
    "Kind",
    "Span",
    "break_cycles",
    "draw",
    "ego",
    "find_cycle",
]

LABEL_WIDTH = 40
"""Cells that a label may take before it is cut in its middle."""


def draw(
    nodes: Iterable[NodeSpec],
    direction: str = "LR",
    kinds: Mapping[Edge, str] | None = None,
    *,
    ascii: bool = False,
    label_width: int = LABEL_WIDTH,
    mend: bool = False,
) -> Drawing:
    """Draw a flow.

    Args:
        nodes: ``(id, label, ids it depends on)``. Labels may be any text; they are made
            inert and, beyond ``label_width``, cut.
        direction: ``"LR"``, one line a node, or ``"TB"``, boxes of three lines. LR: a
            wire leaves a box at row ``y + height // 2`` and its tip touches the left
            edge of the target; TB: at column ``x + width // 2``, touching the top.
        kinds: For edges ``(from, to)`` one of ``depends``, ``spawn``, ``escalation``,
            ``conditional``. Each has a line of its own, so no colour is needed:
            ``─``, ``╌``, ``═``, ``┈``; in ASCII ``-``, ``~``, ``=``, ``?``.
        ascii: Use ASCII alone.
        label_width: Cells that a label may take, at least 4.
        mend: Draw a damaged plan without the edges that close a cycle or lead nowhere;
            they stand in :attr:`Drawing.dropped`, and kinds of them are passed over.

    Raises:
        ValueError: An id is repeated or unknown, the dependencies have a cycle, or the
            direction, a kind, or the edge of a kind is unknown.
    """
    dropped: list[Edge] = []
    if mend:
        nodes, dropped = break_cycles(nodes)
        edges = {(dep, node) for node, _, deps in nodes for dep in deps}
        kinds = {edge: kind for edge, kind in (kinds or {}).items() if edge in edges}
    look = Look(
        direction=Direction(direction),
        ascii_only=ascii,
        label_width=max(4, label_width),
    )
    return Drawing(lay_out(nodes, look, kinds), dropped)


def ego(
    nodes: Iterable[NodeSpec],
    name: str,
    hops: int = 2,
    direction: str = "LR",
    kinds: Mapping[Edge, str] | None = None,
    *,
    ascii: bool = False,
    label_width: int = LABEL_WIDTH,
) -> Drawing:
    """Draw a node with what it depends on and what depends on it, some steps far.

    Args:
        nodes: The whole flow.
        name: The id in the middle.
        hops: Steps along dependencies, either way.
        direction: As for :func:`draw`.
        kinds: As for :func:`draw`; those of edges outside are passed over.
        ascii: As for :func:`draw`.
        label_width: As for :func:`draw`.

    Raises:
        ValueError: The id is unknown, or as for :func:`draw`.
    """
    part = around(nodes, name, hops)
    edges = {(dep, node) for node, _, deps in part for dep in deps}
    look = Look(
        direction=Direction(direction),
        ascii_only=ascii,
        label_width=max(4, label_width),
    )
    inside = {edge: kind for edge, kind in (kinds or {}).items() if edge in edges}
    return Drawing(lay_out(part, look, inside, hurried=True))
