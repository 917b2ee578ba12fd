"""The pages say what the program does: verbs, options, exit codes, codes, modules."""

from __future__ import annotations

import ast
import asyncio
import re
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

from heaveto import Flow
from heaveto.cli.app import VERBS, root
from heaveto.cli.exits import Exit
from heaveto.cli.words import REFUSALS, explain
from heaveto.model import OperationStatus, RunState, RunStatus
from heaveto.observe.words import EXPLANATIONS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = (ROOT / "core/docs/commands.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "core/docs/ARCHITECTURE.md").read_text(encoding="utf-8")
PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "core/docs").rglob("*.md"),
]


def command(name: str) -> click.Command:
    context = click.Context(root, info_name="heaveto")
    found = root.get_command(context, name)
    assert found is not None
    return found


def commands() -> list[tuple[str, click.Command]]:
    """Every command, those of ``ctl`` too, by its words."""
    found = []
    for name in VERBS:
        one = command(name)
        if isinstance(one, click.Group):
            found += [(f"{name} {key}", sub) for key, sub in one.commands.items()]
        else:
            found.append((name, one))
    return found


# --- commands.md


@pytest.mark.parametrize("words", [words for words, _ in commands()])
def test_every_verb_is_documented(words: str) -> None:
    assert re.search(rf"`(heaveto`, `)?{words}\b", COMMANDS), words


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (words, " ".join(option.opts))
        for words, one in commands()
        for option in one.params
        if isinstance(option, click.Option) and not option.hidden
    ],
)
def test_every_option_is_documented(words: str, option: str) -> None:
    if words == "watch":  # the console's own help has them
        assert option in root_options() | {"--home", "--no-lionagi", "--json"}
        return
    assert any(
        f"`{name}" in COMMANDS or f" {name} " in COMMANDS for name in option.split()
    )


def root_options() -> set[str]:
    return {name for option in root.params for name in option.opts}


@pytest.mark.parametrize("code", list(Exit))
def test_every_exit_code_is_documented(code: Exit) -> None:
    assert re.search(rf"^\| {int(code)} \|", COMMANDS, re.MULTILINE)


def test_no_exit_code_is_documented_that_does_not_exist() -> None:
    section = COMMANDS.partition("## Exit codes")[2].partition("## Output")[0]
    named = {int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)}
    assert named == {int(code) for code in Exit}


def raised_codes() -> set[str]:
    """Every code that the source gives to an error, a finding or a trouble."""
    found = set()
    for path in (ROOT / "core/heaveto").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            values: list[ast.expr] = []
            if isinstance(node, ast.Call):
                values = [k.value for k in node.keywords if k.arg == "code"]
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target).endswith(
                "default_code"
            ):
                values = [node.value] if node.value else []
            if isinstance(node, ast.Assign) and any(
                ast.unparse(target) == "default_code" for target in node.targets
            ):
                values = [node.value]
            found |= {
                value.value
                for value in values
                if isinstance(value, ast.Constant) and isinstance(value.value, str)
            }
    return found - {"error"}


def test_codes_are_found_in_the_source() -> None:
    assert {"db_newer", "usage", "dead_run", "worker_unusable"} <= raised_codes()


@pytest.mark.parametrize("code", sorted(raised_codes()))
def test_every_code_is_documented_and_explained(code: str) -> None:
    assert f"`{code}`" in COMMANDS
    found = explain(code)
    assert found is not None
    assert found.text.endswith(".")


@pytest.mark.parametrize(
    "word", sorted({*RunState, *RunStatus, *OperationStatus, *REFUSALS, *EXPLANATIONS})
)
def test_every_word_that_is_shown_is_explained(word: str) -> None:
    assert explain(word) is not None


# --- README


def blocks(language: str) -> list[str]:
    """Return the fenced blocks of the README in a language, "" for plain ones."""
    found: list[list[str]] = []
    inside: str | None = None
    for line in README.splitlines():
        if line.startswith("```"):
            inside = line[3:] if inside is None else None
            if inside == language:
                found.append([])
        elif inside == language:
            found[-1].append(line)
    return ["\n".join(lines) for lines in found]


def test_the_flow_of_the_readme_is_a_flow(tmp_path: Path) -> None:
    [text] = blocks("toml")
    tomllib.loads(text)
    path = tmp_path / "notes.toml"
    path.write_text(text)
    flow = Flow.load(path)
    assert [one.id for one in flow.operations] == ["survey", "write"]


def test_the_program_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEAVETO_HOME", str(tmp_path / "home"))
    [text] = blocks("python")
    body = "\n".join(f"    {line}" for line in text.splitlines())
    space: dict[str, Any] = {}
    exec(f"async def main():\n{body}\n    return result", space)
    result = asyncio.run(space["main"]())
    assert result.status == RunStatus.COMPLETED
    assert result.operations["hello"].response == "Say hello"
    named = re.search(r"RunResult\(([^)]*)\)", text)
    assert named is not None
    for name in named[1].split(", "):
        assert hasattr(result, name)


def test_the_commands_of_the_readme_are_commands() -> None:
    lines = [
        line.partition("#")[0].split()
        for block in blocks("")
        for line in block.splitlines()
        if line.startswith("heaveto")
    ]
    assert len(lines) > 12
    for words in lines:
        if len(words) > 1 and not words[1].startswith("-"):
            assert words[1] in VERBS, words


def test_what_the_pages_name_is_there() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            if "://" not in target:
                assert (page.parent / target).exists(), (page.name, target)
        for target in re.findall(r"`((?:tests|core|tui)/[\w./*-]+)`", text):
            assert list(ROOT.glob(target)), (page.name, target)


def test_the_targets_of_make_that_are_named_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        for target in re.findall(
            r"\bmake ([a-z]+)\b", page.read_text(encoding="utf-8")
        ):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE) or target in {
                "a"
            }, target


def test_no_page_claims_more_than_the_death_of_a_process() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8").lower()
        for claim in ("survives power loss", "exactly-once execution", "power-safe"):
            assert claim not in text, page.name


# --- ARCHITECTURE


def test_every_module_of_core_is_on_the_map() -> None:
    for path in (ROOT / "core/heaveto").iterdir():
        if path.name.startswith("_") or path.name == "py.typed":
            continue
        name = path.stem if path.is_file() else path.name
        assert re.search(rf"`{name}/?`|\b{name}\b", ARCHITECTURE), name
