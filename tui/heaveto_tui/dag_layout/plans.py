"""Flows as they are given: the part around a node, cycles found and broken."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from heaveto.text import plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Edge", "NodeSpec", "around", "break_cycles", "find_cycle"]

Edge = tuple[str, str]
"""A dependency and what depends on it, by id."""

NodeSpec = tuple[str, str, Iterable[str]]
"""Id, label, and the ids it depends on."""


def around(nodes: Iterable[NodeSpec], name: str, hops: int) -> list[NodeSpec]:
    """Return the nodes up to so many steps before and behind one, with their edges.

    Args:
        nodes: The whole flow.
        name: The id in the middle.
        hops: Steps along dependencies, either way.

    Raises:
        ValueError: The id is unknown.
    """
    labels: dict[str, str] = {}
    deps: dict[str, Sequence[str]] = {}
    outs: dict[str, list[str]] = {}
    for node, label, needs in nodes:
        labels[node], deps[node] = label, tuple(needs)
        for need in deps[node]:
            outs.setdefault(need, []).append(node)
    if name not in labels:
        raise ValueError(f"unknown id: {plain(name)}")
    inside = _reach(name, deps, hops) | _reach(name, outs, hops)
    return [
        (node, label, [dep for dep in deps[node] if dep in inside])
        for node, label in labels.items()
        if node in inside
    ]


def find_cycle(nodes: Iterable[NodeSpec]) -> list[str]:
    """Return the ids along one dependency cycle, the first again at the end, or ``[]``.

    Unknown ids are passed over, so that a plan can be examined before it is repaired.
    """
    deps = {name: sorted(set(needs)) for name, _, needs in nodes}
    done: set[str] = set()
    for root in sorted(deps):
        trail: list[str] = []
        on_trail: set[str] = set()
        stack = [(root, False)]
        while stack:
            name, leaving = stack.pop()
            if leaving:
                on_trail.discard(trail.pop())
                done.add(name)
            elif name in on_trail:
                return [name, *reversed(trail[trail.index(name) :])]
            elif name in deps and name not in done:
                trail.append(name)
                on_trail.add(name)
                stack.append((name, True))
                stack.extend((dep, False) for dep in deps[name])
    return []


def break_cycles(nodes: Iterable[NodeSpec]) -> tuple[list[NodeSpec], list[Edge]]:
    """Return a flow that can be drawn, and the edges that had to go for it.

    A checkpoint that is damaged or not ours may hold a plan with cycles, with ids that
    are not there or that are there twice (then the first counts).

    Returns:
        The nodes without those edges, and the edges, ``(dependency, dependent)``.
    """
    specs: dict[str, tuple[str, list[str]]] = {}
    for name, label, needs in nodes:
        specs.setdefault(name, (label, list(dict.fromkeys(needs))))
    dropped: list[Edge] = []
    for name, (_, needs) in specs.items():
        missing = [need for need in needs if need not in specs]
        dropped += [(need, name) for need in missing]
        needs[:] = [need for need in needs if need in specs]
    dropped += _back_edges(specs)
    gone = set(dropped)
    return [
        (name, label, [need for need in needs if (need, name) not in gone])
        for name, (label, needs) in specs.items()
    ], dropped


def _reach(name: str, near: Mapping[str, Sequence[str]], hops: int) -> set[str]:
    inside, edge = {name}, [name]
    for _ in range(hops):
        edge = [other for one in edge for other in near.get(one, ())]
        edge = [other for other in dict.fromkeys(edge) if other not in inside]
        inside.update(edge)
    return inside


def _back_edges(specs: Mapping[str, tuple[str, Sequence[str]]]) -> list[Edge]:
    """Return edges without which there is no cycle, found by a depth-first walk."""
    found: list[Edge] = []
    state: dict[str, bool] = {}  # True while it is on the trail
    for root in specs:
        stack = [(root, iter(specs[root][1]))]
        state.setdefault(root, True)
        if not state[root]:
            continue
        while stack:
            name, rest = stack[-1]
            need = next(rest, None)
            if need is None:
                state[name] = False
                stack.pop()
            elif state.get(need):
                found.append((need, name))
            elif need not in state:
                state[need] = True
                stack.append((need, iter(specs[need][1])))
    return found
