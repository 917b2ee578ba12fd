"""From signals to bars: waits, pauses, folds, and a mark for the shortest run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.worlds import NOW, control, detail, operation, summary
from heaveto.model import OperationStatus as Op
from heaveto.model import RunState
from heaveto_tui.timeline import FOLD, Piece, bars, nice, timeline

if TYPE_CHECKING:
    from heaveto.observe.snapshot import ControlView, OperationView, RunDetail


def run_of(
    *operations: OperationView,
    controls: tuple[ControlView, ...] = (),
    state: RunState = RunState.EXECUTING,
    age: float = 100.0,
    ended: float | None = None,
) -> RunDetail:
    return detail(
        summary("0ddba11a", "x", state, age=age, ended=ended), operations, controls
    )


def kinds(found: RunDetail, name: str) -> list[tuple[str, float, float]]:
    time = timeline(found, NOW)
    return [
        (kind, round(start - NOW, 3), round(end - NOW, 3))
        for start, end, kind in time.pieces.get(f"{name}-id", ())
    ]


def test_a_run_piece_starts_where_the_operation_started() -> None:
    found = run_of(operation("a", Op.COMPLETED, started=90, took=30))
    assert kinds(found, "a") == [("queued", -100, -90), ("running", -90, -60)]
    time = timeline(found, NOW)
    assert (time.start, time.end) == (NOW - 100, NOW)
    assert time.work == 30
    assert time.idle == ((NOW - 100, NOW - 90), (NOW - 60, NOW))


def test_the_wait_begins_when_the_last_dependency_ended() -> None:
    found = run_of(
        operation("a", Op.COMPLETED, started=100, took=10),
        operation("b", Op.COMPLETED, started=100, took=40),
        operation("c", Op.RUNNING, needs=["a", "b"], started=50),
    )
    assert kinds(found, "c") == [("queued", -60, -50), ("now", -50, 0)]
    assert timeline(found, NOW).live


def test_a_closed_gate_is_a_band_of_its_own() -> None:
    pauses = (
        control(1, "pause", "applied", age=80, applied=0),
        control(2, "resume", "applied", age=30, applied=0),
        control(3, "pause", "rejected", age=20, applied=0),
    )
    found = run_of(
        operation("a", Op.COMPLETED, started=100, took=40),
        operation("b", Op.COMPLETED, needs=["a"], started=25, took=5),
        controls=pauses,
    )
    assert kinds(found, "b") == [
        ("queued", -60, -25),
        ("waited", -60, -30),
        ("running", -25, -20),
    ]
    time = timeline(found, NOW)
    assert time.pauses == ((NOW - 80, NOW - 30),)
    assert time.held == pytest.approx(30)


def test_a_pause_that_lasts_holds_what_stands_at_the_gate() -> None:
    found = run_of(
        operation("a", Op.COMPLETED, started=100, took=40),
        operation("b", Op.PAUSED, needs=["a"]),
        operation("c", Op.WAITING, needs=["b"]),
        controls=(control(1, "pause", "applied", age=50, applied=0),),
    )
    assert kinds(found, "b") == [("queued", -60, 0), ("waited", -50, 0)]
    assert kinds(found, "c") == []


def test_what_never_ended_is_cut_where_the_run_ended() -> None:
    found = run_of(
        operation("a", Op.LOST, started=90),
        operation("b", Op.COMPLETED, started=80, took=20),
        state=RunState.FAILED,
        ended=50,
    )
    assert kinds(found, "a") == [("queued", -100, -90), ("cut", -90, -50)]


def test_long_idle_time_is_folded_and_can_be_shown() -> None:
    found = run_of(
        operation("a", Op.COMPLETED, started=1000, took=10),
        operation("b", Op.COMPLETED, started=10, took=10),
        state=RunState.COMPLETED,
        age=1000,
        ended=0,
    )
    time = timeline(found, NOW)
    axis = time.axis(60)
    assert [one.fold for one in axis.stretches] == ["", "idle", ""]
    assert axis.stretches[1].width == FOLD
    assert axis.width == 60
    assert axis.column(NOW - 995) < axis.stretches[1].first
    full = time.axis(60, folded=False)
    assert [one.fold for one in full.stretches] == [""]
    assert axis.column(NOW - 990) - axis.column(NOW - 1000) > 20
    assert full.column(NOW - 990) - full.column(NOW - 1000) == 0


def test_the_axis_of_a_live_run_ends_at_a_round_length_and_stands_still() -> None:
    found = run_of(operation("a", Op.RUNNING, started=100))
    columns = set()
    for after in range(1, 24):
        time = timeline(found, NOW + after)
        columns.add(time.axis(80).column(NOW - 50))
    assert len(columns) == 1
    assert time.axis(80).column(NOW + 20) > time.axis(80).column(NOW)


@pytest.mark.parametrize("seconds", [0.0, 0.01, 1.0, 1.01, 7, 99, 100, 101, 123456])
def test_a_round_length_holds_what_it_is_for(seconds: float) -> None:
    assert seconds <= nice(seconds) <= max(1.0, seconds * 1.4)


SPANS = st.lists(
    st.tuples(st.floats(0, 5000, allow_nan=False), st.floats(0, 400, allow_nan=False)),
    min_size=1,
    max_size=12,
)


@given(SPANS, st.integers(12, 400), st.booleans(), st.booleans())
def test_every_piece_leaves_a_mark_in_order(
    spans: list[tuple[float, float]], width: int, folded: bool, live: bool
) -> None:
    operations = [
        operation(f"o{at}", Op.COMPLETED, started=6000 - start, took=took)
        for at, (start, took) in enumerate(spans)
    ]
    if live:
        operations.append(operation("now", Op.RUNNING, started=3.0))
    state = RunState.EXECUTING if live else RunState.COMPLETED
    found = run_of(*operations, state=state, age=6000, ended=0)
    time = timeline(found, NOW)
    axis = time.axis(width, folded=folded)
    assert 1 <= axis.width <= width
    for one in operations:
        marks = bars(time.pieces[one.id], axis)
        assert marks[-1][2] in ("running", "now")
        assert all(0 <= first < last <= axis.width for first, last, _ in marks)
    moments = sorted(
        moment for pieces in time.pieces.values() for p in pieces for moment in p[:2]
    )
    columns = [axis.column(moment) for moment in moments]
    assert columns == sorted(columns)
    ticks = axis.ticks()
    assert all(0 <= column < axis.width for column, _ in ticks)
    ends = [column + len(text) for column, text in ticks]
    assert all(end < column for end, (column, _) in zip(ends, ticks[1:], strict=False))


def test_a_run_without_any_time_has_an_axis() -> None:
    found = run_of(operation("a", Op.WAITING), age=0)
    found = replace(found, run=replace(found.run, started_at=None))
    axis = timeline(found, NOW).axis(40)
    assert axis.width >= 1
    assert axis.column(NOW) < axis.width


def test_a_clock_that_went_back_breaks_nothing() -> None:
    one = replace(operation("a", Op.COMPLETED, started=10), ended_at=NOW - 500)
    found = run_of(one, state=RunState.COMPLETED, ended=400)
    time = timeline(found, NOW)
    (*_, (first, last, kind)) = bars(time.pieces["a-id"], time.axis(30))
    assert kind == "running"
    assert first < last
    ((first, last, _),) = bars([Piece(NOW + 999, NOW - 999, "running")], time.axis(30))
    assert first < last
