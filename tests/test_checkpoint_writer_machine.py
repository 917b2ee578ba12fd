"""A checkpoint writer as a state machine; errors, crashes, substitutes are rules.

The disk is in memory, the writer, its thread and its loop are real. After every rule a
reader finds the state after some number of admitted transitions, at least as many as
were acknowledged, context included (SPEC E-37, E-38, E-49, E-103, E-104).
"""

from __future__ import annotations

import asyncio
import copy
import errno
import logging
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from harness.disk import MemoryOs
from harness.faults import SENTINEL, Fault, FaultyOs, Killed
from heaveto.checkpoint import CheckpointError, CheckpointWriter, load_checkpoint

PATH = Path("/home/run/checkpoint.json")
ERRORS = st.sampled_from([errno.EIO, errno.ENOSPC, errno.EINTR])
TEXT = st.text(alphabet="aé😀/~\x01", max_size=3)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from([0.0, -0.0])
    | TEXT,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)
    ),
    max_leaves=6,
)
CONTEXTS = st.none() | st.dictionaries(TEXT, VALUES, max_size=3)
OUTCOMES = st.tuples(
    st.sampled_from(["op-0", "op-1", "op-2", "node-0", "node-1"]),
    st.sampled_from(["completed", "failed"]),
    VALUES,
    CONTEXTS,
)
LOSS = (errno.EIO, errno.ENOSPC, errno.EINTR)


def same(one: Any, other: Any) -> bool:
    """Compare JSON with its types and the sign of zero."""
    return repr(one) == repr(other) if type(one) is float else _same(one, other)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(same(one[name], other[name]) for name in one)
        )
    if isinstance(one, list):
        return (
            isinstance(other, list)
            and len(one) == len(other)
            and all(map(same, one, other))
        )
    return type(one) is type(other) and bool(one == other)


class Writers(RuleBasedStateMachine):
    """One unit, the writers that come and go, and a model of plain dicts."""

    def __init__(self) -> None:
        super().__init__()
        logging.disable(logging.CRITICAL)
        self.loop = asyncio.new_event_loop()
        self.disk = MemoryOs()
        self.states: list[dict[str, Any]] = []
        self.least = -1
        self.foreign: dict[str, int] = {}
        self.current: CheckpointWriter | None = None

    @property
    def writer(self) -> CheckpointWriter:
        assert self.current is not None
        return self.current

    def teardown(self) -> None:
        self.current = None
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()
        logging.disable(logging.NOTSET)

    # --- writers come and go

    @initialize(
        version=st.sampled_from([2, 3, 3, 3]),
        records=st.sampled_from([1, 2, 3, 128]),
        size=st.sampled_from([200, 600, 8_388_608]),
    )
    def begin(self, version: int, records: int, size: int) -> None:
        self.version = version
        self.limits = {"max_journal_records": records, "max_journal_bytes": size}
        empty: dict[str, Any] = {"flow_context": {}, "ops": {}, "spawned": {}}
        self.open(empty)

    def open(self, state: dict[str, Any]) -> None:
        """A new process with a new writer, brought to what was recovered."""
        self.system = FaultyOs(inner=self.disk)
        self.current = CheckpointWriter(
            PATH,
            session_id="s-1",
            prompt="p",
            plan=[{"agent_id": "op-0"}],
            config={},
            flow_context=state["flow_context"],
            ops=state["ops"],
            spawned=list(state["spawned"].values()),
            version=self.version,
            system=self.system,
            **self.limits,
        )
        self.states = [copy.deepcopy(state)]

    def recovered(self) -> dict[str, Any] | None:
        """Read what is on disk; None when nothing was ever published."""
        if self.least < 0 and self.disk.inode(str(PATH)) is None:
            return None
        found = load_checkpoint(PATH, system=self.disk).state
        return {
            "flow_context": found["flow_context"],
            "ops": found["ops"],
            "spawned": {entry["node_id"]: entry for entry in found["spawned"]},
        }

    def reopen(self) -> None:
        self.current = None
        self.disk.restart()
        found = self.recovered()
        self.open(found or {"flow_context": {}, "ops": {}, "spawned": {}})
        self.least = -1 if found is None else 0

    def intact(self) -> bool:
        return not self.foreign

    # --- what a run does

    def admit(self, outcome: tuple[str, str, Any, Any]) -> Any:
        identity, status, response, context = outcome
        state = copy.deepcopy(self.states[-1])
        if context is not None:
            state["flow_context"] = copy.deepcopy(context)
        given = {"status": status, "response": copy.deepcopy(response)}
        if identity.startswith("op-"):
            state["ops"][identity] = {"agent_id": identity, **given}
            call = self.writer.record(
                identity, status=status, response=response, flow_context=context
            )
        else:
            texts = ("operation", "assignee", "instruction", "parent_id", "spawn_id")
            extra = {**dict.fromkeys(texts), "context": None}
            state["spawned"][identity] = {"node_id": identity, **given, **extra}
            call = self.writer.record_spawned(
                identity, status=status, response=response, flow_context=context
            )
        self.states.append(state)
        return call, len(self.states) - 1

    def settle(self, calls: list[Any]) -> list[BaseException | None]:
        """Wait for calls and note what was acknowledged."""

        async def wait() -> list[Any]:
            waiting = asyncio.gather(*[c for c, _ in calls], return_exceptions=True)
            return await asyncio.wait_for(waiting, 20)

        found: list[BaseException | None] = self.loop.run_until_complete(wait())
        for (_, number), result in zip(calls, found, strict=True):
            if result is None:
                self.least = max(self.least, number)
            else:
                assert isinstance(result, CheckpointError), repr(result)
        return found

    def calls(self, make: Any) -> list[BaseException | None]:
        async def admit() -> list[Any]:
            made: list[Any] = make()
            return made

        made = self.loop.run_until_complete(admit())
        return self.settle(made)

    @rule(outcomes=st.lists(OUTCOMES, min_size=1, max_size=5))
    def record(self, outcomes: list[Any]) -> None:
        found = self.calls(lambda: [self.admit(outcome) for outcome in outcomes])
        if self.intact():
            assert found == [None] * len(outcomes)

    @rule()
    def flush(self) -> None:
        found = self.calls(lambda: [(self.writer.flush(), 0)])
        if self.intact():
            assert found == [None]
            self.least = len(self.states) - 1

    @rule()
    def replace_plan(self) -> None:
        plan = [{"agent_id": "op-0", "node_id": "u-0"}]
        found = self.calls(lambda: [(self.writer.replace_plan(plan), 0)])
        if self.intact():
            assert found == [None]
            self.least = len(self.states) - 1

    @rule(outcome=OUTCOMES)
    def refuse(self, outcome: tuple[str, str, Any, Any]) -> None:
        """A value that cannot be captured changes nothing (E-92, E-111)."""
        identity, status, response, _ = outcome
        before = self.writer.statistics().admitted
        context = {"a": [response, float("nan")]}
        (found,) = self.calls(
            lambda: [
                (
                    self.writer.record(
                        identity, status=status, response=response, flow_context=context
                    ),
                    0,
                )
            ]
        )
        assert isinstance(found, ValueError)
        assert self.writer.statistics().admitted == before

    # --- what goes wrong

    @rule(
        outcomes=st.lists(OUTCOMES, min_size=1, max_size=4),
        ahead=st.integers(0, 30),
        when=st.sampled_from(["before", "after"]),
        error=ERRORS,
        lasting=st.booleans(),
    )
    def fail(
        self, outcomes: list[Any], ahead: int, when: str, error: int, lasting: bool
    ) -> None:
        """A system call fails; what is acknowledged all the same must be there."""
        at = len(self.system.seams) + ahead
        fault = Fault(at=at, act="fail", when=when, error=error, lasting=lasting)
        self.system.faults = [fault]
        self.calls(lambda: [self.admit(outcome) for outcome in outcomes])
        self.system.faults = []

    @rule(outcomes=st.lists(OUTCOMES, min_size=1, max_size=4), keep=st.integers(1, 40))
    def short(self, outcomes: list[Any], keep: int) -> None:
        """The next write takes a few bytes only, and goes on."""
        at = len(self.system.seams)
        self.system.faults = [
            Fault(at=at + n, act="short", keep=keep) for n in range(30)
        ]
        found = self.calls(lambda: [self.admit(outcome) for outcome in outcomes])
        self.system.faults = []
        if self.intact():
            assert found == [None] * len(outcomes)

    @precondition(intact)
    @rule(
        outcomes=st.lists(OUTCOMES, max_size=4),
        ahead=st.integers(0, 40),
        when=st.sampled_from(["before", "after"]),
        keep=st.none() | st.integers(1, 60),
    )
    def die(self, outcomes: list[Any], ahead: int, when: str, keep: int | None) -> None:
        """The process is killed at some system call, perhaps inside a write."""
        at = len(self.system.seams) + ahead
        self.system.faults = [Fault(at=at, act="kill", when=when, keep=keep)]
        self.calls(lambda: [self.admit(outcome) for outcome in outcomes])
        self.system.dead = True
        self.reopen()

    @precondition(intact)
    @rule()
    def close(self) -> None:
        self.closed()
        if self.least >= 0:
            self.least = len(self.states) - 1
        self.recovered()
        self.reopen()

    def closed(self) -> None:
        """Close; only what is no harm to the unit may be told at the end."""

        async def close() -> list[Any]:
            closing = asyncio.gather(self.writer.aclose(), return_exceptions=True)
            return list(await closing)

        (found,) = self.loop.run_until_complete(close())
        if found is not None:
            assert isinstance(found, CheckpointError)
            assert found.code in ("cleanup", "close")

    @rule(suffix=st.sampled_from(["", ".journal"]), outcome=OUTCOMES)
    def substitute(self, suffix: str, outcome: tuple[str, str, Any, Any]) -> None:
        """Somebody replaces a published file: no acknowledgement, nothing touched."""
        path = str(PATH) + suffix
        if self.intact():
            self.flush()
        if (self.version == 2 and suffix) or self.disk.inode(path) is None:
            return
        self.foreign[path] = self.disk.put(path, SENTINEL)
        (found,) = self.calls(lambda: [self.admit(outcome)])
        assert isinstance(found, CheckpointError)

    @precondition(lambda self: bool(self.foreign))
    @rule(outcome=OUTCOMES)
    def take_away(self, outcome: tuple[str, str, Any, Any]) -> None:
        """The substitutes go; the writer publishes its unit again, whole."""
        folder = self.disk.open(str(PATH.parent), 0)
        for path in self.foreign:
            self.disk.unlink(Path(path).name, dir_fd=folder)
        self.disk.close(folder)
        self.foreign.clear()
        assert self.calls(lambda: [self.admit(outcome)]) == [None]

    # --- what holds always

    @invariant()
    def a_reader_finds_an_admitted_prefix(self) -> None:
        for path, number in self.foreign.items():
            assert self.disk.inode(path) == number
            assert self.disk.content(path) == SENTINEL
        if self.foreign or not self.states:
            return
        found = self.recovered()
        if found is not None:
            later = self.states[max(self.least, 0) :]
            assert any(same(state, found) for state in later)

    @invariant()
    def nothing_is_left_lying_about(self) -> None:
        if not self.foreign and self.current is not None:
            stats = self.writer.statistics()
            assert stats.queued == stats.admitted - stats.persisted >= 0


Writers.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=25,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestWriters = Writers.TestCase


def test_killed_is_no_error_that_a_program_catches() -> None:
    assert not issubclass(Killed, Exception)
