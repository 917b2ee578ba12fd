"""What the code of durable state may not contain (SPEC L-32), read from its syntax.

Each fence is a function over syntax trees, and each is shown to catch what it is for.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CORE = Path(__file__).resolve().parents[1] / "core" / "heaveto"
DURABLE = sorted(
    [
        *(CORE / "checkpoint").glob("*.py"),
        *(CORE / "generations").glob("*.py"),
        CORE / "files.py",
        CORE / "handles.py",
        CORE / "jsonvalue.py",
    ]
)
SYSCALLS = {
    "open", "close", "read", "pread", "write", "pwrite", "writev", "fsync",
    "fdatasync", "truncate", "ftruncate", "rename", "replace", "renames", "link",
    "symlink", "unlink", "remove", "mkdir", "makedirs", "rmdir", "stat", "lstat",
    "fstat", "chmod", "fchmod", "listdir", "scandir",
}  # fmt: skip
PATH_CALLS = {
    "write_bytes", "write_text", "read_bytes", "read_text", "touch", "unlink", "rename",
    "replace", "mkdir", "rmdir", "symlink_to", "hardlink_to", "open",
}  # fmt: skip


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def calls(node: ast.AST) -> Iterator[tuple[str, str, ast.Call]]:
    """Give every call as (object, name): ``os.open(…)`` is ("os", "open")."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call):
            if isinstance(call.func, ast.Attribute):
                yield ast.unparse(call.func.value), call.func.attr, call
            elif isinstance(call.func, ast.Name):
                yield "", call.func.id, call


def syscalls_outside_the_seam(module: ast.Module) -> list[str]:
    """The disk is reached through ``Os`` alone."""
    found = []
    for owner, name, call in calls(module):
        direct = owner in ("os", "shutil", "fcntl") and name in SYSCALLS | {"flock"}
        builtin = owner == "" and name == "open"
        path = name in PATH_CALLS and owner.lower().endswith("path")
        if direct or builtin or path:
            found.append(f"line {call.lineno}: {owner}.{name}")
    return found


def identities_from_a_path(module: ast.Module) -> list[str]:
    """An expected identity is taken from a handle, never from a name (E-55)."""
    found = []
    for node in ast.walk(module):
        targets = node.targets if isinstance(node, ast.Assign) else []
        names = [t.attr for t in targets if isinstance(t, ast.Attribute)]
        if "identity" in names and isinstance(node, ast.Assign):
            made = [name for _, name, _ in calls(node.value)]
            if made != ["_identity"]:
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


def swallowed_errors(module: ast.Module) -> list[str]:
    """A broad handler says what it caught to somebody, or raises it again."""
    found = []
    for node in ast.walk(module):
        if not isinstance(node, ast.ExceptHandler):
            continue
        kind = "" if node.type is None else ast.unparse(node.type)
        broad = kind in ("", "Exception", "BaseException")
        used = node.name is not None and any(
            isinstance(inner, ast.Name) and inner.id == node.name
            for statement in node.body
            for inner in ast.walk(statement)
        )
        raises = any(
            isinstance(inner, ast.Raise)
            for statement in node.body
            for inner in ast.walk(statement)
        )
        if broad and not used and not raises:
            found.append(f"line {node.lineno}: except {kind}")
    return found


def gathered_exceptions(module: ast.Module) -> list[str]:
    """Nothing gathers exceptions as results and forgets them (E-42)."""
    return [
        f"line {call.lineno}"
        for _, name, call in calls(module)
        if name == "gather" or any(k.arg == "return_exceptions" for k in call.keywords)
    ]


def live_values_handed_on(module: ast.Module) -> list[str]:
    """What a caller gave reaches the thread only through capture (E-80).

    In the writer, a job is made of a captured transition or of a step, and a value from
    outside is used for nothing but making an entry and calling capture.
    """
    found = []
    live = {"response", "flow_context", "context", "plan"}
    for function in ast.walk(module):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for inner in ast.walk(function):
            if isinstance(inner, ast.Lambda):
                used = {n.id for n in ast.walk(inner.body) if isinstance(n, ast.Name)}
                if used & live:
                    found.append(f"line {inner.lineno}: {ast.unparse(inner)}")
        for _, name, call in calls(function):
            if name != "Job":
                continue
            for keyword in call.keywords:
                value = ast.unparse(keyword.value)
                if (keyword.arg, value) not in (
                    ("loop", "loop"),
                    ("future", "future"),
                    ("transition", "transition"),
                    ("step", "step"),
                ):
                    found.append(f"line {call.lineno}: Job({keyword.arg}={value})")
    return found


def bases_read_elsewhere(module: ast.Module) -> list[str]:
    """Only the loader makes a state out of a base (F-01)."""
    return [
        f"line {call.lineno}: {name}"
        for owner, name, call in calls(module)
        if name in ("decode_base", "Replay") or (owner, name) == ("v2", "decode")
    ]


FENCES: dict[str, tuple[Callable[[ast.Module], list[str]], list[Path], str]] = {
    "system calls": (
        syscalls_outside_the_seam,
        DURABLE,
        "def f(path):\n    os.replace('a', 'b')\n    path.write_bytes(b'')",
    ),
    "identity": (
        identities_from_a_path,
        [CORE / "handles.py", CORE / "files.py", *(CORE / "checkpoint").glob("*.py")],
        "def f(self):\n    self.identity = Identity.of(stat(self.path))",
    ),
    "swallowed errors": (
        swallowed_errors,
        DURABLE,
        "try:\n    f()\nexcept Exception:\n    pass",
    ),
    "gathered errors": (
        gathered_exceptions,
        DURABLE,
        "asyncio.gather(*calls, return_exceptions=True)",
    ),
    "live values": (
        live_values_handed_on,
        [CORE / "checkpoint" / "writer.py"],
        "def f(self, response):\n    self.put(Job(future=future, transition=response))",
    ),
    "bases": (
        bases_read_elsewhere,
        [
            path
            for path in CORE.rglob("*.py")
            if path.name not in ("loader.py", "v3.py") and "observe" not in path.parts
        ],
        "state = v2.decode(json.loads(data))",
    ),
}


@pytest.mark.parametrize("name", FENCES)
def test_a_fence_holds(name: str) -> None:
    fence, paths, _ = FENCES[name]
    assert paths
    broken = {p.name: found for p in paths if (found := fence(tree(p)))}
    assert broken == {}


@pytest.mark.parametrize("name", FENCES)
def test_a_fence_catches_what_it_is_for(name: str) -> None:
    fence, _, bad = FENCES[name]
    assert fence(ast.parse(bad))


def test_only_the_seam_makes_durable_calls() -> None:
    """``syscalls`` is the one module of these that calls ``os``; nothing else does."""
    assert syscalls_outside_the_seam(tree(CORE / "syscalls.py"))


def test_no_document_promises_power_loss() -> None:
    """E-64, M-06: the words stand only beside a denial."""
    docs = [*(CORE.parent / "docs").rglob("*.md")]
    assert docs
    for path in docs:
        for paragraph in path.read_text(encoding="utf-8").split("\n\n"):
            text = " ".join(paragraph.lower().split())
            if "power loss" in text or "loss of power" in text or "power-loss" in text:
                denied = ("no ", "not ", "never ", "nothing ", "without ", "excluded")
                assert any(word in text for word in denied), f"{path.name}: {text[:90]}"
