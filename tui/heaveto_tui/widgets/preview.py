"""A run in words, beside the list: state, operations, controls, checkpoint. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heaveto.text import short_id
from heaveto_tui.lines import DASH, EMPTY, pad
from heaveto_tui.presentation import (
    checkpoint_face,
    checkpoint_words,
    control_face,
    is_over,
    operation_face,
    operation_time,
    run_face,
    saved_face,
)
from heaveto_tui.widgets.detail import wrapped
from heaveto_tui.wording import run_sentence, state_line

if TYPE_CHECKING:
    from heaveto.observe.snapshot import ControlView, RunDetail, RunSummary
    from heaveto_tui.lines import Line, Look

__all__ = ["preview"]

_MOST_OPERATIONS = 14
_MOST_CONTROLS = 5


def preview(
    run: RunSummary,
    detail: RunDetail | None,
    *,
    width: int,
    now: float,
    look: Look,
    can: list[tuple[str, str]],
    checked_at: float | None = None,
) -> list[Line]:
    """Return what is known of a run without opening it.

    Args:
        run: The run under the cursor.
        detail: The same run whole, once it has been read.
        width: Cells.
        now: Epoch seconds.
        look: How text is spelled.
        can: Keys that work on it, with what each does.
        checked_at: When its home was last read.
    """
    face = run_face(run)
    inner = width - 2
    lines: list[Line] = [
        (
            (short_id(run.session_id or run.run_id), "text+bold"),
            ("  ", "text"),
            (look.plain(run.name or DASH), "text"),
        ),
        (
            (f"run {look.plain(run.run_id)} · {run.source} · ", "muted"),
            (look.clip_start(look.plain(run.home), 40), "muted"),
        ),
        EMPTY,
        ((f"{face.glyph} ", face.role), (state_line(run, now, checked_at), "text")),
    ]
    for sentence in run_sentence(run, detail, now):
        lines.extend(wrapped(sentence, inner, look, "text", indent=2))
    for warning in run.warnings:
        lines.extend(wrapped(warning.text, inner, look, "hold", indent=2))
        lines.extend(wrapped(warning.what_to_do, inner, look, "muted", indent=2))
    if detail is not None:
        lines.extend(_operations(detail, inner, now, look))
        lines.extend(_controls(detail, inner, look))
    lines.extend(_checkpoint(run, inner, look))
    if can:
        lines.extend([EMPTY, (("WHAT YOU CAN DO", "text+bold"),)])
        lines.extend(((f"{key:<3}", "text"), (does, "text")) for key, does in can)
    return [((" ", "text"), *line) for line in lines]


def _operations(detail: RunDetail, width: int, now: float, look: Look) -> list[Line]:
    over = is_over(detail.run)
    name = max(10, width - 34)
    lines: list[Line] = [
        EMPTY,
        ((pad("OPERATIONS", name + 24), "text+bold"), ("SAVED", "muted")),
    ]
    for each in detail.operations[:_MOST_OPERATIONS]:
        face = operation_face(each)
        saved = saved_face(each, over=over)
        lines.append(
            (
                (f"{face.glyph} ", face.role),
                (pad(look.clip(look.plain(each.name), name - 1), name), "text"),
                (pad(face.word, 12), face.role),
                (pad(operation_time(each, now), 8, right=True), "text"),
                ("  ", "text"),
                (saved.word, saved.role),
            )
        )
    rest = len(detail.operations) - _MOST_OPERATIONS
    if rest > 0:
        lines.append(((f"  and {rest} more", "muted"),))
    return lines


def _controls(detail: RunDetail, width: int, look: Look) -> list[Line]:
    if not detail.controls:
        return []
    over = is_over(detail.run)
    lines: list[Line] = [EMPTY, (("CONTROLS", "text+bold"),)]
    lines.extend(
        _control(each, over, width, look) for each in detail.controls[-_MOST_CONTROLS:]
    )
    return lines


def _control(control: ControlView, over: bool, width: int, look: Look) -> Line:
    face = control_face(control, over=over)
    text = look.plain(control.text or "")
    return (
        (f"{face.glyph} ", face.role),
        (pad(look.clip(look.plain(control.verb), 7), 8), "text"),
        (f"{short_id(control.id)}  ", "muted"),
        (pad(face.word, 15), face.role),
        (look.clip(text, max(0, width - 36)), "text"),
    )


def _checkpoint(run: RunSummary, width: int, look: Look) -> list[Line]:
    face = checkpoint_face(run.checkpoint)
    words = checkpoint_words(run.checkpoint, run.nodes.get("total", 0))
    more = ""
    if run.generation_dir:
        more = f" · {look.plain(run.generation_dir)}"
    return [
        EMPTY,
        (("CHECKPOINT", "text+bold"), ("  ", "text"), (words + more, "text")),
        ((f"{face.glyph} {face.word}", face.role),),
    ]
