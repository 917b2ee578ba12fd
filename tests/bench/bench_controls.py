"""Control latency and the idle cost of the consumer, each beside a baseline.

**Latency** is from the row's ``created_at`` to its ``applied_at``, over 200 controls
that a process of its own sends one after another to a live consumer. The baseline is
the least that could do it: a thread that asks ``PRAGMA data_version`` ten times a
second through ``sqlite3`` and stamps what it finds, fed in the same way in turn. A
sample in whose window the loop was late by more than 50 ms is listed apart.

**Idle cost** is the process's CPU time over quiet seconds, beside a loop that only
sleeps the same intervals.

Time bounds are stretched by how much slower a fixed calculation runs here, now, than
on the machine that the bounds were set on.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import statistics
import threading
import time
from typing import TYPE_CHECKING

import pytest

from harness.steering import Recorder, add_session, make_home, run_child, sql
from heaveto.controls import enqueue
from heaveto.controls.poller import LOOK, ControlPoller
from heaveto.statedb import ReadDB
from heaveto.statedb.store import StateDB

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from heaveto.runs import Home

SID = "ab" * 16
CONTROLS = 200
REFERENCE_S = 0.095
"""What :func:`calibrate` takes on the reference machine, unloaded."""

SENDER = """
import random, sys, time
from pathlib import Path
from heaveto.controls import enqueue
from heaveto.liveness import Liveness
from heaveto.runs import Home
chance = random.Random(int(sys.argv[3]))
alive = lambda *_: Liveness(alive=True, why="told")
for number in range(int(sys.argv[4])):
    time.sleep(chance.uniform(0.0, 0.12))
    verb = ("pause", "message", "resume", "message")[number % 4]
    enqueue(Home(Path(sys.argv[1])), sys.argv[2], verb, text="x", alive=alive)
"""


def calibrate() -> float:
    """Return how much slower than the reference this machine is now, at least 1."""
    best = float("inf")
    for _ in range(5):
        begun = time.thread_time()
        total = 0
        for number in range(1_500_000):
            total += number & 7
        best = min(best, time.thread_time() - begun)
    return max(1.0, best / REFERENCE_S)


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def described(name: str, values: Sequence[float]) -> str:
    middle, late = statistics.median(values) * 1e3, quantile(values, 0.95) * 1e3
    most = max(values) * 1e3
    return (
        f"{name}: n {len(values)}, p50 {middle:.1f}, p95 {late:.1f}, max {most:.0f} ms"
    )


class Lag:
    """How late the loop was, and when."""

    def __init__(self) -> None:
        self.late: list[tuple[float, float]] = []
        self.worst = 0.0

    async def watch(self) -> None:
        while True:
            begun = time.time()
            await asyncio.sleep(0.01)
            late = time.time() - begun - 0.01
            self.worst = max(self.worst, late)
            if late > 0.05:
                self.late.append((begun, begun + 0.01 + late))

    def touches(self, begun: float, ended: float) -> bool:
        return any(start <= ended and begun <= end for start, end in self.late)


def send_all(home: Home, seed: int, count: int) -> None:
    run_child(SENDER, home.path, SID, seed, count)


def samples(home: Home) -> list[tuple[float, float]]:
    with ReadDB.open(home.state_db) as database:
        found = database.controls(SID)
    assert all(row.result == "applied" for row in found)
    return [(row.created_at, row.applied_at or 0.0) for row in found]


class Minimal(threading.Thread):
    """The baseline: looks ten times a second and stamps what it finds."""

    def __init__(self, home: Home) -> None:
        super().__init__()
        self.home = home
        self.ended = threading.Event()

    def run(self) -> None:
        db = sqlite3.connect(self.home.state_db, isolation_level=None)
        seen = None
        while not self.ended.wait(LOOK):
            [version] = db.execute("PRAGMA data_version").fetchone()
            if version != seen:
                seen = version
                db.execute(
                    "UPDATE session_controls SET result = 'applied', applied_at = ?"
                    " WHERE applied_at IS NULL",
                    (time.time(),),
                )
        db.close()


async def measure(home: Home, seed: int, count: int) -> tuple[list[float], Lag, int]:
    """Send to the real consumer; return clean latencies, the lag, those set apart."""
    lag = Lag()
    async with await StateDB.open(home.state_db) as db:
        poller = ControlPoller(db, SID, "run-1", Recorder())
        polling = asyncio.create_task(poller.run())
        watching = asyncio.create_task(lag.watch())
        await asyncio.to_thread(send_all, home, seed, count)
        while await db.pending_controls(SID, 1):
            await asyncio.sleep(0.05)
        await poller.stop()
        await polling
        watching.cancel()
    found = samples(home)
    clean = [end - begun for begun, end in found if not lag.touches(begun, end)]
    return clean, lag, len(found) - len(clean)


def measure_minimal(home: Home, seed: int, count: int) -> list[float]:
    minimal = Minimal(home)
    minimal.start()
    send_all(home, seed, count)
    time.sleep(3 * LOOK)
    minimal.ended.set()
    minimal.join()
    return [end - begun for begun, end in samples(home)]


@pytest.mark.timeout(300)
async def test_latency_of_controls(tmp_path: Path) -> None:
    ours: list[float] = []
    least: list[float] = []
    apart = 0
    worst = 0.0
    for turn in range(4):
        for name in ("ours", "least"):
            home = make_home(tmp_path / f"{name}{turn}")
            add_session(home, SID)
            if name == "ours":
                clean, lag, late = await measure(home, turn, CONTROLS // 4)
                ours += clean
                apart += late
                worst = max(worst, lag.worst)
            else:
                each = CONTROLS // 4
                least += await asyncio.to_thread(measure_minimal, home, turn, each)
    c = calibrate()
    load = os.getloadavg()[0]
    print(f"\n  queued to applied, load {load:.1f}, c {c:.2f}")
    print(f"  {described('heaveto', ours)}")
    print(f"  {described('minimal', least)}")
    ratio = quantile(ours, 0.95) / quantile(least, 0.95)
    print(f"  p95 ratio {ratio:.2f}; {apart} of {CONTROLS} while the loop was late")
    print(f"  (worst lateness {worst * 1e3:.0f} ms)")
    assert quantile(ours, 0.95) <= 0.3 * c
    assert max(ours) <= 2.5 * c
    assert apart <= CONTROLS * 0.05


@pytest.mark.timeout(300)
async def test_idle_cost_of_the_consumer(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    add_session(home, SID)
    seconds = 6.0
    costs: dict[str, list[float]] = {"consumer": [], "sleep": []}
    async with await StateDB.open(home.state_db) as db:
        for _ in range(5):
            poller = ControlPoller(db, SID, "run-1", Recorder())
            polling = asyncio.create_task(poller.run())
            await asyncio.sleep(0.3)
            begun = time.process_time()
            await asyncio.sleep(seconds)
            costs["consumer"].append((time.process_time() - begun) / seconds)
            await poller.stop()
            await polling
            begun = time.process_time()
            for _ in range(round(seconds / LOOK)):
                await asyncio.sleep(LOOK)
            costs["sleep"].append((time.process_time() - begun) / seconds)
    best = {name: min(values) for name, values in costs.items()}
    c = calibrate()
    print(
        f"\n  idle consumer {best['consumer'] * 100:.2f} % of a core, sleeping loop"
        f" {best['sleep'] * 100:.2f} %, load {os.getloadavg()[0]:.1f}, c {c:.2f}"
    )
    assert best["consumer"] <= 0.01 * c


@pytest.mark.timeout(300)
async def test_cost_of_sending(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    add_session(home, SID)
    spent: dict[str, list[float]] = {"enqueue": [], "least": []}

    def least() -> None:
        sql(
            home,
            "INSERT INTO session_controls (id, session_id, verb, created_at)"
            " VALUES (lower(hex(randomblob(16))), ?, 'pause', 1.0)",
            (SID,),
        )

    async with await StateDB.open(home.state_db):  # as beside a live runner
        for _ in range(100):
            for name, send in (
                ("enqueue", lambda: enqueue(home, SID, "pause")),
                ("least", least),
            ):
                begun = time.perf_counter()
                await asyncio.to_thread(send)
                spent[name].append(time.perf_counter() - begun)
    ratio = statistics.median(spent["enqueue"]) / statistics.median(spent["least"])
    print(f"\n  {described('enqueue', spent['enqueue'])}")
    print(f"  {described('connect, insert, close', spent['least'])}")
    print(f"  median ratio {ratio:.1f}, load {os.getloadavg()[0]:.1f}")
    with ReadDB.open(home.state_db) as database:
        assert len(database.controls(SID)) == 200
