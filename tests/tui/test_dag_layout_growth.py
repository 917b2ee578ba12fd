"""One more node in a drawing: hardly anything moves, and the picture stays true."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from harness.dag_trace import edges_of, golden, read_back
from heaveto.text import cell_width
from heaveto_tui.dag_layout import draw

if TYPE_CHECKING:
    from heaveto_tui.dag_layout import Drawing

Node = tuple[str, str, list[str]]
DIRECTIONS = ("LR", "TB")


def wrong(drawing: Drawing, nodes: list[Node], *, ascii: bool = False) -> object:
    return read_back(
        drawing.rows,
        drawing.boxes,
        drawing.direction,
        edges_of(nodes),
        ascii_only=ascii,
    )


def layer_of(drawing: Drawing) -> dict[str, int]:
    return {name: at for at, layer in enumerate(drawing.layers) for name in layer}


def across(drawing: Drawing) -> dict[str, int]:
    """Where each node lies across the flow: its row, or the column of its wire."""
    if drawing.direction == "LR":
        return {name: box[1] for name, box in drawing.boxes.items()}
    return {name: box[0] + box[2] // 2 for name, box in drawing.boxes.items()}


def along(drawing: Drawing) -> dict[str, int]:
    return {
        name: box[0 if drawing.direction == "LR" else 1]
        for name, box in drawing.boxes.items()
    }


def scattered(count: int, seed: int) -> list[Node]:
    """A plan and nodes that depend on anything in it, the hardest way to grow."""
    pick = random.Random(seed)
    nodes = golden(50, seed)
    for at in range(count):
        deps = [name for name, _, _ in pick.sample(nodes, pick.randint(0, 4))]
        nodes.append((f"new{at}", f"added-{at}", deps))
    return nodes


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_fifty_nodes_later_every_picture_on_the_way_was_true(direction: str) -> None:
    nodes = golden(250, 1)
    drawing = draw(nodes[:200], direction)
    for count in range(201, 251):
        drawing = drawing.with_node(nodes[count - 1])
        assert not wrong(drawing, nodes[:count])


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_hardly_anything_moves(direction: str) -> None:
    moves: list[int] = []
    shifted = 0
    for seed in (1, 2, 3):
        nodes = golden(250, seed)
        drawing = draw(nodes[:200], direction)
        for node in nodes[200:]:
            grown = drawing.with_node(node)
            old, new = across(drawing), across(grown)
            layers = layer_of(grown)
            first = min((layers[dep] for dep in node[2]), default=-1)
            moved = [name for name in old if old[name] != new[name]]
            assert all(first < layers[name] <= layers[node[0]] for name in moved)
            old_layers = layer_of(drawing)
            assert old_layers == {name: layers[name] for name in old_layers}
            moves.append(len(moved))
            before, after = along(drawing), along(grown)
            shifted += any(before[name] != after[name] for name in before)
            drawing = grown
        fresh = draw(nodes, direction)
        assert drawing.crossings <= 1.5 * fresh.crossings
    assert max(moves) <= 20
    assert sum(moves) <= 4 * len(moves)
    assert shifted <= 0.1 * len(moves)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_nodes_that_depend_on_anything_can_be_added(direction: str) -> None:
    nodes = scattered(40, 3)
    drawing = draw(nodes[:50], direction)
    for count in range(51, len(nodes) + 1):
        old = across(drawing)
        drawing = drawing.with_node(nodes[count - 1])
        assert not wrong(drawing, nodes[:count])
        new = across(drawing)
        assert sum(old[name] != new[name] for name in old) <= 20


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_flow_can_grow_from_nothing(direction: str) -> None:
    nodes = golden(50, 4)
    drawing = draw([], direction)
    for count in range(1, 51):
        drawing = drawing.with_node(nodes[count - 1])
        assert not wrong(drawing, nodes[:count])
    assert drawing.tidy().rows == draw(nodes, direction).rows
    assert dict(zip("abc", drawing.nodes(), strict=False))["a"] == nodes[0]


def test_the_old_drawing_stays_as_it_was() -> None:
    nodes = golden(50, 1)
    drawing = draw(nodes[:40])
    rows, boxes = drawing.rows[:], dict(drawing.boxes)
    first = drawing.with_node(nodes[40])
    again = drawing.with_node(nodes[40])
    assert (drawing.rows, drawing.boxes) == (rows, boxes)
    assert first.rows == again.rows


def test_a_new_edge_has_a_kind() -> None:
    nodes: list[Node] = [("a", "a", []), ("b", "b", ["a"])]
    drawing = draw(nodes, kinds={("a", "b"): "conditional"})
    grown = drawing.with_node(("c", "c", ["a"]), {("a", "c"): "spawn"})
    assert {kind for _, kind in grown.legend()} == {"conditional", "spawn"}
    assert "╌" in "".join(grown.rows)
    assert "┈" in "".join(grown.tidy().rows)


def test_what_cannot_be_added_is_refused() -> None:
    drawing = draw([("a", "a", [])])
    with pytest.raises(ValueError, match="repeated id: a"):
        drawing.with_node(("a", "again", []))
    with pytest.raises(ValueError, match="unknown id: x"):
        drawing.with_node(("b", "b", ["x"]))
    with pytest.raises(ValueError, match="unknown id: b"):
        drawing.with_node(("b", "b", ["b"]))
    with pytest.raises(ValueError, match="guess"):
        drawing.with_node(("b", "b", ["a"]), {("a", "b"): "guess"})


def test_a_long_label_does_not_widen_a_layer_of_a_large_flow() -> None:
    nodes = golden(250, 2)
    drawing = draw(nodes)
    grown = drawing.with_node(("long", "a label of more cells than fit-17", ["n0000"]))
    assert along(drawing) == {
        name: x for name, x in along(grown).items() if name != "long"
    }
    x, y, width = grown.label("long")
    assert grown.rows[y][x : x + width].endswith("…-17")
    assert cell_width(grown.rows[y]) == grown.width
    assert grown.nodes()[-1][1] == "a label of more cells than fit-17"
