"""Words, signs and colours: a state is told by its word, its sign and its role."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta, timezone

import pytest

from harness.worlds import NOW, control, dead, operation, summary
from heaveto.model import OperationStatus as Op
from heaveto.model import RunState
from heaveto.observe.snapshot import CheckpointView, Notice
from heaveto_tui.lines import DASH, Look, line_text
from heaveto_tui.presentation import (
    Clock,
    checkpoint_face,
    checkpoint_words,
    control_face,
    control_word,
    operation_face,
    operation_time,
    run_face,
    saved_face,
    status_face,
)
from heaveto_tui.theme import PALETTES


def _ascii(glyph: str) -> str:
    return line_text(Look(ascii_only=True).spelled(((glyph, "text"),)))


def test_every_status_is_told_apart_without_colour() -> None:
    faces = [status_face(status) for status in Op]
    # What waits and what is ready are both queued: the note tells them apart.
    assert len({face.word for face in faces}) == len(Op) - 1
    signs = {
        (face.glyph, _ascii(face.glyph))
        for status, face in zip(Op, faces, strict=True)
        if status is not Op.UNSTARTED
    }
    # `not started` shares its sign with `queued`: the run's state tells them apart.
    assert len(signs) == len(Op) - 2
    assert all(len(sign) == 1 and sign.isascii() for _, sign in signs)


@pytest.mark.parametrize("state", list(RunState))
def test_every_run_state_has_a_face(state: RunState) -> None:
    face = run_face(summary("7be41a20", "x", state))
    assert face.word
    assert len(_ascii(face.glyph)) == 1
    assert face.role in {"muted", "good", "live", "hold", "bad", "note"}


def test_what_is_only_believed_has_a_tilde() -> None:
    run = summary("7be41a20", "x", RunState.EXECUTING, alive=None)
    assert run_face(run).word == "~running"
    assert run_face(replace(run, alive=True)).word == "running"


def test_done_on_a_failed_input_is_no_plain_done() -> None:
    stale = Notice(code="input_failed", text="t", what_to_do="w")
    run = summary("7be41a20", "x", RunState.COMPLETED, warnings=(stale,))
    assert run_face(run).word == "done, stale"
    assert run_face(run).role == "hold"
    done = operation("a", Op.COMPLETED, stale=True)
    assert operation_face(done).role == "hold"


def test_executed_is_not_saved() -> None:
    finished = operation("a", Op.COMPLETED, started=5, persisted=False)
    assert saved_face(finished, over=False).word == "not yet"
    assert saved_face(finished, over=True).word == "no"
    assert saved_face(replace(finished, persisted=True), over=False).word == "yes"
    assert saved_face(replace(finished, persisted=None), over=False).word == DASH
    running = operation("a", Op.RUNNING, started=5, persisted=False)
    assert saved_face(running, over=False).word == DASH
    lost = operation("a", Op.LOST, started=5, persisted=False)
    assert saved_face(lost, over=True).word == "no"
    skipped = operation("a", Op.SKIPPED, persisted=False, executed=True)
    assert saved_face(skipped, over=True).word == DASH


def test_every_end_of_a_control_has_its_own_word() -> None:
    words = [control_word(each, over=True) for each in dead().controls]
    assert words == [
        "lost",
        "not reported",
        "never landed",
        "refused",
        "too late",
        "closed by hand",
    ]
    live = [
        control(1, "pause", "queued"),
        control(2, "message", "claimed", result="applying:run-7"),
        control(3, "message", "applied", result="applied"),
        control(4, "message", "applied", result="applied", reader="a"),
    ]
    assert [control_word(each, over=False) for each in live] == [
        "queued",
        "taken",
        "applied",
        "read",
    ]
    faces = [control_face(each, over=False) for each in live]
    assert faces[0].glyph != faces[2].glyph


def _view(**values: object) -> CheckpointView:
    base: dict[str, object] = {
        "version": 3,
        "generation": "0123456789abcdef" * 2,
        "seq": 7,
        "status": "clean",
        "records_since_base": 3,
        "saved": 2,
    }
    return CheckpointView(**{**base, **values})  # type: ignore[arg-type]


def test_the_checkpoint_tells_generation_and_sequence() -> None:
    assert checkpoint_words(_view(), 6) == "gen 01234567 seq 7 (+3)"
    assert checkpoint_words(_view(version=2), 6) == "v2 · 2 of 6 saved"
    assert checkpoint_words(None, 6) == "no checkpoint"
    assert checkpoint_words(_view(status="refused"), 6) == "checkpoint v3 refused"
    prefix = checkpoint_face(_view(status="recovered_prefix"))
    assert prefix.word == "good up to seq 7"
    assert checkpoint_face(_view(status="refused")).role == "bad"


def test_times() -> None:
    running = operation("a", Op.RUNNING, started=12.9)
    assert operation_time(running, NOW) == "12s"
    done = operation("a", Op.COMPLETED, started=100, took=3.24)
    assert operation_time(done, NOW) == "3.2s"
    assert operation_time(operation("a", Op.WAITING), NOW) == DASH
    assert Clock().moment(NOW, NOW) == "16:03:50"
    assert Clock().moment(NOW - 86_400, NOW) == "28 Nov 16:03"
    assert Clock().now(NOW) == "16:03:50 UTC"
    assert Clock(timezone(timedelta(hours=2), "CEST")).now(NOW) == "18:03:50 CEST"


def _luminance(colour: str) -> float:
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


COLOURED = [name for name, each in PALETTES.items() if each.background != "default"]


@pytest.mark.parametrize("name", COLOURED)
def test_every_role_can_be_read_on_every_background(name: str) -> None:
    palette = PALETTES[name]
    for role in ("text", "muted", "good", "live", "hold", "bad", "note"):
        for ground in (palette.background, palette.panel, palette.selected):
            assert _contrast(getattr(palette, role), ground) >= 4.5
