"""Every load vector through the surfaces: ``inspect --json`` and the console's model.

F-33: every reader gives the same report for the same bytes. What the library says is
held by ``test_vectors``; here the command line must say the same, byte for byte of the
report, and the models that list, console and its Checkpoint place draw must show the
same status and codes and never an outcome of a refused unit.
"""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from heaveto.checkpoint import CheckpointRefused, load_checkpoint
from heaveto.cli.app import main
from heaveto.observe.ondisk import Inspector, UnitView, inspect_unit
from heaveto.observe.unit import Unit

ROOT = Path(__file__).parent / "golden/vectors"
LOADS = [
    vector
    for vector in json.loads((ROOT / "index.json").read_text())["vectors"]
    if vector["family"] == "load"
]
IDS = [vector["id"] for vector in LOADS]


def library(path: Path) -> tuple[dict[str, Any], int]:
    """Return the library's report and how many outcomes its state holds."""
    try:
        loaded = load_checkpoint(path)
    except CheckpointRefused as error:
        return error.report.as_dict(), 0  # type: ignore[attr-defined]
    state = loaded.state
    settled = [one for one in state["spawned"] if one["status"] != "pending"]
    return loaded.report.as_dict(), len(state["ops"]) + len(settled)


@pytest.mark.parametrize("vector", LOADS, ids=IDS)
def test_the_surfaces_agree_with_the_library(vector: dict[str, Any]) -> None:
    folder = ROOT / "load" / vector["id"]
    report, outcomes = library(folder / "checkpoint.json")
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(["inspect", str(folder), "--json", "--state"])
    shown = json.loads(out.getvalue())
    assert shown["checkpoint_recovery"] == report
    assert code == (1 if report["status"] == "refused" else 0)
    assert (shown["state"] is None) == (report["status"] == "refused")
    saved = Unit(folder / "checkpoint.json").read(live=False)
    if saved is None:
        assert report["reasons"][-1]["code"] == "base_missing"
        return
    assert saved.view.status == report["status"]
    assert saved.view.generation == report["generation"]
    assert saved.view.seq == report["last_seq"]
    assert saved.view.saved == outcomes


@pytest.mark.parametrize("vector", LOADS, ids=IDS)
def test_the_unit_in_detail_agrees_with_the_library(vector: dict[str, Any]) -> None:
    path = ROOT / "load" / vector["id"] / "checkpoint.json"
    report, outcomes = library(path)
    view, state, _ = inspect_unit(path)
    inspector = Inspector(path)
    seen = inspector.read(live=False)
    inspector.close()
    assert seen == view
    assert view.report.as_dict() == report
    assert view.refused == (state is None) == (report["status"] == "refused")
    if view.refused:
        assert view.contents is None
        assert view.bytes_to_compaction is None
        assert not any(one.status or one.use == "applied" for one in view.records)
    else:
        assert view.contents is not None
        assert view.contents.completed + view.contents.failed == outcomes
    _check_lines(view, report, path.with_name("checkpoint.json.journal"))


def _check_lines(view: UnitView, report: dict[str, Any], journal: Path) -> None:
    """Hold the lines against the counts and places of the report."""
    uses: list[str] = [one.use for one in view.records]
    good = "prefix" if view.refused else "applied"
    assert uses.count(good) == (report["applied_records"] or 0)
    assert uses.count("stale") == (report["stale_records"] or 0)
    if not journal.is_file():
        assert view.records == ()
        return
    data = journal.read_bytes()
    assert view.lines == len(view.records)
    assert sum(one.bytes for one in view.records) == len(data)
    last = report["reasons"][-1] if report["reasons"] else {"code": None, "line": None}
    if last["line"] is not None and last["code"] != "stale_generation":
        line = view.records[last["line"] - 1]
        assert (line.code, line.offset) == (last["code"], last["offset"])
        assert line.use == ("torn" if last["code"] == "torn_tail" else "refused")
