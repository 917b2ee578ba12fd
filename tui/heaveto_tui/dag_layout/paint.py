"""From a layout to text: runs of wire, masks of arms, glyphs, boxes.

A wire is painted in runs, along the flow or across it. The plane has one byte a cell:
four bits for the arms that leave the cell, two for a wire that passes straight through,
one way or the other. A cell passed both ways is a *bridge* and shows the vertical wire;
a cross is always a junction. Where edges have kinds, the straight cells that carry
edges of one special kind alone get its line; gaps with such edges have lanes so far
apart that every edge has such a cell.
"""

from __future__ import annotations

from codecs import charmap_decode
from typing import TYPE_CHECKING, NamedTuple

from heaveto_tui.dag_layout.graph import Kind
from heaveto_tui.dag_layout.layout import boxes_of, lanes_of, starts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from heaveto_tui.dag_layout.layout import Layout
    from heaveto_tui.dag_layout.route import Leg, Path

__all__ = [
    "Box",
    "GapView",
    "Picture",
    "Run",
    "box_text",
    "kind_of_code",
    "line_of",
    "paint",
    "rectangle",
    "text_rows",
]

Box = tuple[int, int, int, int]
"""x, y, width and height in cells."""

_LEFT_RIGHT, _UP_DOWN = 10, 5
_FLAT, _STEEP = 16, 32
_TIP, _STYLED = 64, 65
_H_ARMS = (8, 2, _LEFT_RIGHT | _FLAT)  # back, forth, both
_V_ARMS = (1, 4, _UP_DOWN | _STEEP)
_OR = [bytes(value | bits for value in range(256)) for bits in range(64)]
_SPECIAL = (Kind.SPAWN, Kind.ESCALATION, Kind.CONDITIONAL)
_BITS = (2, 4, 8)
"""A bit for each special kind; plain dependencies have 1."""
_CORNERS = (6, 12, 3, 9)

# by the sum of up 1, right 2, down 4, left 8
_LIGHT = " ╵╶╰╷│╭├╴╯─┴╮┤┬┼"
_LIGHT_STYLES = "╌╎╎═║║┈┊┊╔╗╚╝"
"""Flat, steep and bridge of each special kind, then the corners of an escalation."""
_ASCII = " '-`.|,[-'-^.]T+"
_ASCII_STYLES = "~:)=#)?!),.`'"


class Run(NamedTuple):
    """A straight piece of wire in cells along and across the flow, ends included."""

    along: bool
    fixed: int
    """Its place on the other axis."""
    first: int
    last: int
    opens: bool
    """Whether it goes on before its first cell, into a box or another run."""
    closes: bool
    """Whether it goes on after its last cell."""


class Picture(NamedTuple):
    """What :func:`paint` makes."""

    boxes: list[Box]
    width: int
    height: int
    plane: bytearray
    """The codes of the cells, row by row."""
    runs: list[tuple[Run, int]]
    """Every run and the source whose edges it carries."""
    table: str
    """The sign for each code."""

    def wires(self, y: int, first: int, last: int) -> str:
        """Return the wires in a part of a row, without boxes, one character a cell."""
        codes = self.plane[y * self.width + first : y * self.width + last]
        return charmap_decode(codes, "strict", self.table)[0]


class GapView:
    """The wires after one layer, in cells along and across the flow."""

    __slots__ = (
        "_bends",
        "_lanes",
        "_layer",
        "_layout",
        "_past",
        "_start",
        "paths",
        "tip",
    )

    def __init__(self, layout: Layout, starts: Sequence[int], at: int) -> None:
        """Look at the gap after a layer of a layout whose layers start there."""
        self._layout, self._layer, self._start = layout, at, starts[at]
        self._lanes = lanes_of(layout, at, starts[at])
        self._past = starts[at + 1] + layout.sizes[at + 1] - 1
        nodes = len(layout.graph.ids)
        self._bends = {
            2 * layout.slots[item] for item in layout.layers[at + 1] if item >= nodes
        }
        self.paths = layout.gaps[at].paths
        self.tip = starts[at + 1] - 1

    def is_bend(self, end: int) -> bool:
        """Tell whether the wire that ends on a row goes on through the next layer."""
        return end in self._bends

    def runs(self, path: Path, only: Leg | None = None) -> Iterator[Run]:
        """Yield the runs of a path, or those that one of its edges takes."""
        row = path.net.row
        start = self._leaves(path.net.owner)
        if path.lane < 0:
            yield Run(True, row, start, self._stop(row), True, True)
            return
        trunk = self._lanes[path.lane]
        if path.detour:
            lane, free = self._lanes[path.detour[0]], path.detour[1]
            yield Run(True, row, start, lane, True, False)
            yield Run(False, lane, min(row, free), max(row, free), False, False)
            yield Run(True, free, lane, trunk, False, False)
            row = free
        else:
            yield Run(True, row, start, trunk, True, False)
        low = high = row
        for leg in (only,) if only else path.legs:
            low, high = min(low, leg.row), max(high, leg.row)
            lane = trunk
            if leg.row != leg.end:
                lane = self._lanes[leg.lane]
                first, last = min(leg.row, leg.end), max(leg.row, leg.end)
                yield Run(True, leg.row, trunk, lane, False, False)
                yield Run(False, lane, first, last, False, False)
            yield Run(True, leg.end, lane, self._stop(leg.end), False, True)
        if low < high:
            yield Run(False, trunk, low, high, False, False)

    def _leaves(self, owner: int) -> int:
        layout = self._layout
        if layout.graph.layer[owner] != self._layer:
            return self._start + layout.sizes[self._layer]
        return self._start + (3 if layout.look.turned else layout.widths[owner])

    def _stop(self, end: int) -> int:
        return self._past if end in self._bends else self.tip


def paint(layout: Layout) -> Picture:
    """Paint a layout."""
    starts = starts_of(layout)
    boxes = boxes_of(layout, starts)
    views = [GapView(layout, starts, at) for at in range(len(layout.gaps) - 1)]
    runs = [
        (run, path.net.owner)
        for view in views
        for path in view.paths
        for run in view.runs(path)
    ]
    width, height = _size(layout, starts, boxes, runs)
    plane = bytearray(width * height)
    for run, _ in runs:
        _lay(plane, width, layout, run)
    if layout.kinds:
        _style(plane, width, layout, views)
    for view in views:
        for end in {leg.end for path in view.paths for leg in path.legs}:
            if not view.is_bend(end):
                plane[_cell(layout, width, view.tip, end)] = _TIP
    return Picture(boxes, width, height, plane, runs, _table(layout))


def text_rows(
    layout: Layout,
    picture: Picture,
    glyphs: Mapping[int, str],
    marks: Mapping[int, str],
) -> list[str]:
    """Return the picture as text, all rows of one width in cells.

    Args:
        layout: What was painted.
        picture: The painting.
        glyphs: The sign of status of each node that has one, one cell each.
        marks: The sign behind the label of each node that has one, one cell each.
    """
    pieces: list[list[tuple[int, int, str]]] = [[] for _ in range(picture.height)]
    for node, (x, y, width, _) in enumerate(picture.boxes):
        text = box_text(layout, node, glyphs.get(node, ""), marks.get(node, ""))
        for below, line in enumerate(text):
            pieces[y + below].append((x, width, line))
    rows: list[str] = []
    for y, inserts in enumerate(pieces):
        done = 0
        parts: list[str] = []
        for x, width, line in sorted(inserts):
            parts += (picture.wires(y, done, x), line)
            done = x + width
        parts.append(picture.wires(y, done, picture.width))
        rows.append("".join(parts))
    return rows


def box_text(layout: Layout, node: int, glyph: str = "", mark: str = "") -> list[str]:
    """Return the lines of a box: glyph, label, and a mark in the cell behind it.

    Args:
        layout: The layout.
        node: The node.
        glyph: One cell of status; by default a dot.
        mark: One cell, by default blank.
    """
    plain = layout.look.ascii_only
    glyph = glyph or (":" if plain else "·")
    if not layout.look.turned:
        return [f" {glyph} {layout.labels[node]}{mark or ' '}"]
    line = ("-" if plain else "─") * (layout.widths[node] - 2)
    side = "|" if plain else "│"
    inner = f"{side} {glyph} {layout.labels[node]}{mark or ' '}{side}"
    if plain:
        return [f"+{line}+", inner, f"+{line}+"]
    return [f"╭{line}╮", inner, f"╰{line}╯"]


def kind_of_code(code: int) -> Kind:
    """Return the kind that a cell of the plane shows."""
    if code < _STYLED:
        return Kind.DEPENDS
    at = (code - _STYLED) // 3
    return _SPECIAL[at] if at < len(_SPECIAL) else Kind.ESCALATION


def line_of(kind: Kind, *, plain: bool) -> str:
    """Return the flat line of a kind."""
    if kind is Kind.DEPENDS:
        return "-" if plain else "─"
    return (_ASCII_STYLES if plain else _LIGHT_STYLES)[3 * _SPECIAL.index(kind)]


def _size(
    layout: Layout,
    starts: Sequence[int],
    boxes: Sequence[Box],
    runs: Sequence[tuple[Run, int]],
) -> tuple[int, int]:
    if not boxes:
        return 0, 0
    far = max((run.fixed if run.along else run.last for run, _ in runs), default=0)
    across = 1 + layout.shift + max(far, 2 * max(layout.slots))
    if not layout.look.turned:
        return starts[-1], across
    return max(across, max(x + width for x, _, width, _ in boxes)), starts[-1]


def _cell(layout: Layout, width: int, along: int, across: int) -> int:
    across += layout.shift
    return along * width + across if layout.look.turned else across * width + along


def _span(
    layout: Layout, width: int, run: Run
) -> tuple[int, int, int, tuple[int, int, int]]:
    """Return the first and last cell of a run, the step between, and its arms."""
    if run.along:
        first = _cell(layout, width, run.first, run.fixed)
        last = _cell(layout, width, run.last, run.fixed)
    else:
        first = _cell(layout, width, run.fixed, run.first)
        last = _cell(layout, width, run.fixed, run.last)
    flat = run.along is not layout.look.turned
    return first, last, 1 if flat else width, _H_ARMS if flat else _V_ARMS


def rectangle(layout: Layout, run: Run) -> Box:
    """Return the cells of a run as a rectangle one cell thin."""
    length = run.last - run.first + 1
    fixed, first = run.fixed, run.first
    if run.along:
        fixed += layout.shift
    else:
        first += layout.shift
    if run.along is layout.look.turned:
        return fixed, first, 1, length
    return first, fixed, length, 1


def _lay(plane: bytearray, width: int, layout: Layout, run: Run) -> None:
    """Add the arms of a run to the plane."""
    first, last, step, (back, forth, both) = _span(layout, width, run)
    if first == last:
        plane[first] |= (
            both
            if run.opens and run.closes
            else (back * run.opens | forth * run.closes)
        )
        return
    plane[first] |= both if run.opens else forth
    plane[last] |= both if run.closes else back
    inner = slice(first + step, last, step)
    plane[inner] = plane[inner].translate(_OR[both])


def _style(
    plane: bytearray, width: int, layout: Layout, views: Sequence[GapView]
) -> None:
    """Give cells that carry edges of one special kind alone the line of that kind."""
    flat, steep = bytearray(len(plane)), bytearray(len(plane))
    special: list[tuple[int, bool, range]] = []
    for at, view in enumerate(views):
        if layout.pitches[at] == 1:
            continue
        for path in view.paths:
            bits_of = _kind_bits(layout, at, path.net.owner)
            for leg in path.legs:
                bits = bits_of[0 if view.is_bend(leg.end) else leg.end + 1]
                for run in view.runs(path, leg):
                    first, last, step, arms = _span(layout, width, run)
                    cells = slice(first, last + 1, step)
                    carried = flat if arms is _H_ARMS else steep
                    carried[cells] = carried[cells].translate(_OR[bits])
                    if bits in _BITS:
                        run_cells = range(first, last + 1, step)
                        special.append((bits, arms is _H_ARMS, run_cells))
    for bits, level, run_cells in special:
        kind = _BITS.index(bits)
        carried = flat if level else steep
        for cell in run_cells:
            if carried[cell] == bits:
                corner = flat[cell] == steep[cell]
                plane[cell] = _styled(plane[cell], kind, level, corner)


def _kind_bits(layout: Layout, at: int, owner: int) -> dict[int, int]:
    """Return the kinds of the edges from an owner through a gap, as bits.

    By the row of the end plus one, under 0 for those that go on to later layers.
    """
    graph = layout.graph
    bits: dict[int, int] = {}
    for out in graph.outs[owner]:
        if graph.layer[out] > at:
            later = graph.layer[out] > at + 1
            end = 0 if later else 2 * layout.slots[out] + 1
            kind = layout.kinds.get((owner, out))
            bit = 1 if kind is None else _BITS[_SPECIAL.index(kind)]
            bits[end] = bits.get(end, 0) | bit
    return bits


def _styled(code: int, kind: int, level: bool, corner: bool) -> int:
    """Return the code of a cell in the line of a special kind.

    Args:
        code: Its arms; what is styled already, and a junction, stays as it is.
        kind: The number of the kind.
        level: Whether the run that carries the kind is flat.
        corner: Whether the other way, too, nothing else is carried.
    """
    arms, both = code & 15, _FLAT | _STEEP
    start = _STYLED + 3 * kind
    if code >= _TIP:
        return code
    if code & both == both:
        return code if level else start + 2
    if arms == (_LEFT_RIGHT if level else _UP_DOWN):
        return start if level else start + 1
    if corner and arms in _CORNERS and _SPECIAL[kind] is Kind.ESCALATION:
        return _STYLED + 3 * len(_SPECIAL) + _CORNERS.index(arms)
    return code


def _table(layout: Layout) -> str:
    """Return the sign for each code."""
    plain, both = layout.look.ascii_only, _FLAT | _STEEP
    signs, bridge = (_ASCII, ")") if plain else (_LIGHT, "│")
    tips = ">v" if plain else "►▼"
    masks = [
        bridge if code & both == both else signs[code & 15] for code in range(_TIP)
    ]
    styles = _ASCII_STYLES if plain else _LIGHT_STYLES
    return "".join(masks) + tips[layout.look.turned] + styles
