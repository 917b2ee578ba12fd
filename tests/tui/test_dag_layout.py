"""Drawing a flow: the contract of ``draw`` and the truth of its pictures."""

from __future__ import annotations

import ast
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from harness.dag_trace import Reader, edges_of, golden, grid, kinds_seen, read_back
from heaveto.text import cell_width
from heaveto_tui.dag_layout import Drawing, draw

ROOT = Path(__file__).parent.parent.parent
DIRECTIONS = ("LR", "TB")
Node = tuple[str, str, list[str]]

REVIEW: list[Node] = [
    ("r1", "scout", []),
    ("r2", "scout-2", []),
    ("an", "analyst", ["r1", "r2"]),
    ("sp", "spawn-1", ["an"]),
    ("ar", "architect", ["an"]),
    ("co", "critic", ["an"]),
    ("cr", "critic retry", ["co"]),
    ("wr", "writer", ["ar"]),
    ("ev", "judge", ["ar", "cr", "sp"]),
]
REVIEW_KINDS = {
    ("an", "sp"): "spawn",
    ("co", "cr"): "escalation",
    ("ar", "wr"): "conditional",
}


def wrong(drawing: Drawing, nodes: list[Node], *, ascii: bool = False) -> object:
    return read_back(
        drawing.rows,
        drawing.boxes,
        drawing.direction,
        edges_of(nodes),
        ascii_only=ascii,
    )


def stripped(drawing: Drawing) -> list[str]:
    return [row.rstrip() for row in drawing.rows]


# --- pictures


def test_from_left_to_right() -> None:
    assert stripped(draw(REVIEW)) == [
        "                                            ╭─► · writer",
        "                                            │",
        " · scout ───╮              ╭─► · architect ─┴───────────────────╮",
        "            │              │                                    │",
        " · scout-2 ─┴─► · analyst ─┼─► · critic ──────► · critic retry ─┼─► · judge",
        "                           │                                    │",
        "                           ╰─► · spawn-1 ───────────────────────╯",
    ]


def test_from_top_to_bottom() -> None:
    assert stripped(draw(REVIEW[:5], "TB")) == [
        "  ╭─────────╮  ╭───────────╮",
        "  │ · scout │  │ · scout-2 │",
        "  ╰─────────╯  ╰───────────╯",
        "       │             │",
        "       ├─────────────╯",
        "       ▼",
        " ╭───────────╮",
        " │ · analyst │",
        " ╰───────────╯",
        "       │",
        "       ├───────────────╮",
        "       ▼               ▼",
        "╭─────────────╮  ╭───────────╮",
        "│ · architect │  │ · spawn-1 │",
        "╰─────────────╯  ╰───────────╯",
    ]


def test_in_ascii() -> None:
    drawing = draw(REVIEW, kinds=REVIEW_KINDS, ascii=True)
    assert "".join(drawing.rows).isascii()
    assert not wrong(drawing, REVIEW, ascii=True)
    lines = [line for line, kind in drawing.legend() if kind != "depends"]
    assert lines == ["~~", "==", "??"]


def test_the_picture_of_the_documentation() -> None:
    drawing = draw([("a", "plan", []), ("b", "write", ["a"])])
    assert drawing.rows == [" · plan ─► · write "]
    assert drawing.boxes == {"a": (0, 0, 8, 1), "b": (10, 0, 9, 1)}
    assert drawing.crossings == 0


def test_a_flow_of_nothing_and_of_one() -> None:
    empty = draw([])
    assert (empty.rows, empty.boxes, empty.crossings) == ([], {}, 0)
    for direction in DIRECTIONS:
        assert draw([("a", "alone", [])], direction).boxes["a"][:2] == (0, 0)
    assert draw([("a", "alone", [])]).rows == [" · alone "]


# --- what is refused


@pytest.mark.parametrize(
    ("nodes", "word"),
    [
        ([("a", "a", ["b"]), ("b", "b", ["c"]), ("c", "c", ["a"])], "cycle: "),
        ([("a", "a", ["a"])], "cycle: a -> a"),
        ([("a", "a", []), ("a", "b", [])], "repeated id: a"),
        ([("a", "a", ["nobody"])], "unknown id: nobody"),
    ],
)
def test_a_flow_that_is_none_is_refused(nodes: list[Node], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        draw(nodes)


def test_a_cycle_is_named_along_the_flow() -> None:
    nodes = [("a", "", ["c"]), ("b", "", ["a"]), ("c", "", ["b"]), ("z", "", [])]
    with pytest.raises(ValueError, match="a -> b -> c -> a"):
        draw(nodes)


def test_unknown_words_are_refused() -> None:
    nodes: list[Node] = [("a", "a", []), ("b", "b", ["a"])]
    with pytest.raises(ValueError, match="RL"):
        draw(nodes, "RL")
    with pytest.raises(ValueError, match="guess"):
        draw(nodes, kinds={("a", "b"): "guess"})
    with pytest.raises(ValueError, match="no edge: b -> a"):
        draw(nodes, kinds={("b", "a"): "spawn"})
    with pytest.raises(ValueError, match="no edge: x -> a"):
        draw(nodes, kinds={("x", "a"): "spawn"})


# --- the truth of it


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("size", [12, 50, 250])
def test_every_wire_of_a_plan_reads_back(size: int, direction: str) -> None:
    for seed in range(1, 11 if size < 250 else 5):
        nodes = golden(size, seed)
        assert not wrong(draw(nodes, direction), nodes)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_thousand_operations_read_back(direction: str) -> None:
    nodes = golden(1000)
    assert not wrong(draw(nodes, direction), nodes)


def _hard() -> dict[str, list[Node]]:
    def layered(layers: int, width: int) -> list[Node]:
        return [
            (
                f"{at}-{place}",
                f"op {at}-{place}",
                [f"{at - 1}-{other}" for other in range(width)] if at else [],
            )
            for at in range(layers)
            for place in range(width)
        ]

    fan = [(f"leaf{at}", f"leaf {at}", ["root"]) for at in range(100)]
    return {
        "parts": [
            (f"{part}{name}", label, [f"{part}{dep}" for dep in deps])
            for part in "xyz"
            for name, label, deps in REVIEW
        ],
        "alone": [(f"{at}", f"op {at}", []) for at in range(40)],
        "chain": [(f"{at}", "", [f"{at - 1}"] if at else []) for at in range(200)],
        "star": [("root", "root", []), *fan],
        "wide": [
            ("root", "root", []),
            *fan,
            ("end", "end", [name for name, _, _ in fan]),
        ],
        "bipartite": layered(2, 12),
        "paths": layered(5, 10),
        "swapped": [
            *[(f"a{at}", f"a{at}", []) for at in range(8)],
            *[(f"b{at}", f"b{at}", [f"a{(at + 4) % 8}", f"a{at}"]) for at in range(8)],
        ],
        "skips": [
            (f"{at}", f"op {at}", [f"{dep}" for dep in range(max(0, at - 12), at)])
            for at in range(30)
        ],
        "complete": [
            (f"{at}", f"op {at}", [f"{dep}" for dep in range(at)]) for at in range(16)
        ],
        "twins": [(f"{at}", "same", ["0"] if at else []) for at in range(9)],
    }


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", _hard())
def test_hard_shapes_read_back(name: str, direction: str) -> None:
    nodes = _hard()[name]
    assert not wrong(draw(nodes, direction), nodes)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_wires_leave_and_enter_where_they_are_told_to(direction: str) -> None:
    nodes = golden(50, 3)
    drawing = draw(nodes, direction)
    cells = grid(drawing.rows)
    has_out = {dep for _, _, deps in nodes for dep in deps}
    for name, _, deps in nodes:
        x, y, width, height = drawing.boxes[name]
        if direction == "LR":
            port, tips = (x + width, y + height // 2), [(x - 1, y)]
        else:
            port, tips = (x + width // 2, y + height), [(x + width // 2, y - 1)]
        if name in has_out:
            assert cells[port[1]][port[0]] in "─│┤╮╯┬┴┼├╭╰"
        if deps:
            assert any(cells[y][x] in "►▼" for x, y in tips)


def test_the_reader_sees_what_is_wrong() -> None:
    """The test of the tests: a reader that believes everything proves nothing."""
    boxes = {"a": (0, 0, 1, 1), "b": (0, 2, 1, 1), "c": (6, 0, 1, 1), "d": (6, 2, 1, 1)}
    merged = ["A─┬─┬►C", "  │ │ ", "B─┴─┴►D"]
    assert Reader(merged, boxes, "LR").edges() == {
        (one, other) for one in "ab" for other in "cd"
    }
    bridge = ["A─╮╭─►C", "  ││  ", "B─│╯   ", "  ╰──►D"]
    boxes["d"] = (6, 3, 1, 1)
    reader = Reader(bridge, boxes, "LR")
    assert reader.edges() == {("a", "d"), ("b", "c")}
    assert not reader.faults()
    broken = ["A─╮ ─►C", "  │   ", "B─╯   ", "   ──►D"]
    assert Reader(broken, boxes, "LR").faults()
    assert read_back(["A──►C"], {"a": (0, 0, 1, 1), "c": (3, 0, 2, 1)}, "LR", set())


# --- the same graph, the same picture


def test_the_order_of_the_input_does_not_matter() -> None:
    nodes = golden(50, 2)
    kinds = {(deps[0], name): "spawn" for name, _, deps in nodes[30:]}
    for direction in DIRECTIONS:
        first = draw(nodes, direction, kinds)
        for seed in range(3):
            shuffle = random.Random(seed)
            mixed = [(name, label, deps[:]) for name, label, deps in nodes]
            shuffle.shuffle(mixed)
            for _, _, deps in mixed:
                shuffle.shuffle(deps)
            pairs = list(kinds.items())
            shuffle.shuffle(pairs)
            again = draw(iter(mixed), direction, dict(pairs))
            assert again.rows == first.rows
            assert again.boxes == first.boxes


def test_the_hash_seed_does_not_matter() -> None:
    code = (
        "import hashlib, sys\n"
        "from harness.dag_trace import golden\n"
        "from heaveto_tui.dag_layout import draw\n"
        "nodes = golden(250, 4)\n"
        "seen = hashlib.sha256()\n"
        "for way in ('LR', 'TB'):\n"
        "    drawing = draw(nodes[:240], way)\n"
        "    for node in nodes[240:]:\n"
        "        drawing = drawing.with_node(node)\n"
        "    seen.update('\\n'.join(drawing.rows).encode())\n"
        "    seen.update(repr(drawing.boxes).encode())\n"
        "print(seen.hexdigest())\n"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            check=True,
            env={
                **os.environ,
                "PYTHONHASHSEED": seed,
                "PYTHONPATH": os.pathsep.join(
                    str(ROOT / part) for part in ("core", "tui", "tests")
                ),
            },
        ).stdout
        for seed in ("0", "1", "4711")
    }
    assert len(seen) == 1


# --- figures that are no times


def _reference(size: int) -> int:
    stored = json.loads((ROOT / "tests/golden/dag/graphviz.json").read_text())
    return sum(stored[f"{size}/{seed}"] for seed in range(1, 11))


@pytest.mark.parametrize(("size", "ratio"), [(50, 1.15), (250, 1.20)])
def test_wires_cross_hardly_more_than_graphviz_lets_them(
    size: int, ratio: float
) -> None:
    ours = sum(draw(golden(size, seed)).crossings for seed in range(1, 11))
    assert ours <= ratio * _reference(size)


def test_small_plans_cross_as_little_as_with_graphviz() -> None:
    ours = sum(draw(golden(12, seed)).crossings for seed in range(1, 11))
    assert ours <= _reference(12) + 2


@pytest.mark.parametrize(
    ("size", "width", "height"), [(12, 130, 13), (50, 380, 32), (250, 1100, 70)]
)
def test_plans_fit_their_canvas(size: int, width: int, height: int) -> None:
    for seed in range(1, 11):
        drawing = draw(golden(size, seed))
        assert drawing.width <= width
        assert drawing.height <= height
        assert max(map(cell_width, drawing.rows)) == drawing.width
        assert len(drawing.rows) == drawing.height


def test_crossings_are_those_of_the_picture_where_wires_are_plain() -> None:
    nodes: list[Node] = [
        *[(f"a{at}", f"a{at}", []) for at in range(3)],
        *[(f"b{at}", f"b{at}", [f"a{dep}" for dep in range(3)]) for at in range(3)],
    ]
    assert draw(nodes).crossings == 9
    assert draw(nodes[:5]).crossings == 3


# --- labels


LABELS = [
    "",
    " ",
    "日本語ラベル",
    "👨‍👩‍👧 family 🇩🇪 flag 1️⃣ key ❤️ heart 👍🏽 thumb",
    "e\u0301 combined a\u0308\u0323",
    "\u0301starts with a mark",
    "ends with a joiner\u200d",
    "क्‍ष नमस्ते สวัสดี",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J",
    "line\nbreak\ttab\rreturn\x00nul",
    "\u202eright to left\u202c \u2066isolated\u2069",
    "─►│╭╯┼ looks like a wire ►",
    "[red]markup[/red] [link=x]y[/link]",
    "x" * 200,
    "界" * 100 + "-12",
    "9" * 5000,
    "\ud800 surrogate",
]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("ascii", [False, True])
def test_any_label_keeps_the_picture_straight(direction: str, ascii: bool) -> None:
    nodes: list[Node] = [
        (f"{at}", label, [f"{dep}" for dep in {at // 2, at // 3} if dep < at])
        for at, label in enumerate([*LABELS, *LABELS])
    ]
    drawing = draw(nodes, direction, ascii=ascii)
    assert not wrong(drawing, nodes, ascii=ascii)
    for row in drawing.rows:
        assert row.isprintable()
        assert cell_width(row) == drawing.width == sum(map(cell_width, row))
        assert not ascii or row.isascii()
    cells = grid(drawing.rows)
    for x, y, width, height in drawing.boxes.values():
        middle = cells[y + height // 2]
        if height == 3:
            assert middle[x] == middle[x + width - 1] in ("│", "|")
            assert cells[y][x] in "╭+"
            assert cells[y + 2][x + width - 1] in "╯+"
        else:
            assert middle[x] == middle[x + width - 1] == " "


def test_a_long_label_keeps_the_number_at_its_end() -> None:
    [row] = draw([("a", "a-very-" + "long-" * 20 + "name-17", [])]).rows
    assert row.strip().endswith("…-17")
    assert cell_width(row) == 44
    [row] = draw([("a", "long-" * 20, [])], label_width=10, ascii=True).rows
    assert row == " : long-long~ "


def test_a_label_in_another_script_is_spelt_out_in_ascii() -> None:
    [row] = draw([("a", "é", [])], ascii=True).rows
    assert row == " : \\xe9 "


# --- kinds


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("ascii", [False, True])
def test_every_edge_shows_its_kind(direction: str, ascii: bool) -> None:
    words = ("depends", "spawn", "escalation", "conditional")
    nodes = golden(50, 5)
    pick = random.Random(7)
    kinds = {edge: pick.choice(words) for edge in sorted(edges_of(nodes))}
    drawing = draw(nodes, direction, kinds, ascii=ascii)
    assert not wrong(drawing, nodes, ascii=ascii)
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
            if kind == "depends":
                assert signs & set("─│-|")
            else:
                assert kind in kinds_seen(signs)


def test_kinds_are_told_apart_without_colour() -> None:
    nodes: list[Node] = [("a", "a", []), ("b", "b", ["a"])]
    pictures = {
        tuple(draw(nodes, direction, {("a", "b"): kind}, ascii=ascii).rows)
        for direction in DIRECTIONS
        for ascii in (False, True)
        for kind in ("depends", "spawn", "escalation", "conditional")
    }
    assert len(pictures) == 16


def test_a_shared_wire_of_two_kinds_is_plain() -> None:
    nodes: list[Node] = [("a", "a", []), ("b", "b", ["a"]), ("c", "c", ["a"])]
    drawing = draw(nodes, kinds={("a", "b"): "spawn", ("a", "c"): "escalation"})
    x, y, width, _ = drawing.boxes["a"]
    assert grid(drawing.rows)[y][x + width] == "─"
    assert {kind for _, kind in drawing.legend()} == {"spawn", "escalation"}


# --- hygiene


def test_it_is_pure_and_knows_no_widget() -> None:
    package = ROOT / "tui" / "heaveto_tui" / "dag_layout"
    allowed = {"heaveto.text", "heaveto_tui"}
    for path in package.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            for name in names:
                top = name.partition(".")[0]
                assert (
                    name in allowed
                    or name.startswith("heaveto_tui.dag_layout")
                    or top in sys.stdlib_module_names
                ), f"{path.name} imports {name}"


def test_it_loads_neither_textual_nor_rich_nor_asyncio() -> None:
    code = (
        "import sys\n"
        "from heaveto_tui.dag_layout import draw\n"
        "draw([('a', 'a', []), ('b', 'b', ['a'])])\n"
        "heavy = {'textual', 'rich', 'asyncio', 'sqlite3', 'click', 'wcwidth'}\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & heavy))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("core", "tui")),
        },
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    "label",
    [
        "\u0600\u0600\u0600\u0915\u094d\u0937\u093f1",
        "\u0915\u094d\u0937\u093f" * 20,
        "\u0e44\u0e17\u0e22\u0e01\u0e33" * 20 + "7",
        "\u1100\u1161\u11a8" * 30,
        "co\u00adop\u115f\u3164\u034f",
    ],
)
def test_a_cut_parts_no_sign_from_what_gives_it_its_width(label: str) -> None:
    for width in range(4, 44):
        drawing = draw([("a", label, []), ("b", "b", ["a"])], label_width=width)
        row = drawing.rows[0]
        assert sum(map(cell_width, row)) == cell_width(row) == drawing.width
        assert not set("\u00ad\u115f\u3164\u034f") & set(row)
