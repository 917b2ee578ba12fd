"""Rules that the code itself must keep; read from its syntax (SPEC L-32)."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
CORE = ROOT / "core" / "heaveto"
CHECKPOINT = CORE / "checkpoint"
PURE = [
    *(CORE / f"{name}.py" for name in ("frozen", "capture", "jsonvalue")),
    *(CHECKPOINT / f"{name}.py" for name in ("alignment", "patch", "state", "report")),
    *(CHECKPOINT / f"{name}.py" for name in ("v2", "v3")),
]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def modules() -> list[Path]:
    found = [*CORE.rglob("*.py"), *(ROOT / "tui" / "heaveto_tui").rglob("*.py")]
    assert len(found) > 20
    return sorted(found)


def names(path: Path) -> set[str]:
    """Return every name that a module reads, imports or takes from an object."""
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.alias):
            found |= set(node.name.split("."))
    return found


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def test_only_the_loader_makes_a_state_of_a_base() -> None:
    for path in modules():
        if path.parent == CHECKPOINT:
            continue
        used = names(path)
        assert not used & {"decode_base", "Replay", "Folding", "v2"}, path
    users = {path.name for path in modules() if "decode_base" in names(path)}
    assert users <= {"loader.py", "v3.py"}
    assert "loader.py" in users


OPENING = {"open", "read", "read_bytes", "read_text", "reading", "pin", "loads"}


def mentions_base(node: ast.AST) -> bool:
    """Tell whether an expression is about the base's name or a run's checkpoint."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and part.value == "checkpoint.json":
            return True
        if isinstance(part, ast.Attribute) and part.attr == "checkpoint":
            return True
    return False


def test_nobody_else_opens_a_base() -> None:
    for path in modules():
        if path.parent == CHECKPOINT:
            continue
        for called, node in calls(path):
            if called.rsplit(".", 1)[-1] in OPENING:
                about = [*node.args, *(keyword.value for keyword in node.keywords)]
                if isinstance(node.func, ast.Attribute):
                    about.append(node.func.value)
                assert not any(map(mentions_base, about)), f"{path}: {called}"


def test_the_fence_sees_an_offender() -> None:
    source = 'x = (run / "checkpoint.json").read_bytes()\ny = open(run.checkpoint)'
    found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    assert all(
        mentions_base(node.func) or any(map(mentions_base, node.args)) for node in found
    )


@pytest.mark.parametrize("path", PURE, ids=lambda path: path.stem)
def test_what_is_pure_does_no_io_and_waits_for_nothing(path: Path) -> None:
    used = names(path)
    assert not used & {"os", "open", "time", "socket", "threading", "files", "Path"}
    for node in ast.walk(tree(path)):
        kinds = (ast.Await, ast.AsyncFor, ast.AsyncWith, ast.AsyncFunctionDef)
        assert not isinstance(node, kinds)


@pytest.mark.parametrize(
    "path", [*PURE, CHECKPOINT / "loader.py"], ids=lambda p: p.stem
)
def test_orjson_and_copies_stay_away(path: Path) -> None:
    assert not names(path) & {"orjson", "deepcopy", "pickle", "marshal"}


def test_no_handler_drops_an_error_without_a_word() -> None:
    for path in sorted(CHECKPOINT.glob("*.py")):
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.ExceptHandler):
                continue
            assert node.type is not None, f"{path}:{node.lineno}: bare except"
            caught = ast.unparse(node.type)
            if "Exception" in caught.split("(")[0]:
                assert not all(isinstance(line, ast.Pass) for line in node.body), path


def test_the_loader_asks_for_nothing_that_writes() -> None:
    path = CHECKPOINT / "loader.py"
    writing = {"create", "append", "publish", "install", "discard", "remove", "unlink"}
    writing |= {"rename", "mkdir", "ftruncate", "fsync", "write", "hold", "open_append"}
    methods = {called.rsplit(".", 1)[-1] for called, _ in calls(path) if "." in called}
    assert methods & writing <= {"append"}  # of a list
    for called, node in calls(path):
        if called.endswith(".append"):
            assert ast.unparse(node.func) in {"chunks.append", "found.append"}
