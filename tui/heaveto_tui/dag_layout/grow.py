"""One more node in a drawing that somebody is looking at.

Nothing that is there changes its layer or its order. The node goes where its wires are
short and cross little; if there is no room, its neighbours give way, but only a few,
and only in the layers from its dependencies to itself. Wires that get longer bend in
the layers between in the same way. Of the places at hand one is taken for which the
lanes have room, so that no later layer moves.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from heaveto_tui.dag_layout import order
from heaveto_tui.dag_layout.graph import Items, read_kinds
from heaveto_tui.dag_layout.labels import cut
from heaveto_tui.dag_layout.layout import (
    SOME,
    STEADY_LABEL,
    box_width,
    fits,
    label_of,
    needs,
    nets_after,
    routed,
)
from heaveto_tui.dag_layout.route import route

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from heaveto_tui.dag_layout.layout import Layout
    from heaveto_tui.dag_layout.plans import Edge, NodeSpec

__all__ = ["grown"]

_YIELD, _NODE, _BEND, _CROSS = 2.5, 1.5, 0.5, 4.0
"""What a place costs, in slots off the wanted one: that others have to give way, each
node and each bend that does, and each wire that is crossed."""
_MOVES = 14
"""Nodes that may give way for one new node."""
_TRIES = 8
"""Places that are tried for a new item before a layer has to move for it."""


def grown(layout: Layout, node: NodeSpec, kinds: Mapping[Edge, str] | None) -> Layout:
    """Return a layout with one more node.

    Raises:
        ValueError: The id is there already, a dependency or a kind is unknown.
    """
    graph = layout.graph.grown(node)
    items = Items.of(graph)
    new = len(graph.ids) - 1
    label = _label(layout, node[1], graph.layer[new])
    widths = (*layout.widths, box_width(label, layout.look))
    slots, fresh = _known_slots(layout, items)
    layers = [
        sorted((item for item in layer if item not in fresh), key=slots.__getitem__)
        for layer in items.layers
    ]
    host = _Host(layout, items, layers, slots, needs(items, widths, layout.look))
    for item in sorted(fresh, key=lambda item: (items.layer[item], item)):
        host.seat(item)
    grown_layout = replace(
        layout,
        graph=graph,
        kinds={**layout.kinds, **read_kinds(graph, kinds)},
        items=items,
        layers=layers,
        slots=slots,
        labels=(*layout.labels, label),
        widths=widths,
        crossings=order.crossings(items, layers),
    )
    return routed(grown_layout, layout)


def _label(layout: Layout, text: str, layer: int) -> str:
    """Return the label, cut to its layer where that would have to be widened."""
    label = label_of(text, layout.look)
    if layout.look.turned or layer >= len(layout.sizes) or len(layout.labels) <= SOME:
        return label
    room = layout.sizes[layer] - box_width("", layout.look)
    return cut(label, max(room, STEADY_LABEL), mark=layout.look.mark)


def _known_slots(layout: Layout, items: Items) -> tuple[list[int], set[int]]:
    """Return the slots of the items that were there, and the items that were not."""
    old = {
        (owner, layer): slot
        for owner, layer, slot in zip(
            layout.items.owner, layout.items.layer, layout.slots, strict=True
        )
    }
    slots: list[int] = []
    fresh: set[int] = set()
    for item, place in enumerate(zip(items.owner, items.layer, strict=True)):
        slot = old.get(place)
        if slot is None:
            fresh.add(item)
        slots.append(slot or 0)
    return slots, fresh


class _Seat(NamedTuple):
    """Where a new item may go."""

    cost: float
    place: int
    """Its number in the layer."""
    moves: dict[int, int]
    """New slots: its own and of those that give way."""


class _Host:
    """Finds and makes room in the layers."""

    def __init__(
        self,
        layout: Layout,
        items: Items,
        layers: Sequence[list[int]],
        slots: list[int],
        extents: tuple[Sequence[int], Sequence[int]],
    ) -> None:
        self._layout, self._items = layout, items
        self._layers, self._slots = layers, slots
        self._before, self._after = extents
        self._nodes = len(layout.graph.ids)
        self._moves_left = _MOVES
        self._scale = 4 if layout.look.turned else 1

    def seat(self, item: int) -> None:
        """Put an item into its layer, where its wires are short and cross little."""
        at = self._items.layer[item]
        layer = self._layers[at]
        seats = sorted(self._seats(item, layer), key=lambda seat: seat[:2])[:_TRIES]
        for seat in seats:
            old = {other: self._slots[other] for other in seat.moves}
            self._move(seat.moves)
            layer.insert(seat.place, item)
            if self._has_lanes(at):
                break
            layer.remove(item)
            self._move(old)
        else:
            self._move(seats[0].moves)
            layer.insert(seats[0].place, item)
            seat = seats[0]
        self._moves_left -= sum(other < self._nodes for other in seat.moves)

    def _move(self, moves: Mapping[int, int]) -> None:
        for item, slot in moves.items():
            self._slots[item] = slot

    def _has_lanes(self, at: int) -> bool:
        """Tell whether the wires beside a layer find lanes without moving a layer."""
        for gap in (at - 1, at):
            if 0 <= gap < len(self._layout.rooms) - 1:
                seated = set(self._layers[gap + 1])
                nets = nets_after(self._items, self._layers[gap], self._slots, seated)
                pitch = self._layout.pitches[gap]
                if not fits(self._layout, gap, route(nets).lanes, pitch):
                    return False
        return True

    def _seats(self, item: int, layer: Sequence[int]) -> list[_Seat]:
        wanted = max(self._wanted(item, layer), self._least(item))
        crossed = self._crossed(item, layer)
        seats = self._free_seats(item, layer, wanted, crossed)
        split = sum(self._slots[other] < wanted for other in layer)
        for place in range(max(0, split - 1), min(len(layer), split + 1) + 1):
            for moves in (
                self._forwards(item, layer, place, wanted),
                self._backwards(item, layer, place, wanted),
            ):
                nodes = sum(other < self._nodes for other in moves)
                if moves and nodes <= self._moves_left:
                    cost = _YIELD + _NODE * nodes + _BEND * (len(moves) - 1 - nodes)
                    cost += abs(moves[item] - wanted) / self._scale
                    seats.append(_Seat(cost + _CROSS * crossed[place], place, moves))
        return seats

    def _wanted(self, item: int, layer: Sequence[int]) -> int:
        ends = sorted(self._slots[other] for other in self._items.up[item])
        if ends:
            return ends[(len(ends) - 1) // 2]
        return self._slots[layer[-1]] + self._step(layer[-1], item) if layer else 0

    def _least(self, item: int) -> int:
        """Return the least slot at which an item is still on the canvas."""
        return max(0, (self._before[item] - self._layout.shift) // 2)

    def _step(self, left: int, right: int) -> int:
        return (self._after[left] + self._before[right] + 2) // 2

    def _crossed(self, item: int, layer: Sequence[int]) -> list[int]:
        """Return how many wires those of an item cross, for each place in the layer."""
        slots, up = self._slots, self._items.up
        ends = [slots[other] for other in up[item]]
        steps: list[int] = []
        first = 0
        for other in layer:
            step = 0
            for start in [slots[above] for above in up[other]]:
                for end in ends:
                    if start < end:
                        first += 1
                        step -= 1
                    elif start > end:
                        step += 1
            steps.append(step)
        return list(accumulate(steps, initial=first))

    def _free_seats(
        self, item: int, layer: Sequence[int], wanted: int, crossed: Sequence[int]
    ) -> list[_Seat]:
        """Return the seats for which nobody has to move; there is always one."""
        seats: list[_Seat] = []
        low = self._least(item)
        for place in range(len(layer) + 1):
            slot = max(low, wanted)
            if place < len(layer):
                after = layer[place]
                slot = max(
                    low, min(wanted, self._slots[after] - self._step(item, after))
                )
                if slot > self._slots[after] - self._step(item, after):
                    low = max(low, self._slots[after] + self._step(after, item))
                    continue
                low = self._slots[after] + self._step(after, item)
            cost = abs(slot - wanted) / self._scale + _CROSS * crossed[place]
            seats.append(_Seat(cost, place, {item: slot}))
        return seats

    def _forwards(
        self, item: int, layer: Sequence[int], place: int, wanted: int
    ) -> dict[int, int]:
        """Return the slots if what is from a place on gives way forwards."""
        slot = wanted
        if place:
            before = layer[place - 1]
            slot = max(slot, self._slots[before] + self._step(before, item))
        moves, last = {item: slot}, item
        for other in layer[place:]:
            slot += self._step(last, other)
            if self._slots[other] >= slot:
                break
            moves[other] = slot
            last = other
        return moves

    def _backwards(
        self, item: int, layer: Sequence[int], place: int, wanted: int
    ) -> dict[int, int]:
        """Return the slots if what is before a place gives way backwards, if it can."""
        slot = wanted
        if place < len(layer):
            slot = min(slot, self._slots[layer[place]] - self._step(item, layer[place]))
        if slot < self._least(item):
            return {}
        moves, last = {item: slot}, item
        for other in layer[:place][::-1]:
            slot -= self._step(other, last)
            if self._slots[other] <= slot:
                break
            if slot < self._least(other):
                return {}
            moves[other] = slot
            last = other
        return moves
