"""Sentences: why a run needs you, what a control would do, what became of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from harness.worlds import (
    NOW,
    cache_review,
    control,
    dead,
    detail,
    operation,
    rollback,
    summary,
)
from heaveto.model import OperationStatus as Op
from heaveto.model import RunState
from heaveto_tui import effects
from heaveto_tui.availability import Situation, why_off
from heaveto_tui.lines import Look
from heaveto_tui.presentation import Clock
from heaveto_tui.wording import (
    control_sentence,
    delivery_words,
    list_when,
    reason_sentence,
    run_sentence,
    state_line,
    summary_of_controls,
)

if TYPE_CHECKING:
    from heaveto.observe.snapshot import ControlView, RunDetail

LOOK = Look()


def test_the_reason_names_the_operation_and_what_followed() -> None:
    found = cache_review()
    sentence = reason_sentence(found.run, found, NOW)
    assert sentence.startswith("researcher-2 failed: Request failed with status 400")
    assert "1 operation ran on its error" in sentence
    # Without the detail the list still says what it can.
    assert reason_sentence(found.run, None, NOW).startswith("2 operations still finish")


def test_a_dead_run_says_what_the_row_still_says() -> None:
    found = dead()
    sentence = reason_sentence(found.run, found, NOW)
    assert sentence.startswith("its process is gone, the row still says running")
    assert "1 message was applied and never saved" in sentence


@pytest.mark.parametrize("state", list(RunState))
def test_every_state_has_whole_sentences(state: RunState) -> None:
    run = summary("7be41a20", "x", state)
    sentences = run_sentence(run, None, NOW)
    assert sentences
    assert all(each[0].isupper() and each.endswith(".") for each in sentences)
    if state is RunState.FAILED:
        failed = detail(run, [operation("build-arm", Op.FAILED, error_text="no room")])
        assert run_sentence(run, failed, NOW) == ["build-arm failed: no room."]
    assert "(" in state_line(run, NOW)
    assert list_when(run, NOW)


def test_the_state_carries_its_source_and_its_age() -> None:
    run = summary("7be41a20", "x", RunState.EXECUTING, age=5)
    assert state_line(run, NOW) == "running 5s (signals 1s, process alive)"
    unseen = replace(run, alive=None)
    assert state_line(unseen, NOW) == "~running 5s (signals 1s, process not checked)"


# --- effects


def test_a_pause_says_who_goes_on_and_who_waits() -> None:
    running = detail(
        summary("3df14667", "x", RunState.EXECUTING),
        [
            operation("a", Op.RUNNING, started=3),
            operation("b", Op.WAITING, needs=["a"]),
            operation("c", Op.QUEUED),
        ],
    )
    words = " ".join(effects.pause_effect(running, NOW, LOOK))
    assert "1 running operation will finish: a. After that nothing new starts." in words
    assert "b, c wait until you resume." in words
    assert "This run has no time limit." in words
    limited = replace(running, run=replace(running.run, deadline_at=NOW + 90))
    assert "The time limit keeps counting: 1m30s left." in " ".join(
        effects.pause_effect(limited, NOW, LOOK)
    )


def test_a_resume_says_who_starts_first() -> None:
    words = effects.resume_effect(rollback(), LOOK)
    assert words[0] == "analyst starts at once, as far as slots are free."
    assert words[1].startswith("Then architect, auditor, writer")


def test_a_stop_says_what_finishes_and_what_never_starts() -> None:
    rows = effects.stop_effect(cache_review(), LOOK)
    assert rows == [
        ("2 running", "spawn-1, contrarian-retry: they finish and are saved"),
        ("1 paused", "writer: will not start"),
        ("1 queued", "evaluator: will not start"),
        ("then", "the run ends as cancelled (exit 143)"),
    ]


def test_a_message_says_who_reads_it() -> None:
    assert effects.message_effect(rollback(), LOOK)[1] == (
        "Next to start is analyst, once you resume. Running work is not interrupted."
    )
    nothing = detail(
        summary("3df14667", "x", RunState.EXECUTING), [operation("a", Op.RUNNING)]
    )
    assert effects.message_effect(nothing, LOOK)[1] == "Nothing is left to start."


def test_many_names_are_counted() -> None:
    many = [operation(f"o{index}", Op.RUNNING) for index in range(9)]
    assert effects.names(many, LOOK) == "o0, o1, o2 and 6 more"
    hostile = [operation("a\x1b[2J", Op.RUNNING)]
    assert "\x1b" not in effects.names(hostile, LOOK)


# --- controls


def _of(klass: str, verb: str = "message", **values: object) -> ControlView:
    return control(1, verb, klass, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("row", "over", "words"),
    [
        (_of("queued", age=1), False, "Queued 1s ago. The flow looks every 2s"),
        (_of("queued", age=14), False, "Queued 14s ago and not taken. The flow is"),
        (_of("claimed", result="applying:r", taken=1), False, "Taken at 16:02:51. If"),
        (_of("claimed", result="applying:r", taken=1), True, "Taken at 16:02:51, then"),
        (_of("applied", result="applied"), False, "Applied. It waits for the next"),
        (_of("applied", verb="pause", result="applied", applied=0.3), False, "Applied"),
        (_of("applied", result="applied", reader="analyst"), False, "Read by analyst"),
        (_of("applied", result="applied", lost=True, applied=1), True, "Lost: applied"),
        (_of("rejected", result="rejected:no-pending-ops"), False, "Refused: every"),
        (
            _of("rejected", verb="stop", result="rejected:unsupported-verb:stop"),
            False,
            "Refused: this flow does not know stop.",
        ),
        (
            _of("rejected", result="rejected:error:no room"),
            False,
            "Refused: the flow hit an error while applying it. no room",
        ),
        (_of("rejected", result="rejected: run reached terminal"), True, "Too late:"),
        (_of("never_landed"), True, "Never landed: no process is left"),
        (
            _of("abandoned", result="abandoned: resolved by alice after"),
            True,
            "Closed by alice as abandoned. It is not sent again.",
        ),
        (
            _of("applied", result="applied: resolved by alice after"),
            True,
            "Closed by alice as applied.",
        ),
        (_of("weird", result="who knows"), True, "Result not known to this version"),
    ],
)
def test_every_end_of_a_control_has_a_sentence(
    row: ControlView, over: bool, words: str
) -> None:
    state = RunState.DEAD if over else RunState.EXECUTING
    found = detail(
        summary("3df14667", "x", state),
        [operation("analyst", Op.RUNNING, started=1)],
        [row],
    )
    assert control_sentence(row, found, NOW, Clock()).startswith(words)


def test_the_ledger_is_summed_up() -> None:
    assert summary_of_controls(dead()) == (
        "6 sent: 1 lost, 1 not reported, 1 never landed, 1 refused, 1 too late, "
        "1 closed by hand."
    )
    assert summary_of_controls(detail(dead().run)) == "Nothing was sent to this run."


def test_the_last_word_follows_a_control() -> None:
    found = cache_review()
    pause = found.controls[0]
    assert delivery_words(pause, found) == (
        "pause f2c0a9d4 applied after 0.2s. 2 operations are still running."
    )
    assert delivery_words(_of("queued"), found) is None
    sent = _of("applied", result="applied", applied=0.01)
    assert delivery_words(sent, found) == (
        "message 00000001 applied after 0.1s. Nobody has read it yet."
    )
    read = replace(sent, rendered_into="analyst-id")
    assert delivery_words(read, found) == "message 00000001 read by analyst."


# --- what is off, and why


def _at(found: RunDetail | None, **values: object) -> Situation:
    run = None if found is None else found.run
    return Situation(place="run", run=run, detail=found, now=NOW, **values)  # type: ignore[arg-type]


def _state(state: RunState, **values: object) -> RunDetail:
    return detail(
        summary("3df14667", "x", state, **values),  # type: ignore[arg-type]
        [operation("a", Op.WAITING)],
    )


@pytest.mark.parametrize(
    ("name", "state", "words"),
    [
        ("ctl.pause", RunState.PAUSED, "It is paused already. r resumes it."),
        ("ctl.pause", RunState.DEAD, "Not sent: its process is gone"),
        ("ctl.pause", RunState.COMPLETED, "Not sent: the run ended as done 30s ago."),
        ("ctl.pause", RunState.STOPPING, "It is stopping"),
        ("ctl.resume", RunState.EXECUTING, "It is not paused."),
        ("ctl.message", RunState.STOPPING, "Not sent: it is stopping"),
        ("ctl.stop", RunState.STOPPING, "It is stopping already."),
        ("run.close", RunState.EXECUTING, "Only the row of a dead run"),
        ("run.end_now", RunState.COMPLETED, "Its process has ended already."),
    ],
)
def test_what_is_off_says_why(name: str, state: RunState, words: str) -> None:
    assert (why_off(name, _at(_state(state))) or "").startswith(words)


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("ctl.pause", RunState.EXECUTING),
        ("ctl.pause", RunState.PLANNING),
        ("ctl.resume", RunState.PAUSED),
        ("ctl.resume", RunState.PAUSING),
        ("ctl.message", RunState.PAUSED),
        ("ctl.stop", RunState.PAUSED),
        ("ctl.stop", RunState.STALLED),
        ("run.close", RunState.DEAD),
        ("run.end_now", RunState.EXECUTING),
    ],
)
def test_what_works_says_nothing(name: str, state: RunState) -> None:
    assert why_off(name, _at(_state(state))) is None


def test_more_reasons() -> None:
    live = _state(RunState.EXECUTING)
    assert why_off("ctl.pause", _at(None)) == "No run is chosen. Move to one in Runs."
    assert "is 14s old" in (why_off("ctl.pause", _at(live, data_age=14.0)) or "")
    lionagi = _state(RunState.EXECUTING, source="lionagi")
    assert "li kill 3df14667" in (why_off("ctl.stop", _at(lionagi)) or "")
    assert "Only a heaveto run" in (why_off("run.end_now", _at(lionagi)) or "")
    unseen = _state(RunState.EXECUTING, alive=None)
    assert "cannot be checked" in (why_off("run.end_now", _at(unseen)) or "")
    assert why_off("ctl.pause", _at(unseen)) is None
    started = detail(live.run, [operation("a", Op.RUNNING)])
    assert "every operation has started" in (why_off("ctl.message", _at(started)) or "")


def test_only_a_taken_control_can_be_closed() -> None:
    found = dead()
    for each in found.controls:
        off = why_off("ctl.resolve", _at(found, control=each))
        assert (off is None) == (each.klass == "claimed")
    lost = found.controls[0]
    assert why_off("ctl.again", _at(found, control=lost)) == (
        "No recovered run is alive to read it."
    )
    heir = summary("55555555", "x", RunState.EXECUTING)
    assert why_off("ctl.again", _at(found, control=lost, successor=heir)) is None
    assert why_off("ctl.again", _at(found, control=found.controls[1])) is not None
