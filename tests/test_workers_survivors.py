"""What a dead runner leaves running: found, told from strangers, ended."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from harness.labour import Labour, Pipe
from heaveto.files import Directory
from heaveto.workers import end_survivors, survivors
from heaveto.workers.launch import launch
from heaveto.workers.records import ProcessRecord, members, write_record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RUNNER = """
import asyncio, sys
from pathlib import Path
from harness.labour import Labour

async def main():
    labour = Labour(Path(sys.argv[1]))
    await labour.sh(sys.argv[2])

asyncio.run(main())
"""


@contextmanager
def a_runner(folder: Path, script: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run an operation in a process of its own, to be killed."""
    environ = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(folder), script], env=environ
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        end_survivors(folder / "run-1", 0.0)


async def ended(pid: int) -> None:
    """Wait for a process that is about to end."""
    with suppress(psutil.NoSuchProcess):
        while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            await asyncio.sleep(0.01)


def recorded(run_dir: Path, record: ProcessRecord) -> None:
    folder = run_dir / "operations" / record.operation
    folder.mkdir(parents=True, exist_ok=True)
    with Directory.open(folder) as directory:
        write_record(directory, record)


@pytest.mark.crash
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has PDEATHSIG")
async def test_a_child_dies_with_its_runner(tmp_path: Path) -> None:
    ready = Pipe(tmp_path / "ready")
    with a_runner(tmp_path, f"echo $$ >{ready.path}; exec sleep 600") as runner:
        pid = int(await ready.heard())
        runner.kill()
        runner.wait()
        await ended(pid)
    assert await asyncio.to_thread(survivors, tmp_path / "run-1") == ()


@pytest.mark.crash
async def test_what_outlives_its_runner_is_found_and_ended(tmp_path: Path) -> None:
    ready = Pipe(tmp_path / "ready")
    script = f"trap '' TERM; sleep 601 & echo $$ $! >{ready.path}; sleep 602; sleep 603"
    with a_runner(tmp_path, script) as runner:
        leader, inner = map(int, (await ready.heard()).split())
        while psutil.Process(inner).name() != "sleep":  # it was forked a moment ago
            await asyncio.sleep(0.01)
        runner.kill()
        runner.wait()
        found = await asyncio.to_thread(survivors, tmp_path / "run-1")
        pids = {one.pid for one in found}
        assert {leader, inner} <= pids
        assert {one.operation for one in found} == {"op"}
        assert {one.group for one in found} == {leader}
        words = {one.pid: one.command for one in found}
        assert (words[leader], words[inner]) == ("sh", "sleep")
        assert found[0].as_dict()["pid"] == found[0].pid
        left = await asyncio.to_thread(end_survivors, tmp_path / "run-1", 0.1)
        assert left == ()
        for pid in pids:
            await ended(pid)


@pytest.mark.crash
async def test_grandchildren_are_found_when_their_leader_is_gone(
    tmp_path: Path,
) -> None:
    ready = Pipe(tmp_path / "ready")
    script = f"(trap '' TERM; sleep 600; sleep 600) & echo $$ $! >{ready.path}; wait"
    with a_runner(tmp_path, script) as runner:
        leader, inner = map(int, (await ready.heard()).split())
        runner.kill()
        runner.wait()
        if sys.platform != "linux":
            os.kill(leader, signal.SIGKILL)
        await ended(leader)
        found = await asyncio.to_thread(survivors, tmp_path / "run-1")
        pids = {one.pid for one in found}
        assert inner in pids
        assert leader not in pids
        left = await asyncio.to_thread(end_survivors, tmp_path / "run-1", 0.1)
        assert left == ()


LEAVE = """
import os, signal, sys, time
if os.fork():
    os._exit(0)
os.setsid()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(sys.argv[1], "w") as ready:
    ready.write(str(os.getpid()))
time.sleep(600)
"""


@pytest.mark.crash
async def test_what_left_its_session_is_found_by_its_environment(
    tmp_path: Path,
) -> None:
    ready = Pipe(tmp_path / "ready")
    (tmp_path / "leave.py").write_text(LEAVE)
    script = f"{sys.executable} {tmp_path / 'leave.py'} {ready.path}; sleep 600"
    with a_runner(tmp_path, script) as runner:
        escaped = int(await ready.heard())
        runner.kill()
        runner.wait()
        found = await asyncio.to_thread(survivors, tmp_path / "run-1")
        mine = next(one for one in found if one.pid == escaped)
        assert (mine.operation, mine.group) == ("op", escaped)
        other = tmp_path / "elsewhere" / "run-1"  # a run of that name in another home
        assert escaped not in {
            one.pid for one in await asyncio.to_thread(survivors, other)
        }
        left = await asyncio.to_thread(end_survivors, tmp_path / "run-1", 0.1)
        assert left == ()
        await ended(escaped)


def test_who_asks_is_no_survivor_of_the_run_that_it_belongs_to(tmp_path: Path) -> None:
    """``heaveto resume --end-survivors`` typed in a shell that an operation opened."""
    run_dir = tmp_path / "run-1"
    script = f"""
from pathlib import Path
from heaveto.workers import survivors
print([one.pid for one in survivors(Path({str(run_dir)!r}))])
"""
    environ = {
        **os.environ,
        "PYTHONPATH": ":".join(sys.path),
        "HEAVETO_RUN_ID": "run-1",
        "HEAVETO_OPERATION": "op",
        "HEAVETO_CONTEXT": str(run_dir / "operations" / "op" / "context.json"),
    }
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -c '{script.replace(chr(39), chr(34))}'; true"],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


@pytest.mark.crash
async def test_a_command_that_is_not_on_record_never_runs(tmp_path: Path) -> None:
    """A runner dies between starting a child and recording it."""
    script = f"""
import os, signal, sys
from heaveto.workers.launch import launch
started = launch(["touch", {str(tmp_path / "ran")!r}], cwd="/", env=dict(os.environ),
                 has_stdin=True)
print(started.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    await ended(int(done.stdout))
    assert not (tmp_path / "ran").exists()


def test_a_child_that_is_not_released_just_exits(tmp_path: Path) -> None:
    argv = ["touch", str(tmp_path / "ran")]
    started = launch(argv, cwd="/", env=dict(os.environ), has_stdin=False)
    started.close()
    assert not psutil.pid_exists(started.pid)
    assert not (tmp_path / "ran").exists()


# --- strangers


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    environ = {**os.environ, "HEAVETO_RUN_ID": "run-1"}
    process = subprocess.Popen(["sleep", "600"], start_new_session=True, env=environ)
    yield process
    process.kill()
    process.wait()


def describe(pid: int, **changes: Any) -> ProcessRecord:
    record = ProcessRecord.of(pid, run_id="run-1", operation="op", command="sleep")
    return dataclasses.replace(record, **changes)


def test_the_recorded_process_is_known_again(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    record = describe(sleeper.pid)
    recorded(tmp_path, record)
    assert [one.pid for one in survivors(tmp_path)] == [sleeper.pid]
    assert ProcessRecord.from_dict(record.as_dict()) == record


def test_without_ticks_the_create_time_decides(
    sleeper: subprocess.Popen[bytes],
) -> None:
    known = describe(sleeper.pid, ticks=None, boot=None)
    assert [process.pid for process in members(known)] == [sleeper.pid]
    reused = dataclasses.replace(known, create_time=known.create_time - 5)
    assert members(reused) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts ticks")
def test_a_stepped_clock_does_not_hide_a_process(
    sleeper: subprocess.Popen[bytes],
) -> None:
    stepped = describe(sleeper.pid, create_time=1.0)
    assert [process.pid for process in members(stepped)] == [sleeper.pid]


@pytest.mark.parametrize(
    "changes",
    [
        {"ticks": 5},
        {"ticks": None, "boot": None, "create_time": 5.0},
        {"boot": "another boot"},
        {"host": "another-host"},
    ],
)
def test_a_stranger_with_the_same_pid_is_left_alone(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], changes: dict[str, Any]
) -> None:
    if sys.platform != "linux" and not {"host", "create_time"} & changes.keys():
        changes = {"create_time": 5.0}
    recorded(tmp_path, describe(sleeper.pid, **changes))
    assert survivors(tmp_path) == ()
    assert end_survivors(tmp_path, 0.0) == ()
    assert sleeper.poll() is None


def test_a_zombie_is_no_survivor(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    recorded(tmp_path, describe(sleeper.pid))
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert survivors(tmp_path) == ()


def test_an_orphaned_group_of_another_run_is_left_alone(tmp_path: Path) -> None:
    script = "sleep 600 >/dev/null & echo $!; read x"
    environ = {**os.environ, "HEAVETO_RUN_ID": "run-2"}
    shell = subprocess.Popen(
        ["sh", "-c", script],
        start_new_session=True,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert shell.stdout is not None
    inner = int(shell.stdout.readline())
    try:
        recorded(tmp_path / "one", describe(shell.pid))
        recorded(tmp_path / "two", describe(shell.pid, run_id="run-2"))
        shell.communicate()
        assert survivors(tmp_path / "one") == ()
        assert [one.pid for one in survivors(tmp_path / "two")] == [inner]
    finally:
        os.kill(inner, signal.SIGKILL)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"5",
        b"{}",
        b'{"pid": "x"}',
        b'{"pid": 1, "create_time": 1.0}',
        b'{"pid": -5, "create_time": 1.0}',
        b'{"pid": true, "create_time": 1.0}',
        b'{"pid": 5}',
        b'{"pid": 5, "create_time": "x"}',
        b'{"pid": 99999999999999999999, "create_time": 1.0}',
        b"\xff" * 100_000,
    ],
)
def test_a_damaged_record_names_nobody(tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "operations" / "op"
    folder.mkdir(parents=True)
    (folder / "process.json").write_bytes(content)
    assert survivors(tmp_path) == ()


def test_a_hostile_run_directory_names_nobody(tmp_path: Path) -> None:
    assert survivors(tmp_path / "absent") == ()
    operations = tmp_path / "operations"
    operations.mkdir()
    (operations / "a file").write_text("x")
    (operations / "link").symlink_to("/")
    (operations / "fifo").mkdir()
    os.mkfifo(operations / "fifo" / "process.json")
    (operations / "linked").mkdir()
    own = json.dumps(describe(os.getpid()).as_dict())
    (tmp_path / "elsewhere").write_text(own)
    (operations / "linked" / "process.json").symlink_to(tmp_path / "elsewhere")
    assert survivors(tmp_path) == ()


def test_labour_has_a_run_directory(tmp_path: Path) -> None:
    assert survivors(Labour(tmp_path).run_dir) == ()
