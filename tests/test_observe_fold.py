"""Signals folded into lanes and links: order, splices, repeats, hostile rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heaveto.model import OperationStatus, Origin
from heaveto.observe.fold import Fold

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass
class Row:
    seq: int
    kind: str
    op_id: str
    ts: float = 0.0
    payload: Mapping[str, Any] = field(default_factory=dict)


def rows(*events: tuple[Any, ...]) -> list[Row]:
    """Make rows of (kind, operation) or (kind, operation, payload)."""
    return [
        Row(
            number,
            f"Node{kind}",
            op,
            float(number),
            {"op_id": op, "name": op, **(rest[0] if rest else {})},
        )
        for number, (kind, op, *rest) in enumerate(events, 1)
    ]


def folded(*events: tuple[Any, ...]) -> Fold:
    fold = Fold()
    fold.add(rows(*events))
    return fold


def queued(op: str, *heads: str, **more: Any) -> tuple[str, str, dict[str, Any]]:
    return ("Queued", op, {"depends_on": list(heads), **more})


def status(fold: Fold, op: str) -> OperationStatus:
    return fold.lanes[op].status


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("Completed", OperationStatus.COMPLETED),
        ("Failed", OperationStatus.FAILED),
        ("Skipped", OperationStatus.SKIPPED),
        ("Cancelled", OperationStatus.CANCELLED),
    ],
)
def test_an_operation_goes_through_its_signals(
    end: str, expected: OperationStatus
) -> None:
    fold = Fold()
    seen = []
    events = [queued("a"), ("Paused", "a"), ("Started", "a"), (end, "a")]
    for row in rows(*events):
        fold.add([row])
        seen.append(status(fold, "a"))
    assert seen == [
        OperationStatus.QUEUED,
        OperationStatus.PAUSED,
        OperationStatus.RUNNING,
        expected,
    ]
    lane = fold.lanes["a"]
    assert (lane.queued_at, lane.paused_at, lane.started_at, lane.ended_at) == (
        1.0,
        2.0,
        3.0,
        4.0,
    )


def test_the_first_end_stays_until_the_operation_is_begun_anew() -> None:
    fold = folded(queued("a"), ("Started", "a"), ("Completed", "a"), ("Failed", "a"))
    assert status(fold, "a") == OperationStatus.COMPLETED
    fold.add([Row(5, "NodeQueued", "a", 5.0, {"name": "a"})])
    assert status(fold, "a") == OperationStatus.QUEUED
    assert fold.lanes["a"].ended_at is None
    fold.add([Row(6, "NodeStarted", "a", 6.0, {})])
    fold.add([Row(7, "NodeFailed", "a", 7.0, {"error": {"code": "timeout"}})])
    assert (status(fold, "a"), fold.lanes["a"].error_code) == (
        OperationStatus.FAILED,
        "timeout",
    )


def test_a_pause_after_the_start_changes_nothing() -> None:
    fold = folded(queued("a"), ("Started", "a"), ("Paused", "a"))
    assert status(fold, "a") == OperationStatus.RUNNING


def test_links_narrow_to_the_heads_that_were_open_and_edges_stay() -> None:
    fold = folded(
        queued("a"),
        queued("b"),
        queued("c", "a", "b", conditions={"a": '/x equals "ok"'}),
        ("Started", "c", {"depends_on": ["b"]}),
    )
    assert fold.edges() == (("a", "c"), ("b", "c"))
    assert fold.lanes["c"].heads == ("b",)
    assert [link.active for link in fold.links.values()] == [False, True]
    assert fold.links["a", "c"].condition == '/x equals "ok"'


def test_a_spawn_hangs_on_its_emitter_although_its_queue_signal_names_no_head() -> None:
    fold = folded(
        queued("a"),
        ("Started", "a"),
        ("Spawned", "s", {"parent_id": "a", "assignee": "critic"}),
        queued("s"),
    )
    lane = fold.lanes["s"]
    assert (lane.origin, lane.heads, lane.spawned_by) == (Origin.SPAWNED, ("a",), "a")
    assert lane.assignee == "critic"
    assert fold.links["a", "s"].kind == "spawn"


def test_an_independent_spawn_has_no_dependency() -> None:
    fold = folded(
        queued("a"),
        ("Spawned", "s", {"parent_id": "a", "independent": True, "assignee": "x"}),
        queued("s"),
    )
    assert fold.lanes["s"].heads == ()
    assert fold.lanes["s"].spawned_by == "a"
    assert fold.edges() == ()


def spliced(**named: Any) -> Fold:
    return folded(
        queued("e"),
        queued("d", "e"),
        ("Started", "e"),
        ("Escalated", "e", {"route": "higher_tier", "urgency": "blocked"}),
        ("Spawned", "r", {"parent_id": "e", **named}),
        queued("r"),
        ("Completed", "e"),
    )


@pytest.mark.parametrize("named", [{"escalated_from": "e"}, {}])
def test_a_retry_takes_its_emitters_place(named: dict[str, Any]) -> None:
    fold = spliced(**named)
    assert status(fold, "e") == OperationStatus.ESCALATED
    assert fold.lanes["e"].ended_at == 7.0
    assert fold.lanes["r"].origin == Origin.RETRY
    assert fold.lanes["r"].heads == ("e",)
    assert fold.lanes["d"].heads == ("r",)
    assert fold.edges() == (("e", "d"), ("e", "r"), ("r", "d"))
    assert [fold.links[edge].active for edge in fold.edges()] == [False, True, True]
    assert fold.links["e", "r"].kind == "escalation"


def test_a_signal_that_names_the_old_head_means_the_retry() -> None:
    fold = spliced()
    fold.add(
        [
            Row(8, "NodeStarted", "r", 8.0, {"depends_on": ["e"]}),
            Row(9, "NodeCompleted", "r", 9.0),
            Row(10, "NodeStarted", "d", 10.0, {"depends_on": ["e"]}),
        ]
    )
    assert fold.lanes["d"].heads == ("r",)
    assert fold.lanes["r"].heads == ("e",)


def test_a_chain_of_retries_ends_at_the_last() -> None:
    fold = spliced(escalated_from="e")
    fold.add(
        [
            Row(8, "NodeStarted", "r", 8.0),
            Row(9, "NodeEscalated", "r", 9.0, {"route": "higher_tier"}),
            Row(
                10,
                "NodeSpawned",
                "q",
                10.0,
                {"parent_id": "r", "escalated_from": "e", "name": "q"},
            ),
            Row(11, "NodeQueued", "q", 11.0, {"depends_on": ["r"]}),
        ]
    )
    assert fold.lanes["d"].heads == ("q",)
    assert fold.lanes["q"].heads == ("r",)
    assert fold.lanes["q"].escalated_from == "e"


def test_a_note_to_a_person_escalates_nothing() -> None:
    fold = folded(
        queued("a"),
        ("Started", "a"),
        ("Escalated", "a", {"route": "notify", "urgency": "fyi"}),
        ("Completed", "a"),
    )
    assert status(fold, "a") == OperationStatus.COMPLETED


def test_lionagis_summary_gets_its_name_when_it_starts() -> None:
    op = "88e24b95-d8ad-48bd-a7cd-f743a5bbb635"
    fold = folded(
        ("Queued", op, {"name": "88e24b95"}), ("Started", op, {"name": "orchestrator"})
    )
    lane = fold.lanes[op]
    assert (lane.name, lane.origin) == ("orchestrator", Origin.SYNTHESIS)


def test_the_announced_name_stays() -> None:
    fold = folded(
        ("Queued", "id-1", {"name": "survey"}), ("Started", "id-1", {"name": "other"})
    )
    assert fold.lanes["id-1"].name == "survey"


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"depends_on": "a"},
        {"depends_on": [1, None, "", "a"]},
        {"name": 5, "assignee": [], "origin": "moon", "conditions": "x"},
        {"error": "text", "reason": 7, "rendered": {"a": 1}, "stale": "yes"},
        {"parent_id": 3, "escalated_from": [], "route": None},
    ],
)
def test_odd_payloads_are_read_as_not_said(payload: dict[str, Any]) -> None:
    fold = Fold()
    for number, kind in enumerate(
        ("Queued", "Spawned", "Started", "Escalated", "Paused", "Failed"), 1
    ):
        fold.add([Row(number, f"Node{kind}", "a", 0.0, payload)])
    assert status(fold, "a") == OperationStatus.FAILED
    assert fold.lanes["a"].origin in (Origin.PLANNED, Origin.SPAWNED)


def test_other_kinds_count_as_a_sign_and_nothing_else() -> None:
    fold = Fold()
    assert fold.add([Row(1, "MessageAdded", "", 9.0), Row(2, "RunStart", "x", 4.0)])
    assert fold.lanes == {}
    assert (fold.last_seq, fold.last_at) == (2, 9.0)
    assert not fold.add([Row(2, "NodeQueued", "x", 5.0)])


_ops = st.sampled_from(["a", "b", "c", "d"])
_events = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["Queued", "Started"]),
            _ops,
            st.fixed_dictionaries(
                {}, optional={"depends_on": st.lists(_ops, max_size=3)}
            ),
        ),
        st.tuples(
            st.sampled_from(["Paused", "Completed", "Failed", "Skipped", "Cancelled"]),
            _ops,
            st.just({}),
        ),
        st.tuples(
            st.just("Spawned"),
            _ops,
            st.fixed_dictionaries(
                {}, optional={"parent_id": _ops, "escalated_from": _ops}
            ),
        ),
        st.tuples(st.just("Escalated"), _ops, st.just({"route": "higher_tier"})),
    ),
    max_size=30,
)


@settings(max_examples=200, deadline=None)
@given(_events, st.data())
def test_in_pieces_or_whole_makes_no_difference(
    events: Sequence[tuple[str, str, dict[str, Any]]], data: st.DataObject
) -> None:
    every = rows(*events)
    whole, pieces = Fold(), Fold()
    whole.add(every)
    left = list(every)
    while left:
        cut = data.draw(st.integers(1, len(left)))
        # A piece may overlap what was read before: reading again changes nothing.
        pieces.add(every[: len(every) - len(left) + cut])
        left = left[cut:]
    assert pieces == whole
    for lane in whole.lanes.values():
        assert len(set(lane.heads)) == len(lane.heads)
        for head in lane.heads:
            assert whole.links[head, lane.id].active
    active = {edge for edge, link in whole.links.items() if link.active}
    assert active == {(h, lane.id) for lane in whole.lanes.values() for h in lane.heads}
