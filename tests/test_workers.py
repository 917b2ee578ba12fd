"""Python and scripted workers, their logs, and what all workers share."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.labour import Labour, never_blocking, spec
from heaveto.errors import FlowError, OperationError
from heaveto.files import Directory
from heaveto.model import Node, Prepared
from heaveto.responses import failure
from heaveto.workers.logs import Log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from heaveto.workers import Request


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


# --- python


def named(function: Any) -> Any:
    """Let a function of a test be found by its module and name."""
    function.__qualname__ = function.__name__
    globals()[function.__name__] = function
    return function


def describe(request: Request) -> dict[str, object]:
    request.context["mine"] = "changed"
    return {
        "instruction": request.instruction,
        "run_id": request.run_id,
        "operation": request.operation,
        "artifacts": request.artifacts.name,
        "messages": list(request.messages),
        "thread": threading.current_thread() is not threading.main_thread(),
        "daemon": threading.current_thread().daemon,
    }


async def describe_async(request: Request) -> dict[str, object]:
    await asyncio.sleep(0)
    return describe(request)


def returns_awaitable(request: Request) -> object:
    return describe_async(request)


@pytest.mark.parametrize(
    ("function", "in_thread"),
    [(describe, True), (describe_async, False), (returns_awaitable, False)],
)
async def test_a_function_is_given_its_request(
    labour: Labour, function: Any, in_thread: bool
) -> None:
    context: dict[str, object] = {"k": 1}
    response = await labour.do(
        {"kind": "python", "call": function}, "hello", context=context
    )
    assert response == {
        "instruction": "hello",
        "run_id": "run-1",
        "operation": "op",
        "artifacts": "op",
        "messages": [],
        "thread": in_thread,
        "daemon": in_thread,
    }
    assert json.loads(labour.read("output.log")) == response
    assert json.loads(labour.read("context.json")) == {"k": 1}
    assert (labour.run_dir / "artifacts" / "op").is_dir()


def not_json(_: Request) -> object:
    return {"x": [1, {"y": float("nan")}]}


def raises(_: Request) -> object:
    raise KeyError("missing")


def exits(_: Request) -> object:
    raise SystemExit(3)


async def exits_async(_: Request) -> object:
    raise SystemExit(4)


def stops(_: Request) -> object:
    raise StopIteration


async def test_a_result_that_is_no_json_value_names_its_place(labour: Labour) -> None:
    error = await refused(labour.do({"kind": "python", "call": not_json}))
    assert error.code == "output_invalid"
    assert "$.x[1].y" in error.message


async def test_other_objects_become_their_text(labour: Labour, tmp_path: Path) -> None:
    @named
    def paths(_: Request) -> object:
        return {"p": tmp_path, "t": (1, 2)}

    response = await labour.do({"kind": "python", "call": paths})
    assert response == {"p": str(tmp_path), "t": [1, 2]}


async def test_an_exception_is_passed_on_and_logged(labour: Labour) -> None:
    with pytest.raises(KeyError):
        await labour.do({"kind": "python", "call": raises})
    assert "KeyError: 'missing'" in labour.read("error.log")
    assert 'raise KeyError("missing")' in labour.read("error.log")
    assert "heaveto/workers" not in labour.read("error.log")


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (exits, "SystemExit: 3"),
        (exits_async, "SystemExit: 4"),
        (stops, "StopIteration"),
    ],
)
async def test_a_function_cannot_end_the_runner(
    labour: Labour, function: Any, says: str
) -> None:
    error = await refused(labour.do({"kind": "python", "call": function}))
    assert error.code == "worker_error"
    assert says in error.message


async def test_a_blocked_function_times_out_and_its_late_result_is_dropped(
    labour: Labour,
) -> None:
    let_go, returned = threading.Event(), threading.Event()

    @named
    def blocks(_: Request) -> str:
        let_go.wait()
        returned.set()
        return "too late"

    error = await refused(
        labour.do({"kind": "python", "call": blocks, "timeout": 0.05})
    )
    assert error.code == "timeout"
    thread = next(t for t in threading.enumerate() if t.name == "python op")
    assert thread.daemon
    let_go.set()
    await asyncio.to_thread(thread.join)
    assert returned.is_set()
    assert "after the end" in labour.read("error.log")
    assert labour.read("output.log") == ""


async def test_a_cancelled_call_does_not_wait_for_its_thread(labour: Labour) -> None:
    running, let_go = threading.Event(), threading.Event()

    @named
    def blocks_too(_: Request) -> None:
        running.set()
        let_go.wait()

    work = asyncio.ensure_future(labour.do({"kind": "python", "call": blocks_too}))
    await asyncio.to_thread(running.wait)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    let_go.set()


async def test_an_asynchronous_function_is_cancelled(labour: Labour) -> None:
    seen: list[str] = []
    running = asyncio.Event()

    @named
    async def waits(_: Request) -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("ended")

    work = asyncio.ensure_future(labour.do({"kind": "python", "call": waits}))
    await running.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert seen == ["ended"]
    error = await refused(labour.do({"kind": "python", "call": waits, "timeout": 0.05}))
    assert error.code == "timeout"


def test_a_blocked_function_does_not_hold_the_process(tmp_path: Path) -> None:
    script = tmp_path / "flow.py"
    script.write_text(
        "import asyncio, threading\n"
        "from pathlib import Path\n"
        "from harness.labour import Labour\n"
        "from heaveto.errors import OperationError\n"
        "def forever(request):\n"
        "    threading.Event().wait()\n"
        "async def main():\n"
        f"    labour = Labour(Path({str(tmp_path)!r}))\n"
        "    try:\n"
        "        worker = {'kind': 'python', 'call': forever, 'timeout': 0.05}\n"
        "        await labour.do(worker)\n"
        "    except OperationError as error:\n"
        "        print(error.code)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "timeout\n"


def python_worker(folder: Path, call: str) -> Any:
    import dataclasses

    return dataclasses.replace(spec(kind="python", call=call), folder=str(folder))  # type: ignore[arg-type]


async def test_a_module_beside_the_flow_is_found(
    labour: Labour, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "beside_the_flow.py").write_text(
        "class Deep:\n    @staticmethod\n    def f(request):\n        return 'found'\n"
    )
    pool = labour.workers(w=python_worker(tmp_path, "beside_the_flow:Deep.f"))
    pool.check()
    assert sys.path[-1] == str(tmp_path)
    node = Node(id="i", name="op", assignee="w", instruction="")
    prepared = Prepared(node=node, instruction="", context={})
    await pool.prepare(prepared)
    assert await pool.invoke(prepared) == "found"


@pytest.mark.parametrize(
    ("source", "call", "says"),
    [
        ("", "absent_{}:f", "No module named"),
        ("", "m_{}:f", "no attribute 'f'"),
        ("f = 5", "m_{}:f", "is no function"),
        ("1 / 0", "m_{}:f", "ZeroDivisionError"),
        ("raise SystemExit", "m_{}:f", "SystemExit"),
    ],
)
async def test_a_function_that_cannot_be_loaded(
    labour: Labour,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    call: str,
    says: str,
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    mark = tmp_path.name.replace("-", "_")
    (tmp_path / f"m_{mark}.py").write_text(source)
    pool = labour.workers(w=python_worker(tmp_path, call.format(mark)))
    with pytest.raises(FlowError) as found:
        pool.check()
    assert found.value.code == "worker_unusable"
    assert says in str(found.value)
    node = Node(id="i", name="op", assignee="w", instruction="")
    prepared = Prepared(node=node, instruction="", context={})
    await pool.prepare(prepared)
    assert (await refused(pool.invoke(prepared))).code == "not_started"


# --- scripted


async def test_the_first_reply_that_applies_is_given(labour: Labour) -> None:
    members = {
        "kind": "scripted",
        "replies": [
            {"operation": "op", "attempt": 2, "response": {"second": True}},
            {"operation": "op", "error": "not yet", "log": ["tried", "gave up"]},
            {"response": "anything else"},
        ],
    }
    error = await refused(labour.do(members))
    assert (error.code, error.message) == ("worker_error", "not yet")
    assert labour.read("output.log") == "tried\ngave up\n"
    assert labour.read("error.log") == "not yet\n"
    assert await labour.do(members, attempt=2) == {"second": True}
    assert labour.read("output.log") == 'tried\ngave up\n{"second": true}\n'


async def test_without_a_reply_it_fails(labour: Labour) -> None:
    members = {"kind": "scripted", "replies": []}
    assert (await refused(labour.do(members))).code == "worker_error"


async def test_a_reply_may_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    from heaveto.workers.call import Call, Request
    from heaveto.workers.scripted import run_scripted

    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    class Quiet(Call):
        def write_logs(self, output: str, errors: str = "") -> None:
            pass

    request: Any = Request.__new__(Request)
    object.__setattr__(request, "operation", "op")
    call = Quiet(
        request=request,
        attempt=1,
        folder=None,  # type: ignore[arg-type]
        conversations=None,  # type: ignore[arg-type]
        log_limit=1,
        kill_after=1.0,
    )
    script: Any = spec(kind="scripted", replies=[{"after": "2m", "response": 1}])
    assert await run_scripted(script, call, sleep) == 1
    assert slept == [120.0]


async def test_a_late_reply_can_time_out_and_be_cancelled(labour: Labour) -> None:
    members = {"kind": "scripted", "replies": [{"after": "1h"}]}
    error = await refused(labour.do({**members, "timeout": 0.05}))
    assert error.code == "timeout"
    work = asyncio.ensure_future(labour.do(members))
    while not (labour.folder() / "instruction.txt").exists():
        await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


async def test_a_scripted_conversation_is_kept(labour: Labour) -> None:
    messages = [{"role": "user", "content": "x"}]
    members = {"kind": "scripted", "replies": [{"response": 1, "messages": messages}]}
    assert await labour.do(members) == 1
    file = labour.run_dir / "conversations" / "op.json"
    assert json.loads(file.read_text()) == messages
    assert file.stat().st_mode & 0o777 == 0o600


class Strange(BaseException):
    """What no ``except Exception`` catches, and what cannot even be written."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "error", [Strange, GeneratorExit, KeyboardInterrupt, SystemExit, Speechless]
)
@pytest.mark.parametrize("way", ["def", "async def"])
async def test_whatever_a_function_raises_is_its_operations_failure(
    labour: Labour,
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException],
    way: str,
) -> None:
    # A run in a process of its own handles signals itself: no key press raises here.
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.SIG_DFL)

    def raises_anything(_: Request) -> None:
        raise error

    async def raises_any_later(_: Request) -> None:
        raise error

    function = named(raises_anything if way == "def" else raises_any_later)
    with pytest.raises(Exception) as found:  # noqa: PT011  (its kind is asserted)
        await labour.do({"kind": "python", "call": function})
    outcome = failure("op", found.value)
    assert outcome.error_code == "worker_error"
    assert error.__name__ in str(outcome.error_text)
    assert error.__name__ in labour.read("error.log") or way == "def"


def test_a_key_press_is_no_failure_of_a_worker(tmp_path: Path) -> None:
    """A program of the user's own, in which Python's handler is in place."""
    script = f"""
import asyncio
from pathlib import Path
from harness.labour import Labour

async def pressed(request):
    raise KeyboardInterrupt

labour = Labour(Path({str(tmp_path)!r}))
loop = asyncio.new_event_loop()
loop.run_until_complete(labour.do({{"kind": "python", "call": pressed}}))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")
    assert done.returncode == -signal.SIGINT


async def test_a_module_may_raise_anything(labour: Labour, tmp_path: Path) -> None:
    (tmp_path / "raises_on_import.py").write_text(
        "class Odd(BaseException): pass\nraise Odd('no')\n"
    )
    pool = labour.workers(w=python_worker(tmp_path, "raises_on_import:f"))
    with pytest.raises(FlowError, match="raises_on_import:f cannot be loaded: Odd: no"):
        await asyncio.to_thread(pool.check)


async def test_work_that_was_done_does_not_fail_over_its_lost_folder(
    labour: Labour,
) -> None:
    script = f"rm -rf {labour.run_dir}; echo done"
    assert await labour.sh(script) == "done\n"


# --- what all workers share


@pytest.mark.parametrize("way", ["operations", "operations/op", "artifacts/op"])
async def test_folders_that_cannot_be_made(labour: Labour, way: str) -> None:
    there = labour.run_dir / way
    there.parent.mkdir(exist_ok=True)
    there.write_text("in the way")
    error = await refused(labour.sh("true"))
    assert (error.code, "not a directory" in error.message) == ("not_started", True)


async def test_a_folder_is_not_reached_through_a_link(
    labour: Labour, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (labour.run_dir / "operations").mkdir()
    (labour.run_dir / "operations" / "op").symlink_to(tmp_path / "elsewhere")
    assert (await refused(labour.sh("true"))).code == "not_started"
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_an_instruction_that_cannot_be_written(
    labour: Labour, monkeypatch: pytest.MonkeyPatch
) -> None:
    from heaveto.workers import pool

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    await labour.sh("true")
    monkeypatch.setattr(pool, "replace_file", full)
    error = await refused(labour.sh("true"))
    assert (error.code, "No space" in error.message) == ("not_started", True)


def test_grace_is_that_of_the_worker(labour: Labour) -> None:
    pool = labour.workers(
        c=spec(kind="command", argv=["true"], grace="3s"),
        s=spec(kind="scripted", replies=[]),
    )
    assert [pool.grace(name) for name in ("c", "s", "unknown")] == [3.0, 10.0, 10.0]


# --- logs


def limited(
    folder: Path, chunks: list[bytes], limit: int, name: str = "x.log"
) -> bytes:
    with Directory.open(folder) as directory:
        log = Log(directory, name, limit)
        for chunk in chunks:
            log.write(chunk)
        log.close()
        assert log.error is None
        content = directory.read(name)
        directory.remove(name)
    return content


@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(1, 120))
def test_a_log_is_whole_or_says_what_is_missing(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes], limit: int
) -> None:
    whole = b"".join(chunks)
    content = limited(tmp_path_factory.getbasetemp(), chunks, limit)
    if len(whole) <= limit:
        assert content == whole
        return
    left_out = len(whole) - limit
    tail = limit // 2
    mark = f"\n[{left_out} bytes left out]\n".encode()
    end = whole[len(whole) - tail :]
    assert content == whole[: limit - tail] + mark + end


def test_a_log_that_exists_is_continued(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(b"before\n")
    assert limited(tmp_path, [b"after\n"], 100) == b"before\nafter\n"


def test_a_log_is_never_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"keep")
    (tmp_path / "x.log").symlink_to(tmp_path / "target")
    with (
        Directory.open(tmp_path) as directory,
        pytest.raises(Exception, match="not a regular file"),
    ):
        Log(directory, "x.log", 10)
    assert (tmp_path / "target").read_bytes() == b"keep"


async def test_a_log_that_fills_the_disk_changes_no_outcome(
    labour: Labour, monkeypatch: pytest.MonkeyPatch
) -> None:
    from heaveto.files import OwnedFile

    append = OwnedFile.append

    def full(self: OwnedFile, data: Any) -> None:
        if self.name == "output.log":
            raise OSError(28, "No space left on device")
        append(self, data)

    monkeypatch.setattr(OwnedFile, "append", full)
    assert await labour.sh("echo fine; echo also >&2") == "fine\n"
    assert list(labour.pool.log_errors) == ["op"]
    assert labour.read("error.log") == "also\n"
