"""Where the items lie across the flow: integer slots that keep order and distance.

A slot is two cells, so wires, which leave and enter a box at its middle, always lie on
even cells and every odd cell is free for the router. Layer by layer, the items take the
places that make the wires to the neighbouring layers shortest, which is isotonic
regression for absolute distances: up and down by the layer already placed, and at the
end by both. A median, unlike a mean, is the place
of some neighbour, so wires come out straight. What bends counts more than what
branches.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heaveto_tui.dag_layout.graph import Items

__all__ = ["distances", "place"]

_Pull = tuple[int, int]
"""A wanted slot and how much it is wanted."""

_STAY, _BRANCH, _ONLY, _BEND = 1, 20, 40, 80
"""How much pulls: nothing but staying where it is; one of several neighbours; the only
one, or a bend; from bend to bend."""
_SLACK = 1
"""Slots by which the picture may be wider than its widest layer."""


def distances(
    layer: Sequence[int], before: Sequence[int], after: Sequence[int]
) -> list[int]:
    """Return the slots that must lie between each item of a layer and the next one.

    Args:
        layer: Items in order.
        before: For each item, the cells it needs before its wire, air included.
        after: For each item, the cells it needs after its wire.
    """
    return [(after[left] + before[right] + 2) // 2 for left, right in pairwise(layer)]


def place(
    items: Items,
    layers: Sequence[Sequence[int]],
    before: Sequence[int],
    after: Sequence[int],
) -> list[int]:
    """Return the slot of every item; the least is 0.

    Args:
        items: The items.
        layers: Their order.
        before: For each item, the cells it needs before its wire, air included.
        after: For each item, the cells it needs after its wire.
    """
    gaps = [distances(layer, before, after) for layer in layers]
    shifts = [list(accumulate(gap, initial=0)) for gap in gaps]
    room = max((shift[-1] for shift in shifts), default=0) + _SLACK
    slots = [0] * len(items.owner)
    for layer, shift in zip(layers, shifts, strict=True):
        for item, offset in zip(layer, shift, strict=False):
            slots[item] = offset
    up, down = _weighted(items, items.up), _weighted(items, items.down)
    forth = range(len(layers))
    back = forth[::-1]
    for order, sides in (
        (forth, (up,)),
        (back, (down,)),
        (forth, (up,)),
        (back, (down,)),
        (forth, (up, down)),
        (back, (up, down)),
    ):
        for at in order:
            _settle(layers[at], sides, slots, shifts[at], room)
    least = min(slots, default=0)
    return [slot - least for slot in slots]


def _weighted(items: Items, near: Sequence[Sequence[int]]) -> list[list[_Pull]]:
    """Return the neighbours of each item on one side and how much they pull."""
    nodes = sum(owner == item for item, owner in enumerate(items.owner))
    found: list[list[_Pull]] = []
    for item, others in enumerate(near):
        if item >= nodes:
            pulls = [(other, _BEND if other >= nodes else _ONLY) for other in others]
        elif len(others) == 1:
            pulls = [(others[0], _ONLY)]
        else:
            pulls = [(other, _ONLY if other >= nodes else _BRANCH) for other in others]
        found.append(pulls)
    return found


def _settle(
    layer: Sequence[int],
    sides: Sequence[Sequence[Sequence[_Pull]]],
    slots: list[int],
    shifts: Sequence[int],
    room: int,
) -> None:
    """Put the items of a layer into the slots, up to ``room``, that pull them least.

    Distances are taken out first, so what is left is to be ascending. The heap holds,
    greatest first, the slots at which the total pull on the items so far changes, and
    by how much, as far as it pulls them back; its top is where they rest. What pulls
    them forth is dropped, since an item may lie as far behind them as it likes.
    """
    heap: list[tuple[int, int]] = []  # slot negated, change of the pull there
    rest: list[int] = []
    for item, offset in zip(layer, shifts, strict=False):
        forth = 0
        for side in sides:
            for other, weight in side[item]:
                heappush(heap, (offset - slots[other], 2 * weight))
                forth += weight
        if not forth:
            heappush(heap, (offset - slots[item], 2 * _STAY))
            forth = _STAY
        while heap[0][1] <= forth:
            forth -= heappop(heap)[1]
        if forth:
            key, change = heap[0]
            heapreplace(heap, (key, change - forth))
        rest.append(-heap[0][0])
    bound = room - shifts[-1]
    for item, slot, offset in zip(
        reversed(layer), reversed(rest), reversed(shifts), strict=False
    ):
        bound = min(bound, slot)
        slots[item] = max(bound, 0) + offset
