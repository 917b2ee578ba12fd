"""One run read whole, from real homes: database, checkpoint, files, process."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from harness.homes import Builder, Operation, gone, hold_lock
from heaveto.controls import enqueue_async
from heaveto.errors import HomeError, StateDBError, TargetError
from heaveto.generations import EngineStateStore
from heaveto.liveness import identity
from heaveto.model import OperationStatus, RunState, RunStatus, SignalKind
from heaveto.observe import Observer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from harness.homes import RunUnderWay
    from heaveto.observe.snapshot import RunDetail, RunSummary

K = SignalKind
S = OperationStatus


def chain() -> list[Operation]:
    return [Operation("a"), Operation("b", ("a",)), Operation("c", ("b",))]


@asynccontextmanager
async def built(path: Path) -> AsyncIterator[Builder]:
    builder = await Builder.open(path / "home")
    try:
        yield builder
    finally:
        await builder.close()


async def seen(builder: Builder, run: RunUnderWay) -> RunDetail:
    """Read a run by its session, and check that the list tells the same of it."""

    def read() -> RunDetail:
        with Observer([builder.home]) as observer:
            detail = observer.read_run(run.session_id)
            [listed] = [
                one for one in observer.list_runs() if one.session_id == run.session_id
            ]
            assert told(listed) == told(detail.run)
            return detail

    return await asyncio.to_thread(read)


def told(run: RunSummary) -> dict[str, Any]:
    """Return a summary without the moments of the look."""
    whole = run.as_dict()
    del whole["observed_at"]
    return whole


def states(detail: RunDetail) -> dict[str, str]:
    return {one.name: str(one.status) for one in detail.operations}


def codes(detail: RunDetail) -> list[str]:
    return [warning.code for warning in detail.run.warnings]


async def test_a_run_that_ended_well(tmp_path: Path) -> None:
    async with built(tmp_path) as builder:
        run = await builder.begin(chain(), name="release notes")
        for name in "abc":
            await run.run(name)
        assert run.writer is not None
        generation = run.writer.generation
        await run.end()
        detail = await seen(builder, run)
    whole: dict[str, Any] = detail.as_dict()
    assert whole["run_id"] == run.run_id
    assert whole["name"] == "release notes"
    assert whole["home"] == str(builder.home.path)
    assert (whole["status"], whole["state"]) == ("completed", "completed")
    assert (whole["alive"], whole["status_source"]) == (False, "db")
    assert whole["confidence"] == "sure"
    assert whole["nodes"] == {"total": 3, "completed": 3}
    assert whole["checkpoint"] == {
        "version": 3,
        "generation": generation,
        "seq": 3,
        "status": "clean",
        "records_since_base": 3,
    }
    assert whole["warnings"] == []
    a, b, c = (run.id(name) for name in "abc")
    assert whole["edges"] == [[a, b], [b, c]]
    assert [one["depends_on"] for one in whole["operations"]] == [[], [a], [b]]
    assert all(one["executed"] and one["persisted"] for one in whole["operations"])
    assert json.loads(json.dumps(whole)) == whole


async def test_a_run_that_goes_on_and_then_is_killed(tmp_path: Path) -> None:
    async with built(tmp_path) as builder:
        run = await builder.begin(chain(), metadata=identity())
        await run.run("a")
        await run.start("b")
        runner = await asyncio.to_thread(hold_lock, run.run_dir)
        try:
            alive = await seen(builder, run)
        finally:
            await asyncio.to_thread(runner.kill)
        await builder.dead(run)
        dead = await seen(builder, run)
    assert (alive.run.state, alive.run.alive) == (RunState.EXECUTING, True)
    assert alive.run.pid == runner.process.pid
    assert states(alive) == {"a": "completed", "b": "running", "c": "waiting"}
    assert (dead.run.status, dead.run.state) == (RunStatus.RUNNING, RunState.DEAD)
    assert (dead.run.alive, dead.run.status_source) == (False, "process")
    assert dead.run.reason_code == "process_gone"
    assert states(dead) == {"a": "completed", "b": "lost", "c": "unstarted"}
    assert [one.status_source for one in dead.operations] == [
        "signals",
        "process",
        "process",
    ]


async def test_the_checkpoint_of_a_dead_run_tells_what_signals_do_not(
    tmp_path: Path,
) -> None:
    async with built(tmp_path) as builder:
        run = await builder.begin(chain())
        await run.run("a")
        await run.start("b")
        await run.save("b")  # killed between the save and the signal
        await builder.dead(run)
        detail = await seen(builder, run)
    assert states(detail) == {"a": "completed", "b": "completed", "c": "unstarted"}
    assert detail.operations[1].status_source == "checkpoint"
    assert detail.operations[1].executed


async def test_what_was_seen_to_end_and_is_not_saved(tmp_path: Path) -> None:
    async with built(tmp_path) as builder:
        run = await builder.begin(chain())
        await run.run("a")
        await run.start("b")
        await run.complete("b", save=False)
        await builder.dead(run)
        detail = await seen(builder, run)
    assert [one.persisted for one in detail.operations] == [True, False, False]
    assert "unsaved" in codes(detail)


@pytest.mark.parametrize("version", [2, None])
async def test_other_checkpoints(tmp_path: Path, version: int | None) -> None:
    async with built(tmp_path) as builder:
        run = await builder.begin(chain(), checkpoint=version, plan_ids=False)
        await run.run("a")
        await builder.dead(run)
        detail = await seen(builder, run)
    if version is None:
        assert detail.run.checkpoint is None
        assert detail.operations[0].persisted is None
        assert codes(detail) == ["checkpoint_missing"]
    else:
        assert detail.run.checkpoint is not None
        view = detail.run.checkpoint.as_dict()
        assert view == {
            "version": 2,
            "generation": None,
            "seq": None,
            "status": "clean",
            "records_since_base": None,
        }
        assert detail.operations[0].persisted is True


async def test_a_torn_tail_and_a_gap(tmp_path: Path) -> None:
    async with built(tmp_path) as builder:
        run = await builder.begin(chain())
        for name in "abc":
            await run.run(name)
        await builder.dead(run)
        journal = run.run_dir.journal
        whole = journal.read_bytes()
        journal.write_bytes(whole[:-5])
        torn = await seen(builder, run)
        lines = whole.splitlines(keepends=True)
        journal.write_bytes(lines[0] + lines[2])
        gap = await seen(builder, run)
    assert torn.run.checkpoint is not None
    assert torn.run.checkpoint.status == "recovered_prefix"
    assert codes(torn) == ["checkpoint_prefix", "unsaved"]
    assert [one.persisted for one in torn.operations] == [True, True, False]
    assert gap.run.checkpoint is not None
    assert gap.run.checkpoint.status == "refused"
    assert codes(gap) == ["checkpoint_refused"]
    assert "sequence_gap" in gap.run.warnings[0].text
    assert [one.persisted for one in gap.operations] == [None, None, None]


async def test_a_refused_unit_shows_nothing_of_its_base(tmp_path: Path) -> None:
    async with built(tmp_path) as builder:
        run = await builder.begin(chain(), announce=False, max_journal_records=1)
        await run.save("a")  # fills the journal: a is in the base now
        await run.save("b")
        await builder.dead(run)
        good = await seen(builder, run)
        run.run_dir.journal.write_bytes(b"[]\n")
        refused = await seen(builder, run)
    assert states(good) == {"a": "completed", "b": "completed", "c": "unstarted"}
    assert refused.operations == ()
    assert refused.run.nodes == {"total": 0}
    assert refused.links == ()
    assert codes(refused) == ["checkpoint_refused"]


async def test_failures_their_text_and_what_rests_on_them(tmp_path: Path) -> None:
    async with built(tmp_path) as builder:
        run = await builder.begin(chain())
        await run.start("a")
        await run.fail("a")
        await run.start("b", stale=True)
        await run.complete("b")
        await run.emit(K.SKIPPED, "c", reason={"code": "upstream_failed"})
        await run.end(RunStatus.FAILED, reason="run.failed")
        detail = await seen(builder, run)
    failed, rests, skipped = detail.operations
    assert failed.as_dict()["error"] == {"code": "exit_nonzero", "text": "it broke"}
    assert (rests.stale, skipped.stale) == (True, False)
    assert skipped.reason == "upstream_failed"
    assert codes(detail) == ["input_failed"]
    assert detail.run.nodes == {"total": 3, "failed": 1, "completed": 1, "skipped": 1}


async def test_an_ended_run_with_open_ends(tmp_path: Path) -> None:
    async with built(tmp_path) as builder:
        run = await builder.begin(chain())
        await run.run("a")
        await run.start("b")
        await run.end(RunStatus.TIMED_OUT, reason="run.timed_out.deadline")
        detail = await seen(builder, run)
    assert states(detail) == {"a": "completed", "b": "lost", "c": "unstarted"}
    assert detail.operations[1].status_source == "db"
    assert detail.run.reason_code == "run.timed_out.deadline"
    assert codes(detail) == ["open_ends"]


# --- controls


async def control(
    builder: Builder, run: RunUnderWay, verb: str, text: str | None = None
) -> str:
    receipt = await enqueue_async(
        builder.home, run.session_id, verb, text=text, by="alice"
    )
    return receipt.control.id


async def steered(builder: Builder) -> tuple[RunUnderWay, dict[str, str]]:
    """Make a run with one control of each fate, before anybody concludes."""
    run = await builder.begin(chain(), metadata=identity())
    await run.run("a")
    ids: dict[str, str] = {}
    for name, text in (("read", "one"), ("unread", "two"), ("claimed", "three")):
        ids[name] = await control(builder, run, "message", text)
        claim = await builder.db.claim_control(ids[name], "applying:runner-7")
        if name != "claimed":
            done = await builder.db.finalize_control(ids[name], "applied", claim=claim)
            assert done
    await run.start("b", rendered=[ids["read"]])
    run.context["operator_messages"] = [
        {
            "ts": builder.now,
            "text": "one",
            "control_id": ids["read"],
            "rendered_into_op": run.id("b"),
        }
    ]
    await run.complete("b")
    ids["refused"] = await control(builder, run, "message", "four")
    claim = await builder.db.claim_control(ids["refused"], "applying")
    await builder.db.finalize_control(
        ids["refused"], "rejected:no-pending-ops", claim=claim
    )
    ids["queued"] = await control(builder, run, "pause")
    return run, ids


async def test_controls_of_a_live_and_of_a_dead_run(tmp_path: Path) -> None:
    async with built(tmp_path) as builder:
        run, ids = await steered(builder)
        live = await seen(builder, run)
        await builder.dead(run)
        dead = await seen(builder, run)
    alive = {one.id: one for one in live.controls}
    gone_now = {one.id: one for one in dead.controls}
    assert [one.id for one in live.controls] == list(ids.values())
    assert {name: alive[one].klass for name, one in ids.items()} == {
        "read": "applied",
        "unread": "applied",
        "claimed": "claimed",
        "refused": "rejected",
        "queued": "queued",
    }
    assert gone_now[ids["queued"]].klass == "never_landed"
    assert gone_now[ids["claimed"]].klass == "claimed"
    assert gone_now[ids["claimed"]].owner == "runner-7"
    assert alive[ids["read"]].rendered_into == run.id("b")
    assert live.operations[1].rendered == (ids["read"],)
    assert [one.lost for one in live.controls] == [False] * 5
    assert {name for name, one in ids.items() if gone_now[one].lost} == {"unread"}
    assert codes(dead) == ["steer_lost", "never_landed", "not_reported"]
    whole = alive[ids["read"]].as_dict()
    assert (whole["text"], whole["by"], whole["class"]) == ("one", "alice", "applied")


async def test_a_message_without_an_id_is_matched_by_text_and_time(
    tmp_path: Path,
) -> None:
    async with built(tmp_path) as builder:
        run = await builder.begin(chain(), metadata=identity())
        ids = []
        for _ in range(2):
            ids.append(await control(builder, run, "message", "same"))
            claim = await builder.db.claim_control(ids[-1], "applying")
            await builder.db.finalize_control(ids[-1], "applied", claim=claim)
        rows = [await builder.db.control(one) for one in ids]
        assert rows[1] is not None
        assert rows[1].claimed_at is not None
        entry = {"ts": rows[1].claimed_at + 0.005, "text": "same"}
        run.context["operator_messages"] = [entry]
        await run.run("a")
        await builder.dead(run)
        detail = await seen(builder, run)
    lost = {one.id: one.lost for one in detail.controls}
    assert lost[ids[1]] is False


@pytest.mark.parametrize(
    ("verbs", "running", "state", "status"),
    [
        (["pause"], True, RunState.PAUSING, S.PAUSED),
        (["pause"], False, RunState.PAUSED, S.PAUSED),
        (["pause", "resume"], False, RunState.EXECUTING, S.QUEUED),
        (["pause", "resume", "pause"], False, RunState.PAUSED, S.PAUSED),
        (["pause", "stop"], True, RunState.STOPPING, S.QUEUED),
    ],
)
async def test_pause_resume_stop(
    tmp_path: Path, verbs: list[str], running: bool, state: RunState, status: S
) -> None:
    async with built(tmp_path) as builder:
        run = await builder.begin([Operation("a"), Operation("b")], metadata=identity())
        await run.start("a")
        await run.emit(K.PAUSED, "b")
        if not running:
            await run.complete("a")
        for verb in verbs:
            row = await control(builder, run, verb)
            await builder.db.finalize_control(row, "applied", claim=None)
        detail = await seen(builder, run)
        await run.close()
    assert detail.run.state == state
    assert states(detail)["b"] == status


# --- relations, places, hostile rows


async def test_a_resumed_run_and_its_source_name_each_other(tmp_path: Path) -> None:
    async with built(tmp_path) as builder:
        first = await builder.begin(chain())
        await first.run("a")
        await builder.dead(first)
        refused = await builder.begin(
            chain(),
            metadata={
                "resumed_from": first.session_id,
                "flow_control_poller": "pending",
            },
        )
        await refused.close()
        alone = await seen(builder, first)
        second = await builder.begin(
            chain(), metadata={"resumed_from": first.session_id}
        )
        await second.end()
        source, heir = await seen(builder, first), await seen(builder, second)
    assert alone.run.superseded_by is None
    assert source.run.superseded_by == second.run_id
    assert heir.run.resumed_from == first.run_id
    assert heir.run.superseded_by is None


async def test_directories_without_rows(tmp_path: Path) -> None:
    async with built(tmp_path) as builder:
        run = await builder.begin(chain(), announce=False)
        await run.save("a")
        await run.close()
        other = builder.home.runs / "20261129T101500-ffffff"
        other.mkdir()
        (builder.home.runs / "a file").write_text("x")
        (builder.home.runs / "a link").symlink_to(other)
    for suffix in ("", "-wal", "-shm"):
        path = builder.home.path / f"state.db{suffix}"
        path.unlink(missing_ok=True)
    for folder in (other, run.run_dir.path):
        os.utime(folder, (1.0, 1.0))

    def read() -> tuple[tuple[RunSummary, ...], RunDetail]:
        with Observer([builder.home]) as observer:
            return observer.list_runs(), observer.read_run(run.run_id)

    runs, detail = await asyncio.to_thread(read)
    assert [one.run_id for one in runs] == [other.name, run.run_id]
    assert [str(one.state) for one in runs] == ["unknown", "unknown"]
    assert detail.run.session_id == run.session_id
    assert states(detail) == {"a": "completed", "b": "waiting", "c": "waiting"}
    assert "row_missing" in codes(detail)


async def test_a_deleted_run_directory(tmp_path: Path) -> None:
    async with built(tmp_path) as builder:
        run = await builder.begin(chain())
        await run.run("a")
        await builder.dead(run)
        await asyncio.to_thread(shutil.rmtree, run.run_dir.path)
        detail = await seen(builder, run)
    assert detail.run.checkpoint is None
    assert codes(detail) == ["run_dir_missing"]
    assert states(detail) == {"a": "completed", "b": "unstarted", "c": "unstarted"}


async def test_damaged_and_odd_columns(tmp_path: Path) -> None:
    async with built(tmp_path) as builder:
        run = await builder.begin(chain())
        await run.run("a")
        await run.close()

    def spoil(**columns: object) -> RunDetail:
        with sqlite3.connect(builder.home.state_db) as db:
            db.execute("PRAGMA ignore_check_constraints = ON")
            for name, value in columns.items():
                db.execute(f"UPDATE sessions SET {name} = ?", [value])
        db.close()
        with Observer([builder.home]) as observer:
            observer.list_runs()
            return observer.read_run(run.session_id)

    odd = await asyncio.to_thread(spoil, status="hibernating")
    assert (odd.run.status, odd.run.state) == ("hibernating", RunState.UNKNOWN)
    assert "status_unknown" in codes(odd)
    cut = await asyncio.to_thread(spoil, status="running", node_metadata="{")
    assert "row_damaged" in codes(cut)
    late = await asyncio.to_thread(
        spoil, node_metadata="{}", status="completed", started_at=9e9, ended_at=1e9
    )
    assert "clock_odd" in codes(late)
    strange = await asyncio.to_thread(spoil, run_id="../../etc", started_at="soon")
    assert strange.run_dir is None


async def test_a_run_of_another_host_is_believed_while_it_writes(
    tmp_path: Path,
) -> None:
    async with built(tmp_path) as builder:
        away = {**identity(), "pid_host": "elsewhere"}
        run = await builder.begin(chain(), metadata=away)
        await run.start("a")
        detail = await seen(builder, run)

        def later() -> RunDetail:
            with Observer([builder.home], clock=lambda: builder.now + 3600) as observer:
                return observer.read_run(run.session_id)

        old = await asyncio.to_thread(later)
        await run.close()
    assert (detail.run.state, detail.run.alive) == (RunState.EXECUTING, None)
    assert detail.run.confidence == "derived"
    assert codes(detail) == ["liveness_unknown"]
    assert (old.run.state, old.run.alive) == (RunState.UNKNOWN, None)


async def test_a_run_that_writes_nothing_is_stalled(tmp_path: Path) -> None:
    async with built(tmp_path) as builder:
        run = await builder.begin(chain(), metadata=identity())
        await run.start("a")

        def later(seconds: float) -> RunDetail:
            clock = lambda: builder.now + seconds  # noqa: E731
            with Observer([builder.home], clock=clock) as observer:
                return observer.read_run(run.session_id)

        before = await asyncio.to_thread(later, 500)
        after = await asyncio.to_thread(later, 700)
        logs = run.run_dir.operation("a")
        logs.mkdir(parents=True)
        (logs / "output.log").write_text("a sign")
        at = builder.now + 300
        os.utime(logs / "output.log", (at, at))
        wrote = await asyncio.to_thread(later, 700)
        await run.close()
    assert before.run.state == RunState.EXECUTING
    assert (after.run.state, after.run.reason_code) == (RunState.STALLED, "silent")
    assert wrote.run.state == RunState.EXECUTING


async def test_strangers_may_write_to_the_run_directory(tmp_path: Path) -> None:
    async with built(tmp_path) as builder:
        run = await builder.begin(chain())
        await builder.dead(run)
        run.run_dir.path.chmod(0o777)
        (run.run_dir.path / "run.json").write_text("{")
        detail = await seen(builder, run)
    assert "foreign_owner" in codes(detail)
    assert "run_json_damaged" in codes(detail)


# --- homes


async def test_targets(tmp_path: Path) -> None:
    async with built(tmp_path) as builder:
        run = await builder.begin(chain())
        await run.close()

        def read() -> None:
            with Observer([builder.home]) as observer:
                by_run = observer.read_run(run.run_id)
                by_prefix = observer.read_run(run.session_id[:8])
                assert by_run.run.session_id == by_prefix.run.session_id
                with pytest.raises(TargetError) as unknown:
                    observer.read_run("nothing")
                assert unknown.value.code == "target_unknown"

        await asyncio.to_thread(read)


def test_a_new_home_is_empty_and_stays_as_it_is(tmp_path: Path) -> None:
    with Observer([tmp_path / "absent"]) as observer:
        assert observer.list_runs() == ()
        [home] = observer.health()
        assert (home.problem, home.source) == (None, "heaveto")
    assert list(tmp_path.iterdir()) == []


async def test_one_bad_home_among_others(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "state.db").write_bytes(b"no database" * 200)
    with pytest.raises(HomeError) as alone:
        Observer([bad])
    assert alone.value.code == "db_corrupt"
    async with built(tmp_path) as builder:
        run = await builder.begin(chain())
        await run.close()

        def read() -> None:
            with Observer([bad, builder.home]) as observer:
                assert [one.run_id for one in observer.list_runs()] == [run.run_id]
                first, second = observer.health()
                assert first.problem is not None
                assert first.problem.code == "db_corrupt"
                assert second.problem is None
                assert observer.read_run(run.run_id).run.run_id == run.run_id

        await asyncio.to_thread(read)


async def test_a_newer_database_is_refused_and_untouched(tmp_path: Path) -> None:
    async with built(tmp_path) as builder:
        run = await builder.begin(chain())
        await run.close()
    db = sqlite3.connect(builder.home.state_db)
    with db:
        db.execute("UPDATE schema_meta SET value = '99' WHERE key = 'version'")
    db.close()
    before = builder.home.state_db.read_bytes()

    def read() -> None:
        with Observer([builder.home]) as observer:
            with pytest.raises(StateDBError) as newer:
                observer.list_runs()
            assert newer.value.code == "db_newer"
            assert "99" in newer.value.message
            [home] = observer.health()
            assert home.problem is not None
            assert home.problem.code == "db_newer"

    await asyncio.to_thread(read)
    assert builder.home.state_db.read_bytes() == before


async def test_reading_changes_nothing(tmp_path: Path) -> None:
    async with built(tmp_path) as builder:
        run = await builder.begin(chain())
        await run.run("a")
        await builder.dead(run)

    def tree() -> dict[str, tuple[int, int]]:
        return {
            str(path): (path.stat().st_mtime_ns, path.stat().st_size)
            for path in builder.home.path.rglob("*")
        }

    def read() -> None:
        with Observer([builder.home]) as observer:
            observer.list_runs()
            observer.read_run(run.session_id)

    before = tree()
    await asyncio.to_thread(read)
    assert tree() == before


async def test_survivors_of_a_dead_runner(tmp_path: Path) -> None:
    from harness.homes import leftover

    async with built(tmp_path) as builder:
        run = await builder.begin(chain())
        await run.start("a")
        await builder.dead(run)
        child = await asyncio.to_thread(leftover, run.run_dir, "a")
        try:
            detail = await seen(builder, run)
        finally:
            child.kill()
            child.wait()
        after = await seen(builder, run)
    assert [one["pid"] for one in detail.survivors] == [child.pid]
    assert codes(detail) == ["survivors"]
    assert after.survivors == ()


def test_gone_is_gone() -> None:
    assert gone()["pid"] != os.getpid()


async def test_the_committed_generation_of_its_engine_state(tmp_path: Path) -> None:
    async with built(tmp_path) as builder:
        run = await builder.begin(chain())
        for name in "abc":
            await run.run(name)
        await run.end()
        bare = await seen(builder, run)

        def commit() -> None:
            store = EngineStateStore(run.run_dir.engine_state)
            number, folder = store.begin_generation()
            EngineStateStore(folder).save_manifest(1)
            store.commit_generation(number)

        await asyncio.to_thread(commit)
        committed = await seen(builder, run)
        pointer = run.run_dir.engine_state / "current"
        pointer.write_text("../gen-0000")
        malformed = await seen(builder, run)
    assert bare.run.generation_dir is None
    assert committed.run.generation_dir == "gen-0000"
    assert malformed.run.generation_dir is None
