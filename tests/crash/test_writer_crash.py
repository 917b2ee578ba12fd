"""The checkpoint writer killed at every system call of its life.

The script is first played once to number its system calls. Then it is played again for
each of them, in a process of its own that ends there with a real SIGKILL: right before
the call, right after it, or inside a write after one byte, half, or all but one. What
is left is loaded in this process and must be an admitted prefix, context included, that
holds everything acknowledged (SPEC E-37, E-38, E-67..E-69, L-03).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.child import Killer
from harness.disk import MemoryOs
from harness.faults import Fault, FaultyOs, Seam
from harness.scenario import Log, Script, drive, run, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]

NAMED = {
    # initialization
    "mkdir:folder",
    "flock:folder",
    "create:journal-temp",
    "rename_new:journal",
    "create:base-temp",
    "rename_new:base",
    # append
    "write:journal",
    "fsync:journal",
    "stat:journal",
    # compaction
    "write:base-temp",
    "fsync:base-temp",
    "exchange:base",
    "fsync:journal-temp",
    "exchange:journal",
    "fsync:folder",
    # cleanup and close
    "unlink:base-temp",
    "unlink:journal-temp",
    "close:base-temp",
    "close:journal",
    "close:base",
    "close:folder",
}
"""Seams that a life of the writer must have; the names of the kill matrix."""


def seams_of(script: Script, folder: Path) -> list[Seam]:
    """Play a script once and return its system calls."""
    system, log = FaultyOs(), Log()
    path = folder / "whole" / "run" / "checkpoint.json"
    run(drive(script, path, log, system=system))
    assert verdict(script, path, log) is None
    assert log.acknowledged == script.steps
    assert log.lines[-1] == "closed"
    return system.seams


def kills(seams: list[Seam]) -> Iterator[tuple[str, Fault]]:
    """Give every kill point of a run, by name."""
    for seam in seams:
        where = f"{seam.number} {seam.name}"
        yield f"before {where}", Fault(at=seam.number, act="kill")
        yield f"after {where}", Fault(at=seam.number, act="kill", when="after")
        if seam.call == "write":
            for keep in sorted({1, seam.size // 2, seam.size - 1}):
                torn = Fault(at=seam.number, act="kill", keep=keep)
                yield f"after {keep} bytes of {where}", torn


def play(script: Script, folder: Path) -> tuple[int, list[str]]:
    """Kill a script everywhere; return how many points fired and what went wrong."""
    wrong: list[str] = []
    fired = 0
    with Killer() as killer:
        for number, (name, fault) in enumerate(kills(seams_of(script, folder))):
            path = folder / str(number) / "run" / "checkpoint.json"
            told = killer.run(script, path, [fault])
            struck = "struck" in told and told[-1] == "signal 9"
            found = verdict(script, path, Log(told)) if struck else "did not fire"
            fired += struck
            if found is not None:
                wrong.append(f"{name}: {found}")
    return fired, wrong


def test_kill_at_every_call_of_a_journaled_run(tmp_path: Path) -> None:
    script = Script(steps=9, max_records=4)
    names = {seam.name for seam in seams_of(script, tmp_path / "names")}
    assert names >= NAMED
    fired, wrong = play(script, tmp_path)
    assert wrong == []
    assert fired >= 300


def test_kill_with_four_at_once(tmp_path: Path) -> None:
    fired, wrong = play(Script(steps=8, together=4, max_records=3), tmp_path)
    assert wrong == []
    assert fired >= 200


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        Script(steps=24, together=8, max_records=5),
        Script(steps=16, together=8, max_records=128),
        Script(steps=12, max_records=1),
        Script(steps=12, max_bytes=400),
        Script(steps=12, max_bytes=120),
        Script(steps=12, together=4, max_bytes=700),
        Script(version=2, steps=10),
        Script(version=2, steps=12, together=4),
    ],
    ids=[
        "8-at-once",
        "no-compaction",
        "every",
        "bytes",
        "each-too-big",
        "4",
        "v2",
        "v2-4",
    ],
)
def test_kill_everywhere(tmp_path: Path, script: Script) -> None:
    fired, wrong = play(script, tmp_path)
    assert wrong == []
    assert fired >= 100


@pytest.mark.parametrize("keep_data", [False, True])
@pytest.mark.parametrize("keep_entries", [False, True])
def test_what_was_synced_is_enough(keep_data: bool, keep_entries: bool) -> None:
    """Beyond the promise: losing whatever was never synced loses no acknowledgement."""
    from pathlib import Path

    script, path = Script(steps=9, max_records=4), Path("/home/run/checkpoint.json")
    system = FaultyOs(inner=MemoryOs())
    run(drive(script, path, Log(), system=system))
    wrong = []
    for name, fault in kills(system.seams):
        disk, log = MemoryOs(), Log()
        killed = FaultyOs([fault], inner=disk)
        run(drive(script, path, log, system=killed))
        assert killed.struck, name
        disk.cut_power(keep_data=keep_data, keep_entries=keep_entries)
        found = verdict(script, path, log, system=disk)
        if found is not None:
            wrong.append(f"{name}: {found}")
    assert wrong == []
