"""The outline: an order that only the graph decides, and what blocks what."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.worlds import cache_review, detail, operation, summary
from heaveto.model import OperationStatus as Op
from heaveto.model import RunState
from heaveto_tui.outline import blocking, note, outline, signature, skipped_because
from heaveto_tui.screens.run import first_look, refreshed

if TYPE_CHECKING:
    from heaveto.observe.snapshot import OperationView, RunDetail


def _run(*operations: OperationView) -> RunDetail:
    return detail(summary("7be41a20", "x", RunState.EXECUTING), operations)


def _names(found: RunDetail) -> list[str]:
    return [f"{row.guide}{row.operation.name}" for row in outline(found).rows]


def test_a_tree_under_the_dependency_that_lies_deepest() -> None:
    assert _names(cache_review()) == [
        "researcher",
        "researcher-2",
        "└ analyst",
        "  ├ spawn-1",
        "  ├ architect",
        "  │ └ writer",
        "  └ contrarian",
        "    └ contrarian-retry",
        "      └ evaluator",
    ]
    rows = {row.operation.name: row for row in outline(cache_review()).rows}
    assert rows["evaluator"].dependencies == 2


def test_the_longest_chain_is_marked() -> None:
    chain = [row.operation.name for row in outline(cache_review()).rows if row.chain]
    assert chain == [
        "researcher-2",
        "analyst",
        "contrarian",
        "contrarian-retry",
        "evaluator",
    ]
    assert not any(row.chain for row in outline(_run(operation("a", Op.WAITING))).rows)


@st.composite
def graphs(draw: st.DrawFn) -> RunDetail:
    count = draw(st.integers(1, 14))
    operations = []
    for index in range(count):
        needs = draw(st.lists(st.integers(-1, count), unique=True, max_size=4))
        heads = [f"o{each}" for each in needs]  # cycles and unknown heads too
        status = draw(st.sampled_from(list(Op)))
        operations.append(operation(f"o{index}", status, needs=heads, started=50))
    return _run(*operations)


@given(graphs())
def test_any_graph_has_every_operation_once(found: RunDetail) -> None:
    tree = outline(found)
    assert sorted(row.operation.id for row in tree.rows) == sorted(
        each.id for each in found.operations
    )
    for each in found.operations:
        facts = blocking(found.operations, each.id)
        assert 0 <= facts.rest_on < len(found.operations)
        assert isinstance(note(each, found, over=False), str)


@given(graphs(), st.randoms())
def test_time_and_status_move_no_row(found: RunDetail, random: object) -> None:
    before = [row.operation.id for row in outline(found).rows]
    later = replace(
        found,
        operations=tuple(
            replace(each, status=Op.COMPLETED, started_at=1.0, ended_at=2.0)
            for each in found.operations
        ),
    )
    assert signature(found.operations) == signature(later.operations)
    assert [row.operation.id for row in outline(later).rows] == before
    again = refreshed(outline(found), later)
    assert [row.operation for row in again.rows] == [
        row.operation for row in outline(later).rows
    ]


def test_a_chain_of_two_thousand_needs_no_stack() -> None:
    operations = [operation("o0", Op.COMPLETED, started=1)]
    operations += [
        operation(f"o{index}", Op.WAITING, needs=[f"o{index - 1}"])
        for index in range(1, 2000)
    ]
    rows = outline(_run(*operations)).rows
    assert len(rows) == 2000
    assert rows[-1].depth == 1999
    assert len(rows[-1].guide) <= 12


def test_what_blocks_and_what_is_blocked() -> None:
    found = cache_review()
    facts = blocking(found.operations, "analyst-id")
    assert [each.name for each in facts.needs] == ["researcher", "researcher-2"]
    assert facts.open_needs == ()
    assert [each.name for each in facts.blocks] == [
        "spawn-1",
        "architect",
        "contrarian",
    ]
    assert facts.rest_on == 6
    waits = blocking(found.operations, "evaluator-id")
    assert [each.name for each in waits.open_needs] == ["writer", "contrarian-retry"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("researcher-2", "Request failed with status 400"),
        ("analyst", "ran on a failed input"),
        ("spawn-1", "spawned by analyst"),
        ("architect", "finished, not saved"),
        ("writer", "waits for your resume"),
        ("contrarian", "asked a higher tier"),
        ("contrarian-retry", "in place of contrarian"),
        ("evaluator", "waits for 2 operations"),
    ],
)
def test_the_note_says_the_one_thing_worth_knowing(name: str, words: str) -> None:
    found = cache_review()
    one = next(each for each in found.operations if each.name == name)
    assert note(one, found, over=False).startswith(words)


@pytest.mark.parametrize(
    ("code", "head", "words"),
    [
        ("upstream_failed", Op.FAILED, "a failed"),
        ("upstream_cancelled", Op.CANCELLED, "a was cancelled"),
        ("gate_rejected", Op.COMPLETED, "a said no"),
        ("condition_false", Op.COMPLETED, "its condition was not met"),
        ("something_new", Op.COMPLETED, "something new"),
    ],
)
def test_a_skip_names_what_was_to_blame(code: str, head: Op, words: str) -> None:
    found = _run(
        operation("a", head, started=9),
        operation("b", Op.SKIPPED, needs=["a"], reason="upstream_skipped"),
        operation("c", Op.SKIPPED, needs=["b"], reason=code),
    )
    assert skipped_because(found.operations[2], found) == words


def test_the_cursor_starts_on_the_worst() -> None:
    assert first_look(cache_review()) == "researcher-2-id"
    assert first_look(_run(operation("a", Op.WAITING))) == "a-id"
    running = _run(operation("a", Op.COMPLETED), operation("b", Op.RUNNING))
    assert first_look(running) == "b-id"
    assert first_look(_run()) is None
