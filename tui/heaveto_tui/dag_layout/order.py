"""The order of the items in each layer, by how few wires cross.

Layer by layer sweeps (barycentre and median of the neighbours in turn), each followed
by one round of swaps between neighbours, from several starts; the best order found is
then sifted: every item tries every place near its own. Crossings are counted per edge,
as Graphviz counts them: a wire that carries three edges across one that carries two
counts six. The effort is bounded by counts of steps, never by a clock, and ties keep
the order they have, so the result depends on nothing but the graph.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from heaveto_tui.dag_layout.graph import Graph, Items

__all__ = ["arrange", "crossings"]

_PATIENCE = 4
"""Sweeps without gain after which a start is done."""
_REACH = 48
"""How far an item is sifted; wider only costs time."""

_Layers = list[list[int]]


def arrange(graph: Graph, items: Items, *, hurried: bool = False) -> _Layers:
    """Return the items of each layer in the order in which they are drawn.

    Parts that are not connected lie one after the other in every layer, so wires of
    different parts never cross.

    Args:
        graph: The graph.
        items: Its items.
        hurried: Whether it has to be there before the next frame.
    """
    effort = _effort(items, len(graph.ids), hurried)
    layers: _Layers = [[] for _ in items.layers]
    sorter = _Sorter(items)
    for share in _shares(graph, items):
        if any(len(layer) > 1 for layer in share):
            share = sorter.best(share, *effort)
        for layer, ordered in zip(layers, share, strict=False):
            layer.extend(ordered)
    return layers


def crossings(items: Items, layers: Sequence[Sequence[int]]) -> int:
    """Return how many pairs of edges cross, counted in every gap between two layers."""
    sorter = _Sorter(items)
    sorter.take([list(layer) for layer in layers])
    return sorter.count()


def _effort(items: Items, nodes: int, hurried: bool) -> tuple[int, int, int]:
    """Return how many starts, the sweeps of each, and how often the best is sifted."""
    wires = sum(map(len, items.down))
    if hurried:
        return (2, 8, 3) if wires <= 40 else (1, 4, 2)
    if nodes > 250:
        return (1, 24, 3) if wires <= 10_000 else (1, 10, 1)
    for most, starts in ((250, 8), (1000, 4), (2000, 2)):
        if wires <= most:
            return starts, 24, 3
    return (1, 12, 2) if wires <= 3000 else (1, 8, 1)


def _shares(graph: Graph, items: Items) -> list[_Layers]:
    """Return the layers of each connected part."""
    parts = graph.parts()
    part_of = [0] * len(graph.ids)
    for number, nodes in enumerate(parts):
        for node in nodes:
            part_of[node] = number
    shares: list[_Layers] = [[] for _ in parts]
    for at, layer in enumerate(items.layers):
        for item in layer:
            share = shares[part_of[items.owner[item]]]
            if len(share) <= at:
                share.append([])
            share[at].append(item)
    return shares


class _Sorter:
    """One order of some layers, and the moves that better it."""

    __slots__ = (
        "_down",
        "_gaps",
        "_layers",
        "_load_down",
        "_load_up",
        "_position",
        "_restless",
        "_up",
    )

    def __init__(self, items: Items) -> None:
        self._up, self._down, self._load_down = items.up, items.down, items.load
        self._load_up: list[list[int]] = [[] for _ in items.owner]
        for item, below in enumerate(items.down):
            for other, load in zip(below, items.load[item], strict=True):
                self._load_up[other].append(load)
        self._position = [0] * len(items.owner)
        self._layers: _Layers = []
        self._gaps: list[int] = []  # crossings after each layer, -1 to be counted
        self._restless = bytearray()  # layers that swaps may better

    def take(self, layers: _Layers) -> None:
        """Work on these layers from now on, in place."""
        self._layers = layers
        self._gaps = [-1] * len(layers)
        self._restless = bytearray(b"\1" * len(layers))
        for at in range(len(layers)):
            self._note(at)

    def best(self, layers: _Layers, starts: int, sweeps: int, sifts: int) -> _Layers:
        """Return the best order found, with the effort of :func:`_effort`."""
        found: tuple[int, _Layers] | None = None
        for start in range(starts):
            self.take(self._start(layers, start))
            result = self._swept(sweeps)
            if found is None or result[0] < found[0]:
                found = result
            if not found[0]:
                break
        assert found is not None
        if found[0]:
            self.take(found[1])
            self._polish(found[0], sifts)
        return found[1]

    def count(self) -> int:
        """Return the crossings of the order at hand."""
        gaps = self._gaps
        for at, count in enumerate(gaps):
            if count < 0:
                gaps[at] = self._gap(at)
        return sum(gaps)

    def _note(self, at: int) -> None:
        """Take note of the order in a layer after it has changed."""
        position = self._position
        for place, item in enumerate(self._layers[at]):
            position[item] = place
        self._touch(at)

    def _touch(self, at: int) -> None:
        self._gaps[at] = -1
        self._restless[at] = 1
        if at:
            self._gaps[at - 1] = -1
            self._restless[at - 1] = 1
        if at + 1 < len(self._layers):
            self._restless[at + 1] = 1

    def _start(self, layers: _Layers, number: int) -> _Layers:
        if number == 0:
            return self._depth_first(layers, layers, self._down)
        if number == 1:
            return [layer[:] for layer in layers]
        if number == 2:
            return self._depth_first(layers, [layers[0][::-1]], self._down)
        if number == 3:
            return self._depth_first(layers, layers[::-1], self._up)
        # as good as shuffled, and the same everywhere
        return [
            sorted(layer, key=lambda item: (item * 40503 + number * 7919) % 65521)
            for layer in layers
        ]

    def _depth_first(
        self, layers: _Layers, roots: _Layers, neighbours: list[list[int]]
    ) -> _Layers:
        """Return each layer in the order of a depth-first walk from the roots."""
        rank: dict[int, int] = {}
        for layer in roots:
            for root in layer:
                stack = [root]
                while stack:
                    item = stack.pop()
                    if item not in rank:
                        rank[item] = len(rank)
                        stack.extend(reversed(neighbours[item]))
        last = len(rank)
        return [
            sorted(layer, key=lambda item: rank.get(item, last)) for layer in layers
        ]

    def _swept(self, sweeps: int) -> tuple[int, _Layers]:
        """Sweep until nothing is gained; return the best crossings and order seen."""
        least = self.count()
        best = [layer[:] for layer in self._layers]
        idle = 0
        for sweep in range(sweeps):
            if not least or idle == _PATIENCE:
                break
            moved = self._sweep(downwards=sweep % 2 == 0, median=sweep % 4 > 1)
            moved |= self._swap_neighbours()
            count = self.count()
            idle += 1
            if count < least:
                least, idle = count, 0
                best = [layer[:] for layer in self._layers]
            elif not moved and sweep % 4 == 3:
                break
        return least, best

    def _sweep(self, *, downwards: bool, median: bool) -> bool:
        """Sort every layer by the layer before it, or after it; return if any moved."""
        layers = self._layers
        neighbours = self._up if downwards else self._down
        order: Iterable[int] = range(1, len(layers))
        if not downwards:
            order = range(len(layers) - 2, -1, -1)
        moved = False
        for at in order:
            layer = layers[at]
            if len(layer) > 1:
                place = self._medians if median else self._means
                wanted = dict(zip(layer, place(layer, neighbours), strict=True))
                layers[at] = sorted(layer, key=wanted.__getitem__)
                if layers[at] != layer:
                    self._note(at)
                    moved = True
        return moved

    def _means(self, layer: list[int], neighbours: list[list[int]]) -> list[float]:
        position = self._position
        found: list[float] = []
        for item in layer:
            near = neighbours[item]
            if len(near) == 1:
                found.append(position[near[0]])
            elif near:
                found.append(sum([position[other] for other in near]) / len(near))
            else:
                found.append(position[item])
        return found

    def _medians(self, layer: list[int], neighbours: list[list[int]]) -> list[float]:
        position = self._position
        found: list[float] = []
        for item in layer:
            near = neighbours[item]
            if len(near) == 1:
                found.append(position[near[0]])
            elif near:
                places = sorted([position[other] for other in near])
                half = len(places) // 2
                found.append((places[half] + places[~half]) / 2)
            else:
                found.append(position[item])
        return found

    def _gap(self, at: int) -> int:
        """Return the crossings between a layer and the next one."""
        position, down, loads = self._position, self._down, self._load_down
        seen: list[int] = []
        total = 0
        for item in self._layers[at]:
            below = down[item]
            if len(below) == 1:
                end, load = position[below[0]], loads[item][0]
                rank = bisect_right(seen, end)
                total += load * (len(seen) - rank)
                seen[rank:rank] = [end] * load
            elif below:
                new: list[int] = []
                for other, load in zip(below, loads[item], strict=True):
                    end = position[other]
                    total += load * (len(seen) - bisect_right(seen, end))
                    new += [end] * load
                seen += new
                seen.sort()
        return total

    def _swap_neighbours(self) -> bool:
        """Swap neighbours in a layer where that uncrosses wires; return if any did."""
        moved = False
        restless = self._restless
        for at in range(len(self._layers)):
            if restless[at]:
                restless[at] = 0
                if self._swap_in(self._layers[at]):
                    self._touch(at)
                    moved = True
        return moved

    def _swap_in(self, layer: list[int]) -> bool:
        position = self._position
        sides = ((self._up, self._load_up), (self._down, self._load_down))
        moved = False
        for place in range(len(layer) - 1):
            left, right = layer[place], layer[place + 1]
            gain = 0
            for neighbours, loads in sides:
                ours, theirs = neighbours[left], neighbours[right]
                if len(ours) == 1 == len(theirs):
                    way = position[ours[0]] - position[theirs[0]]
                    if way:
                        crossed = loads[left][0] * loads[right][0]
                        gain += crossed if way > 0 else -crossed
                elif ours and theirs:
                    gain += _gain(left, right, neighbours, loads, position)
            if gain > 0:
                layer[place], layer[place + 1] = right, left
                position[left], position[right] = place + 1, place
                moved = True
        return moved

    def _polish(self, crossings: int, rounds: int) -> None:
        """Sift up and down the layers until nothing is gained."""
        restless = self._restless
        restless[:] = b"\1" * len(restless)
        for number in range(rounds):
            gained = 0
            order = range(len(self._layers))
            for at in reversed(order) if number % 2 else order:
                if restless[at] and len(self._layers[at]) > 1:
                    restless[at] = 0
                    gained += self._sift(at)
            crossings -= gained
            if not gained or not crossings:
                break

    def _sift(self, at: int) -> int:
        """Move each item of a layer to its best place; return the crossings gained."""
        layers, position = self._layers, self._position
        above = len(layers[at - 1]) if at else 0
        below = len(layers[at + 1]) if at + 1 < len(layers) else 0
        layer = layers[at]
        ends = {
            item: _flat(
                _ends(self._up[item], self._load_up[item], position)
                + _ends(self._down[item], self._load_down[item], position, above)
            )
            for item in layer
        }
        gained = 0
        for item in layer[:]:
            place = position[item]
            first = max(0, place - _REACH)
            costs = _steps(self._up[item], self._load_up[item], position, above)
            costs += _steps(self._down[item], self._load_down[item], position, below)
            shift, gain = _best_shift(
                [ends[other] for other in layer[first : place + _REACH]],
                costs,
                place - first,
            )
            if gain:
                layer.insert(place + shift, layer.pop(place))
                low = min(place, place + shift)
                for moved in range(low, low + abs(shift) + 1):
                    position[layer[moved]] = moved
                gained += gain
        if gained:
            self._touch(at)
        return gained


def _gain(
    left: int,
    right: int,
    neighbours: list[list[int]],
    loads: list[list[int]],
    position: list[int],
) -> int:
    """Return how many crossings less there are with ``right`` before ``left``."""
    gain = 0
    for other, load in zip(neighbours[left], loads[left], strict=True):
        end = position[other]
        for against, weight in zip(neighbours[right], loads[right], strict=True):
            if end > position[against]:
                gain += load * weight
            elif end < position[against]:
                gain -= load * weight
    return gain


def _ends(
    neighbours: list[int], loads: list[int], position: list[int], offset: int = 0
) -> list[tuple[int, int]]:
    """Return where the wires of an item end, and what they carry."""
    return [
        (position[other] + offset, load)
        for other, load in zip(neighbours, loads, strict=True)
    ]


def _steps(
    neighbours: list[int], loads: list[int], position: list[int], size: int
) -> list[int]:
    """Return what a wire to each place gains with the item on its other side.

    That is the load of the item's wires right of the place less that left of it.
    """
    if not neighbours:
        return [0] * size
    if len(neighbours) == 1:
        place, load = position[neighbours[0]], loads[0]
        return [load] * place + [0] + [-load] * (size - place - 1)
    left, right = 0, sum(loads)
    steps: list[int] = []
    for place, load in sorted(_ends(neighbours, loads, position)):
        steps += [right - left] * (place - len(steps))
        right -= load
        steps.append(right - left)
        left += load
    steps += [-left] * (size - len(steps))
    return steps


_Flat = tuple[int, int, int, int, list[tuple[int, int]]]


def _flat(ends: list[tuple[int, int]]) -> _Flat:
    """Return wire ends with the first two of them at hand: most items have no more."""
    (end, load), (other, weight), *more = [*ends, (0, 0), (0, 0)]
    return end, load, other, weight, more[: len(ends) - 2] if len(ends) > 2 else []


def _best_shift(ends: list[_Flat], costs: list[int], place: int) -> tuple[int, int]:
    """Return how far an item should move past its neighbours, and what that gains."""
    best = shift = total = 0
    for at in range(place + 1, len(ends)):
        end, load, other, weight, more = ends[at]
        total -= costs[end] * load + costs[other] * weight
        for end, load in more:
            total -= costs[end] * load
        if total < best:
            best, shift = total, at - place
    total = 0
    for at in range(place - 1, -1, -1):
        end, load, other, weight, more = ends[at]
        total += costs[end] * load + costs[other] * weight
        for end, load in more:
            total += costs[end] * load
        if total < best:
            best, shift = total, at - place
    return shift, -best
