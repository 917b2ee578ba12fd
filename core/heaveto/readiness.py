"""What may start, what is skipped, and why: a graph's state without clock or loop.

:class:`Readiness` holds one :class:`Place` for each operation and moves it from
*waiting* to its end. It is told how an operation ended and answers through two
callbacks: ``on_end(place)`` for every end, also for those it decides itself (a skip, a
restored outcome), and ``on_ready(place)`` for what may start now. Everything is
synchronous, in a fixed order, and without recursion.

The rules (SPEC C-03..C-07, PRODUCT 5):

* an operation is looked at when all its heads have ended; it may start when it has no
  head or one of its paths is open;
* a path is closed when its head was skipped, was restored as failed, or when its
  condition says no; one whose head was cut off is neither open nor closed, and what has
  no other way stays unstarted;
* a gate that rejects, and a failure under ``skip``, skip everything that depends on
  them, directly or not, whatever other paths are open;
* under ``continue`` dependents run on the error and are *stale*, and so is what runs on
  their results.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

from heaveto.graph import Graph
from heaveto.model import TERMINAL_OPERATION, OnFailure, OperationStatus, Outcome
from heaveto.responses import failure, is_rejection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from heaveto.model import Edge, Node

__all__ = ["Place", "Readiness"]


class Place:
    """One operation while its graph runs.

    Attributes:
        node: The operation.
        missing: Heads that have not ended, counted by edges.
        status: Where it is now.
        outcome: How it ended; None before.
        invoked: Whether its worker was called.
        stale: Whether it runs on the result of a failure, directly or not.
        open_heads: The heads whose paths were open when it became ready.
        started_at: When it was invoked, in the executor's monotonic seconds.
    """

    __slots__ = (
        "invoked",
        "missing",
        "node",
        "open_heads",
        "outcome",
        "stale",
        "started_at",
        "status",
    )

    def __init__(self, node: Node, missing: int) -> None:
        """Begin as waiting."""
        self.node = node
        self.missing = missing
        self.status = OperationStatus.WAITING
        self.outcome: Outcome | None = None
        self.invoked = False
        self.stale = False
        self.open_heads: tuple[str, ...] = ()
        self.started_at: float | None = None

    @property
    def ended(self) -> bool:
        """Whether it has its outcome."""
        return self.status in TERMINAL_OPERATION

    @property
    def gives_result(self) -> bool:
        """Whether dependents get its response; a restored failure gives none."""
        if self.status is OperationStatus.FAILED:
            return self.node.restored is None
        return self.status is OperationStatus.COMPLETED

    @property
    def response(self) -> object:
        """What it answered, or its error; None before its end."""
        return None if self.outcome is None else self.outcome.response


class Readiness:
    """The places of a graph and the rules by which they move.

    Attributes:
        graph: Who depends on whom.
        failed_here: Whether an operation failed that was not restored as failed.
    """

    def __init__(
        self,
        operations: Sequence[Node],
        edges: Iterable[Edge],
        *,
        on_failure: OnFailure,
        context: Callable[[], Mapping[str, object]],
        on_end: Callable[[Place], None],
        on_ready: Callable[[Place], None],
    ) -> None:
        """Check the graph.

        Args:
            operations: In the order of the plan.
            edges: Who waits for whom.
            on_failure: What a failure means for dependents.
            context: Gives the shared context that a condition sees.
            on_end: Told of every end, in order.
            on_ready: Told of what may start; it is not told twice.

        Raises:
            FlowError: See :class:`~heaveto.graph.Graph`.
        """
        self.graph = Graph((node.id for node in operations), edges)
        self.failed_here = False
        self._places = {
            node.id: Place(node, len(self.graph.into(node.id))) for node in operations
        }
        self._on_failure = on_failure
        self._context = context
        self._on_end = on_end
        self._on_ready = on_ready
        self._settling: deque[Place] = deque()

    def __iter__(self) -> Iterator[Place]:
        """Go through the places in the order of the plan."""
        return iter(self._places.values())

    def heads(self, place: Place) -> list[Place]:
        """Return what an operation depends on."""
        return [self._places[key] for key in self.graph.heads(place.node.id)]

    def begin(self) -> None:
        """End what was restored and find what waits for nothing."""
        restored = [place for place in self if place.node.restored is not None]
        for place in restored:
            if place.node.restored is not None:
                self._end(place, place.node.restored)
        for place in restored:
            self._spread(place)
        for place in self:
            if place.missing == 0 and not place.ended:
                self._consider(place)
        self._settle()

    def end(self, place: Place, outcome: Outcome) -> None:
        """End an operation and let everything follow that follows from it."""
        self._end(place, outcome)
        self._spread(place)
        self._settle()

    def end_rest(self, outcome: Callable[[Place], Outcome]) -> None:
        """End everything that has not ended; nothing follows from it."""
        for place in self:
            if not place.ended:
                self._end(place, outcome(place))
        self._settling.clear()

    def _end(self, place: Place, outcome: Outcome) -> None:
        place.status = outcome.status
        place.outcome = outcome
        if outcome.status is OperationStatus.FAILED and place.node.restored is None:
            self.failed_here = True
        self._settling.append(place)
        self._on_end(place)

    def _settle(self) -> None:
        """Pass on what has ended, until nothing new follows from it."""
        while self._settling:
            ended = self._settling.popleft()
            for edge in self.graph.out(ended.node.id):
                tail = self._places[edge.tail]
                tail.missing -= 1
                if tail.missing == 0 and not tail.ended:
                    self._consider(tail)

    def _consider(self, place: Place) -> None:
        """Decide about an operation whose heads have all ended (SPEC C-03, C-04)."""
        edges = self.graph.into(place.node.id)
        try:
            opened = [edge.head for edge in edges if self._is_open(edge)]
        except Exception as error:  # a condition may be foreign code
            self._end(place, failure(place.node.id, error))
            self._spread(place)
            return
        if edges and not opened:
            if not self._undecided(edges):
                self._skip(place, self._why_closed(edges))
            return
        place.status = OperationStatus.QUEUED
        place.open_heads = tuple(dict.fromkeys(opened))
        place.stale = any(
            head.stale or head.status is OperationStatus.FAILED
            for head in self.heads(place)
            if head.gives_result
        )
        self._on_ready(place)

    def _is_open(self, edge: Edge) -> bool:
        head = self._places[edge.head]
        if not head.gives_result:
            return False
        if edge.condition is None:
            return True
        return bool(edge.condition.apply(head.response, self._context()))

    def _undecided(self, edges: Sequence[Edge]) -> bool:
        """Whether a head was cut off, which says nothing about its dependents."""
        heads = (self._places[edge.head] for edge in edges)
        return any(head.status is OperationStatus.CANCELLED for head in heads)

    def _why_closed(self, edges: Sequence[Edge]) -> dict[str, object]:
        """Name the head that best explains why every path is closed."""
        heads = [self._places[edge.head] for edge in edges]
        for head in heads:
            if head.gives_result:
                return _reason("condition_false", head)
        for head in heads:
            if head.status is OperationStatus.FAILED:
                return _reason("upstream_failed", head)
        return _reason("upstream_skipped", heads[0])

    def _spread(self, place: Place) -> None:
        """Veto what must not follow from an outcome."""
        failed = place.status is OperationStatus.FAILED
        if failed and self._on_failure is OnFailure.SKIP:
            self._veto(place, _reason("upstream_failed", place))
        elif place.outcome is not None and is_rejection(place.node, place.outcome):
            gate = {"gate_id": place.node.id, "gate_name": place.node.name}
            self._veto(place, {"code": "gate_rejected", **gate})

    def _veto(self, source: Place, reason: Mapping[str, object]) -> None:
        """Skip everything that depends on an operation, directly or not."""
        queue = deque([source])
        while queue:
            for edge in self.graph.out(queue.popleft().node.id):
                tail = self._places[edge.tail]
                if not tail.ended:
                    self._skip(tail, reason)
                    queue.append(tail)

    def _skip(self, place: Place, reason: Mapping[str, object]) -> None:
        self._end(
            place,
            Outcome(
                operation_id=place.node.id,
                status=OperationStatus.SKIPPED,
                reason=reason,
            ),
        )


def _reason(code: str, place: Place) -> dict[str, object]:
    return {"code": code, "operation_id": place.node.id, "name": place.node.name}
