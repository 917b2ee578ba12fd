"""Flow files: what is accepted, what is refused, and on which line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heaveto.definition import CommandWorker, PythonWorker, ScriptedWorker
from heaveto.errors import FlowError, FlowFileError
from heaveto.flowfile import Flow, Operation
from heaveto.schema import parse_duration, parse_size

GOOD = """\
# how the notes are made
[flow]
name = "release-notes"
prompt = "Write the release notes for 2.4"
max_concurrent = 4
reactive = "off"
max_ops = 0
context = { audience = "operators" }
on_failure = "continue"

[workers.shell]
kind = "command"
argv = ["sh", "-c", "cat"]
timeout = "15m"
workload = "docs"

[workers.ask]
kind = "python"
call = "asking:ask"

[workers.told]
kind = "scripted"
replies = [
  { operation = "check", attempt = 1, after = "2s", response.gate_verdict = "pass" },
  { error = "no", log = ["one", "two"] },
]

[[operations]]
id = "survey"
worker = "shell"
instruction = "List what changed since 2.3"
depends_on = []

[[operations]]
id = "check"
worker = "told"
instruction = "Look at it"
depends_on = ["survey"]
gate = true

[[operations]]
id = "write"
worker = "ask"
instruction = "Write it"
depends_on = ["check", { id = "survey", when = { at = "/verdict", equals = "ok" } }]
"""


def load(folder: Path, text: str | bytes, name: str = "f.toml") -> Flow:
    file = folder / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return Flow.load(str(file))


def refusal(folder: Path, text: str | bytes, name: str = "f.toml") -> FlowFileError:
    with pytest.raises(FlowFileError) as found:
        load(folder, text, name)
    assert sorted(path.name for path in folder.iterdir()) == [name]
    return found.value


def test_a_whole_flow_is_read(tmp_path: Path) -> None:
    flow = load(tmp_path, GOOD)
    assert flow.name == "release-notes"
    assert flow.prompt == "Write the release notes for 2.4"
    assert flow.max_concurrent == 4
    assert flow.on_failure == "continue"
    assert flow.context == {"audience": "operators"}
    assert [operation.id for operation in flow.operations] == [
        "survey",
        "check",
        "write",
    ]
    shell, ask, told = flow.workers.values()
    assert isinstance(shell, CommandWorker)
    assert shell.argv == ("sh", "-c", "cat")
    assert shell.cwd == str(tmp_path)
    assert (shell.timeout, shell.grace, shell.workload) == (900.0, 10.0, "docs")
    assert (shell.output_limit, shell.log_limit) == (1 << 20, 64 << 20)
    assert isinstance(ask, PythonWorker)
    assert (ask.call, ask.folder) == ("asking:ask", str(tmp_path))
    assert isinstance(told, ScriptedWorker)
    assert told.replies[0].response == {"gate_verdict": "pass"}
    assert told.replies[0].after == 2.0
    assert told.replies[1].log == ("one", "two")
    assert flow.path == tmp_path / "f.toml"
    assert flow.sha256 is not None
    assert len(flow.sha256) == 64


def as_json() -> dict[str, Any]:
    import tomllib

    return tomllib.loads(GOOD)


def test_json_says_the_same(tmp_path: Path) -> None:
    toml = load(tmp_path, GOOD)
    same = load(tmp_path, json.dumps(as_json()), "f.json")
    assert same.normalised() == toml.normalised()


@pytest.mark.parametrize("name", ["f", "f.txt", "f.flow"])
def test_without_a_known_ending_the_content_decides(tmp_path: Path, name: str) -> None:
    assert load(tmp_path, GOOD, name).name == "release-notes"
    assert load(tmp_path, json.dumps(as_json()), name).name == "release-notes"


@pytest.mark.parametrize("name", ["f.toml", "f.json"])
def test_a_byte_order_mark_is_accepted(tmp_path: Path, name: str) -> None:
    text = GOOD if name.endswith("toml") else json.dumps(as_json())
    assert load(tmp_path, b"\xef\xbb\xbf" + text.encode(), name).prompt


def test_windows_line_ends_are_accepted(tmp_path: Path) -> None:
    text = GOOD.replace("\n", "\r\n")
    assert load(tmp_path, text).normalised()["name"] == "release-notes"
    broken = text.replace('worker = "told"', 'worker = "tol"')
    assert refusal(tmp_path, broken).line == line_of(broken, '"tol"')


# --- the line of a mistake


def line_of(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


@pytest.mark.parametrize(
    ("old", "new", "marker", "member", "says"),
    [
        ("name = ", "nmae = ", "nmae", "flow.nmae", 'is "name" meant?'),
        ('name = "release-notes"\n', "", "[flow]", "flow.name", "is required"),
        ('"release-notes"', '" "', '" "', "flow.name", "blank"),
        ('"release-notes"', "5", "name = 5", "flow.name", "must be text"),
        ("max_concurrent = 4", "max_concurrent = -1", "-1", "flow.max_concurrent", "0"),
        ("= 4", "= true", "= true", "flow.max_concurrent", "a whole number"),
        ('"off"', '"all"', '"all"', "flow.reactive", "not supported"),
        ("max_ops = 0", "max_ops = 3", "= 3", "flow.max_ops", "not supported"),
        ("max_ops = 0", 'timeout = "5m"', "timeout", "flow.timeout", "not supported"),
        (
            "max_ops = 0",
            'default_worker = "shell"',
            "default_worker",
            "flow.default_worker",
            "not supported",
        ),
        (
            "max_ops = 0",
            'synthesis = { worker = "shell", instruction = "x" }',
            "synthesis",
            "flow.synthesis",
            "not supported",
        ),
        ('"continue"', '"ignore"', '"ignore"', "flow.on_failure", '"stop"'),
        ("{ audience", "[ audience", "context", "", "nvalid"),
        (
            'audience = "operators"',
            "operator_messages = []",
            "operator_messages",
            "flow.context.operator_messages",
            "belongs to the operator",
        ),
        (
            'audience = "operators"',
            "when = 2026-11-29",
            "2026-11-29",
            "flow.context.when",
            "a date or time",
        ),
        ('audience = "operators"', "x = nan", "nan", "flow.context.x", "finite"),
        ("[workers.shell]", "[workers.-shell]", "-shell", "workers.-shell", "1 to 64"),
        (
            "[workers.ask]",
            "[workers.SHELL]",
            "SHELL",
            "workers.SHELL",
            'too like "shell"',
        ),
        (
            'kind = "python"',
            'kind = "openai"',
            '"openai"',
            "workers.ask.kind",
            "not supported",
        ),
        ('kind = "python"', 'kind = "rust"', '"rust"', "workers.ask.kind", '"python"'),
        ('kind = "python"\n', "", "[workers.ask]", "workers.ask.kind", "is required"),
        (
            '["sh", "-c", "cat"]',
            "[]",
            "argv = []",
            "workers.shell.argv",
            "must not be empty",
        ),
        (
            '["sh", "-c", "cat"]',
            '"sh -c cat"',
            "argv",
            "workers.shell.argv",
            "must be a list",
        ),
        ('"-c"', "5", '"sh", 5', "workers.shell.argv[1]", "must be text"),
        ('["sh"', '[""', "argv", "workers.shell.argv[0]", "name a program"),
        (
            'workload = "docs"',
            'shell = "bash"',
            'shell = "bash"',
            "workers.shell.shell",
            "unknown member",
        ),
        ('"15m"', '"15 minutes"', "15 minutes", "workers.shell.timeout", "15m"),
        ('"15m"', "0", "timeout = 0", "workers.shell.timeout", "more than 0"),
        ('"15m"', "-3", "-3", "workers.shell.timeout", "seconds"),
        ('"15m"', "inf", "inf", "workers.shell.timeout", "seconds"),
        (
            'workload = "docs"',
            'output_limit = "1MB"',
            '"1MB"',
            "workers.shell.output_limit",
            "1MiB",
        ),
        (
            'workload = "docs"',
            "log_limit = 0",
            "log_limit",
            "workers.shell.log_limit",
            "bytes",
        ),
        (
            'workload = "docs"',
            'output = "xml"',
            '"xml"',
            "workers.shell.output",
            '"json"',
        ),
        ('workload = "docs"', 'input = "file"', '"file"', "workers.shell.input", "st"),
        (
            'workload = "docs"',
            'env = { "A=B" = "x" }',
            '"A=B"',
            "workers.shell.env.A=B",
            "no name",
        ),
        ('workload = "docs"', "env.A = 5", "env.A", "workers.shell.env.A", "text"),
        (
            'workload = "docs"',
            'escalate_to = "ask"',
            "escalate_to",
            "workers.shell.escalate_to",
            "not supported",
        ),
        (
            'workload = "docs"',
            "reads_user_settings = true",
            "reads_user_settings",
            "workers.shell.reads_user_settings",
            "not supported",
        ),
        (
            'workload = "docs"',
            'artifacts = [{ id = "n", path = "n" }]',
            "artifacts",
            "workers.shell.artifacts",
            "not supported",
        ),
        ('"asking:ask"', '"asking.ask"', "asking.ask", "workers.ask.call", "module"),
        ("call =", "grace = 5\ncall =", "grace", "workers.ask.grace", "unknown"),
        (
            "attempt = 1",
            "attempt = 0",
            "attempt",
            "workers.told.replies[0].attempt",
            "1",
        ),
        ('"2s"', '"2 days"', "2 days", "workers.told.replies[0].after", "seconds"),
        (
            'operation = "check"',
            'operation = "chek"',
            '"chek"',
            "workers.told.replies[0].operation",
            "no operation",
        ),
        (
            'error = "no"',
            'error = "no", response = 1',
            "response = 1",
            "workers.told.replies[1].error",
            "excludes",
        ),
        ('id = "write"', 'id = "a b"', "a b", "operations[2].id", "1 to 64"),
        ('id = "write"', 'id = "Survey"', '"Survey"', "operations[2].id", "too like"),
        (
            'id = "write"',
            'id = "check"',
            'id = "check"\nworker = "ask"',
            "operations[2].id",
            "twice",
        ),
        (
            'worker = "told"',
            'worker = "tol"',
            '"tol"',
            "operations[1].worker",
            "no worker",
        ),
        (
            'instruction = "Look at it"\n',
            "",
            '[[operations]]\nid = "check"',
            "operations[1].instruction",
            "is required",
        ),
        ("gate = true", "gate = 1", "gate = 1", "operations[1].gate", "true or false"),
        (
            "gate = true",
            "inherit_context = true",
            "inherit_context",
            "operations[1].inherit_context",
            "not supported",
        ),
        (
            "gate = true",
            'artifacts = [{ id = "n", path = "n" }]',
            "artifacts",
            "operations[1].artifacts",
            "not supported",
        ),
        (
            'depends_on = ["survey"]',
            'depends_on = "survey"',
            'depends_on = "survey"',
            "operations[1].depends_on",
            "a list",
        ),
        (
            'depends_on = ["survey"]',
            'depends_on = ["nope"]',
            '"nope"',
            "operations[1].depends_on[0]",
            "no operation",
        ),
        (
            'depends_on = ["survey"]',
            'depends_on = [\n  "survey",\n  "survey",\n]',
            '"survey",\n]',
            "operations[1].depends_on[1]",
            "twice",
        ),
        (
            "depends_on = []",
            'depends_on = ["write"]',
            'depends_on = ["write"]',
            "operations[0].depends_on",
            "cycle: survey -> ",
        ),
        (
            'depends_on = ["survey"]',
            'depends_on = ["check"]',
            'depends_on = ["check"]',
            "operations[1].depends_on",
            "cycle: check -> check",
        ),
        (
            'equals = "ok"',
            "exists = 1",
            "exists = 1",
            "operations[2].depends_on[1].when.exists",
            "true or false",
        ),
        (
            'equals = "ok"',
            'equals = "ok", exists = true',
            "exists",
            "operations[2].depends_on[1].when",
            "exactly one",
        ),
        (
            ', equals = "ok"',
            "",
            "when",
            "operations[2].depends_on[1].when",
            "exactly one",
        ),
        (
            '"/verdict"',
            '"verdict"',
            '"verdict"',
            "operations[2].depends_on[1].when.at",
            "begins with /",
        ),
        (
            '"/verdict"',
            '"/a~2"',
            '"/a~2"',
            "operations[2].depends_on[1].when.at",
            "~0",
        ),
        ("[[operations]]", "[[operation]]", "[[operation]]", "operation", "operations"),
    ],
)
def test_a_mistake_is_named_where_it_is(
    tmp_path: Path, old: str, new: str, marker: str, member: str, says: str
) -> None:
    assert old in GOOD
    text = GOOD.replace(old, new)
    error = refusal(tmp_path, text)
    assert error.member == member
    assert says in error.text
    assert error.line == line_of(text, marker)
    where = f"{tmp_path / 'f.toml'}:{error.line}: "
    assert str(error) == where + (f"{member}: " if member else "") + error.text


def test_json_mistakes_have_lines_too(tmp_path: Path) -> None:
    text = json.dumps(as_json(), indent=2).replace('"id": "write"', '"di": "write"')
    error = refusal(tmp_path, text, "f.json")
    assert error.line == line_of(text, '"di"')
    assert error.member == "operations[2].di"


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ('{"flow": 1,\n "flow": 2}', 2, "twice"),
        ('{"a":\n {"b": 1, "\\u0062": 2}}', 2, "twice"),
        ('{"a":\n\n NaN}', 3, "NaN"),
        ('{"a": -Infinity}', 1, "-Infinity"),
        ('{"a": 1,}', 1, "member name"),
        ("[1\n 2]", 2, "comma"),
        ('{"a"\n 1}', 2, "colon"),
        ('{"a": 1} x', 1, "after the end"),
        ('{"a": "x\ny"}', 1, "control character"),
        ('{"a": 01}', 1, "comma"),
        ('{"a": "\\x"}', 1, "escape"),
        ("", 1, "missing"),
        ('{\n "a": tru}', 2, "tru is no JSON value"),
        ('{"a": %s}' % ("1" * 5000), 1, "too long"),
        ("[" * 100_000, 1, "too deeply"),
        ("[]", 1, "must be an object, not a list"),
        ("5", 1, "must be an object"),
    ],
)
def test_bad_json(tmp_path: Path, text: str, line: int, says: str) -> None:
    error = refusal(tmp_path, text, "f.json")
    assert (error.line, says in error.text) == (line, True), error


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("[flow]\nname = \n", 2, "Invalid value"),
        ("[flow\n", 1, "']'"),
        ("[flow]\nname = 'a'\n\nname = 'b'\n", 4, "Cannot overwrite"),
        ("x = 1", 1, "unknown member"),
        ("", 1, "is required"),
        ("x = " + "[" * 5000, None, "too deeply"),
    ],
)
def test_bad_toml(tmp_path: Path, text: str, line: int | None, says: str) -> None:
    error = refusal(tmp_path, text)
    assert (error.line, says in error.text) == (line, True), error


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    error = refusal(tmp_path, b"[flow]\nname = '\xff'\n")
    assert (error.line, error.text) == (2, "not UTF-8")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FlowFileError, match="No such file"):
        Flow.load(tmp_path / "nope.toml")
    with pytest.raises(FlowFileError, match="Is a directory"):
        Flow.load(tmp_path)
    (tmp_path / "big.toml").write_bytes(b"#" * (17 << 20))
    with pytest.raises(FlowFileError, match="too large"):
        Flow.load(tmp_path / "big.toml")


def test_an_unknown_member_anywhere_is_refused(tmp_path: Path) -> None:
    def places(tree: Any) -> Any:
        if isinstance(tree, dict):
            yield tree
            for key, value in tree.items():
                if key not in ("context", "response", "env"):
                    yield from places(value)
        elif isinstance(tree, list):
            for value in tree:
                yield from places(value)

    for index in range(len(list(places(as_json())))):
        tree = as_json()
        place = list(places(tree))[index]
        if place is tree["workers"]:
            continue
        place["zz_new"] = 1
        error = refusal(tmp_path, json.dumps(tree), "f.json")
        assert error.member.endswith("zz_new")
        assert "unknown member" in error.text


# --- positions against a second reading


KEYS = st.sampled_from(["a", "b", "key", 'q"x', "ü", "1.2", ""])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(0, 1),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, VALUES), st.sampled_from([None, 1, 3]))
def test_the_json_reader_agrees_with_the_standard_one(value: Any, indent: Any) -> None:
    from heaveto.flowtext import parse

    text = json.dumps(value, indent=indent, ensure_ascii=False)
    document = parse(text.encode("utf-8", "surrogatepass"), name="f.json")
    assert document.value == json.loads(text)
    lines = text.split("\n")

    def check(part: Any, path: Any) -> None:
        if path and isinstance(path[-1], str):
            spelled = json.dumps(path[-1], ensure_ascii=False)
            assert spelled in lines[document.line(path) - 1]
        if isinstance(part, dict):
            for key, inner in part.items():
                check(inner, (*path, key))
        elif isinstance(part, list):
            for index, inner in enumerate(part):
                check(inner, (*path, index))

    check(document.value, ())


@pytest.mark.parametrize(
    "deep",
    [
        "a." * 100_000 + "a = 1",
        "[" + '"a" . ' * 100_000 + "a]",
        "a = " + "[" * 100_000 + "]" * 100_000,
        "a = " + "{a = " * 250 + "1" + "}" * 250,
        "a = " + ("{" + "a." * 150 + "a = ") * 200 + "1" + "}" * 200,
    ],
    ids=["dotted", "header", "arrays", "tables", "dotted tables"],
)
def test_a_deep_toml_file_is_refused_at_once(deep: str) -> None:
    from heaveto.flowtext import parse

    with pytest.raises(FlowFileError, match="nested too deeply"):
        parse(f"b = 1\n{deep}\n".encode(), name="f.toml")


@pytest.mark.parametrize("quote", ['"', "'", '"""', "'''"])
def test_a_text_with_many_dots_is_no_deep_key(quote: str) -> None:
    from heaveto.flowtext import parse

    dots = "a." * 500 + "a"
    text = f"# {dots}\nb = {quote}{dots} \u00e9 {quote} # {dots}\nc = 1\n"
    document = parse(text.encode(), name="f.toml")
    assert document.value == {"b": f"{dots} \u00e9 ", "c": 1}
    assert document.line(("c",)) == 3


@pytest.mark.parametrize(
    "filler", ["a", " ", ".", "a.", '"', "'", "\\\\", '"a".', "[", "#"]
)
def test_a_long_comment_or_text_takes_no_time_of_its_square(filler: str) -> None:
    """Without a bound on it: at this size a squared walk takes hours."""
    from heaveto.flowtext import parse

    long = filler * (2 << 20)
    assert parse(f"b = 1 # {long}\n".encode(), name="f.toml").value == {"b": 1}
    quoted = f"b = '''{long}'''\n"
    if "'" not in filler:
        assert parse(quoted.encode(), name="f.toml").value == {"b": long}


WORK = """
[workers.w]
kind = "command"
argv = ["cat"]
[[operations]]
id = "a"
worker = "w"
instruction = ""
"""


@pytest.mark.parametrize("place", ["max_concurrent", "context.a"])
@pytest.mark.parametrize(
    "number",
    ["9" * 5000, "0x" + "f" * 5000, "0b1" + "0" * 20_000],
    ids=["decimal", "hexadecimal", "binary"],
)
def test_a_number_without_end_is_refused(
    tmp_path: Path, number: str, place: str
) -> None:
    file = tmp_path / "f.toml"
    file.write_text(f'[flow]\nname = "n"\n{place} = {number}\n' + WORK)
    with pytest.raises(FlowFileError) as found:
        Flow.load(str(file))
    assert found.value.line == 3


def test_a_variable_has_a_name_that_a_program_can_be_given() -> None:
    for name, why in [("\ud800", "surrogate"), ("a\0", "NUL"), ("a=b", "no name")]:
        spec = {"kind": "command", "argv": ["cat"], "env": {name: "x"}}
        with pytest.raises(FlowError, match=why):
            Flow("f", [Operation("op", "w", "")], workers={"w": spec})


def test_a_module_of_a_flow_may_raise_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd_flow.py").write_text(
        "class Odd(BaseException):\n"
        "    def __str__(self):\n        raise RuntimeError\n"
        "def flow():\n    raise Odd\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(FlowFileError, match=r"odd_flow:flow: .*cannot be loaded: Odd"):
        Flow.load("odd_flow:flow")


TOML_VALUES = st.recursive(
    st.booleans() | st.integers(-9, 9) | st.text("ab\"'\\#[]{},=\n ", max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=2)
    ),
    max_leaves=8,
)


def to_toml(value: Any, draw: Any) -> str:
    """Write a value in one of the ways that TOML has for it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        if "'" not in value and draw(st.booleans()):
            return f"'''{value}'''" if "\n" in value else f"'{value}'"
        quoted = json.dumps(value, ensure_ascii=False)
        return f'""{quoted}""' if value and draw(st.booleans()) else str(quoted)
    if isinstance(value, list):
        gap = draw(st.sampled_from([" ", "\n", " # ] }\n"]))
        return f"[{''.join(f'{gap}{to_toml(v, draw)},' for v in value)}{gap}]"
    inner = ", ".join(
        f"{json.dumps(k, ensure_ascii=False)} = {to_toml(v, draw)}"
        for k, v in value.items()
    )
    return f"{{ {inner} }}"


@given(st.data())
def test_toml_lines_are_those_of_the_members(data: st.DataObject) -> None:
    """Members with unique names are written and found again by searching the text."""
    from heaveto.flowtext import parse

    lines: list[str] = []
    tree: dict[Any, int] = {}
    for table in range(data.draw(st.integers(1, 4))):
        array = data.draw(st.booleans())
        name = "items" if array else f"t{table}"
        lines += ["# [x]", f"[[{name}]]" if array else f"[{name}.inner]"]
        here = (name,) if array else (name, "inner")
        index = sum(1 for path in tree if path[:1] == ("items",) and len(path) == 2)
        path: Any = (name, index) if array else here
        tree[path] = len(lines)
        for member in range(data.draw(st.integers(0, 3))):
            key = f"m{table}_{member}"
            tree[(*path, key)] = len(lines) + 1
            written = f"{key} = {to_toml(data.draw(TOML_VALUES), data.draw)}"
            lines += [*written.split("\n"), ""]
    text = "\n".join(lines)
    document = parse(text.encode(), name="f.toml")
    assert {path: document.line(path) for path in tree} == tree


# --- durations and sizes


@pytest.mark.parametrize(
    ("written", "seconds"),
    [(0, 0), (90, 90), (1.5, 1.5), ("90s", 90), ("15m", 900), ("2h", 7200), ("3", 3)],
)
def test_durations(written: object, seconds: float) -> None:
    assert parse_duration(written) == seconds


@pytest.mark.parametrize(
    "written",
    [
        -1,
        "",
        "s",
        "1 day",
        "1d",
        "-5s",
        "1e3",
        True,
        None,
        [],
        1e300,
        10**400,
        "\u0661s",
    ],
)
def test_what_is_no_duration(written: object) -> None:
    with pytest.raises(ValueError, match="seconds"):
        parse_duration(written)


@pytest.mark.parametrize(
    ("written", "count"),
    [
        (1, 1),
        ("7", 7),
        ("7B", 7),
        ("64KiB", 65536),
        ("1 MiB", 1 << 20),
        ("2GiB", 2 << 30),
    ],
)
def test_sizes(written: object, count: int) -> None:
    assert parse_size(written) == count


@pytest.mark.parametrize("written", [0, -1, "1MB", "1.5MiB", "", True, 1.0, "9" * 40])
def test_what_is_no_size(written: object) -> None:
    with pytest.raises(ValueError, match="bytes"):
        parse_size(written)


# --- the normalised form


def test_a_flow_comes_back_from_its_normalised_form(tmp_path: Path) -> None:
    flow = load(tmp_path, GOOD)
    value = json.loads(json.dumps(flow.normalised()))
    again = Flow.from_normalised(
        {**value, "flow_path": "/x/f.toml", "flow_sha256": "d"}
    )
    assert again.normalised() == flow.normalised()
    assert again.workers == flow.workers
    assert again.operations == flow.operations
    assert (again.path, again.sha256) == (Path("/x/f.toml"), "d")


def test_the_normalised_form_says_every_default(tmp_path: Path) -> None:
    value = load(tmp_path, GOOD).normalised()
    assert value["workers"]["shell"] == {
        "kind": "command",
        "argv": ["sh", "-c", "cat"],
        "cwd": str(tmp_path),
        "input": "stdin",
        "env": {},
        "output": "text",
        "output_limit": 1048576,
        "log_limit": 67108864,
        "grace": 10.0,
        "timeout": 900.0,
        "workload": "docs",
    }
    assert value["operations"][2]["depends_on"] == [
        "check",
        {"id": "survey", "when": {"at": "/verdict", "equals": "ok"}},
    ]


@pytest.mark.parametrize("cut", ["name", "workers", "operations"])
def test_a_damaged_normalised_form_is_refused(tmp_path: Path, cut: str) -> None:
    value = load(tmp_path, GOOD).normalised()
    del value[cut]
    with pytest.raises(FlowError):
        Flow.from_normalised(value)


def test_relative_folders_begin_at_the_flow_file(tmp_path: Path) -> None:
    text = GOOD.replace('workload = "docs"', 'cwd = "sub/dir"')
    shell = load(tmp_path, text).workers["shell"]
    assert isinstance(shell, CommandWorker)
    assert shell.cwd == str(tmp_path / "sub/dir")


# --- plan and graph


def test_the_plan_of_a_checkpoint(tmp_path: Path) -> None:
    flow = load(tmp_path, GOOD)
    assert flow.plan()[2] == {
        "agent_id": "write",
        "dep_indices": [1, 0],
        "assignee": "ask",
        "task": "Write it",
        "depends_on": ["check", "survey"],
    }
    ids = {"survey": "u1", "check": "u2", "write": "u3"}
    assert [entry["node_id"] for entry in flow.plan(ids)] == ["u1", "u2", "u3"]


def test_the_graph_has_new_ids_and_the_conditions(tmp_path: Path) -> None:
    flow = load(tmp_path, GOOD)
    nodes, edges = flow.graph()
    others, _ = flow.graph()
    assert {node.name for node in nodes} == {"survey", "check", "write"}
    assert not {node.id for node in nodes} & {node.id for node in others}
    assert [node.gate for node in nodes] == [False, True, False]
    condition = edges[2].condition
    assert condition is not None
    assert edges[2].text == '/verdict = "ok"'
    assert condition.apply({"verdict": "ok"}, {})
    assert not condition.apply("ok", {})


# --- from Python


def shell_flow(**more: Any) -> Flow:
    workers = {"w": {"kind": "command", "argv": ["true"]}}
    operations = [Operation("a", "w", "x"), Operation("b", "w", "y", depends_on=["a"])]
    return Flow("n", **{"operations": operations, "workers": workers, **more})


def test_a_flow_made_in_python_is_a_flow(tmp_path: Path) -> None:
    flow = shell_flow(context={"k": (1, 2)}, max_concurrent=1)
    assert flow.operations[1].dependencies[0].id == "a"
    assert flow.context == {"k": [1, 2]}
    assert flow.on_failure == "skip"
    assert flow.path is None
    assert Flow.from_normalised(flow.normalised()).normalised() == flow.normalised()


@pytest.mark.parametrize("name", ["a", "1", "plan", "A-b_c"])
def test_an_id_stands_once_even_where_it_is_one_object(name: str) -> None:
    """Short texts, and those of one source, are the same object in Python."""
    with pytest.raises(FlowError, match=r"operations\[1\]\.id: is used twice"):
        shell_flow(operations=[Operation(name, "w", "x"), Operation(name, "w", "y")])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"timeout": 5}, "flow.timeout: is not supported"),
        ({"reactive": ["w"]}, "flow.reactive: is not supported"),
        ({"max_ops": 1}, "flow.max_ops: is not supported"),
        ({"on_failure": "no"}, "flow.on_failure: must be"),
        ({"context": {"x": object()}}, "flow.context.x: must be a JSON value"),
        ({"context": {1: 2}}, "flow.context: must have text as member names"),
        ({"context": {"operator_messages": []}}, "belongs to the operator"),
        ({"workers": {}}, 'operations[0].worker: there is no worker "w"'),
        ({"workers": 5}, "workers: must be an object"),
        ({"operations": []}, "operations: must not be empty"),
        ({"operations": [5]}, "operations[0]: must be an object"),
        (
            {"operations": [Operation("a", "w", "x", depends_on="a")]},
            "operations[0].depends_on: must be a list, not text",
        ),
        (
            {"operations": [Operation("a", "w", "x", inherit_context=True)]},
            "operations[0].inherit_context: is not supported",
        ),
        (
            {"operations": [Operation("a", "w", "x", artifacts=[{"id": "n"}])]},
            "operations[0].artifacts: is not supported",
        ),
        ({"operations": [Operation("a", "w", "x\0")]}, "NUL"),
        ({"operations": [Operation("a", "w", "x\ud800")]}, "surrogate"),
    ],
)
def test_python_is_refused_what_a_file_is_refused(change: Any, message: str) -> None:
    with pytest.raises(FlowError) as found:
        shell_flow(**change)
    assert message in str(found.value)
    assert not isinstance(found.value, FlowFileError)


def ask(_: object) -> None:
    """A function that a worker can be given."""


def test_a_python_worker_takes_the_function_itself() -> None:
    flow = shell_flow(workers={"w": {"kind": "python", "call": ask}})
    worker = flow.workers["w"]
    assert isinstance(worker, PythonWorker)
    assert worker.function is ask
    assert worker.call == f"{__name__}:ask"


@pytest.mark.parametrize("call", [lambda _: 1, 5, ":f", "m:", "m", "a b:c", "m:1"])
def test_what_a_python_worker_cannot_call(call: object) -> None:
    with pytest.raises(FlowError, match=r"workers\.w\.call"):
        shell_flow(workers={"w": {"kind": "python", "call": call}})


# --- module:attribute


MODULE = """\
from heaveto.flowfile import Flow, Operation
def build():
    return Flow("made", [Operation("a", "w", "x")],
                workers={"w": {"kind": "command", "argv": ["true"]}})
flow = build()
number = 5
class Deep:
    flow = flow
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"made_for_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


@pytest.mark.parametrize("attribute", ["flow", "build", "Deep.flow"])
def test_a_flow_is_loaded_from_a_module(module: str, attribute: str) -> None:
    flow = Flow.load(f"{module}:{attribute}")
    assert flow.name == "made"
    assert flow.path is not None
    assert flow.path.name == f"{module}.py"
    assert flow.sha256 is not None


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("{}:nope", "AttributeError"),
        ("{}:number", "is no Flow"),
        ("no_such_module_{}:flow", "ModuleNotFoundError"),
        (":flow", "ValueError"),
    ],
)
def test_a_module_without_a_flow_is_refused(
    module: str, reference: str, says: str
) -> None:
    with pytest.raises(FlowFileError, match=says):
        Flow.load(reference.format(module))


# --- the page


PAGE = Path(__file__).parents[1] / "core" / "docs" / "flow-file.md"


def test_the_example_of_the_page_is_a_flow(tmp_path: Path) -> None:
    text = PAGE.read_text("utf-8")
    example = text.split("```toml\n")[1].split("```")[0]
    flow = load(tmp_path, example)
    assert [operation.id for operation in flow.operations] == [
        *("survey", "check", "write")
    ]


def test_every_member_is_on_the_page(tmp_path: Path) -> None:
    text = PAGE.read_text("utf-8")
    flow = load(tmp_path, GOOD).normalised()
    members = {*flow, *flow["operations"][0], "when", "equals", "not_equals", "exists"}
    for worker in flow["workers"].values():
        members |= {*worker, *worker.get("replies", [{}])[0]}
    members -= {"workers", "operations", "folder"}
    assert [name for name in sorted(members) if f"`{name}`" not in text] == []
