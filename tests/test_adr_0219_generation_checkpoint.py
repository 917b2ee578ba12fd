"""The nine promises of ADR-0219 under their names, each with a variant that bites."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from heaveto.errors import GenerationError
from heaveto.generations import EngineStateStore

FILES = (
    "recognizers.jsonl",
    "discovery_candidates.jsonl",
    "session_state.json",
    "manifest.json",
)


def checkpoint(root: Path, turn: int, **parts: Any) -> int:
    """Commit one generation whose four files all tell the turn."""
    store = EngineStateStore(root)
    number, directory = store.begin_generation()
    write_parts(EngineStateStore(directory), turn, **parts)
    store.commit_generation(number)
    return number


def write_parts(store: EngineStateStore, turn: int, *, session: bool = True) -> None:
    store.save_recognizers([{"turn": turn, "n": n} for n in range(3)])
    store.save_discovery_candidates([{"turn": turn, "candidate": "c"}])
    if session:
        store.save_session_state({"turn": turn})
    store.save_manifest(turn)


def turns(root: Path) -> set[int]:
    """Return the turns that the stored parts tell; one when nothing is mixed."""
    store = EngineStateStore(root)
    manifest = store.load_manifest()
    assert manifest is not None
    seen = {manifest["turn_count"]}
    seen |= {record["turn"] for record in store.load_recognizers()}
    seen |= {record["turn"] for record in store.load_discovery_candidates()}
    state = store.load_session_state()
    if state is not None:
        seen.add(state["turn"])
    return seen


def write_flat(root: Path, turn: int) -> None:
    write_parts(EngineStateStore(root), turn)
    assert not (root / "current").exists()


def tree(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def killed_before_commit(root: Path, turn: int) -> None:
    """Write a whole generation in another process and kill it before the commit."""
    code = (
        "import os, signal, sys; from heaveto.generations import EngineStateStore\n"
        "s = EngineStateStore(sys.argv[1]); t = int(sys.argv[2])\n"
        "n, d = s.begin_generation(); g = EngineStateStore(d)\n"
        "g.save_recognizers([{'turn': t}]); g.save_session_state({'turn': t})\n"
        "g.save_discovery_candidates([{'turn': t}]); g.save_manifest(t)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(root), str(turn)], env=environment, check=False
    )
    assert done.returncode == -signal.SIGKILL


def test_fresh_store_writes_gen0000_and_current(tmp_path: Path) -> None:
    assert checkpoint(tmp_path, 1) == 0
    assert (tmp_path / "current").read_text() == "gen-0000\n"
    assert (tmp_path / "gen-0000" / "manifest.json").is_file()


def test_fresh_store_without_commit_has_no_current(tmp_path: Path) -> None:
    store = EngineStateStore(tmp_path)
    _, directory = store.begin_generation()
    write_parts(EngineStateStore(directory), 1)
    assert not (tmp_path / "current").exists()
    assert not store.exists()
    assert store.load_manifest() is None


def test_second_checkpoint_advances_generation(tmp_path: Path) -> None:
    checkpoint(tmp_path, 1)
    assert checkpoint(tmp_path, 2) == 1
    assert (tmp_path / "current").read_text() == "gen-0001\n"
    assert turns(tmp_path) == {2}


def test_second_checkpoint_uncommitted_changes_nothing(tmp_path: Path) -> None:
    checkpoint(tmp_path, 1)
    store = EngineStateStore(tmp_path)
    _, directory = store.begin_generation()
    write_parts(EngineStateStore(directory), 2)
    assert turns(tmp_path) == {1}


def test_orphan_gen_dir_ignored_before_pointer_swap(tmp_path: Path) -> None:
    checkpoint(tmp_path, 5)
    orphan = tmp_path / "gen-9999"
    orphan.mkdir()
    write_parts(EngineStateStore(orphan), 9999)
    assert turns(tmp_path) == {5}
    assert checkpoint(tmp_path, 6) == 1
    assert (orphan / "manifest.json").is_file(), "a higher directory is left alone"


def test_orphan_left_by_a_kill_is_never_mixed_into_the_next(tmp_path: Path) -> None:
    checkpoint(tmp_path, 1)
    killed_before_commit(tmp_path, 2)
    assert (tmp_path / "gen-0001" / "session_state.json").exists()
    assert turns(tmp_path) == {1}
    assert checkpoint(tmp_path, 3, session=False) == 1
    assert EngineStateStore(tmp_path).load_session_state() is None
    assert turns(tmp_path) == {3}


def test_torn_current_tmp_ignored(tmp_path: Path) -> None:
    checkpoint(tmp_path, 5)
    (tmp_path / ".current.deadbeef.tmp").write_text("gen-9999\n")
    assert turns(tmp_path) == {5}
    checkpoint(tmp_path, 6)
    assert not (tmp_path / ".current.deadbeef.tmp").exists(), "swept under the lock"


def test_torn_current_tmp_alone_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / ".current.deadbeef.tmp").write_text("gen-0000\n")
    (tmp_path / "gen-0000").mkdir()
    write_parts(EngineStateStore(tmp_path / "gen-0000"), 9)
    assert not EngineStateStore(tmp_path).exists()
    assert (tmp_path / ".current.deadbeef.tmp").exists(), "a reader removes nothing"


def test_no_cross_generation_mixing(tmp_path: Path) -> None:
    checkpoint(tmp_path, 10)
    checkpoint(tmp_path, 20)
    assert turns(tmp_path) == {20}
    (tmp_path / "current").write_text("gen-0000\n")
    assert turns(tmp_path) == {10}


def test_no_mixing_when_a_commit_comes_between_two_loads(tmp_path: Path) -> None:
    checkpoint(tmp_path, 10)
    reader = EngineStateStore(tmp_path)
    manifest = reader.load_manifest()
    assert manifest is not None
    assert manifest["turn_count"] == 10
    checkpoint(tmp_path, 20)
    state = reader.load_session_state()
    assert state == {"turn": 10}
    again = reader.load_manifest()
    assert again is not None
    assert again["turn_count"] == 20


def test_no_mixing_when_the_pinned_generation_was_removed(tmp_path: Path) -> None:
    checkpoint(tmp_path, 1)
    reader = EngineStateStore(tmp_path)
    reader.load_manifest()
    for turn in (2, 3, 4):
        checkpoint(tmp_path, turn)
    with pytest.raises(GenerationError) as refused:
        reader.load_session_state()
    assert refused.value.code == "superseded"
    assert reader.load_session_state() == {"turn": 4}


def test_legacy_flat_layout_migrates_on_first_write(tmp_path: Path) -> None:
    write_flat(tmp_path, 7)
    store = EngineStateStore(tmp_path)
    number, directory = store.begin_generation()
    assert number == 1
    assert (tmp_path / "current").read_text() == "gen-0000\n"
    for name in FILES:
        flat, moved = tmp_path / name, tmp_path / "gen-0000" / name
        assert moved.read_bytes() == flat.read_bytes()
    assert turns(tmp_path) == {7}
    write_parts(EngineStateStore(directory), 8)
    store.commit_generation(number)
    assert turns(tmp_path) == {8}


def test_legacy_flat_files_are_not_read_after_migration(tmp_path: Path) -> None:
    write_flat(tmp_path, 7)
    EngineStateStore(tmp_path).begin_generation()
    (tmp_path / "manifest.json").write_text('{"schema_version": 2, "turn_count": 99}')
    assert turns(tmp_path) == {7}


def test_legacy_flat_layout_readable_without_write(tmp_path: Path) -> None:
    write_flat(tmp_path, 7)
    before = tree(tmp_path)
    assert turns(tmp_path) == {7}
    assert EngineStateStore(tmp_path).exists()
    assert tree(tmp_path) == before


def test_legacy_flat_layout_without_manifest_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "recognizers.jsonl").write_text('{"a":1}\n')
    store = EngineStateStore(tmp_path)
    assert not store.exists()
    assert store.load_recognizers() == []
    assert store.begin_generation()[0] == 0


def test_commit_point_matches_turn_count(tmp_path: Path) -> None:
    for turn in (1, 2, 3):
        checkpoint(tmp_path, turn)
    assert turns(tmp_path) == {3}


def test_commit_point_survives_a_kill_while_writing(tmp_path: Path) -> None:
    checkpoint(tmp_path, 1)
    killed_before_commit(tmp_path, 2)
    assert turns(tmp_path) == {1}


def test_gc_retains_last_two_generations(tmp_path: Path) -> None:
    for turn in (1, 2, 3, 4):
        checkpoint(tmp_path, turn)
    names = sorted(path.name for path in tmp_path.glob("gen-*"))
    assert names == ["gen-0002", "gen-0003"]


def test_gc_keeps_what_it_was_told_to_keep(tmp_path: Path) -> None:
    store = EngineStateStore(tmp_path)
    for turn in (1, 2, 3, 4):
        number, directory = store.begin_generation()
        write_parts(EngineStateStore(directory), turn)
        store.commit_generation(number, keep=3)
    names = sorted(path.name for path in tmp_path.glob("gen-*"))
    assert names == ["gen-0001", "gen-0002", "gen-0003"]


def test_nothing_warns_on_the_ordinary_way(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for turn in (1, 2, 3):
            checkpoint(tmp_path, turn)
            assert turns(tmp_path) == {turn}
