"""The runner's side: when the poller looks, and the order of claim, effect, stamp."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from harness.steering import Recorder, add_control, make_home, sql
from heaveto.controls import resolve
from heaveto.controls.poller import BATCH, PERIOD, ControlPoller
from heaveto.controls.words import NO_PENDING, SWEPT
from heaveto.errors import StateDBError
from heaveto.statedb import ControlRow, ReadDB
from heaveto.statedb.store import StateDB

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from heaveto.runs import Home

SID = "ab" * 16
RUN = "20261129T101500-a1b2c3"


class Faulty:
    """A store in front of the real one: it notes calls, fails on demand, and waits."""

    def __init__(self, db: StateDB) -> None:
        self.db = db
        self.calls: list[str] = []
        self.failures: dict[str, int] = {}
        self.hooks: dict[str, Callable[[], None]] = {}
        self.gates: dict[str, asyncio.Event] = {}

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.db, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            if (gate := self.gates.get(name)) is not None:
                await gate.wait()
            if self.failures.get(name, 0) > 0:
                self.failures[name] -= 1
                raise StateDBError("told to fail", code="db_busy")
            if (hook := self.hooks.get(name)) is not None:
                hook()
            return await real(*args, **kwargs)

        return call


class Steps:
    """A home, its database, a steerable and a poller with clocks that stand still."""

    def __init__(self, home: Home, db: StateDB) -> None:
        self.home = home
        self.db = db
        self.store = Faulty(db)
        self.steerable = Recorder()
        self.now = 100.0
        self.poller = self.new_poller()
        self.count = 0

    def new_poller(self, run_id: str | None = RUN) -> ControlPoller:
        return ControlPoller(
            self.store,
            SID,
            run_id,
            self.steerable,
            clock=lambda: 7.0,
            monotonic=lambda: self.now,
        )

    def send(self, verb: str = "pause", payload: str | None = None, **kw: Any) -> str:
        self.count += 1
        kw.setdefault("created_at", float(self.count))
        return add_control(
            self.home, f"{self.count:032x}", SID, verb, payload=payload, **kw
        )

    def message(self, text: str, **kw: Any) -> str:
        return self.send("message", json.dumps({"text": text}), **kw)

    def row(self, control: str) -> ControlRow:
        with ReadDB.open(self.home.state_db) as database:
            found = database.control(control)
        assert found is not None
        return found

    def results(self) -> list[str | None]:
        with ReadDB.open(self.home.state_db) as database:
            return [row.result for row in database.controls()]

    async def metadata(self) -> dict[str, Any]:
        found = await self.db.session(SID)
        assert found is not None
        return dict(found.node_metadata)


@pytest.fixture
async def steps(tmp_path: Path) -> AsyncIterator[Steps]:
    home = make_home(tmp_path / "home")
    async with await StateDB.open(home.state_db) as db:
        await db.create_session(session_id=SID, run_id=RUN, name="x", metadata={})
        yield Steps(home, db)


# --- when it looks


async def test_first_look_lists_and_the_next_waits_for_a_change(steps: Steps) -> None:
    await steps.poller.look()
    assert steps.store.calls.count("pending_controls") == 1
    for _ in range(19):
        steps.now += 0.1
        await steps.poller.look()
    assert steps.store.calls.count("pending_controls") == 1
    steps.send()
    await steps.poller.look()
    assert steps.steerable.done == ["pause"]


async def test_full_list_runs_every_two_seconds_whatever_the_version_says(
    steps: Steps,
) -> None:
    await steps.poller.look()
    steps.send()
    real = steps.store.db.data_version
    steps.store.db.data_version = lambda: asyncio.sleep(0, 1)  # type: ignore[method-assign]
    await steps.poller.look()
    steps.steerable.done.clear()
    steps.send("resume")
    steps.now += PERIOD - 0.01
    await steps.poller.look()
    assert steps.steerable.done == []
    steps.now += 0.02
    await steps.poller.look()
    assert steps.steerable.done == ["resume"]
    steps.store.db.data_version = real  # type: ignore[method-assign]


async def test_loop_that_was_blocked_is_caught_up_with_one_tick(steps: Steps) -> None:
    await steps.poller.look()
    steps.now += 10.0
    for _ in range(5):
        await steps.poller.look()
    assert steps.store.calls.count("pending_controls") == 2


async def test_question_that_fails_is_asked_again_and_the_list_is_made(
    steps: Steps,
) -> None:
    steps.store.failures["data_version"] = 2
    steps.send()
    await steps.poller.look()
    assert steps.steerable.done == ["pause"]
    await steps.poller.look()
    await steps.poller.look()
    assert steps.results() == ["applied"]


async def test_list_that_fails_is_made_on_the_next_tick(steps: Steps) -> None:
    steps.send()
    steps.store.failures["pending_controls"] = 1
    await steps.poller.look()
    assert steps.steerable.done == []
    await steps.poller.look()
    assert steps.steerable.done == []
    steps.now += 0.2
    await steps.poller.look()
    assert steps.results() == ["applied"]


async def test_lists_that_keep_failing_are_made_less_often(steps: Steps) -> None:
    await steps.poller.look()
    steps.store.failures["pending_controls"] = 1000
    steps.now += PERIOD
    before = steps.store.calls.count("pending_controls")
    for _ in range(200):
        await steps.poller.look()
        steps.now += 0.1
    assert 10 <= steps.store.calls.count("pending_controls") - before <= 15


async def test_flood_is_handled_in_bounded_batches_in_order(steps: Steps) -> None:
    total = BATCH * 3 + 5
    for _ in range(total):
        steps.send("resume")
    await steps.poller.look()
    assert len(steps.steerable.done) == BATCH
    for _ in range(3):
        await steps.poller.look()
    assert len(steps.steerable.done) == total
    lists = steps.store.calls.count("pending_controls")
    await steps.poller.look()
    assert steps.store.calls.count("pending_controls") == lists


# --- pause, resume, stop


async def test_controls_are_applied_in_order_and_stamped_after_the_effect(
    steps: Steps,
) -> None:
    for verb in ("stop", "pause", "resume"):
        steps.send(verb, created_at=1.0)
    seen: list[list[str]] = []
    steps.store.hooks["finalize_control"] = lambda: seen.append(
        list(steps.steerable.done)
    )
    await steps.poller.tick()
    assert steps.steerable.done == ["stop", "pause", "resume"]
    assert seen == [["stop"], ["stop", "pause"], ["stop", "pause", "resume"]]
    assert steps.results() == ["applied"] * 3
    with ReadDB.open(steps.home.state_db) as database:
        assert all(row.claimed_at is None for row in database.controls())
        assert all(row.applied_at is not None for row in database.controls())
    assert "claim_control" not in steps.store.calls


async def test_phase_follows_the_gate(steps: Steps) -> None:
    for verb, phase in (("pause", "paused"), ("resume", "executing")):
        steps.send(verb)
        steps.store.failures["set_phase"] = 1  # it is tried again
        await steps.poller.tick()
        found = await steps.db.session(SID)
        assert found is not None
        assert found.current_phase == phase
    steps.send("pause")
    steps.store.failures["set_phase"] = 2  # and then left
    await steps.poller.tick()
    assert steps.results() == ["applied"] * 3


async def test_stamp_is_tried_twice_and_then_later_without_a_second_effect(
    steps: Steps,
) -> None:
    steps.send("pause")
    steps.send("stop")
    steps.store.failures["finalize_control"] = 4
    for _ in range(2):
        await steps.poller.tick()
        assert steps.results() == [None, None]
        assert steps.steerable.done == ["pause"]
    assert steps.store.calls.count("finalize_control") == 4
    await steps.poller.tick()
    assert steps.results() == ["applied", "applied"]
    assert steps.steerable.done == ["pause", "stop"]


async def test_new_poller_after_a_crash_applies_an_unstamped_pause_again(
    steps: Steps,
) -> None:
    steps.send("pause")
    steps.store.failures["finalize_control"] = 2
    await steps.poller.tick()
    await steps.new_poller().tick()
    assert steps.steerable.done == ["pause", "pause"]
    assert steps.results() == ["applied"]


async def test_error_of_an_effect_is_its_outcome_and_ends_nothing(
    steps: Steps,
) -> None:
    steps.send("pause")
    steps.message("x")
    steps.steerable.fails = ValueError("y" * 2000)
    await steps.poller.tick()
    steps.steerable.fails = None
    steps.send("resume")
    await steps.poller.tick()
    failed, also, last = steps.results()
    assert failed is not None
    assert failed.startswith("rejected:error:yyy")
    assert len(failed) == 500
    assert also is not None
    assert also.startswith("rejected:error:")
    assert last == "applied"


async def test_rejection_that_cannot_be_recorded_ends_the_tick(steps: Steps) -> None:
    steps.send("pause")
    steps.send("resume")
    steps.steerable.fails = ValueError("no")
    steps.store.failures["finalize_control"] = 2
    await steps.poller.tick()
    assert steps.results() == [None, None]


async def test_unknown_verb_is_rejected(steps: Steps) -> None:
    sql(
        steps.home,
        "INSERT INTO session_controls (id, session_id, verb, created_at)"
        " SELECT 'odd', ?, 'stop', 1.0",
        (SID,),
    )
    odd = ControlRow(id="odd", session_id=SID, verb="foo")

    async def listed(*_: Any) -> list[ControlRow]:
        return [odd]

    steps.store.db.pending_controls = listed  # type: ignore[assignment,method-assign]
    await steps.poller.tick()
    assert steps.row("odd").result == "rejected:unsupported-verb:foo"
    assert steps.steerable.done == []


async def test_outcomes_are_logged_once_and_a_failed_log_changes_nothing(
    steps: Steps,
) -> None:
    first = steps.send("pause")
    second = steps.message("hello")
    await steps.poller.tick()
    steps.store.failures["log_controls"] = 1
    steps.send("stop")
    await steps.poller.tick()
    assert steps.results() == ["applied"] * 3
    assert (await steps.metadata())["controls"] == [
        {"id": first, "verb": "pause", "result": "applied", "ts": 7.0},
        {"id": second, "verb": "message", "result": "applied", "ts": 7.0},
    ]


# --- message


async def test_message_is_claimed_then_checked_then_appended_then_stamped(
    steps: Steps,
) -> None:
    control = steps.message("first text")
    seen: list[object] = []
    steps.store.hooks["claim_control"] = lambda: seen.append("claim")
    steps.store.hooks["finalize_control"] = lambda: seen.append(
        (steps.row(control).result, steps.row(control).applied_at)
    )
    asked = steps.steerable.has_pending

    def has_pending() -> bool:
        seen.append("pending?")
        return asked()

    steps.steerable.has_pending = has_pending  # type: ignore[method-assign]
    await steps.poller.tick()
    assert seen == ["claim", "pending?", (f"applying:{RUN}", None)]
    assert steps.steerable.messages == [
        {"ts": 7.0, "text": "first text", "control_id": control}
    ]
    row = steps.row(control)
    assert row.result == "applied"
    assert row.claimed_at is not None
    assert row.applied_at is not None


async def test_message_that_nobody_would_read_is_rejected(steps: Steps) -> None:
    control = steps.message("too late")
    steps.steerable.pending = False
    await steps.poller.tick()
    assert steps.row(control).result == NO_PENDING
    assert steps.steerable.messages == []


@pytest.mark.parametrize(
    "payload", [None, "null", "[]", "{}", '{"text": null}', '{"text": ""}', "{broken"]
)
async def test_payload_without_a_text_is_an_empty_message(
    steps: Steps, payload: str | None
) -> None:
    steps.send("message", payload)
    await steps.poller.tick()
    assert steps.steerable.texts == [""]


@pytest.mark.parametrize(
    "text", ["x" * 70_000, "x" * 5_000_000, "a\0b"], ids=["large", "huge", "nul"]
)
async def test_text_that_no_sender_may_queue_is_not_delivered(
    steps: Steps, text: str
) -> None:
    control = steps.message(text)
    await steps.poller.tick()
    result = steps.row(control).result
    assert result is not None
    assert result.startswith("rejected:error:")
    assert steps.steerable.messages == []


@pytest.mark.parametrize("claim", ["applying", "applying:run-7", f"applying:{RUN}"])
async def test_claimed_message_is_left_alone_and_holds_up_nothing(
    steps: Steps, claim: str
) -> None:
    for _ in range(BATCH + 1):
        steps.message("stranded", result=claim, claimed_at=1.0)
    last = steps.message("fresh")
    await steps.poller.tick()
    assert steps.steerable.texts == ["fresh"]
    assert steps.row(last).result == "applied"
    assert steps.results()[:-1] == [claim] * (BATCH + 1)


async def test_message_that_cannot_be_claimed_waits_and_so_do_those_behind(
    steps: Steps,
) -> None:
    steps.message("one")
    steps.message("two")
    steps.store.failures["claim_control"] = 1
    await steps.poller.tick()
    assert steps.results() == [None, None]
    await steps.poller.tick()
    assert steps.steerable.texts == ["one", "two"]


async def test_unstamped_message_is_stamped_later_and_not_appended_again(
    steps: Steps,
) -> None:
    steps.message("one")
    steps.message("two")
    steps.store.failures["finalize_control"] = 2
    await steps.poller.tick()
    assert steps.results() == [f"applying:{RUN}", None]
    assert steps.steerable.texts == ["one"]
    await steps.poller.tick()
    assert steps.results() == ["applied", "applied"]
    assert steps.steerable.texts == ["one", "two"]


async def test_message_claimed_before_a_crash_is_never_delivered_again(
    steps: Steps,
) -> None:
    steps.message("one")
    steps.store.failures["finalize_control"] = 2
    await steps.poller.tick()
    later = steps.new_poller()
    await later.tick()
    await later.tick()
    assert steps.steerable.texts == ["one"]
    assert steps.results() == [f"applying:{RUN}"]


async def test_claim_that_a_person_resolved_meanwhile_is_not_overwritten(
    steps: Steps, caplog: pytest.LogCaptureFixture
) -> None:
    control = steps.message("one")

    def close_by_hand() -> None:
        resolve(steps.home, control, "abandoned", by="alice")

    steps.store.hooks["finalize_control"] = close_by_hand
    await steps.poller.tick()
    result = steps.row(control).result
    assert result is not None
    assert result.startswith("abandoned: resolved by alice")
    assert "another hand" in caplog.text
    assert steps.poller.outcomes == 0


async def test_two_pollers_deliver_each_message_once(steps: Steps) -> None:
    other_db = await StateDB.open(steps.home.state_db)
    async with other_db:
        other = ControlPoller(other_db, SID, RUN, steps.steerable)
        for number in range(100):
            steps.message(f"m{number}")
            steps.send("pause")
        for _ in range(6):
            await asyncio.gather(steps.poller.tick(), other.tick())
    assert sorted(map(str, steps.steerable.texts)) == sorted(
        f"m{number}" for number in range(100)
    )
    assert set(steps.results()) == {"applied"}


# --- its own life


async def test_state_is_published_before_and_after(steps: Steps) -> None:
    assert (await steps.metadata())["flow_control_poller"] == "pending"
    running = asyncio.create_task(steps.poller.run())
    while "pending_controls" not in steps.store.calls:
        await asyncio.sleep(0.01)
    assert (await steps.metadata())["flow_control_poller"] == "active"
    await steps.poller.stop()
    await running
    assert (await steps.metadata())["flow_control_poller"] == "stopped"


async def test_publishing_takes_a_bounded_time(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heaveto.controls.poller._PUBLISH", 0.01)
    steps.store.gates["merge_metadata"] = asyncio.Event()  # nobody sets it
    await steps.poller.stop()
    assert (await steps.metadata())["flow_control_poller"] == "pending"
    await asyncio.wait_for(steps.poller.run(), 5)


async def test_stopping_lets_the_tick_in_hand_end(steps: Steps) -> None:
    control = steps.message("one")
    gate = steps.store.gates["finalize_control"] = asyncio.Event()
    running = asyncio.create_task(steps.poller.run())
    while "finalize_control" not in steps.store.calls:
        await asyncio.sleep(0.01)
    await steps.poller.stop()
    gate.set()
    await running
    assert steps.row(control).result == "applied"


async def test_cancelling_lets_the_tick_in_hand_end(steps: Steps) -> None:
    control = steps.message("one")
    gate = steps.store.gates["finalize_control"] = asyncio.Event()
    running = asyncio.create_task(steps.poller.run())
    while "finalize_control" not in steps.store.calls:
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.sleep(0)
    gate.set()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert running.cancelled()
    assert steps.row(control).result == "applied"


async def test_stop_before_the_first_look_is_kept(steps: Steps) -> None:
    await steps.poller.stop()
    await asyncio.wait_for(steps.poller.run(), 5)


async def test_poller_that_was_stopped_before_it_ran_stays_stopped(
    steps: Steps,
) -> None:
    await steps.poller.stop()
    await steps.poller.run()
    assert (await steps.metadata())["flow_control_poller"] == "stopped"


async def test_unexpected_error_of_the_store_ends_nothing(steps: Steps) -> None:
    def broken() -> None:
        raise RuntimeError("unheard of")

    for name in ("data_version", "pending_controls", "claim_control"):
        steps.store.hooks[name] = broken
    steps.message("one")
    await steps.poller.look()
    steps.store.hooks.clear()
    steps.now += PERIOD
    await steps.poller.look()
    assert steps.steerable.texts == ["one"]


# --- the end of a run


async def test_sweep_closes_what_was_never_claimed_after_the_end(steps: Steps) -> None:
    claimed = steps.message("in hand", result="applying", claimed_at=2.0)
    waiting = steps.send("resume")
    await steps.poller.sweep()
    assert steps.row(waiting).result is None
    await steps.db.set_status(SID, "cancelled", reason_code="run.cancelled")
    await steps.poller.sweep()
    assert steps.row(waiting).result == SWEPT
    assert steps.row(waiting).applied_at is not None
    assert steps.row(claimed).result == "applying"
    assert [item["id"] for item in (await steps.metadata())["controls"]] == [waiting]
    await steps.poller.sweep()
    assert len((await steps.metadata())["controls"]) == 1


async def test_sweep_that_fails_leaves_the_rows(steps: Steps) -> None:
    waiting = steps.send("resume")
    await steps.db.set_status(SID, "failed", reason_code="x")
    steps.store.failures["sweep_controls"] = 1
    await steps.poller.sweep()
    assert steps.row(waiting).result is None


async def test_no_row_is_ever_removed(steps: Steps) -> None:
    for verb in ("pause", "resume", "stop", "message"):
        steps.send(verb)
    await steps.poller.tick()
    steps.send("pause")
    await steps.db.set_status(SID, "failed", reason_code="x")
    await steps.poller.sweep()
    assert len(steps.results()) == 5
