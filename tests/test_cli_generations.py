"""``heaveto generations``: the view, the comparison and their exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from heaveto.generations import EngineStateStore

if TYPE_CHECKING:
    from pathlib import Path


def commit(root: Path, turn: int, **more: Any) -> None:
    store = EngineStateStore(root, revision=lambda: "unknown")
    number, directory = store.begin_generation()
    pending = EngineStateStore(directory, revision=lambda: "unknown")
    pending.save_session_state({"turn": turn, "secret": "MARKER-IN-STATE"})
    pending.save_manifest(turn, **more)
    store.commit_generation(number)


def heaveto(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "heaveto",
        "--home",
        str(tmp_path / "home"),
        *words,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "engine_state"
    commit(root, 1, engine_identity="one")
    commit(root, 2, engine_identity="two\x1b[2J", parent_engine_identity="one")
    return root


def test_a_healthy_store(tmp_path: Path, store: Path) -> None:
    done = heaveto(tmp_path, "generations", str(store), "--json")
    assert done.returncode == 0
    shown = json.loads(done.stdout)
    assert set(shown) == {
        "schema",
        "current",
        "predecessor",
        "orphans",
        "pointer",
        "generations",
    }
    assert (shown["current"], shown["predecessor"]) == ("gen-0001", "gen-0000")
    assert [g["turn_count"] for g in shown["generations"]] == [1, 2]
    text = heaveto(tmp_path, "generations", str(store))
    assert text.returncode == 0
    assert "current names it" in text.stdout
    assert "\x1b" not in text.stdout
    assert "MARKER" not in text.stdout + done.stdout


def test_a_run_directory_with_a_store(tmp_path: Path, store: Path) -> None:
    done = heaveto(tmp_path, "generations", f"{tmp_path}/", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["current"] == "gen-0001"


@pytest.mark.parametrize(
    ("content", "pointer"), [("gen-0042\n", "dangling"), ("../x", "malformed")]
)
def test_a_broken_pointer_is_told(
    content: str, pointer: str, tmp_path: Path, store: Path
) -> None:
    (store / "current").write_text(content)
    done = heaveto(tmp_path, "generations", str(store), "--json")
    assert done.returncode == 1
    shown = json.loads(done.stdout)
    assert (shown["pointer"], shown["current"]) == (pointer, None)
    assert shown["orphans"] == ["gen-0000", "gen-0001"]
    text = heaveto(tmp_path, "generations", str(store))
    assert "recover(" in text.stdout


@pytest.mark.parametrize("subject", ["/no/such/place", "./nothing", "nobody"])
def test_what_is_not_there_is_status_2(subject: str, tmp_path: Path) -> None:
    done = heaveto(tmp_path, "generations", subject, "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "target_unknown"
    assert "Traceback" not in done.stderr


def test_two_generations_compared(tmp_path: Path, store: Path) -> None:
    words = ["generations", str(store), "--diff"]
    done = heaveto(tmp_path, *words, "gen-0000", "gen-0001", "--json")
    assert done.returncode == 1
    shown = json.loads(done.stdout)
    assert shown["equal"] is False
    assert {f["file"] for f in shown["files"]} == {
        "manifest.json",
        "session_state.json",
    }
    assert "MARKER" not in done.stdout
    assert heaveto(tmp_path, *words, "gen-0000", "gen-0000").returncode == 0
    missing = heaveto(tmp_path, *words, "gen-0000", "gen-0009", "--json")
    assert missing.returncode == 2
    assert json.loads(missing.stdout)["error"]["candidates"] == ["gen-0000", "gen-0001"]


def test_looking_changes_nothing(tmp_path: Path, store: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in store.rglob("*")}
    heaveto(tmp_path, "generations", str(store))
    assert {p: p.stat().st_mtime_ns for p in store.rglob("*")} == before


@pytest.mark.parametrize("verb", ["inspect", "generations"])
@pytest.mark.parametrize(
    "subject", ["x" * 5000, "/" + "x" * 5000, "a\udcffb", "./\udcff"]
)
def test_a_name_that_no_file_can_have(verb: str, subject: str, tmp_path: Path) -> None:
    done = heaveto(tmp_path, verb, subject, "--json")
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert json.loads(done.stdout)["schema"] == 1
