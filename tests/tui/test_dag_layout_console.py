"""What the console takes from a drawing: cells by what they are, windows, moves."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from harness.dag_trace import edges_of, golden, grid, read_back
from heaveto.text import cell_width
from heaveto_tui.dag_layout import break_cycles, draw, ego, find_cycle

if TYPE_CHECKING:
    from heaveto_tui.dag_layout import Drawing, Span

Node = tuple[str, str, list[str]]
DIRECTIONS = ("LR", "TB")

FLOW: list[Node] = [
    ("a", "plan", []),
    ("b", "日本 write", ["a"]),
    ("c", "check", ["a"]),
    ("d", "send", ["b", "c"]),
]
FLOW_KINDS = {("a", "b"): "spawn", ("c", "d"): "escalation"}


def spans_of(drawing: Drawing) -> list[list[Span]]:
    return [drawing.spans(row) for row in range(drawing.height)]


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_status_is_one_cell(direction: str) -> None:
    drawing = draw(FLOW, direction)
    glyphs = dict(zip("abcd", "●◐✗○", strict=True))
    lines = drawing.lines(glyphs, {"c": "!"})
    changed = {
        (x, y)
        for y, (old, new) in enumerate(
            zip(grid(drawing.rows), grid(lines), strict=True)
        )
        for x, (before, after) in enumerate(zip(old, new, strict=True))
        if before != after
    }
    x, y, width = drawing.label("c")
    assert changed == {drawing.slot(name) for name in "abcd"} | {(x + width, y)}
    for name, glyph in glyphs.items():
        x, y = drawing.slot(name)
        assert grid(lines)[y][x] == glyph
        x, y, width = drawing.label(name)
        label = "".join(grid(lines)[y][x : x + width])
        assert label == next(text for one, text, _ in FLOW if one == name)
    assert not read_back(lines, drawing.boxes, direction, edges_of(FLOW))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_spans_are_the_rows_cut_by_meaning(direction: str) -> None:
    drawing = draw(FLOW, direction, FLOW_KINDS)
    for row, spans in enumerate(spans_of(drawing)):
        assert "".join(span.text for span in spans) == drawing.rows[row]
        x = 0
        for span in spans:
            assert span.x == x
            x += cell_width(span.text)
        for left, right in pairwise(spans):
            assert (left.role, left.id) != (right.role, right.id)
    found = {
        (span.role, span.id): span for spans in spans_of(drawing) for span in spans
    }
    assert found["label", "b"].text == "日本 write"
    assert found["glyph", "d"].text == "·"
    assert {span.text for span in found.values() if span.role == "spawn"} <= set("╌╎")
    assert found["escalation", "c"].text[0] in "═║"
    assert found["depends", "a"]
    assert {role for role, _ in found} == {
        "", "box", "glyph", "label", "mark", "depends", "spawn", "escalation",
    }  # fmt: skip


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_span_of_boxes_and_wires_lies_where_the_boxes_are(direction: str) -> None:
    nodes = golden(50, 3)
    drawing = draw(nodes, direction)
    for row, spans in enumerate(spans_of(drawing)):
        for span in spans:
            inside = {
                name
                for name, (x, y, width, height) in drawing.boxes.items()
                if x <= span.x < x + width and y <= row < y + height
            }
            if span.role in ("box", "glyph", "label", "mark"):
                assert inside == {span.id}
            else:
                assert not inside
                assert bool(span.role) == bool(span.text.strip())


def test_a_window_is_a_part_of_the_picture() -> None:
    nodes = [(name, f"界{label}界", deps) for name, label, deps in golden(50, 1)]
    drawing = draw(nodes)
    cells = grid(drawing.rows)
    for x in range(0, drawing.width, 7):
        for line, row in zip(drawing.window(x, 3, 20, 4), cells[3:7], strict=True):
            assert cell_width(line) == 20
            seen = (grid([line])[0] + [" "] * 20)[:20]
            whole = (row + [" "] * 20)[x : x + 20]
            for ours, theirs in zip(seen, whole, strict=True):
                assert ours == theirs or (ours == " " and (theirs in ("", "界")))
    assert drawing.window(0, drawing.height, 5, 2) == ["     "] * 2
    assert drawing.window(drawing.width + 3, 0, 5, 1) == ["     "]


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_wires_of_a_node_are_its_edges_alone(direction: str) -> None:
    nodes = golden(12, 4)
    drawing = draw(nodes, direction)
    cells = grid(drawing.rows)
    edges = edges_of(nodes)
    for name, _, _ in nodes:
        wires = drawing.wires(name)
        assert set(wires) == {edge for edge in edges if name in edge}
        for (source, target), pieces in wires.items():
            joined = {
                (x + right, y + down)
                for x, y, width, height in pieces
                for right in range(width)
                for down in range(height)
            }
            assert all(cells[y][x].strip() for x, y in joined)
            only = [
                "".join(
                    sign if (x, y) in joined or _boxed(drawing, x, y) else " "
                    for x, sign in enumerate(row)
                )
                for y, row in enumerate(cells)
            ]
            found = read_back(only, drawing.boxes, direction, {(source, target)})
            assert not found.get("missing")
            assert not found.get("false")


def _boxed(drawing: Drawing, x: int, y: int) -> bool:
    return any(
        left <= x < left + width and top <= y < top + height
        for left, top, width, height in drawing.boxes.values()
    )


def test_arrow_keys_follow_the_wires_and_the_layers() -> None:
    drawing = draw(FLOW)
    assert drawing.step("a", "left") is None
    assert drawing.step("a", "right") in ("b", "c")
    assert drawing.step("d", "right") is None
    first, second = drawing.layers[1]
    assert drawing.step(first, "down") == second
    assert drawing.step(second, "up") == first
    assert drawing.step(second, "down") is None
    turned = draw(FLOW, "TB")
    first, second = turned.layers[1]
    assert turned.step(first, "right") == second
    assert turned.step("a", "down") in ("b", "c")
    assert turned.step("d", "up") in ("b", "c")
    reached, todo = {"n0000"}, ["n0000"]
    large = draw(golden(50, 2))
    while todo:
        name = todo.pop()
        for way in ("left", "right", "up", "down"):
            other = large.step(name, way)
            if other is not None and other not in reached:
                reached.add(other)
                todo.append(other)
    assert reached == set(large.boxes)


def test_the_layer_grid_holds_every_node_once_and_fits_a_corner() -> None:
    for seed in range(1, 11):
        nodes = golden(250, seed)
        drawing = draw(nodes)
        names = [name for layer in drawing.layers for name in layer]
        assert sorted(names) == sorted(name for name, _, _ in nodes)
        assert 2 * len(drawing.layers) <= 84
        assert max(map(len, drawing.layers)) <= 24
        layer = {name: at for at, row in enumerate(drawing.layers) for name in row}
        assert all(
            layer[name] == 1 + max((layer[dep] for dep in deps), default=-1)
            for name, _, deps in nodes
        )


def test_what_is_around_a_node() -> None:
    nodes: list[Node] = [
        ("far", "far", []),
        ("up2", "up2", ["far"]),
        ("up1", "up1", ["up2"]),
        ("me", "me", ["up1"]),
        ("twin", "twin", ["up1"]),
        ("down1", "down1", ["me", "up2"]),
        ("down2", "down2", ["down1"]),
        ("past", "past", ["down2"]),
    ]
    drawing = ego(nodes, "me", kinds={("up1", "me"): "spawn", ("far", "up2"): "spawn"})
    assert set(drawing.boxes) == {"up2", "up1", "me", "down1", "down2"}
    assert {("up2", "down1"), ("down1", "down2")} <= drawing.wires("down1").keys()
    assert {kind for _, kind in drawing.legend()} == {"depends", "spawn"}
    assert set(ego(nodes, "me", 1).boxes) == {"up1", "me", "down1"}
    assert set(ego(nodes, "me", 0, "TB").boxes) == {"me"}
    assert set(ego(nodes, "me", 9).boxes) == {name for name, _, _ in nodes} - {"twin"}
    with pytest.raises(ValueError, match="unknown id: you"):
        ego(nodes, "you")


def test_what_is_around_any_node_of_a_large_flow_fits_a_screen() -> None:
    for seed in (1, 2):
        nodes = golden(250, seed)
        fits = 0
        for name, _, _ in nodes[::5]:
            drawing = ego(nodes, name)
            part = {
                (one, other)
                for one, other in edges_of(nodes)
                if one in drawing.boxes and other in drawing.boxes
            }
            assert not read_back(drawing.rows, drawing.boxes, "LR", part)
            fits += drawing.width <= 200 and drawing.height <= 48
        assert fits >= 0.95 * len(nodes[::5])


def test_a_cycle_is_found_and_broken() -> None:
    plan: list[Node] = [
        ("a", "a", ["c"]),
        ("b", "b", ["a"]),
        ("c", "c", ["b", "ghost"]),
    ]
    assert find_cycle(plan) == ["a", "b", "c", "a"]
    nodes, dropped = break_cycles(plan)
    assert ("ghost", "c") in dropped
    assert len(dropped) == 2
    assert draw(nodes).boxes.keys() == {"a", "b", "c"}
    assert find_cycle(nodes) == []
    deep = [(f"{at}", "", [f"{(at + 1) % 5000}"]) for at in range(5000)]
    assert len(find_cycle(deep)) == 5001
    assert len(break_cycles(deep)[1]) == 1
