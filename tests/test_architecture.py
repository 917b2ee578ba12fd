"""What the structure promises: imports, system calls, how a module looks."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
SOURCES = sorted(
    path
    for folder in ("core/heaveto", "tui/heaveto_tui")
    for path in (ROOT / folder).rglob("*.py")
)
ALL = [path.relative_to(ROOT).as_posix() for path in SOURCES]
SIZE_LIMIT = 600

FLOW = """[flow]
name = "x"
[workers.w]
kind = "scripted"
replies = [{ response = 1 }]
[[operations]]
id = "a"
worker = "w"
instruction = "x"
"""


# --- imports


def loaded(entry: str, words: list[str], home: Path) -> tuple[int, set[str]]:
    """Run a command line in a fresh interpreter; return its code and all modules."""
    code = f"""
import io, json, sys
from {entry} import main
sys.argv = ["heaveto", *{words!r}]
kept, sys.stdout = sys.stdout, io.StringIO()
code = main()
sys.stdout = kept
print(json.dumps([int(code), sorted(sys.modules)]))
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        check=False,
        timeout=60,
        env={
            **os.environ,
            "HEAVETO_HOME": str(home),
            "HEAVETO_CONFIG": str(home.parent / "none.toml"),
            "LIONAGI_HOME": str(home.parent / "none"),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "core"), str(ROOT / "tui")]),
        },
    )
    assert done.returncode == 0, done.stderr
    ended, modules = json.loads(done.stdout)
    return ended, set(modules)


def packages(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


@pytest.mark.parametrize("entry", ["heaveto.cli", "heaveto_tui.__main__"])
@pytest.mark.parametrize(
    "words",
    [
        ["ls", "--json"],
        ["ls"],
        ["show", "nothing"],
        ["logs", "nothing"],
        ["inspect", "/nowhere"],
        ["ctl", "pause", "nothing"],
        ["ctl", "status", "nothing"],
        ["doctor"],
        ["explain", "dead"],
        ["run", "flow.toml", "--dry-run"],
        ["run", "flow.toml"],
    ],
    ids=" ".join,
)
def test_headless_verbs_load_no_terminal_library(
    entry: str, words: list[str], tmp_path: Path
) -> None:
    (tmp_path / "flow.toml").write_text(FLOW)
    words = [str(tmp_path / word) if word == "flow.toml" else word for word in words]
    _, modules = loaded(entry, words, tmp_path / "home")
    assert not packages(modules) & {"textual", "rich", "pygments", "markdown_it"}
    if entry == "heaveto.cli":
        assert "heaveto_tui" not in packages(modules)


def test_the_list_loads_neither_an_engine_nor_a_second_database(tmp_path: Path) -> None:
    code, modules = loaded("heaveto.cli", ["ls", "--json"], tmp_path / "home")
    assert code == 0
    for name in (
        "aiosqlite",
        "asyncio",
        "watchfiles",
        "heaveto.checkpoint",
        "heaveto.runner",
        "heaveto.executor",
        "heaveto.workers",
        "heaveto.flowfile",
        "heaveto.generations",
        "psutil",
        "tomllib",
    ):
        assert name not in modules, name


def test_the_package_itself_loads_nothing() -> None:
    code = "import sys, heaveto; print([m for m in sys.modules if 'heaveto.' in m])"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "core")},
    )
    assert done.stdout == "[]\n"


def test_the_drawing_loads_no_terminal_library() -> None:
    code = (
        "import sys; from heaveto_tui.dag_layout import draw; draw([('a', 'a', [])])\n"
        "loaded = {m.partition('.')[0] for m in sys.modules}\n"
        "print(sorted(loaded & {'textual', 'rich'}))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "core"), str(ROOT / "tui")]),
        },
    )
    assert done.stdout == "[]\n"


def test_the_program_works_where_the_console_is_not_installed(tmp_path: Path) -> None:
    """Textual, Rich and the console hidden: the verbs work, the console says so."""
    code = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"textual", "rich", "heaveto_tui"}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Hidden())
from heaveto.cli import main
sys.exit(main())
"""
    environment = {
        **os.environ,
        "HEAVETO_HOME": str(tmp_path / "home"),
        "LIONAGI_HOME": str(tmp_path / "none"),
        "PYTHONPATH": str(ROOT / "core"),
    }
    flow = tmp_path / "flow.toml"
    flow.write_text(FLOW)
    for words in (["run", str(flow)], ["ls"], ["doctor"]):
        done = subprocess.run(
            [sys.executable, "-P", "-c", code, *words],
            capture_output=True,
            check=False,
            env=environment,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr


# --- system calls

SYSCALLS = {
    "open",
    "write",
    "pwrite",
    "rename",
    "renames",
    "replace",
    "unlink",
    "remove",
    "removedirs",
    "mkdir",
    "makedirs",
    "mkfifo",
    "rmdir",
    "fsync",
    "fdatasync",
    "ftruncate",
    "truncate",
    "link",
    "symlink",
    "chmod",
    "fchmod",
    "chown",
}
"""Functions of ``os`` that create, change, sync or remove files."""
METHODS = {"write_text", "write_bytes", "touch", "symlink_to", "hardlink_to", "lchmod"}
"""Methods of paths that do."""
FOREIGN = {"shutil": {"rmtree", "copy", "copy2", "copyfile", "copytree", "move"}}
ALLOWED = {
    # The one seam.
    "core/heaveto/syscalls.py": SYSCALLS,
    # Not files: pipes, terminals and the null device.
    "core/heaveto/cli/output.py": {"open"},
    "core/heaveto/detach.py": {"write"},
    "core/heaveto/workers/launch.py": {"write"},
    "core/heaveto/workers/child.py": {"write"},
    "tui/heaveto_tui/driver.py": {"open", "write"},
    "tui/heaveto_tui/launch.py": {"open"},
}


def durable_calls(tree: ast.Module) -> Iterator[str]:
    """Yield the names of calls that change what is on disk."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Name) and function.id == "open":
            mode = node.args[1] if len(node.args) > 1 else None
            mode = next((k.value for k in node.keywords if k.arg == "mode"), mode)
            if mode is not None and not (
                isinstance(mode, ast.Constant) and set(str(mode.value)) <= set("rbt")
            ):
                yield "open"
        if not isinstance(function, ast.Attribute):
            continue
        owner = function.value
        if isinstance(owner, ast.Name):
            if owner.id == "os" and function.attr in SYSCALLS:
                yield function.attr
            if function.attr in FOREIGN.get(owner.id, set()):
                yield f"{owner.id}.{function.attr}"
            if owner.id == "tempfile" and function.attr != "gettempdir":
                yield f"tempfile.{function.attr}"
        if function.attr in METHODS:
            yield function.attr


@pytest.mark.parametrize("name", ALL)
def test_only_the_seam_changes_what_is_on_disk(name: str) -> None:
    tree = ast.parse((ROOT / name).read_text(encoding="utf-8"))
    assert set(durable_calls(tree)) <= ALLOWED.get(name, set())


def test_the_fence_sees_what_it_should() -> None:
    harmless = "open(p, 'rb'); open(p); os.path.join(a); tempfile.gettempdir()"
    assert list(durable_calls(ast.parse(harmless))) == []
    for code, name in (
        ("os.rename(a, b)", "rename"),
        ("open(p, 'w')", "open"),
        ("open(p, mode=m)", "open"),
        ("p.write_text('')", "write_text"),
        ("shutil.rmtree(p)", "shutil.rmtree"),
        ("tempfile.mkdtemp()", "tempfile.mkdtemp"),
    ):
        assert list(durable_calls(ast.parse(code))) == [name]


# --- how a module looks


@pytest.mark.parametrize("name", ALL)
def test_every_module_says_what_it_is(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "no docstring"
    assert text.count("\n") <= SIZE_LIMIT
    body = tree.body[1:]
    if not body:
        return
    first = body[0]
    assert isinstance(first, ast.ImportFrom)
    assert first.module == "__future__"
    names = {
        target.id
        for node in body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    assert "__all__" in names or Path(name).name == "__main__.py"


@pytest.mark.parametrize("name", ALL)
def test_no_error_is_dropped_bare(name: str) -> None:
    tree = ast.parse((ROOT / name).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"line {node.lineno}"


@pytest.mark.parametrize("name", [name for name in ALL if name.startswith("core/")])
def test_nothing_is_printed_past_the_printer(name: str) -> None:
    tree = ast.parse((ROOT / name).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            assert not (isinstance(function, ast.Name) and function.id == "print")
            assert not (
                isinstance(function, ast.Attribute)
                and function.attr in {"echo", "secho"}
                and isinstance(function.value, ast.Name)
                and function.value.id == "click"
            )


def test_no_word_of_a_test_in_what_is_shipped() -> None:
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        for word in ("import pytest", "unittest", "PYTEST_"):
            assert word not in text, (path.name, word)
