"""Messages of an operator to a live flow: queue entry, claim, rendering.

A message waits in the shared context, in the list ``operator_messages``. The next
operation that is prepared takes every entry that nobody has taken, shows them as one
block in front of its instruction, and leaves its id on them (``rendered_into_op``), so
that each text reaches exactly one operation (SPEC B-34..B-43, FORMATS 8).

Functions here are pure and never change what they are given: a claim returns a new
list with new entries, because the old one may already belong to a frozen checkpoint or
to the context of another operation (SPEC B-42). Entries that are no objects (a list
that was edited by hand) stay where they are and are never rendered.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "QUEUE_KEY",
    "RENDERED_KEY",
    "claim",
    "message_entry",
    "neutral",
    "release",
    "render",
    "waiting",
]

QUEUE_KEY = "operator_messages"
"""The member of the shared context that holds the queue; no operation may set it."""

RENDERED_KEY = "rendered_into_op"
"""The member of an entry that names the operation which carries the text."""

_OPEN = (
    "[OPERATOR STEER]\n"
    "A human operator sent these live corrections while this flow is running.\n"
    "Attend to them before continuing. Most recent last.\n"
)
_CLOSE = "[/OPERATOR STEER]\n\n"

_LINE_BREAK = re.compile("\r\n|[\r\n\u2028\u2029]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def message_entry(ts: float, text: str, control_id: str | None) -> dict[str, object]:
    """Return the queue entry of one message.

    Args:
        ts: When it was applied, epoch seconds.
        text: As the operator wrote it.
        control_id: The row it came from; None for a message that came without one.
    """
    entry: dict[str, object] = {"ts": ts, "text": text}
    if control_id is not None:
        entry["control_id"] = control_id
    return entry


def neutral(text: str) -> str:
    """Return a text that can only ever be the inside of the block (SPEC B-43).

    Every line after the first is indented by two spaces, so none can be the closing
    tag; control characters other than TAB are left out.
    """
    return _CONTROL.sub("", _LINE_BREAK.sub("\n", text)).replace("\n", "\n  ")


def waiting(queue: object) -> bool:
    """Tell whether an entry is there that no operation has taken."""
    return any(_untaken(entry) for entry in _entries(queue))


def claim(
    queue: object, operation_id: str
) -> tuple[list[object], tuple[Mapping[str, object], ...]]:
    """Take every entry that waits, for one operation.

    Args:
        queue: The list in the shared context; anything else counts as empty.
        operation_id: Who takes them.

    Returns:
        The queue to put in the place of the old one, and every entry that now belongs
        to the operation, including those it took before, in stored order.
    """
    taken: list[object] = [
        {**entry, RENDERED_KEY: operation_id}
        if isinstance(entry, dict) and _untaken(entry)
        else entry
        for entry in _entries(queue)
    ]
    return taken, tuple(
        entry
        for entry in taken
        if isinstance(entry, dict) and _owned(entry, operation_id)
    )


def release(queue: object, operation_id: str) -> list[object]:
    """Give back what an operation took that was not invoked after all."""
    return [
        {key: value for key, value in entry.items() if key != RENDERED_KEY}
        if isinstance(entry, dict) and _owned(entry, operation_id)
        else entry
        for entry in _entries(queue)
    ]


def render(entries: Sequence[Mapping[str, object]], instruction: object) -> str:
    """Return the instruction with the block in front of it.

    Args:
        entries: What the operation took, oldest first; none leaves the block out.
        instruction: The original; None is an empty text, other values are converted.
    """
    original = "" if instruction is None else str(instruction)
    if not entries:
        return original
    lines = "".join(f"- {_stamp(e.get('ts'))}: {_text(e)}\n" for e in entries)
    return f"{_OPEN}{lines}{_CLOSE}{original}"


def _entries(queue: object) -> list[object]:
    return queue if isinstance(queue, list) else []


def _untaken(entry: object) -> bool:
    return isinstance(entry, dict) and entry.get(RENDERED_KEY) is None


def _owned(entry: object, operation_id: str) -> bool:
    return isinstance(entry, dict) and entry.get(RENDERED_KEY) == operation_id


def _text(entry: Mapping[str, object]) -> str:
    text = entry.get("text")
    return "" if text is None else neutral(str(text))


def _stamp(ts: object) -> str:
    """Return the moment in UTC (SPEC B-35); a queue edited by hand may lack it."""
    if isinstance(ts, bool) or not isinstance(ts, int | float):
        return "unknown time"
    try:
        moment = datetime.fromtimestamp(ts, UTC)
    except (OverflowError, ValueError, OSError):
        return "unknown time"
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
