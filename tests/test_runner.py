"""One run from its directory to its end, in this process; ordered by events."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.work import doing
from heaveto import Flow, Operation
from heaveto.checkpoint import load_checkpoint
from heaveto.controls import enqueue, enqueue_async
from heaveto.errors import (
    CheckpointPersistenceError,
    CheckpointValueError,
    FlowError,
    ForeignOwnerError,
    HomeError,
    StateDBError,
)
from heaveto.executor import Result
from heaveto.homes import open_home
from heaveto.model import OperationStatus, Outcome, RunStatus, Signal
from heaveto.observe import Observer
from heaveto.runner import Finished, Options, lifecycle, run_flow
from heaveto.runner.ending import Cause, Ending
from heaveto.runner.outputs import result_digest
from heaveto.runner.saves import Saves
from heaveto.runner.verdict import judge
from heaveto.runs import Home, read_run_json
from heaveto.statedb import ReadDB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from heaveto.observe.snapshot import RunDetail
    from heaveto.runner.contract import Registered, Trouble


class Told:
    """A reporter that keeps what it is told, and can wait for some of it."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, ...]] = []
        self.troubles: list[Trouble] = []
        self.run: Registered | None = None
        self._changed = asyncio.Event()

    def _note(self, *words: str) -> None:
        self.lines.append(words)
        self._changed.set()

    def registered(self, run: Registered) -> None:
        self.run = run
        self._note("registered")

    def signal(self, signal: Signal) -> None:
        self._note(str(signal.kind), signal.name)

    def executed(self, name: str, outcome: Outcome) -> None:
        self._note("executed", name)

    def persisted(self, name: str, seq: int | None) -> None:
        self._note("persisted", name, str(seq))

    def trouble(self, trouble: Trouble) -> None:
        self.troubles.append(trouble)
        self._note("trouble", trouble.code)

    def ending(self, cause: Cause, again: bool) -> None:
        self._note("ending", cause.word)

    async def wait_for(self, *words: str) -> None:
        async with asyncio.timeout(30):
            while not any(line[: len(words)] == words for line in self.lines):
                self._changed.clear()
                await self._changed.wait()


def scripted(*replies: dict[str, object]) -> dict[str, object]:
    return {"kind": "scripted", "replies": [*replies, {"response": "done"}]}


def chain(*names: str) -> list[Operation]:
    return [
        Operation(name, "w", f"do {name}", depends_on=[names[at - 1]] if at else [])
        for at, name in enumerate(names)
    ]


def flow_of(
    operations: Iterable[Operation],
    worker: dict[str, object] | None = None,
    **more: Any,
) -> Flow:
    return Flow("test", list(operations), workers={"w": worker or scripted()}, **more)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return open_home(tmp_path / "home")


def shown(home: Home, finished: Finished) -> RunDetail:
    with Observer((home,)) as observer:
        return observer.read_run(finished.registered.session_id)


def rows(home: Home, sql: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(home.state_db) as connection:
        found = connection.execute(sql).fetchall()
    connection.close()
    return found


# --- a run that goes well


@pytest.mark.parametrize("version", [2, 3])
async def test_a_run_leaves_everything_that_readers_need(
    home: Home, version: int
) -> None:
    told = Told()
    flow = flow_of(chain("a", "b"), prompt="Do it", context={"x": 1})
    finished = await run_flow(flow, home, Options(checkpoint_format=version), told)
    place = finished.registered
    assert finished.verdict.status == RunStatus.COMPLETED
    assert finished.troubles == ()
    assert told.lines[0] == ("registered",)
    for name in ("a", "b"):
        executed = told.lines.index(("executed", name))
        seq = {2: "None", 3: "1" if name == "a" else "2"}[version]
        assert told.lines.index(("persisted", name, seq)) > executed

    detail = shown(home, finished)
    assert detail.run.status == RunStatus.COMPLETED
    assert detail.run.reason_code == "run.completed"
    assert detail.run.checkpoint is not None
    assert detail.run.checkpoint.version == version
    assert all(one.executed and one.persisted for one in detail.operations)
    assert not detail.run.warnings

    record = read_run_json(place.run_dir)
    assert record.status == "completed"
    assert record.session_id == place.session_id
    assert record.checkpoint_format == version
    assert record.started_at is not None
    assert record.ended_at is not None

    state = load_checkpoint(place.run_dir.checkpoint).state
    assert state["prompt"] == "Do it"
    assert [step["agent_id"] for step in state["plan"]] == ["a", "b"]
    assert state["plan"][1]["depends_on"] == ["a"]
    assert state["plan"][1]["dep_indices"] == [0]
    assert ("node_id" in state["plan"][0]) is (version == 3)
    assert state["config"]["flow"]["name"] == "test"
    assert state["ops"]["a"]["result_digest"] == result_digest("done")
    assert state["flow_context"] == {"x": 1}
    assert (
        Flow.from_normalised(state["config"]["flow"]).normalised() == flow.normalised()
    )


async def test_files_and_folders_are_private(home: Home) -> None:
    before = os.umask(0)
    try:
        await run_flow(flow_of(chain("a")), home)
    finally:
        os.umask(before)
    for path in [home.path, *home.path.rglob("*")]:
        mode = path.stat().st_mode & 0o777
        assert mode == (0o700 if path.is_dir() else 0o600), path


async def test_the_row_names_the_process(home: Home) -> None:
    seen: list[dict[str, Any]] = []

    def look(request: Any) -> str:
        with ReadDB.open(home.state_db) as database:
            [row] = database.sessions()
            seen.append(dict(row.node_metadata))
        with Observer((home,)) as observer:
            [run] = observer.list_runs()
            seen.append({"alive": run.alive, "state": run.state})
        return "ok"

    finished = await run_flow(flow_of(chain("a"), doing(look)), home)
    metadata, live = seen
    assert metadata["pid"] == os.getpid()
    assert metadata["pid_create_time"] > 0
    assert metadata["pid_boot_time"] > 0
    assert metadata["pid_host"]
    assert metadata["run_id"] == finished.registered.run_id
    assert metadata["flow_control_poller"] in ("pending", "active")
    assert live == {"alive": True, "state": "executing"}
    [(after,)] = rows(home, "SELECT node_metadata FROM sessions")
    assert json.loads(after)["flow_control_poller"] == "stopped"
    assert json.loads(after)["checkpoint_seal"]["saved"] == 1


async def test_the_lock_is_held_to_the_end_and_free_afterwards(home: Home) -> None:
    from heaveto.files import lock_holder

    holders: list[int | None] = []

    def look(request: Any) -> str:
        [run] = home.runs.iterdir()
        holders.append(lock_holder(run / ".lock"))
        return "ok"

    finished = await run_flow(flow_of(chain("a"), doing(look)), home)
    assert holders == [os.getpid()]
    assert lock_holder(finished.registered.run_dir.lock) is None


async def test_the_initial_unit_is_there_before_anything_starts(home: Home) -> None:
    found: list[Any] = []

    def look(request: Any) -> str:
        [run] = home.runs.iterdir()
        found.append(load_checkpoint(run / "checkpoint.json").state["ops"])
        return "ok"

    await run_flow(flow_of(chain("a"), doing(look)), home)
    assert found == [{}]


async def test_every_signal_is_stored_in_the_order_in_which_it_was_told(
    home: Home,
) -> None:
    told = Told()
    names = [f"n{number}" for number in range(60)]
    operations = [Operation(name, "w", "go") for name in names]
    finished = await run_flow(
        flow_of([*operations, Operation("end", "w", "go", depends_on=names)]),
        home,
        None,
        told,
    )
    said = [line for line in told.lines if line[0].startswith("Node")]
    with ReadDB.open(home.state_db) as database:
        stored = database.signals(finished.registered.session_id)
    assert [(row.kind, row.payload["name"]) for row in stored] == said
    assert [row.seq for row in stored] == list(range(1, len(stored) + 1))


async def test_two_runs_at_once_do_not_disturb_each_other(home: Home) -> None:
    results = await asyncio.gather(
        *(run_flow(flow_of(chain("a", "b", "c")), home) for _ in range(4))
    )
    assert {one.verdict.status for one in results} == {RunStatus.COMPLETED}
    assert len({one.registered.run_id for one in results}) == 4
    with Observer((home,)) as observer:
        assert len(observer.list_runs()) == 4


# --- verdicts


def a_result(**given: tuple[str, ...] | str) -> Result:
    lists: dict[str, Any] = dict.fromkeys(
        ("completed", "failed", "skipped", "cancelled", "withheld"), ()
    )
    return Result(**{**lists, "results": {}, "context": {}, **given})


SIGTERM = Cause(RunStatus.CANCELLED, "run.cancelled.sigterm", "SIGTERM")


@pytest.mark.parametrize(
    ("result", "cause", "status", "reason"),
    [
        (a_result(completed=("a",)), None, "completed", "run.completed"),
        (a_result(), None, "completed", "run.completed"),
        (a_result(skipped=("a",)), None, "completed", "run.completed.skipped"),
        (a_result(failed=("a",)), None, "failed", "run.failed.operation"),
        (a_result(failed=("a",), withheld=("b",)), SIGTERM, "failed", None),
        (
            a_result(failed=("a",), withheld=("b",), closed_by="stop"),
            None,
            "failed",
            None,
        ),
        (a_result(withheld=("b",), closed_by="stop"), None, "cancelled", None),
        (a_result(withheld=("b",)), SIGTERM, "cancelled", "run.cancelled.sigterm"),
        (a_result(cancelled=("b",)), SIGTERM, "cancelled", "run.cancelled.sigterm"),
        (a_result(completed=("a",)), SIGTERM, "completed", "run.completed"),
        (a_result(completed=("a",), closed_by="stop"), None, "completed", None),
    ],
)
def test_verdict(
    result: Result, cause: Cause | None, status: str, reason: str | None
) -> None:
    verdict = judge(result, cause=cause)
    assert verdict.status == status
    assert reason in (None, verdict.reason_code)


async def test_a_gate_that_says_no_is_in_the_reason(home: Home) -> None:
    flow = flow_of(
        [
            Operation("gate", "w", "?", gate=True),
            Operation("after", "w", "go", depends_on=["gate"]),
        ],
        scripted({"operation": "gate", "response": {"gate_verdict": "reject"}}),
    )
    finished = await run_flow(flow, home)
    assert finished.verdict.status == RunStatus.COMPLETED
    assert finished.verdict.reason_code == "run.completed.gate_rejected"
    assert finished.outcomes["after"].status == OperationStatus.SKIPPED


@pytest.mark.parametrize(
    ("on_failure", "second"),
    [("skip", "skipped"), ("continue", "completed"), ("stop", "unstarted")],
)
async def test_a_failure_under_each_rule(
    home: Home, on_failure: str, second: str
) -> None:
    flow = flow_of(chain("a", "b"), scripted({"operation": "a", "error": "broken"}))
    finished = await run_flow(flow, home, Options(on_failure=on_failure))
    assert finished.verdict.status == RunStatus.FAILED
    assert finished.outcomes["a"].status == OperationStatus.FAILED
    assert finished.outcomes["b"].status == second
    state = load_checkpoint(finished.registered.run_dir.checkpoint).state
    assert state["ops"]["a"]["status"] == "failed"
    assert "result_digest" not in state["ops"]["a"]
    assert state["config"]["on_failure"] == on_failure


# --- steering


async def test_pause_message_resume_change_what_an_operation_reads(home: Home) -> None:
    go = asyncio.Event()
    read: list[str] = []

    async def work(request: Any) -> str:
        read.append(request.instruction)
        if request.operation == "a":
            await go.wait()
        return "ok"

    told = Told()
    task = asyncio.create_task(
        run_flow(flow_of(chain("a", "b", "c"), doing(work)), home, None, told)
    )
    await told.wait_for("NodeStarted", "a")
    assert told.run is not None
    session = told.run.session_id
    await enqueue_async(home, session, "pause")
    message = await enqueue_async(home, session, "message", text="mind the gap")
    with Observer((home,)) as observer:
        await _until(lambda: observer.read_run(session).run.state == "pausing")
        go.set()
        await told.wait_for("NodePaused", "b")
        await _until(lambda: observer.read_run(session).run.state == "paused")
    await enqueue_async(home, session, "resume")
    finished = await task
    assert finished.verdict.status == RunStatus.COMPLETED
    assert "mind the gap" not in read[0]
    assert "mind the gap" in read[1]
    assert "mind the gap" not in read[2]
    detail = shown(home, finished)
    by_verb = {control.verb: control for control in detail.controls}
    assert {control.klass for control in detail.controls} == {"applied"}
    b = next(one for one in detail.operations if one.name == "b")
    assert by_verb["message"].rendered_into == b.id
    assert not by_verb["message"].lost
    assert b.rendered == (message.control.id,)


async def _until(ask: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not await asyncio.to_thread(ask):
            await asyncio.sleep(0.01)


async def test_stop_lets_what_runs_finish_and_ends_as_cancelled(home: Home) -> None:
    go = asyncio.Event()

    async def work(request: Any) -> str:
        await go.wait()
        return "ok"

    told = Told()
    task = asyncio.create_task(
        run_flow(flow_of(chain("a", "b"), doing(work)), home, None, told)
    )
    await told.wait_for("NodeStarted", "a")
    assert told.run is not None
    run_id = told.run.run_id
    await asyncio.to_thread(enqueue, home, told.run.session_id, "stop")
    with Observer((home,)) as observer:
        await _until(lambda: observer.read_run(run_id).run.state == "stopping")
    go.set()
    finished = await task
    assert finished.verdict.status == RunStatus.CANCELLED
    assert finished.verdict.reason_code == "run.cancelled.stop"
    state = load_checkpoint(finished.registered.run_dir.checkpoint).state
    assert list(state["ops"]) == ["a"]


async def test_controls_that_come_too_late_are_closed(home: Home) -> None:
    release = threading.Event()

    def work(request: Any) -> str:
        release.wait(30)
        return "ok"

    told = Told()
    task = asyncio.create_task(
        run_flow(flow_of(chain("a"), doing(work)), home, None, told)
    )
    await told.wait_for("NodeStarted", "a")
    assert told.run is not None
    receipt = enqueue(home, told.run.session_id, "message", text="x")
    await _until(
        lambda: rows(home, "SELECT result FROM session_controls")[0][0] is not None
    )
    release.set()
    await task
    [(result,)] = rows(home, "SELECT result FROM session_controls")
    assert result == "rejected:no-pending-ops"
    assert receipt.control.id


# --- the drain


async def test_a_drain_gives_the_grace_and_then_cuts_off() -> None:
    causes: list[tuple[str, bool]] = []
    ending = Ending(on_begin=lambda cause, again: causes.append((cause.word, again)))
    never = asyncio.Event()

    async def work() -> object:
        await never.wait()
        return None

    task = asyncio.create_task(ending.guard(work(), 0.01))
    await asyncio.sleep(0)
    ending.begin(SIGTERM)
    with pytest.raises(Exception, match="ended") as caught:
        await task
    assert caught.value.code == "cancelled"  # type: ignore[attr-defined]
    assert causes == [("SIGTERM", False)]


async def test_a_second_signal_does_not_wait() -> None:
    ending = Ending(on_begin=lambda cause, again: None)
    never = asyncio.Event()

    async def work() -> object:
        await never.wait()
        return None

    task = asyncio.create_task(ending.guard(work(), 3600.0))
    await asyncio.sleep(0)
    ending.begin(SIGTERM)
    await asyncio.sleep(0)
    assert not task.done()
    ending.begin(SIGTERM)
    with pytest.raises(Exception, match="ended"):
        await asyncio.wait_for(task, 10)


async def test_a_third_signal_cancels_a_worker_that_cleans_up() -> None:
    ending = Ending(on_begin=lambda cause, again: None)
    cleaning = asyncio.Event()
    never = asyncio.Event()

    async def work() -> object:
        try:
            await never.wait()
        finally:
            cleaning.set()
            await never.wait()
        return None

    task = asyncio.create_task(ending.guard(work(), 3600.0))
    await asyncio.sleep(0)
    ending.begin(SIGTERM)
    ending.begin(SIGTERM)
    await asyncio.wait_for(cleaning.wait(), 10)
    assert not task.done()
    ending.begin(SIGTERM)
    with pytest.raises(Exception, match="ended"):
        await asyncio.wait_for(task, 10)


async def test_what_ends_within_its_grace_keeps_its_answer() -> None:
    ending = Ending(on_begin=lambda cause, again: None)
    go = asyncio.Event()

    async def work() -> object:
        await go.wait()
        return "answer"

    task = asyncio.create_task(ending.guard(work(), 3600.0))
    await asyncio.sleep(0)
    ending.begin(SIGTERM)
    go.set()
    assert await task == "answer"


async def test_a_signal_right_after_registration_starts_nothing_more(
    home: Home,
) -> None:
    class Impatient(Told):
        def registered(self, run: Registered) -> None:
            super().registered(run)
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    started: list[str] = []
    finished = await run_flow(
        flow_of(chain("a", "b"), doing(lambda request: started.append("x"))),
        home,
        Options(signals=True),
        Impatient(),
    )
    assert signal.getsignal(signal.SIGTERM) == before
    assert finished.verdict.reason_code == "run.cancelled.sigterm"
    assert finished.outcomes["b"].status == OperationStatus.UNSTARTED
    assert len(started) <= 1


async def test_cancelling_the_task_ends_the_run_whole(home: Home) -> None:
    never = asyncio.Event()

    async def work(request: Any) -> str:
        await never.wait()
        return "ok"

    told = Told()
    task = asyncio.create_task(
        run_flow(flow_of(chain("a", "b"), doing(work)), home, None, told)
    )
    await told.wait_for("NodeStarted", "a")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    [(status, reason)] = rows(home, "SELECT status, status_reason_code FROM sessions")
    assert (status, reason) == ("cancelled", "run.cancelled.task")
    assert told.run is not None
    assert read_run_json(told.run.run_dir).status == "cancelled"
    with ReadDB.open(home.state_db) as database:
        kinds = [row.kind for row in database.signals(told.run.session_id)]
    assert kinds.count("NodeCancelled") == 2


# --- what cannot be saved


class FailingWriter:
    """Stands where the writer of checkpoints stands; fails as it is told."""

    journal_seq = 7

    def __init__(self, *failures: Exception | None) -> None:
        self.failures = list(failures)

    def record(self, name: str, **given: Any) -> Any:
        failure = self.failures.pop(0)

        async def settle() -> None:
            if failure is not None:
                raise failure

        return settle()


async def test_every_failed_save_is_kept_and_told() -> None:
    full = CheckpointPersistenceError("no space", published="no")
    bad = CheckpointValueError("non_finite", "$.x", "not a number")
    told: list[tuple[str, str]] = []
    saves = Saves(
        FailingWriter(full, None, bad),  # type: ignore[arg-type]
        {"1": "a", "2": "b", "3": "c"},
        on_executed=lambda name, outcome: told.append(("executed", name)),
        on_persisted=lambda name, seq: told.append(("persisted", name)),
        on_failed=lambda name, error: told.append(("failed", name)),
    )
    for key in "123":
        outcome = Outcome(operation_id=key, status=OperationStatus.COMPLETED)
        pending = saves.take(outcome, {})
        assert pending is not None
        assert told[-1] == ("executed", saves._names[key])
        await pending
    assert saves.persisted == ["b"]
    assert saves.failures == {"a": full, "c": bad}
    assert ("failed", "a") in told
    assert ("persisted", "a") not in told


async def test_a_response_that_cannot_be_saved_is_said_and_the_flow_goes_on(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    from heaveto.checkpoint import CheckpointWriter

    real = CheckpointWriter.record

    def record(self: Any, agent_id: str, **given: Any) -> Any:
        if agent_id == "a":

            async def refuse() -> None:
                raise CheckpointValueError("depth", "$", "too deep")

            return refuse()
        return real(self, agent_id, **given)

    monkeypatch.setattr(CheckpointWriter, "record", record)
    told = Told()
    finished = await run_flow(flow_of(chain("a", "b")), home, None, told)
    assert finished.verdict.status == RunStatus.COMPLETED
    assert [one.code for one in finished.troubles] == ["persist_failed"]
    assert ("persisted", "b", "1") in told.lines
    detail = shown(home, finished)
    assert "persist_failed" in {one.code for one in detail.run.warnings}


async def test_a_save_that_succeeds_later_is_no_trouble_in_the_end(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    from heaveto.syscalls import Os

    real = Os.fsync
    failing = [True]

    def fsync(self: Os, fd: int) -> None:
        name = os.readlink(f"/proc/self/fd/{fd}")
        if (
            failing
            and name.endswith("checkpoint.json.journal")
            and os.fstat(fd).st_size
        ):
            failing.clear()
            raise OSError(errno.ENOSPC, "No space left on device")
        real(self, fd)

    monkeypatch.setattr(Os, "fsync", fsync)
    told = Told()
    finished = await run_flow(flow_of(chain("a", "b", "c")), home, None, told)
    assert not failing
    assert ("trouble", "persist_failed") in told.lines
    assert finished.troubles == ()
    state = load_checkpoint(finished.registered.run_dir.checkpoint).state
    assert set(state["ops"]) == {"a", "b", "c"}
    assert not [
        w for w in shown(home, finished).run.warnings if w.code == "persist_failed"
    ]


async def test_a_deleted_run_directory_is_said_and_the_flow_goes_on(
    home: Home,
) -> None:
    import shutil

    def work(request: Any) -> str:
        if request.operation == "a":
            shutil.rmtree(home.runs)
        return "ok"

    told = Told()
    finished = await run_flow(flow_of(chain("a"), doing(work)), home, None, told)
    assert {one.code for one in finished.troubles} == {
        "persist_failed",
        "record_failed",
    }
    [(status,)] = rows(home, "SELECT status FROM sessions")
    assert status == finished.verdict.status


async def test_a_busy_database_delays_signals_and_loses_none(home: Home) -> None:
    told = Told()
    held = threading.Event()
    release = threading.Event()

    def hold() -> None:
        connection = sqlite3.connect(home.state_db, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        held.set()
        release.wait(60)
        connection.execute("COMMIT")
        connection.close()

    holder = threading.Thread(target=hold)

    async def work(request: Any) -> str:
        if request.operation == "a":
            holder.start()
            await asyncio.to_thread(held.wait, 30)
        if request.operation == "c":
            await told.wait_for("trouble", "signals_wait")
            release.set()
        return "ok"

    os.environ["HEAVETO_BUSY_TIMEOUT_MS"] = "100"
    try:
        finished = await run_flow(
            flow_of(chain("a", "b", "c"), doing(work)), home, None, told
        )
    finally:
        del os.environ["HEAVETO_BUSY_TIMEOUT_MS"]
        release.set()
    holder.join()
    assert finished.troubles == ()
    with ReadDB.open(home.state_db) as database:
        stored = database.signals(finished.registered.session_id)
    said = [line for line in told.lines if line[0].startswith("Node")]
    assert [(row.kind, row.payload["name"]) for row in stored] == said


async def test_a_row_that_cannot_be_ended_is_said_and_the_record_says_how_it_ended(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "_LAST_WRITES_S", 0.3)
    monkeypatch.setenv("HEAVETO_BUSY_TIMEOUT_MS", "50")
    held = []

    def hold(request: Any) -> str:
        connection = sqlite3.connect(
            home.state_db, isolation_level=None, check_same_thread=False
        )
        connection.execute("BEGIN IMMEDIATE")
        held.append(connection)
        return "ok"

    try:
        finished = await run_flow(flow_of(chain("a"), doing(hold)), home)
    finally:
        held[0].execute("ROLLBACK")
        held[0].close()
    assert finished.verdict.status == RunStatus.COMPLETED
    assert {one.code for one in finished.troubles} == {"signals_gap", "row_open"}
    assert rows(home, "SELECT status FROM sessions") == [("running",)]
    assert read_run_json(finished.registered.run_dir).status == "completed"


# --- refusals before anything is created


async def test_a_worker_that_cannot_be_imported_creates_nothing(home: Home) -> None:
    flow = flow_of(chain("a"), {"kind": "python", "call": "no_such_module_here:f"})
    with pytest.raises(FlowError) as caught:
        await run_flow(flow, home)
    assert caught.value.code == "worker_unusable"
    assert not home.path.exists()


async def test_a_home_that_others_can_write_is_refused(home: Home) -> None:
    home.path.mkdir(mode=0o777)
    home.path.chmod(0o777)
    with pytest.raises(ForeignOwnerError):
        await run_flow(flow_of(chain("a")), home)
    assert list(home.path.iterdir()) == []


async def test_a_file_where_the_home_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("x")
    with pytest.raises(HomeError):
        await run_flow(flow_of(chain("a")), Home(tmp_path / "home", "new"))


async def test_a_newer_database_is_left_as_it_is(home: Home) -> None:
    await run_flow(flow_of(chain("a")), home)
    with sqlite3.connect(home.state_db) as connection:
        connection.execute("UPDATE schema_meta SET value='99' WHERE key='version'")
    connection.close()
    before = {path.name for path in home.runs.iterdir()}
    with pytest.raises(StateDBError) as caught:
        await run_flow(flow_of(chain("a")), home)
    assert caught.value.code == "db_newer"
    assert {path.name for path in home.runs.iterdir()} == before


# --- the digest


def test_digest_has_the_published_value() -> None:
    assert result_digest("ok") == (
        "82c42808e386597f32abd92bbcd322ef645657cb6003ffee6056251477f9aecf"
        "cdedd24ab3f9fcfc36852fa7df6b632d2d2735ae2a2c858345f73c09c9ec2846"
    )


def test_a_digest_follows_the_value_and_not_its_spelling() -> None:
    assert result_digest({"a": 1, "b": 2}) == result_digest({"b": 2, "a": 1})
    assert result_digest(1) != result_digest("1")
    assert result_digest(float("nan")) is None
