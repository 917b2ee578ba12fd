"""The rows that are always there: where one is, how fresh it is, what works. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from heaveto.text import duration, short_id
from heaveto_tui.actions import key_name
from heaveto_tui.availability import STALE_AFTER
from heaveto_tui.lines import DASH, cell_width, join, line_width
from heaveto_tui.presentation import checkpoint_words, is_over, is_unsaved, run_face
from heaveto_tui.wording import state_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heaveto.observe.snapshot import RunDetail, RunSummary
    from heaveto_tui.actions import Action
    from heaveto_tui.lines import Line, Look
    from heaveto_tui.presentation import Clock

__all__ = ["HeadFacts", "head_line", "home_words", "key_line", "run_line", "run_name"]


class HeadFacts(NamedTuple):
    """What the first row tells beside the place.

    Attributes:
        homes: The open homes, the one that is written to first.
        read_only: Nothing can be changed from here.
        data_age: Seconds since the slowest open home answered; None before it did.
        needs: How many runs need somebody.
        now: Epoch seconds.
        listed: The runs were listed, be it that there was nothing to be read.
    """

    homes: Sequence[str]
    read_only: bool
    data_age: float | None
    needs: int
    now: float
    listed: bool = False


_TITLE = 21
"""Cells that the place and the id of its run take: they stay, the home gives way."""


def home_words(homes: Sequence[str], look: Look, width: int, user: str = "") -> str:
    """Return the first home, its start cut, and how many more are open."""
    if not homes:
        return "no home"
    path = look.plain(homes[0])
    if user and (path == user or path.startswith(f"{user}/")):
        path = f"~{path[len(user) :]}"
    more = f" +{len(homes) - 1}" if len(homes) > 1 else ""
    room = max(6, width - len(more))
    if cell_width(path) > room:
        tail = path.rsplit("/", 1)[-1]
        path = look.clip_start(f"{look.cut}/{tail}", room)
    return path + more


def head_line(
    title: Line, facts: HeadFacts, *, width: int, look: Look, clock: Clock, user: str
) -> Line:
    """Return the first row: place and object, home, data age, needs, clock.

    The clock tells when the row was written: where nothing goes on it stands.
    """
    wide = width >= 120
    if facts.data_age is None:
        age = "no data yet" if facts.listed else "reading"
    else:
        age = f"data {_age(facts.data_age)}"
        if facts.data_age > STALE_AFTER:
            age += " STALE"
    need = f"! {facts.needs}"
    if facts.needs and wide:
        need += " needs you" if facts.needs == 1 else " need you"
    right: Line = (
        (f"  {age} · ", "bad" if "STALE" in age else "muted"),
        (need, "text+bold" if facts.needs else "muted"),
        (f" · {'as of' if wide else 'at'} {clock.now(facts.now)} ", "muted"),
    )
    home = f" · {home_words(facts.homes, look, 40 if wide else 18, user)}"
    marks = " read-only" if facts.read_only else ""
    rest = width - line_width(right)
    if rest - cell_width(home + marks) < min(line_width(title) + 1, _TITLE):
        home = " ·" if marks else ""
    room = rest - cell_width(home + marks)
    left = (*_clipped(((" ", "text"), *title), room, look), (home + marks, "muted"))
    return join(left, right, width, mark=look.cut)


def _clipped(line: Line, room: int, look: Look) -> Line:
    """Cut a line at its end, without filling it up."""
    out: list[tuple[str, str]] = []
    for text, role in line:
        cut = look.clip(text, max(0, room))
        if cut:
            out.append((cut, role))
        room -= line_width(((cut, role),))
        if cut != text:
            break
    return tuple(out)


def _age(seconds: float) -> str:
    return f"{int(seconds)}s" if seconds < 60 else duration(seconds)


def run_name(run: RunSummary | None, look: Look) -> str:
    """Return how a run is called in titles: its short id and its name."""
    if run is None:
        return "no run"
    name = look.plain(run.name) if run.name else DASH
    return f"{short_id(run.session_id or run.run_id)}  {name}"


def run_line(
    run: RunSummary,
    detail: RunDetail | None,
    *,
    width: int,
    now: float,
    look: Look,
    checked_at: float | None = None,
) -> Line:
    """Return the second row of a run: state and its source left, checkpoint right."""
    face = run_face(run)
    total = run.nodes.get("total", 0)
    words = checkpoint_words(run.checkpoint, total)
    if run.generation_dir:
        words += f" · {look.plain(run.generation_dir)}"
    unsaved = _unsaved(detail)
    if unsaved and width >= 120:
        gone = "never saved" if is_over(run) else "not saved yet"
        words += f" · {unsaved} finished, {gone}"
    role = "muted"
    if run.checkpoint is not None and run.checkpoint.status == "refused":
        role = "bad"
    return join(
        (
            (" ", "text"),
            (f"{face.glyph} ", face.role),
            (look.plain(state_line(run, now, checked_at)), face.role),
        ),
        ((f"  {words} ", role),),
        width,
        mark=look.cut,
    )


def _unsaved(detail: RunDetail | None) -> int:
    if detail is None:
        return 0
    return sum(1 for each in detail.operations if is_unsaved(each))


def key_line(
    actions: Sequence[tuple[Action, str, bool]], *, width: int, look: Look
) -> Line:
    """Return the last row: the keys that work here, in brackets those that do not now.

    The brackets take the place of blanks, so that no key moves when another one starts
    or stops working.

    Args:
        actions: Each with its key and whether it works, in the order of the table; what
            does not fit is left to the help overlay, whose key always stays.
        width: Cells.
        look: How text is spelled.
    """
    help_line: Line = ((" ? help ", "text"),)
    room = width - line_width(help_line)
    parts: list[tuple[str, str]] = []
    for each, name, works in actions:
        if each.id == "go.help":
            continue
        key = key_name(name, enter=look.enter)
        text = f"{key} {each.label}"
        text = f" {text} " if works else f"({text})"
        size = line_width(((text, ""),))
        if size > room:
            continue
        room -= size
        parts.append((text, "text" if works else "muted"))
    return (*parts, *help_line)
