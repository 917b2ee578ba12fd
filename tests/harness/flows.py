"""Graphs whose operations do nothing until a test says so, and a record of signals."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from heaveto.executor import DependencyAwareExecutor
from heaveto.model import Edge, Node, SignalKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from heaveto.model import Condition, Prepared, Signal

__all__ = ["TERMINAL", "Hands", "Record", "edge", "executor", "node", "settle"]

TERMINAL = {
    SignalKind.COMPLETED,
    SignalKind.FAILED,
    SignalKind.SKIPPED,
    SignalKind.CANCELLED,
}


async def settle() -> None:
    """Let everything happen that needs nothing from outside the loop."""
    for _ in range(50):
        await asyncio.sleep(0)


def node(name: str, **more: Any) -> Node:
    """Make an operation whose id is its name."""
    return Node(id=name, name=name, assignee="w", instruction=f"do {name}", **more)


def edge(head: str, tail: str, condition: Condition | None = None) -> Edge:
    """Make a dependency of ``tail`` on ``head``."""
    return Edge(head=head, tail=tail, condition=condition)


class Record:
    """Every signal, in order."""

    def __init__(self) -> None:
        self.signals: list[Signal] = []

    def __call__(self, signal: Signal) -> None:
        self.signals.append(signal)

    def of(self, kind: SignalKind) -> list[str]:
        """The operations that had a signal of a kind, in order."""
        return [one.name for one in self.signals if one.kind is kind]

    def ends(self) -> Counter[str]:
        """How many terminal signals each operation had."""
        return Counter(one.name for one in self.signals if one.kind in TERMINAL)

    def data(self, name: str, kind: SignalKind) -> dict[str, Any]:
        """What the last signal of a kind said about an operation."""
        found = [s for s in self.signals if s.name == name and s.kind is kind]
        return dict(found[-1].data)

    def trace(self, name: str) -> list[str]:
        """The kinds of signals of one operation."""
        return [one.kind.value for one in self.signals if one.name == name]


class Hands:
    """A worker whose every call waits until the test ends it."""

    def __init__(self) -> None:
        self.calls: list[Prepared] = []
        self._waiting: dict[str, asyncio.Future[object]] = {}

    async def __call__(self, prepared: Prepared) -> object:
        self.calls.append(prepared)
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._waiting[prepared.node.name] = future
        try:
            return await future
        finally:
            del self._waiting[prepared.node.name]

    @property
    def started(self) -> list[str]:
        """Every call so far, in order."""
        return [call.node.name for call in self.calls]

    @property
    def busy(self) -> list[str]:
        """The calls that have not ended."""
        return list(self._waiting)

    def call(self, name: str) -> Prepared:
        """What an operation was called with."""
        return next(call for call in self.calls if call.node.name == name)

    async def finish(self, *names: str, response: object = "ok") -> None:
        """Let calls return."""
        for name in names:
            self._waiting[name].set_result(response)
        await settle()

    async def fail(self, name: str, error: Exception | None = None) -> None:
        """Let a call raise."""
        self._waiting[name].set_exception(error or ValueError("no"))
        await settle()


def executor(
    nodes: Iterable[Node | str],
    edges: Iterable[Edge | tuple[str, str]] = (),
    **more: Any,
) -> tuple[DependencyAwareExecutor, Hands, Record]:
    """Make an executor with hands and a record."""
    hands, record = Hands(), Record()
    more = {"invoke": hands, "on_signal": record, **more}
    made = DependencyAwareExecutor(
        [one if isinstance(one, Node) else node(one) for one in nodes],
        [one if isinstance(one, Edge) else edge(*one) for one in edges],
        **more,
    )
    return made, hands, record
