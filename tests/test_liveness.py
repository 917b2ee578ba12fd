"""Is a run's process there: checked against the system, not believed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from harness.steering import child
from heaveto.files import Directory, hold_file
from heaveto.liveness import Machine, identity, judge

if TYPE_CHECKING:
    from pathlib import Path


class Told(Machine):
    """A machine whose answers are given."""

    def __init__(
        self,
        *,
        host: str = "here",
        boot: float = 1000.0,
        started: float | None = 5000.0,
        holder: int | None = None,
        forbidden: bool = False,
        starts_stay: bool = False,
    ) -> None:
        self.starts_stay = starts_stay
        self.told_host = host
        self.boot = boot
        self.start = started
        self.holder = holder
        self.forbidden = forbidden
        self.asked: list[int] = []

    def host(self) -> str:
        return self.told_host

    def boot_time(self) -> float:
        return self.boot

    def started(self, pid: int) -> float | None:
        self.asked.append(pid)
        if self.forbidden:
            raise PermissionError(pid)
        return self.start

    def lock_holder(self, path: Path) -> int | None:
        return self.holder


RECORDED: dict[str, object] = {
    "pid": 42,
    "pid_create_time": 5000.0,
    "pid_host": "here",
    "pid_boot_time": 1000.0,
}


@pytest.mark.parametrize(
    ("machine", "changes", "alive", "why"),
    [
        (Told(), {}, True, "is there"),
        (Told(started=None), {}, False, "is gone"),
        # Another process has the pid now.
        (Told(started=5001.0), {}, False, "reused"),
        (Told(), {"pid_create_time": 4000.0}, False, "reused"),
        # The machine was started anew: boot and start have moved apart.
        (Told(boot=9000.0, started=9500.0), {}, False, "anew"),
        (Told(), {"pid_boot_time": 900.0}, False, "anew"),
        (Told(boot=9000.0), {"pid_create_time": None}, False, "anew"),
        # The clock was stepped: both have moved by the same.
        (Told(boot=4600.0, started=8600.0), {}, True, "is there"),
        (Told(boot=-2600.0, started=1400.0), {}, True, "is there"),
        # The same boot, read twice.
        (Told(boot=1001.0, started=5001.0), {}, True, "is there"),
        (Told(boot=1004.0), {}, True, "is there"),
        (Told(boot=4600.0, starts_stay=True), {}, True, "is there"),
        (Told(boot=4600.0, started=8600.0, starts_stay=True), {}, False, "anew"),
        # What cannot be told.
        (Told(host="there"), {}, None, "another machine"),
        (Told(forbidden=True), {}, None, "may not be looked at"),
        (Told(), {"pid": None}, None, "no process"),
        (Told(), {"pid": "42"}, None, "no process"),
        (Told(), {"pid": -1}, None, "no process"),
        (Told(), {"pid": True}, None, "no process"),
        (Told(), {"pid": 1 << 40}, None, "no process"),
        # Little was recorded: the pid alone decides.
        (Told(), {"pid_create_time": None, "pid_boot_time": None}, True, "is there"),
    ],
)
def test_recorded_process_is_compared_with_the_present_one(
    machine: Told, changes: dict[str, object], alive: bool | None, why: str
) -> None:
    found = judge({**RECORDED, **changes}, machine=machine)
    assert found.alive is alive
    assert why in found.why


def test_ended_run_has_no_process() -> None:
    machine = Told(holder=7)
    found = judge(RECORDED, ended=True, machine=machine)
    assert found.alive is False
    assert machine.asked == []


def test_held_lock_counts_more_than_what_was_recorded(tmp_path: Path) -> None:
    machine = Told(holder=77, started=None)
    found = judge(RECORDED, lock=tmp_path / ".lock", machine=machine)
    assert (found.alive, found.pid) == (True, 77)


def test_lock_of_another_namespace_is_held_too(tmp_path: Path) -> None:
    found = judge(RECORDED, lock=tmp_path / ".lock", machine=Told(holder=0))
    assert (found.alive, found.pid) == (True, 42)


def test_this_process_recognises_itself() -> None:
    recorded = identity()
    found = judge(recorded)
    assert (found.alive, found.pid) == (True, os.getpid())
    assert recorded["process_identity_mode"] == "local"


def test_lock_is_asked_about_and_not_taken(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    nobody: dict[str, object] = {}
    assert judge(nobody, lock=lock).alive is None
    with Directory.open(tmp_path) as folder, hold_file(folder, ".lock"):
        assert judge(nobody, lock=lock).pid == os.getpid()
    with child(
        "import sys; from pathlib import Path\n"
        "from heaveto.files import Directory, hold_file\n"
        "folder = Directory.open(Path(sys.argv[1]))\n"
        "held = hold_file(folder, '.lock')\n"
        "print('held', flush=True); sys.stdin.readline()\n",
        tmp_path,
    ) as other:
        other.expect("held")
        found = judge(nobody, lock=lock)
        assert (found.alive, found.pid) == (True, other.pid)
        other.kill()
    assert judge(nobody, lock=lock).alive is None


def test_killed_process_is_dead_also_while_nobody_has_reaped_it() -> None:
    with child(
        "import json, sys; from heaveto.liveness import identity\n"
        "print(json.dumps(identity()), flush=True); sys.stdin.readline()\n"
    ) as other:
        import json

        recorded = json.loads(other.expect(""))
        assert judge(recorded).alive is True
        os.kill(other.pid, 9)
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        assert judge(recorded).alive is False
        other.process.wait()
        assert judge(recorded).alive is False
