"""``run --dry-run``: what would run, in order; nothing is created or started."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from heaveto.cli.exits import Exit
from heaveto.graph import Graph
from heaveto.model import OperationStatus, Origin, RunState
from heaveto.observe.snapshot import (
    LinkView,
    OperationView,
    RunDetail,
    RunSummary,
)
from heaveto.text import clip, duration, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heaveto.cli.scope import Scope
    from heaveto.flowfile import Flow
    from heaveto.model import Edge, Node
    from heaveto.runner import Options

__all__ = ["describe", "flow_detail"]


def describe(scope: Scope, flow: Flow, options: Options) -> int:
    """Print what a run of the flow would do."""
    nodes, edges = flow.graph()
    if scope.output.json:
        home = scope.writing_home()
        detail = flow_detail(flow, str(home.path))
        scope.output.answer({**detail.as_dict(), "run_id": None, "session_id": None})
    else:
        for line in _lines(flow, options, nodes, edges):
            scope.output.line(line)
    return Exit.OK


def flow_detail(flow: Flow, home: str) -> RunDetail:
    """Return the flow in the shape of a run of which nothing has begun."""
    nodes, edges = flow.graph()
    heads: dict[str, list[str]] = {node.id: [] for node in nodes}
    for edge in edges:
        heads[edge.tail].append(edge.head)
    return RunDetail(
        run=RunSummary(
            run_id="",
            session_id="",
            home=home,
            source="heaveto",
            name=flow.name,
            status=None,
            state=RunState.PLANNING,
            reason_code=None,
            phase=None,
            alive=None,
            status_source="process",
            observed_at=time.time(),
            confidence="sure",
            nodes={"total": len(nodes), "waiting": len(nodes)},
            checkpoint=None,
            generation_dir=None,
            started_at=None,
            ended_at=None,
            deadline_at=None,
            resumed_from=None,
            superseded_by=None,
        ),
        operations=tuple(_operation(node, tuple(heads[node.id])) for node in nodes),
        edges=tuple((edge.head, edge.tail) for edge in edges),
        links=tuple(
            LinkView(
                head=edge.head,
                tail=edge.tail,
                kind="depends",
                condition=edge.text,
                active=True,
            )
            for edge in edges
        ),
    )


def _operation(node: Node, heads: tuple[str, ...]) -> OperationView:
    """Return one operation that waits."""
    return OperationView(
        id=node.id,
        name=node.name,
        assignee=node.assignee,
        status=OperationStatus.WAITING,
        status_source="process",
        depends_on=heads,
        origin=Origin.PLANNED,
        stale=False,
        executed=False,
        persisted=None,
        started_at=None,
        ended_at=None,
    )


def _lines(
    flow: Flow, options: Options, nodes: tuple[Node, ...], edges: tuple[Edge, ...]
) -> Iterator[str]:
    """Yield the flow as text: settings, workers, operations in an order that works."""
    limit = options.max_concurrent
    limit = flow.max_concurrent if limit is None else limit
    yield f"{plain(flow.name)}: {len(nodes)} operations, nothing is started"
    yield f"at a time   {limit or 'all that are ready'}"
    yield f"on failure  {options.on_failure or flow.on_failure}"
    yield f"checkpoint  version {options.checkpoint_format}"
    yield ""
    names = {node.id: node.name for node in nodes}
    graph = Graph(names, edges)
    texts = {(edge.head, edge.tail): edge.text for edge in edges}
    by_id = {node.id: node for node in nodes}
    for at, key in enumerate(_in_order(graph), 1):
        node = by_id[key]
        spec = flow.workers[node.assignee]
        yield f"{at}. {node.name}" + (" (gate)" if node.gate else "")
        yield f"   worker  {node.assignee}: {clip(plain(spec.summary), 60)}"
        if spec.timeout is not None:
            yield f"   limit   {duration(spec.timeout)}"
        for head in graph.heads(key):
            when = texts[(head, key)]
            yield f"   needs   {names[head]}" + (f" when {when}" if when else "")


def _in_order(graph: Graph) -> list[str]:
    """Return the ids so that each stands after what it waits for."""
    left = {key: len(graph.heads(key)) for key in graph.ids}
    ready = [key for key in graph.ids if not left[key]]
    order: list[str] = []
    while ready:
        key = ready.pop(0)
        order.append(key)
        for tail in dict.fromkeys(edge.tail for edge in graph.out(key)):
            left[tail] -= 1
            if not left[tail]:
                ready.append(tail)
    return order
