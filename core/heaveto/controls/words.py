"""What is stored about a control, and what it means: pure.

The ``result`` column holds NULL, a claim, or an outcome, and is told apart by its
beginning, never by comparison with a closed list (SPEC B-12):

* ``applying`` and ``applying:<owner>`` are claims: ``applied_at`` stays NULL.
* ``applied…``, ``rejected…`` and ``abandoned…`` are outcomes and set ``applied_at``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from heaveto.errors import ControlError
from heaveto.text import plain

if TYPE_CHECKING:
    from heaveto.statedb import ControlRow

__all__ = [
    "APPLIED",
    "MESSAGE_LIMIT",
    "NO_PENDING",
    "RESULT_LIMIT",
    "SWEPT",
    "ControlClass",
    "check_text",
    "claim_text",
    "classify",
    "error_result",
    "resolved",
    "unsupported",
]

ControlClass = Literal[
    "queued", "claimed", "applied", "rejected", "abandoned", "never_landed"
]

MESSAGE_LIMIT = 65_536
"""Bytes of UTF-8 that a message may have."""
RESULT_LIMIT = 500
"""Characters that a stored outcome with foreign text may have (SPEC B-15)."""
APPLIED = "applied"
NO_PENDING = "rejected:no-pending-ops"
SWEPT = "rejected: run reached terminal status before the steer could land"


def claim_text(owner: str | None) -> str:
    """Return the claim that an owner stores."""
    return f"applying:{owner}" if owner else "applying"


def unsupported(verb: str) -> str:
    """Return the outcome of a verb that nobody knows."""
    return f"rejected:unsupported-verb:{plain(verb)}"[:RESULT_LIMIT]


def error_result(error: BaseException | str) -> str:
    """Return the outcome of a control whose effect failed, in one bounded line."""
    return f"rejected:error:{plain(error)}"[:RESULT_LIMIT]


def resolved(outcome: str, by: str, claim: str) -> str:
    """Return the outcome that a person gives a claim which was never reported."""
    who = plain(by).strip() or "an unnamed operator"
    return (
        f"{outcome}: resolved by {who} after the claim '{claim}' was taken"
        " and never reported back"
    )


def check_text(text: str) -> str:
    """Return a message as it is stored: line breaks are LF.

    Empty text is allowed (SPEC A-40).

    Raises:
        ControlError: ``text_invalid``: it holds NUL, or is no Unicode text.
            ``text_too_long``: more than 65,536 bytes of UTF-8.
    """
    if "\0" in text:
        raise ControlError("a message cannot hold a NUL", code="text_invalid")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ControlError(
            "the message is no UTF-8 text", code="text_invalid"
        ) from None
    if size > MESSAGE_LIMIT:
        raise ControlError(
            f"the message has {size:,} bytes, {MESSAGE_LIMIT:,} are allowed",
            code="text_too_long",
        )
    return text.replace("\r\n", "\n").replace("\r", "\n")


def classify(
    row: ControlRow, *, run_over: bool, alive: bool | None = None
) -> ControlClass:
    """Tell what became of a control; every row is in exactly one class (SPEC A-48).

    Args:
        row: The row.
        run_over: The session's stored status is terminal.
        alive: Whether the run's process is there; None when it cannot be told.
    """
    stored = row.result
    if stored is None and row.applied_at is None:
        if row.claimed_at is not None:
            return "claimed"
        return "never_landed" if run_over or alive is False else "queued"
    outcomes: tuple[ControlClass, ...] = ("applied", "rejected", "abandoned")
    for outcome in outcomes:
        if (stored or "").startswith(outcome):
            return outcome
    # A claim, or a word of a later version: taken, and what came of it is not known.
    return "claimed"
