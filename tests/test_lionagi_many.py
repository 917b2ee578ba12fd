"""Many runs that nobody ended: how each stands is told, whatever time is left."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from typing import TYPE_CHECKING

import pytest

from harness.lionagi import Vm, make
from heaveto.observe import ended
from heaveto.observe.lionagi import LionagiSource

if TYPE_CHECKING:
    from pathlib import Path

    from heaveto.observe.snapshot import RunSummary
    from heaveto.runs import Home

COPIES = 20
READ = 5
"""So many are read whole in a look that has no time."""


def copied(path: Path) -> Home:
    """Make a home with many copies of a run that was killed."""
    home = make("killed", path)
    [folder] = home.runs.iterdir()
    with contextlib.closing(sqlite3.connect(home.state_db)) as db, db:
        names = [row[1] for row in db.execute("PRAGMA table_info(sessions)")]
        columns = ", ".join(f'"{name}"' for name in names)
        chosen = columns.replace('"id"', "?", 1).replace('"run_id"', "?", 1)
        for number in range(1, COPIES):
            run_id = f"20261129T1700{number:02d}-{number:06x}"
            db.execute(
                f"INSERT INTO sessions({columns}) SELECT {chosen} FROM sessions"
                " WHERE id NOT LIKE 's-%'",
                (f"s-{number}", run_id),
            )
            db.execute(
                "INSERT INTO session_signals (id, session_id, seq, kind, op_id, ts,"
                " payload) SELECT ? || id, ?, seq, kind, op_id, ts, payload"
                " FROM session_signals WHERE session_id NOT LIKE 's-%'",
                (f"s-{number}-", f"s-{number}"),
            )
            shutil.copytree(folder, home.runs / run_id)
    for path in (home.path, *home.path.rglob("*")):
        os.utime(path, (QUIET, QUIET))  # a file changed lately is a sign of life
    return home


QUIET = 1795968300.0
"""When the last of the files was written."""


def unread(runs: tuple[RunSummary, ...]) -> int:
    return sum(
        1 for run in runs if run.checkpoint and run.checkpoint.status == "unread"
    )


@pytest.mark.parametrize(
    ("host", "state", "alive", "nodes"),
    [
        ("vm", "dead", False, {"completed": 2, "lost": 1, "unstarted": 3}),
        ("other", "unknown", None, {"completed": 2, "running": 1, "waiting": 3}),
    ],
)
def test_runs_that_nobody_ended(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    host: str,
    state: str,
    alive: bool | None,
    nodes: dict[str, int],
) -> None:
    home = copied(tmp_path / "home")
    monkeypatch.setattr(ended, "_FREE", READ * ended._WHOLE)
    monkeypatch.setattr(
        "heaveto.observe.native.EndedRuns",
        lambda roster, **given: ended.EndedRuns(roster, **given | {"budget": 0.0}),
    )
    source = LionagiSource(home, clock=lambda: 1795990000.0, machine=Vm(host=host))
    left = []
    for _ in range(6):
        source.refresh()
        runs = source.listed()
        assert {(run.state.value, run.alive) for run in runs} == {(state, alive)}
        assert {tuple(sorted(run.nodes.items())) for run in runs} == {
            tuple(sorted({"total": 6, **nodes}.items()))
        }
        assert source.watch_paths() == (str(home.runs),)
        left.append(unread(runs))
    assert left[:2] == [COPIES - READ, COPIES - 2 * READ]
    assert left[-1] == 0
    assert len(source.listed()) == COPIES


def test_a_word_of_a_run_that_was_silent_is_heard(tmp_path: Path) -> None:
    """It is followed no more, and yet its next signal shows."""
    home = copied(tmp_path / "home")
    source = LionagiSource(home, clock=lambda: 1795990000.0, machine=Vm(host="other"))
    for _ in range(4):
        source.refresh()
    assert {run.state.value for run in source.listed()} == {"unknown"}
    with contextlib.closing(sqlite3.connect(home.state_db)) as db, db:
        db.execute(
            "INSERT INTO session_signals (id, session_id, seq, kind, op_id, ts,"
            " payload) SELECT 'new', session_id, seq + 1, 'NodeStarted', 'later',"
            ' 1795989999.0, \'{"op_id": "later", "name": "later"}\''
            " FROM session_signals"
            " WHERE session_id = 's-7' ORDER BY seq DESC LIMIT 1"
        )
    changed = source.refresh()
    assert "s-7" in changed
    found = {run.session_id: run for run in source.listed()}["s-7"]
    assert (found.state.value, found.nodes["running"]) == ("executing", 2)
