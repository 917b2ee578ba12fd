"""What reading costs: the list, the delay of a change, an idle home, a burst.

**List**: CPU time of a first ``list_runs`` at 1,000 and 10,000 ended runs, sealed and
not, beside the least a list could do: fetch every session row with ``sqlite3`` and list
the folder of runs.

**Delay**: from the moment a signal is committed by another process to the moment the
consumer of :meth:`Observer.watch` holds a snapshot that shows it, beside a thread that
asks ``PRAGMA data_version`` ten times a second and reads the newest signal.

**Idle**: CPU time of the process over quiet seconds with one live run among 10,000
ended ones, beside a thread that only wakes ten times a second.

**Burst**: 20 flows write 2,000 signals a second for some seconds; CPU time of the
reader, what it shows at the end, and the growth of its memory.

Time bounds are stretched by how much slower a fixed calculation runs here, now.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import heaveto
from harness.homes import Builder, Operation, multiply
from heaveto.liveness import identity
from heaveto.model import SignalKind
from heaveto.observe import Observer

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.homes import RunUnderWay

K = SignalKind
REFERENCE_S = 0.095
"""What :func:`calibrate` takes on the reference machine, unloaded."""
PERIODS = 8.0


def calibrate() -> float:
    """Return how much slower than the reference a fixed calculation runs now."""
    best = min(_calculation() for _ in range(5))
    return max(1.0, best / REFERENCE_S)


def _calculation() -> float:
    began = time.thread_time()
    total = 0
    for number in range(1_500_000):
        total += number * number
    assert total > 0
    return time.thread_time() - began


def say(label: str, value: str, beside: str = "") -> None:
    load = os.getloadavg()[0]
    print(f"{label:44} {value:>14}  {beside}  (load {load:.1f})")


def cpu(work: Callable[[], object], repeat: int = 3) -> float:
    """Return the least CPU seconds of this thread that some work takes."""
    best = float("inf")
    for _ in range(repeat):
        began = time.thread_time()
        work()
        best = min(best, time.thread_time() - began)
    return best


async def ended_home(path: Path, count: int, *, sealed: bool) -> Path:
    builder = await Builder.open(path / "home")
    names = "abcdef"
    run = await builder.begin(
        [Operation(n, (names[i - 1],) if i else ()) for i, n in enumerate(names)]
    )
    for name in names:
        await run.run(name)
    await run.end()
    await builder.close()
    await asyncio.to_thread(multiply, run, count - 1, sealed=sealed)
    return builder.home.path


@pytest.mark.parametrize(
    ("count", "sealed", "bound"),
    [(1_000, True, 0.3), (1_000, False, 0.6), (10_000, True, 1.0)],
)
def test_list(tmp_path: Path, count: int, sealed: bool, bound: float) -> None:
    home = asyncio.run(ended_home(tmp_path, count, sealed=sealed))

    def list_once() -> int:
        with Observer([home]) as observer:
            return len(observer.list_runs())

    def least() -> int:
        with sqlite3.connect(home / "state.db") as db:
            rows = db.execute("SELECT * FROM sessions").fetchall()
        db.close()
        return len(rows) + len(os.listdir(home / "runs"))

    assert list_once() == count
    stretch = calibrate()
    took, base = cpu(list_once), cpu(least)
    say(
        f"list {count} runs, {'sealed' if sealed else 'unsealed'}",
        f"{took * 1000:.0f} ms CPU",
        f"rows and names alone {base * 1000:.0f} ms: x{took / base:.1f},"
        f" machine x{stretch:.1f}",
    )
    with Observer([home]) as observer:
        observer.list_runs()
        again = cpu(observer.list_runs, 20)
    say("  the same again, nothing changed", f"{again * 1e6:.0f} us CPU")
    assert took < bound * stretch


SENDER = """
import asyncio, random, sys, time
from pathlib import Path
from heaveto.model import Signal, SignalKind
from heaveto.statedb.store import StateDB

async def main():
    chance = random.Random(1)
    async with await StateDB.open(Path(sys.argv[1]), create=False) as db:
        print("ready", flush=True)
        for number in range(int(sys.argv[3])):
            await asyncio.sleep(chance.uniform(0.1, 0.25))
            signal = Signal(kind=SignalKind.STARTED, operation_id=f"op-{number}",
                            name=f"n{number}", at=time.time())
            await db.emit_signals(sys.argv[2], [signal])
            print(number, time.monotonic(), flush=True)
asyncio.run(main())
"""


def child(script: str, *args: object) -> subprocess.Popen[str]:
    core = str(Path(heaveto.__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, args)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": core},
    )


def test_delay(tmp_path: Path) -> None:
    count = 60
    ours, least = asyncio.run(_delays(tmp_path, count))
    stretch = calibrate()
    for label, found in (("change seen by a consumer", ours), ("pragma alone", least)):
        ordered = sorted(found)
        p95 = ordered[int(len(ordered) * 0.95)]
        say(
            f"delay, {label}",
            f"p95 {p95 * 1000:.0f} ms",
            f"median {statistics.median(ordered) * 1000:.0f} ms,"
            f" worst {ordered[-1] * 1000:.0f} ms of {len(ordered)}",
        )
    assert len(ours) == count
    assert sorted(ours)[int(count * 0.95)] < 0.5 * stretch


async def _delays(path: Path, count: int) -> tuple[list[float], list[float]]:
    builder = await Builder.open(path / "home")
    run = await builder.begin([], metadata=identity())
    seen: dict[int, float] = {}
    observer = await asyncio.to_thread(Observer, [builder.home])

    async def consume() -> None:
        async for change in observer.watch():
            now = time.monotonic()
            started = change.runs[0].nodes["total"]
            for number in range(started):
                seen.setdefault(number, now)
            if started == count:
                return

    stop = threading.Event()
    base: dict[int, float] = {}
    looker = threading.Thread(
        target=_least, args=(builder.home.state_db, base, stop), daemon=True
    )
    looker.start()
    consumer = asyncio.create_task(consume())
    sender = await asyncio.to_thread(
        child, SENDER, builder.home.state_db, run.session_id, count
    )
    assert sender.stdout is not None
    lines = await asyncio.to_thread(sender.stdout.read)
    sender.wait()
    sent = {
        int(number): float(at)
        for number, at in (line.split() for line in lines.splitlines()[1:])
    }
    async with asyncio.timeout(30):
        await consumer
    await asyncio.sleep(0.3)
    stop.set()
    looker.join()
    sender.stdout.close()
    await asyncio.to_thread(observer.close)
    await run.close()
    await builder.close()
    ours = [max(0.0, seen[number] - at) for number, at in sent.items()]
    least = [max(0.0, base[n] - at) for n, at in sent.items() if n in base]
    return ours, least


def _least(path: Path, seen: dict[int, float], stop: threading.Event) -> None:
    """Ask the pragma ten times a second and read what is new."""
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    version = None
    while not stop.wait(0.1):
        [(now,)] = db.execute("PRAGMA data_version").fetchall()
        if now != version:
            version = now
            [(count,)] = db.execute("SELECT count(*) FROM session_signals").fetchall()
            for number in range(count):
                seen.setdefault(number, time.monotonic())
    db.close()


def process_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def test_idle(tmp_path: Path) -> None:
    home = asyncio.run(ended_home(tmp_path, 10_000, sealed=True))
    share, base = asyncio.run(_idle(home))
    say(
        "idle, 10,000 ended runs and one live",
        f"{share * 100:.2f} % CPU",
        f"a thread that wakes ten times a second {base * 100:.2f} %",
    )
    assert share < 0.01 * calibrate() + base


async def _idle(home: Path) -> tuple[float, float]:
    builder = await Builder.open(home)
    run = await builder.begin([Operation("a")], metadata=identity())
    await run.start("a")
    observer = await asyncio.to_thread(Observer, [home])
    stream = observer.watch()
    await anext(stream)
    follow = asyncio.create_task(_drain(stream))
    await asyncio.sleep(7)  # until what is new has cooled down
    share = await _share(PERIODS)
    follow.cancel()
    await asyncio.gather(follow, return_exceptions=True)
    await asyncio.to_thread(observer.close)
    await run.close()
    await builder.close()
    stop = threading.Event()
    waker = threading.Thread(target=lambda: [*iter(lambda: stop.wait(0.1), True)])
    waker.start()
    base = await _share(PERIODS / 2)
    stop.set()
    waker.join()
    return share, base


async def _drain(stream: object) -> None:
    async for _ in stream:  # type: ignore[attr-defined]
        pass


async def _share(seconds: float) -> float:
    """Return the share of a core that this process uses while nothing happens."""
    began, used = time.monotonic(), process_cpu()
    await asyncio.sleep(seconds)
    return (process_cpu() - used) / (time.monotonic() - began)


FLOWS = """
import asyncio, sys, time
from pathlib import Path
from heaveto.model import Signal, SignalKind
from heaveto.statedb.store import StateDB

async def main():
    sessions, ticks = sys.argv[3:], int(sys.argv[2])
    async with await StateDB.open(Path(sys.argv[1]), create=False) as db:
        began = time.monotonic()
        for tick in range(ticks):
            name = f"o{tick}"
            for session in sessions:
                events = [
                    Signal(kind=kind, operation_id=f"{name}-{part}", name=name,
                           at=time.time())
                    for part in range(5)
                    for kind in (SignalKind.STARTED, SignalKind.COMPLETED)
                ]
                await db.emit_signals(session, events)
            await asyncio.sleep(max(0.0, began + (tick + 1) * 0.1 - time.monotonic()))
        print(time.monotonic() - began, flush=True)
asyncio.run(main())
"""


def test_burst(tmp_path: Path) -> None:
    share, took, events, grown, late = asyncio.run(_burst(tmp_path))
    say(
        "burst, 20 flows",
        f"{share * 100:.0f} % CPU",
        f"{events / took:.0f} signals/s for {took:.1f} s, all shown"
        f" {late * 1000:.0f} ms after the last, memory +{grown / 1024:.1f} MiB",
    )


async def _burst(path: Path) -> tuple[float, float, int, int, float]:
    ticks, flows = 50, 20
    builder = await Builder.open(path / "home")
    runs: list[RunUnderWay] = [
        await builder.begin([], metadata=identity()) for _ in range(flows)
    ]
    observer = await asyncio.to_thread(Observer, [builder.home])
    whole = {"total": ticks * 5, "completed": ticks * 5}
    done = asyncio.Event()
    finished = 0.0

    async def consume() -> None:
        nonlocal finished
        async for change in observer.watch():
            if all(run.nodes == whole for run in change.runs):
                finished = time.monotonic()
                done.set()

    consumer = asyncio.create_task(consume())
    await asyncio.sleep(0.5)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    used, began = process_cpu(), time.monotonic()
    sender = await asyncio.to_thread(
        child, FLOWS, builder.home.state_db, ticks, *(run.session_id for run in runs)
    )
    assert sender.stdout is not None
    took = float(await asyncio.to_thread(sender.stdout.read))
    ended = time.monotonic()
    sender.wait()
    sender.stdout.close()
    async with asyncio.timeout(30):
        await done.wait()
    share = (process_cpu() - used) / (time.monotonic() - began)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    consumer.cancel()
    await asyncio.gather(consumer, return_exceptions=True)
    await asyncio.to_thread(observer.close)
    for run in runs:
        await run.close()
    await builder.close()
    events = ticks * flows * 10
    return share, took, events, grown, max(0.0, finished - ended)
