"""Plans for the layout, the grid of the map, and the table: pure parts of the views."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.dag_trace import edges_of, golden
from harness.flows_drawn import planned
from harness.worlds import NOW, cache_review, detail, operation, summary
from heaveto.model import OperationStatus as Op
from heaveto.model import RunState
from heaveto_tui.dag_layout import draw
from heaveto_tui.lines import Look, line_text, line_width
from heaveto_tui.outline import outline
from heaveto_tui.pictures import (
    Plan,
    additions,
    grid_of,
    plan_key,
    plan_of,
    state_of,
    step_on_grid,
    with_additions,
)
from heaveto_tui.presentation import Clock
from heaveto_tui.widgets.op_table import (
    ORDERS,
    draw_row,
    sorted_rows,
    table_entries,
    table_title,
    waited,
)

if TYPE_CHECKING:
    from heaveto.observe.snapshot import RunDetail

LOOK = Look()


def plan(*nodes: tuple[str, str]) -> Plan:
    """Return a plan of ``(id, ids it depends on)``."""
    return Plan(tuple((name, name, tuple(deps)) for name, deps in nodes), {}, ())


def test_a_plan_depends_on_the_graph_alone() -> None:
    found = cache_review()
    later = replace(
        found,
        operations=tuple(
            replace(each, status=Op.COMPLETED, ended_at=NOW)
            for each in found.operations
        ),
    )
    assert plan_key(found) == plan_key(later)
    assert plan_of(found, LOOK) == plan_of(later, LOOK)
    renamed = replace(found, operations=(*found.operations[1:], found.operations[0]))
    assert plan_key(found) != plan_key(renamed)
    assert plan_of(found, LOOK).kinds == {
        ("analyst-id", "spawn-1-id"): "spawn",
        ("contrarian-id", "contrarian-retry-id"): "escalation",
    }


def test_a_damaged_plan_loses_what_closes_a_cycle() -> None:
    operations = [
        operation("a", Op.COMPLETED, needs=["b", "gone"]),
        operation("b", Op.COMPLETED, needs=["a"]),
    ]
    found = plan_of(detail(summary("x", "x", RunState.FAILED), operations), LOOK)
    assert len(found.dropped) == 1
    assert sum(len(deps) for _, _, deps in found.nodes) == 1
    assert [len(column) for column in grid_of(found)] == [1, 1]


def test_growth_is_told_from_change() -> None:
    old = plan(("a", ""), ("b", "a"))
    assert additions(old, plan(("a", ""), ("b", "a"), ("c", "b"))) == [
        ("c", "c", ("b",))
    ]
    assert [
        name
        for name, _, _ in additions(
            old, plan(("d", "c"), ("a", ""), ("c", "b"), ("b", "a"))
        )
        or ()
    ] == ["c", "d"]
    assert additions(old, old) == []
    assert additions(old, plan(("a", ""), ("b", ""), ("c", "b"))) is None
    assert additions(old, plan(("a", ""), ("c", "a"))) is None
    assert additions(old, old._replace(kinds={("a", "b"): "spawn"})) is None
    many = plan(("a", ""), ("b", "a"), *((f"n{at}", "b") for at in range(13)))
    assert additions(old, many) is None


def test_what_has_grown_is_a_drawing_of_the_new_plan() -> None:
    found = plan_of(planned(50), LOOK)
    old = Plan(found.nodes[:45], {}, ())
    more = additions(old, found)
    assert more is not None
    drawing = with_additions(draw(old.nodes), more, found)
    nodes = [(name, label, list(deps)) for name, label, deps in found.nodes]
    assert edges_of(drawing.nodes()) == edges_of(nodes)


@pytest.mark.parametrize("size", [12, 50, 250])
def test_the_grid_has_the_steps_of_the_drawing(size: int) -> None:
    found = plan_of(planned(size), LOOK)
    drawing = draw(found.nodes)
    assert [set(column) for column in grid_of(found)] == [
        set(layer) for layer in drawing.layers
    ]


def test_a_long_chain_needs_no_recursion() -> None:
    nodes = [(f"{at}", f"{at}", (f"{at - 1}",) if at else ()) for at in range(5000)]
    assert len(grid_of(Plan(tuple(nodes[::-1]), {}, ()))) == 5000


GRID = [["a"], ["b", "c", "d"], [], ["e"]]


@given(st.sampled_from("abcde"), st.integers(-1, 1), st.integers(-1, 1))
def test_a_step_on_the_grid_stays_on_it(name: str, along: int, across: int) -> None:
    grid = [column for column in GRID if column]
    found = step_on_grid(grid, name, along=along, across=across)
    assert found is None or any(found in column for column in grid)


def test_steps_on_the_grid() -> None:
    grid = [["a"], ["b", "c", "d"], ["e"]]
    assert step_on_grid(grid, "a", along=1) == "b"
    assert step_on_grid(grid, "d", along=1) == "e"
    assert step_on_grid(grid, "c", across=1) == "d"
    assert step_on_grid(grid, "d", across=1) is None
    assert step_on_grid(grid, "a", along=-1) is None
    assert step_on_grid(grid, "x", along=1) is None


def test_a_stale_result_has_a_mark() -> None:
    by_name = {each.name: state_of(each) for each in cache_review().operations}
    assert by_name["analyst"].mark == "!"
    assert by_name["analyst"].role == "hold"
    assert by_name["researcher"].mark == " "


# --- the table


def names(found: RunDetail, order: str) -> list[str]:
    rows = sorted_rows(outline(found).rows, order, NOW)
    return [row.operation.name for row in rows]


def test_orders() -> None:
    found = cache_review()
    assert names(found, "status")[:2] == ["researcher-2", "spawn-1"]
    assert names(found, "name")[0] == "analyst"
    assert names(found, "time")[:2] == ["spawn-1", "contrarian-retry"]
    assert names(found, "start")[:2] == ["researcher", "researcher-2"]
    assert names(found, "start")[-1] in {"writer", "evaluator"}
    assert names(found, "saved")[0] == "architect"
    assert all(
        sorted(names(found, order)) == sorted(names(found, "name")) for order in ORDERS
    )


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 9),
        ("contra", 2),
        ("CONTRA", 2),
        ("failed", 1),
        ("status 400", 1),
        ("done", 3),
        ("spawn-1-id", 1),
        ("nothing like it", 0),
    ],
)
def test_find_looks_at_names_ids_roles_states_and_errors(text: str, count: int) -> None:
    assert len(table_entries(outline(cache_review()).rows, text)) == count


def test_waited_is_from_being_ready_to_the_start() -> None:
    found = cache_review()
    ends = {each.id: each.ended_at for each in found.operations}
    by_name = {each.name: each for each in found.operations}
    assert waited(by_name["researcher"], ends, NOW) is None
    assert waited(by_name["spawn-1"], ends, NOW) == pytest.approx(19.8)
    assert waited(by_name["writer"], ends, NOW) == pytest.approx(30)
    assert waited(by_name["evaluator"], ends, NOW) is None


@pytest.mark.parametrize("width", [60, 80, 100, 139])
def test_columns_stand_under_their_headings(width: int) -> None:
    found = cache_review()
    ends = {each.id: each.ended_at for each in found.operations}
    title = line_text(table_title(width))
    for row in outline(found).rows:
        line = draw_row(
            row, width, False, detail=found, ends=ends, now=NOW, look=LOOK,
            clock=Clock(),
        )  # fmt: skip
        text = line_text(line)
        assert line_width(line) <= width
        assert text[title.index("OPERATION") :].startswith(row.operation.name[:8])
        if width >= 80:
            assert text[title.index("ROLE") :].startswith("shell")


def test_stored_plans_are_what_is_drawn() -> None:
    found = planned(250)
    assert [each.id for each in found.operations] == [n for n, _, _ in golden(250)]
