"""One operation in words: how it ended, what blocks it, what it was told and wrote.

Pure: a run, one of its operations and its texts in, lines for a width out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heaveto.model import OperationStatus as Status
from heaveto.text import duration, plain_lines, short_id
from heaveto_tui.effects import names, plural
from heaveto_tui.lines import EMPTY
from heaveto_tui.outline import blocking, skipped_because
from heaveto_tui.presentation import (
    is_over,
    operation_face,
    operation_time,
    saved_face,
)

if TYPE_CHECKING:
    from heaveto.observe.snapshot import ControlView, OperationView, RunDetail
    from heaveto_tui.lines import Line, Look
    from heaveto_tui.messages import OperationText
    from heaveto_tui.presentation import Clock, Face

__all__ = ["MAX_LINES", "Growth", "operation_detail", "operation_head", "wrapped"]

MAX_LINES = 2000
"""Lines of output kept in view; what is before them stays on disk."""

_STEER_OPEN = "[OPERATOR STEER]"
_STEER_CLOSE = "[/OPERATOR STEER]"


class Growth:
    """Counts the lines that an operation wrote since they were looked at last."""

    def __init__(self) -> None:
        """Start without a text."""
        self._text: OperationText | None = None
        self._lines = 0

    def since(self, text: OperationText | None, lines: int) -> int:
        """Return how many lines came since the last call; 0 for another text.

        Args:
            text: What was told and written.
            lines: How many lines it makes with what stands around it.
        """
        before, grown = self._text, lines - self._lines
        self._text, self._lines = text, lines
        if before is None or text is None or text is before:
            return 0
        if before.operation_id != text.operation_id:
            return 0
        return max(0, grown)


def operation_head(
    operation: OperationView, detail: RunDetail, now: float, look: Look, clock: Clock
) -> list[Line]:
    """Return name, state, times, and what blocks what, in two or three lines."""
    over = is_over(detail.run)
    face = operation_face(operation)
    saved = saved_face(operation, over=over)
    first: list[tuple[str, str]] = [
        (look.plain(operation.name), "text+bold"),
        ("  ", "text"),
        (f"{face.glyph} {face.word}", face.role),
    ]
    first.append((_took(operation, face, now), "text"))
    if saved.word in {"yes", "not yet", "no"}:
        first.append((", ", "text"))
        words = {"yes": "saved", "not yet": "not saved yet", "no": "never saved"}
        first.append((words[saved.word], saved.role))
    times = _times(operation, now, clock)
    second = " · ".join(
        part
        for part in (
            f"operation {short_id(operation.id)}",
            f"worker {look.plain(operation.assignee)}" if operation.assignee else "",
            times,
        )
        if part
    )
    return [tuple(first), ((second, "muted"),), *_blocks(operation, detail, look)]


def _took(operation: OperationView, face: Face, now: float) -> str:
    if operation.started_at is None:
        return ""
    took = operation_time(operation, now)
    if operation.status is Status.FAILED:
        return f" after {took}"
    return f" {took}" if took[:1].isdigit() else ""


def _times(operation: OperationView, now: float, clock: Clock) -> str:
    if operation.started_at is None:
        return ""
    start = clock.moment(operation.started_at, now)
    if operation.ended_at is None:
        return f"from {start}"
    return f"from {start} to {clock.moment(operation.ended_at, now)}"


def _blocks(operation: OperationView, detail: RunDetail, look: Look) -> list[Line]:
    """Return what it needs and what rests on it, in words."""
    found = blocking(detail.operations, operation.id)
    needs = names(found.needs, look) if found.needs else "nothing"
    parts = [f"needs {needs}"]
    if found.open_needs and operation.status is Status.WAITING:
        parts = [f"waits for {names(found.open_needs, look)}"]
        done = [each for each in found.needs if each not in found.open_needs]
        if done:
            parts.append(f"has {names(done, look)}")
    if found.blocks:
        more = found.rest_on - len(found.blocks)
        tail = f" and {more} more behind" if more > 0 else ""
        verb = "blocks" if operation.status not in _OVER else "before"
        parts.append(f"{verb} {names(found.blocks, look)}{tail}")
    else:
        parts.append("nothing depends on it")
    return [((" · ".join(parts), "muted"),)]


_OVER = frozenset({Status.COMPLETED, Status.SKIPPED, Status.ESCALATED})


def wrapped(
    text: str, width: int, look: Look, role: str, indent: int = 1
) -> list[Line]:
    """Return hostile text of several lines, inert and wrapped."""
    blank = " " * indent
    lines: list[Line] = []
    for line in plain_lines(text):
        lines.extend(
            ((blank, role), (part, role))
            for part in look.wrap(look.plain(line), max(8, width - indent))
        )
    return lines


def operation_detail(
    operation: OperationView,
    detail: RunDetail,
    text: OperationText | None,
    *,
    width: int,
    now: float,
    look: Look,
    clock: Clock,
) -> list[Line]:
    """Return everything known of an operation, its output last.

    The output stands at the end so that following the end follows the output.
    """
    lines = [
        *(
            part
            for line in operation_head(operation, detail, now, look, clock)
            for part in _fold(line, width, look)
        ),
        *_why(operation, detail, width, look),
        *_followed(operation, detail, width, look),
        *_instruction(operation, detail, text, width, look),
    ]
    if text is None:
        return lines
    return [*lines, *_streams(operation, text, width, look)]


def _fold(line: Line, width: int, look: Look) -> list[Line]:
    """Wrap a line of one role; a line of several is left to be cut."""
    if len(line) == 1:
        text, role = line[0]
        return [((part, role),) for part in look.wrap(text, width)]
    return [line]


def _title(text: str, more: str = "") -> list[Line]:
    rest = ((f"  {more}", "muted"),) if more else ()
    return [EMPTY, ((text, "text+bold"), *rest)]


def _why(
    operation: OperationView, detail: RunDetail, width: int, look: Look
) -> list[Line]:
    """Return the error, or why it was skipped or is held."""
    if operation.error_code is not None:
        code = look.plain(operation.error_code.replace("_", " "))
        body = wrapped(operation.error_text or code, width, look, "bad")
        return [*_title("WHY", code), *body]
    if operation.status is Status.SKIPPED and operation.reason:
        because = f"Skipped: {skipped_because(operation, detail)}."
        return [*_title("WHY"), *wrapped(because, width, look, "text")]
    return []


def _followed(
    operation: OperationView, detail: RunDetail, width: int, look: Look
) -> list[Line]:
    """Return what a failure meant for those that depend on it."""
    if operation.status is not Status.FAILED:
        return []
    found = blocking(detail.operations, operation.id)
    if not found.blocks:
        return []
    stale = [each for each in found.blocks if each.stale]
    skipped = [each for each in detail.operations if each.status is Status.SKIPPED]
    sentences = []
    if stale:
        who = names(stale, look)
        sentences.append(f"{who} ran with this error as input.")
    elif skipped:
        sentences.append(f"{plural(len(skipped), 'operation')} skipped after it.")
    rest = plural(found.rest_on, "operation")
    verb = "rests" if found.rest_on == 1 else "rest"
    sentences.append(f"{rest} {verb} on it, directly or not.")
    return [
        *_title("WHAT FOLLOWED"),
        *wrapped(" ".join(sentences), width, look, "text"),
    ]


def _instruction(
    operation: OperationView,
    detail: RunDetail,
    text: OperationText | None,
    width: int,
    look: Look,
) -> list[Line]:
    """Return the instruction as sent, with what an operator wrote marked by a bar."""
    if text is None or text.instruction is None:
        return []
    said = _told(operation, detail.controls)
    more = f"as sent · {said} in it" if said else "as sent"
    lines = _title("INSTRUCTION", more)
    steered = False
    for line in plain_lines(text.instruction):
        steered = steered or line == _STEER_OPEN
        mark = "┃" if steered else " "
        role = "note" if steered else "text"
        lines.extend(
            ((mark, "note"), (part, role))
            for part in look.wrap(look.plain(line), max(8, width - 1))
        )
        if line == _STEER_CLOSE:
            steered = False
    return lines


def _told(operation: OperationView, controls: tuple[ControlView, ...]) -> str:
    count = sum(1 for each in controls if each.rendered_into == operation.id)
    count = count or len(operation.rendered)
    return plural(count, "message") if count else ""


def _streams(
    operation: OperationView, text: OperationText, width: int, look: Look
) -> list[Line]:
    """Return standard error and standard output, their ends."""
    lines: list[Line] = []
    for title, body, size, role in (
        ("ERROR OUTPUT", text.error, text.error_bytes, "text"),
        ("OUTPUT", text.output, text.output_bytes, "text"),
    ):
        if not body:
            continue
        cut = " · the beginning is left out" if text.cut else ""
        lines.extend(_title(title, f"{_size(size)}{cut}"))
        lines.extend(wrapped(body, width, look, role)[-MAX_LINES:])
    if not lines:
        words = (
            "nothing written yet"
            if operation.status is Status.RUNNING
            else "nothing was written"
        )
        if operation.started_at is None:
            words = "it has not started"
        lines.extend(_title("OUTPUT", words))
    return lines


def _size(size: int) -> str:
    """Return a size as people write it."""
    if size < 1 << 20:
        return "1 byte" if size == 1 else f"{size:,} bytes".replace(",", " ")
    return f"{size / (1 << 20):.1f} MiB"


def waited(operation: OperationView) -> str:
    """Return how long it stood at the pause, if it did and has started since."""
    if operation.paused_at is None or operation.started_at is None:
        return ""
    return f"waited {duration(operation.started_at - operation.paused_at)} at the pause"
