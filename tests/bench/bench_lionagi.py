"""What a home of lionagi's with ten thousand runs costs: list, second look, one run.

Each figure stands beside the least that could give it: the same rows and counts read
with ``sqlite3`` alone, and one ``stat`` a run.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from bench.bench_observe import calibrate
from harness.lionagi import Vm, make
from heaveto.liveness import identity
from heaveto.observe import Observer
from heaveto.observe.lionagi import LionagiSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from heaveto.observe.snapshot import RunSummary
    from heaveto.runs import Home

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

RUNS = 10_000
MIX = {"normal": 88, "failed": 8, "reactive": 3, "killed": 1}
"""Of a hundred runs, so many are like those in the home of this name."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return many(tmp_path_factory.mktemp("bench"), MIX, RUNS)


def many(path: Path, mix: dict[str, int], runs: int) -> Home:
    """Make a home of so many runs, mixed so."""
    made = make("normal", path / "home")
    for folder in made.runs.iterdir():
        shutil.rmtree(folder)
    rows: dict[str, tuple[dict[str, object], list[dict[str, object]], Path]] = {}
    for name in mix:
        one = make(name, path / name)
        with closing(sqlite3.connect(one.state_db)) as db:
            db.row_factory = sqlite3.Row
            session = dict(db.execute("SELECT * FROM sessions").fetchone())
            signals = [dict(row) for row in db.execute("SELECT * FROM session_signals")]
        [folder] = one.runs.iterdir()
        rows[name] = (session, signals, folder)
    with closing(sqlite3.connect(made.state_db)) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("PRAGMA page_size = 4096")  # the small homes have smaller pages
        db.execute("VACUUM")
        db.execute("PRAGMA journal_mode = WAL")
    kinds = [name for name, count in mix.items() for _ in range(count)]
    with closing(sqlite3.connect(made.state_db)) as db, db:
        db.execute("PRAGMA synchronous = OFF")
        db.execute("DELETE FROM session_signals")
        db.execute("DELETE FROM sessions")
        for number in range(runs):
            session, signals, folder = rows[kinds[number % 100]]
            _add(db, made, number, session, signals, folder)
    with closing(sqlite3.connect(made.state_db)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return made


def _add(
    db: sqlite3.Connection,
    home: Home,
    number: int,
    session: dict[str, object],
    signals: list[dict[str, object]],
    folder: Path,
) -> None:
    run_id = f"20261129T16{number // 60 % 60:02d}{number % 60:02d}-{number:06x}"
    key = f"{number:08x}-0000-4000-8000-000000000000"
    metadata = json.loads(str(session["node_metadata"])) | {"run_id": run_id}
    row = session | {
        "id": key,
        "run_id": run_id,
        "created_at": 1795960000.0 + number,
        "updated_at": 1795960001.0 + number,
        "progression_id": key,
        "node_metadata": json.dumps(metadata),
    }
    _insert(db, "sessions", row)
    for signal in signals:
        fresh = {"id": f"{number}-{signal['seq']}", "session_id": key}
        _insert(db, "session_signals", signal | fresh)
    target = home.runs / run_id
    target.mkdir()
    for name in ("run.json", "checkpoint.json"):
        os.link(folder / name, target / name)


def _insert(db: sqlite3.Connection, table: str, row: dict[str, object]) -> None:
    names = ", ".join(f'"{name}"' for name in row)
    marks = ", ".join("?" for _ in row)
    db.execute(f"INSERT INTO {table}({names}) VALUES ({marks})", tuple(row.values()))


def best(work: Callable[[], object], count: int = 5) -> float:
    found = []
    for _ in range(count):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)


def rows_alone(home: Home, runs: int = RUNS) -> None:
    """Read rows and counts, and look at each directory: no conclusion is drawn."""
    where = f"file:{home.state_db}?immutable=1"
    with closing(sqlite3.connect(where, uri=True)) as db:
        rows = db.execute("SELECT * FROM sessions").fetchall()
        db.execute(
            "SELECT session_id, kind, count(*) FROM session_signals"
            " GROUP BY session_id, kind"
        ).fetchall()
    assert len(rows) == runs
    for entry in os.scandir(home.runs):
        os.stat(f"{entry.path}/checkpoint.json")


def report(what: str, seconds: float, baseline: float) -> None:
    print(
        f"\n{what}: {seconds * 1e3:.1f} ms, {seconds / baseline:.2f} x the baseline"
        f" of {baseline * 1e3:.1f} ms (load {os.getloadavg()[0]:.1f})"
    )


def test_first_list_and_second_look(home: Home) -> None:
    baseline = best(lambda: rows_alone(home), 3)

    def first() -> LionagiSource:
        source = LionagiSource(home, machine=Vm())
        source.refresh()
        assert len(source.listed()) == RUNS
        return source

    took = best(first)
    report(f"first list of {RUNS} runs", took, baseline)
    assert took < BOUND_S * calibrate()
    source = first()
    print(f"directories watched at first: {len(source.watch_paths())}")
    assert len(source.watch_paths()) < 1000
    unread = 0
    for _ in range(400):
        source.refresh()
        runs = source.listed()
        unread = sum(
            1 for run in runs if run.checkpoint and run.checkpoint.status == "unread"
        )
        if not unread:
            break
    print(f"runs whose checkpoint is still unread after settling: {unread}")
    report("a look when nothing changed", best(source.refresh, 20), baseline)
    print(f"directories watched: {len(source.watch_paths())}")
    assert len(source.watch_paths()) < 1000
    by_state: dict[str, int] = {}
    for run in source.listed():
        by_state[run.state] = by_state.get(run.state, 0) + 1
    print(f"states: {by_state}")
    assert by_state["dead"] == RUNS // 100


BOUND_S = 1.0
"""A first list of ten thousand runs, above what starting the program takes."""


def cpu_of(*words: str) -> float:
    """Return the least CPU seconds of the program for a verb, children included."""
    found = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-m", "heaveto", *words],
            stdout=subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(
            after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        )
    return min(found)


def test_list_as_a_command(home: Home) -> None:
    start = cpu_of("--version")
    took = cpu_of("--home", str(home.path), "ls", "--json")
    report("ls --json, CPU", took, start)
    print(f"above the start of the program: {(took - start) * 1e3:.0f} ms")


def test_a_thousand_dead_runs(tmp_path: Path) -> None:
    """Nothing ended them: each of them needs its signals and its checkpoint read."""
    made = many(tmp_path, {"killed": 100}, 1000)
    baseline = best(lambda: rows_alone(made, 1000), 3)

    def first() -> LionagiSource:
        source = LionagiSource(made, machine=Vm())
        source.refresh()
        return source

    took = best(first)
    report("first list of 1000 dead runs", took, baseline)
    source = first()
    assert {run.state for run in source.listed()} == {"dead"}
    looks = 1
    while any(_is_unread(run) for run in source.listed()):
        source.refresh()
        looks += 1
    print(f"looks until each was read: {looks}")
    assert len(source.watch_paths()) == 1
    assert took < BOUND_S * calibrate()


def test_a_signal_is_seen_at_once(tmp_path: Path) -> None:
    live = make("normal-live", tmp_path / "home")
    with closing(sqlite3.connect(live.state_db, isolation_level=None)) as db:
        [(key, text)] = db.execute("SELECT id, node_metadata FROM sessions").fetchall()
        metadata = json.dumps(json.loads(text) | identity())
        db.execute("UPDATE sessions SET node_metadata = ?", (metadata,))
        waits = asyncio.run(_waits(live.path, db, key))
    waits.sort()
    p95 = waits[round(len(waits) * 0.95) - 1]
    print(
        f"\na signal row of a live flow is seen after: p50 {waits[len(waits) // 2]:.0f}"
        f" ms, p95 {p95:.0f} ms, most {waits[-1]:.0f} ms ({len(waits)} signals)"
    )
    assert p95 <= 500


async def _waits(path: Path, db: sqlite3.Connection, key: str) -> list[float]:
    """Return the milliseconds from each of some commits to its change."""
    observer = Observer([path])
    waits: list[float] = []
    try:
        changes = aiter(observer.watch())
        first = await anext(changes)
        assert [run.alive for run in first.runs] == [True]
        before = first.runs[0].nodes["total"]
        [(seq,)] = db.execute("SELECT max(seq) FROM session_signals").fetchall()
        for number in range(60):
            await asyncio.sleep(0.15 + number % 7 * 0.05)
            row = {
                "id": f"late-{number}",
                "session_id": key,
                "seq": seq + 1 + number,
                "kind": "NodeQueued",
                "op_id": f"late-{number}",
                "ts": time.time(),
                "payload": json.dumps({"name": f"late-{number}", "depends_on": []}),
            }
            _insert(db, "session_signals", row)
            began = time.perf_counter()
            seen = before
            while seen <= before + number:
                change = await anext(changes)
                seen = change.runs[0].nodes["total"]
            waits.append((time.perf_counter() - began) * 1000)
    finally:
        observer.close()
    return waits


def _is_unread(run: RunSummary) -> bool:
    return run.checkpoint is not None and run.checkpoint.status == "unread"


def test_one_run(home: Home) -> None:
    baseline = best(lambda: rows_alone(home), 3)
    key = "00000010-0000-4000-8000-000000000000"

    def one() -> None:
        source = LionagiSource(home, machine=Vm())
        assert source.read(key, None) is not None

    report("one run, no list", best(one), baseline)
