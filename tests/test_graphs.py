"""Operations as Mermaid, DOT and SVG: every name comes back, and nothing else acts."""

from __future__ import annotations

import html
import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import pytest

from harness.worlds import cache_review, detail, operation, summary
from heaveto import cli
from heaveto.cli.drawing import drawing_lines
from heaveto.cli.graphs import arrows, dot, mermaid
from heaveto.model import OperationStatus as Op
from heaveto.model import RunState
from heaveto.observe.snapshot import LinkView, RunDetail
from heaveto.text import cell_width, plain
from heaveto_tui.dag_layout import draw

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = (
    'say "hi"];x-->y;',
    "end",
    "#quot; #35; &lt;b&gt; &amp;",
    "<script>alert(1)</script><br/>",
    "$$x^2$$ `code` **bold** fa:fa-bomb",
    "%%{init: {}}%% %% comment",
    r"\N \G \n \l back\slash\\",
    "click n1 call x()",
    "{a} |b| (c) [d] <e> \N{RIGHTWARDS ARROW}",
    "style n1 fill:#fff;",
    "two\nlines\r\x00\x1b[2J\u202e",
    "日本 \N{BOMB} ﾊﾝ \ufffe \uffff",
    "]]></svg>",
    "",
)


def shown(name: str) -> str:
    """Return a name as every form shows it."""
    return plain(name).replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd")


def hostile() -> RunDetail:
    names = [f"{at} {name}" for at, name in enumerate(HOSTILE)]
    operations = [
        operation(name, Op.FAILED, needs=names[at - 1 : at], started=5.0)
        for at, name in enumerate(names)
    ]
    links = [
        LinkView(
            head=operations[at].id,
            tail=operations[at + 1].id,
            kind="depends",
            condition=names[at],
            active=True,
        )
        for at in range(3)
    ]
    return detail(
        summary("7be41a20", HOSTILE[0], RunState.FAILED), operations, links=links
    )


def decoded_mermaid(text: str) -> str:
    """Return a quoted label as Mermaid shows it: ``#n;`` is a character."""
    assert not set(text) & set('"`<>&|\\$%:[](){}'), text
    assert not re.search(r"#(?!\d+;)", text), text
    return re.sub(r"#(\d+);", lambda found: chr(int(found[1])), text)


def decoded_dot(text: str) -> str:
    """Return a quoted string as Graphviz shows it: HTML entities are characters."""
    assert not set(text) & set('"<>\\'), text
    return html.unescape(text)


def test_every_label_of_a_flowchart_comes_back() -> None:
    found = hostile()
    lines = list(mermaid(found, direction="TB"))
    assert lines[0] == "flowchart TB"
    nodes = {}
    edges = []
    for line in lines[1:]:
        if node := re.fullmatch(r'    (n\d+)\["(.*)<br/>(.*)"\]', line):
            nodes[node[1]] = decoded_mermaid(node[2])
            assert node[3] == "failed"
        elif edge := re.fullmatch(r'    (n\d+) \S+?(?:\|"(.*)"\|)? (n\d+)', line):
            edges.append((edge[1], edge[3]))
            if edge[2] is not None:
                decoded_mermaid(edge[2])
        else:
            assert re.fullmatch(r"    class(Def)? [\w,]+ [\w:#,\-]+", line), line
    assert list(nodes.values()) == [shown(one.name) for one in found.operations]
    assert edges == [(f"n{at}", f"n{at + 1}") for at in range(1, len(HOSTILE))]


def test_every_label_of_a_dot_file_comes_back() -> None:
    found = hostile()
    lines = list(dot(found))
    assert (lines[0], lines[-1]) == ("digraph flow {", "}")
    labels = []
    arrows_drawn = 0
    for line in lines[3:-1]:
        if node := re.fullmatch(r'    n\d+ \[label="(.*?)\\n(.*?)"(, .*)?\];', line):
            labels.append(decoded_dot(node[1]))
        else:
            edge = re.fullmatch(r'    n\d+ -> n\d+( \[.*label="(.*)"\])?;', line)
            assert edge, line
            arrows_drawn += 1
            decoded_dot(edge[2] or "")
    assert labels == [shown(one.name) for one in found.operations]
    assert arrows_drawn == len(HOSTILE) - 1


@pytest.mark.parametrize("direction", ["LR", "TB"])
def test_an_svg_is_well_formed_and_holds_every_label(direction: str) -> None:
    found = hostile()
    nodes = [(one.id, one.name, one.depends_on) for one in found.operations]
    drawing = draw(nodes, direction, label_width=80)
    marks = {one.id: "✗" for one in found.operations}
    roles = dict.fromkeys(marks, "bad")
    text = "\n".join(drawing.svg(marks, roles, title=HOSTILE[3]))
    tree = ET.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    title = tree.find(f"{space}title")
    assert title is not None
    assert title.text == HOSTILE[3]
    assert {each.tag for each in tree.iter()} == {
        f"{space}{name}" for name in ("svg", "title", "style", "rect", "text", "path")
    }
    texts = [each.text or "" for each in tree.iter(f"{space}text")]
    assert texts.count("✗") == len(HOSTILE)
    for one in found.operations:
        wanted = shown(one.name).rstrip()
        assert any(label.rstrip() == wanted for label in texts), wanted


def test_the_text_of_an_svg_takes_its_cells() -> None:
    drawing = draw([("a", "日本 plan", []), ("b", "b", ["a"])])
    tree = ET.fromstring("\n".join(drawing.svg({"a": "●", "b": "○"})))
    for each in tree.iter("{http://www.w3.org/2000/svg}text"):
        size = cell_width(each.text or "") * 8.4
        assert float(each.attrib["textLength"]) == pytest.approx(size, abs=0.06)


def test_strokes_go_where_the_signs_go() -> None:
    """A bridge passes over a wire, a junction joins it, a tip ends at its box."""
    from heaveto_tui.dag_layout.svg import _arms, _strokes

    arms = {"─": "LR", "│": "UD", "╭": "DR", "┤": "DLU", "┼": "DLRU", "╌": "LR"}
    arms |= {"║": "UD", "╔": "DR", "┊": "UD", "x": "", " ": ""}
    for sign, wanted in arms.items():
        assert "".join(sorted(_arms(sign))) == "".join(sorted(wanted)), sign
    assert _strokes("┼", 0, 0) == ["M12.0 21.0L20.4 21.0", "M16.2 12.0L16.2 30.0"]
    assert _strokes("┤", 0, 0)[0] == "M12.0 21.0L16.2 21.0"
    assert _strokes("╮", 0, 0) == ["M16.2 30.0Q16.2 21.0 12.0 21.0"]


def test_an_ascii_drawing_makes_no_svg() -> None:
    with pytest.raises(ValueError, match="ASCII"):
        list(draw([("a", "a", [])], ascii=True).svg({"a": "#"}))


def test_arrows_tell_their_kinds() -> None:
    kinds = {(one.head, one.tail): one.kind for one in arrows(cache_review())}
    assert kinds["analyst-id", "spawn-1-id"] == "spawn"
    assert kinds["contrarian-id", "contrarian-retry-id"] == "escalation"
    assert kinds["analyst-id", "architect-id"] == "depends"
    lines = list(mermaid(cache_review()))
    assert "    n3 -.-> n4" in lines
    assert "    n7 ==> n8" in lines
    assert "    n1 --> n3" in lines


def test_a_damaged_plan_is_drawn_and_says_so() -> None:
    nodes = [("a", "a", ["c", "gone"]), ("b", "b", ["a"]), ("c", "c", ["b"])]
    with pytest.raises(ValueError, match=r"cycle|unknown"):
        draw(nodes)
    drawing = draw(nodes, kinds={("gone", "a"): "spawn"}, mend=True)
    assert set(drawing.boxes) == {"a", "b", "c"}
    assert ("gone", "a") in drawing.dropped
    assert len(drawing.dropped) == 2
    assert drawing.with_node(("d", "d", ["c"])).dropped == drawing.dropped
    assert drawing.tidy().dropped == drawing.dropped


@pytest.mark.parametrize("ascii_only", [False, True])
def test_what_is_left_out_is_said_in_inert_words(ascii_only: bool) -> None:
    names = ["a\x1b[2J\nb", "\u202e\ud800", "日本"]
    ring = [
        operation(name, Op.WAITING, needs=[names[at - 1]])
        for at, name in enumerate(names)
    ]
    found = detail(summary("7be41a20", "ring", RunState.DEAD), ring)
    lines = list(
        drawing_lines(
            "heaveto_tui.dag_layout:draw", found, ascii_only=ascii_only, encoding="utf8"
        )
    )
    assert lines[-1].startswith("! damaged plan: ")
    for line in lines:
        assert line == plain(line)
        assert line.isascii() or not ascii_only


FLOW = """
[flow]
name = "two"
[workers.w]
kind = "scripted"
replies = [{ response = 1 }]
[[operations]]
id = "plan"
worker = "w"
instruction = "x"
[[operations]]
id = "write"
worker = "w"
instruction = "x"
depends_on = ["plan"]
"""


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    monkeypatch.setenv("HEAVETO_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HEAVETO_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setenv("LIONAGI_HOME", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.toml").write_text(FLOW)

    def run_main(*words: str, dag: str | None = "heaveto_tui.dag_layout:draw") -> Any:
        code = cli.main(list(words), dag=dag)
        return code, *capsys.readouterr()

    return run_main


def test_show_prints_each_form(call: Any) -> None:
    assert call("run", "two.toml", "--quiet")[0] == 0
    run_id = call("ls", "--json")[1]
    target = re.findall(r'"run_id": ?"([^"]+)"', run_id)[0]
    code, out, _ = call("show", target, "--mermaid", dag=None)
    assert (code, out.splitlines()[0]) == (0, "flowchart LR")
    code, out, _ = call("show", target, "--dot", "--direction", "TB", dag=None)
    assert code == 0
    assert "rankdir=TB" in out
    code, out, _ = call("show", target, "--svg")
    assert code == 0
    assert ET.fromstring(out).tag.endswith("svg")
    assert call("show", target, "--svg", dag=None)[0] == 78
    assert call("show", target, "--svg", "--dot")[0] == 2
    assert call("show", target, "--dag", "--svg")[1] == out
    code, out, _ = call("show", target, "--svg", "--json")
    assert out.startswith("{")


def test_a_run_shows_its_graph_first(call: Any) -> None:
    code, out, _ = call("run", "two.toml", "--show-graph", "--quiet")
    assert code == 0
    assert out.splitlines()[0] == " ○ plan ─► ○ write"
    code, out, err = call("run", "two.toml", "--show-graph", "--json")
    assert code == 0
    assert out.startswith("{")
    assert "plan ─► ○ write" in err
    code, out, _ = call("run", "two.toml", "--show-graph", "--dry-run")
    assert code == 0
    assert out.index("─►") < out.index("nothing is started")
    assert call("run", "two.toml", "--show-graph", dag=None)[0] == 78
