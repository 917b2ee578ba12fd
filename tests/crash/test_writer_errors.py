"""The checkpoint writer while system calls fail, and what happens afterwards.

Every call of a script fails in turn with EIO, ENOSPC or EINTR, before or after its
effect, once or for good, and writes stop short. The script goes on after each error.
Then the process ends, or is killed some calls later. Nothing acknowledged may be lost,
nothing wrong found, no call may hang; an error that passes leaves no scar: the last
transitions are acknowledged again (SPEC E-43..E-49, E-76, E-77, L-04).
"""

from __future__ import annotations

import errno
import logging
import shutil
from typing import TYPE_CHECKING

import pytest

from harness.faults import Fault, FaultyOs, Seam
from harness.scenario import Log, Script, drive, run, verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]

NUMBERS = (errno.EIO, errno.ENOSPC, errno.EINTR)
SCRIPTS = {
    "sequential": Script(steps=10, max_records=4),
    "4-at-once": Script(steps=12, together=4, max_records=4),
    "bytes": Script(steps=10, max_bytes=400),
    "v2": Script(version=2, steps=8),
}


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, logger="heaveto.checkpoint")


def seams_of(script: Script, folder: Path) -> list[Seam]:
    system = FaultyOs()
    path = folder / "whole" / "run" / "checkpoint.json"
    run(drive(script, path, Log(), system=system))
    return system.seams


def errors(
    seams: Iterable[Seam], numbers: Iterable[int], *, lasting: bool
) -> Iterator[list[Fault]]:
    """Fail each call, before and after its effect; a write also part of the way."""
    for seam in seams:
        for number in numbers:
            for when in ("before", "after"):
                at = {"at": seam.number, "act": "fail", "error": number}
                yield [Fault(**at, when=when, lasting=lasting)]  # type: ignore[arg-type]
            if seam.call == "write":
                for keep in (1, seam.size // 2, seam.size - 1):
                    at = {"at": seam.number, "act": "fail", "error": number}
                    yield [Fault(**at, keep=keep)]  # type: ignore[arg-type]


def shorts(seams: Iterable[Seam]) -> Iterator[list[Fault]]:
    """Let each write take less than it was given."""
    for seam in seams:
        if seam.call == "write":
            for keep in (1, seam.size // 2, seam.size - 1):
                yield [Fault(at=seam.number, act="short", keep=keep)]


def play(
    script: Script, cases: Iterable[list[Fault]], folder: Path, *, scarless: bool
) -> list[str]:
    """Play a script under each case; return what went wrong."""
    wrong = []
    played = 0
    for number, faults in enumerate(cases):
        path = folder / str(number) / "run" / "checkpoint.json"
        system, log = FaultyOs(faults), Log()
        run(drive(script, path, log, system=system))
        system.release()
        found = verdict(script, path, log)
        first = system.seams[faults[0].at].name if system.struck else "nothing"
        if found is None and not system.struck:
            found = "did not strike"
        if found is None and scarless and "locked" not in log.refusals:
            opened = any(line.startswith("admit") for line in log.lines)
            if opened and log.acknowledged < script.steps:
                found = f"never got well: {log.lines[-4:]}"
        if found is not None:
            wrong.append(f"{first} {faults}: {found}")
        played += 1
        shutil.rmtree(path.parent.parent, ignore_errors=True)
    assert played > 20
    return wrong


def test_one_error_leaves_no_scar(tmp_path: Path) -> None:
    script = SCRIPTS["sequential"]
    seams = seams_of(script, tmp_path)
    cases = errors(seams, [errno.EIO], lasting=False)
    assert play(script, cases, tmp_path, scarless=True) == []


def test_a_call_that_keeps_failing(tmp_path: Path) -> None:
    script = SCRIPTS["sequential"]
    seams = [s for s in seams_of(script, tmp_path) if s.call not in ("stat", "fstat")]
    cases = errors(seams, [errno.ENOSPC], lasting=True)
    assert play(script, cases, tmp_path, scarless=False) == []


def test_short_writes_are_completed(tmp_path: Path) -> None:
    script = SCRIPTS["4-at-once"]
    cases = shorts(seams_of(script, tmp_path))
    assert play(script, cases, tmp_path, scarless=True) == []


def two(seams: list[Seam], distances: Iterable[int]) -> Iterator[list[Fault]]:
    """An error, then a kill some calls later."""
    for seam in seams:
        for distance in distances:
            kill = Fault(at=seam.number + distance, act="kill")
            for when in ("before", "after"):
                fail = Fault(at=seam.number, act="fail", error=errno.EIO, when=when)
                yield [fail, kill]
            if seam.call == "write":
                torn = Fault(
                    at=seam.number, act="fail", error=errno.EIO, keep=seam.size // 2
                )
                yield [torn, kill]


def test_an_error_and_then_the_end(tmp_path: Path) -> None:
    script = SCRIPTS["sequential"]
    touching = ("write", "fsync", "exchange", "create")
    seams = [s for s in seams_of(script, tmp_path) if s.call in touching][6:]
    cases = two(seams, (2, 5, 9, 14, 20, 27, 35))
    assert play(script, cases, tmp_path, scarless=False) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for-good"])
def test_every_error_everywhere(tmp_path: Path, name: str, lasting: bool) -> None:
    script = SCRIPTS[name]
    seams = seams_of(script, tmp_path)
    cases = errors(seams, NUMBERS, lasting=lasting)
    assert play(script, cases, tmp_path, scarless=not lasting) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_two_faults_at_every_distance(tmp_path: Path, name: str) -> None:
    script = SCRIPTS[name]
    seams = seams_of(script, tmp_path)
    cases = two(seams, range(1, 64, 3))
    assert play(script, cases, tmp_path, scarless=False) == []
