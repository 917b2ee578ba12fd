"""Operations as a tree of rows, each under the dependency it waits for last.

The order is a function of the graph alone, never of time, so that no row moves while
the flow only goes on. Among several dependencies the one that lies deepest is the
parent, of equals the last announced; the others are told by a count. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from heaveto.model import OperationStatus as Status
from heaveto.model import Origin
from heaveto_tui.presentation import is_unsaved

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from heaveto.observe.snapshot import OperationView, RunDetail

__all__ = [
    "Blocking",
    "Outline",
    "OutlineRow",
    "above",
    "blocking",
    "branch_end",
    "folded",
    "note",
    "outline",
    "signature",
    "skipped_because",
]

_MAX_GUIDE = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlineRow:
    """One operation in the tree.

    Attributes:
        operation: What stands there.
        guide: The lines that lead to it, two cells a level.
        depth: How deep it lies, also where the guide has been cut.
        chain: It lies on the longest chain.
        dependencies: How many operations it depends on.
        hidden: How many rows below it are folded away.
    """

    operation: OperationView
    guide: str
    depth: int
    chain: bool
    dependencies: int
    hidden: int = 0


@dataclass(frozen=True, slots=True)
class Outline:
    """The tree of one run.

    Attributes:
        rows: In the order they are drawn.
        signature: What decides the order; equal signatures draw equal trees.
    """

    rows: tuple[OutlineRow, ...]
    signature: tuple[object, ...] = field(default=())


def signature(operations: Sequence[OperationView]) -> tuple[object, ...]:
    """Return what the order of a tree depends on: ids and dependencies."""
    return tuple((each.id, each.depends_on) for each in operations)


def outline(detail: RunDetail) -> Outline:
    """Return the tree of a run's operations."""
    operations = detail.operations
    depths = _depths(operations)
    parents, children = _tree(operations, depths)
    chain = _longest_chain(operations, depths)
    by_id = {each.id: each for each in operations}
    rows: list[OutlineRow] = []
    stack: list[tuple[str, str, str, int]] = [
        (each.id, "", "", 0)
        for each in reversed(operations)
        if parents[each.id] is None
    ]
    while stack:
        identifier, lead, below, depth = stack.pop()
        operation = by_id[identifier]
        rows.append(
            OutlineRow(
                operation=operation,
                guide=_cut(lead),
                depth=depth,
                chain=identifier in chain,
                dependencies=len(operation.depends_on),
            )
        )
        for index, child in enumerate(reversed(children[identifier])):
            last = index == 0
            stack.append(
                (
                    child,
                    below + ("└ " if last else "├ "),
                    below + ("  " if last else "│ "),
                    depth + 1,
                )
            )
    return Outline(tuple(rows), signature(detail.operations))


def folded(rows: Sequence[OutlineRow], closed: Collection[str]) -> list[OutlineRow]:
    """Return the rows in view while some branches are folded.

    Args:
        rows: A tree's.
        closed: The operations whose branches are folded.
    """
    found: list[OutlineRow] = []
    at = 0
    while at < len(rows):
        row, end = rows[at], at + 1
        if row.operation.id in closed:
            end = branch_end(rows, at)
        found.append(row if end == at + 1 else replace(row, hidden=end - at - 1))
        at = end
    return found


def branch_end(rows: Sequence[OutlineRow], at: int) -> int:
    """Return the place after the last row below a row."""
    depth = rows[at].depth
    end = at + 1
    while end < len(rows) and rows[end].depth > depth:
        end += 1
    return end


def above(rows: Sequence[OutlineRow], identifier: str) -> list[str]:
    """Return the operations under which a row stands, the nearest first."""
    place = next(
        (n for n, row in enumerate(rows) if row.operation.id == identifier), None
    )
    if place is None:
        return []
    found: list[str] = []
    depth = rows[place].depth
    for row in rows[:place][::-1]:
        if row.depth < depth:
            depth = row.depth
            found.append(row.operation.id)
    return found


def _cut(guide: str) -> str:
    """Keep the near end of a guide that is too long for the column."""
    if len(guide) <= _MAX_GUIDE:
        return guide
    return "» " + guide[-(_MAX_GUIDE - 2) :]


def _depths(operations: Sequence[OperationView]) -> dict[str, int]:
    """Return each operation's distance from the roots, without recursion.

    Edges to unknown operations do not count; a cycle, which no engine writes but a
    damaged file may hold, ends where it closes.
    """
    known = {each.id: each for each in operations}
    depths: dict[str, int] = {}
    for start in known:
        path = [start]
        open_ids = {start}
        while path:
            current = path[-1]
            missing = [
                head
                for head in known[current].depends_on
                if head in known and head not in depths and head not in open_ids
            ]
            if missing:
                path.append(missing[0])
                open_ids.add(missing[0])
                continue
            heads = [
                depths[head] for head in known[current].depends_on if head in depths
            ]
            depths[current] = max(heads, default=-1) + 1
            open_ids.discard(path.pop())
    return depths


def _tree(
    operations: Sequence[OperationView], depths: dict[str, int]
) -> tuple[dict[str, str | None], dict[str, list[str]]]:
    """Choose each operation's place in the tree."""
    parents: dict[str, str | None] = {}
    children: dict[str, list[str]] = {each.id: [] for each in operations}
    for each in operations:
        heads = [
            head for head in each.depends_on if depths.get(head, -1) < depths[each.id]
        ]
        heads = [head for head in heads if head in depths]
        parent = max(heads, key=lambda head: depths[head], default=None)
        if parent is not None:
            deepest = depths[parent]
            parent = [head for head in heads if depths[head] == deepest][-1]
            children[parent].append(each.id)
        parents[each.id] = parent
    return parents, children


def _longest_chain(
    operations: Sequence[OperationView], depths: dict[str, int]
) -> frozenset[str]:
    """Return the ids of the chain that decides when the flow ends.

    Ended operations weigh what they took, the others the mean of those; so the chain
    moves only when an operation ends.
    """
    took = {
        each.id: max(0.0, each.ended_at - each.started_at)
        for each in operations
        if each.started_at is not None and each.ended_at is not None
    }
    mean = sum(took.values()) / len(took) if took else 1.0
    best: dict[str, tuple[float, str | None]] = {}
    for each in sorted(operations, key=lambda one: depths[one.id]):
        before = [
            (best[head][0], head)
            for head in each.depends_on
            if head in best and depths[head] < depths[each.id]
        ]
        length, head = max(before, default=(0.0, None))
        best[each.id] = (length + took.get(each.id, mean), head)
    if not best:
        return frozenset()
    current: str | None = max(best, key=lambda identifier: best[identifier][0])
    chain: list[str] = []
    while current is not None:
        chain.append(current)
        current = best[current][1]
    return frozenset(chain) if len(chain) > 1 else frozenset()


# --- what blocks what


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocking:
    """What an operation waits for and what waits for it.

    Attributes:
        needs: Its dependencies.
        open_needs: Those of them that have not ended.
        blocks: What depends on it directly.
        rest_on: Everything that depends on it, directly or not.
    """

    needs: tuple[OperationView, ...]
    open_needs: tuple[OperationView, ...]
    blocks: tuple[OperationView, ...]
    rest_on: int


_ENDED = frozenset(
    {
        Status.COMPLETED,
        Status.FAILED,
        Status.SKIPPED,
        Status.CANCELLED,
        Status.ESCALATED,
        Status.PENDING,
        Status.LOST,
    }
)


def blocking(operations: Iterable[OperationView], identifier: str) -> Blocking:
    """Return what blocks an operation and what it blocks."""
    every = {each.id: each for each in operations}
    needs = tuple(every[head] for head in every[identifier].depends_on if head in every)
    tails: dict[str, list[str]] = {}
    for each in every.values():
        for head in each.depends_on:
            tails.setdefault(head, []).append(each.id)
    seen: set[str] = set()
    queue = list(tails.get(identifier, ()))
    while queue:
        current = queue.pop()
        if current in seen or current == identifier:
            continue
        seen.add(current)
        queue.extend(tails.get(current, ()))
    return Blocking(
        needs=needs,
        open_needs=tuple(each for each in needs if each.status not in _ENDED),
        blocks=tuple(every[tail] for tail in tails.get(identifier, ())),
        rest_on=len(seen),
    )


def note(operation: OperationView, detail: RunDetail, *, over: bool) -> str:
    """Return the NOTE of a row: the one thing worth knowing about an operation.

    The text may come from a run; whoever draws it sanitises it.
    """
    if operation.status in _BY_STATUS:
        return _BY_STATUS[operation.status]
    match operation.status:
        case Status.FAILED:
            return (operation.error_text or operation.error_code or "").strip()
        case Status.WAITING:
            return _waits(operation, detail)
        case Status.COMPLETED:
            return _done_note(operation, detail, over=over)
        case Status.SKIPPED:
            return skipped_because(operation, detail)
        case Status.RUNNING:
            return _origin_note(operation, detail)
        case _:
            return ""


_BY_STATUS = {
    Status.QUEUED: "ready, no free slot",
    Status.PAUSED: "waits for your resume",
    Status.ESCALATED: "asked a higher tier",
    Status.PENDING: "held back, runs after a recovery",
    Status.LOST: "was running when the process ended",
    Status.UNSTARTED: "never began in this run",
}


_CAUSES = {
    "upstream_failed": (Status.FAILED, "failed"),
    "upstream_cancelled": (Status.CANCELLED, "was cancelled"),
    "upstream_skipped": (Status.SKIPPED, "was skipped"),
    "gate_rejected": (Status.COMPLETED, "said no"),
}


def skipped_because(operation: OperationView, detail: RunDetail) -> str:
    """Return why an operation was skipped, with the name of what was to blame."""
    code = operation.reason or ""
    if code == "condition_false":
        return "its condition was not met"
    status, verb = _CAUSES.get(code, (None, ""))
    by_id = {each.id: each for each in detail.operations}
    queue = list(operation.depends_on)
    seen: set[str] = set()
    while queue and status is not None:
        head = by_id.get(queue.pop(0))
        if head is None or head.id in seen:
            continue
        seen.add(head.id)
        if head.status is status:
            return f"{head.name} {verb}"
        queue.extend(head.depends_on)
    return code.replace("_", " ")


def _waits(operation: OperationView, detail: RunDetail) -> str:
    """Tell whom a waiting operation waits for."""
    waits = [
        each
        for each in detail.operations
        if each.id in operation.depends_on and each.status not in _ENDED
    ]
    if len(waits) == 1:
        return f"waits for {waits[0].name}"
    if waits:
        return f"waits for {len(waits)} operations"
    return "waits"


def _done_note(operation: OperationView, detail: RunDetail, *, over: bool) -> str:
    """Tell what is still open about a finished operation."""
    if operation.stale:
        return "ran on a failed input"
    if is_unsaved(operation):
        return "never saved" if over else "finished, not saved"
    return _origin_note(operation, detail)


def _origin_note(operation: OperationView, detail: RunDetail) -> str:
    """Tell where an operation that was not planned comes from."""
    if operation.origin is Origin.PLANNED:
        return ""
    kinds = {Origin.SPAWNED: "spawn", Origin.RETRY: "escalation"}
    kind = kinds.get(operation.origin)
    for link in detail.links:
        if link.kind == kind and link.tail == operation.id:
            head = next(
                (each.name for each in detail.operations if each.id == link.head), None
            )
            if head is not None:
                return (
                    f"spawned by {head}"
                    if operation.origin is Origin.SPAWNED
                    else f"in place of {head}"
                )
    return {Origin.SYNTHESIS: "writes the summary"}.get(
        operation.origin, operation.origin.value
    )
