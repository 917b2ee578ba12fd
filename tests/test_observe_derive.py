"""What is concluded: run states, operation statuses, stale results, counts."""

from __future__ import annotations

from typing import Any

import pytest

from heaveto.model import OperationStatus, Origin, RunState, RunStatus
from heaveto.observe.derive import (
    SILENT_AFTER_S,
    Evidence,
    Gate,
    conclude,
    link_views,
    node_counts,
    operation_views,
    stored_status,
)
from heaveto.observe.fold import Fold
from heaveto.observe.saved import Saved, StateReader, refused
from heaveto.observe.snapshot import CheckpointView
from test_observe_fold import folded, queued

S = OperationStatus
NOW = 10_000.0
CLEAN = CheckpointView(
    version=3, generation="a" * 32, seq=1, status="clean", records_since_base=1
)


def evidence(**given: Any) -> Evidence:
    known: dict[str, Any] = {
        "status": RunStatus.RUNNING,
        "phase": "executing",
        "alive": True,
        "why": None,
        "reason_code": None,
        "now": NOW,
        "last_sign_at": NOW - 1,
    }
    return Evidence(**{**known, **given})


@pytest.mark.parametrize(
    ("given", "statuses", "state"),
    [
        ({}, [S.RUNNING, S.WAITING], RunState.EXECUTING),
        ({}, [S.QUEUED], RunState.EXECUTING),
        ({"phase": "planning"}, [], RunState.PLANNING),
        ({"phase": None}, [], RunState.PLANNING),
        ({"gate": Gate(closed=True)}, [S.RUNNING, S.PAUSED], RunState.PAUSING),
        ({"gate": Gate(closed=True)}, [S.COMPLETED, S.PAUSED], RunState.PAUSED),
        ({"gate": Gate(closed=True)}, [S.COMPLETED], RunState.PAUSED),
        ({"gate": Gate(stopping=True)}, [S.RUNNING], RunState.STOPPING),
        ({"phase": "stopping"}, [S.RUNNING], RunState.STOPPING),
        ({"phase": "draining"}, [S.RUNNING], RunState.DRAINING),
        ({"deadline_at": NOW - 2}, [S.RUNNING], RunState.DRAINING),
        ({"deadline_at": NOW + 2}, [S.RUNNING], RunState.EXECUTING),
        ({"phase": "synthesizing"}, [S.COMPLETED], RunState.SYNTHESIZING),
        (
            {"last_sign_at": NOW - SILENT_AFTER_S},
            [S.RUNNING],
            RunState.STALLED,
        ),
        ({"last_sign_at": NOW - SILENT_AFTER_S + 1}, [S.RUNNING], RunState.EXECUTING),
        ({"last_sign_at": NOW - 9_000}, [S.QUEUED], RunState.EXECUTING),
        ({"last_sign_at": NOW - 9_000, "gate": Gate(closed=True)}, [], RunState.PAUSED),
        ({"alive": False}, [S.LOST], RunState.DEAD),
        ({"alive": None}, [S.RUNNING], RunState.EXECUTING),
        (
            {"alive": None, "last_sign_at": NOW - SILENT_AFTER_S},
            [S.RUNNING],
            RunState.UNKNOWN,
        ),
        ({"alive": None, "last_sign_at": None}, [], RunState.UNKNOWN),
        ({"status": None}, [S.RUNNING], RunState.UNKNOWN),
        ({"status": None, "alive": False}, [], RunState.UNKNOWN),
    ],
)
def test_the_state_of_a_run_that_has_not_ended(
    given: dict[str, Any], statuses: list[S], state: RunState
) -> None:
    concluded = conclude(evidence(**given), statuses)
    assert concluded.state == state
    assert concluded.over == (given.get("alive") is False)
    believed = given.get("alive", True) is None or state == RunState.UNKNOWN
    assert concluded.sure != believed


@pytest.mark.parametrize("status", sorted(set(RunStatus) - {RunStatus.RUNNING}))
@pytest.mark.parametrize("alive", [True, False, None])
def test_a_row_that_says_it_ended_is_believed(
    status: RunStatus, alive: bool | None
) -> None:
    concluded = conclude(
        evidence(status=status, alive=alive, reason_code="x", gate=Gate(closed=True)),
        [S.LOST],
    )
    assert concluded.state == RunState(status.value)
    assert (concluded.source, concluded.sure, concluded.over) == ("db", True, True)
    assert concluded.reason_code == "x"


def test_words_of_a_later_version_are_unknown() -> None:
    assert stored_status("running") == RunStatus.RUNNING
    assert stored_status("suspended") is None
    assert stored_status(None) is None


def test_reasons_of_conclusions() -> None:
    dead = conclude(evidence(alive=False, why="process_gone"), [])
    assert (dead.reason_code, dead.source) == ("process_gone", "process")
    silent = conclude(evidence(last_sign_at=0.0), [S.RUNNING])
    assert silent.reason_code == "silent"


# --- operations


def saved(
    ops: dict[str, Any] | None = None,
    *,
    plan: list[dict[str, Any]] | None = None,
    spawned: list[dict[str, Any]] | None = None,
) -> Saved:
    state = {
        "plan": plan or [],
        "ops": {
            name: {"agent_id": name, "status": word, "response": response}
            for name, (word, response) in (ops or {}).items()
        },
        "spawned": spawned or [],
        "flow_context": {},
    }
    return StateReader().read(state, CLEAN)


def statuses(
    fold: Fold,
    unit: Saved | None = None,
    *,
    gate: Gate | None = None,
    over: bool = False,
    dead: bool = False,
) -> dict[str, tuple[S, str]]:
    views = operation_views(fold, unit, gate=gate or Gate(), over=over, dead=dead)
    return {view.name: (view.status, view.status_source) for view in views}


def under_way() -> Fold:
    return folded(
        queued("a"),
        queued("b", "a"),
        queued("c", "b"),
        queued("d"),
        queued("e"),
        ("Started", "a"),
        ("Completed", "a"),
        ("Started", "b"),
        ("Paused", "e"),
    )


def test_a_run_that_goes_on() -> None:
    assert statuses(under_way(), gate=Gate(closed=True)) == {
        "a": (S.COMPLETED, "signals"),
        "b": (S.RUNNING, "signals"),
        "c": (S.WAITING, "signals"),
        "d": (S.QUEUED, "signals"),
        "e": (S.PAUSED, "signals"),
    }


def test_after_the_resume_what_stood_at_the_gate_is_queued() -> None:
    assert statuses(under_way())["e"] == (S.QUEUED, "signals")


@pytest.mark.parametrize(("dead", "source"), [(True, "process"), (False, "db")])
def test_an_ended_run_has_nothing_under_way(dead: bool, source: str) -> None:
    found = statuses(under_way(), gate=Gate(closed=True), over=True, dead=dead)
    assert found == {
        "a": (S.COMPLETED, "signals"),
        "b": (S.LOST, source),
        "c": (S.UNSTARTED, source),
        "d": (S.UNSTARTED, source),
        "e": (S.UNSTARTED, source),
    }


def test_the_checkpoint_knows_the_end_of_what_signals_left_open() -> None:
    unit = saved({"b": ("completed", 1), "c": ("failed", {"error": "x"})})
    found = statuses(under_way(), unit, over=True, dead=True)
    assert found["b"] == (S.COMPLETED, "checkpoint")
    assert found["c"] == (S.FAILED, "checkpoint")
    assert found["d"] == (S.UNSTARTED, "process")


def test_while_a_run_goes_on_its_signals_are_newer_than_an_inherited_entry() -> None:
    unit = saved({"b": ("failed", {"error": "of an earlier run"})})
    assert statuses(under_way(), unit)["b"] == (S.RUNNING, "signals")


def test_recorded_intent_is_pending_in_a_live_and_in_an_ended_run() -> None:
    fold = folded(queued("a"), ("Spawned", "s", {"parent_id": "a"}), queued("s"))
    unit = saved(
        spawned=[{"node_id": "s", "status": "pending", "response": None}],
    )
    assert statuses(fold, unit)["s"] == (S.PENDING, "checkpoint")
    assert statuses(fold, unit, over=True)["s"] == (S.PENDING, "checkpoint")


def test_executed_and_persisted_are_told_apart() -> None:
    fold = under_way()
    for unit, of_a, of_b in (
        (None, None, None),
        (saved(), False, False),
        (saved({"a": ("completed", 1)}), True, False),
        (refused(CLEAN_REFUSED, ("sequence_gap",), (None, None)), None, None),
    ):
        views = {
            view.name: view
            for view in operation_views(fold, unit, gate=Gate(), over=False, dead=False)
        }
        assert (views["a"].executed, views["a"].persisted) == (True, of_a)
        assert (views["b"].executed, views["b"].persisted) == (False, of_b)


CLEAN_REFUSED = CheckpointView(
    version=3, generation="a" * 32, seq=1, status="refused", records_since_base=1
)


def test_a_refused_unit_shows_no_outcome_of_its_base() -> None:
    unit = refused(CLEAN_REFUSED, ("sequence_gap",), (None, None))
    found = statuses(under_way(), unit, over=True, dead=True)
    assert found["b"] == (S.LOST, "process")
    assert statuses(Fold(), unit, over=True) == {}


def test_without_signals_the_checkpoint_gives_the_plan() -> None:
    plan: list[dict[str, Any]] = [
        {"agent_id": "a", "dep_indices": [], "assignee": "w", "node_id": "id-a"},
        {"agent_id": "b", "dep_indices": [0, 7, -1], "assignee": "w"},
    ]
    spawned = [
        {
            "node_id": "id-s",
            "status": "failed",
            "response": {"error": "e", "code": "timeout"},
            "assignee": "critic",
            "spawn_id": "critic-1",
            "parent_id": "id-a",
            "escalated_from": "id-a",
        }
    ]
    unit = saved({"a": ("completed", 1)}, plan=plan, spawned=spawned)
    views = operation_views(Fold(), unit, gate=Gate(), over=True, dead=False)
    assert [(v.id, v.name, v.assignee, v.status, v.origin) for v in views] == [
        ("id-a", "a", "w", S.COMPLETED, Origin.PLANNED),
        ("b", "b", "w", S.UNSTARTED, Origin.PLANNED),
        ("id-s", "critic-1", "critic", S.FAILED, Origin.RETRY),
    ]
    assert views[1].depends_on == ("id-a",)
    assert (views[2].error_code, views[2].error_text) == ("timeout", "e")
    links = [(link.head, link.tail, link.kind) for link in link_views(Fold(), unit)]
    assert links == [("id-a", "b", "depends"), ("id-a", "id-s", "escalation")]


def test_plan_ids_lead_to_outcomes_when_names_differ() -> None:
    fold = folded(("Queued", "id-a", {"name": "shown", "depends_on": []}))
    unit = saved(
        {"a": ("completed", 1)},
        plan=[{"agent_id": "a", "dep_indices": [], "node_id": "id-a"}],
    )
    assert statuses(fold, unit, over=True) == {"shown": (S.COMPLETED, "checkpoint")}


def test_a_spawn_never_takes_the_outcome_of_a_namesake() -> None:
    fold = folded(
        ("Spawned", "s", {"name": "a", "assignee": "x"}),
        ("Queued", "s", {"name": "a"}),
        ("Started", "s", {"name": "a"}),
    )
    unit = saved({"a": ("completed", 1)})
    found = operation_views(fold, unit, gate=Gate(), over=True, dead=True)
    assert found[0].status == S.LOST


def test_an_error_has_a_code_and_the_saved_text() -> None:
    fold = folded(
        queued("a"), ("Started", "a"), ("Failed", "a", {"error": {"code": "timeout"}})
    )
    unit = saved({"a": ("failed", {"error": "took too long", "code": "other"})})
    [view] = operation_views(fold, unit, gate=Gate(), over=False, dead=False)
    assert (view.error_code, view.error_text) == ("timeout", "took too long")
    bare = folded(queued("a"), ("Started", "a"), ("Failed", "a"))
    [view] = operation_views(bare, None, gate=Gate(), over=False, dead=False)
    assert view.as_dict()["error"] == {"code": "worker_error", "text": None}


def test_a_skip_keeps_its_reason() -> None:
    fold = folded(
        queued("a"), ("Skipped", "a", {"reason": {"code": "upstream_failed"}})
    )
    [view] = operation_views(fold, None, gate=Gate(), over=False, dead=False)
    assert view.reason == "upstream_failed"
    assert view.as_dict()["error"] is None


# --- stale


def stale(fold: Fold) -> set[str]:
    views = operation_views(fold, None, gate=Gate(), over=False, dead=False)
    return {view.name for view in views if view.stale}


def test_everything_below_a_failed_input_is_stale() -> None:
    fold = folded(
        queued("a"),
        queued("b", "a"),
        queued("c", "b"),
        queued("d"),
        queued("e", "c"),
        ("Started", "a"),
        ("Failed", "a"),
        ("Started", "b"),
        ("Completed", "b"),
        ("Started", "c"),
        ("Started", "d"),
        ("Completed", "d"),
    )
    assert stale(fold) == {"b", "c"}


def test_what_was_skipped_is_not_stale() -> None:
    fold = folded(
        queued("a"),
        queued("b", "a"),
        ("Started", "a"),
        ("Failed", "a"),
        ("Skipped", "b"),
    )
    assert stale(fold) == set()


def test_what_was_kept_while_its_input_was_made_anew_is_stale() -> None:
    fold = folded(
        queued("a"),
        queued("b", "a"),
        queued("c", "b"),
        ("Completed", "b"),
        ("Completed", "c"),
        ("Started", "a"),
        ("Completed", "a"),
    )
    assert stale(fold) == {"b", "c"}


def test_the_executor_may_say_so_itself() -> None:
    fold = folded(queued("a"), ("Started", "a", {"stale": True}))
    assert stale(fold) == {"a"}


def test_a_cycle_in_hostile_signals_ends() -> None:
    fold = folded(
        queued("a", "b"),
        queued("b", "a"),
        ("Started", "a"),
        ("Failed", "a"),
        ("Started", "b"),
        ("Completed", "b"),
    )
    assert stale(fold) == {"a", "b"}


def test_counts() -> None:
    assert node_counts([]) == {"total": 0}
    assert node_counts([S.LOST, S.COMPLETED, S.LOST]) == {
        "total": 3,
        "completed": 1,
        "lost": 2,
    }


def test_numbers_that_no_float_can_hold_are_no_times() -> None:
    unit = StateReader().read(
        {"flow_context": {"operator_messages": [{"ts": 10**400, "text": "x"}, 5, {}]}},
        CLEAN,
    )
    assert [message.at for message in unit.messages] == [None, None]
