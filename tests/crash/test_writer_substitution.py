"""Foreign objects put in the place of the writer's own, at every system call.

A regular file, a symbolic link or a hard link takes the name of the base, the journal
or a temp, or another folder takes the place of the writer's, or the name is just gone.
The substitute gets no byte, is neither truncated nor unlinked, and nothing that was not
recoverable through the published names is acknowledged (SPEC E-55..E-62, L-07).

Two gaps are in the nature of names. A file that takes a **temp's** name, which nobody
can know, between the check and the unlink that relies on it, is unlinked. One that
comes between the check and an exchange or rename is found under the other name.
"""

from __future__ import annotations

import functools
import logging
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from harness.faults import SENTINEL, Fault, FaultyOs
from harness.scenario import Log, Script, drive, run, verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]

SCRIPT = Script(steps=6, max_records=3)
NAMES = ("base", "journal", "base-temp", "journal-temp")
EVERY = [f"{role} {by}" for role in NAMES for by in ("file", "symlink", "hardlink")]
EVERY += ["folder other", "base gone", "journal gone"]
SOME = [
    "base file",
    "journal symlink",
    "base-temp hardlink",
    "journal-temp file",
    "folder other",
    "journal gone",
]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, logger="heaveto.checkpoint")


def swaps(script: Script, folder: Path, whats: Iterable[str]) -> Iterator[Fault]:
    system = FaultyOs()
    path = folder / "whole" / "run" / "checkpoint.json"
    run(drive(script, path, Log(), system=system))
    first = next(seam.number for seam in system.seams if seam.call == "flock")
    for seam in system.seams[first:]:
        for what in whats:
            yield Fault(at=seam.number, act="swap", when="after", what=what)


def gap(fault: Fault, system: FaultyOs) -> str:
    """Name the call that the substituted name met first, if it could not be checked."""
    role = fault.what.split()[0]
    for seam in system.seams[fault.at + 1 :]:
        moved = seam.call in ("exchange", "rename_new") and f"{seam.role}-temp" == role
        if seam.role == role or moved:
            return seam.call
    return ""


def excused(fault: Fault, system: FaultyOs) -> int:
    """Count acknowledgements on their way: the name was checked, then substituted."""
    role = fault.what.split()[0]
    before = system.seams[: fault.at + 1]
    while before and before[-1].call == "stat":
        if before.pop().role == role:
            return 1
    return 0


def survives(path: Path, inode: int, met: str) -> str | None:
    """Say what became of a substitute that should be where it was put."""
    here = os.path.lexists(path) and path.lstat().st_ino == inode
    if not here and met == "unlink":
        return None
    found = [path] if here else [p for p in path.parent.iterdir() if _is(p, inode)]
    if not found:
        return "it was removed"
    if found[0].read_bytes() != SENTINEL:
        return "it was written to"
    if not here and met not in ("exchange", "rename_new"):
        return "it was moved"
    return None


def _is(path: Path, inode: int) -> bool:
    return path.lstat().st_ino == inode


def _strike(log: Log, _: Fault) -> None:
    log("struck")


def play(script: Script, cases: Iterable[Fault], folder: Path) -> list[str]:
    wrong = []
    played = 0
    for number, fault in enumerate(cases):
        path = folder / str(number) / "run" / "checkpoint.json"
        log = Log()
        strike = functools.partial(_strike, log)
        system = FaultyOs([fault], folder=path.parent, on_strike=strike)
        run(drive(script, path, log, system=system))
        system.release()
        assert system.struck
        problems = list(log.strange)
        later = log.lines[log.lines.index("struck") :]
        acks = [line for line in later if line.startswith("ack")]
        if len(acks) > excused(fault, system):
            problems.append(verdict(script, path, log) or "")
        for place, inode in system.sentinels:
            problems.append(survives(place, inode, gap(fault, system)) or "")
        wrong += [f"{fault}: {text}" for text in problems if text]
        played += 1
        shutil.rmtree(path.parent.parent)
    assert played > 100
    return wrong


def test_substitutes_are_left_alone(tmp_path: Path) -> None:
    assert play(SCRIPT, swaps(SCRIPT, tmp_path, SOME), tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [Script(steps=10, max_records=4), Script(steps=8, max_bytes=400)],
    ids=["records", "bytes"],
)
def test_every_substitute_everywhere(tmp_path: Path, script: Script) -> None:
    assert play(script, swaps(script, tmp_path, EVERY), tmp_path) == []


@pytest.mark.slow
def test_substitutes_of_a_version_2_file(tmp_path: Path) -> None:
    script = Script(version=2, steps=6)
    whats = [what for what in EVERY if not what.startswith("journal")]
    assert play(script, swaps(script, tmp_path, whats), tmp_path) == []


async def test_a_published_file_is_the_object_that_was_made(tmp_path: Path) -> None:
    """What is under a published name has the identity of the created handle (E-60)."""
    made: dict[str, int] = {}

    class Noting(FaultyOs):
        def open(
            self, path: str, flags: int, mode: int = 0o600, *, dir_fd: int | None = None
        ) -> int:
            fd = super().open(path, flags, mode, dir_fd=dir_fd)
            if flags & os.O_CREAT:
                assert flags & os.O_EXCL
                assert flags & os.O_NOFOLLOW
                made[path] = os.fstat(fd).st_ino
            return fd

    await drive(SCRIPT, tmp_path / "checkpoint.json", Log(), system=Noting())
    for name in ("checkpoint.json", "checkpoint.json.journal"):
        assert (tmp_path / name).stat().st_ino in made.values()
