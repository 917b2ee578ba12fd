"""The drawing of flows: times, crossings, canvas, stability, against their bounds.

A time is the best of five, interleaved with the calibration loop: ``c`` is how much
slower this machine is now than the reference was, and a bound holds as bound times
``max(1, c)``. All other figures depend on the graphs alone.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from harness.dag_trace import GOLDEN, edges_of, golden, read_back
from heaveto_tui.dag_layout import draw, ego

if TYPE_CHECKING:
    from collections.abc import Callable

    from heaveto_tui.dag_layout import Drawing

REFERENCE_MS = 8.7
"""What :func:`calibrate` takes on the reference machine, unloaded."""
DIRECTIONS = ("LR", "TB")


def say(text: str) -> None:
    print(f"  {text}")


def calibrate() -> float:
    """Return how long a loop of what the layout does most takes, in milliseconds."""
    start = time.perf_counter()
    places = list(range(400))
    total = 0
    for turn in range(150):
        keys = {place: (place * 7919 + turn) % 401 for place in places}
        places.sort(key=keys.__getitem__)
        for left, right in pairwise(places):
            if keys[left] > right:
                total += keys[right]
    assert total
    return (time.perf_counter() - start) * 1e3


def best(work: Callable[[], object], rounds: int = 5) -> tuple[float, float]:
    """Return the least milliseconds of some work and the c of the same minute."""
    times: list[float] = []
    loops: list[float] = []
    for _ in range(rounds):
        loops.append(calibrate())
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1e3)
    return min(times), min(loops) / REFERENCE_MS


def told(name: str, value: float, c: float, bound: float) -> None:
    allowed = bound * max(1.0, c)
    word = "ok" if value <= allowed else "OVER"
    say(
        f"{name:<44}{value:>10.1f} ms  {value / REFERENCE_MS / c:>7.2f} loops  "
        f"bound {bound:.0f} x {max(1.0, c):.2f}  {word}"
    )


def test_times() -> None:
    load = os.getloadavg()[0]
    say(f"load {load:.1f}, Python {sys.version.split()[0]}")
    for size, bound in ((12, 5), (50, 30), (250, 180), (1000, 1500), (5000, 12_000)):
        for direction in DIRECTIONS:
            work = partial(draw, golden(size), direction)
            value, c = best(work, 5 if size < 5000 else 2)
            told(f"draw, {size} nodes, {direction}", value, c, bound)


def test_time_of_growth_and_of_parts() -> None:
    nodes = golden(250, 1)
    drawing = draw(nodes[:249])
    value, c = best(lambda: drawing.with_node(nodes[249]))
    told("with_node, 250 nodes", value, c, 20)
    for seed in (1, 2, 3):
        nodes = golden(250, seed)
        worst = max(best(partial(ego, nodes, name), 3) for name, _, _ in nodes)
        told(f"ego, the slowest of 250 nodes, seed {seed}", *worst, 5)
    drawing = draw(golden(250))
    drawing.spans(0)

    def page() -> None:
        for row in range(min(48, drawing.height)):
            drawing.spans(row, 300, 500)

    value, c = best(page)
    told("spans of a page of 200x48", value, c, 20)


def test_loop_lag_while_a_thread_draws() -> None:
    for size in (250, 1000):
        nodes = golden(size)
        idle = _lags(None)
        busy = _lags(partial(draw, nodes))
        say(
            f"lag of a 1 ms clock, {size} nodes in a thread: "
            f"p95 {busy[0]:.1f} ms, most {busy[1]:.1f} ms "
            f"(idle {idle[0]:.1f} and {idle[1]:.1f}; bounds 40 and 100)"
        )


def _lags(work: Callable[[], object] | None) -> tuple[float, float]:
    thread = threading.Thread(target=work) if work else None
    lags: list[float] = []
    if thread:
        thread.start()
    end = time.perf_counter() + 0.5
    while thread.is_alive() if thread else time.perf_counter() < end:
        start = time.perf_counter()
        time.sleep(0.001)
        lags.append((time.perf_counter() - start - 0.001) * 1e3)
    return statistics.quantiles(lags, n=20)[-1], max(lags)


def test_crossings() -> None:
    stored = json.loads((GOLDEN / "graphviz.json").read_text())
    for size, bound in ((12, None), (50, 1.15), (250, 1.20)):
        ours = [draw(golden(size, seed)).crossings for seed in range(1, 11)]
        dot = [stored[f"{size}/{seed}"] for seed in range(1, 11)]
        limit = f"{bound:.2f} x" if bound else f"{sum(dot) + 2}"
        say(
            f"crossings, {size} nodes, seeds 1-10: {sum(ours)} to {sum(dot)} of dot, "
            f"{sum(ours) / sum(dot):.3f} x (bound {limit})"
        )


def test_canvas() -> None:
    for size, bound in ((12, "130x13"), (50, "380x32"), (250, "1100x70")):
        drawn = [draw(golden(size, seed)) for seed in range(1, 11)]
        say(
            f"canvas LR, {size} nodes: up to {max(one.width for one in drawn)}x"
            f"{max(one.height for one in drawn)} (bound {bound})"
        )
    large = [draw(golden(250, seed)) for seed in range(1, 11)]
    say(
        f"layer grid of 250 nodes: up to {max(2 * len(one.layers) for one in large)}x"
        f"{max(len(layer) for one in large for layer in one.layers)}"
    )
    nodes = golden(250)
    parts = [ego(nodes, name) for name, _, _ in nodes]
    fits = sum(one.width <= 200 and one.height <= 48 for one in parts)
    say(f"ego views of 250 nodes that fit 200x48: {fits / 2.5:.1f} % (bound 95)")


@pytest.mark.timeout(900)
def test_reading_back() -> None:
    for size in (12, 50, 250, 1000):
        for direction in DIRECTIONS:
            wrong = 0
            for seed in range(1, 11) if size < 1000 else (1,):
                nodes = golden(size, seed)
                wrong += bool(_wrong(draw(nodes, direction), nodes))
            say(f"pictures that do not read back, {size} nodes, {direction}: {wrong}")


@pytest.mark.timeout(1800)
def test_growth() -> None:
    for direction in DIRECTIONS:
        axis = 0 if direction == "LR" else 1
        moves: list[int] = []
        shifts = wrong = 0
        ratios: list[float] = []
        for seed in range(1, 11):
            nodes = golden(250, seed)
            drawing = draw(nodes[:200], direction)
            for count in range(201, 251):
                grown = drawing.with_node(nodes[count - 1])
                old, new = _centres(drawing), _centres(grown)
                moves.append(
                    sum(old[name][1 - axis] != new[name][1 - axis] for name in old)
                )
                shifts += any(old[name][axis] != new[name][axis] for name in old)
                drawing = grown
                if seed <= 3:
                    wrong += bool(_wrong(drawing, nodes[:count]))
            ratios.append(drawing.crossings / draw(nodes, direction).crossings)
        say(
            f"one node added to 200-249, {direction}: "
            f"{statistics.mean(moves):.2f} move, "
            f"{max(moves)} at most (bounds 4, 20); layers shift in "
            f"{100 * shifts / len(moves):.1f} % (bound 30)"
        )
        say(
            f"50 additions, {direction}: crossings {statistics.mean(ratios):.2f} x "
            f"fresh, {max(ratios):.2f} at most (bound 1.5); not read back: "
            f"{wrong} of 150"
        )


def _centres(drawing: Drawing) -> dict[str, tuple[int, int]]:
    turned = drawing.direction == "TB"
    return {
        name: (x + width // 2 if turned else x, y)
        for name, (x, y, width, _) in drawing.boxes.items()
    }


def _wrong(drawing: Drawing, nodes: list[tuple[str, str, list[str]]]) -> object:
    return read_back(drawing.rows, drawing.boxes, drawing.direction, edges_of(nodes))
