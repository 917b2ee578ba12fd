"""What the picture views draw from: a run's operations as a plan for the layout. Pure.

A plan changes only when an operation is added or a dependency moves, not when a status
does; so a view lays out when plans differ and otherwise repaints single cells.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from heaveto.cli.graphs import arrows
from heaveto_tui.dag_layout import break_cycles
from heaveto_tui.presentation import operation_face

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from heaveto.observe.snapshot import OperationView, RunDetail
    from heaveto_tui.dag_layout import Drawing
    from heaveto_tui.lines import Look
    from heaveto_tui.presentation import Face

__all__ = [
    "INLINE",
    "ON_REQUEST",
    "Plan",
    "State",
    "additions",
    "grid_of",
    "plan_key",
    "plan_of",
    "state_of",
    "step_on_grid",
    "with_additions",
]

INLINE = 100
"""Up to so many operations are laid out at once; more of them in a thread."""
ON_REQUEST = 400
"""Above so many operations the canvas is drawn only for those who ask twice."""
_AT_ONCE = 12
"""So many new operations are fitted in; more of them are laid out afresh."""

Node = tuple[str, str, tuple[str, ...]]


class Plan(NamedTuple):
    """Operations as the layout wants them."""

    nodes: tuple[Node, ...]
    """Id, inert label, ids it depends on."""
    kinds: Mapping[tuple[str, str], str]
    """The edges ``(from, to)`` that are no plain dependencies."""
    dropped: tuple[tuple[str, str], ...]
    """Edges of a damaged plan that cannot be drawn."""


class State(NamedTuple):
    """What a node shows beside its name."""

    glyph: str
    role: str
    mark: str
    """``!`` where it ran on a failed input, else a blank."""


def plan_key(detail: RunDetail) -> Hashable:
    """Return what a plan depends on; equal keys make equal plans."""
    return (
        tuple((each.id, each.name, each.depends_on) for each in detail.operations),
        detail.links,
    )


def plan_of(detail: RunDetail, look: Look) -> Plan:
    """Return the plan of a run; cycles in it are broken."""
    nodes, dropped = break_cycles(
        (each.id, look.plain(each.name), each.depends_on) for each in detail.operations
    )
    known = {name for name, _, _ in nodes}
    gone = {edge for edge in dropped if edge[0] in known}
    kinds = {
        (arrow.head, arrow.tail): arrow.kind
        for arrow in arrows(detail)
        if arrow.kind != "depends" and (arrow.head, arrow.tail) not in gone
    }
    return Plan(
        tuple((name, label, tuple(deps)) for name, label, deps in nodes),
        kinds,
        tuple(edge for edge in dropped if edge[0] in known),
    )


def state_of(operation: OperationView) -> State:
    """Return what the node of an operation shows."""
    return _state(operation_face(operation), operation.stale)


@cache
def _state(face: Face, stale: bool) -> State:
    return State(face.glyph, face.role, "!" if stale else " ")


def additions(old: Plan, new: Plan) -> list[Node] | None:
    """Return the nodes by which a plan has grown, or None if it changed otherwise.

    Each stands behind what it depends on. Many new ones are no growth either.
    """
    before = {node[0]: node for node in old.nodes}
    more: list[Node] = []
    same = 0
    for node in new.nodes:
        if node[0] not in before:
            more.append(node)
        elif before[node[0]] == node:
            same += 1
        else:
            return None
    if same != len(before) or len(more) > _AT_ONCE:
        return None
    kinds = {edge: kind for edge, kind in new.kinds.items() if edge[1] in before}
    if kinds != dict(old.kinds):
        return None
    return _in_order(more, set(before))


def _in_order(nodes: Sequence[Node], there: set[str]) -> list[Node]:
    """Return nodes so that each stands behind what it depends on."""
    left, order = list(nodes), []
    while left:
        ready = [node for node in left if there.issuperset(node[2])]
        if not ready:
            break
        order += ready
        there.update(node[0] for node in ready)
        left = [node for node in left if node not in ready]
    return order


def with_additions(drawing: Drawing, nodes: Iterable[Node], plan: Plan) -> Drawing:
    """Return a drawing with some more nodes, in which hardly anything has moved."""
    for node in nodes:
        edges = {(dep, node[0]) for dep in node[2]}
        kinds = {edge: kind for edge, kind in plan.kinds.items() if edge in edges}
        drawing = drawing.with_node(node, kinds)
    return drawing


def grid_of(plan: Plan) -> tuple[tuple[str, ...], ...]:
    """Return the ids by steps of the flow, without a layout: each as early as it can.

    Within a step they stand as in the plan.
    """
    deps = {name: needs for name, _, needs in plan.nodes}
    steps: dict[str, int] = {}
    for root in deps:
        stack = [root]
        while stack:
            name = stack[-1]
            if name in steps:
                stack.pop()
                continue
            missing = [need for need in deps[name] if need not in steps]
            if missing:
                stack += missing
                continue
            steps[name] = max((steps[need] for need in deps[name]), default=-1) + 1
            stack.pop()
    columns: list[list[str]] = [[] for _ in range(max(steps.values(), default=-1) + 1)]
    for name in deps:
        columns[steps[name]].append(name)
    return tuple(tuple(column) for column in columns)


def step_on_grid(
    grid: Sequence[Sequence[str]], name: str, *, along: int = 0, across: int = 0
) -> str | None:
    """Return the neighbour on the grid, or None at its end."""
    at = next((x for x, column in enumerate(grid) if name in column), None)
    if at is None:
        return None
    row = grid[at].index(name)
    if across:
        row += across
        return grid[at][row] if 0 <= row < len(grid[at]) else None
    at += along
    if not 0 <= at < len(grid):
        return None
    return grid[at][min(row, len(grid[at]) - 1)]
