"""What the console costs: times, bytes, load; each beside a baseline.

A time bound holds as bound x max(1, c), where c is how much longer a fixed loop takes
here and now than it took on the reference machine (PRODUCT 7). The console runs in a
pseudo-terminal, or in this process where its event loop is measured.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.consoles import make_app
from harness.homes import Builder, Operation, multiply
from harness.terminal import Program
from heaveto.liveness import identity
from heaveto.observe import Observer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.homes import RunUnderWay

ROOT = Path(__file__).parents[2]
HEAVETO = [sys.executable, "-m", "heaveto_tui"]
REFERENCE_S = 0.026
"""What :func:`calibrate` takes on the reference machine, unloaded."""
EMPTY_APP = """
from textual.app import App
from textual.widgets import Static

class Empty(App):
    def compose(self):
        yield Static("an empty app")

Empty().run()
"""
OPERATIONS = ("a", "b", "c", "d", "e", "f")


def calibrate() -> float:
    """Return how much slower this machine is now than the reference, best of five."""

    def loop() -> float:
        began = time.perf_counter()
        total = 0
        for number in range(400_000):
            total += number % 7
        assert total
        return time.perf_counter() - began

    return min(loop() for _ in range(5)) / REFERENCE_S


def say(what: str, **values: object) -> None:
    told = "  ".join(
        f"{name}={value:.2f}" if isinstance(value, float) else f"{name}={value}"
        for name, value in values.items()
    )
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"\n{what}: {told}  (load {load})")


def p95(values: Sequence[float]) -> float:
    return sorted(values)[max(0, round(len(values) * 0.95) - 1)]


def environ(tmp: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "",  # as a user starts it: compiled once
        "PYTHONPATH": os.pathsep.join((str(ROOT / "core"), str(ROOT / "tui"))),
        "LC_ALL": "C.UTF-8",
        "HEAVETO_CONFIG": str(tmp / "config.toml"),
        "XDG_STATE_HOME": str(tmp / "state"),
    }


@contextmanager
def console(tmp: Path, *words: str, rows: int = 24) -> Iterator[Program]:
    argv = [*HEAVETO, "--home", str(tmp / "home"), *words]
    with Program(argv, rows=rows, environ=environ(tmp)) as program:
        yield program


def cpu_of(program: Program) -> float:
    """Return the seconds of processor that a program has used."""
    stat = Path(f"/proc/{program.process.pid}/stat").read_text()
    fields = stat.rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def operations(prefix: str = "") -> list[Operation]:
    names = [prefix + name for name in OPERATIONS]
    return [
        Operation(name, tuple(names[index - 1 : index]))
        for index, name in enumerate(names)
    ]


@pytest.fixture
def tmp(tmp_path: Path) -> Path:
    (tmp_path / "config.toml").write_text("lionagi = false\n")
    return tmp_path


async def _many(path: Path, count: int) -> None:
    builder = await Builder.open(path)
    run = await builder.begin(operations(), name="nightly")
    for name in OPERATIONS:
        await run.run(name)
    await run.end()
    await builder.close()
    await asyncio.to_thread(multiply, run, count, sealed=True)


@pytest.fixture
def thousand(tmp: Path) -> Path:
    asyncio.run(_many(tmp / "home", 1000))
    return tmp


async def _begin(builder: Builder, name: str) -> RunUnderWay:
    return await builder.begin(operations(), name=name, metadata=identity())


# --- the first picture, and a key


def test_first_paint_with_a_thousand_runs(thousand: Path) -> None:
    def empty() -> float:
        began = time.perf_counter()
        argv = [sys.executable, "-c", EMPTY_APP]
        with Program(argv, environ=environ(thousand)) as program:
            program.until("an empty app")
            return time.perf_counter() - began

    def full() -> float:
        began = time.perf_counter()
        with console(thousand) as program:
            program.until("nightly")
            return time.perf_counter() - began

    pairs = [(empty(), full()) for _ in range(5)]
    base, ours = (min(pair[index] for pair in pairs) for index in (0, 1))
    say("first paint, 1000 runs", empty=base, ours=ours, ratio=ours / base)
    assert ours <= 2.5 * base


def test_a_key_is_painted_at_once(thousand: Path) -> None:
    c = calibrate()
    with console(thousand) as program:
        program.until("nightly")
        program.settle(0.5)
        took: list[float] = []
        for number in range(120):
            before = len(program.raw)
            began = time.perf_counter()
            program.press("\x1b[B" if number % 20 < 15 else "\x1b[A")
            while len(program.raw) == before:
                program.drain(0.001)
            took.append((time.perf_counter() - began) * 1000)
            program.drain(0.03)
    say("key to paint, ms", p50=statistics.median(took), p95=p95(took), c=c)
    assert p95(took) <= 60 * max(1.0, c)


# --- how soon a change is seen


def test_a_change_is_seen_within_half_a_second(tmp: Path) -> None:
    c = calibrate()
    took = asyncio.run(_changes_seen(tmp, 40))
    say("change on screen, ms", p50=statistics.median(took), p95=p95(took), c=c)
    assert p95(took) <= 500 * max(1.0, c)


async def _changes_seen(tmp: Path, count: int) -> list[float]:
    builder = await Builder.open(tmp / "home")
    names = [f"o{number:02}" for number in range(count)]
    run = await builder.begin(
        [Operation(name) for name in names], name="held", metadata=identity()
    )
    took = []
    with console(tmp, rows=60) as program:
        await asyncio.to_thread(program.until, "held")
        program.press("\r")
        await asyncio.to_thread(program.until, f"{count} operations: ")
        for number, name in enumerate(names):
            await run.start(name)
            began = time.perf_counter()
            await run.complete(name, save=False)
            await asyncio.to_thread(program.until, f"{number + 1} done")
            took.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(0.03 + number % 7 * 0.013)
    await run.close()
    await builder.close()
    return took


# --- what it costs when nothing happens


def test_a_home_without_a_live_run_costs_nothing(thousand: Path) -> None:
    seconds = 60
    with console(thousand) as program:
        program.until("nightly")
        program.settle(1.0)
        before = cpu_of(program)
        written = program.drain(seconds)
        share = (cpu_of(program) - before) / seconds * 100
    say("idle 60 s, 1000 ended runs", bytes=written, cpu_percent=share)
    assert written == 0
    assert share <= 1.0


@pytest.mark.parametrize("motion", [True, False])
def test_a_live_run_without_a_change(tmp: Path, motion: bool) -> None:
    (tmp / "config.toml").write_text(
        f"lionagi = false\nmotion = {'true' if motion else 'false'}\n"
    )
    written, rows, changed = asyncio.run(_live(tmp))
    say(
        f"live run, motion {'on' if motion else 'off'}",
        list_bytes_per_s=written[0],
        outline_bytes_per_s=written[1],
        running_rows=rows,
        one_change_bytes=changed,
    )
    allowed = 20 + (100 * rows if motion else 0)
    assert max(written) <= allowed
    assert changed <= 300


async def _live(tmp: Path) -> tuple[list[float], int, int]:
    builder = await Builder.open(tmp / "home")
    run = await _begin(builder, "held")
    await run.start("a")
    written = []
    with console(tmp) as program:
        await asyncio.to_thread(program.until, "held")
        for key in ("", "\r"):
            program.press(key)
            await asyncio.to_thread(program.settle, 0.6, 2.5)
            written.append(await asyncio.to_thread(program.drain, 20.0) / 20)
        program.press("\x1b[F")
        await asyncio.to_thread(program.settle, 0.4, 1.5)
        before = len(program.raw)
        await run.complete("a")
        await asyncio.to_thread(program.until, "1 done")
        await asyncio.to_thread(program.settle, 0.5, 0.8)
        changed = len(program.raw) - before
    await run.close()
    await builder.close()
    return written, 1, changed


# --- under a storm


STORM = """
import asyncio, json, sys, time
from pathlib import Path
from harness.homes import Builder, Operation
from heaveto.liveness import identity
from heaveto.model import SignalKind

async def main(path, flows, seconds, rate):
    builder = await Builder.open(Path(path))
    runs = [
        await builder.begin(
            [Operation(f"o{n}") for n in range(50)], name=f"flow {i}",
            metadata=identity(), checkpoint=None,
        )
        for i in range(flows)
    ]
    print("ready", flush=True)
    sys.stdin.readline()
    began, sent = time.monotonic(), 0
    batch = rate // (flows * 10)
    kinds = (SignalKind.STARTED, SignalKind.COMPLETED)
    while (now := time.monotonic() - began) < seconds:
        for index, run in enumerate(runs):
            events = []
            for n in range(batch):
                step = sent // flows + n
                events.append((kinds[step % 2], f"o{step // 2 % 50}", {"elapsed": 0.1}))
            await run.emit_all(events)
            sent += batch
        await asyncio.sleep(max(0.0, sent / rate - (time.monotonic() - began)))
    for run in runs:
        await run.emit_all([(SignalKind.COMPLETED, f"o{n}", {}) for n in range(50)])
    print(json.dumps({"sent": sent, "seconds": time.monotonic() - began}), flush=True)
    sys.stdin.readline()
    await builder.close()

asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])))
"""


async def lags(seconds: float) -> list[float]:
    """Return by how many milliseconds a 5 ms sleep was late, again and again."""
    found = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        await asyncio.sleep(0.005)
        found.append((time.perf_counter() - began - 0.005) * 1000)
    return found


def test_two_thousand_events_a_second(tmp: Path) -> None:
    c = calibrate()
    idle, busy, told, missing = asyncio.run(_storm(tmp, seconds=10.0))
    say(
        "2000 events/s from 20 flows, loop lag ms",
        sent=told,
        idle_p95=p95(idle),
        p50=statistics.median(busy),
        p95=p95(busy),
        worst=max(busy),
        c=c,
    )
    assert missing == 0
    assert p95(busy) <= 20 * max(1.0, c)


async def _storm(
    tmp: Path, *, seconds: float
) -> tuple[list[float], list[float], str, int]:
    home = tmp / "home"
    env = environ(tmp)
    env["PYTHONPATH"] += os.pathsep + str(ROOT / "tests")
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        STORM,
        str(home),
        "20",
        str(seconds),
        "2000",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=env,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert (await child.stdout.readline()) == b"ready\n"
    idle = await lags(2.0)
    app = make_app(
        Observer([home]),
        homes=(str(home),),
        now=time.time,
        monotonic=time.monotonic,
    )
    try:
        async with app.run_test(size=(140, 40)) as pilot:
            while len(list(app.store.runs())) < 20:
                await pilot.pause(0.05)
            child.stdin.write(b"go\n")
            busy = await lags(seconds)
            told = (await child.stdout.readline()).decode().strip()
            missing = await _missing(app)
    finally:
        child.stdin.write(b"end\n")
        child.stdin.close()
        await child.wait()
    return idle, busy, told, missing


async def _missing(app: object) -> int:
    """Return how many runs do not show all of their operations as ended, at the end."""
    from heaveto_tui.app import HeavetoApp

    assert isinstance(app, HeavetoApp)
    left = 20
    for _ in range(100):
        left = sum(run.nodes.get("completed", 0) != 50 for run in app.store.runs())
        if not left:
            break
        await asyncio.sleep(0.1)
    return left


def test_typing_into_a_search_over_ten_thousand_runs(tmp: Path) -> None:
    from harness.worlds import many
    from heaveto_tui.state import Store
    from heaveto_tui.widgets.run_table import listing

    c = calibrate()
    runs = [each.run for each in many(10_000)]
    store = Store(("/home",))
    store.set_runs(runs, ())
    listing(store.seats(), sort="attention")

    def took(find: str) -> float:
        began = time.perf_counter()
        listing(store.seats(), sort="attention", find=find)
        return (time.perf_counter() - began) * 1000

    typed = [min(took("number 77"[:end]) for _ in range(5)) for end in range(10)]
    say("search over 10000 runs, ms a letter", worst=max(typed), c=c)
    assert max(typed) <= 60 * max(1.0, c)
