"""A checkpoint as it lies on disk, in lines: base, journal, report. Pure.

What is drawn comes from :class:`heaveto.observe.ondisk.UnitView`: positions, sizes,
ids and codes, no content. A refused unit shows its reasons first and no outcome.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heaveto.checkpoint.report import RecoveryStatus
from heaveto.observe.ondisk import reason_place
from heaveto.observe.words import explain
from heaveto_tui.effects import plural
from heaveto_tui.lines import DASH, EMPTY, pad
from heaveto_tui.presentation import Face, is_over, is_unsaved
from heaveto_tui.widgets.detail import wrapped
from heaveto_tui.widgets.lineview import Entry

if TYPE_CHECKING:
    from heaveto.checkpoint.report import Reason
    from heaveto.observe.ondisk import JournalLine, UnitView
    from heaveto.observe.snapshot import RunDetail
    from heaveto_tui.lines import Line, Look
    from heaveto_tui.presentation import Clock

__all__ = [
    "draw_line",
    "line_entries",
    "size_words",
    "unit_about",
    "unit_face",
    "unit_facts",
    "unit_title",
    "why_none",
]

JOURNALED = 3
"""The version whose checkpoint is two files."""
_FIXED = 2 + 8 + 8 + 10 + 10 + 8 + 2
"""Cells of a row beside the operation and the last column."""

_USES = {
    "applied": ("", "text"),
    "stale": ("of an older base", "hold"),
    "torn": ("no end, left out", "hold"),
    "refused": ("refused", "bad"),
    "prefix": ("good, not used", "muted"),
    "unread": ("not read", "muted"),
}
_MARKS = {"stale": (DASH, "hold"), "torn": ("/", "hold"), "refused": ("✗", "bad")}
_MEANS = {
    "applied": "It is part of the state.",
    "stale": "It belongs to a base before this one, which holds it already.",
    "torn": "The write did not finish. What was confirmed is in front of it.",
    "refused": "Reading stopped here, and with it the whole unit is refused.",
    "prefix": "It reads well, but no part of a refused unit is used.",
    "unread": "No load takes it in.",
}


def size_words(size: int | None) -> str:
    """Return a count of bytes: ``1 byte``, ``31 204 bytes``."""
    if size is None:
        return DASH
    return "1 byte" if size == 1 else f"{number(size)} bytes"


def number(value: int | None) -> str:
    """Return a whole number with its thousands apart."""
    return DASH if value is None else f"{value:,}".replace(",", " ")


def unit_face(view: UnitView) -> Face:
    """Return sign, word and role of a unit (SCREENS 2.1)."""
    if view.absent:
        return Face("none", DASH, "muted")
    if view.report.status is RecoveryStatus.REFUSED:
        return Face("refused", "✗", "bad")
    if view.report.status is RecoveryStatus.CLEAN:
        return Face("clean", "●", "good")
    return Face(f"good up to seq {view.report.last_seq}", "◑", "hold")


# --- above the journal


def unit_facts(
    view: UnitView,
    detail: RunDetail | None,
    *,
    width: int,
    now: float,
    look: Look,
    clock: Clock,
) -> list[Line]:
    """Return what stands above the journal: status, reasons, base, journal."""
    face = unit_face(view)
    lines: list[Line] = [((f" {face.glyph} ", face.role), (face.word, face.role))]
    if view.absent:
        return [*lines, *wrapped(why_none(detail), width - 3, look, "text", indent=3)]
    for reason in view.report.reasons[-1:]:
        lines.extend(_reason(reason, width, look))
    lines.extend(_fact("base", _base_words(view, now, clock), width, look))
    lines.extend(_fact("journal", _journal_words(view), width, look))
    if view.bytes_to_compaction is not None:
        left = f"after {size_words(view.bytes_to_compaction)} more at the latest"
        lines.extend(_fact("next base", left, width, look))
    return lines


def _fact(name: str, words: str, width: int, look: Look) -> list[Line]:
    parts = look.wrap(look.plain(words), max(8, width - 12))
    return [
        ((f" {name if index == 0 else '':<10}", "muted"), (part, "text"))
        for index, part in enumerate(parts)
    ]


def _reason(reason: Reason, width: int, look: Look) -> list[Line]:
    """Return a reason in words, its place and what can be done."""
    found = explain(str(reason.code))
    text = found.text if found else "A reason that this version does not know."
    role = "bad" if reason.fatal else "hold"
    lines = wrapped(text, width - 3, look, role, indent=3)
    place = f"{reason.code}: {reason_place(reason)}"
    lines.extend(wrapped(place, width - 3, look, "muted", indent=3))
    if found and reason.fatal:
        lines.extend(wrapped(found.what_to_do, width - 3, look, "text", indent=3))
    return lines


def _base_words(view: UnitView, now: float, clock: Clock) -> str:
    report = view.report
    if view.base_bytes is None:
        return "checkpoint.json is not there"
    parts = [f"version {report.checkpoint_version or 'not known'}"]
    if report.generation:
        parts.append(f"gen {report.generation[:8]}…{report.generation[-8:]}")
    if report.base_seq is not None:
        parts.append(f"seq {report.base_seq}")
    parts.append(size_words(view.base_bytes))
    if view.base_written_at is not None:
        parts.append(clock.moment(view.base_written_at, now))
    return " · ".join(parts)


def _journal_words(view: UnitView) -> str:
    report = view.report
    version = report.checkpoint_version
    if version is not None and version < JOURNALED:
        stray = "" if view.journal_bytes is None else "; the one beside it is not read"
        return f"version {version} is one file, no journal{stray}"
    if view.journal_bytes is None:
        return "not there"
    size = size_words(view.journal_bytes)
    if view.refused:
        return f"{plural(view.lines, 'line')}, {size} · not used"
    last = report.last_seq or 0
    records = plural(report.applied_records or 0, "record")
    span = f", seq 1 to {last}" if last else ""
    parts = [f"{records} since the base{span}", size]
    if report.discarded_tail_bytes:
        parts.append(f"{size_words(report.discarded_tail_bytes)} left out")
    if report.stale_records:
        parts.append(f"{report.stale_records} of an older base")
    return " · ".join(parts)


def why_none(detail: RunDetail | None) -> str:
    """Say why there is no checkpoint."""
    if detail is None or detail.run_dir is None:
        return "The run directory is not there, and with it the checkpoint."
    for warning in detail.run.warnings:
        if warning.code in {"persistence_off", "checkpoint_missing"}:
            return f"{warning.text} {warning.what_to_do}"
    if is_over(detail.run):
        return "No checkpoint.json lies in its run directory, so nothing was saved."
    return "No checkpoint.json lies in its run directory yet, so nothing is saved."


# --- the journal


def line_entries(view: UnitView, find: str = "") -> list[Entry[JournalLine]]:
    """Return the lines of the journal; with a search only those that hold it."""
    wanted = find.casefold()
    return [
        Entry(each.line, each)
        for each in view.records
        if not wanted
        or any(
            wanted in part.casefold()
            for part in (each.id or "", each.kind or "", each.code or "", each.use)
        )
    ]


def _name_width(width: int) -> int:
    room = width - _FIXED
    return min(48, max(10, room - 27 if room > 41 else room - 18))


def _digits(value: int | None, width: int) -> str:
    """Return a number in a column, its thousands apart where they fit."""
    text = number(value)
    return pad(text if len(text) < width else str(value), width, right=True)


def unit_title(width: int) -> Line:
    """Return the heading of the journal's columns."""
    return (
        (
            f"   {pad('SEQ', 6, right=True)} {pad('KIND', 8)}"
            f"{pad('OPERATION', _name_width(width))}{pad('STATUS', 10)}"
            f"{pad('BYTE', 10, right=True)}{pad('SIZE', 8, right=True)}  CONTEXT",
            "muted",
        ),
    )


def draw_line(line: JournalLine, width: int, selected: bool, *, look: Look) -> Line:
    """Return the row of one line of the journal."""
    mark, mark_role = _MARKS.get(line.use, (" ", "text"))
    words, role = _USES[line.use]
    if line.use == "applied":
        changes = line.context_changes or 0
        words = plural(changes, "change") if changes else DASH
    elif line.code is not None and line.use in {"refused", "unread"}:
        words = line.code
    name = look.plain(line.id) if line.id else DASH
    room = _name_width(width)
    return (
        ("▌" if selected else " ", "text"),
        (mark, mark_role),
        (f" {_digits(line.seq, 6)} ", "text"),
        (pad(line.kind or DASH, 8), "text"),
        (pad(look.clip(name, room - 2), room), "text"),
        (pad(line.status or DASH, 10), "text"),
        (_digits(line.offset, 10), "muted"),
        (_digits(line.bytes, 8), "muted"),
        ("  ", "text"),
        (look.clip(words, max(8, width - _FIXED - room)), role),
    )


# --- beside the journal


def unit_about(
    view: UnitView,
    line: JournalLine | None,
    detail: RunDetail | None,
    *,
    width: int,
    look: Look,
) -> list[Line]:
    """Return the chosen line, what the checkpoint holds and how far that reaches."""
    lines: list[Line] = []
    if line is not None:
        lines.extend([*_about_line(view, line, width, look), EMPTY])
    left_out = view.lines - len(view.records)
    if left_out:
        words = f"{plural(left_out, 'line')} of the journal not listed here."
        lines.extend([*wrapped(words, width, look, "muted"), EMPTY])
    if view.contents is not None:
        lines.extend(_holds(view, detail, width, look))
    elif view.refused and not view.absent:
        words = "Nothing of it is shown as a result: the unit is refused."
        lines.extend(wrapped(words, width, look, "text"))
    if len(view.report.reasons) > 1:
        lines.extend([EMPTY, ((" REPORT", "text+bold"),)])
        for reason in view.report.reasons:
            lines.extend(_reason(reason, width, look))
    return lines


def _about_line(
    view: UnitView, line: JournalLine, width: int, look: Look
) -> list[Line]:
    title = f" LINE {line.line}" if line.seq is None else f" SEQ {line.seq}"
    lines: list[Line] = [((title, "text+bold"),)]
    if line.id is not None:
        what = f"{line.kind} {look.plain(line.id)}"
        what += f", {line.status}" if line.status else ""
        lines.extend(wrapped(what, width, look, "text", indent=3))
    where = f"line {line.line}, byte {number(line.offset)}, {size_words(line.bytes)}"
    lines.extend(wrapped(where, width, look, "muted", indent=3))
    if line.generation is not None:
        same = line.generation == view.report.generation
        whose = "the base's" if same else "not the base's"
        words = f"generation {line.generation[:8]}, {whose}"
        lines.extend(wrapped(words, width, look, "muted", indent=3))
    means = _MEANS[line.use]
    if line.use == "applied" and line.context_changes:
        means = f"{plural(line.context_changes, 'change')} of the shared context."
    return [*lines, *wrapped(means, width, look, _USES[line.use][1], indent=3)]


def _holds(
    view: UnitView, detail: RunDetail | None, width: int, look: Look
) -> list[Line]:
    held = view.contents
    assert held is not None
    outcomes = plural(held.completed + held.failed, "saved outcome")
    parts = [
        f"{outcomes}, {held.failed} of them failed" if held.failed else outcomes,
        f"{held.planned} planned, {held.spawned} spawned",
    ]
    if held.pending:
        parts.append(f"{held.pending} deferred")
    if held.messages:
        parts.append(plural(held.messages, "operator message"))
    lines: list[Line] = [((" HOLDS", "text+bold"),)]
    lines.extend(wrapped("; ".join(parts), width, look, "text", indent=3))
    if detail is None:
        return lines
    executed = [each for each in detail.operations if each.executed]
    unsaved = [each for each in executed if is_unsaved(each)]
    words = f"{len(executed)} executed, {len(executed) - len(unsaved)} of them saved"
    role = "text"
    if unsaved:
        gone = "never saved" if is_over(detail.run) else "not saved yet"
        names = ", ".join(look.plain(each.name) for each in unsaved[:4])
        more = f" and {len(unsaved) - 4} more" if len(unsaved) > 4 else ""
        words += f"; {gone}: {names}{more}"
        role = "hold"
    return [*lines, *wrapped(words, width, look, role, indent=3)]
