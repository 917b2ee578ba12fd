"""Any acyclic graph reads back, both ways, in Unicode and ASCII, and as it grows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.dag_trace import edges_of, grid, kinds_seen, read_back
from heaveto_tui.dag_layout import break_cycles, draw, find_cycle

Node = tuple[str, str, list[str]]
KINDS = ("depends", "spawn", "escalation", "conditional")

labels = st.text(max_size=12) | st.sampled_from(["", "日本", "e\u0301", "►─│", "👩‍💻"])
directions = st.sampled_from(["LR", "TB"])


@st.composite
def graphs(draw_: st.DrawFn, most: int = 24) -> list[Node]:
    """Sparse and dense, deep and wide; ids do not tell the order."""
    back = draw_(
        st.lists(
            st.tuples(labels, st.lists(st.integers(0, 10**6), max_size=5)),
            max_size=most,
        )
    )
    reach = draw_(st.sampled_from([2, 5, 1000]))
    names = [f"{(at * 7919) % 10007}" for at in range(len(back))]
    nodes: list[Node] = []
    for at, (label, picks) in enumerate(back):
        near = range(max(0, at - reach), at)
        deps = sorted({near[pick % len(near)] for pick in picks}) if near else []
        nodes.append((names[at], label, [names[dep] for dep in deps]))
    return nodes


@st.composite
def layered(draw_: st.DrawFn) -> list[Node]:
    """Layers joined so densely that wires have to change places."""
    widths = draw_(st.lists(st.integers(1, 7), min_size=2, max_size=4))
    nodes: list[Node] = []
    above: list[str] = []
    for at, width in enumerate(widths):
        names = [f"{at}-{place}" for place in range(width)]
        for name in names:
            deps = draw_(st.lists(st.sampled_from(above), unique=True)) if above else []
            nodes.append((name, f"op {name}", deps))
        above = names
    return nodes


any_graph = graphs() | layered()


def check(nodes: list[Node], direction: str, ascii: bool) -> None:
    drawing = draw(nodes, direction, ascii=ascii)
    wires = edges_of(nodes)
    assert not read_back(
        drawing.rows, drawing.boxes, direction, wires, ascii_only=ascii
    )


@settings(deadline=None)
@given(any_graph, directions, st.booleans())
def test_any_graph_reads_back(nodes: list[Node], direction: str, ascii: bool) -> None:
    check(nodes, direction, ascii)


@settings(deadline=None, max_examples=60)
@given(any_graph, directions, st.data())
def test_any_graph_reads_back_while_it_grows(
    nodes: list[Node], direction: str, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(nodes)))
    drawing = draw(nodes[:start], direction)
    for count in range(start + 1, len(nodes) + 1):
        drawing = drawing.with_node(nodes[count - 1])
        assert not read_back(
            drawing.rows, drawing.boxes, direction, edges_of(nodes[:count])
        )


@settings(deadline=None, max_examples=60)
@given(any_graph, directions, st.booleans(), st.randoms(use_true_random=False))
def test_every_edge_of_any_graph_shows_its_kind(
    nodes: list[Node], direction: str, ascii: bool, pick: object
) -> None:
    choose = pick.choice  # type: ignore[attr-defined]
    kinds = {edge: choose(KINDS) for edge in sorted(edges_of(nodes))}
    drawing = draw(nodes, direction, kinds, ascii=ascii)
    assert not read_back(
        drawing.rows, drawing.boxes, direction, set(kinds), ascii_only=ascii
    )
    cells = grid(drawing.rows)
    for name, _, deps in nodes:
        wires = drawing.wires(name)
        for dep in deps:
            signs = {
                cells[y + down][x + right]
                for x, y, width, height in wires[dep, name]
                for right in range(width)
                for down in range(height)
            }
            kind = kinds[dep, name]
            assert (
                signs & set("─│-|") if kind == "depends" else kind in kinds_seen(signs)
            )


@settings(deadline=None)
@given(any_graph, directions, st.randoms(use_true_random=False))
def test_the_order_of_the_input_never_matters(
    nodes: list[Node], direction: str, shuffle: object
) -> None:
    mixed = [(name, label, deps[:]) for name, label, deps in nodes]
    shuffle.shuffle(mixed)  # type: ignore[attr-defined]
    for _, _, deps in mixed:
        shuffle.shuffle(deps)  # type: ignore[attr-defined]
    assert draw(mixed, direction).rows == draw(nodes, direction).rows


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcdefg"), labels, st.lists(st.sampled_from("abcdefgxy"))
        ),
        max_size=9,
    )
)
def test_a_damaged_plan_can_be_drawn_without_the_edges_that_make_it_so(
    plan: list[tuple[str, str, list[str]]],
) -> None:
    nodes, dropped = break_cycles(plan)
    assert not find_cycle(nodes)
    kept = {(dep, name) for name, _, deps in nodes for dep in deps}
    assert not kept & set(dropped)
    first: dict[str, list[str]] = {}
    for name, _, deps in plan:
        first.setdefault(name, deps)
    whole = {(dep, name) for name, deps in first.items() for dep in deps}
    assert kept | set(dropped) == whole
    draw(nodes)
    if not find_cycle(plan) and len(first) == len(plan):
        assert all(dep not in first for dep, _ in dropped)


@pytest.mark.slow
@settings(deadline=None, max_examples=1500)
@given(graphs(60) | layered(), directions, st.booleans())
def test_many_larger_graphs_read_back(
    nodes: list[Node], direction: str, ascii: bool
) -> None:
    check(nodes, direction, ascii)
