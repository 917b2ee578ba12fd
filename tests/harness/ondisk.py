"""Runs whose checkpoints lie on disk, for the console's Checkpoint place."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from harness.stores import commit_turn
from harness.units import GENERATION, OTHER, base, entry, line, plan, write_unit
from harness.worlds import NOW, detail, operation, summary
from heaveto.model import OperationStatus as Op
from heaveto.model import RunState
from heaveto.observe.snapshot import CheckpointView

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from heaveto.observe.snapshot import RunDetail

__all__ = ["HOSTILE", "NAMES", "on_disk"]

HOSTILE = "[red]x[/]\x1b[2J\u202e @click=app.quit"
NAMES = ("survey", "analyst", "critic", "writer")
_CHANGE: dict[str, Any] = {"op": "add", "path": "/k", "value": 1}


def _line(seq: int, *ops: Any, **more: Any) -> bytes:
    return line(seq, *ops, entry=entry(NAMES[seq - 1]), **more)


def _clean(folder: Path) -> None:
    failed = entry("critic", "no", status="failed")
    write_unit(
        folder, base(plan=plan(4)), _line(1), _line(2, _CHANGE), line(3, entry=failed)
    )


def _torn(folder: Path) -> None:
    half = _line(3)[:40]
    stale = _line(1, generation=OTHER)
    write_unit(folder, base(plan=plan(4)), stale, _line(1), _line(2), half)


def _refused(folder: Path) -> None:
    document = base(plan=plan(4), ops={"survey": entry("survey")})
    write_unit(folder, document, _line(1), _line(3), _line(4))


def _version2(folder: Path) -> None:
    document = base(2, plan=plan(4), ops={"survey": entry("survey")})
    write_unit(folder, document, journal=False)


def _hostile(folder: Path) -> None:
    write_unit(folder, base(), line(1, entry=entry(HOSTILE)))


def _store(folder: Path) -> None:
    _clean(folder)
    store = folder / "engine_state"
    for turn in range(3):
        names = {"engine_identity": f"id-{turn}"}
        if turn:
            names["parent_engine_identity"] = f"id-{turn - 1}"
        commit_turn(store, turn, {"turn": turn, "text": "MARKER" * turn}, **names)
    left = store / "gen-0003"
    left.mkdir(mode=0o700)
    (left / "session_state.json").write_text("{}")


def _nothing(folder: Path) -> None:
    """Leave the run directory empty."""


_KINDS: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "clean": ("c1000001", _clean, "clean"),
    "torn": ("c2000002", _torn, "recovered_prefix"),
    "refused": ("c3000003", _refused, "refused"),
    "version2": ("c4000004", _version2, "clean"),
    "none": ("c5000005", _nothing, ""),
    "store": ("c6000006", _store, "clean"),
    "hostile": ("c7000007", _hostile, "clean"),
}


def on_disk(root: Path, kind: str, **more: Any) -> RunDetail:
    """Return a run of a kind (a key of this module's table) with its files made."""
    short, make, status = _KINDS[kind]
    folder = root / kind
    folder.mkdir()
    make(folder)
    for each in folder.glob("checkpoint.json*"):
        os.utime(each, (NOW - 90, NOW - 90))
    view = None
    if status:
        three = kind != "version2"
        view = CheckpointView(
            version=3 if three else 2,
            generation=GENERATION if three else None,
            seq=3 if three else None,
            status=status,
            records_since_base=3 if three else None,
            saved=3 if three else 1,
        )
    run = summary(short, f"the {kind} one", RunState.DEAD, age=120, checkpoint=view)
    run = replace(
        run,
        nodes={"total": 4},
        generation_dir="gen-0002" if kind == "store" else None,
        **more,
    )
    operations = [
        operation("survey", Op.COMPLETED, started=100),
        operation("analyst", Op.COMPLETED, needs=["survey"], started=90),
        operation("critic", Op.FAILED, needs=["survey"], started=90),
        operation(
            "writer", Op.COMPLETED, needs=["critic"], started=80, persisted=False
        ),
    ]
    return replace(detail(run, operations), run_dir=str(folder))
