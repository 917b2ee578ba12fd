"""The command worker, with real children."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from harness.labour import Labour, Pipe, never_blocking
from heaveto.errors import OperationError
from heaveto.jsonvalue import MAX_DEPTH
from heaveto.workers import command
from heaveto.workers.records import ProcessRecord

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def loop_stays_free() -> Iterator[None]:
    with never_blocking():
        yield


@pytest.fixture
def labour(tmp_path: Path) -> Labour:
    return Labour(tmp_path)


async def refused(work: Any) -> OperationError:
    with pytest.raises(OperationError) as found:
        await work
    return found.value


def gone(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return True


# --- input, output, surroundings


async def test_the_response_is_what_it_prints(labour: Labour) -> None:
    assert await labour.sh("cat; printf ' and more\n'", "hello") == "hello and more\n"
    assert labour.read("output.log") == "hello and more\n"
    assert labour.read("instruction.txt") == "hello"
    assert labour.read("error.log") == ""


async def test_the_instruction_as_an_argument(labour: Labour) -> None:
    argv = [sys.executable, "-c", "import sys; print(sys.argv[1:], sys.stdin.read())"]
    members = {"kind": "command", "argv": argv, "input": "argument"}
    assert await labour.do(members, "a 'b' $c") == "[\"a 'b' $c\"] \n"


async def test_no_shell_comes_between(labour: Labour) -> None:
    members = {"kind": "command", "argv": ["echo", "$HOME;", "*", "`x`"]}
    assert await labour.do(members) == "$HOME; * `x`\n"


async def test_a_child_sees_where_it_is(labour: Labour, tmp_path: Path) -> None:
    members = {
        "kind": "command",
        "argv": ["sh", "-c", "env | sort; pwd"],
        "env": {"MINE": "ü", "HEAVETO_RUN_ID": "forged"},
        "cwd": str(tmp_path),
    }
    response = str(await labour.do(members))
    lines = response.splitlines()
    assert "MINE=ü" in lines
    assert "HEAVETO_RUN_ID=run-1" in lines
    assert "HEAVETO_OPERATION=op" in lines
    assert f"HEAVETO_ARTIFACTS={labour.run_dir}/artifacts/op" in lines
    assert f"HEAVETO_CONTEXT={labour.folder()}/context.json" in lines
    assert f"PATH={os.environ['PATH']}" in lines
    assert lines[-1] == str(tmp_path)


async def test_the_environment_is_just_what_was_asked_for(labour: Labour) -> None:
    """Nothing of the interpreter between leaks, nothing of the worker's harms it."""
    members = {
        "kind": "command",
        "argv": [sys.executable, "-I", "-c", "import os; print(dict(os.environb))"],
        "env": {
            "PYTHONHOME": "/nowhere",
            "LD_PRELOAD": "",
            "LC_ALL": "C",
            "TWO": "a\nb=c",
            "EMPTY": "",
            "LONG": "x" * 100_000,
        },
    }
    seen = eval(str(await labour.do(members)))
    expected = {
        **os.environ,
        **members["env"],  # type: ignore[dict-item]
        "HEAVETO_RUN_ID": "run-1",
        "HEAVETO_OPERATION": "op",
        "HEAVETO_ARTIFACTS": f"{labour.run_dir}/artifacts/op",
        "HEAVETO_CONTEXT": f"{labour.folder()}/context.json",
    }
    assert seen == {os.fsencode(k): os.fsencode(v) for k, v in expected.items()}


async def test_the_context_is_a_json_file(labour: Labour) -> None:
    context = {"a_result": {"x": [1, "ü", None]}, "k": True}
    members = {
        "kind": "command",
        "argv": ["sh", "-c", 'cat "$HEAVETO_CONTEXT"'],
        "output": "json",
    }
    assert await labour.do(members, context=context) == context


async def test_the_deepest_response_still_reaches_a_dependent(labour: Labour) -> None:
    deepest: object = 1
    for _ in range(MAX_DEPTH):
        deepest = [deepest]
    await labour.sh("true", context={"a_result": deepest})
    assert len(labour.read("context.json")) == len('{"a_result":1}\n') + 2 * MAX_DEPTH


async def test_files_belong_to_their_owner_alone(labour: Labour) -> None:
    before = os.umask(0)
    try:
        await labour.sh('echo x >"$HEAVETO_ARTIFACTS/made"; echo y >&2')
    finally:
        os.umask(before)
    modes = {
        str(path.relative_to(labour.run_dir)): path.stat().st_mode & 0o777
        for path in labour.run_dir.rglob("*")
        if path.name != "made"
    }
    assert modes == {
        "artifacts": 0o700,
        "artifacts/op": 0o700,
        "operations": 0o700,
        "operations/op": 0o700,
        "operations/op/context.json": 0o600,
        "operations/op/error.log": 0o600,
        "operations/op/instruction.txt": 0o600,
        "operations/op/output.log": 0o600,
    }


async def test_a_child_starts_with_ordinary_signals_and_no_foreign_files(
    labour: Labour,
) -> None:
    script = """
import os, signal, sys
print([s.name for s in signal.Signals if signal.getsignal(s) is signal.SIG_IGN])
print(sorted(int(fd) for fd in os.listdir("/dev/fd"))[:4])
print(os.getpid() == os.getpgid(0) == os.getsid(0))
"""
    read, write = os.pipe()
    os.set_inheritable(read, True)
    try:
        # The interpreter itself ignores SIGPIPE and SIGXFSZ at its start.
        argv = [sys.executable, "-c", script]
        response = str(await labour.do({"kind": "command", "argv": argv}))
    finally:
        os.close(read)
        os.close(write)
    ignored, files, leads = response.splitlines()
    assert set(eval(ignored)) <= {"SIGPIPE", "SIGXFSZ"}
    assert files == "[0, 1, 2, 3]"
    assert leads == "True"
    status = str(await labour.sh("grep SigIgn /proc/self/status || echo SigIgn: 0"))
    # The C library keeps a few numbers for itself; no program can change those.
    ordinary = sum(1 << (number - 1) for number in signal.valid_signals())
    assert int(status.split()[1], 16) & ordinary == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has it")
async def test_a_child_asks_for_term_when_its_runner_dies(labour: Labour) -> None:
    script = """
import ctypes
value = ctypes.c_int()
ctypes.CDLL(None).prctl(2, ctypes.byref(value))
print(value.value)
"""
    argv = [sys.executable, "-c", script]
    assert await labour.do({"kind": "command", "argv": argv}) == "15\n"


# --- process.json


async def test_a_child_is_on_record_while_it_lives(
    labour: Labour, tmp_path: Path
) -> None:
    ready, go = Pipe(tmp_path / "ready"), Pipe(tmp_path / "go")
    script = f"echo $$ >{ready.path}; read x <{go.path}; echo end"
    work = asyncio.ensure_future(labour.sh(script))
    pid = int(await ready.heard())
    file = labour.folder() / "process.json"
    assert file.stat().st_mode & 0o777 == 0o600
    record = json.loads(file.read_text())
    assert record["pid"] == record["group"] == pid
    assert record["create_time"] == psutil.Process(pid).create_time()
    assert (record["run_id"], record["operation"]) == ("run-1", "op")
    assert record["command"] == "sh"
    assert os.getpgid(pid) == pid
    await go.say()
    assert await work == "end\n"
    assert not file.exists()
    assert gone(pid)


async def test_a_command_that_cannot_be_recorded_never_runs(
    labour: Labour, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(command, "write_record", full)
    error = await refused(labour.sh(f"touch {tmp_path}/ran"))
    assert error.code == "not_started"
    assert "No space left" in error.message
    assert not (tmp_path / "ran").exists()


# --- ends


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("exit 3", "exit status 3"),
        ("echo why >&2; exit 1", "exit status 1: why"),
        ("kill -9 $$", "ended by SIGKILL"),
        ("kill -TERM $$", "ended by SIGTERM"),
        ("yes out | head -c 3000000; exit 2", "exit status 2"),
    ],
)
async def test_another_exit_than_zero_fails(
    labour: Labour, script: str, text: str
) -> None:
    error = await refused(labour.sh(script))
    assert (error.code, error.message) == ("exit_nonzero", text)


async def test_the_end_of_stderr_is_kept(labour: Labour) -> None:
    error = await refused(
        labour.sh(
            "yes noise | head -c 120000 >&2; printf 'the \\377 end\\n' >&2; false"
        )
    )
    assert error.message.endswith("noise\nthe \ufffd end")
    assert len(error.message) < 2100
    assert len(labour.read("error.log")) == 120_000 + len("the ? end\n")


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"argv": ["no-such-program-here"]}, "cannot be executed: No such file"),
        ({"argv": ["/etc/passwd"]}, "cannot be executed: Permission denied"),
        ({"argv": ["/"]}, "cannot be executed"),
        ({"argv": ["true"], "cwd": "/no/such/folder"}, "no folder /no/such/folder"),
        ({"argv": ["true"], "cwd": "/etc/hostname"}, "no folder /etc/hostname"),
        ({"argv": ["true"], "input": "argument"}, "too long"),
    ],
)
async def test_what_cannot_be_started(
    labour: Labour, members: dict[str, Any], says: str
) -> None:
    error = await refused(labour.do({"kind": "command", **members}, "x" * 3_000_000))
    assert error.code == "not_started"
    assert says in error.message
    assert not (labour.folder() / "process.json").exists()


async def test_nul_in_an_argument(labour: Labour) -> None:
    members = {"kind": "command", "argv": ["echo"], "input": "argument"}
    error = await refused(labour.do(members, "a\0b"))
    assert (error.code, "NUL" in error.message) == ("not_started", True)


async def test_an_unknown_worker(labour: Labour) -> None:
    await labour.sh("true")
    pool = labour.workers()
    from heaveto.model import Node, Prepared

    node = Node(id="i", name="op", assignee="nobody", instruction="")
    prepared = Prepared(node=node, instruction="", context={})
    assert (await refused(pool.invoke(prepared))).code == "not_started"


async def test_a_status_that_somebody_else_took_is_no_success(labour: Labour) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        error = await refused(labour.sh("exit 7"))
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert (error.code, "lost" in error.message) == ("worker_error", True)


# --- output


@pytest.mark.parametrize(
    ("printed", "value"),
    [
        ("5", 5),
        ('{"a": [1, null]}\n\n', {"a": [1, None]}),
        ('"x"', "x"),
        ("null", None),
    ],
)
async def test_json_output(labour: Labour, printed: str, value: object) -> None:
    assert await labour.sh("cat", printed, output="json") == value


@pytest.mark.parametrize(
    ("printed", "kind"),
    [
        ("", "malformed"),
        ("{", "malformed"),
        ("x secret", "malformed"),
        ('{"a": 1} {"b": 2}', "malformed"),
        ('{"a": 1, "a": 2}', "duplicate"),
        ("[NaN]", "nonfinite"),
        ("[1e999]", "nonfinite"),
    ],
)
async def test_output_that_is_no_json(labour: Labour, printed: str, kind: str) -> None:
    error = await refused(labour.sh("cat", printed, output="json"))
    assert error.code == "output_invalid"
    assert error.message == f"the output is no strict JSON ({kind})"


async def test_bytes_that_are_no_text_are_replaced_and_logged_as_they_are(
    labour: Labour,
) -> None:
    assert await labour.sh("printf 'a\\377\\000b'") == "a\ufffd\0b"
    assert (labour.folder() / "output.log").read_bytes() == b"a\xff\0b"


async def test_more_output_than_the_limit_fails_but_is_logged(labour: Labour) -> None:
    script = "head -c 1000001 /dev/zero | tr '\\0' x"
    error = await refused(labour.sh(script, output_limit=1_000_000))
    assert error.code == "output_limit"
    assert "1000001" in error.message
    assert len(labour.read("output.log")) == 1_000_001


async def test_output_of_just_the_limit_is_taken(labour: Labour) -> None:
    script = "head -c 1000000 /dev/zero | tr '\\0' x"
    assert await labour.sh(script, output_limit=1_000_000) == "x" * 1_000_000


async def test_a_long_log_keeps_its_head_and_its_tail(labour: Labour) -> None:
    script = "echo first; yes middle | head -c 700000; echo last"
    await refused(labour.sh(script, output_limit=10, log_limit=1000))
    log = labour.read("output.log")
    assert log.startswith("first\nmiddle\n")
    assert log.endswith("\nlast\n")
    assert "[699011 bytes left out]" in log
    assert len(log) < 1100


async def test_a_log_can_be_followed_while_it_grows(
    labour: Labour, tmp_path: Path
) -> None:
    ready, go = Pipe(tmp_path / "ready"), Pipe(tmp_path / "go")
    script = f"echo one; echo two >&2; echo r >{ready.path}; read x <{go.path}; echo 3"
    work = asyncio.ensure_future(labour.sh(script))
    await ready.heard()
    await grown(labour.folder() / "output.log", "one\n")
    await grown(labour.folder() / "error.log", "two\n")
    await go.say()
    assert await work == "one\n3\n"


async def grown(file: Path, text: str) -> None:
    while file.read_text() != text:
        await asyncio.sleep(0)


async def test_a_child_that_does_not_read_its_input(labour: Labour) -> None:
    assert await labour.sh("exec <&-; echo done", "x" * 5_000_000) == "done\n"
    assert await labour.sh("echo done", "x" * 5_000_000) == "done\n"


async def test_much_in_and_much_out_at_once(labour: Labour) -> None:
    text = "x" * 3_000_000
    assert await labour.sh("tee /dev/stderr", text, output_limit="4MiB") == text
    assert len(labour.read("error.log")) == 3_000_000


async def test_half_a_surrogate_pair_in_an_instruction(labour: Labour) -> None:
    assert await labour.sh("cat", "a\udc00b") == "a?b"


async def test_many_children_at_once(labour: Labour) -> None:
    from harness.labour import spec
    from heaveto.model import Node, Prepared

    pool = labour.workers(w=spec(kind="command", argv=["cat"]))

    async def one(number: int) -> object:
        node = Node(id=str(number), name=f"o{number}", assignee="w", instruction="")
        prepared = Prepared(node=node, instruction=f"text {number}", context={})
        await pool.prepare(prepared)
        return await pool.invoke(prepared)

    answers = await asyncio.gather(*(one(number) for number in range(40)))
    assert answers == [f"text {number}" for number in range(40)]
    assert not list(labour.run_dir.rglob("process.json"))


# --- timeouts, cancellation, what stays behind


async def test_a_timeout_ends_the_whole_group(labour: Labour, tmp_path: Path) -> None:
    pids = Pipe(tmp_path / "pids")
    script = f"sleep 600 & echo $$ $! >{pids.path}; wait"
    work = asyncio.ensure_future(labour.sh(script, timeout=0.5, grace=60))
    found = [int(pid) for pid in (await pids.heard()).split()]
    error = await refused(work)
    assert (error.code, error.message) == ("timeout", "no end within 0.5 s")
    assert all(gone(pid) for pid in found)
    assert not (labour.folder() / "process.json").exists()


async def test_what_ignores_term_is_killed_after_the_grace(
    labour: Labour, tmp_path: Path
) -> None:
    pids = Pipe(tmp_path / "pids")
    script = f"trap '' TERM; echo $$ >{pids.path}; echo part; sleep 600; sleep 600"
    work = asyncio.ensure_future(labour.sh(script, timeout=0.3, grace=0.2))
    pid = int(await pids.heard())
    assert (await refused(work)).code == "timeout"
    assert gone(pid)
    assert labour.read("output.log") == "part\n"


async def test_a_grandchild_that_ignores_term_is_killed_too(
    labour: Labour, tmp_path: Path
) -> None:
    pids = Pipe(tmp_path / "pids")
    inner = f"trap '' TERM; echo $$ >{pids.path}; sleep 600; sleep 600"
    script = f'sh -c "{inner}" & wait'.replace("$$", "\\$\\$")
    work = asyncio.ensure_future(labour.sh(script, timeout=0.3, grace=0.2))
    pid = int(await pids.heard())
    assert (await refused(work)).code == "timeout"
    assert gone(pid)


async def test_a_silent_grandchild_that_ignores_term_is_killed_too(
    labour: Labour, tmp_path: Path
) -> None:
    pids = Pipe(tmp_path / "pids")
    script = (
        f"(trap '' TERM; sleep 600; sleep 600) >/dev/null 2>&1 & echo $! >{pids.path}; "
        "wait"
    )
    work = asyncio.ensure_future(labour.sh(script, timeout=0.3, grace=0.2))
    pid = int(await pids.heard())
    assert (await refused(work)).code == "timeout"
    assert gone(pid)


async def test_a_grandchild_with_a_group_of_its_own_is_ended_too(
    labour: Labour, tmp_path: Path
) -> None:
    pids = Pipe(tmp_path / "pids")
    script = f"""
import os, time
if os.fork() == 0:
    os.setpgid(0, 0)
    open({str(pids.path)!r}, "w").write(str(os.getpid()))
time.sleep(600)
"""
    argv = [sys.executable, "-c", script]
    members = {"kind": "command", "argv": argv, "timeout": 0.3, "grace": 5}
    work = asyncio.ensure_future(labour.do(members))
    pid = int(await pids.heard())
    assert os.getpgid(pid) == pid
    assert (await refused(work)).code == "timeout"
    assert gone(pid)


async def test_a_cancelled_call_ends_its_processes(
    labour: Labour, tmp_path: Path
) -> None:
    pids = Pipe(tmp_path / "pids")
    work = asyncio.ensure_future(labour.sh(f"echo $$ >{pids.path}; sleep 600"))
    pid = int(await pids.heard())
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert gone(pid)
    assert not (labour.folder() / "process.json").exists()


async def test_a_second_cancel_does_not_wait_for_the_kill(
    labour: Labour, tmp_path: Path
) -> None:
    ready, told = Pipe(tmp_path / "ready"), Pipe(tmp_path / "told")
    script = (
        f"trap 'echo >{told.path}' TERM; echo $$ >{ready.path}; "
        "while :; do sleep 600 & wait; done"
    )
    members = {"kind": "command", "argv": ["sh", "-c", script]}
    work = asyncio.ensure_future(labour.do(members, kill_after=600.0))
    pid = int(await ready.heard())
    work.cancel()
    await told.heard()
    assert not work.done()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert gone(pid)


async def test_a_cancel_before_the_program_runs(labour: Labour) -> None:
    work = asyncio.ensure_future(labour.sh("sleep 600"))
    while not (labour.folder() / "instruction.txt").exists():
        await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


async def test_a_background_process_does_not_hold_its_operation(
    labour: Labour, tmp_path: Path
) -> None:
    script = f"sleep 600 & echo $! >{tmp_path}/pid; echo started"
    assert await labour.sh(script) == "started\n"
    pid = int((tmp_path / "pid").read_text())
    assert not gone(pid)
    record = json.loads((labour.folder() / "process.json").read_text())
    assert ProcessRecord.from_dict(record) is not None
    await labour.pool.aclose()
    assert gone(pid)
    assert not (labour.folder() / "process.json").exists()
