"""What a run came to (PRODUCT 3): pure.

Failed if an operation ended failed; else cancelled or aborted if something that should
have run was withheld or cut off; else completed. What was skipped, or kept back by a
gate, does not change the status and is in the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from heaveto.model import RunStatus

if TYPE_CHECKING:
    from heaveto.executor import Result
    from heaveto.runner.ending import Cause

__all__ = ["Verdict", "judge"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The terminal status of a run and why, for programs and for people."""

    status: RunStatus
    reason_code: str
    summary: str


def judge(result: Result, *, cause: Cause | None, gates: bool = False) -> Verdict:
    """Return what a run came to.

    Args:
        result: How its graph ended.
        cause: What ended it from outside, None when nothing did.
        gates: Whether a gate rejected something.
    """
    if result.failed:
        count = len(result.failed)
        text = f"{count} {'operation' if count == 1 else 'operations'} failed"
        return Verdict(RunStatus.FAILED, "run.failed.operation", text)
    left = len(result.withheld) + len(result.cancelled)
    if left:
        return _withheld(result, cause, left)
    if gates:
        return Verdict(
            RunStatus.COMPLETED, "run.completed.gate_rejected", "a gate said no"
        )
    if result.skipped:
        text = f"{len(result.skipped)} skipped"
        return Verdict(RunStatus.COMPLETED, "run.completed.skipped", text)
    return Verdict(RunStatus.COMPLETED, "run.completed", "")


def _withheld(result: Result, cause: Cause | None, left: int) -> Verdict:
    """Return the verdict of a run that was kept from doing all of its work."""
    text = f"{left} not done"
    if cause is not None:
        return Verdict(cause.status, cause.reason_code, text)
    if result.closed_by == "stop":
        return Verdict(RunStatus.CANCELLED, "run.cancelled.stop", text)
    return Verdict(RunStatus.CANCELLED, "run.cancelled.withheld", text)
