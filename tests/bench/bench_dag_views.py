"""What the views of a flow cost: lines and bytes of a change, load, lag of the loop.

The console runs in this process on its own event loop; what it would write to a
terminal is counted by the same :class:`~heaveto_tui.terminal.Shadow` that writes there.
Load is processor time beside that of the same console without changes; lag is beside
that of a loop beside a thread that only counts.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

import pytest

from harness.consoles import console
from harness.flows_drawn import changed, planned
from harness.worlds import Scripted
from heaveto.model import OperationStatus as Op
from heaveto_tui.dag_layout import ego
from heaveto_tui.lines import Look
from heaveto_tui.pictures import plan_of
from heaveto_tui.screens.run import RunScreen
from heaveto_tui.terminal import Shadow, every_piece
from heaveto_tui.timeline import timeline

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from harness.consoles import Driven
    from heaveto.observe.snapshot import RunDetail

pytestmark = pytest.mark.slow


def say(what: str, **values: object) -> None:
    told = "  ".join(
        f"{name}={value:.2f}" if isinstance(value, float) else f"{name}={value}"
        for name, value in values.items()
    )
    print(f"\n{what}: {told}")


def place(at: Driven) -> RunScreen:
    found = at.app.place
    assert isinstance(found, RunScreen)
    return found


async def on_canvas(at: Driven) -> None:
    """Open the first run's canvas and wait until it is drawn."""
    await at.press("enter")
    await at.until("TIME")
    await at.press("c")
    while place(at).canvas.drawing is None:
        await at.settle(1)
        await asyncio.sleep(0.005)
    await at.settle()


def flow(found: RunDetail) -> list[RunDetail]:
    """Return the run as it goes on: from one to the next fifty operations change,
    spread over all of it, so that every view has some of them in sight."""
    steps = []
    for status in (Op.RUNNING, Op.COMPLETED, Op.WAITING):
        for part in range(5):
            ids = [each.id for each in found.operations[part::5]]
            found = changed(found, dict.fromkeys(ids, status))
            steps.append(found)
    return steps


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_one_status_change(size: tuple[int, int]) -> None:
    found = planned(250)
    source = Scripted([found])
    async with console(source=source, size=size) as at:
        await on_canvas(at)
        await at.press("N", "c")
        running = next(o.id for o in found.operations if o.status is Op.RUNNING)
        place(at).choose(running)
        place(at).redraw()
        await at.settle()
        shadow = Shadow(at.app.console._color_system)
        shadow.resize(*size)
        shadow.update(every_piece(at.app.screen._compositor.render_strips()))
        below = [each for each in found.operations if each.status is Op.WAITING]
        canvas = place(at).canvas
        drawn = list(canvas._strips)
        seen = next(each.id for each in below if canvas._in_view(each.id))
        source.put(changed(found, {seen: Op.RUNNING}))
        while canvas._states[seen].glyph != "◐":
            await at.settle(1)
            await asyncio.sleep(0.005)
        await at.settle()
        built = sum(
            old is not new for old, new in zip(drawn, canvas._strips, strict=True)
        )
        canvas_rows = range(canvas.region.y, canvas.region.bottom)
        pieces = list(every_piece(at.app.screen._compositor.render_strips()))
        own = shadow.update(p for p in pieces if p[1] in canvas_rows)
        other = shadow.update(p for p in pieces if p[1] not in canvas_rows)
        say(
            f"one status change at {size[0]}x{size[1]}",
            lines=built,
            bytes_canvas=len(own.encode()),
            bytes_elsewhere=len(other.encode()),
        )
        assert built == 1
        assert 0 < len(own.encode()) <= 250


async def _load(
    changes: bool, seconds: float, size: tuple[int, int], keys: tuple[str, ...]
) -> float:
    """Return the share of a core that a console takes, with or without changes."""
    found = planned(250)
    source = Scripted([found])
    async with console(source=source, size=size, monotonic=time.monotonic) as at:
        await on_canvas(at)
        await at.press(*keys)
        steps = flow(found)
        began, used = time.perf_counter(), time.process_time()
        for number in range(int(seconds * 10)):
            if changes:
                source.put(steps[number % len(steps)])
            await asyncio.sleep(
                max(0.0, began + (number + 1) / 10 - time.perf_counter())
            )
        return (time.process_time() - used) / (time.perf_counter() - began)


@pytest.mark.parametrize(
    ("size", "keys"),
    [
        ((120, 40), ()),
        ((200, 50), ()),
        ((200, 50), ("o",)),
        ((200, 50), ("w",)),
        ((200, 50), ("t",)),
        ((200, 50), ("T",)),
    ],
    ids=["canvas", "canvas-outline-map", "outline", "map", "timeline", "table"],
)
async def test_fifty_changes_ten_times_a_second(
    size: tuple[int, int], keys: tuple[str, ...]
) -> None:
    idle = await _load(False, 3, size, keys)
    busy = await _load(True, 6, size, keys)
    say(
        f"50 changes x 10/s at 250, {size[0]}x{size[1]}, {' '.join(keys) or 'c'}",
        idle=100 * idle,
        busy=100 * busy,
        unit="% of a core",
    )
    assert busy - idle <= 0.10 * max(1.0, slowness())


def slowness() -> float:
    """Return how much slower this machine is now than a quiet one; at least 1."""
    began = time.perf_counter()
    sum(number % 7 for number in range(400_000))
    return max(1.0, (time.perf_counter() - began) / 0.032)


async def lags(stop: asyncio.Event) -> AsyncIterator[float]:
    """Yield how late a loop is that wants to wake every 5 ms."""
    while not stop.is_set():
        began = time.perf_counter()
        await asyncio.sleep(0.005)
        yield time.perf_counter() - began - 0.005


async def collect(stop: asyncio.Event) -> list[float]:
    return [lag async for lag in lags(stop)]


def p95(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.95)]


async def busy_lag() -> float:
    """Return the lag of a loop beside a thread that only counts."""
    stop = asyncio.Event()
    done = threading.Event()

    def count() -> None:
        number = 0
        while not done.is_set():
            number += 1

    threading.Thread(target=count, daemon=True).start()
    task = asyncio.create_task(collect(stop))
    await asyncio.sleep(1.0)
    stop.set()
    done.set()
    return p95(await task)


@pytest.mark.parametrize("size", [250, 1000])
async def test_the_loop_while_a_flow_is_laid_out(size: int) -> None:
    base = await busy_lag()
    async with console([planned(size)], size=(200, 50)) as at:
        await at.press("enter")
        await at.until("TIME")
        await at.press("w", "c")
        at.send("c")
        while not any(each.name == "layout" for each in threading.enumerate()):
            await asyncio.sleep(0.001)
        stop = asyncio.Event()
        task = asyncio.create_task(collect(stop))
        began = time.perf_counter()
        while place(at).canvas.drawing is None:
            await asyncio.sleep(0.01)
        took = time.perf_counter() - began
        stop.set()
        found = await task
    say(
        f"layout of {size} in a thread",
        ms=took * 1000,
        lag_p95_ms=p95(found) * 1000,
        lag_max_ms=max(found) * 1000,
        any_thread_p95_ms=base * 1000,
    )
    assert p95(found) <= 0.040 * slowness()


def test_around_and_timeline() -> None:
    found = planned(1000)
    plan = plan_of(found, Look())
    every = [each.id for each in found.operations[::20]]
    began = time.perf_counter()
    sizes = [ego(plan.nodes, name, label_width=20) for name in every]
    around = (time.perf_counter() - began) / len(every)
    began = time.perf_counter()
    lines = timeline(found, found.run.observed_at)
    axis = lines.axis(174)
    bars = time.perf_counter() - began
    began = time.perf_counter()
    plan_of(found, Look())
    base = time.perf_counter() - began
    fits = sum(one.width <= 200 and one.height <= 48 for one in sizes)
    say(
        "1000 operations",
        around_ms=around * 1000,
        fits_200x48=f"{fits}/{len(sizes)}",
        timeline_ms=bars * 1000,
        plan_ms=base * 1000,
    )
    assert axis.width <= 174
    assert bars <= 0.150 * slowness()
