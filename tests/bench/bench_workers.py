"""What an operation costs besides its work: the executor, and a child's start."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from harness.flows import edge, node
from harness.labour import Labour, spec
from heaveto.executor import DependencyAwareExecutor
from heaveto.model import Node, Prepared

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = 5
CHILDREN = 20
OPERATIONS = 5000


async def nothing(_: object) -> int:
    return 1


async def tasks() -> float:
    """As many bare tasks behind one semaphore."""
    limit = asyncio.Semaphore(OPERATIONS)

    async def one() -> int:
        async with limit:
            return await nothing(None)

    start = time.thread_time()
    await asyncio.gather(*(asyncio.ensure_future(one()) for _ in range(OPERATIONS)))
    return time.thread_time() - start


@pytest.mark.parametrize("shape", ["independent", "chain", "fan"])
async def test_the_executor_beside_bare_tasks(shape: str) -> None:
    names = [f"n{number}" for number in range(OPERATIONS)]
    edges = {
        "independent": [],
        "chain": [edge(a, b) for a, b in itertools.pairwise(names)],
        "fan": [edge(names[0], name) for name in names[1:]],
    }[shape]
    best, base = float("inf"), float("inf")
    for _ in range(ROUNDS):
        base = min(base, await tasks())
        made = DependencyAwareExecutor(
            [node(name) for name in names],
            edges,
            invoke=nothing,
            on_signal=lambda _: None,
        )
        start = time.thread_time()
        await made.execute()
        best = min(best, time.thread_time() - start)
    each = best / OPERATIONS * 1e6
    print(f"\nexecutor, {shape}: {each:.0f} us an operation, {best / base:.1f} x tasks")


async def test_a_child_beside_a_bare_one(tmp_path: Path) -> None:
    """Recorded before it runs and dying with its runner, against started outright."""
    labour = Labour(tmp_path)
    pool = labour.workers(w=spec(kind="command", argv=["true"]))

    async def one(number: int) -> None:
        name = f"o{number}"
        made = Node(id=name, name=name, assignee="w", instruction="")
        prepared = Prepared(node=made, instruction="", context={})
        await pool.prepare(prepared)
        await pool.invoke(prepared)

    best, base = float("inf"), float("inf")
    for round_ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CHILDREN):
            subprocess.run(["true"], check=True, capture_output=True)
        base = min(base, time.perf_counter() - start)
        start = time.perf_counter()
        for number in range(CHILDREN):
            await one(round_ * CHILDREN + number)
        best = min(best, time.perf_counter() - start)
    each, bare = best / CHILDREN * 1e3, base / CHILDREN * 1e3
    print(f"\ncommand: {each:.1f} ms a child, bare {bare:.1f} ms, x {each / bare:.1f}")
