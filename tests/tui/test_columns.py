"""Every heading stands over its column, at every width, whatever stands in the rows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from harness.worlds import NOW, control, detail, operation, summary
from heaveto.model import OperationStatus as Op
from heaveto.model import RunState
from heaveto_tui.lines import Look, cell_width, fit, line_text
from heaveto_tui.outline import Outline, outline
from heaveto_tui.presentation import Clock, operation_face
from heaveto_tui.widgets import ledger, op_table, outline_pane
from heaveto_tui.widgets.bars import HeadFacts, head_line
from heaveto_tui.widgets.preview import preview

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from heaveto.observe.snapshot import RunDetail
    from heaveto_tui.lines import Line

DAY = 86_400.0
WIDTHS = range(60, 221)
LOOK = Look()


def _run() -> RunDetail:
    """Return a run with the longest of everything: names, times, days ago, depths."""
    chain = [
        operation(f"chain-{at}", Op.WAITING, needs=[f"chain-{at - 1}"])
        for at in range(1, 40)
    ]
    operations = [
        operation("chain-0", Op.COMPLETED, started=400 * DAY, took=399 * DAY),
        *chain,
        operation(
            "\u65e5\u672c\u8a9e\u306e\u540d" * 9,
            Op.FAILED,
            needs=["chain-0", "chain-1"],
            started=90_061,
            took=90_000,
            stale=True,
            error_code="exit_nonzero",
            error_text="\u65e5\u672c" * 99,
            assignee="\u62c5\u5f53\u8005" * 9,
        ),
        operation(
            "x" * 300,
            Op.COMPLETED,
            needs=["chain-0", "chain-1", "chain-2"],
            started=3e8,
            took=1e8,
            persisted=False,
            assignee="w" * 80,
        ),
        operation("e\u0301" * 40, Op.RUNNING, started=DAY - 1),
        operation("paused-one", Op.PAUSED, queued_at=NOW - 3599),
    ]
    words = "\u65e5\u672c" * 60
    controls = [
        control(1, "message", "applied", age=400 * DAY, taken=DAY - 1, applied=3e7),
        control(2, "message", "claimed", age=90_000, taken=3599, result="applying:x"),
        control(3, "pause", "never_landed", age=60),
        control(
            4,
            "message",
            "abandoned",
            age=1e6,
            taken=100.5,
            applied=5e5,
            result="abandoned: resolved by alice",
            text=words,
        ),
        control(5, "resume", "queued", age=5, text=words),
        control(6, "\u65e5\u672c\u8a9e\u65e5\u672c\u8a9e", "queued", age=8),
    ]
    run = summary("0badcafe", "long", RunState.EXECUTING, age=400 * DAY)
    return detail(run, operations, controls)


RUN = _run()
TREE: Outline = outline(RUN)
CLOCK = Clock()


def _outline(width: int) -> tuple[Line, list[Line]]:
    return outline_pane.outline_title(width), [
        outline_pane.draw_operation(row, width, False, look=LOOK, now=NOW, detail=RUN)
        for row in TREE.rows
    ]


def _table(width: int) -> tuple[Line, list[Line]]:
    ends = {one.id: one.ended_at for one in RUN.operations}
    return op_table.table_title(width), [
        op_table.draw_row(
            row,
            width,
            False,
            detail=RUN,
            ends=ends,
            now=NOW,
            look=LOOK,
            clock=CLOCK,
        )
        for row in TREE.rows
    ]


def _ledger(width: int) -> tuple[Line, list[Line]]:
    return ledger.ledger_title(width), [
        ledger.draw_control(
            each, width, False, look=LOOK, now=NOW, clock=CLOCK, detail=RUN
        )
        for each in RUN.controls
    ]


def _cells(text: str) -> list[str]:
    """Return what stands in each cell; the second half of a wide one is empty."""
    found: list[str] = []
    for char in text:
        size = cell_width(char)
        if size:
            found.extend([char, *[""] * (size - 1)])
        elif found:
            found[-1] += char
    return found


def _headings(title: str) -> Iterator[tuple[str, int]]:
    for match in re.finditer(r"\S+(?: BY)?", title):
        yield match.group(), cell_width(title[: match.start()])


def test_a_name_does_not_touch_what_stands_behind_it() -> None:
    names = [operation("n" * length, Op.COMPLETED) for length in range(1, 60, 4)]
    run = detail(RUN.run, names)
    for width in WIDTHS:
        lines = preview(run.run, run, width=width - 20, now=NOW, look=LOOK, can=[])
        rows = [
            text for line in lines if (text := line_text(line)).startswith(" \u25cf n")
        ]
        assert len(rows) == 14
        assert all(f" {operation_face(names[0]).word} " in text for text in rows)


@pytest.mark.parametrize("draw", [_outline, _table, _ledger])
def test_a_heading_stands_over_its_column(
    draw: Callable[[int], tuple[Line, list[Line]]],
) -> None:
    for width in WIDTHS:
        title, lines = draw(width)
        heading = line_text(title)
        assert cell_width(heading.rstrip()) <= width, (width, heading)
        rows = [_cells(line_text(fit(line, width))) for line in lines]
        for word, at in _headings(heading):
            end = at + len(word)
            left = all(row[at - 1].strip() == "" for row in rows)
            right = end == width or all(row[end].strip() == "" for row in rows)
            assert left or right, (width, word)


@pytest.mark.parametrize("draw", [_outline, _table, _ledger])
def test_no_number_and_no_status_is_cut(
    draw: Callable[[int], tuple[Line, list[Line]]],
) -> None:
    """What is cut says so, and only names and sentences are: never a time."""
    for width in WIDTHS:
        for line in draw(width)[1]:
            text = line_text(fit(line, width))
            assert not re.search(
                r"(?<![a-zA-Z\u3000-\uffff])[+\d][\dhms:]*\u2026", text
            ), (
                width,
                text,
            )


def test_a_moment_of_another_year_says_so() -> None:
    assert CLOCK.moment(NOW - 60, NOW) == "16:02:50"
    assert CLOCK.moment(NOW - 2 * DAY, NOW) == "27 Nov 16:03"
    assert CLOCK.moment(NOW - 400 * DAY, NOW) == "25 Oct 2025"


@pytest.mark.parametrize("read_only", [False, True])
def test_the_first_row_names_the_run_before_the_home(read_only: bool) -> None:
    facts = HeadFacts(
        homes=("/home/alice/.local/share/heaveto", "/b"),
        read_only=read_only,
        data_age=1.0,
        needs=4,
        now=NOW,
    )
    title = (("Checkpoint", "text+bold"), (" 7be41a20  cache-review", "text"))
    for width in range(72 if read_only else 60, 221):
        line = head_line(
            title, facts, width=width, look=LOOK, clock=CLOCK, user="/home/alice"
        )
        text = line_text(line)
        assert cell_width(text) == width
        assert text.startswith(" Checkpoint 7be41a20"), text
        assert ("read-only" in text) is read_only
        assert "data 1s" in text
        assert "heaveto" in text or width < 80
