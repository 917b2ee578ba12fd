"""The generation store beyond ADR-0219's nine: vectors and the J items of the spec."""

from __future__ import annotations

import json
import math
import os
import stat
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from heaveto.errors import GenerationError, IncompatibleEngineStateError
from heaveto.files import Os
from heaveto.generations import (
    EngineState,
    EngineStateStore,
    diff_generations,
    get_git_revision,
    inspect_store,
)

VECTORS = [
    json.loads(line)
    for line in (Path(__file__).parent / "golden/generations/vectors.jsonl")
    .read_text()
    .splitlines()
]


def commit(root: Path, turn: int, **more: Any) -> None:
    store = EngineStateStore(root, revision=lambda: "unknown")
    number, directory = store.begin_generation()
    pending = EngineStateStore(directory, revision=lambda: "unknown")
    pending.save_recognizers([{"turn": turn}])
    pending.save_discovery_candidates([])
    pending.save_session_state({"turn": turn})
    pending.save_manifest(turn, **more)
    store.commit_generation(number)


def code_of(error: pytest.ExceptionInfo[GenerationError]) -> str:
    return error.value.code


# --- vectors


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_vector(vector: dict[str, Any], tmp_path: Path) -> None:
    for name, content in vector["files"].items():
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode())
    expect = vector["expect"]
    store = EngineStateStore(tmp_path)
    if "load" in expect:
        kind = (
            IncompatibleEngineStateError
            if expect["load"] == "incompatible_error"
            else GenerationError
        )
        for load in (store.load_manifest, store.load_session_state):
            with pytest.raises(kind):
                load()
    if "exists" in expect:
        assert store.exists() is expect["exists"]
    if "turn_count" in expect:
        check_turn_count(store, expect)
    if "session_state" in expect:
        assert (
            EngineStateStore(tmp_path).load_session_state() == expect["session_state"]
        )
    if expect.get("begin") == "typed_error":
        refuse_to_begin(tmp_path)
    elif "next" in expect:
        check_begin(tmp_path, expect)


def check_turn_count(store: EngineStateStore, expect: dict[str, Any]) -> None:
    view = inspect_store(store.path)
    if view is not None and view.pointer == "malformed":
        with pytest.raises(GenerationError):
            store.load_manifest()
        manifest = None
    else:
        manifest = store.load_manifest()
    found = None if manifest is None else manifest["turn_count"]
    assert found == expect["turn_count"]
    for member in ("engine_identity", "parent_engine_identity"):
        if member in expect:
            assert manifest is not None
            assert manifest[member] == expect[member]


def refuse_to_begin(root: Path) -> None:
    before = sorted(str(path) for path in root.rglob("*"))
    with pytest.raises(GenerationError) as refused:
        EngineStateStore(root).begin_generation()
    assert refused.value.code.startswith("pointer_")
    assert refused.value.survivors == tuple(p.name for p in sorted(root.glob("gen-*")))
    assert sorted(str(path) for path in root.rglob("*")) == before


def check_begin(root: Path, expect: dict[str, Any]) -> None:
    number, directory = EngineStateStore(root).begin_generation()
    assert number == expect["next"]
    assert list(directory.iterdir()) == []
    if "next_dir" in expect:
        assert directory.name == expect["next_dir"]
    if "after_begin_current" in expect:
        assert (root / "current").read_text().strip() == expect["after_begin_current"]
        state = EngineStateStore(root).load_session_state()
        assert state == expect.get("gen0_session_state")


# --- begin and commit


@pytest.mark.parametrize("keep", [0, 1, -1, True, 2.0, "2"])
def test_keep_is_an_integer_of_two_or_more(keep: Any, tmp_path: Path) -> None:
    store = EngineStateStore(tmp_path)
    number, directory = store.begin_generation()
    EngineStateStore(directory).save_manifest(1)
    with pytest.raises(ValueError, match="keep"):
        store.commit_generation(number, keep=keep)
    store.commit_generation(number)
    assert store.exists()


@pytest.mark.parametrize("wrong", [1, -1, 7, True, "0", None])
def test_commit_takes_only_the_pending_number(wrong: Any, tmp_path: Path) -> None:
    store = EngineStateStore(tmp_path)
    _, directory = store.begin_generation()
    EngineStateStore(directory).save_manifest(1)
    with pytest.raises(GenerationError) as refused:
        store.commit_generation(wrong)
    assert code_of(refused) == "not_pending"
    assert not (tmp_path / "current").exists()


def test_commit_twice_and_commit_unbegun_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GenerationError):
        EngineStateStore(tmp_path / "absent").commit_generation(0)
    commit(tmp_path, 1)
    with pytest.raises(GenerationError) as refused:
        EngineStateStore(tmp_path).commit_generation(0)
    assert code_of(refused) == "not_pending"


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b'{"schema_version":3}'])
def test_commit_needs_a_valid_manifest(content: bytes | None, tmp_path: Path) -> None:
    commit(tmp_path, 1)
    store = EngineStateStore(tmp_path)
    number, directory = store.begin_generation()
    if content is not None:
        (directory / "manifest.json").write_bytes(content)
    with pytest.raises(GenerationError) as refused:
        store.commit_generation(number)
    assert code_of(refused) in ("state_corrupt", "incompatible")
    manifest = EngineStateStore(tmp_path).load_manifest()
    assert manifest is not None
    assert manifest["turn_count"] == 1
    EngineStateStore(directory).save_manifest(2)
    store.commit_generation(number)
    assert (tmp_path / "current").read_text() == "gen-0001\n"


def test_commit_refuses_a_replaced_directory(tmp_path: Path) -> None:
    store = EngineStateStore(tmp_path)
    number, directory = store.begin_generation()
    EngineStateStore(directory).save_manifest(1)
    directory.rename(tmp_path / "elsewhere")
    directory.mkdir()
    (directory / "manifest.json").write_text('{"turn_count": 1}')
    with pytest.raises(GenerationError) as refused:
        store.commit_generation(number)
    assert code_of(refused) == "not_pending"
    assert not (tmp_path / "current").exists()


def test_commit_refuses_a_link_among_the_files(tmp_path: Path) -> None:
    store = EngineStateStore(tmp_path / "store")
    number, directory = store.begin_generation()
    EngineStateStore(directory).save_manifest(1)
    (tmp_path / "outside.json").write_text("{}")
    (directory / "session_state.json").symlink_to(tmp_path / "outside.json")
    with pytest.raises(GenerationError) as refused:
        store.commit_generation(number)
    assert code_of(refused) == "state_corrupt"


def test_commit_notices_a_pointer_that_another_wrote(tmp_path: Path) -> None:
    commit(tmp_path, 1)
    commit(tmp_path, 2)
    store = EngineStateStore(tmp_path)
    number, directory = store.begin_generation()
    EngineStateStore(directory).save_manifest(3)
    (tmp_path / "current").write_text("gen-0000\n")
    with pytest.raises(GenerationError) as refused:
        store.commit_generation(number)
    assert code_of(refused) == "not_pending"
    assert (tmp_path / "current").read_text() == "gen-0000\n"


def test_a_second_begin_supersedes_the_first(tmp_path: Path) -> None:
    first = EngineStateStore(tmp_path)
    number, directory = first.begin_generation()
    stale = EngineStateStore(directory)
    stale.save_session_state({"attempt": 1})
    again, same = EngineStateStore(tmp_path).begin_generation()
    assert (again, same) == (number, directory)
    assert list(directory.iterdir()) == []
    with pytest.raises(GenerationError) as refused:
        stale.save_session_state({"attempt": 1})
    assert code_of(refused) == "not_pending"
    EngineStateStore(same).save_manifest(1)
    first.commit_generation(again)
    assert EngineStateStore(tmp_path).load_session_state() is None


def test_another_process_is_refused_while_one_holds_the_store(tmp_path: Path) -> None:
    holder = hold_in_child(tmp_path)
    try:
        with pytest.raises(GenerationError) as refused:
            EngineStateStore(tmp_path).begin_generation()
        assert code_of(refused) == "busy"
    finally:
        holder.kill()
        holder.communicate()
    assert EngineStateStore(tmp_path).begin_generation()[0] == 0


def hold_in_child(root: Path) -> subprocess.Popen[bytes]:
    code = (
        "import sys, time; from heaveto.generations import EngineStateStore\n"
        "EngineStateStore(sys.argv[1]).begin_generation(); print(flush=True)\n"
        "sys.stdin.read()"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(root)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    child.stdout.readline()
    return child


def test_numbers_grow_past_four_digits(tmp_path: Path) -> None:
    (tmp_path / "gen-9999").mkdir()
    (tmp_path / "gen-9999/manifest.json").write_text('{"turn_count": 1}')
    (tmp_path / "current").write_text("gen-9999")
    commit(tmp_path, 2)
    assert (tmp_path / "current").read_text() == "gen-10000\n"
    commit(tmp_path, 3)
    names = {path.name for path in tmp_path.glob("gen-*")}
    assert names == {"gen-10000", "gen-10001"}


def test_fresh_start_over_old_directories_moves_them_aside(tmp_path: Path) -> None:
    old = tmp_path / "gen-0000"
    old.mkdir()
    (old / "session_state.json").write_text('{"precious":1}')
    with pytest.warns(RuntimeWarning, match="moved to aside-"):
        number, directory = EngineStateStore(tmp_path).begin_generation()
    assert (number, list(directory.iterdir())) == (0, [])
    (moved,) = tmp_path.glob("aside-*/gen-0000/session_state.json")
    assert moved.read_text() == '{"precious":1}'


def test_abandoned_attempts_do_not_pile_up(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(5):
            _, directory = EngineStateStore(tmp_path).begin_generation()
            EngineStateStore(directory).save_session_state({"a": 1})
    assert sorted(p.name for p in tmp_path.iterdir()) == [".pending", "gen-0000"]


def test_cleanup_leaves_links_and_foreign_names_alone(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "keep").write_text("x")
    root = tmp_path / "store"
    for turn in (1, 2):
        commit(root, turn)
    for path in (root / "gen-0000").iterdir():
        path.unlink()
    (root / "gen-0000").rmdir()
    (root / "gen-0000").symlink_to(outside)
    (root / "gen-1_0").mkdir()
    for turn in (3, 4, 5):
        commit(root, turn)
    assert (outside / "keep").exists()
    assert (root / "gen-0000").is_symlink()
    assert (root / "gen-1_0").is_dir()


def test_nothing_writes_into_a_committed_generation(tmp_path: Path) -> None:
    commit(tmp_path, 1)
    for where in (tmp_path / "gen-0000", tmp_path):
        for part, value in (
            ("recognizers", []),
            ("discovery_candidates", []),
            ("session_state", {}),
            ("manifest", 9),
        ):
            with pytest.raises(GenerationError) as refused:
                getattr(EngineStateStore(where), f"save_{part}")(value)
            assert code_of(refused) == "immutable"


def test_the_object_of_a_committed_generation_writes_no_more(tmp_path: Path) -> None:
    store = EngineStateStore(tmp_path)
    number, directory = store.begin_generation()
    pending = EngineStateStore(directory)
    pending.save_manifest(1)
    store.commit_generation(number)
    with pytest.raises(GenerationError) as refused:
        pending.save_manifest(2)
    assert code_of(refused) == "not_pending"


def test_modes_are_private_and_then_follow_the_predecessor(tmp_path: Path) -> None:
    root = tmp_path / "store"
    commit(root, 1)
    first = root / "gen-0000"
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert stat.S_IMODE(first.stat().st_mode) == 0o700
    for path in [*first.iterdir(), root / "current"]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (first / "manifest.json").chmod(0o644)
    (first / "session_state.json").chmod(0o640)
    first.chmod(0o755)
    (root / "current").chmod(0o644)
    commit(root, 2)
    second = root / "gen-0001"
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in second.iterdir()}
    assert modes["manifest.json"] == 0o644
    assert modes["session_state.json"] == 0o640
    assert modes["recognizers.jsonl"] == 0o600
    assert stat.S_IMODE(second.stat().st_mode) == 0o755
    assert stat.S_IMODE((root / "current").stat().st_mode) == 0o644


# --- loading


@pytest.mark.parametrize(
    "content",
    [
        "",
        "hello",
        "../gen-0000",
        "/etc",
        "gen--1",
        "gen-1_0",
        "gen-1",
        "gen-00001",
        "gen-" + 4 * chr(0x660),
        "gen-0000\ngen-0001",
        "gen-0000\n\n",
        " gen-0000",
        "gen-0000\r\n",
    ],
)
def test_a_malformed_pointer_is_refused_everywhere(
    content: str, tmp_path: Path
) -> None:
    commit(tmp_path, 1)
    (tmp_path / "current").write_bytes(content.encode())
    (tmp_path / "manifest.json").write_text('{"turn_count": 99}')
    store = EngineStateStore(tmp_path)
    assert store.exists() is False
    for load in loads(store):
        with pytest.raises(GenerationError) as refused:
            load()
        assert code_of(refused) == "pointer_malformed"
        assert content.strip() not in str(refused.value) or not content.strip()


def loads(store: EngineStateStore) -> list[Any]:
    return [
        store.load_manifest,
        store.load_recognizers,
        store.load_discovery_candidates,
        store.load_session_state,
    ]


@pytest.mark.parametrize("kind", ["directory", "symlink", "fifo"])
def test_a_pointer_that_is_no_file_is_malformed(kind: str, tmp_path: Path) -> None:
    commit(tmp_path, 1)
    current = tmp_path / "current"
    current.rename(tmp_path / "real")
    if kind == "directory":
        current.mkdir()
    elif kind == "symlink":
        current.symlink_to("real")
    else:
        os.mkfifo(current)
    with pytest.raises(GenerationError) as refused:
        EngineStateStore(tmp_path).load_manifest()
    assert code_of(refused) == "pointer_malformed"


@pytest.mark.parametrize("link", [False, True])
def test_a_dangling_pointer_warns_and_strict_raises(link: bool, tmp_path: Path) -> None:
    commit(tmp_path, 1)
    (tmp_path / "manifest.json").write_text('{"turn_count": 99}')
    (tmp_path / "current").write_text("gen-0007\n")
    if link:
        (tmp_path / "gen-0007").symlink_to("gen-0000")
    store = EngineStateStore(tmp_path)
    assert store.exists() is False
    nothing: list[Any] = [None, [], [], None]
    for load, empty in zip(loads(store), nothing, strict=True):
        with pytest.warns(RuntimeWarning, match="gen-0007"):
            assert load() == empty
        with pytest.raises(GenerationError) as refused:
            load(strict=True)
        assert code_of(refused) == "pointer_dangling"
        assert refused.value.survivors == ("gen-0000",)
    with pytest.raises(GenerationError):
        EngineStateStore(tmp_path, strict=True).load_manifest()


@pytest.mark.parametrize("version", ["3", '"2"', "true", "-1", "null", "2.0", "[]"])
def test_every_load_refuses_an_unknown_schema(version: str, tmp_path: Path) -> None:
    commit(tmp_path, 1)
    manifest = tmp_path / "gen-0000" / "manifest.json"
    manifest.write_text(f'{{"schema_version": {version}, "turn_count": 1}}')
    for load in loads(EngineStateStore(tmp_path)):
        with pytest.raises(IncompatibleEngineStateError):
            load()


@pytest.mark.parametrize("version", [0, 1, 2])
def test_older_schemas_load(version: int, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(
        json.dumps({"schema_version": version, "turn_count": 3})
    )
    store = EngineStateStore(tmp_path)
    manifest = store.load_manifest()
    assert manifest is not None
    assert manifest["turn_count"] == 3
    assert store.load_recognizers() == []
    assert store.load_session_state() is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("manifest.json", b"[]"),
        ("manifest.json", b"{"),
        ("manifest.json", b'{"a":"\xff"}'),
        ("manifest.json", b'{"a":1,"a":2}'),
        ("session_state.json", b"7"),
        ("session_state.json", b'{"x":NaN}'),
        ("recognizers.jsonl", b'{"a":1}\n{"b"\n'),
        ("recognizers.jsonl", b"[" * 100_000 + b"\n"),
        ("discovery_candidates.jsonl", b'{"a":1}\n[]\n'),
    ],
)
def test_corrupt_state_is_a_typed_error(
    name: str, content: bytes, tmp_path: Path
) -> None:
    commit(tmp_path, 1)
    (tmp_path / "gen-0000" / name).write_bytes(content)
    with pytest.raises(GenerationError) as refused:
        EngineStateStore(tmp_path).restore()
    assert code_of(refused) == "state_corrupt"
    assert "gen-0000" in str(refused.value)


def test_lines_end_at_line_feeds_only(tmp_path: Path) -> None:
    records = [{"t": "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg"}, {"t": "\ud83d"}]
    flat = EngineStateStore(tmp_path)
    flat.save_recognizers(records)
    flat.save_manifest(1)
    assert EngineStateStore(tmp_path).load_recognizers() == records
    raw = '{"t":"a\u2028b\u0085c"}\n'.encode()
    (tmp_path / "recognizers.jsonl").write_bytes(raw)
    assert EngineStateStore(tmp_path).load_recognizers() == [{"t": "a\u2028b\u0085c"}]


def test_load_and_save_of_unchanged_data_is_byte_identical(tmp_path: Path) -> None:
    values = {"z": 0.1 + 0.2, "a": -0.0, "n": 10**30, "u": "é\ud800", "b": [True, None]}
    store = EngineStateStore(tmp_path / "one")
    store.save_recognizers([values, {"k": 5e-324}])
    store.save_discovery_candidates([values])
    store.save_session_state(values)
    store.save_manifest(4, "id-b", "id-a")
    state = store.restore()
    assert state is not None
    again = EngineStateStore(tmp_path / "two")
    again.save_recognizers(state.recognizers)
    again.save_discovery_candidates(state.discovery_candidates)
    assert state.session_state is not None
    assert repr(state.session_state["z"]) == "0.30000000000000004"
    assert math.copysign(1, state.session_state["a"]) == -1
    again.save_session_state(state.session_state)
    again.save_manifest(4, "id-b", "id-a")
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


class AsDict:
    def as_dict(self) -> dict[str, Any]:
        return {"b": 1, "a": 2}


class ToJson:
    def __init__(self, text: Any) -> None:
        self.text = text

    def to_json(self) -> Any:
        return self.text


def test_records_may_be_objects(tmp_path: Path) -> None:
    store = EngineStateStore(tmp_path)
    store.save_recognizers([AsDict(), ToJson('{ "b" :\n 1, "a": 2}'), {"b": 1, "a": 2}])
    assert (tmp_path / "recognizers.jsonl").read_bytes() == b'{"a":2,"b":1}\n' * 3


@pytest.mark.parametrize(
    "bad",
    [
        {"x": float("nan")},
        {"x": [float("inf")]},
        {"x": object()},
        {1: 1, "1": 2},
        [1],
        "text",
        None,
        ToJson("[]"),
        ToJson("{"),
        ToJson(b"{}"),
        {"x": {1, 2}},
    ],
    ids=[str(number) for number in range(11)],
)
def test_what_cannot_come_back_is_refused_before_commit(
    bad: Any, tmp_path: Path
) -> None:
    commit(tmp_path, 1)
    store = EngineStateStore(tmp_path)
    _, directory = store.begin_generation()
    pending = EngineStateStore(directory)
    for save, value in (
        (pending.save_session_state, bad),
        (pending.save_recognizers, [{}, bad]),
        (pending.save_discovery_candidates, [bad]),
    ):
        with pytest.raises(GenerationError) as refused:
            save(value)
        assert code_of(refused) == "state_value"
    assert list(directory.iterdir()) == []
    assert EngineStateStore(tmp_path).load_session_state() == {"turn": 1}


@pytest.mark.parametrize("turns", [-1, True, 1.0, "1", None])
def test_turn_count_is_a_natural_number(turns: Any, tmp_path: Path) -> None:
    with pytest.raises(GenerationError):
        EngineStateStore(tmp_path).save_manifest(turns)


def test_manifest_members(tmp_path: Path) -> None:
    store = EngineStateStore(tmp_path, revision=lambda: "103def317d00")
    store.save_manifest(7, "id-b", "id-a")
    assert (tmp_path / "manifest.json").read_text() == (
        "{\n"
        '  "engine_identity": "id-b",\n'
        '  "parent_engine_identity": "id-a",\n'
        '  "schema_version": 2,\n'
        '  "turn_count": 7,\n'
        '  "written_at_revision": "103def317d00"\n'
        "}"
    )
    store.save_manifest(8)
    assert set(json.loads((tmp_path / "manifest.json").read_text())) == {
        "schema_version",
        "turn_count",
        "written_at_revision",
    }


@pytest.mark.parametrize(
    ("stored", "here", "warned"),
    [
        ("aaa", "bbb", True),
        ("aaa", "aaa", False),
        ("unknown", "bbb", False),
        ("aaa", "unknown", False),
        ("", "bbb", False),
    ],
)
def test_another_revision_warns_and_loads(
    stored: str, here: str, warned: bool, tmp_path: Path
) -> None:
    EngineStateStore(tmp_path, revision=lambda: stored).save_manifest(3)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        manifest = EngineStateStore(tmp_path, revision=lambda: here).load_manifest()
    assert manifest is not None
    assert manifest["turn_count"] == 3
    assert bool(seen) is warned
    if warned:
        assert stored in str(seen[0].message)
        assert here in str(seen[0].message)
        assert issubclass(seen[0].category, RuntimeWarning)


def test_an_absent_store_is_a_clean_start(tmp_path: Path) -> None:
    store = EngineStateStore(tmp_path / "a" / "b")
    assert store.exists() is False
    assert [load() for load in loads(store)] == [None, [], [], None]
    assert store.restore() is None
    assert not (tmp_path / "a").exists()


def test_loading_changes_nothing(tmp_path: Path) -> None:
    for turn in (1, 2):
        commit(tmp_path, turn)
    (tmp_path / ".current.x.tmp").write_text("gen-0009\n")
    before = {
        str(path): (path.stat().st_mtime_ns, path.stat().st_mode)
        for path in sorted(tmp_path.rglob("*"))
    }
    store = EngineStateStore(tmp_path)
    for load in loads(store):
        load()
    store.restore()
    assert store.exists()
    inspect_store(tmp_path)
    after = {
        str(path): (path.stat().st_mtime_ns, path.stat().st_mode)
        for path in sorted(tmp_path.rglob("*"))
    }
    assert after == before


def test_the_root_comes_from_the_environment_or_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEAVETO_ENGINE_STATE_DIR", raising=False)
    assert EngineStateStore().path == tmp_path / "engine_state"
    monkeypatch.setenv("HEAVETO_ENGINE_STATE_DIR", str(tmp_path / "other"))
    assert EngineStateStore().path == tmp_path / "other"
    assert EngineStateStore(tmp_path / "x").path == tmp_path / "x"


# --- restore


def test_restore_gives_one_generation_and_one_event(tmp_path: Path) -> None:
    commit(tmp_path, 5)
    events: list[dict[str, Any]] = []
    store = EngineStateStore(tmp_path, revision=lambda: "unknown")
    state = store.restore(on_event=events.append)
    assert state is not None
    assert state.generation == "gen-0000"
    assert events == [state.audit]
    assert state.audit == {
        "type": "reboot",
        "restored_turn_count": 5,
        "stored_revision": "unknown",
        "current_revision": "unknown",
        "revision_matched": True,
        "recognizers_count": 1,
        "candidates_count": 0,
    }
    assert EngineStateStore(tmp_path / "none").restore(on_event=events.append) is None
    assert store.restore(fresh=True, on_event=events.append) is None
    assert len(events) == 1


def test_a_validator_may_refuse_what_was_restored(tmp_path: Path) -> None:
    commit(tmp_path, 5)
    seen: list[EngineState] = []
    store = EngineStateStore(tmp_path)

    def refuse(state: EngineState) -> bool:
        seen.append(state)
        return False

    with pytest.raises(GenerationError) as refused:
        store.restore(validator=refuse)
    assert code_of(refused) == "validator_refused"
    assert seen[0].session_state == {"turn": 5}
    assert store.restore(validator=lambda state: True) is not None


# --- repair


def test_recover_makes_a_survivor_current_and_keeps_the_rest(tmp_path: Path) -> None:
    for turn in (1, 2):
        commit(tmp_path, turn)
    (tmp_path / "current").write_text("garbage")
    store = EngineStateStore(tmp_path)
    with pytest.raises(GenerationError):
        store.begin_generation()
    store.recover("gen-0000")
    assert store.load_session_state() == {"turn": 1}
    assert len(list(tmp_path.glob("aside-*/gen-0001/manifest.json"))) == 1
    commit(tmp_path, 3)
    assert EngineStateStore(tmp_path).load_session_state() == {"turn": 3}


@pytest.mark.parametrize("choice", ["gen-0009", 9, "gen-0001/..", "../x", True])
def test_recover_takes_only_what_is_there(choice: Any, tmp_path: Path) -> None:
    commit(tmp_path, 1)
    (tmp_path / "current").write_text("garbage")
    with pytest.raises(GenerationError) as refused:
        EngineStateStore(tmp_path).recover(choice)
    assert refused.value.survivors == ("gen-0000",)
    assert (tmp_path / "current").read_text() == "garbage"


def test_recover_refuses_what_cannot_be_loaded(tmp_path: Path) -> None:
    for turn in (1, 2):
        commit(tmp_path, turn)
    (tmp_path / "gen-0000/session_state.json").write_text("{")
    with pytest.raises(GenerationError) as refused:
        EngineStateStore(tmp_path).recover(0)
    assert code_of(refused) == "state_corrupt"
    assert EngineStateStore(tmp_path).load_session_state() == {"turn": 2}


def test_reset_starts_over_and_deletes_nothing(tmp_path: Path) -> None:
    commit(tmp_path, 1)
    (tmp_path / "current").write_text("garbage")
    (tmp_path / "manifest.json").write_text('{"turn_count": 99}')
    store = EngineStateStore(tmp_path)
    store.reset()
    assert not store.exists()
    assert store.begin_generation()[0] == 0
    (aside,) = tmp_path.glob("aside-*")
    assert sorted(p.name for p in aside.iterdir()) == [
        "current",
        "gen-0000",
        "manifest.json",
    ]


# --- revision


def test_the_revision_does_not_depend_on_where_we_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    get_git_revision.cache_clear()
    here = get_git_revision()
    get_git_revision.cache_clear()
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / ".git"))
    assert get_git_revision() == here
    assert get_git_revision(tmp_path) == "unknown"
    monkeypatch.setenv("PATH", "")
    get_git_revision.cache_clear()
    assert get_git_revision() == "unknown"
    get_git_revision.cache_clear()


# --- the view


def test_the_view_of_a_healthy_store(tmp_path: Path) -> None:
    commit(tmp_path, 1, engine_identity="a")
    commit(tmp_path, 2, engine_identity="b", parent_engine_identity="a")
    view = inspect_store(tmp_path)
    assert view is not None
    assert view.problems == ()
    shown = view.as_dict()
    assert (shown["current"], shown["predecessor"]) == ("gen-0001", "gen-0000")
    assert (shown["pointer"], shown["orphans"]) == ("ok", [])
    first = view.generations[0].as_dict()
    assert set(first) == {
        "name",
        "bytes",
        "turn_count",
        "engine_identity",
        "parent_engine_identity",
        "files",
    }
    assert "gen-0001" in view.reads
    assert inspect_store(tmp_path / "absent") is None


def test_the_view_names_what_is_wrong(tmp_path: Path) -> None:
    commit(tmp_path, 1, engine_identity="a")
    commit(tmp_path, 2, engine_identity="b", parent_engine_identity="x")
    (tmp_path / "gen-0007").mkdir()
    view = inspect_store(tmp_path)
    assert view is not None
    assert view.orphans == ("gen-0007",)
    assert view.generations[-1].problem == "no manifest"
    assert any("parent identity" in problem for problem in view.problems)
    (tmp_path / "gen-0001/manifest.json").write_text("[]")
    view = inspect_store(tmp_path)
    assert view is not None
    assert any("gen-0001" in problem for problem in view.problems)
    for content, pointer in (("gen-0042", "dangling"), ("no", "malformed")):
        (tmp_path / "current").write_text(content)
        view = inspect_store(tmp_path)
        assert view is not None
        assert (view.pointer, view.current) == (pointer, None)
        assert view.problems
    (tmp_path / "current").unlink()
    view = inspect_store(tmp_path)
    assert view is not None
    assert view.pointer == "missing"
    assert view.problems


def test_the_diff_tells_sizes_and_digests_never_values(tmp_path: Path) -> None:
    commit(tmp_path, 1)
    commit(tmp_path, 2)
    (tmp_path / "gen-0001/discovery_candidates.jsonl").unlink()
    changes = diff_generations(tmp_path, "gen-0000", "gen-0001")
    assert {change["file"]: change["change"] for change in changes} == {
        "recognizers.jsonl": "changed",
        "discovery_candidates.jsonl": "removed",
        "session_state.json": "changed",
        "manifest.json": "changed",
    }
    assert diff_generations(tmp_path, "gen-0000", "gen-0000") == []
    with pytest.raises(GenerationError):
        diff_generations(tmp_path, "gen-0000", "gen-0009")


# --- read-only


class ReadOnly(Os):
    """A read-only file system: opening for writing and every change fail."""

    def __init__(self) -> None:
        self.tried: list[str] = []

    def open(
        self, path: str, flags: int, mode: int = 0o600, *, dir_fd: Any = None
    ) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            self.tried.append("open")
            raise OSError(30, "Read-only file system")
        return super().open(path, flags, mode, dir_fd=dir_fd)

    def mkdir(self, path: str, mode: int = 0o700, *, dir_fd: Any = None) -> None:
        raise OSError(30, "Read-only file system")

    def rename(self, source: str, target: str, **_: Any) -> None:
        raise OSError(30, "Read-only file system")

    def unlink(self, path: str, **_: Any) -> None:
        raise OSError(30, "Read-only file system")


def test_a_read_only_file_system_loads_and_refuses_to_begin(tmp_path: Path) -> None:
    commit(tmp_path, 1)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    store = EngineStateStore(tmp_path, system=ReadOnly())
    assert store.load_session_state() == {"turn": 1}
    assert inspect_store(tmp_path, system=ReadOnly()) is not None
    with pytest.raises(GenerationError) as refused:
        store.begin_generation()
    assert code_of(refused) == "io"
    assert "EROFS" in str(refused.value)
    assert sorted(path.name for path in tmp_path.rglob("*")) == before
    commit(tmp_path, 2)


# --- misuse


class Failing:
    def as_dict(self) -> dict[str, object]:
        raise KeyError("secret")


def failing_records() -> Any:
    yield {"a": 1}
    raise RuntimeError("secret")


@pytest.mark.parametrize(
    "records",
    [None, 5, [Failing()], [Failing], failing_records()],
    ids=["none", "number", "object", "class", "generator"],
)
def test_records_that_raise_are_refused(records: Any, tmp_path: Path) -> None:
    commit(tmp_path, 1)
    _, directory = EngineStateStore(tmp_path).begin_generation()
    with pytest.raises(GenerationError) as error:
        EngineStateStore(directory).save_recognizers(records)
    assert code_of(error) == "state_value"
    assert "secret" not in str(error.value)
    assert list(directory.iterdir()) == []


def test_numbers_beyond_the_conversion_limit_are_refused(tmp_path: Path) -> None:
    commit(tmp_path, 1)
    store = EngineStateStore(tmp_path)
    for choice in (10**5000, "gen-" + "9" * 6000):
        with pytest.raises(GenerationError) as error:
            store.recover(choice)
        assert code_of(error) == "not_pending"
    _, directory = store.begin_generation()
    with pytest.raises(GenerationError) as error:
        EngineStateStore(directory).save_manifest(10**5000)
    assert code_of(error) == "state_value"


@pytest.mark.parametrize("path", ["a\0b", 5, b"x"], ids=repr)
def test_what_is_no_path_is_refused(path: Any) -> None:
    for use in (EngineStateStore, inspect_store):
        with pytest.raises(GenerationError) as error:
            use(path)
        assert code_of(error) == "io"


def test_a_lost_working_directory_is_a_typed_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for use in (EngineStateStore, inspect_store):
        with pytest.raises(GenerationError) as error:
            use(Path("store"))
        assert code_of(error) == "io"


@pytest.mark.parametrize("name", [".pending", "current"])
def test_a_directory_under_a_name_of_ours_is_moved_aside(
    name: str, tmp_path: Path
) -> None:
    commit(tmp_path, 1)
    commit(tmp_path, 2)
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).mkdir()
    (tmp_path / name / "kept").write_text("mine")
    if name == "current":
        EngineStateStore(tmp_path).recover(1)
    commit(tmp_path, 3)
    (kept,) = tmp_path.glob(f"aside-*/{name}/kept")
    assert kept.read_text() == "mine"
    manifest = EngineStateStore(tmp_path, revision=lambda: "unknown").load_manifest()
    assert manifest is not None
    assert manifest["turn_count"] == 3


FORKED = """
import os, sys, threading
from pathlib import Path
from heaveto.generations import EngineStateStore, GenerationError, commit

root = Path(sys.argv[1])
store = EngineStateStore(root)
number, directory = store.begin_generation()
pending = EngineStateStore(directory)
pending.save_manifest(7)
held, done = threading.Event(), threading.Event()

def hold():
    with commit.writing("holding"):
        held.set()
        done.wait()

thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if child == 0:
    codes = []
    for use in (
        lambda: pending.save_manifest(99),
        lambda: store.commit_generation(number),
        lambda: EngineStateStore(root).begin_generation(),
        lambda: EngineStateStore(root).begin_generation(),
    ):
        try:
            use()
            codes.append("done")
        except GenerationError as error:
            codes.append(error.code)
    print(*codes, flush=True)
    os._exit(0)
os.waitpid(child, 0)
done.set()
thread.join()
store.commit_generation(number)
print(store.load_manifest()["turn_count"])
"""


def test_a_forked_child_leaves_the_attempt_to_its_parent(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED, str(tmp_path / "store")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split() == ["not_pending", "not_pending", "busy", "busy", "7"]
