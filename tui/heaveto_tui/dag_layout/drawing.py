"""A finished drawing, and what a widget needs to show and restyle it cell by cell."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Literal, NamedTuple

from heaveto.text import cell_width
from heaveto_tui.dag_layout.graph import Kind
from heaveto_tui.dag_layout.grow import grown
from heaveto_tui.dag_layout.layout import lay_out, starts_of
from heaveto_tui.dag_layout.paint import (
    Box,
    GapView,
    box_text,
    kind_of_code,
    line_of,
    paint,
    rectangle,
    text_rows,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from heaveto_tui.dag_layout.layout import Layout
    from heaveto_tui.dag_layout.paint import Run
    from heaveto_tui.dag_layout.plans import Edge, NodeSpec

__all__ = ["Drawing", "Span", "Way"]

Way = Literal["left", "right", "up", "down"]

_GLYPH, _LABEL = 1, 3
"""Cells from the left of a box to its glyph and to its label; TB: one more each."""


class Span(NamedTuple):
    """Neighbouring cells of a row that are of one kind."""

    x: int
    text: str
    role: str
    """``glyph``, ``label``, ``mark`` or ``box`` (air and border) of a node; for a wire
    the kind of its edges; empty for blank cells."""
    id: str
    """The node, or the source of the wire's edges; empty where wires have merged."""


class Drawing:
    """A flow drawn in cells. Immutable; safe in any thread.

    Attributes:
        rows: The lines, all of one width in cells.
        boxes: For each id its box ``(x, y, width, height)`` in cells.
        crossings: How many pairs of edges cross in the order of the layers, counted as
            Graphviz counts them.
        width: Cells.
        height: Rows.
        layers: The ids of each layer in their order across the flow: the layer grid.
        dropped: Edges ``(from, to)`` of a damaged plan that are left out.
    """

    __slots__ = (
        "_layout",
        "_painted",
        "_rows_index",
        "boxes",
        "crossings",
        "dropped",
        "height",
        "layers",
        "rows",
        "width",
    )

    def __init__(self, layout: Layout, dropped: Sequence[Edge] = ()) -> None:
        """Paint a layout; made by :func:`~heaveto_tui.dag_layout.draw`."""
        self._layout = layout
        self.dropped = tuple(dropped)
        self._painted = paint(layout)
        self._rows_index: _RowIndex | None = None
        ids = layout.graph.ids
        self.width, self.height = self._painted.width, self._painted.height
        self.rows = text_rows(layout, self._painted, {}, {})
        self.boxes: dict[str, Box] = dict(zip(ids, self._painted.boxes, strict=True))
        self.crossings = layout.crossings
        self.layers = tuple(
            tuple(ids[item] for item in layer if item < len(ids))
            for layer in layout.layers
        )

    @property
    def direction(self) -> str:
        """``LR`` or ``TB``."""
        return self._layout.look.direction.value

    @property
    def ascii_only(self) -> bool:
        """Whether it is drawn in ASCII alone."""
        return self._layout.look.ascii_only

    def with_node(
        self, node: NodeSpec, kinds: Mapping[Edge, str] | None = None
    ) -> Drawing:
        """Return a drawing with one more node, in which hardly anything has moved.

        No node changes its layer; only a few in the layers from the dependencies of the
        new node to itself give way.

        Args:
            node: ``(id, label, ids it depends on)``.
            kinds: Kinds of its edges, as for :func:`~heaveto_tui.dag_layout.draw`.

        Raises:
            ValueError: The id is there already, or a dependency or a kind is unknown.
        """
        return Drawing(grown(self._layout, node, kinds), self.dropped)

    def tidy(self) -> Drawing:
        """Return the same flow laid out afresh."""
        graph, kinds = self._layout.graph, self._layout.kinds
        ids = graph.ids
        return Drawing(
            lay_out(
                self.nodes(),
                self._layout.look,
                {(ids[one], ids[other]): kind for (one, other), kind in kinds.items()},
            ),
            self.dropped,
        )

    def nodes(self) -> list[tuple[str, str, list[str]]]:
        """Return the flow as it was given: id, whole label, ids it depends on."""
        graph = self._layout.graph
        return [
            (name, label, [graph.ids[dep] for dep in deps])
            for name, label, deps in zip(
                graph.ids, graph.labels, graph.deps, strict=True
            )
        ]

    def lines(
        self, glyphs: Mapping[str, str], marks: Mapping[str, str] | None = None
    ) -> list[str]:
        """Return the rows with a sign of status in each box.

        Args:
            glyphs: For ids, one cell that tells the status.
            marks: For ids, one cell behind the label.
        """
        index = self._layout.graph.index
        return text_rows(
            self._layout,
            self._painted,
            {index[name]: glyph for name, glyph in glyphs.items()},
            {index[name]: mark for name, mark in (marks or {}).items()},
        )

    def svg(
        self,
        glyphs: Mapping[str, str],
        roles: Mapping[str, str] | None = None,
        *,
        title: str = "",
    ) -> Iterator[str]:
        """Yield the lines of an SVG document; see :mod:`~heaveto_tui.dag_layout.svg`.

        Args:
            glyphs: For ids, the sign of the status.
            roles: For ids, the role of that sign's colour.
            title: What the picture shows; any text.

        Raises:
            ValueError: The drawing is in ASCII.
        """
        from heaveto_tui.dag_layout.svg import svg_lines

        return svg_lines(self, glyphs, roles, title=title)

    def legend(self) -> list[tuple[str, str]]:
        """Return a piece of line and the kind it stands for, for each kind drawn."""
        kinds = set(self._layout.kinds.values())
        if len(self._layout.kinds) < sum(map(len, self._layout.graph.deps)):
            kinds.add(Kind.DEPENDS)
        plain = self._layout.look.ascii_only
        return [
            (line_of(kind, plain=plain) * 2, kind) for kind in Kind if kind in kinds
        ]

    def slot(self, name: str) -> tuple[int, int]:
        """Return the cell ``(x, y)`` of a node's status: all a new status repaints."""
        x, y, _, height = self.boxes[name]
        return x + _GLYPH + (height > 1), y + height // 2

    def label(self, name: str) -> tuple[int, int, int]:
        """Return ``(x, y, width)`` of the label as drawn; its mark is right behind."""
        x, y, width, height = self.boxes[name]
        border = height > 1
        return x + _LABEL + border, y + height // 2, width - (6 if border else 4)

    def spans(self, row: int, first: int = 0, last: int | None = None) -> list[Span]:
        """Return the cells of a row, or of a part of it, tagged by what they are.

        Args:
            row: The row.
            first: First cell.
            last: The cell after the last one; by default the end of the row.
        """
        last = self.width if last is None else min(last, self.width)
        if self._rows_index is None:
            self._rows_index = _RowIndex(self._layout, self._painted.runs)
        spans: list[Span] = []
        done = max(first, 0)
        for node in self._rows_index.boxes(row, self._painted.boxes):
            x, y, width, _ = self._painted.boxes[node]
            if x < last and x + width > first:
                spans += self._wire_spans(row, done, x)
                spans += self._box_spans(node, row - y, first, last)
                done = x + width
        return spans + self._wire_spans(row, done, last)

    def window(self, x: int, y: int, width: int, height: int) -> list[str]:
        """Return what is seen through a window, padded to its width."""
        lines: list[str] = []
        for row in range(y, y + height):
            line = ""
            if 0 <= row < self.height:
                line = "".join(span.text for span in self.spans(row, x, x + width))
            lines.append(line + " " * (width - cell_width(line)))
        return lines

    def wires(self, name: str) -> dict[Edge, list[Box]]:
        """Return the cells of every edge of a node, as rectangles one cell thin."""
        graph = self._layout.graph
        node = graph.index[name]
        edges = [(dep, node) for dep in graph.deps[node]]
        edges += [(node, out) for out in graph.outs[node]]
        return {
            (graph.ids[source], graph.ids[target]): self._edge(source, target)
            for source, target in edges
        }

    def step(self, name: str, way: Way) -> str | None:
        """Return the node an arrow key leads to, or None at the end.

        Along the flow the neighbour that lies nearest, across it the next node of the
        layer.
        """
        graph, slots = self._layout.graph, self._layout.slots
        node = graph.index[name]
        across: tuple[Way, Way] = ("up", "down")
        if self._layout.look.turned:
            across = ("left", "right")
        if way in across:
            layer = self.layers[graph.layer[node]]
            place = layer.index(name) + (1 if way == across[1] else -1)
            return layer[place] if 0 <= place < len(layer) else None
        near = graph.outs[node] if way in ("right", "down") else graph.deps[node]
        if not near:
            return None
        return graph.ids[
            min(near, key=lambda other: (abs(slots[other] - slots[node]), slots[other]))
        ]

    def _edge(self, source: int, target: int) -> list[Box]:
        layout, starts = self._layout, starts_of(self._layout)
        layer = layout.graph.layer
        found: list[Box] = []
        for at in range(layer[source], layer[target]):
            view = GapView(layout, starts, at)
            path = next(path for path in view.paths if path.net.owner == source)
            final = at + 1 == layer[target]
            leg = next(
                leg
                for leg in path.legs
                if (
                    leg.end == 2 * layout.slots[target]
                    if final
                    else view.is_bend(leg.end)
                )
            )
            found += [rectangle(layout, run) for run in view.runs(path, leg)]
        return found

    def _wire_spans(self, row: int, first: int, last: int) -> list[Span]:
        if first >= last or self._rows_index is None:
            return []
        text = self._painted.wires(row, first, last)
        start = row * self.width
        codes = self._painted.plane[start + first : start + last]
        owners = self._rows_index.owners(row, first, last)
        spans: list[Span] = []
        done = 0
        ids = self._layout.graph.ids
        for (kind, owner), cells in groupby(
            zip(map(_role, codes), owners, strict=True)
        ):
            size = len(list(cells))
            name = ids[owner] if kind and owner >= 0 else ""
            spans.append(Span(first + done, text[done : done + size], kind, name))
            done += size
        return spans

    def _box_spans(self, node: int, line: int, first: int, last: int) -> list[Span]:
        x, _, _, height = self._painted.boxes[node]
        text = box_text(self._layout, node)[line]
        name = self._layout.graph.ids[node]
        if height > 1 and line != height // 2:
            parts = [("box", text)]
        else:
            glyph = _GLYPH + (height > 1)
            end = len(text) - 1 - (height > 1)
            parts = [
                ("box", text[:glyph]),
                ("glyph", text[glyph]),
                ("box", text[glyph + 1]),
                ("label", text[glyph + 2 : end]),
                ("mark", text[end]),
                ("box", text[end + 1 :]),
            ]
        spans: list[Span] = []
        for role, part in parts:
            size = cell_width(part)
            if size and x < last and x + size > first:
                start, seen = _seen(part, x, first, last)
                spans.append(Span(start, seen, role, name))
            x += size
        return spans


class _RowIndex:
    """What lies in each row, collected on first use."""

    def __init__(self, layout: Layout, runs: Sequence[tuple[Run, int]]) -> None:
        self._flat: dict[int, list[tuple[int, int, int]]] = {}
        self._steep: dict[int, list[tuple[int, int]]] = {}
        for run, owner in runs:
            x, y, width, height = rectangle(layout, run)
            if run.along is not layout.look.turned:
                self._flat.setdefault(y, []).append((x, x + width, owner))
            else:
                for row in range(y, y + height):
                    self._steep.setdefault(row, []).append((x, owner))
        self._boxes: dict[int, list[int]] | None = None

    def boxes(self, row: int, boxes: Sequence[Box]) -> list[int]:
        """Return the nodes whose boxes a row passes, from left to right."""
        if self._boxes is None:
            self._boxes = {}
            for node, (_, y, _, height) in enumerate(boxes):
                for line in range(y, y + height):
                    self._boxes.setdefault(line, []).append(node)
            for nodes in self._boxes.values():
                nodes.sort(key=lambda node: boxes[node][0])
        return self._boxes.get(row, [])

    def owners(self, row: int, first: int, last: int) -> list[int]:
        """Return for each cell the source of its wire; -1 for none, -2 for several."""
        owners = [-1] * (last - first)
        for start, stop, owner in self._flat.get(row, ()):
            for x in range(max(start, first), min(stop, last)):
                old = owners[x - first]
                owners[x - first] = owner if old in (-1, owner) else -2
        for x, owner in self._steep.get(row, ()):
            if first <= x < last:
                owners[x - first] = owner
        return owners


def _role(code: int) -> str:
    return kind_of_code(code).value if code else ""


def _seen(text: str, x: int, first: int, last: int) -> tuple[int, str]:
    """Return what of a text is seen, and where it starts; a halved sign is blank."""
    start = max(x, first)
    parts: list[str] = []
    for sign in text:
        width = cell_width(sign)
        if x >= first and x + width <= last and (width or x > first):
            parts.append(sign)
        elif x < last and x + width > first:
            parts.append(" " * (min(x + width, last) - max(x, first)))
        x += width
    return start, "".join(parts)
