"""A laid out flow: every box, lane and wire end in cells, ready to be painted.

Two axes, whatever the direction: *along* the flow (x for LR, y for TB) and *across* it.
A layer takes some cells along the flow, the gap after it holds the lanes. Gaps are
routed on their own (:mod:`~heaveto_tui.dag_layout.route`), so a gap whose wires have
not changed is taken over as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from heaveto.text import cell_width
from heaveto_tui.dag_layout import order
from heaveto_tui.dag_layout.graph import Graph, Items, read_kinds
from heaveto_tui.dag_layout.labels import cut, inert
from heaveto_tui.dag_layout.place import place
from heaveto_tui.dag_layout.route import Gap, Net, route

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from heaveto_tui.dag_layout.graph import Kind
    from heaveto_tui.dag_layout.plans import Edge, NodeSpec

__all__ = [
    "SOME",
    "STEADY_LABEL",
    "Direction",
    "Layout",
    "Look",
    "box_width",
    "boxes_of",
    "fits",
    "label_of",
    "lanes_of",
    "lay_out",
    "needs",
    "nets_after",
    "routed",
    "starts_of",
]


_FEW, SOME = 30, 60
"""Flows up to these sizes get more air, and less room to grow."""


STEADY_LABEL = 16
"""Cells that a label gets in each layer of a larger flow, so that layers stay put."""


class Direction(StrEnum):
    """Which way the flow runs."""

    LR = "LR"
    TB = "TB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a drawing is asked to look like."""

    direction: Direction = Direction.LR
    ascii_only: bool = False
    label_width: int = 40
    """Cells a label may take before it is cut in its middle."""

    @property
    def mark(self) -> str:
        """What stands for the part of a label that is left out."""
        return "~" if self.ascii_only else "…"

    @property
    def turned(self) -> bool:
        """Whether the flow runs downwards."""
        return self.direction is Direction.TB


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where everything is; the wires are there once it is routed."""

    look: Look
    graph: Graph
    kinds: Mapping[tuple[int, int], Kind]
    """Kinds of the edges that are not plain dependencies."""
    items: Items
    layers: Sequence[Sequence[int]]
    """The items of each layer in the order across the flow."""
    slots: Sequence[int]
    """Place of each item across the flow, in steps of two cells."""
    labels: tuple[str, ...]
    """As drawn."""
    widths: tuple[int, ...]
    """Width of each node's box in cells."""
    shift: int
    """Cells across the flow before slot 0."""
    spacious: bool
    """Whether every tip is set off from the lanes."""
    crossings: int
    gaps: tuple[Gap, ...] = ()
    """The wires after each layer; the last is empty."""
    sizes: tuple[int, ...] = ()
    """Cells that each layer takes along the flow."""
    rooms: tuple[int, ...] = ()
    """Cells of each gap between the one that leaves the box and the tip."""
    pitches: tuple[int, ...] = ()
    """Distance between the lanes of each gap."""


def lay_out(
    nodes: Iterable[NodeSpec],
    look: Look,
    kinds: Mapping[Edge, str] | None = None,
    *,
    hurried: bool = False,
) -> Layout:
    """Lay out a flow afresh.

    Args:
        nodes: ``(id, label, ids it depends on)``.
        look: What it is to look like.
        kinds: The kinds of edges that are not plain dependencies.
        hurried: Whether it has to be there before the next frame.

    Raises:
        ValueError: See :meth:`Graph.of` and :func:`read_kinds`.
    """
    graph = Graph.of(nodes)
    items = Items.of(graph)
    layers = order.arrange(graph, items, hurried=hurried)
    labels = tuple(label_of(text, look) for text in graph.labels)
    widths = tuple(box_width(label, look) for label in labels)
    before, after = needs(items, widths, look)
    slots = place(items, layers, before, after)
    shift = 0
    if look.turned:
        middles = zip(widths, slots, strict=False)
        shift = max([0, *(width // 2 - 2 * slot for width, slot in middles)])
    layout = Layout(
        look=look,
        graph=graph,
        kinds=read_kinds(graph, kinds),
        items=items,
        layers=layers,
        slots=slots,
        labels=labels,
        widths=widths,
        shift=shift,
        spacious=len(graph.ids) <= _FEW,
        crossings=order.crossings(items, layers),
    )
    return routed(layout)


def label_of(text: str, look: Look) -> str:
    """Return a label as it is drawn."""
    line = inert(text, ascii_only=look.ascii_only)
    return cut(line, look.label_width, mark=look.mark)


def box_width(label: str, look: Look) -> int:
    """Return the width of a box: air or border, glyph, air, label, mark, border."""
    return cell_width(label) + (6 if look.turned else 4)


def needs(
    items: Items, widths: Sequence[int], look: Look
) -> tuple[list[int], list[int]]:
    """Return the cells each item needs across the flow, before and after its wire."""
    bends = [0] * (len(items.owner) - len(widths))
    if not look.turned:
        return [0] * len(items.owner), [0] * len(items.owner)
    before = [width // 2 + 1 for width in widths]
    after = [width - width // 2 for width in widths]
    return before + bends, after + bends


def nets_after(
    items: Items,
    layer: Sequence[int],
    slots: Sequence[int],
    among: Container[int] | None = None,
) -> list[Net]:
    """Return the nets of the gap after a layer, in the order of their rows.

    Args:
        items: The items.
        layer: Those of the layer, in order.
        slots: Their places.
        among: The items of the next layer that count; by default all.
    """
    nets: list[Net] = []
    for item in layer:
        below = items.down[item]
        if among is not None:
            below = [other for other in below if other in among]
        if below:
            ends = tuple(sorted([2 * slots[other] for other in below]))
            nets.append(Net(items.owner[item], 2 * slots[item], ends))
    return nets


def routed(layout: Layout, old: Layout | None = None) -> Layout:
    """Return the layout with its wires; gaps like those of ``old`` are taken over.

    No layer moves along the flow as long as the lanes find room in the gaps of ``old``.
    """
    known = old.gaps if old else ()
    gaps: list[Gap] = []
    for at, layer in enumerate(layout.layers):
        nets = nets_after(layout.items, layer, layout.slots)
        same = at < len(known) and [path.net for path in known[at].paths] == nets
        gaps.append(known[at] if same else route(nets))
    pitches = _pitches(layout)
    sizes = list(_sizes(layout))
    rooms = [
        _room(layout, gap.lanes, pitch)
        for gap, pitch in zip(gaps, pitches, strict=True)
    ]
    if old:
        for at, size in enumerate(old.sizes):
            sizes[at] = max(size, sizes[at])
        for at, room in enumerate(old.rooms[:-1]):
            if fits(old, at, gaps[at].lanes, pitches[at]):
                rooms[at] = room
    return replace(
        layout,
        gaps=tuple(gaps),
        sizes=tuple(sizes),
        rooms=tuple(rooms),
        pitches=pitches,
    )


def fits(layout: Layout, at: int, lanes: int, pitch: int) -> bool:
    """Tell whether so many lanes have room in a gap, if need be squeezed by a cell."""
    return _extent(lanes, pitch) <= layout.rooms[at] + (pitch == 1)


def _extent(lanes: int, pitch: int) -> int:
    """Return the cells that some lanes take, each with what shows its kind."""
    return lanes * pitch


def _room(layout: Layout, lanes: int, pitch: int) -> int:
    """Return the cells to keep for the lanes of a gap.

    In a larger flow two to spare: there it hurts when a new node moves later layers.
    """
    extent = _extent(lanes, pitch)
    if len(layout.graph.ids) > SOME:
        return extent + 2
    airy = layout.spacious and not layout.look.turned
    return extent + (airy and pitch == 1 and lanes > 0)


def starts_of(layout: Layout) -> list[int]:
    """Return where each layer starts along the flow, and last where the flow ends."""
    starts = [0]
    for size, room in zip(layout.sizes, layout.rooms, strict=True):
        starts.append(starts[-1] + size + 2 + room)
    starts[-1] -= 2 + layout.rooms[-1] if layout.rooms else 0
    return starts


def lanes_of(layout: Layout, at: int, start: int) -> list[int]:
    """Return the cells along the flow of the lanes in the gap after a layer.

    Args:
        layout: A routed layout.
        at: The layer.
        start: Where it starts.
    """
    pitch, lanes = layout.pitches[at], layout.gaps[at].lanes
    first = start + layout.sizes[at] + 1
    if _extent(lanes, pitch) > layout.rooms[at]:
        first -= 1
    return list(range(first, first + lanes * pitch, pitch))


def boxes_of(layout: Layout, starts: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """Return the box of each node: x, y, width and height in cells."""
    boxes: list[tuple[int, int, int, int]] = []
    for node, width in enumerate(layout.widths):
        along = starts[layout.graph.layer[node]]
        across = 2 * layout.slots[node] + layout.shift
        if layout.look.turned:
            boxes.append((across - width // 2, along, width, 3))
        else:
            boxes.append((along, across, width, 1))
    return boxes


def _pitches(layout: Layout) -> tuple[int, ...]:
    """Return the distance of the lanes of each gap.

    Where edges of several kinds run, every wire needs a straight cell to show its kind,
    so the lanes are one cell apart.
    """
    layer = layout.graph.layer
    pitches = [1] * len(layout.layers)
    for source, target in layout.kinds:
        pitches[layer[source] : layer[target]] = [2] * (layer[target] - layer[source])
    return tuple(pitches)


def _sizes(layout: Layout) -> tuple[int, ...]:
    if layout.look.turned:
        return (3,) * len(layout.layers)
    least = 1
    if len(layout.widths) > SOME:
        least = min(max(layout.widths), box_width("", layout.look) + STEADY_LABEL)
    sizes = [least] * len(layout.layers)
    for node, layer in enumerate(layout.graph.layer):
        sizes[layer] = max(sizes[layer], layout.widths[node])
    return tuple(sizes)
