"""Controls as a state machine against a model: every order, every fault, one fate."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from harness.steering import Recorder, make_home
from heaveto.controls import classify, enqueue, resolve
from heaveto.controls.poller import ControlPoller
from heaveto.errors import ControlError, StateDBError
from heaveto.liveness import Liveness
from heaveto.statedb import ReadDB
from heaveto.statedb.store import StateDB

SID = "ab" * 16
VERBS = ("pause", "resume", "stop", "message")


@dataclass
class Sent:
    """What the model knows of a control."""

    verb: str
    fate: str = "queued"
    delivered: int = 0
    touched_by_crash: bool = False
    order: int = field(default=0)


class Failing:
    """The real database with calls that fail, before or after they were done."""

    def __init__(self, db: StateDB) -> None:
        self.db = db
        self.plan: list[tuple[str, str]] = []

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.db, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            when = None
            if self.plan and self.plan[0][0] == name:
                _, when = self.plan.pop(0)
            if when == "before":
                raise StateDBError("told to fail", code="db_busy")
            done = await real(*args, **kwargs)
            if when == "after":
                raise StateDBError("the answer was lost")
            return done

        return call


class Controls(RuleBasedStateMachine):
    """Senders, two pollers that may crash, a person who resolves, an end."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="heaveto-test-"))
        self.home = make_home(self.folder / "home")
        self.loop = asyncio.new_event_loop()
        self.steerable = Recorder()
        self.sent: dict[str, Sent] = {}
        self.crashed = False
        self.over = False
        self.now = 100.0
        self.dbs = [self.run(StateDB.open(self.home.state_db)) for _ in range(2)]
        self.run(
            self.dbs[0].create_session(
                session_id=SID,
                run_id="r",
                name=None,
                metadata={"flow_control_poller": "active"},
            )
        )
        self.stores = [Failing(db) for db in self.dbs]
        self.pollers = [self.new_poller(0), self.new_poller(1)]

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def new_poller(self, index: int) -> ControlPoller:
        return ControlPoller(
            self.stores[index],
            SID,
            f"owner-{index}",
            self.steerable,
            clock=self.tick_clock,
            monotonic=lambda: self.now,
        )

    def tick_clock(self) -> float:
        self.now += 1.0
        return self.now

    def teardown(self) -> None:
        for db in self.dbs:
            self.run(db.close())
        self.loop.close()
        shutil.rmtree(self.folder)

    def alive(self, *_: Any) -> Liveness:
        return Liveness(alive=True, why="told")

    # --- what happens

    @rule(verb=st.sampled_from(VERBS), text=st.text(max_size=8))
    def send(self, verb: str, text: str) -> None:
        text = text.replace("\0", "")
        try:
            receipt = enqueue(
                self.home, SID, verb, text=text, clock=self.tick_clock, alive=self.alive
            )
        except ControlError:
            assert self.over
            return
        assert not self.over
        self.sent[receipt.control.id] = Sent(verb, order=len(self.sent))

    @rule(index=st.integers(0, 1))
    @precondition(lambda self: not self.over)
    def tick(self, index: int) -> None:
        self.run(self.pollers[index].tick())

    @rule()
    @precondition(lambda self: not self.over)
    def both_tick(self) -> None:
        async def both() -> None:
            await asyncio.gather(*(poller.tick() for poller in self.pollers))

        self.run(both())

    @rule(
        index=st.integers(0, 1),
        name=st.sampled_from(
            ["pending_controls", "claim_control", "finalize_control", "log_controls"]
        ),
        when=st.sampled_from(["before", "after"]),
        times=st.integers(1, 3),
    )
    def plan_failure(self, index: int, name: str, when: str, times: int) -> None:
        self.stores[index].plan = [(name, when)] * times

    @rule(index=st.integers(0, 1))
    @precondition(lambda self: not self.over)
    def crash(self, index: int) -> None:
        """What a poller had in hand is forgotten; another takes its place."""
        self.crashed = True
        self.pollers[index] = self.new_poller(index)

    @rule(pending=st.booleans())
    def change_graph(self, pending: bool) -> None:
        self.steerable.pending = pending

    @rule(outcome=st.sampled_from(["applied", "abandoned"]), data=st.data())
    def close_by_hand(self, outcome: Any, data: st.DataObject) -> None:
        if not self.sent:
            return
        control = data.draw(st.sampled_from(sorted(self.sent)))
        before = self.rows()[control]
        try:
            resolve(self.home, control, outcome, by="alice")
        except ControlError:
            assert before.claim is None
        else:
            assert before.claim is not None
            assert before.claim in str(self.rows()[control].result)

    @rule()
    @precondition(lambda self: not self.over and len(self.sent) > 3)
    def end(self) -> None:
        self.over = True
        self.run(self.dbs[0].set_status(SID, "completed", reason_code="run.completed"))
        for store in self.stores:
            store.plan = []
        self.run(self.pollers[0].sweep())

    # --- what always holds

    def rows(self) -> dict[str, Any]:
        with ReadDB.open(self.home.state_db) as database:
            return {row.id: row for row in database.controls()}

    @invariant()
    def every_control_has_one_fate(self) -> None:
        rows = self.rows()
        assert set(rows) == set(self.sent)
        delivered = [str(entry["control_id"]) for entry in self.steerable.messages]
        assert len(delivered) == len(set(delivered)), "a message came twice"
        for control, row in rows.items():
            klass = classify(row, run_over=self.over, alive=not self.over)
            by_hand = ": resolved by " in (row.result or "")
            if row.verb == "message" and not by_hand:
                times = delivered.count(control)
                assert times == 1 or klass != "applied"
                assert times == 0 or klass in ("applied", "claimed")
            assert (row.applied_at is None) == (
                klass in ("queued", "claimed", "never_landed")
            )
            if klass == "claimed":
                assert row.verb == "message"
                assert row.claimed_at is not None
                assert row.result.startswith("applying:owner-")
            if row.verb != "message":
                assert row.claimed_at is None
                assert klass != "applied" or row.verb in self.steerable.done
            assert not (self.over and klass == "queued")

    @invariant()
    def messages_arrive_in_the_order_they_were_sent(self) -> None:
        order = [
            self.sent[str(entry["control_id"])].order
            for entry in self.steerable.messages
        ]
        if not self.crashed and not any(store.plan for store in self.stores):
            assert order == sorted(order)


Controls.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestControls = Controls.TestCase
