"""Runs made from stored plans, for the views that draw a flow."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.dag_trace import golden
from harness.worlds import NOW, detail, operation, summary
from heaveto.model import OperationStatus as Op
from heaveto.model import RunState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from heaveto.observe.snapshot import RunDetail

__all__ = ["changed", "planned"]


def planned(size: int, seed: int = 1, *, of: int | None = None) -> RunDetail:
    """Return a run of a stored plan: the first half is done, the next one runs.

    Args:
        size: Operations; of a larger stored plan, its first ones.
        seed: Which plan.
        of: The size of the stored plan, by default ``size``.
    """
    nodes = golden(of or size, seed)[:size]
    operations = []
    for at, (name, label, deps) in enumerate(nodes):
        status, started = Op.WAITING, None
        if at < size // 2:
            status, started = Op.COMPLETED, float(size - at)
        elif at == size // 2:
            status, started = Op.RUNNING, 1.0
        one = operation(label, status, started=started)
        operations.append(replace(one, id=name, depends_on=tuple(deps)))
    return detail(
        summary("0ddba11a", f"plan of {size}", RunState.EXECUTING), operations
    )


def changed(found: RunDetail, statuses: Mapping[str, Op]) -> RunDetail:
    """Return a run in which some operations have another status, by id."""
    return replace(
        found,
        operations=tuple(
            replace(
                each,
                status=statuses[each.id],
                started_at=each.started_at or NOW - 1,
                ended_at=None if statuses[each.id] is Op.RUNNING else NOW,
            )
            if each.id in statuses
            else each
            for each in found.operations
        ),
    )
