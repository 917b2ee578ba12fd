"""Every load vector through the surfaces: ``inspect --json`` and the console's model.

F-33: every reader gives the same report for the same bytes. What the library says is
held by ``test_vectors``; here the command line must say the same, byte for byte of the
report, and the model that list and console draw must show the same status and never an
outcome of a refused unit.
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
