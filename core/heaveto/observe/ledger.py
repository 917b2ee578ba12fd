"""Controls as a reader shows them: class, owner, age, what became of a message.

Pure. The class itself comes from ``heaveto.controls``, so the ledger and the poller
speak of the same rows in the same words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heaveto.controls import classify
from heaveto.model import Verb
from heaveto.observe.derive import Gate
from heaveto.observe.snapshot import ControlView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from heaveto.observe.saved import Message, Saved
    from heaveto.statedb import ControlRow

__all__ = ["control_views", "gate_of", "message_text", "owner_of"]


def gate_of(rows: Sequence[ControlRow], phase: str | None) -> Gate:
    """Conclude from the applied controls whether the gate is closed.

    Args:
        rows: The controls of a run, in any order.
        phase: ``current_phase``: believed when no row is left to say it.
    """
    applied = [
        row for row in rows if row.applied_at is not None and _took_effect(row.result)
    ]
    stopping = any(row.verb == Verb.STOP for row in applied)
    pauses = [row for row in applied if row.verb in (Verb.PAUSE, Verb.RESUME)]
    if stopping or not pauses:
        return Gate(closed=not stopping and phase == "paused", stopping=stopping)
    last = max(pauses, key=lambda row: (row.applied_at or 0.0, row.created_at, row.id))
    return Gate(closed=last.verb == Verb.PAUSE)


def _took_effect(result: str | None) -> bool:
    """Tell whether a stamp says that the poller applied the control."""
    return result == "applied"


def control_views(
    rows: Sequence[ControlRow],
    saved: Saved | None,
    *,
    over: bool,
    alive: bool | None,
    now: float,
    rendered: Mapping[str, str],
) -> tuple[ControlView, ...]:
    """Return every control with what became of it, in the order of service.

    Args:
        rows: The control rows of one run.
        saved: What its checkpoint holds; None when there is none.
        over: The run has ended or its process is gone.
        alive: Whether its process is there.
        now: Epoch seconds.
        rendered: Operations by the ids of the controls whose text they got, as the
            signals say.
    """
    if not rows:
        return ()
    ordered = sorted(rows, key=lambda row: (row.created_at, row.id))
    return tuple(
        _view(row, saved, over=over, alive=alive, now=now, rendered=rendered)
        for row in ordered
    )


def _view(
    row: ControlRow,
    saved: Saved | None,
    *,
    over: bool,
    alive: bool | None,
    now: float,
    rendered: Mapping[str, str],
) -> ControlView:
    text = message_text(row)
    message = _message(row, text, saved)
    klass = classify(row, run_over=over, alive=alive)
    since = _since(row, klass)
    into = rendered.get(row.id)
    if into is None and message is not None:
        into = message.rendered_into
    return ControlView(
        id=row.id,
        verb=row.verb,
        result=row.result,
        klass=klass,
        created_at=row.created_at,
        claimed_at=row.claimed_at,
        applied_at=row.applied_at,
        owner=owner_of(row.result),
        age_s=max(0.0, now - since),
        by=row.by,
        host=row.host,
        text=text,
        rendered_into=into,
        lost=over and _is_lost(row, message, saved),
    )


def _since(row: ControlRow, klass: str) -> float:
    """Return when the row came into its present class."""
    if klass == "claimed":
        return row.claimed_at or row.created_at
    return row.applied_at or row.created_at


def _is_lost(row: ControlRow, message: Message | None, saved: Saved | None) -> bool:
    """Tell whether an applied message is in no acknowledged checkpoint (PRODUCT 6.6).

    Of a refused checkpoint nothing can be said, so nothing is called lost.
    """
    if row.verb != Verb.MESSAGE or not _took_effect(row.result):
        return False
    return message is None and (saved is None or saved.readable)


def _message(row: ControlRow, text: str | None, saved: Saved | None) -> Message | None:
    """Find the control's entry in the recovered context."""
    if saved is None or row.verb != Verb.MESSAGE or row.applied_at is None:
        return None
    since = row.claimed_at if row.claimed_at is not None else row.created_at
    for message in saved.messages:
        if message.is_of(row.id, text, since, row.applied_at):
            return message
    return None


def message_text(row: ControlRow) -> str | None:
    """Return the text of a message control; None for other verbs and odd payloads."""
    payload = row.payload
    if row.verb != Verb.MESSAGE or not isinstance(payload, dict):
        return None
    text = payload.get("text")
    return text if isinstance(text, str) else None


def owner_of(result: str | None) -> str | None:
    """Return who claimed a row: what follows ``applying:``, or None."""
    if result is None or not result.startswith("applying:"):
        return None
    return result.removeprefix("applying:") or None
