"""What one commit of four small files costs, beside the same number of bare fsyncs."""

from __future__ import annotations

import functools
import statistics
import time
from typing import TYPE_CHECKING

from heaveto.files import Os
from heaveto.generations import EngineStateStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROUNDS = 5
COMMITS = 40


class Counting(Os):
    def __init__(self) -> None:
        self.syncs = 0
        self.renames = 0

    def fsync(self, fd: int) -> None:
        self.syncs += 1
        super().fsync(fd)

    def rename(
        self, source: str, target: str, *, dir_fd: int, target_dir_fd: int
    ) -> None:
        self.renames += 1
        super().rename(source, target, dir_fd=dir_fd, target_dir_fd=target_dir_fd)


def checkpoint(root: Path, system: Os, turn: int) -> None:
    store = EngineStateStore(root, system=system, revision=lambda: "unknown")
    number, directory = store.begin_generation()
    pending = EngineStateStore(directory, system=system, revision=lambda: "unknown")
    pending.save_recognizers([{"turn": turn}])
    pending.save_discovery_candidates([{"turn": turn}])
    pending.save_session_state({"turn": turn})
    pending.save_manifest(turn)
    store.commit_generation(number)


def bare(path: Path, syncs: int) -> None:
    """Append a few bytes and sync, as often as a commit syncs."""
    system = Os()
    fd = system.open(str(path), 0o2 | 0o100 | 0o2000)
    for _ in range(syncs):
        system.write(fd, b"x" * 64)
        system.fsync(fd)
    system.close(fd)


def commits(root: Path) -> None:
    for turn in range(COMMITS):
        checkpoint(root, Os(), turn)


def floors(path: Path, syncs: int) -> None:
    for _ in range(COMMITS):
        bare(path, syncs)


def timed(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def test_commit_of_four_small_files(tmp_path: Path) -> None:
    counting = Counting()
    for turn in (1, 2, 3):
        checkpoint(tmp_path / "count", counting, turn)
    syncs, renames = counting.syncs, counting.renames
    counting.syncs = counting.renames = 0
    checkpoint(tmp_path / "count", counting, 4)
    syncs, renames = counting.syncs, counting.renames
    ratios = []
    for round_ in range(ROUNDS):
        ours = timed(functools.partial(commits, tmp_path / str(round_)))
        floor = timed(functools.partial(floors, tmp_path / "bare", syncs))
        ratios.append(ours / floor)
    print(
        f"\ngeneration commit, four small files: {syncs} fsyncs, {renames} renames; "
        f"{min(ratios):.2f} x the same number of bare append+fsync "
        f"(median {statistics.median(ratios):.2f})"
    )
    assert (syncs, renames) == (8, 5)
