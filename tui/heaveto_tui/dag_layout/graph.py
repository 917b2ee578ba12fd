"""The graph to draw: checked, in one canonical order, with its layers and long edges.

A *node* is an operation, known here by its index. An *item* is what a layer holds: a
node, or a *bend*, where a wire passes a layer on its way to a later one. All long edges
of one source share one chain of bends (its *trunk*), so a source has one item per layer
from its own to the last but one of its furthest dependent.

The canonical order makes the picture independent of the order in which nodes and
dependencies were given: nodes by label with numbers compared as numbers, then by id.
Everything here is pure, and linear but for sorting.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from heaveto.text import plain
from heaveto_tui.dag_layout.plans import find_cycle

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from heaveto_tui.dag_layout.plans import Edge, NodeSpec

__all__ = ["Graph", "Items", "Kind", "read_kinds"]

_DIGITS = re.compile(r"([0-9]{1,18})")


class Kind(StrEnum):
    """Why an operation comes after another."""

    DEPENDS = "depends"
    SPAWN = "spawn"
    ESCALATION = "escalation"
    CONDITIONAL = "conditional"


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A checked acyclic graph, in canonical order; nodes added later are at the end."""

    ids: tuple[str, ...]
    labels: tuple[str, ...]
    deps: tuple[tuple[int, ...], ...]
    """Dependencies of each node, ascending, each once."""
    outs: tuple[tuple[int, ...], ...]
    """Dependents of each node, ascending."""
    layer: tuple[int, ...]
    """Longest path from a root, 0 for a root; it stays when nodes are added."""
    index: Mapping[str, int]

    @classmethod
    def of(cls, nodes: Iterable[NodeSpec]) -> Graph:
        """Check and sort nodes.

        Args:
            nodes: ``(id, label, ids it depends on)`` in any order.

        Raises:
            ValueError: An id is repeated or unknown, or the dependencies have a cycle.
        """
        specs = sorted(
            ((name, label, tuple(needs)) for name, label, needs in nodes),
            key=_canonical,
        )
        index = {spec[0]: at for at, spec in enumerate(specs)}
        if len(index) < len(specs):
            raise ValueError(f"repeated id: {_repeated(specs)}")
        deps = tuple(_indices(spec, index) for spec in specs)
        outs = _outs(deps)
        layer = _layers(deps, outs)
        if layer is None:
            cycle = find_cycle(specs)
            raise ValueError(f"cycle: {' -> '.join(map(plain, cycle))}")
        return cls(
            ids=tuple(spec[0] for spec in specs),
            labels=tuple(spec[1] for spec in specs),
            deps=deps,
            outs=outs,
            layer=layer,
            index=index,
        )

    def grown(self, node: NodeSpec) -> Graph:
        """Return the graph with one more node, whose index is the last.

        Raises:
            ValueError: The id is there already, or it depends on an unknown id.
        """
        name, label, _ = node
        if name in self.index:
            raise ValueError(f"repeated id: {plain(name)}")
        deps = _indices(node, self.index)
        new = len(self.ids)
        outs = list(self.outs)
        for dep in deps:
            outs[dep] = (*outs[dep], new)
        return Graph(
            ids=(*self.ids, name),
            labels=(*self.labels, label),
            deps=(*self.deps, deps),
            outs=(*outs, ()),
            layer=(*self.layer, 1 + max((self.layer[dep] for dep in deps), default=-1)),
            index={**self.index, name: new},
        )

    def parts(self) -> list[list[int]]:
        """Return the connected parts, the largest first, isolated nodes last."""
        part = [-1] * len(self.ids)
        found: list[list[int]] = []
        for root in range(len(self.ids)):
            if part[root] >= 0:
                continue
            part[root] = len(found)
            members = [root]
            for node in members:  # grows while it is read
                for other in (*self.deps[node], *self.outs[node]):
                    if part[other] < 0:
                        part[other] = len(found)
                        members.append(other)
            found.append(members)
        return sorted(found, key=len, reverse=True)


def read_kinds(
    graph: Graph, kinds: Mapping[Edge, str] | None
) -> dict[tuple[int, int], Kind]:
    """Return the kinds of the edges that are not plain dependencies, by node indices.

    Raises:
        ValueError: A kind is unknown, or it is given for an edge that is not there.
    """
    found: dict[tuple[int, int], Kind] = {}
    for (source, target), word in (kinds or {}).items():
        kind = Kind(word)
        start, end = graph.index.get(source), graph.index.get(target)
        if start is None or end is None or start not in graph.deps[end]:
            raise ValueError(f"no edge: {plain(source)} -> {plain(target)}")
        if kind is not Kind.DEPENDS:
            found[start, end] = kind
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """What the layers hold; the first items are the nodes themselves."""

    owner: list[int]
    """The node, or the source whose trunk bends here."""
    layer: list[int]
    up: list[list[int]]
    """Neighbours in the layer before."""
    down: list[list[int]]
    """Neighbours in the layer after."""
    load: list[list[int]]
    """How many edges run through each wire to ``down``."""
    layers: list[list[int]]
    """The items of each layer in canonical order."""

    @classmethod
    def of(cls, graph: Graph) -> Items:
        """Cut the edges of a graph into wires between neighbouring layers."""
        count = len(graph.ids)
        items = cls(
            owner=list(range(count)),
            layer=list(graph.layer),
            up=[[] for _ in range(count)],
            down=[[] for _ in range(count)],
            load=[[] for _ in range(count)],
            layers=[[] for _ in range(1 + max(graph.layer, default=-1))],
        )
        for node in range(count):
            items._add_trunk(
                node, sorted(graph.outs[node], key=graph.layer.__getitem__)
            )
        for item, layer in enumerate(items.layer):
            items.layers[layer].append(item)
        return items

    def _add_trunk(self, source: int, targets: Sequence[int]) -> None:
        item, done = source, 0
        while True:
            after = self.layer[item] + 1
            while done < len(targets) and self.layer[targets[done]] == after:
                self._wire(item, targets[done], 1)
                done += 1
            if done == len(targets):
                return
            bend = len(self.owner)
            self.owner.append(source)
            self.layer.append(after)
            for neighbours in (self.up, self.down, self.load):
                neighbours.append([])
            self._wire(item, bend, len(targets) - done)
            item = bend

    def _wire(self, upper: int, lower: int, edges: int) -> None:
        self.down[upper].append(lower)
        self.load[upper].append(edges)
        self.up[lower].append(upper)


def _canonical(
    spec: tuple[str, str, tuple[str, ...]],
) -> tuple[list[str | int], str, str]:
    name, label, _ = spec
    pieces: list[str | int] = list(_DIGITS.split(label))
    pieces[1::2] = [int(piece) for piece in pieces[1::2]]
    return pieces, label, name


def _repeated(specs: Sequence[NodeSpec]) -> str:
    seen: set[str] = set()
    for name, _, _ in specs:
        if name in seen:
            return plain(name)
        seen.add(name)
    raise AssertionError("no id is repeated")


def _indices(spec: NodeSpec, index: Mapping[str, int]) -> tuple[int, ...]:
    name, _, needs = spec
    found: set[int] = set()
    for need in needs:
        at = index.get(need)
        if at is None:
            raise ValueError(
                f"unknown id: {plain(need)}, a dependency of {plain(name)}"
            )
        found.add(at)
    return tuple(sorted(found))


def _outs(deps: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    outs: list[list[int]] = [[] for _ in deps]
    for node, needs in enumerate(deps):
        for dep in needs:
            outs[dep].append(node)
    return tuple(map(tuple, outs))


def _layers(
    deps: Sequence[Sequence[int]], outs: Sequence[Sequence[int]]
) -> tuple[int, ...] | None:
    """Return the longest-path layers, or None where there is a cycle."""
    layer = [0] * len(deps)
    missing = [len(needs) for needs in deps]
    ready = [node for node, count in enumerate(missing) if not count]
    for node in ready:  # grows while it is read
        after = layer[node] + 1
        for out in outs[node]:
            layer[out] = max(layer[out], after)
            missing[out] -= 1
            if not missing[out]:
                ready.append(out)
    return tuple(layer) if len(ready) == len(deps) else None
