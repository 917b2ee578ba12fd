"""The executor: order, conditions, gates, pause, stop, messages, cancellation."""

from __future__ import annotations

import asyncio
import gc
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from harness.flows import Hands, Record, edge, executor, node, settle
from heaveto.errors import FlowError, OperationError
from heaveto.executor import DependencyAwareExecutor
from heaveto.model import OperationStatus, Outcome, SignalKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from heaveto.model import Prepared, Signal


class Test:
    """A condition made of a function."""

    def __init__(self, ask: Callable[[object, Mapping[str, object]], object]) -> None:
        self.ask = ask

    def apply(self, result: object, context: Mapping[str, object]) -> bool:
        return self.ask(result, context)  # type: ignore[return-value]


Test.__test__ = False  # type: ignore[attr-defined]
NEVER = Test(lambda *_: False)
ALWAYS = Test(lambda *_: True)


# --- refusals before anything starts


@pytest.mark.parametrize(
    ("nodes", "edges", "code"),
    [
        (["a", "b"], [("a", "b"), ("b", "a")], "cycle"),
        (["a"], [("a", "a")], "cycle"),
        (["a"], [("zz", "a")], "unknown_id"),
        (["a"], [("a", "zz")], "unknown_id"),
        (["a", "a"], [], "duplicate_id"),
    ],
)
def test_a_bad_graph_is_refused(nodes: Any, edges: Any, code: str) -> None:
    with pytest.raises(FlowError) as found:
        executor(nodes, edges)
    assert found.value.code == code


@pytest.mark.parametrize("condition", [lambda *_: True, object(), "x"])
def test_a_condition_must_be_able_to_apply(condition: Any) -> None:
    with pytest.raises(FlowError) as found:
        executor(["a", "b"], [edge("a", "b", condition)])
    assert found.value.code == "bad_condition"


def test_an_asynchronous_condition_is_refused() -> None:
    class Later:
        async def apply(self, *_: object) -> bool:
            return False

    with pytest.raises(FlowError) as found:
        executor(["a", "b"], [edge("a", "b", Later())])  # type: ignore[arg-type]
    assert found.value.code == "bad_condition"


@pytest.mark.parametrize("limit", [-1, True])
def test_a_bad_limit_is_refused(limit: Any) -> None:
    with pytest.raises(FlowError):
        executor(["a"], max_concurrent=limit)


async def test_an_empty_graph_ends_at_once() -> None:
    made, _, record = executor([])
    result = await made.execute()
    assert result.completed == ()
    assert record.signals == []


async def test_it_runs_once() -> None:
    made, _, _ = executor([])
    await made.execute()
    with pytest.raises(RuntimeError):
        await made.execute()


# --- order and capacity


async def test_a_diamond_runs_in_order() -> None:
    made, hands, record = executor(
        "abcd", [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]
    )
    run = asyncio.ensure_future(made.execute())
    await settle()
    assert hands.started == ["a"]
    await hands.finish("a", response=1)
    assert hands.busy == ["b", "c"]
    await hands.finish("c", response=3)
    assert hands.busy == ["b"]
    await hands.finish("b", response=2)
    await hands.finish("d", response=4)
    result = await run
    assert result.completed == ("a", "b", "c", "d")
    assert result.results == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert record.trace("d") == ["NodeQueued", "NodeStarted", "NodeCompleted"]
    assert record.of(SignalKind.QUEUED) == ["a", "b", "c", "d"]


async def test_all_are_announced_before_any_starts() -> None:
    made, hands, record = executor("ab", [("a", "b")])
    run = asyncio.ensure_future(made.execute())
    await settle()
    kinds = [signal.kind for signal in record.signals]
    assert kinds[:2] == [SignalKind.QUEUED, SignalKind.QUEUED]
    queued = record.data("b", SignalKind.QUEUED)
    assert queued == {"depends_on": ["a"], "assignee": "w", "origin": "planned"}
    await hands.finish("a")
    await hands.finish("b")
    await run


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_no_more_than_the_limit_run(limit: int) -> None:
    made, hands, _ = executor("abcde", max_concurrent=limit)
    run = asyncio.ensure_future(made.execute())
    await settle()
    order = []
    while hands.busy:
        assert len(hands.busy) <= limit
        assert list(made.running) == sorted(hands.busy)
        order.append(hands.busy[0])
        await hands.finish(hands.busy[0])
    assert order == list("abcde")
    assert (await run).completed == tuple("abcde")


async def test_zero_runs_all_that_is_ready() -> None:
    made, hands, _ = executor("abcdefgh")
    run = asyncio.ensure_future(made.execute())
    await settle()
    assert hands.busy == list("abcdefgh")
    await hands.finish(*"abcdefgh")
    await run


async def test_a_long_chain_of_skips_needs_no_stack() -> None:
    names = [f"n{number}" for number in range(5000)]
    made, hands, record = executor(
        names, list(itertools.pairwise(names)), on_failure="skip"
    )
    run = asyncio.ensure_future(made.execute())
    await settle()
    await hands.fail("n0")
    result = await run
    assert len(result.skipped) == 4999
    assert set(record.ends().values()) == {1}


# --- what an operation sees


async def test_predecessors_and_shared_context_reach_an_operation() -> None:
    made, hands, _ = executor(
        "ab", [("a", "b")], context={"k": {"deep": [1]}, "a_result": "shared wins"}
    )
    run = asyncio.ensure_future(made.execute())
    await settle()
    assert hands.call("a").context == {"k": {"deep": [1]}, "a_result": "shared wins"}
    await hands.finish("a", response="mine")
    assert hands.call("b").context["a_result"] == "shared wins"
    await hands.finish("b")
    await run


async def test_every_operation_has_a_context_of_its_own() -> None:
    initial: dict[str, Any] = {"k": {"deep": [1]}}
    made, hands, _ = executor("abc", [("a", "c")], context=initial)
    run = asyncio.ensure_future(made.execute())
    await settle()
    initial["k"]["deep"].append("the caller was here")
    hands.call("a").context["k"]["deep"].append("a was here")  # type: ignore[index]
    assert hands.call("b").context == {"k": {"deep": [1]}}
    await hands.finish("a", response={"list": [1]})
    seen: Any = hands.call("c").context
    seen["a_result"]["list"].append(2)
    seen["k"]["deep"].clear()
    await hands.finish("b", "c")
    result = await run
    assert result.context == {"k": {"deep": [1]}}
    assert result.results["a"] == {"list": [1]}


async def test_context_of_a_response_is_merged_deeply() -> None:
    taken: list[Mapping[str, object]] = []

    def on_outcome(_: Outcome, context: Mapping[str, object]) -> None:
        taken.append(context)

    made, hands, _ = executor(
        "abc", context={"k": {"x": 1, "l": [1]}}, on_outcome=on_outcome
    )
    run = asyncio.ensure_future(made.execute())
    await settle()
    await hands.finish("a", response={"context": {"k": {"y": 2, "l": [2]}}})
    assert made.context == {"k": {"x": 1, "y": 2, "l": [2]}}
    await hands.finish("b", response={"context": {"k": 5, "n": None}})
    await hands.finish("c", response={"context": {}})
    assert (await run).context == {"k": 5, "n": None}
    assert taken[0] == {"k": {"x": 1, "y": 2, "l": [2]}}
    assert taken[1] == {"k": 5, "n": None}


@pytest.mark.parametrize("context", [5, "x", [1], None])
async def test_a_context_that_is_no_object_fails_its_operation(context: Any) -> None:
    made, hands, _ = executor("ab", context={"k": 1})
    run = asyncio.ensure_future(made.execute())
    await settle()
    await hands.finish("a", response={"context": context, "more": 1})
    await hands.finish("b")
    result = await run
    assert result.failed == ("a",)
    assert result.context == {"k": 1}
    assert result.results["a"] == {
        "error": "the context of a response must be an object",
        "code": "context_invalid",
    }


async def test_a_response_cannot_touch_the_messages() -> None:
    made, hands, _ = executor("ab", [("a", "b")])
    run = asyncio.ensure_future(made.execute())
    await settle()
    made.append_message({"ts": 0, "text": "keep"})
    await hands.finish("a", response={"context": {"operator_messages": []}})
    assert "- 1970-01-01T00:00:00Z: keep\n" in hands.call("b").instruction
    await hands.finish("b")
    assert (await run).failed == ("a",)


@pytest.mark.parametrize("member", ["spawn", "escalate"])
async def test_a_request_that_is_not_served_fails_its_operation(member: str) -> None:
    made, hands, record = executor("ab")
    run = asyncio.ensure_future(made.execute())
    await settle()
    await hands.finish("a", response={member: [{"worker": "w"}], "context": {"k": 1}})
    await hands.finish("b", response={member: []})
    result = await run
    assert result.failed == ("a",)
    assert result.completed == ("b",)
    assert result.context == {}
    assert record.data("a", SignalKind.FAILED)["error"] == {"code": "output_invalid"}


# --- conditions


async def test_one_open_path_is_enough() -> None:
    made, hands, record = executor(
        "abc", [edge("a", "c", NEVER), edge("b", "c", ALWAYS)]
    )
    run = asyncio.ensure_future(made.execute())
    await settle()
    await hands.finish("a", response="of a")
    await hands.finish("b", response="of b")
    assert hands.call("c").context == {"a_result": "of a", "b_result": "of b"}
    assert record.data("c", SignalKind.STARTED)["depends_on"] == ["b"]
    await hands.finish("c")
    await run


async def test_without_an_open_path_an_operation_is_skipped_and_so_are_others() -> None:
    made, hands, record = executor(
        "abcd",
        [edge("a", "c", NEVER), edge("b", "c", NEVER), edge("c", "d")],
    )
    run = asyncio.ensure_future(made.execute())
    await settle()
    await hands.finish("a", "b")
    result = await run
    assert result.skipped == ("c", "d")
    reasons = {n: record.data(n, SignalKind.SKIPPED)["reason"] for n in "cd"}
    assert reasons == {
        "c": {"code": "condition_false", "operation_id": "a", "name": "a"},
        "d": {"code": "upstream_skipped", "operation_id": "c", "name": "c"},
    }


async def test_a_condition_sees_the_result_and_the_context() -> None:
    seen: list[object] = []

    def ask(result: object, context: Mapping[str, object]) -> bool:
        seen.append((result, dict(context)))
        return True

    made, hands, _ = executor("ab", [edge("a", "b", Test(ask))], context={"k": 1})
    run = asyncio.ensure_future(made.execute())
    await settle()
    await hands.finish("a", response={"v": 2, "context": {"m": 3}})
    await hands.finish("b")
    await run
    assert seen == [({"v": 2, "context": {"m": 3}}, {"k": 1, "m": 3})]


async def test_a_condition_that_raises_fails_the_operation_it_stands_before() -> None:
    def ask(*_: object) -> bool:
        raise KeyError("x")

    made, hands, record = executor(
        "abc", [edge("a", "b", Test(ask)), edge("b", "c")], on_failure="skip"
    )
    run = asyncio.ensure_future(made.execute())
    await settle()
    await hands.finish("a")
    result = await run
    assert (result.completed, result.failed, result.skipped) == (("a",), ("b",), ("c",))
    assert record.trace("b") == ["NodeQueued", "NodeFailed"]


# --- failures


async def test_continue_runs_dependents_on_the_error_and_marks_them_stale() -> None:
    made, hands, record = executor("abcx", [("a", "b"), ("b", "c")])
    run = asyncio.ensure_future(made.execute())
    await settle()
    await hands.fail("a", OperationError("boom", code="exit_nonzero"))
    assert hands.call("b").context == {
        "a_result": {"error": "boom", "code": "exit_nonzero"}
    }
    await hands.finish("b")
    await hands.finish("c", "x")
    result = await run
    assert result.failed == ("a",)
    assert result.completed == ("b", "c", "x")
    assert result.stale == ("b", "c")
    assert record.data("b", SignalKind.STARTED)["stale"] is True
    assert record.data("x", SignalKind.STARTED)["stale"] is False


async def test_skip_skips_everything_that_depends_and_nothing_else() -> None:
    made, hands, record = executor(
        "abcdef",
        [("a", "b"), ("b", "c"), ("d", "c"), ("d", "e"), edge("a", "f", ALWAYS)],
        on_failure="skip",
    )
    run = asyncio.ensure_future(made.execute())
    await settle()
    await hands.fail("a")
    assert record.of(SignalKind.SKIPPED) == ["b", "f", "c"]
    await hands.finish("d")
    await hands.finish("e")
    result = await run
    assert (result.completed, result.skipped) == (("d", "e"), ("b", "c", "f"))
    assert record.data("c", SignalKind.SKIPPED)["reason"] == {
        "code": "upstream_failed",
        "operation_id": "a",
        "name": "a",
    }


async def test_stop_at_a_failure_withholds_what_has_not_started() -> None:
    made, hands, record = executor("abcd", [("a", "c"), ("b", "d")], on_failure="stop")
    run = asyncio.ensure_future(made.execute())
    await settle()
    await hands.fail("a")
    assert hands.busy == ["b"]
    assert not made.has_pending()
    await hands.finish("b")
    result = await run
    assert (result.failed, result.completed) == (("a",), ("b",))
    assert result.withheld == ("c", "d")
    assert result.closed_by == "on_failure"
    assert record.data("c", SignalKind.CANCELLED)["started"] is False


async def test_a_failure_leaves_siblings_alone() -> None:
    made, hands, _ = executor("abc")
    run = asyncio.ensure_future(made.execute())
    await settle()
    await hands.fail("b", ZeroDivisionError("7 / 0"))
    assert hands.busy == ["a", "c"]
    await hands.finish("a", "c")
    result = await run
    assert result.results["b"] == {
        "error": "ZeroDivisionError: 7 / 0",
        "code": "worker_error",
    }


async def test_an_error_text_is_kept_within_bounds() -> None:
    made, hands, _ = executor("a")
    run = asyncio.ensure_future(made.execute())
    await settle()
    await hands.fail("a", ValueError("x" * 100_000))
    result = await run
    assert len(result.results["a"]["error"]) == 4000  # type: ignore[index]


# --- gates


async def test_a_gate_that_rejects_vetoes_whatever_else_is_open() -> None:
    made, hands, record = executor(
        ["x", node("g", gate=True), "b", "c", "d"],
        [("x", "c"), ("g", "b"), ("b", "c"), ("x", "d")],
    )
    run = asyncio.ensure_future(made.execute())
    await settle()
    await hands.finish("x")
    await hands.finish("g", response={"gate_verdict": "reject", "why": "no"})
    await hands.finish("d")
    result = await run
    assert result.completed == ("x", "g", "d")
    assert result.skipped == ("b", "c")
    assert record.data("c", SignalKind.SKIPPED)["reason"] == {
        "code": "gate_rejected",
        "gate_id": "g",
        "gate_name": "g",
    }


async def test_a_gate_that_passes_opens_its_path() -> None:
    made, hands, _ = executor([node("g", gate=True), "b"], [("g", "b")])
    run = asyncio.ensure_future(made.execute())
    await settle()
    await hands.finish("g", response={"gate_verdict": "pass"})
    await hands.finish("b")
    assert (await run).completed == ("g", "b")


@pytest.mark.parametrize(
    "response",
    ["reject", None, {}, {"gate_verdict": "maybe"}, {"gate_verdict": True}, ["pass"]],
)
async def test_a_gate_without_a_verdict_fails(response: object) -> None:
    made, hands, _ = executor(
        [node("g", gate=True), "b"], [("g", "b")], on_failure="skip"
    )
    run = asyncio.ensure_future(made.execute())
    await settle()
    await hands.finish("g", response=response)
    result = await run
    assert (result.failed, result.skipped) == (("g",), ("b",))
    assert result.results["g"]["code"] == "output_invalid"  # type: ignore[index]


async def test_a_verdict_of_an_operation_that_is_no_gate_means_nothing() -> None:
    made, hands, _ = executor("ab", [("a", "b")])
    run = asyncio.ensure_future(made.execute())
    await settle()
    await hands.finish("a", response={"gate_verdict": "reject"})
    await hands.finish("b")
    assert (await run).completed == ("a", "b")


# --- what an earlier run left


def restored(status: OperationStatus, response: object = "old", **more: Any) -> Any:
    def make(name: str) -> Any:
        outcome = Outcome(operation_id=name, status=status, response=response)
        return node(name, restored=outcome, **more)

    return make


async def test_what_was_completed_before_is_not_run_again() -> None:
    saved: list[str] = []
    done = restored(OperationStatus.COMPLETED)
    made, hands, record = executor(
        [done("a"), "b"],
        [("a", "b")],
        on_outcome=lambda outcome, _: saved.append(outcome.operation_id),
    )
    run = asyncio.ensure_future(made.execute())
    await settle()
    assert hands.started == ["b"]
    assert hands.call("b").context == {"a_result": "old"}
    await hands.finish("b")
    result = await run
    assert result.completed == ("a", "b")
    assert result.results["a"] == "old"
    assert record.trace("a") == ["NodeQueued", "NodeCompleted"]
    assert saved == ["b"]


@pytest.mark.parametrize("on_failure", ["continue", "skip", "stop"])
async def test_a_failure_from_before_opens_no_path_and_gives_nothing(
    on_failure: str,
) -> None:
    failed = restored(OperationStatus.FAILED, {"error": "x"})
    made, hands, record = executor(
        [failed("a"), "b", "c", "d"],
        [("a", "b"), ("a", "c"), ("d", "c")],
        on_failure=on_failure,
    )
    run = asyncio.ensure_future(made.execute())
    await settle()
    await hands.finish("d")
    reason = record.data("b", SignalKind.SKIPPED)["reason"]
    assert reason["code"] == "upstream_failed"
    if on_failure == "skip":
        result = await run
        assert result.skipped == ("b", "c")
        return
    assert hands.call("c").context == {"d_result": "ok"}
    await hands.finish("c")
    result = await run
    assert (result.failed, result.skipped) == (("a",), ("b",))
    assert result.stale == ()


async def test_a_rejection_from_before_still_vetoes() -> None:
    gate = restored(OperationStatus.COMPLETED, {"gate_verdict": "reject"}, gate=True)
    made, hands, _ = executor([gate("g"), "b"], [("g", "b")])
    result = await made.execute()
    assert result.skipped == ("b",)
    assert hands.started == []


async def test_everything_restored_ends_at_once_even_when_paused() -> None:
    done = restored(OperationStatus.COMPLETED)
    made, _, record = executor([done("a"), done("b")], [("a", "b")])
    made.pause()
    assert (await made.execute()).completed == ("a", "b")
    assert record.ends() == {"a": 1, "b": 1}


# --- pause


async def test_a_pause_holds_what_is_ready_and_disturbs_nothing() -> None:
    made, hands, record = executor("abc", [("a", "b")])
    run = asyncio.ensure_future(made.execute())
    await settle()
    made.pause()
    await hands.finish("a")
    assert hands.busy == ["c"]
    assert record.of(SignalKind.PAUSED) == ["b"]
    assert made.paused
    await hands.finish("c")
    assert not run.done()
    made.resume()
    await settle()
    assert hands.busy == ["b"]
    await hands.finish("b")
    assert (await run).completed == ("a", "b", "c")
    assert record.trace("b") == [
        "NodeQueued",
        "NodePaused",
        "NodeStarted",
        "NodeCompleted",
    ]


async def test_pauses_are_not_counted() -> None:
    made, hands, _ = executor("a")
    made.pause()
    made.pause()
    run = asyncio.ensure_future(made.execute())
    await settle()
    made.resume()
    made.resume()
    await settle()
    assert hands.busy == ["a"]
    await hands.finish("a")
    await run


async def test_a_new_pause_holds_those_that_the_old_one_held() -> None:
    made, hands, record = executor("ab")
    made.pause()
    run = asyncio.ensure_future(made.execute())
    await settle()
    made.resume()
    made.pause()
    await settle()
    assert hands.started == []
    assert record.of(SignalKind.PAUSED) == ["a", "b", "a", "b"]
    made.resume()
    await settle()
    await hands.finish("a", "b")
    await run


async def test_a_pause_also_holds_who_waits_for_a_place() -> None:
    made, hands, record = executor("abc", max_concurrent=1)
    run = asyncio.ensure_future(made.execute())
    await settle()
    made.pause()
    await hands.finish("a")
    assert hands.busy == []
    assert record.of(SignalKind.PAUSED) == ["b", "c"]
    made.resume()
    await settle()
    assert hands.busy == ["b"]
    await hands.finish("b")
    await hands.finish("c")
    await run


async def test_a_skip_does_not_wait_at_the_gate() -> None:
    made, hands, record = executor("ab", [edge("a", "b", NEVER)])
    run = asyncio.ensure_future(made.execute())
    await settle()
    made.pause()
    await hands.finish("a")
    assert record.trace("b") == ["NodeQueued", "NodeSkipped"]
    assert (await run).skipped == ("b",)


async def test_pause_and_resume_at_once_go_on() -> None:
    made, hands, _ = executor("ab", [("a", "b")])
    run = asyncio.ensure_future(made.execute())
    await settle()
    made.pause()
    made.resume()
    await hands.finish("a")
    assert hands.busy == ["b"]
    await hands.finish("b")
    await run


# --- stop


async def test_a_stop_lets_what_runs_end_and_starts_nothing() -> None:
    made, hands, record = executor("abcd", [("a", "d")], max_concurrent=2)
    run = asyncio.ensure_future(made.execute())
    await settle()
    made.stop()
    made.stop()
    assert not made.has_pending()
    await hands.finish("a", "b")
    result = await run
    assert hands.started == ["a", "b"]
    assert result.completed == ("a", "b")
    assert result.withheld == ("c", "d")
    assert result.closed_by == "stop"
    assert record.ends() == dict.fromkeys("abcd", 1)
    assert record.data("c", SignalKind.CANCELLED)["reason"] == {
        "code": "withheld",
        "by": "stop",
    }


async def test_a_stop_while_paused_ends_promptly() -> None:
    made, hands, _ = executor("abc", [("a", "b")])
    made.pause()
    run = asyncio.ensure_future(made.execute())
    await settle()
    made.stop()
    result = await run
    assert hands.started == []
    assert result.withheld == ("a", "b", "c")
    made.pause()
    assert not made.paused


@pytest.mark.parametrize("when", ["before", "at once"])
async def test_a_stop_at_the_start_is_not_lost(when: str) -> None:
    made, hands, _ = executor("ab")
    if when == "before":
        made.stop()
    run = asyncio.ensure_future(made.execute())
    if when == "at once":
        asyncio.get_running_loop().call_soon(made.stop)
    result = await run
    assert hands.started == []
    assert result.withheld == ("a", "b")


async def test_bookkeeping_goes_on_after_a_stop() -> None:
    made, hands, _ = executor("abcd", [edge("a", "b", NEVER), ("b", "c"), ("a", "d")])
    run = asyncio.ensure_future(made.execute())
    await settle()
    made.stop()
    await hands.finish("a")
    result = await run
    assert (result.skipped, result.withheld) == (("b", "c"), ("d",))


async def test_a_stop_during_prepare_withholds_and_returns_the_message() -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def prepare(_: Prepared) -> None:
        entered.set()
        await go_on.wait()

    made, hands, record = executor("a", prepare=prepare)
    made.append_message({"ts": 0, "text": "x", "control_id": "c"})
    run = asyncio.ensure_future(made.execute())
    await entered.wait()
    assert made.has_pending()
    made.stop()
    go_on.set()
    result = await run
    assert hands.started == []
    assert result.withheld == ("a",)
    assert result.context["operator_messages"] == [
        {"ts": 0, "text": "x", "control_id": "c"}
    ]
    assert record.of(SignalKind.STARTED) == []


async def test_a_pause_during_prepare_prepares_again_later() -> None:
    gates: list[asyncio.Event] = []
    texts: list[str] = []

    async def prepare(prepared: Prepared) -> None:
        texts.append(prepared.instruction)
        gates.append(asyncio.Event())
        await gates[-1].wait()

    made, hands, record = executor("a", prepare=prepare)
    made.append_message({"ts": 0, "text": "x"})
    run = asyncio.ensure_future(made.execute())
    await settle()
    made.pause()
    gates[0].set()
    await settle()
    assert record.trace("a") == ["NodeQueued", "NodePaused"]
    made.resume()
    await settle()
    gates[1].set()
    await settle()
    assert hands.call("a").instruction == texts[0] == texts[1]
    await hands.finish("a")
    await run


# --- messages


async def test_a_message_reaches_the_next_operation_and_only_it() -> None:
    told: list[tuple[str, Sequence[Mapping[str, object]]]] = []
    made, hands, record = executor(
        "abc",
        [("a", "b"), ("a", "c")],
        on_rendered=lambda key, entries: told.append((key, entries)),
    )
    run = asyncio.ensure_future(made.execute())
    await settle()
    made.append_message({"ts": 0, "text": "one", "control_id": "c1"})
    made.append_message({"ts": 1, "text": "two", "control_id": "c2"})
    await hands.finish("a")
    assert hands.call("b").instruction.count("[OPERATOR STEER]") == 1
    assert ": one\n- 1970-01-01T00:00:01Z: two\n" in hands.call("b").instruction
    assert hands.call("b").instruction.endswith("\n\ndo b")
    assert hands.call("c").instruction == "do c"
    assert "operator_messages" not in hands.call("b").context
    assert "operator_messages" not in hands.call("c").context
    assert record.data("b", SignalKind.STARTED)["rendered"] == ["c1", "c2"]
    assert [key for key, _ in told] == ["b"]
    await hands.finish("b", "c")
    result = await run
    assert [
        entry["rendered_into_op"]
        for entry in result.context["operator_messages"]  # type: ignore[attr-defined]
    ] == ["b", "b"]


async def test_a_message_between_prepare_and_invoke_is_not_missed() -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()
    seen: list[str] = []

    async def prepare(prepared: Prepared) -> None:
        seen.append(prepared.instruction)
        entered.set()
        await go_on.wait()

    made, hands, _ = executor("a", prepare=prepare)
    made.append_message({"ts": 0, "text": "early"})
    run = asyncio.ensure_future(made.execute())
    await entered.wait()
    made.append_message({"ts": 1, "text": "late"})
    go_on.set()
    await settle()
    assert "early" in seen[0]
    assert "late" not in seen[0]
    instruction = hands.call("a").instruction
    assert instruction.index("early") < instruction.index("late")
    assert instruction.count("[OPERATOR STEER]") == 1
    await hands.finish("a")
    await run


async def test_has_pending_counts_only_what_may_still_take_a_message() -> None:
    made, hands, _ = executor("ab", [edge("a", "b")])
    assert made.has_pending()
    run = asyncio.ensure_future(made.execute())
    await settle()
    assert made.has_pending()
    await hands.finish("a")
    assert hands.busy == ["b"]
    assert not made.has_pending()
    await hands.finish("b")
    await run
    assert not made.has_pending()


async def test_an_older_context_never_changes() -> None:
    taken: list[Mapping[str, Any]] = []
    made, hands, _ = executor(
        "abc",
        [("a", "b"), ("b", "c")],
        on_outcome=lambda _, context: taken.append(context),
    )
    run = asyncio.ensure_future(made.execute())
    await settle()
    made.append_message({"ts": 0, "text": "x"})
    before = made.context
    await hands.finish("a")
    assert before == {"operator_messages": [{"ts": 0, "text": "x"}]}
    await hands.finish("b")
    await hands.finish("c")
    await run
    assert taken[0] == {"operator_messages": [{"ts": 0, "text": "x"}]}
    assert taken[1]["operator_messages"][0]["rendered_into_op"] == "b"


async def test_a_prepare_that_fails_fails_its_operation_and_returns_the_message() -> (
    None
):
    async def prepare(prepared: Prepared) -> None:
        if prepared.node.name == "a":
            raise OperationError("no folder", code="not_started")

    made, hands, record = executor("ab", [("a", "b")], prepare=prepare)
    made.append_message({"ts": 0, "text": "x"})
    run = asyncio.ensure_future(made.execute())
    await settle()
    assert ": x\n" in hands.call("b").instruction
    assert record.trace("a") == ["NodeQueued", "NodeFailed"]
    await hands.finish("b")
    assert (await run).failed == ("a",)


# --- saving


async def test_a_save_is_admitted_at_once_and_awaited_before_the_end() -> None:
    order: list[str] = []
    saves: dict[str, asyncio.Future[None]] = {}

    def on_outcome(outcome: Outcome, _: object) -> asyncio.Future[None]:
        order.append(f"save {outcome.operation_id}")
        future = asyncio.get_running_loop().create_future()
        saves[outcome.operation_id] = future
        return future

    made, hands, _ = executor(
        "ab",
        [("a", "b")],
        on_outcome=on_outcome,
        on_signal=lambda s: order.append(f"{s.kind.value} {s.name}"),
    )
    run = asyncio.ensure_future(made.execute())
    await settle()
    await hands.finish("a")
    assert order[-3:] == ["save a", "NodeCompleted a", "NodeStarted b"]
    await hands.finish("b")
    await settle()
    assert not run.done()
    saves["a"].set_result(None)
    saves["b"].set_exception(OSError("disk"))
    result = await run
    assert result.completed == ("a", "b")
    assert list(result.unsaved) == ["b"]


async def test_a_save_that_raises_at_once_is_reported_and_changes_nothing() -> None:
    def on_outcome(*_: object) -> None:
        raise RuntimeError("poisoned")

    made, hands, _ = executor("ab", [("a", "b")], on_outcome=on_outcome)
    run = asyncio.ensure_future(made.execute())
    await settle()
    await hands.finish("a")
    await hands.finish("b")
    result = await run
    assert result.completed == ("a", "b")
    assert list(result.unsaved) == ["a", "b"]


async def test_skipped_and_withheld_operations_are_not_saved() -> None:
    saved: list[str] = []
    made, hands, _ = executor(
        "abcd",
        [("a", "b"), ("c", "d")],
        on_failure="skip",
        on_outcome=lambda outcome, _: saved.append(outcome.operation_id),
    )
    run = asyncio.ensure_future(made.execute())
    await settle()
    made.stop()
    await hands.fail("a")
    await hands.finish("c")
    await run
    assert saved == ["a", "c"]


# --- signals


async def test_a_sink_that_raises_changes_nothing() -> None:
    def sink(_: Signal) -> None:
        raise OSError("no")

    made, hands, _ = executor("ab", [("a", "b")], on_signal=sink, on_rendered=sink)
    made.append_message({"ts": 0, "text": "x"})
    run = asyncio.ensure_future(made.execute())
    await settle()
    await hands.finish("a")
    await hands.finish("b")
    assert (await run).completed == ("a", "b")
    assert made.sink_errors == 7


async def test_signals_hold_names_and_codes_and_no_content() -> None:
    made, hands, record = executor("ab", [("a", "b")])
    made.append_message({"ts": 0, "text": "secret-text", "control_id": "c"})
    run = asyncio.ensure_future(made.execute())
    await settle()
    await hands.fail("a", ValueError("secret-error"))
    await hands.finish("b", response="secret-response")
    await run
    said = repr(record.signals)
    assert "secret" not in said
    assert "do a" not in said


async def test_times_come_from_the_given_clocks() -> None:
    wall, steady = iter(range(100, 200)), iter([1.0, 3.5])
    made, hands, record = executor(
        "a", clock=lambda: float(next(wall)), monotonic=lambda: next(steady)
    )
    run = asyncio.ensure_future(made.execute())
    await settle()
    await hands.finish("a")
    await run
    assert [signal.at for signal in record.signals] == [100.0, 101.0, 102.0]
    assert record.data("a", SignalKind.COMPLETED)["elapsed"] == 2.5


# --- cancellation


async def test_a_cancelled_run_cancels_what_runs_and_ends_everything() -> None:
    made, hands, record = executor("abc", [("a", "c")], max_concurrent=1)
    run = asyncio.ensure_future(made.execute())
    await settle()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert hands.busy == []
    assert record.ends() == dict.fromkeys("abc", 1)
    assert record.data("a", SignalKind.CANCELLED)["started"] is True
    assert record.data("b", SignalKind.CANCELLED)["started"] is False


async def test_a_cancelled_run_waits_for_slow_workers_and_stays_cancelled() -> None:
    ending, ended = asyncio.Event(), asyncio.Event()
    cancels = 0

    async def invoke(_: Prepared) -> None:
        nonlocal cancels
        while True:
            try:
                await ended.wait()
                raise asyncio.CancelledError
            except asyncio.CancelledError:
                cancels += 1
                ending.set()
                if ended.is_set():
                    raise

    record = Record()
    made = DependencyAwareExecutor([node("a")], invoke=invoke, on_signal=record)
    run = asyncio.ensure_future(made.execute())
    await settle()
    run.cancel()
    await ending.wait()
    run.cancel()
    await settle()
    assert not run.done()
    assert cancels == 2
    ended.set()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert record.ends() == {"a": 1}


async def test_a_cancelled_operation_does_not_wait_for_a_slow_one_to_say_so() -> None:
    slow = asyncio.Event()

    async def invoke(prepared: Prepared) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            if prepared.node.name == "b":
                await slow.wait()

    record = Record()
    made = DependencyAwareExecutor(
        [node("a"), node("b")], invoke=invoke, on_signal=record
    )
    run = asyncio.ensure_future(made.execute())
    await settle()
    run.cancel()
    await settle()
    assert record.of(SignalKind.CANCELLED) == ["a"]
    slow.set()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert record.ends() == {"a": 1, "b": 1}


async def test_an_operation_that_ends_while_it_is_cancelled_keeps_its_outcome() -> None:
    saved: list[str] = []

    async def invoke(_: Prepared) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done after all"
        return "never"

    record = Record()
    made = DependencyAwareExecutor(
        [node("a"), node("b")],
        [edge("a", "b")],
        invoke=invoke,
        on_signal=record,
        on_outcome=lambda outcome, _: saved.append(outcome.operation_id),
    )
    run = asyncio.ensure_future(made.execute())
    await settle()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert saved == ["a"]
    assert record.trace("a")[-1] == "NodeCompleted"
    assert record.trace("b") == ["NodeQueued", "NodeCancelled"]


async def test_a_cancelled_run_still_waits_for_its_saves() -> None:
    save: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    made, hands, _ = executor("a", on_outcome=lambda *_: save)
    run = asyncio.ensure_future(made.execute())
    await settle()
    await hands.finish("a")
    run.cancel()
    await settle()
    assert not run.done()
    save.set_result(None)
    with pytest.raises(asyncio.CancelledError):
        await run


async def test_a_worker_that_makes_up_a_cancellation_fails() -> None:
    made, hands, _ = executor("ab")
    run = asyncio.ensure_future(made.execute())
    await settle()
    await hands.fail("a", asyncio.CancelledError())  # type: ignore[arg-type]
    assert hands.busy == ["b"]
    await hands.finish("b")
    result = await run
    assert (result.failed, result.completed) == (("a",), ("b",))


async def test_an_operation_that_was_cut_off_has_no_outcome() -> None:
    saved: list[str] = []
    made, hands, record = executor(
        "ab",
        [("a", "b")],
        on_outcome=lambda outcome, _: saved.append(outcome.operation_id),
    )
    run = asyncio.ensure_future(made.execute())
    await settle()
    made.stop()
    await hands.fail("a", OperationError("the run was ended", code="cancelled"))
    result = await run
    assert (result.cancelled, result.withheld, saved) == (("a",), ("b",), [])
    assert record.data("b", SignalKind.CANCELLED)["started"] is False


async def test_an_error_of_the_executor_itself_ends_the_run_and_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, hands, record = executor("ab")

    def broken(*_: object) -> None:
        raise AssertionError("a defect")

    run = asyncio.ensure_future(made.execute())
    await settle()
    monkeypatch.setattr(made, "_save", broken)
    await hands.finish("a")
    with pytest.raises(AssertionError, match="a defect"):
        await run
    assert hands.busy == []
    assert record.ends()["b"] == 1


async def test_nothing_is_lost_to_the_collector() -> None:
    hands, record = Hands(), Record()
    made = DependencyAwareExecutor(
        [node(name) for name in "abc"], [], invoke=hands, on_signal=record
    )
    made.pause()
    run = asyncio.ensure_future(made.execute())
    for _ in range(20):
        gc.collect()
        await asyncio.sleep(0)
    made.resume()
    await settle()
    gc.collect()
    await hands.finish(*"abc")
    assert (await run).completed == ("a", "b", "c")
