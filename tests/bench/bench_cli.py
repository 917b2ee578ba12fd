"""What a command line costs, beside what an interpreter costs in the same minute."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from heaveto import Flow, Operation, run

REPETITIONS = 7
BASE = [sys.executable, "-c", "import sqlite3, json, asyncio"]
CONSOLE = [
    sys.executable,
    "-P",
    "-c",
    "import sys; from heaveto_tui.__main__ import main; sys.exit(main())",
]


def best(words: list[str], environment: dict[str, str]) -> float:
    """Run a command once and return its seconds."""
    began = time.perf_counter()
    done = subprocess.run(words, env=environment, capture_output=True, check=False)
    took = time.perf_counter() - began
    assert done.returncode == 0, done.stderr
    return took


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A home with ended runs, and compiled modules as an installation has them."""
    folder = tmp_path_factory.mktemp("bench")
    made = {
        **{k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"},
        "HEAVETO_HOME": str(folder / "home"),
        "HEAVETO_CONFIG": str(folder / "none.toml"),
        "LIONAGI_HOME": str(folder / "none"),
        "PYTHONPYCACHEPREFIX": str(folder / "cache"),
        "PYTHONPATH": os.pathsep.join(
            str(Path(__file__).parents[2] / part) for part in ("core", "tui")
        ),
    }
    flow = Flow(
        "bench",
        [Operation(f"n{number}", "w", "x") for number in range(10)],
        workers={"w": {"kind": "scripted", "replies": [{"response": 1}]}},
    )

    async def several() -> None:
        for _ in range(20):
            await run(flow, home=folder / "home")

    asyncio.run(several())
    best([*CONSOLE, "ls", "--json"], made)
    return made


@pytest.mark.parametrize(
    ("words", "bound"),
    [
        (["ls", "--json"], 2.5),
        (["ls"], None),
        (["--version"], None),
        (["explain", "dead"], None),
        (["doctor", "--json"], None),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_start(
    environment: dict[str, str], words: list[str], bound: float | None
) -> None:
    base = taken = float("inf")
    for _ in range(REPETITIONS):
        base = min(base, best(BASE, environment))
        taken = min(taken, best([*CONSOLE, *words], environment))
    print(
        f"\nheaveto {' '.join(words)}: {taken * 1000:.0f} ms; python with sqlite3, json"
        f" and asyncio: {base * 1000:.0f} ms; ratio {taken / base:.2f} (bound {bound});"
        f" load {os.getloadavg()[0]:.1f}"
    )
    if bound is not None:
        assert taken / base <= bound


def test_a_flow_costs_little_beside_its_operations(tmp_path: Path) -> None:
    """Seconds of a run of 200 instant operations, beside 200 synced appends."""
    count = 200
    flow = Flow(
        "wide",
        [Operation(f"n{number}", "w", "x") for number in range(count)],
        workers={"w": {"kind": "scripted", "replies": [{"response": "y" * 1000}]}},
    )
    began = time.perf_counter()
    asyncio.run(run(flow, home=tmp_path / "home"))
    taken = time.perf_counter() - began
    began = time.perf_counter()
    with open(tmp_path / "plain", "ab", buffering=0) as plain:
        for _ in range(count):
            plain.write(b"y" * 1200)
            os.fsync(plain.fileno())
    base = time.perf_counter() - began
    print(
        f"\na run of {count} instant operations: {taken:.2f} s,"
        f" {count} synced appends {base:.2f} s"
    )


def test_headless_demo(tmp_path: Path, environment: dict[str, str]) -> None:
    began = time.perf_counter()
    best([*CONSOLE, "demo", "--headless"], {**environment, "TMPDIR": str(tmp_path)})
    taken = time.perf_counter() - began
    base = best(BASE, environment)
    print(
        f"\ndemo --headless: {taken:.1f} s of 30 allowed, an interpreter {base:.2f} s"
    )
    assert taken < 30
