"""Which operation waits for which: a checked, ordered view of operations and edges.

Pure and free of recursion, so that a chain of ten thousand operations is as good as
three. Ids are opaque; the order of everything is the order in which the operations and
edges were given.
"""

from __future__ import annotations

import inspect
from collections import deque
from typing import TYPE_CHECKING

from heaveto.errors import FlowError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from heaveto.model import Edge

__all__ = ["Graph", "find_cycle"]


class Graph:
    """Operations and their dependencies, checked when they are put in.

    Attributes:
        ids: Every id, in the given order.
    """

    def __init__(self, ids: Iterable[str], edges: Iterable[Edge] = ()) -> None:
        """Check and index the graph (SPEC C-01, C-02).

        Raises:
            FlowError: An id twice, an edge to an unknown id, a condition that cannot
                be asked, or a cycle. Its message names ids alone.
        """
        self.ids = tuple(ids)
        self._into: dict[str, list[Edge]] = {key: [] for key in self.ids}
        self._out: dict[str, list[Edge]] = {key: [] for key in self.ids}
        if len(self._into) != len(self.ids):
            raise FlowError("an operation id occurs twice", code="duplicate_id")
        for edge in edges:
            self._connect(edge)
        cycle = find_cycle({key: self.heads(key) for key in self.ids})
        if cycle:
            raise FlowError(f"cycle: {' -> '.join(cycle)}", code="cycle")

    def _connect(self, edge: Edge) -> None:
        for end in (edge.head, edge.tail):
            if end not in self._into:
                raise FlowError(
                    f"an edge names an unknown operation: {end}", code="unknown_id"
                )
        apply = getattr(edge.condition, "apply", None)
        if edge.condition is not None and not callable(apply):
            raise FlowError(
                f"the condition of {edge.head} -> {edge.tail} has no apply method",
                code="bad_condition",
            )
        if inspect.iscoroutinefunction(apply):
            raise FlowError(
                f"the condition of {edge.head} -> {edge.tail} must not be asynchronous",
                code="bad_condition",
            )
        self._into[edge.tail].append(edge)
        self._out[edge.head].append(edge)

    def into(self, key: str) -> Sequence[Edge]:
        """Return the edges by which an operation depends on others."""
        return self._into[key]

    def out(self, key: str) -> Sequence[Edge]:
        """Return the edges by which others depend on an operation."""
        return self._out[key]

    def heads(self, key: str) -> tuple[str, ...]:
        """Return what an operation depends on, each once."""
        return tuple(dict.fromkeys(edge.head for edge in self._into[key]))

    def descendants(self, key: str) -> list[str]:
        """Return everything that depends on an operation, directly or not."""
        found: dict[str, None] = {}
        queue = deque([key])
        while queue:
            for edge in self._out[queue.popleft()]:
                if edge.tail not in found:
                    found[edge.tail] = None
                    queue.append(edge.tail)
        return list(found)


def find_cycle(heads: dict[str, tuple[str, ...]]) -> list[str]:
    """Return one cycle as ids, the first repeated at the end; empty when there is none.

    Args:
        heads: What each id depends on; ids that are no keys are left out.
    """
    left = {key: {h for h in of if h in heads} for key, of in heads.items()}
    tails: dict[str, list[str]] = {key: [] for key in heads}
    for key, of in left.items():
        for head in of:
            tails[head].append(key)
    free = deque(key for key, of in left.items() if not of)
    while free:
        done = free.popleft()
        del left[done]
        for tail in tails[done]:
            left[tail].discard(done)
            if not left[tail]:
                free.append(tail)
    if not left:
        return []
    return _walk_back({key: next(h for h in heads[key] if h in left) for key in left})


def _walk_back(head_of: dict[str, str]) -> list[str]:
    """Follow one head each until an id repeats; give the loop in running order."""
    here = next(iter(head_of))
    seen: dict[str, None] = {}
    while here not in seen:
        seen[here] = None
        here = head_of[here]
    trail = list(seen)
    loop = trail[trail.index(here) :]
    return [here, *reversed(loop)]
