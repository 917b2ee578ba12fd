"""Homes of lionagi for tests: rows and files as lionagi 0.36 left them.

``golden/lionagi/<name>`` holds the rows of one home as SQL, the run directories'
``run.json`` and ``checkpoint.json``, and what heaveto shows of it. They were left by
real flows on a machine called ``vm``; prompts are cut, messages left out.

``python -m harness.lionagi`` (below ``tests``) writes the expected snapshots anew; what
changes in them is then reviewed by hand.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import Any

from heaveto.liveness import Machine
from heaveto.observe.lionagi import LionagiSource
from heaveto.runs import Home

GOLDEN = Path(__file__).parents[1] / "golden" / "lionagi"
NAMES = sorted(one.name for one in GOLDEN.iterdir() if (one / "state.sql").is_file())
LIVE = ("normal-live", "paused-live")
"""The homes in which a process still ran when they were copied."""
BOOT = 1795966512.0


class Vm(Machine):
    """The machine on which the flows ran, with the processes that are alive there."""

    def __init__(
        self, alive: dict[int, float] | None = None, *, host: str = "vm"
    ) -> None:
        self.alive = alive or {}
        self._host = host

    def host(self) -> str:
        return self._host

    def boot_time(self) -> float:
        return BOOT

    def started(self, pid: int) -> float | None:
        return self.alive.get(pid)


def make(name: str, path: Path) -> Home:
    """Make one of the homes anew, with a state database in WAL mode."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copytree(GOLDEN / name / "runs", path / "runs")
    build(path / "state.db", (GOLDEN / name / "state.sql").read_text())
    return Home(path, "lionagi")


def build(path: Path, script: str) -> None:
    """Make a state database of a script, in WAL mode, with nothing beside it."""
    made = sqlite3.connect(path)
    made.executescript(f"PRAGMA page_size = 512; BEGIN; {script} COMMIT;")
    made.execute("PRAGMA journal_mode = WAL")
    made.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    made.close()


def change(home: Home, sql: str, given: tuple[object, ...] = ()) -> None:
    """Change rows as lionagi would, and leave no log behind."""
    with sqlite3.connect(home.state_db) as db:
        db.execute(sql, given)
    db.close()


def sessions(home: Home) -> list[dict[str, Any]]:
    """Return the rows of the sessions, metadata decoded, the newest first."""
    db = sqlite3.connect(f"file:{home.state_db}?immutable=1", uri=True)
    db.row_factory = sqlite3.Row
    rows = [
        dict(row) for row in db.execute("SELECT * FROM sessions ORDER BY created_at")
    ]
    db.close()
    for row in rows:
        row["node_metadata"] = json.loads(row["node_metadata"] or "{}")
    return rows[::-1]


def everyone(home: Home) -> dict[int, float]:
    """Return the processes of all sessions, alive."""
    found = [row["node_metadata"] for row in sessions(home)]
    return {one["pid"]: one["pid_create_time"] for one in found if "pid" in one}


def source_of(
    home: Home, *, machine: Machine | None = None, alive: bool = False
) -> LionagiSource:
    """Return a reader whose clock stands a minute after the last change of a row."""
    now = max(row["updated_at"] for row in sessions(home)) + 60.0
    vm = machine or Vm(everyone(home) if alive else {})
    return LionagiSource(home, clock=lambda: now, machine=vm)


def told(source: LionagiSource) -> list[dict[str, Any]]:
    """Return what is shown of a home, as ``show`` prints it, but for advice."""
    source.refresh()
    found = []
    for run in source.listed():
        detail = source.read(run.session_id or None, run.run_id or None)
        assert detail is not None
        shown: dict[str, Any] = detail.as_dict()
        shown["home"] = "HOME"
        for warning in shown["warnings"]:
            del warning["what_to_do"]
        found.append(json.loads(json.dumps(shown)))
    return found


def digests(path: Path) -> dict[str, str]:
    """Return a hash of every file and name below a folder, but for ``-shm``."""
    found = {}
    for one in sorted(path.rglob("*")):
        name = str(one.relative_to(path))
        if not name.endswith("-shm"):
            data = one.read_bytes() if one.is_file() else b"folder"
            found[name] = hashlib.sha256(data).hexdigest() + oct(one.stat().st_mode)
    return found


def expected_file(name: str, *, elsewhere: bool = False) -> Path:
    return GOLDEN / name / ("elsewhere.json" if elsewhere else "shown.json")


def _write() -> None:
    for name in NAMES:
        with tempfile.TemporaryDirectory() as folder:
            home = make(name, Path(folder) / "home")
            shown = told(source_of(home, alive=name in LIVE))
            _put(expected_file(name), shown)
            if name == "normal-live":
                other = Vm(everyone(home), host="other")
                _put(
                    expected_file(name, elsewhere=True),
                    told(source_of(home, machine=other)),
                )


def _put(path: Path, shown: object) -> None:
    path.write_text(json.dumps(shown, indent=1, sort_keys=True) + "\n")
    sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    _write()
