"""The generation store killed and failing at every system call.

A workload commits six checkpoints whose every file tells its turn; the session state is
absent in every third. It is first run once to count its calls. Then it is run again
for each call: killed right before or right after it, or with that call failing. The
oracle reads the store afterwards: every part tells one turn, and that turn is the last
acknowledged one or one that was begun after it. Then the store must take a further
checkpoint, whose parts must not hold anything of an earlier attempt.

Kills are real: the workload runs in a forked process that ends itself with SIGKILL.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from heaveto.errors import GenerationError
from heaveto.files import Os
from heaveto.generations import EngineStateStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TURNS = range(1, 7)


class Seams(Os):
    """Counts the calls and lets a function act before and after each."""

    def __init__(self) -> None:
        self.count = 0
        self.names: list[str] = []
        self.before: Callable[[int, str], None] = lambda seam, name: None
        self.after: Callable[[int, str], None] = lambda seam, name: None
        self.short: set[int] = set()
        self.handles: set[int] = set()

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or name not in CALLS:
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            seam, self.count = self.count, self.count + 1
            self.names.append(name)
            self.before(seam, name)
            if seam in self.short and name == "write":
                args = (args[0], args[1][: max(1, len(args[1]) // 2)])
            try:
                answer = found(*args, **kwargs)
                if name == "open":
                    self.handles.add(answer)
                elif name == "close":
                    self.handles.discard(args[0])
                return answer
            finally:
                self.after(seam, name)

        return call

    def release(self) -> None:
        """Close what a call that was kept from closing has left open."""
        for fd in self.handles:
            with contextlib.suppress(OSError):
                os.close(fd)


CALLS = {name for name in vars(Os) if not name.startswith("_")}


def workload(root: Path, system: Os, acked: Callable[[int], object]) -> None:
    """Commit the checkpoints; go on after a refusal, as an engine would."""
    for turn in TURNS:
        with contextlib.suppress(GenerationError):
            checkpoint(root, system, turn)
            acked(turn)


def checkpoint(root: Path, system: Os, turn: int) -> None:
    store = EngineStateStore(root, system=system, revision=lambda: "unknown")
    number, directory = store.begin_generation()
    pending = EngineStateStore(directory, system=system, revision=lambda: "unknown")
    pending.save_recognizers([{"turn": turn}] * 2)
    pending.save_discovery_candidates([{"turn": turn}])
    if turn % 3:
        pending.save_session_state({"turn": turn})
    pending.save_manifest(turn)
    store.commit_generation(number)


def flat(root: Path) -> None:
    """Lay a flat store of turn 0, so that the workload begins with a migration."""
    store = EngineStateStore(root, revision=lambda: "unknown")
    store.save_recognizers([{"turn": 0}])
    store.save_session_state({"turn": 0})
    store.save_manifest(0)


def turn_of(root: Path) -> int | None:
    """Return the turn of the checkpoint, after checking that all parts tell it."""
    store = EngineStateStore(root, strict=True, revision=lambda: "unknown")
    state = store.restore()
    if state is None:
        return None
    turn = state.manifest["turn_count"]
    assert isinstance(turn, int)
    told = [record["turn"] for record in state.recognizers]
    told += [record["turn"] for record in state.discovery_candidates]
    if state.session_state is not None:
        told.append(state.session_state["turn"])
    assert set(told) == {turn}, "parts of two turns in one generation"
    expected = 2 + 1 if turn else 1
    assert len(state.recognizers) + len(state.discovery_candidates) == expected
    assert (state.session_state is not None) == bool(turn % 3 or turn == 0)
    return turn


def judge(root: Path, acked: int) -> None:
    """Check what is there, then what a further checkpoint makes of it."""
    found = turn_of(root)
    assert (found or 0) >= acked, "an acknowledged commit is lost"
    assert found is None or found <= TURNS[-1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        checkpoint(root, Os(), 9)
    assert turn_of(root) == 9
    temps = [path.name for path in root.rglob("*.tmp")]
    assert temps == [], "a temporary file was left for ever"


@pytest.fixture(params=["fresh", "flat"])
def start(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    return flat if request.param == "flat" else lambda root: None


def seams_of(root: Path) -> list[str]:
    """Return the names of the calls of an undisturbed workload."""
    seams = Seams()
    workload(root, seams, lambda turn: None)
    return seams.names


def sampled(total: int, step: int) -> Iterator[int]:
    """Go over the calls in steps that are coprime to the workload's period."""
    return iter(range(0, total, step))


def killed(root: Path, seam: int, when: str) -> int:
    """Run the workload in a process that dies at a call; return the last ack."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            seams = Seams()

            def die(here: int, name: str) -> None:
                if here == seam:
                    os.kill(os.getpid(), signal.SIGKILL)

            setattr(seams, when, die)
            workload(root, seams, lambda turn: os.write(writing, bytes([turn])))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        acks = pipe.read()
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), f"seam {seam} was never reached"
    return max(acks, default=0)


def kill_matrix(tmp_path: Path, start: Callable[[Path], None], step: int) -> int:
    base = tmp_path / "count"
    start(base)
    total = len(seams_of(base))
    hit = 0
    for seam in sampled(total, step):
        for when in ("before", "after"):
            root = tmp_path / f"{seam}-{when}"
            start(root)
            judge(root, killed(root, seam, when))
            hit += 1
    return hit


@pytest.mark.crash
def test_killed_at_sampled_calls(tmp_path: Path, start: Callable[[Path], None]) -> None:
    assert kill_matrix(tmp_path, start, step=7) >= 60


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.timeout(600)
def test_killed_at_every_call(tmp_path: Path, start: Callable[[Path], None]) -> None:
    assert kill_matrix(tmp_path, start, step=1) >= 400


def failing(
    root: Path, seam: int, when: str, code: int, *, kind: str = "", stop: int = 0
) -> tuple[int, bool, Seams]:
    """Run the workload with one call failing, or all of its kind from there on.

    Returns the last acknowledged turn, whether the fault was hit, and the calls.
    """
    seams = Seams()
    hits = 0
    acks = [0]

    def fail(here: int, name: str) -> None:
        nonlocal hits
        if here == seam or (kind == name and here > seam):
            hits += 1
            raise OSError(code, os.strerror(code))

    setattr(seams, when, fail)
    workload(root, seams, acks.append)
    setattr(seams, when, lambda here, name: None)
    return max(acks), hits > 0, seams


CODES = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EINTR": errno.EINTR}


def error_matrix(tmp_path: Path, start: Callable[[Path], None], step: int) -> int:
    base = tmp_path / "count"
    start(base)
    names = seams_of(base)
    hit = 0
    for seam in sampled(len(names), step):
        for word, code in CODES.items():
            for when in ("before", "after"):
                for kind in ("", names[seam]):
                    root = tmp_path / f"{seam}-{word}-{when}-{kind}"
                    start(root)
                    acked, reached, seams = failing(root, seam, when, code, kind=kind)
                    assert reached
                    judge(root, acked)
                    seams.release()
                    hit += 1
    return hit


def test_failing_at_sampled_calls(
    tmp_path: Path, start: Callable[[Path], None]
) -> None:
    assert error_matrix(tmp_path, start, step=31) >= 60


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_failing_at_every_call(tmp_path: Path, start: Callable[[Path], None]) -> None:
    assert error_matrix(tmp_path, start, step=1) >= 2000


def killed_after_error(root: Path, seam: int, distance: int) -> tuple[int, bool]:
    """Fail one call, carry on, and be killed some calls later."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            seams = Seams()

            def fault(here: int, name: str) -> None:
                if here == seam:
                    raise OSError(errno.EIO, "injected")
                if here == seam + distance:
                    os.kill(os.getpid(), signal.SIGKILL)

            seams.before = fault
            workload(root, seams, lambda turn: os.write(writing, bytes([turn])))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        acks = pipe.read()
    _, status = os.waitpid(child, 0)
    return max(acks, default=0), os.WIFSIGNALED(status)


def two_faults(tmp_path: Path, step: int) -> int:
    total = len(seams_of(tmp_path / "count"))
    hit = 0
    for seam in sampled(total, step):
        for distance in (1, 5, 17, 40):
            root = tmp_path / f"{seam}-{distance}"
            acked, was_killed = killed_after_error(root, seam, distance)
            judge(root, acked)
            hit += was_killed
    return hit


@pytest.mark.crash
def test_an_error_and_a_kill_later(tmp_path: Path) -> None:
    assert two_faults(tmp_path, step=13) >= 60


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.timeout(600)
def test_an_error_at_every_call_and_a_kill_later(tmp_path: Path) -> None:
    assert two_faults(tmp_path, step=1) >= 500


def test_short_writes_are_completed(tmp_path: Path) -> None:
    seams = Seams()
    seams.short = set(range(0, 10_000, 2))
    acks: list[int] = []
    workload(tmp_path, seams, acks.append)
    assert acks == list(TURNS)
    judge(tmp_path, TURNS[-1])


def test_a_full_disk_does_not_pile_up_leftovers(tmp_path: Path) -> None:
    for _ in range(5):
        seams = Seams()

        def full(here: int, name: str) -> None:
            if name == "write" and here > 40:
                raise OSError(errno.ENOSPC, "No space left on device")

        seams.before = full
        workload(tmp_path, seams, lambda turn: None)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) <= 3, names


@pytest.mark.parametrize(
    "commits", [60, pytest.param(500, marks=pytest.mark.slow)], ids=str
)
def test_readers_see_whole_generations_only(tmp_path: Path, commits: int) -> None:
    """Four readers loop through the commits with clean-up going on."""
    checkpoint(tmp_path, Os(), 1)
    over = threading.Event()
    problems: list[BaseException] = []
    loads = [0] * 4

    def read(index: int) -> None:
        last = 0
        try:
            while not over.is_set():
                found = turn_of(tmp_path)
                assert found is not None
                assert found >= last, "went back in time"
                last = found
                loads[index] += 1
        except BaseException as error:
            problems.append(error)

    readers = [threading.Thread(target=read, args=(index,)) for index in range(4)]
    for reader in readers:
        reader.start()
    try:
        for turn in range(2, commits + 2):
            checkpoint(tmp_path, Os(), turn)
    finally:
        over.set()
        for reader in readers:
            reader.join()
    assert problems == []
    assert min(loads) > 0
