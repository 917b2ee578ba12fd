"""No byte of a run acts on the terminal, wherever in a run it stands.

The names, ids, codes, reasons, sentences and paths of runs come from rows and files
that anybody may have written. Here every one of them is made hostile, and every place,
view and overlay is looked at.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import pytest

from harness.consoles import Driven, console
from harness.worlds import (
    HOME,
    NOW,
    cache_review,
    control,
    dead,
    detail,
    operation,
    summary,
)
from heaveto.model import OperationStatus as Op
from heaveto.model import RunState
from heaveto.observe.snapshot import (
    ControlView,
    LinkView,
    Notice,
    OperationView,
    RunDetail,
    RunSummary,
)
from heaveto.text import cell_width, plain
from heaveto_tui.lines import Look
from heaveto_tui.theme import PALETTES, Painter
from heaveto_tui.wording import reason_sentence

if TYPE_CHECKING:
    from collections.abc import Callable

HOSTILE = (
    "\x1b[2J\x1b]52;c;QQ==\x07\x1b]8;;http://x\x1b\\ [red]x[/] \x9b31m \u202e\u2066"
    "\u200b\u200d e\u0301\u0301 \N{MAN}\u200d\N{WOMAN} \u65e5\u672c \u05d0\u05d1\nb\tc"
)
_WORDS: dict[type, tuple[str, ...]] = {
    OperationView: ("name", "assignee", "error_code", "error_text", "reason"),
    ControlView: ("result", "owner", "by", "host", "text"),
    RunSummary: ("name", "reason_code", "generation_dir"),
    Notice: ("code", "text", "what_to_do"),
    LinkView: ("condition",),
}
_IDS: dict[type, tuple[str, ...]] = {
    OperationView: ("id",),
    ControlView: ("id", "rendered_into"),
    RunSummary: ("run_id", "session_id", "superseded_by"),
}
"""What of each kind of value is text that a run, or a row, brought."""


def _run() -> RunDetail:
    """Return a run that has everything that can be shown."""
    base = cache_review()
    skipped = operation("spare", Op.SKIPPED, needs=["analyst"], reason="a gate said no")
    retried = replace(base.operations[0], reason="cut off", spawned_by="analyst-id")
    known = summary(
        "0badcafe",
        "cache-review",
        RunState.FAILED,
        reason_code="run.failed",
        generation_dir="gen-0041",
        warnings=(Notice(code="spawn_dropped", text="t", what_to_do="w"),),
    )
    sent = (
        *dead().controls,
        control(1, "message", "applied", text="read", reader="analyst", applied=1.0),
        control(2, "message", "rejected", result="rejected:error:it broke"),
        control(3, "message", "rejected", result="something else"),
    )
    return replace(
        detail(known, [retried, *base.operations[1:], skipped], sent, links=base.links),
        run_dir="/nowhere",
    )


def _replaced(value: Any, kind: type, name: str, change: Callable[[Any], Any]) -> Any:
    """Return a value with one of its members changed, everywhere inside it."""
    if isinstance(value, tuple):
        return tuple(_replaced(each, kind, name, change) for each in value)
    if not hasattr(type(value), "__dataclass_fields__"):
        return value
    found = {
        each.name: _replaced(getattr(value, each.name), kind, name, change)
        for each in fields(value)
    }
    if isinstance(value, kind):
        found[name] = change(found[name])
    return type(value)(**found)


def _poisoned(value: Any) -> Any:
    """Return a text made hostile; None stays what it is."""
    return None if value is None else f"{value} {HOSTILE}"


async def _walk(at: Driven) -> None:
    """Go through every place, view and overlay; look at what is drawn in each."""
    steps = (
        *(("down",) * 3),
        *("enter", "n", "down", "down", "down", "o", "c", "e", "w", "t", "T"),
        *("o", "home", "enter", "right_square_bracket", "right_square_bracket"),
        *("escape", "5", *(("down",) * 9), "enter", "escape"),
        *("4", "2", "y", "escape", "colon", "escape", "question_mark", "escape"),
        *("m", "escape", "p", "r", "x", "escape", "1"),
    )
    for step in steps:
        await at.press(step)
        _inert(at, step)


def _inert(at: Driven, step: str) -> None:
    width = at.app.size.width
    for strip in at.app.screen._compositor.render_strips():
        assert strip.text == plain(strip.text), (step, strip.text)
        assert cell_width(strip.text) == width, (step, strip.text)


@pytest.mark.parametrize("size", [(80, 24), (160, 45)], ids=["narrow", "wide"])
@pytest.mark.parametrize("what", ["words", "ids"])
async def test_a_text_acts_nowhere(what: str, size: tuple[int, int]) -> None:
    run = _run()
    for kind, names in (_WORDS if what == "words" else _IDS).items():
        for name in names:
            run = _replaced(run, kind, name, _poisoned)
    async with console([run, dead()], size=size, homes=(HOME, "/b")) as at:
        await _walk(at)


_MOMENTS: dict[type, tuple[str, ...]] = {
    OperationView: ("started_at", "ended_at", "queued_at"),
    ControlView: ("created_at", "claimed_at", "applied_at", "age_s"),
    RunSummary: ("started_at", "ended_at", "deadline_at", "last_sign_at"),
}


@pytest.mark.parametrize("value", [1e18, -1e18, 1.7e12], ids=["far", "ago", "ms"])
async def test_a_number_that_is_no_moment_ends_nothing(value: float) -> None:
    run = _run()
    for kind, names in _MOMENTS.items():
        for name in names:
            run = _replaced(run, kind, name, lambda known: known and value)
    async with console([run, dead()], size=(130, 40)) as at:
        await _walk(at)
        assert at.app.is_running


@pytest.mark.parametrize("ascii_only", [False, True])
def test_what_was_not_made_inert_is_made_so_where_it_is_drawn(ascii_only: bool) -> None:
    painter = Painter(PALETTES["night"], Look(ascii_only=ascii_only))
    strip = painter.strip((("a", "text"), (HOSTILE, "bad"), ("z", "text")), 60)
    assert strip.text == plain(strip.text)
    assert cell_width(strip.text) == 60
    assert strip.text.isascii() is ascii_only
    segment = painter.segment("\x1b", "bad")
    assert segment.text == "\\x1b"


def test_a_name_without_end_leaves_room_for_what_happened() -> None:
    broken = operation("y" * 10_000, Op.FAILED, started=9, error_text="disk full")
    run = detail(summary("0badcafe", "long", RunState.FAILED), [broken])
    assert "failed: disk full" in reason_sentence(run.run, run, NOW)[:100]
