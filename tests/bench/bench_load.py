"""What loading costs beside ``json.loads`` of the same bytes, in time and memory."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.units import base, line, plan, write_unit
from heaveto.checkpoint import CheckpointRefused, load_checkpoint
from heaveto.checkpoint.loader import Follower
from test_checkpoint_loader import damaged, sources

if TYPE_CHECKING:
    from collections.abc import Callable

REPEAT = 15


def cpu(work: Callable[[], Any]) -> float:
    start = time.thread_time_ns()
    work()
    return (time.thread_time_ns() - start) / 1e6


def workload(folder: Path, count: int, size: int, in_base: int) -> Path:
    """Outcomes and context items of one size, some in the base, others behind it."""
    item, names = "c" * size, [f"op-{n}" for n in range(count)]
    entries = [
        {"agent_id": name, "status": "completed", "response": "r" * size}
        for name in names
    ]
    document = base(
        plan=plan(count),
        flow_context={"log": {"entries": [item] * in_base}},
        ops=dict(zip(names[:in_base], entries, strict=False)),
    )
    add = {"op": "add", "path": "/log/entries/-", "value": item}
    lines = [
        line(n - in_base + 1, add, entry=entries[n]) for n in range(in_base, count)
    ]
    return write_unit(folder, document, *lines)


WORKLOADS = [
    ("200 x 8 KiB, 128 in the base", 200, 8192, 128, 2.0),
    ("200 x 8 KiB, all in the journal", 200, 8192, 0, 2.6),
    ("100 x 64 KiB, 64 in the base", 100, 65_536, 64, 2.0),
    ("10,000 x 1 KiB in the base", 10_000, 1024, 9_990, 2.6),
]


@pytest.mark.parametrize(
    ("name", "count", "size", "in_base", "bound"), WORKLOADS, ids=lambda v: str(v)[:12]
)
def test_time(
    tmp_path: Path, name: str, count: int, size: int, in_base: int, bound: float
) -> None:
    path = workload(tmp_path, count, size, in_base)
    content = path.read_bytes()
    lines = path.with_name("checkpoint.json.journal").read_bytes().split(b"\n")[:-1]

    def bare() -> Any:
        return json.loads(content), [json.loads(data) for data in lines]

    best_bare = best = 1e9
    for _ in range(REPEAT):
        best_bare = min(best_bare, cpu(bare))
        best = min(best, cpu(lambda: load_checkpoint(path)))
    ratio = best / best_bare
    print(f"\n{name}: load {best:.2f} ms = {ratio:.2f} x json.loads {best_bare:.2f} ms")
    assert ratio <= bound


def test_a_poll_of_a_growing_journal(tmp_path: Path) -> None:
    path = workload(tmp_path, 2_000, 4096, 1_990)
    journal = path.with_name("checkpoint.json.journal")
    add = {"op": "add", "path": "/log/entries/-", "value": "n" * 4096}
    polls, loads = 1e9, 1e9
    with Follower(path) as follower:
        follower.poll()
        for seq in range(11, 11 + REPEAT):
            with journal.open("ab") as file:
                file.write(line(seq, add))
            polls = min(polls, cpu(follower.poll))
            loads = min(loads, cpu(lambda: load_checkpoint(path)))
        idle = min(cpu(follower.poll) for _ in range(REPEAT))
    print(
        f"\npoll of one new record {polls:.3f} ms, of none {idle:.3f} ms;"
        f" a load of the same unit {loads:.1f} ms"
    )
    assert polls < loads / 5


MEASURE = """
import pathlib, re, resource, sys
from heaveto.checkpoint import CheckpointRefused, load_checkpoint

def peak():  # Linux keeps a parent's peak in ru_maxrss
    status = pathlib.Path("/proc/self/status")
    if status.exists():
        return 1024 * int(re.search(r"VmHWM:\\s*(\\d+)", status.read_text())[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

before = peak()
try:
    load_checkpoint(sys.argv[1])
except CheckpointRefused:
    pass
print(peak() - before)
"""


def bases() -> dict[str, bytes]:
    rows = [{"id": n, "name": f"n{n}", "ok": True} for n in range(150_000)]
    return {
        "rows": json.dumps(base(flow_context={"rows": rows})).encode(),
        "numbers": json.dumps(base(flow_context={"n": list(range(900_000))})).encode(),
        "deep": b"[" * 6_000_000,
        "brackets": b'{"version":3,"x":' + b"[" * 3_000_000 + b"]" * 3_000_000 + b"}",
        "digits": b'{"version":3,"x":' + b"9" * 6_000_000 + b"}",
        "nul": b"\0" * 6_000_000,
        "text": json.dumps(base(prompt="é" * 1_500_000)).encode(),
    }


@pytest.mark.parametrize("name", list(bases()))
def test_memory(tmp_path: Path, name: str) -> None:
    content = bases()[name]
    path = write_unit(tmp_path, content)
    core = Path(__file__).parents[2] / "core"
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path)],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(core)},
    )
    spent = time.monotonic() - start
    used = int(done.stdout)
    allowed = (64 << 20) + 20 * len(content)
    print(
        f"\n{name}: {len(content) / 1e6:.1f} MB of input, {used / 1e6:.0f} MB at most"
        f" (allowed {allowed / 1e6:.0f}), {spent:.2f} s with the start of Python"
    )
    assert used <= allowed


def test_the_slowest_damaged_unit(tmp_path: Path) -> None:
    units = sources()
    slowest = 0.0
    for seed in range(3000):
        rng = random.Random(seed)
        content, journal = rng.choice(units)
        path = write_unit(tmp_path, damaged(rng, content), damaged(rng, journal))
        start = time.thread_time()
        with contextlib.suppress(CheckpointRefused):
            load_checkpoint(path)
        slowest = max(slowest, time.thread_time() - start)
    print(f"\nslowest of 3,000 damaged units: {slowest * 1000:.1f} ms")
    assert slowest < 1.0
