"""The delivery ledger: what was sent to a run and how far each of it came. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from heaveto.text import duration, short_id
from heaveto_tui.lines import DASH, EMPTY, pad
from heaveto_tui.presentation import control_face, is_over
from heaveto_tui.widgets.detail import wrapped
from heaveto_tui.widgets.lineview import Entry
from heaveto_tui.wording import control_sentence

if TYPE_CHECKING:
    from heaveto.observe.snapshot import ControlView, RunDetail
    from heaveto_tui.lines import Line, Look
    from heaveto_tui.presentation import Clock

__all__ = [
    "WORDS",
    "control_detail",
    "draw_control",
    "ledger_entries",
    "ledger_title",
    "rungs",
]

_WIDE = 110

WORDS: tuple[tuple[str, str], ...] = (
    ("queued", "the row is stored; the flow has not looked yet"),
    ("taken", "the flow has it in hand; if it dies now, nobody knows"),
    ("applied", "it took effect; a message waits for the next operation"),
    ("read", "it stands in the instruction of that operation"),
    ("saved", "in the checkpoint: a recovered run still knows it"),
    ("lost", "applied in memory only; a crash came before the save"),
    ("not reported", "the flow had it in hand when it ended"),
    ("never landed", "nobody had looked at it"),
)
"""What each word means, for the explanation beside the ledger."""


def ledger_entries(detail: RunDetail, find: str = "") -> list[Entry[ControlView]]:
    """Return the controls, oldest first; with a search only those that hold it."""
    wanted = find.casefold()
    return [
        Entry(each.id, each)
        for each in detail.controls
        if not wanted
        or any(
            wanted in part.casefold() for part in (each.id, each.verb, each.text or "")
        )
    ]


_RESULT, _QUEUED, _TAKEN, _APPLIED = 17, 12, 8, 9
_READER = 9
_ROOMY = 80
"""Below this width id and verb stand closer."""


class _Columns(NamedTuple):
    """Which columns there is room for; what does not fit whole is left out."""

    ident: int
    what: int
    text: int
    taken: int
    reader: bool


def _columns(width: int) -> _Columns:
    ident, what = (10, 9) if width >= _ROOMY else (9, 8)
    room = width - 3 - ident - what - _RESULT - _QUEUED - _APPLIED
    reader = room >= _READER
    taken = _TAKEN if room >= _TAKEN + _READER else 0
    text = max(0, room - taken - 20) if width >= _WIDE else 0
    return _Columns(ident, what, text, taken, reader)


def ledger_title(width: int) -> Line:
    """Return the heading of the columns."""
    columns = _columns(width)
    return (
        (
            f"   {pad('ID', columns.ident)}{pad('WHAT', columns.what)}"
            f"{pad('RESULT', _RESULT)}{pad('TEXT', columns.text)}"
            f"{pad('QUEUED', _QUEUED, right=True)}"
            f"{pad('TAKEN', columns.taken, right=True)}"
            f"{pad('APPLIED', _APPLIED, right=True)}"
            f"{'  READ BY' if columns.reader else ''}",
            "muted",
        ),
    )


def draw_control(
    control: ControlView,
    width: int,
    selected: bool,
    *,
    look: Look,
    now: float,
    clock: Clock,
    detail: RunDetail,
) -> Line:
    """Return the row of one control."""
    over = is_over(detail.run)
    face = control_face(control, over=over)
    text = look.plain(control.text or "")
    columns = _columns(width)
    cells: list[tuple[str, str]] = [
        ("▌  " if selected else "   ", "text"),
        (pad(short_id(control.id), columns.ident), "text"),
        (
            pad(look.clip(look.plain(control.verb), columns.what - 1), columns.what),
            "text",
        ),
        (pad(f"{face.glyph} {face.word}", _RESULT), face.role),
        (pad(look.clip(text, columns.text - 2), columns.text), "text"),
        (pad(clock.moment(control.created_at, now), _QUEUED, right=True), "text"),
        (pad(_after(control, control.claimed_at), columns.taken, right=True), "text"),
        (pad(_after(control, control.applied_at), _APPLIED, right=True), "text"),
    ]
    if columns.reader:
        cells.append((f"  {_reader(control, detail, look)}", "text"))
    return tuple(cells)


def _after(control: ControlView, at: float | None) -> str:
    return DASH if at is None else f"+{duration(max(0.1, at - control.created_at))}"


def _reader(control: ControlView, detail: RunDetail, look: Look) -> str:
    if control.rendered_into is None:
        return DASH if control.verb != "message" else "nobody"
    for each in detail.operations:
        if each.id == control.rendered_into:
            return look.plain(each.name)
    return short_id(control.rendered_into)


def rungs(control: ControlView, detail: RunDetail, look: Look) -> str:
    """Return how far a message came, rung by rung, in one line."""
    steps = ["queued"]
    if control.claimed_at is not None:
        steps.append(f"taken {_after(control, control.claimed_at)}")
    if control.applied_at is not None and control.klass == "applied":
        steps.append(f"applied {_after(control, control.applied_at)}")
    if control.rendered_into is not None:
        steps.append(f"read by {_reader(control, detail, look)}")
        saved = any(
            each.id == control.rendered_into and each.persisted
            for each in detail.operations
        )
        steps.append("saved" if saved else "not saved yet")
    return " · ".join(steps)


def control_detail(
    control: ControlView,
    detail: RunDetail,
    *,
    width: int,
    now: float,
    look: Look,
    clock: Clock,
) -> list[Line]:
    """Return everything known of one control."""
    face = control_face(control, over=is_over(detail.run))
    lines: list[Line] = [
        (
            (f"{short_id(control.id)}  ", "text+bold"),
            (f"{control.verb}, {face.word}", face.role),
        )
    ]
    if control.text is not None:
        lines.extend(wrapped(f"“{control.text}”", width, look, "text", indent=3))
    sentence = look.plain(control_sentence(control, detail, now, clock))
    lines.extend(wrapped(sentence, width, look, "text", indent=3))
    if control.verb == "message":
        lines.extend(
            wrapped(rungs(control, detail, look), width, look, "muted", indent=3)
        )
    sender = " ".join(
        part
        for part in (
            f"sent by {look.plain(control.by)}" if control.by else "",
            f"on {look.plain(control.host)}" if control.host else "",
            f"taken by {look.plain(control.owner)}" if control.owner else "",
        )
        if part
    )
    if sender:
        lines.extend(wrapped(sender, width, look, "muted", indent=3))
    lines.extend(
        wrapped(f"control {control.id}", width, look, "muted", indent=3),
    )
    return lines


def explanation(width: int, look: Look) -> list[Line]:
    """Return what each word of the ledger means."""
    lines: list[Line] = [((" WHAT EACH WORD MEANS", "text+bold"),), EMPTY]
    for word, means in WORDS:
        for index, part in enumerate(look.wrap(means, max(12, width - 16))):
            head = word if index == 0 else ""
            lines.append(((f" {head:<14}", "text"), (part, "muted")))
    return [*lines, EMPTY, ((" heaveto sends nothing again by itself.", "muted"),)]
