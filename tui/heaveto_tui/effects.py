"""What a control would do, said before it is sent.

Each function takes a run as it stands and returns sentences: which operations go on,
which will wait, what is for good. They hold names of operations and no other content.
Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heaveto.model import OperationStatus as Status
from heaveto.model import RunState
from heaveto.text import duration

if TYPE_CHECKING:
    from collections.abc import Iterable

    from heaveto.observe.snapshot import OperationView, RunDetail, RunSummary
    from heaveto_tui.lines import Look

__all__ = [
    "latency",
    "message_effect",
    "names",
    "next_to_start",
    "pause_effect",
    "plural",
    "resume_effect",
    "stop_effect",
]

_AHEAD = (Status.PAUSED, Status.QUEUED, Status.WAITING)


def plural(count: int, word: str) -> str:
    """Return ``1 operation`` or ``2 operations``."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def names(operations: Iterable[OperationView], look: Look, most: int = 4) -> str:
    """Return operation names in a row: ``a, b and 3 more``."""
    listed = [look.plain(operation.name) for operation in operations]
    if len(listed) <= most:
        return ", ".join(listed)
    return f"{', '.join(listed[: most - 1])} and {len(listed) - most + 1} more"


def _of(detail: RunDetail, *statuses: Status) -> list[OperationView]:
    return [each for each in detail.operations if each.status in statuses]


def latency(run: RunSummary) -> str:
    """Return when a control is noticed, by whom it is sent to (PRODUCT 6.1)."""
    if run.source == "lionagi":
        return "lionagi looks every 2s."
    return "It is noticed within a second, at the latest after 2s."


def _limit(run: RunSummary, now: float) -> str:
    """Return what a pause means for the deadline."""
    if run.deadline_at is None:
        return "This run has no time limit."
    return f"The time limit keeps counting: {duration(run.deadline_at - now)} left."


def pause_effect(detail: RunDetail, now: float, look: Look) -> list[str]:
    """Say what goes on, what will wait, and what the clock does meanwhile."""
    running = _of(detail, Status.RUNNING)
    ahead = _of(detail, *_AHEAD)
    lines = []
    if running:
        lines.append(
            f"{plural(len(running), 'running operation')} will finish: "
            f"{names(running, look)}. After that nothing new starts."
        )
    else:
        lines.append("Nothing runs right now. Nothing new will start.")
    if ahead:
        verb = "waits" if len(ahead) == 1 else "wait"
        lines.append(f"{names(ahead, look)} {verb} until you resume.")
    lines.append(f"{latency(detail.run)} {_limit(detail.run, now)}")
    return lines


def resume_effect(detail: RunDetail, look: Look) -> list[str]:
    """Say what starts at once and what follows."""
    held = _of(detail, Status.PAUSED)
    waiting = _of(detail, Status.WAITING, Status.QUEUED)
    lines = []
    if held:
        verb = "starts" if len(held) == 1 else "start"
        lines.append(f"{names(held, look)} {verb} at once, as far as slots are free.")
    else:
        lines.append("Nothing waits at the pause yet; what becomes ready will start.")
    if waiting:
        lines.append(
            f"Then {names(waiting, look)}, when what {_it(waiting)} for is done."
        )
    lines.append(latency(detail.run))
    return lines


def _it(operations: list[OperationView]) -> str:
    return "it waits" if len(operations) == 1 else "they wait"


def stop_effect(detail: RunDetail, look: Look) -> list[tuple[str, str]]:
    """Return rows of count and sentence: what finishes and what never starts."""
    rows: list[tuple[str, str]] = []
    for statuses, word, fate in (
        ((Status.RUNNING,), "running", "{they} {finish} and {are} saved"),
        ((Status.PAUSED,), "paused", "will not start"),
        ((Status.QUEUED, Status.WAITING), "queued", "will not start"),
    ):
        found = _of(detail, *statuses)
        if found:
            one = len(found) == 1
            sentence = fate.format(
                they="it" if one else "they",
                finish="finishes" if one else "finish",
                are="is" if one else "are",
            )
            who = names(found, look, 3)
            rows.append((f"{len(found)} {word}", f"{who}: {sentence}"))
    rows.append(("then", "the run ends as cancelled (exit 143)"))
    return rows


def next_to_start(detail: RunDetail) -> OperationView | None:
    """Return the operation that will most likely read the next message."""
    for statuses in ((Status.PAUSED,), (Status.QUEUED,), (Status.WAITING,)):
        found = _of(detail, *statuses)
        if found:
            return found[0]
    return None


def message_effect(detail: RunDetail, look: Look) -> list[str]:
    """Say who will read a message, and that only one operation does."""
    first = "It goes to the next operation that starts, and only to that one."
    reader = next_to_start(detail)
    if reader is None:
        return [first, "Nothing is left to start."]
    held = detail.run.state in {RunState.PAUSED, RunState.PAUSING}
    when = ", once you resume" if held else ""
    return [
        first,
        f"Next to start is {look.plain(reader.name)}{when}. "
        "Running work is not interrupted.",
    ]
