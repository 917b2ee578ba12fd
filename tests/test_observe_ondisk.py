"""One unit in detail: the report, the journal's lines without content, the store."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest

from harness.stores import commit_turn
from harness.units import GENERATION, OTHER, base, entry, line, write_unit
from heaveto.checkpoint import loader
from heaveto.observe.ondisk import Inspector, inspect_unit, reason_place

if TYPE_CHECKING:
    from pathlib import Path

MARK = "MARKER-7f3a"
SET_A: dict[str, Any] = {"op": "add", "path": "/a", "value": MARK}


def test_lines_tell_positions_and_ids_and_no_content(tmp_path: Path) -> None:
    first = line(1, SET_A, entry=entry("op-1", MARK))
    second = line(2, kind="spawned", entry=entry("n", MARK, operation="x"))
    path = write_unit(tmp_path, base(prompt=MARK), first, second)
    view = inspect_unit(path).view
    assert [one.as_dict() for one in view.records] == [
        {
            "line": 1,
            "offset": 0,
            "bytes": len(first),
            "code": None,
            "use": "applied",
            "generation": GENERATION,
            "seq": 1,
            "kind": "op",
            "id": "op-1",
            "status": "completed",
            "context_changes": 1,
        },
        {
            "line": 2,
            "offset": len(first),
            "bytes": len(second),
            "code": None,
            "use": "applied",
            "generation": GENERATION,
            "seq": 2,
            "kind": "spawned",
            "id": "n",
            "status": "completed",
            "context_changes": 0,
        },
    ]
    assert view.bytes_to_compaction == 8_388_608 - len(first) - len(second)
    assert view.base_bytes == path.stat().st_size
    assert view.contents is not None
    assert asdict(view.contents) == {
        "planned": 2,
        "completed": 2,
        "failed": 0,
        "spawned": 1,
        "pending": 0,
        "messages": 0,
    }
    assert MARK not in repr(view)


def test_a_refused_unit_tells_where_and_no_outcome(tmp_path: Path) -> None:
    stale = line(1, generation=OTHER)
    good, gap, later = line(1), line(3), line(4)
    document = base(ops={"op-9": entry("op-9")})
    path = write_unit(tmp_path, document, stale, good, gap, later)
    view, state, prefix = inspect_unit(path)
    assert view.refused
    assert state is None
    assert view.contents is None
    assert [(one.use, one.code, one.status) for one in view.records] == [
        ("stale", "stale_generation", None),
        ("prefix", None, None),
        ("refused", "sequence_gap", None),
        ("unread", None, None),
    ]
    assert prefix is not None
    assert "completed" not in repr(view)
    place = f"journal, line 3, offset {len(stale + good)}, seq 3, expected seq 2"
    assert reason_place(view.report.reasons[-1]) == place


@pytest.mark.parametrize(
    ("limit", "bad", "shown"),
    [
        (3, None, [8, 9, 10]),
        (3, 5, [4, 5, 6]),
        (4, 1, [1, 2, 3, 4]),
        (4, 10, [7, 8, 9, 10]),
        (20, 5, list(range(1, 11))),
    ],
)
def test_a_long_journal_is_read_around_what_matters(
    tmp_path: Path, limit: int, bad: int | None, shown: list[int]
) -> None:
    lines = [line(seq) for seq in range(1, 11)]
    if bad is not None:
        lines[bad - 1] = b"[]\n"
    view = inspect_unit(write_unit(tmp_path, base(), *lines), limit=limit).view
    assert view.lines == 10
    assert [one.line for one in view.records] == shown
    offsets = [sum(map(len, lines[: one.line - 1])) for one in view.records]
    assert [one.offset for one in view.records] == offsets


def test_version_2_has_one_file(tmp_path: Path) -> None:
    document = base(2, ops={"op-0": entry("op-0")})
    view = inspect_unit(write_unit(tmp_path, document, journal=False)).view
    assert (view.journal_bytes, view.records, view.lines) == (None, (), 0)
    assert view.bytes_to_compaction is None
    assert view.contents is not None
    assert view.contents.completed == 1


def test_nothing_there_is_said_by_the_report(tmp_path: Path) -> None:
    path = tmp_path / "gone" / "checkpoint.json"
    view = inspect_unit(path).view
    assert view.absent
    assert view.report.as_dict() == Inspector(path).read(live=True).report.as_dict()
    assert [str(one.code) for one in view.report.reasons] == ["base_missing"]


def test_an_inspector_reads_what_changed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_unit(tmp_path, base(), line(1))
    journal = path.with_name("checkpoint.json.journal")
    inspector = Inspector(path, now_ns=lambda: 2**62)
    seen = inspector.read(live=True)
    with monkeypatch.context() as patched:
        patched.setattr(loader.Follower, "poll", None)  # a poll would fail
        assert inspector.read(live=True) is seen
    with journal.open("ab") as file:
        file.write(line(2))
    newer = inspector.read(live=True)
    assert [one.seq for one in newer.records] == [1, 2]
    with journal.open("ab") as file:
        file.write(b'{"version":3')
    waiting = inspector.read(live=True)  # a writer may be in the middle of a line
    assert waiting.report.status == "clean"
    assert [one.use for one in waiting.records] == ["applied", "applied"]
    torn = inspector.read(live=False)
    assert torn.report.status == "recovered_prefix"
    assert torn.records[-1].use == "torn"
    inspector.close()


def test_a_base_replaced_meanwhile_is_read_again(tmp_path: Path) -> None:
    """A journal of another base is never shown beside this one's report."""
    path = write_unit(tmp_path, base(), line(1), line(2))
    fresh = base(generation=OTHER, ops={"op-1": entry("op-1"), "op-2": entry("op-2")})
    rounds = 0

    def compact(pause: float) -> None:
        nonlocal rounds
        rounds += 1
        _replace(path, fresh)

    original = loader._decoded

    def decoded(*args: Any) -> Any:
        found = original(*args)
        if not rounds:
            compact(0.0)
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loader, "_decoded", decoded)
        view = inspect_unit(path, sleep=lambda _: None).view
    assert rounds == 1
    assert view.report.generation == OTHER
    assert view.records == ()


def _replace(path: Path, document: dict[str, Any]) -> None:
    for name, data in (
        ("checkpoint.json", json.dumps(document).encode()),
        ("checkpoint.json.journal", b""),
    ):
        other = path.with_name("other")
        other.write_bytes(data)
        other.rename(path.with_name(name))


def test_the_generation_store_beside_it_is_told(tmp_path: Path) -> None:
    path = write_unit(tmp_path, base())
    assert inspect_unit(path).view.store is None
    inspector = Inspector(path, now_ns=lambda: 2**62)
    assert inspector.read(live=False).store is None
    commit_turn(tmp_path / "engine_state", 1, engine_identity="id-a")
    view = inspector.read(live=False)
    assert view.store is not None
    assert view.store.current == "gen-0000"
    commit_turn(tmp_path / "engine_state", 2)
    newer = inspector.read(live=False)
    assert newer.store is not None
    assert (newer.store.current, newer.store.predecessor) == ("gen-0001", "gen-0000")
    (tmp_path / "engine_state" / "current").write_text("../x\n")
    torn = inspector.read(live=False)
    assert torn.store is not None
    assert torn.store.pointer == "malformed"
    shutil.rmtree(tmp_path / "engine_state")
    (tmp_path / "engine_state").write_text("")
    broken = inspect_unit(path).view
    assert broken.store is None
    assert broken.store_problem
