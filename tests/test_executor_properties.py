"""Random graphs under random failures, pauses, stops, messages and cancellation.

An independent model says what must come out: :func:`expected` walks the graph in
dependency order and knows nothing of queues, tasks or gates.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.flows import Hands, Record, edge, executor, node, settle
from heaveto.model import SignalKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from heaveto.executor import DependencyAwareExecutor, Result

RELAXED = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


class Answer:
    """A condition whose answer was drawn."""

    def __init__(self, answer: bool) -> None:
        self.answer = answer

    def apply(self, _result: object, _context: Mapping[str, object]) -> bool:
        return self.answer


@dataclass
class Case:
    """A graph, and what each operation will do when it is run."""

    names: list[str]
    edges: list[tuple[str, str, bool | None]]
    gates: set[str]
    acts: dict[str, str]
    """ok, fail, pass, reject."""
    on_failure: str
    limit: int
    seed: int
    ops: list[str] = field(default_factory=list)

    def heads(self, name: str) -> list[tuple[str, bool | None]]:
        return [(head, answer) for head, tail, answer in self.edges if tail == name]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    count = draw(st.integers(1, 9))
    names = [f"n{number}" for number in range(count)]
    edges = [
        (names[i], names[j], draw(st.sampled_from([None, None, True, False])))
        for j in range(count)
        for i in range(j)
        if draw(st.integers(0, 3)) == 0
    ]
    gates = {name for name in names if draw(st.integers(0, 5)) == 0}
    acts = {
        name: draw(st.sampled_from(["pass", "reject", "fail"]))
        if name in gates
        else draw(st.sampled_from(["ok", "ok", "ok", "fail"]))
        for name in names
    }
    order = draw(st.permutations(names))
    return Case(
        list(order),
        draw(st.permutations(edges)),
        gates,
        acts,
        draw(st.sampled_from(["skip", "continue", "stop"])),
        draw(st.integers(0, 4)),
        draw(st.integers(0, 1 << 16)),
    )


def made(case: Case) -> tuple[DependencyAwareExecutor, Hands, Record]:
    return executor(
        [node(name, gate=name in case.gates) for name in case.names],
        [
            edge(head, tail, None if answer is None else Answer(answer))
            for head, tail, answer in case.edges
        ],
        on_failure=case.on_failure,
        max_concurrent=case.limit,
    )


async def act(case: Case, hands: Hands, name: str) -> None:
    """Let one running operation end as the case says."""
    kind = case.acts[name]
    if kind == "fail":
        await hands.fail(name)
    elif kind in ("pass", "reject"):
        await hands.finish(name, response={"gate_verdict": kind})
    else:
        await hands.finish(name, response={"context": {name: 1}})


def expected(case: Case) -> dict[str, str]:
    """What becomes of each operation when nobody intervenes and nothing stops."""
    verdict: dict[str, str] = {}
    vetoed: set[str] = set()
    for name in sorted(case.names, key=lambda n: int(n[1:])):
        heads = case.heads(name)
        if any(
            head in vetoed
            or (case.acts[head] == "reject" and verdict[head] == "completed")
            or (case.on_failure == "skip" and verdict[head] == "failed")
            for head, _ in heads
        ):
            vetoed.add(name)
            verdict[name] = "skipped"
        elif heads and not any(
            verdict[head] in ("completed", "failed") and answer is not False
            for head, answer in heads
        ):
            verdict[name] = "skipped"
        else:
            verdict[name] = "failed" if case.acts[name] == "fail" else "completed"
    return verdict


def check_result(case: Case, result: Result, hands: Hands, record: Record) -> None:
    """What holds of every run that returned (SPEC C-15, C-17)."""
    lists = [
        result.completed,
        result.failed,
        result.skipped,
        result.cancelled,
        result.withheld,
    ]
    together = [name for one in lists for name in one]
    assert sorted(together) == sorted(case.names)
    assert record.ends() == dict.fromkeys(case.names, 1)
    assert len(hands.started) == len(set(hands.started))
    ran = {*result.completed, *result.failed, *result.cancelled}
    assert set(hands.started) == ran
    assert set(result.results) == {*result.completed, *result.failed}
    position = {(s.name, s.kind): i for i, s in enumerate(record.signals)}
    ends = {s.name: i for i, s in enumerate(record.signals) if s.name in ran}
    for head, tail, _ in case.edges:
        started = position.get((tail, SignalKind.STARTED))
        if started is not None and head in ends:
            assert ends[head] < started
    for name in result.completed:
        if name not in case.gates:
            assert result.context[name] == 1


@RELAXED
@given(cases())
async def test_an_undisturbed_run_ends_as_the_model_says(case: Case) -> None:
    made_, hands, record = made(case)
    rng = random.Random(case.seed)
    run = asyncio.ensure_future(made_.execute())
    await settle()
    while hands.busy:
        if case.limit:
            assert len(hands.busy) <= case.limit
        await act(case, hands, rng.choice(hands.busy))
    result = await run
    check_result(case, result, hands, record)
    got = {
        **dict.fromkeys(result.completed, "completed"),
        **dict.fromkeys(result.failed, "failed"),
        **dict.fromkeys(result.skipped, "skipped"),
    }
    if case.on_failure != "stop":
        assert got == expected(case)
        assert result.withheld == ()
    elif not result.failed:
        assert result.withheld == ()


@RELAXED
@given(cases())
async def test_a_disturbed_run_keeps_every_promise(case: Case) -> None:
    made_, hands, record = made(case)
    rng = random.Random(case.seed)
    sent = 0
    stopped = False
    run = asyncio.ensure_future(made_.execute())
    for _ in range(200):
        before = list(hands.started)
        held = made_.paused
        choice = rng.choice(["act", "act", "act", "pause", "resume", "say", "stop"])
        if choice == "act" and hands.busy:
            await act(case, hands, rng.choice(hands.busy))
        elif choice == "pause":
            made_.pause()
        elif choice == "resume":
            made_.resume()
        elif choice == "say" and made_.has_pending():
            made_.append_message({"ts": sent, "text": f"<{sent}>"})
            sent += 1
        elif choice == "stop" and rng.random() < 0.1:
            made_.stop()
            stopped = True
        if choice != "act" or rng.random() < 0.5:
            await settle()
        if stopped or (made_.paused and (held or choice == "pause")):
            assert hands.started == before
        if run.done():
            break
    made_.resume()
    await settle()
    while hands.busy:
        await act(case, hands, rng.choice(hands.busy))
    result = await run
    check_result(case, result, hands, record)
    check_messages(sent, result.context, hands)


def check_messages(sent: int, context: Mapping[str, Any], hands: Hands) -> None:
    """Each message is in one instruction, the one that its entry names, or waits."""
    queue = context.get("operator_messages", [])
    assert [entry["ts"] for entry in queue] == list(range(sent))
    for entry in queue:
        carriers = [
            call.node.name for call in hands.calls if entry["text"] in call.instruction
        ]
        owner = entry.get("rendered_into_op")
        assert carriers == ([] if owner is None else [owner])


@RELAXED
@given(cases(), st.integers(0, 12))
async def test_a_cancelled_run_ends_everything_once(case: Case, steps: int) -> None:
    made_, hands, record = made(case)
    rng = random.Random(case.seed)
    run = asyncio.ensure_future(made_.execute())
    for _ in range(steps):
        if hands.busy:
            await act(case, hands, rng.choice(hands.busy))
        else:
            await asyncio.sleep(0)
        if rng.random() < 0.2:
            made_.pause()
    done = run.done()
    run.cancel()
    try:
        await run
    except asyncio.CancelledError:
        assert not done
    else:
        assert done
    announced = set(record.of(SignalKind.QUEUED))
    assert record.ends() == dict.fromkeys(announced, 1)
    assert hands.busy == []


@pytest.mark.parametrize("seed", range(50))
async def test_a_pause_interrupts_nothing_and_starts_nothing(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(4, 30)
    names = [f"n{number}" for number in range(count)]
    edges = [
        (names[i], names[j])
        for j in range(count)
        for i in range(max(0, j - 4), j)
        if rng.random() < 0.3
    ]
    made_, hands, record = executor(names, edges, max_concurrent=rng.randint(0, 5))
    run = asyncio.ensure_future(made_.execute())
    await settle()
    for _ in range(rng.randint(0, count // 2)):
        if hands.busy:
            await hands.finish(rng.choice(hands.busy))
    in_flight, started = set(hands.busy), list(hands.started)
    made_.pause()
    await settle()
    assert set(hands.busy) == in_flight
    for name in sorted(in_flight):
        await hands.finish(name)
        assert hands.started == started
    assert record.of(SignalKind.CANCELLED) == []
    assert not run.done() or len(started) == count
    made_.resume()
    await settle()
    while hands.busy:
        await hands.finish(rng.choice(hands.busy))
    result = await run
    assert sorted(result.completed) == sorted(names)
