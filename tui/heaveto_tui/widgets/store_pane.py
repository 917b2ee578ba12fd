"""A generation store in lines: current, left over, torn, and two compared. Pure.

Names, sizes, counts, identities and digests; never the content of a record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heaveto_tui.effects import plural
from heaveto_tui.lines import DASH, EMPTY, pad
from heaveto_tui.presentation import Face
from heaveto_tui.widgets.detail import wrapped
from heaveto_tui.widgets.lineview import Entry
from heaveto_tui.widgets.unit_pane import number, size_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heaveto.generations.inspection import GenerationView, StoreView
    from heaveto_tui.lines import Line, Look
    from heaveto_tui.unit_feed import Comparison

__all__ = [
    "default_pair",
    "draw_generation",
    "generation_entries",
    "generation_face",
    "store_about",
    "store_facts",
    "store_title",
]


def generation_face(store: StoreView, view: GenerationView) -> Face:
    """Return sign, word and role of a generation."""
    if view.name in store.orphans:
        return Face("never published", "/", "hold")
    if view.problem is not None:
        return Face("broken", "✗", "bad")
    if view.name == store.current:
        return Face("current", "●", "good")
    if view.name == store.predecessor:
        return Face("kept", "●", "muted")
    return Face("older", "○", "muted")


def store_facts(
    store: StoreView | None, problem: str | None, *, width: int, look: Look
) -> list[Line]:
    """Return what stands above the generations."""
    if store is None:
        words = f"The store cannot be looked at: {problem}."
        return wrapped(words, width - 2, look, "bad")
    names = f"current {store.current or DASH} · predecessor {store.predecessor or DASH}"
    lines: list[Line] = [
        ((" store     ", "muted"), (names, "text")),
        ((f" {'pointer':<10}", "muted"), (store.pointer, "text")),
    ]
    reads = store.reads.removeprefix("a load ")
    for index, part in enumerate(look.wrap(look.plain(reads), max(8, width - 13))):
        head = "a load" if index == 0 else ""
        lines.append(((f" {head:<10}", "muted"), (part, "text")))
    for text in store.problems:
        lines.extend(wrapped(f"✗ {look.plain(text)}", width - 2, look, "bad"))
    if store.orphans:
        left = ", ".join(look.plain(name) for name in store.orphans)
        words = f"left over: {left}. No load reads it, and nothing is deleted."
        lines.extend(wrapped(words, width - 2, look, "hold"))
    return lines


def generation_entries(store: StoreView) -> list[Entry[GenerationView]]:
    """Return the generations, oldest first."""
    return [Entry(each.name, each) for each in store.generations]


def default_pair(
    store: StoreView, cursor: object, marked: str | None
) -> tuple[str, str] | None:
    """Return which two are compared: the marked one, else the one before the cursor."""
    names = [each.name for each in store.generations]
    if cursor not in names:
        return None
    second = str(cursor)
    if marked in names and marked != second:
        return str(marked), second
    place = names.index(second)
    return (names[place - 1], second) if place else None


def _identity_width(width: int) -> int:
    return max(9, (width - 3 - 12 - 16 - 6 - 11 - 6 - 2) // 2)


def store_title(width: int) -> Line:
    """Return the heading of the columns."""
    room = _identity_width(width)
    return (
        (
            f"   {pad('GENERATION', 12)}{pad('STATE', 16)}{pad('TURN', 6, right=True)}"
            f"{pad('BYTES', 11, right=True)}{pad('FILES', 6, right=True)}  "
            f"{pad('IDENTITY', room)}GROWN FROM",
            "muted",
        ),
    )


def draw_generation(
    view: GenerationView,
    width: int,
    selected: bool,
    *,
    store: StoreView,
    marked: str | None,
    look: Look,
) -> Line:
    """Return the row of one generation."""
    face = generation_face(store, view)
    room = _identity_width(width)
    identities = [
        look.clip(look.plain(each), room - 1) if each else DASH
        for each in (view.engine_identity, view.parent_engine_identity)
    ]
    return (
        ("▌" if selected else " ", "text"),
        (f"{face.glyph} ", face.role),
        (pad(view.name + (" *" if view.name == marked else ""), 12), "text"),
        (pad(face.word, 16), face.role),
        (pad(number(view.turn_count), 6, right=True), "text"),
        (pad(number(view.bytes), 11, right=True), "text"),
        (pad(str(len(view.files)), 6, right=True), "text"),
        ("  ", "text"),
        (pad(identities[0], room), "text"),
        (identities[1], "muted"),
    )


def store_about(
    store: StoreView,
    view: GenerationView | None,
    pair: tuple[str, str] | None,
    compared: Comparison | None,
    *,
    width: int,
    look: Look,
) -> list[Line]:
    """Return the comparison of two generations, and the chosen one."""
    if pair is None:
        words = "Move to another generation to compare it with the one before."
        lines = wrapped(words, width, look, "muted")
    else:
        lines = [((f" COMPARE  {pair[0]}  with  {pair[1]}", "text+bold"),)]
        lines.extend(_compared(pair, compared, width, look))
    if view is None:
        return lines
    return [*lines, EMPTY, *_about(store, view, width, look)]


def _compared(
    pair: tuple[str, str], compared: Comparison | None, width: int, look: Look
) -> list[Line]:
    if compared is None or compared.pair != pair:
        return [(("   Reading …", "muted"),)]
    if compared.problem is not None:
        words = f"Not compared: {look.plain(compared.problem)}."
        return wrapped(words, width, look, "bad", indent=3)
    return _changes(compared.changes, width, look)


def _about(
    store: StoreView, view: GenerationView, width: int, look: Look
) -> list[Line]:
    face = generation_face(store, view)
    lines: list[Line] = [
        ((f" {view.name}  ", "text+bold"), (face.word, face.role)),
    ]
    if view.name in store.orphans:
        words = "A write that was begun and not published. No load reads it."
        lines.extend(wrapped(words, width, look, "text", indent=3))
    elif view.problem is not None:
        lines.extend(wrapped(look.plain(view.problem), width, look, "bad", indent=3))
    turn = "turn not known" if view.turn_count is None else f"turn {view.turn_count}"
    lines.extend(
        wrapped(f"{turn}, {size_words(view.bytes)}", width, look, "muted", indent=3)
    )
    grown = look.plain(view.engine_identity or "an engine without identity")
    if view.parent_engine_identity:
        grown += f", grown from {look.plain(view.parent_engine_identity)}"
    lines.extend(wrapped(grown, width, look, "muted", indent=3))
    files = ", ".join(look.plain(name) for name in view.files) or "no files"
    return [*lines, *wrapped(files, width, look, "muted", indent=3)]


def _changes(
    changes: Sequence[dict[str, object]], width: int, look: Look
) -> list[Line]:
    """Return what differs: sizes, counts of records and digests, never values."""
    if not changes:
        return [(("   They hold the same bytes.", "text"),)]
    lines: list[Line] = []
    for change in changes:
        head = f"{change['change']}  {look.plain(change['file'])}"
        lines.extend(wrapped(head, width, look, "text", indent=3))
        sides = f"{_side(change['from'])} to {_side(change['to'])}"
        lines.extend(wrapped(sides, width, look, "muted", indent=5))
    return lines


def _side(found: object) -> str:
    if not isinstance(found, dict):
        return "not there"
    records = plural(int(found["records"]), "record")
    return f"{size_words(found['bytes'])}, {records}, {str(found['blake2b'])[:12]}"
