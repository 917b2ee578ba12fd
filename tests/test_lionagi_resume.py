"""What lionagi would make of a resume, told without running anything."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from harness.lionagi import NAMES, change, digests, make
from heaveto.cli import main
from heaveto.lionagi import LionagiCase, predict_lionagi
from heaveto.resume import (
    FlowResumeError,
    ResumePlan,
    check_failed,
    check_spawned,
    drop_under,
    node_id,
)

VECTORS = Path(__file__).parent / "golden" / "vectors" / "spawn.jsonl"
CLEAN = {"status": "clean", "reasons": []}
FIRST = {
    "killed": "20261129T160026-91b937",
    "killed-reactive": "20261129T160115-41eb9b",
    "failed": "20261129T155752-69e7d4",
    "failed-then-retried": "20261129T155752-69e7d4",
    "reactive": "20261129T155832-1a5a87",
    "normal": "20261129T160344-f1ba3f",
}


def dry(home: Path, target: str, capsys: Any, *flags: str) -> tuple[int, Any]:
    code = main(["--home", str(home), "resume", target, "--dry-run", "--json", *flags])
    return code, json.loads(capsys.readouterr().out)


def verdicts(answer: Any) -> dict[str, str]:
    return {one["name"]: one["verdict"] for one in answer["nodes"]}


# --- the homes: what lionagi did is what is told


def test_killed_flow_goes_on_where_it_was_cut(tmp_path: Path, capsys: Any) -> None:
    home = make("killed", tmp_path / "home")
    code, answer = dry(home.path, FIRST["killed"], capsys)
    assert code == 0
    assert answer["schema"] == 1
    assert answer["decision"] == "resume"
    assert answer["reasons"] == []
    assert verdicts(answer) == {
        "researcher": "reuse",
        "researcher-2": "reuse",
        "analyst": "run",
        "architect": "run",
        "contrarian": "run",
        "evaluator": "run",
    }
    assert [one["settlement"] for one in answer["nodes"]] == ["unchecked"] * 2 + [
        "none"
    ] * 4
    assert len(answer["lost_steers"]) == 2
    assert answer["effective_config"]["timeout"] is None
    assert answer["effective_config"]["with_synthesis"] is True
    assert answer["checkpoint_recovery"]["status"] == "clean"
    assert set(answer) == {
        "schema",
        "target",
        "decision",
        "reasons",
        "nodes",
        "degraded",
        "lost_steers",
        "effective_config",
        "checkpoint_recovery",
    }


def test_the_prediction_is_what_the_resumed_run_did(
    tmp_path: Path, capsys: Any
) -> None:
    """The home holds the killed run and the run that lionagi resumed it as."""
    home = make("killed-then-resumed", tmp_path / "home")
    _, answer = dry(home.path, FIRST["killed"], capsys)
    assert main(["--home", str(home.path), "ls", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["runs"]
    heir = next(run for run in listed if run["resumed_from"] == FIRST["killed"])
    assert main(["--home", str(home.path), "show", heir["run_id"], "--json"]) == 0
    did = json.loads(capsys.readouterr().out)["operations"]
    ran = {one["name"] for one in did if one["started_at"] is not None}
    reused = {one["name"] for one in did if one["started_at"] is None}
    assert {name for name, word in verdicts(answer).items() if word == "reuse"} == (
        reused
    )
    assert {name for name, word in verdicts(answer).items() if word == "run"} == (
        ran - {"orchestrator"}
    )


@pytest.mark.parametrize("name", ["killed-reactive", "reactive"])
def test_what_spawned_is_refused_for_its_parent(
    tmp_path: Path, capsys: Any, name: str
) -> None:
    home = make(name, tmp_path / "home")
    for flags in ((), ("--retry-failed",)):
        code, answer = dry(home.path, FIRST[name], capsys, *flags)
        assert code == 1
        assert answer["decision"] == "refused"
        assert {one["code"] for one in answer["reasons"]} == {"spawn_check_6"}
        refused = {one["id"] for one in answer["nodes"] if one["verdict"] == "refused"}
        assert {one["node"] for one in answer["reasons"]} == refused
        assert all("new ids" in one["text"] for one in answer["reasons"])
        assert answer["checkpoint_recovery"]["status"] == "clean"


def test_failed_entries_refuse_and_retry_leaves_stale_results(
    tmp_path: Path, capsys: Any
) -> None:
    home = make("failed", tmp_path / "home")
    code, answer = dry(home.path, FIRST["failed"], capsys)
    assert code == 1
    assert [(one["code"], one["node"]) for one in answer["reasons"]] == [
        ("failed_entries", "researcher-2")
    ]
    code, answer = dry(home.path, FIRST["failed"], capsys, "--retry-failed")
    assert code == 0
    assert answer["decision"] == "resume"
    found = verdicts(answer)
    assert found.pop("researcher-2") == "retry"
    assert set(found.values()) == {"reuse"}
    stale = [one["name"] for one in answer["nodes"] if one["stale"]]
    assert stale == ["analyst", "architect", "contrarian", "evaluator"]


def test_stale_results_of_a_retried_run_are_named(tmp_path: Path, capsys: Any) -> None:
    home = make("failed-then-retried", tmp_path / "home")
    code, answer = dry(home.path, "8669b35e", capsys)
    assert code == 0
    assert set(verdicts(answer).values()) == {"reuse"}
    stale = [one["name"] for one in answer["nodes"] if one["stale"]]
    assert stale == ["analyst", "architect", "contrarian", "evaluator"]


def test_completed_run_has_nothing_left(tmp_path: Path, capsys: Any) -> None:
    home = make("normal", tmp_path / "home")
    [run] = [one.name for one in home.runs.iterdir()]
    code, answer = dry(home.path, run, capsys)
    assert (code, answer["decision"]) == (0, "resume")
    assert set(verdicts(answer).values()) == {"reuse"}


def test_an_attempt_without_a_checkpoint_is_refused(
    tmp_path: Path, capsys: Any
) -> None:
    home = make("failed-then-retried", tmp_path / "home")
    code, answer = dry(home.path, "20261129T155809", capsys)
    assert code == 1
    assert [one["code"] for one in answer["reasons"]] == ["no_checkpoint"]
    assert answer["nodes"] == []
    reasons = answer["checkpoint_recovery"]["reasons"]
    assert [one["code"] for one in reasons] == ["base_missing"]


def test_damaged_checkpoint_is_refused_with_its_report(
    tmp_path: Path, capsys: Any
) -> None:
    home = make("killed", tmp_path / "home")
    path = home.run(FIRST["killed"]).checkpoint
    path.write_bytes(path.read_bytes()[:100])
    code, answer = dry(home.path, FIRST["killed"], capsys)
    assert code == 1
    assert [one["code"] for one in answer["reasons"]] == ["checkpoint_refused"]
    assert answer["checkpoint_recovery"]["status"] == "refused"


def test_saving_that_was_switched_off_is_said(tmp_path: Path, capsys: Any) -> None:
    home = make("killed", tmp_path / "home")
    run = home.run(FIRST["killed"])
    run.checkpoint.unlink()
    record = json.loads(run.run_json.read_text())
    record["persistence_degraded_reason"] = "state.db could not be opened"
    run.run_json.write_text(json.dumps(record))
    _, answer = dry(home.path, FIRST["killed"], capsys)
    [reason] = answer["reasons"]
    assert reason["code"] == "no_checkpoint"
    assert "state.db could not be opened" in reason["text"]
    assert main(["--home", str(home.path), "show", FIRST["killed"], "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert "persistence_off" in [one["code"] for one in shown["warnings"]]


@pytest.mark.parametrize("name", sorted(FIRST))
@pytest.mark.parametrize("flags", [(), ("--retry-failed",)])
def test_text_says_the_same_and_nothing_is_changed(
    tmp_path: Path, capsys: Any, name: str, flags: tuple[str, ...]
) -> None:
    home = make(name, tmp_path / "home")
    [run, *_] = sorted(one.name for one in home.runs.iterdir())
    before = digests(home.path)
    code = main(["--home", str(home.path), "resume", run, "--dry-run", *flags])
    text = capsys.readouterr().out
    _, answer = dry(home.path, run, capsys, *flags)
    assert digests(home.path) == before
    assert re.search(rf"^decision +{answer['decision']}$", text, re.MULTILINE)
    assert (code == 0) is (answer["decision"] == "resume")
    for node in answer["nodes"]:
        assert re.search(
            rf"^{node['name']} +{node['verdict']}\b", text, re.MULTILINE
        ), node
    assert f"li o flow --resume {run}" in text


def test_without_dry_run_the_command_of_lionagi_is_named(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make("killed", tmp_path / "my home")
    before = digests(home.path)
    words = ["--home", str(home.path), "resume", "2fb1b803", "--retry-failed"]
    assert main(words) == 1
    said = capsys.readouterr().err
    assert f"env 'LIONAGI_HOME={home.path}' li o flow --resume" in said
    assert said.rstrip().endswith("--retry-failed")
    monkeypatch.setenv("LIONAGI_HOME", str(home.path))
    assert main([*words, "--json"]) == 1
    refusal = json.loads(capsys.readouterr().out)["error"]
    assert refusal["code"] == "not_ours"
    assert "LIONAGI_HOME" not in refusal["message"]
    assert digests(home.path) == before


def test_unknown_target_is_2(tmp_path: Path, capsys: Any) -> None:
    home = make("killed", tmp_path / "home")
    code, answer = dry(home.path, "ffffffff", capsys)
    assert (code, answer["error"]["code"]) == (2, "target_unknown")


def test_a_live_run_is_refused(tmp_path: Path, capsys: Any) -> None:
    from heaveto.liveness import identity

    home = make("killed", tmp_path / "home")
    mine = {**identity(), "run_id": FIRST["killed"], "flow_control_poller": "active"}
    change(home, "UPDATE sessions SET node_metadata = ?", (json.dumps(mine),))
    code, answer = dry(home.path, FIRST["killed"], capsys)
    assert code == 1
    assert [one["code"] for one in answer["reasons"]] == ["run_live"]


@pytest.mark.parametrize("name", NAMES)
def test_no_reason_quotes_content(tmp_path: Path, name: str) -> None:
    home = make(name, tmp_path / "home")
    for folder in home.runs.iterdir():
        path = folder / "checkpoint.json"
        if path.exists():
            state = json.loads(path.read_text())
            for retry in (False, True):
                plan = predict(state, retry_failed=retry)
                told = json.dumps([one.as_dict() for one in plan.reasons])
                told += json.dumps([one.as_dict() for one in plan.nodes])
                for entry in state["plan"]:
                    assert entry["task"] not in told


# --- the checks themselves


def predict(state: Any, **given: Any) -> ResumePlan:
    return predict_lionagi(LionagiCase(target="t", state=state, report=CLEAN, **given))


PLAN: list[dict[str, Any]] = [
    {"agent_id": "a", "dep_indices": [], "task": "t", "assignee": "w"},
    {"agent_id": "b", "dep_indices": [0], "task": "t", "assignee": "w"},
    {"agent_id": "c", "dep_indices": [1], "task": "t", "assignee": "w"},
]
SPAWN = {
    "node_id": "n1",
    "status": "completed",
    "response": "r",
    "operation": "operate",
    "assignee": "w",
    "instruction": "i",
    "parent_id": None,
    "spawn_id": "spawn-1",
    "context": None,
}


def state_of(
    ops: dict[str, str] | None = None,
    spawned: list[dict[str, Any]] | None = None,
    plan: list[dict[str, Any]] | None = None,
    **config: Any,
) -> dict[str, Any]:
    return {
        "version": 2,
        "session_id": "s",
        "prompt": "p",
        "plan": copy.deepcopy(PLAN if plan is None else plan),
        "flow_context": {},
        "ops": {
            name: {"agent_id": name, "status": status, "response": "r"}
            for name, status in (ops or {}).items()
        },
        "spawned": spawned or [],
        "config": config,
        "max_spawn": 20,
    }


@pytest.mark.parametrize(
    ("change_to", "retry", "code"),
    [
        ({"operation": None}, False, "spawn_check_1"),
        ({"status": "running"}, False, "spawn_check_2"),
        ({"status": "pending", "response": None}, False, "spawn_check_2"),
        ({"spawn_id": None}, False, "spawn_check_3"),
        (
            {"status": "failed", "assignee": None, "emitter_workload": "light"},
            True,
            "spawn_check_4",
        ),
        (
            {"status": "failed", "emitter_contains_user_settings": True},
            True,
            "spawn_check_5",
        ),
        ({"parent_id": "gone"}, False, "spawn_check_6"),
        ({"status": "failed"}, False, "failed_entries"),
    ],
)
def test_each_refusal_of_a_spawned_entry(
    change_to: dict[str, Any], retry: bool, code: str
) -> None:
    state = state_of({"a": "completed"}, [{**SPAWN, **change_to}])
    plan = predict(state, retry_failed=retry)
    assert plan.refused
    assert (plan.reasons[0].code, plan.reasons[0].node) == (code, "n1")
    with pytest.raises(FlowResumeError) as caught:
        plan.require()
    assert caught.value.reasons == plan.reasons


def test_a_spawn_without_a_parent_passes() -> None:
    assert not predict(state_of({"a": "completed"}, [SPAWN])).refused
    below = {**SPAWN, "node_id": "n2", "spawn_id": "spawn-2", "parent_id": "n1"}
    assert not predict(state_of({"a": "completed"}, [below, SPAWN])).refused


def test_a_circle_is_refused_after_everything_else() -> None:
    """lionagi builds the graph and then stops with an error."""
    itself = {**SPAWN, "parent_id": "n1"}
    [reason] = predict(state_of({"a": "completed"}, [itself])).reasons
    assert reason.code == "checkpoint_refused"
    assert reason.text.endswith("in a circle: spawn-1 -> spawn-1")
    plan = [{**PLAN[0], "dep_indices": [0]}, *PLAN[1:]]
    failed = state_of({"c": "failed"}, plan=plan)
    assert [one.code for one in predict(failed).reasons] == [
        "failed_entries",
        "checkpoint_refused",
    ]
    long = [
        {**SPAWN, "node_id": f"n{at}", "parent_id": f"n{at + 1}"} for at in range(5000)
    ]
    assert [one.code for one in predict(state_of({}, long)).reasons] == [
        "spawn_check_6"
    ]


def test_children_of_a_spawn_that_runs_again_are_dropped() -> None:
    failed = {**SPAWN, "status": "failed"}
    below = {**SPAWN, "node_id": "n2", "spawn_id": "spawn-2", "parent_id": "n1"}
    deeper = {**SPAWN, "node_id": "n3", "spawn_id": "spawn-3", "parent_id": "n2"}
    plan = predict(
        state_of({"a": "completed"}, [deeper, failed, below]), retry_failed=True
    )
    assert not plan.refused
    found = {one.id: one.verdict for one in plan.nodes}
    assert (found["n1"], found["n2"], found["n3"]) == ("retry", "dropped", "dropped")


def test_what_may_still_run_elsewhere_is_noted() -> None:
    state = state_of({"a": "completed"})
    told = [predict(state, alive=alive).notes for alive in (None, False)]
    assert [any("runs the rest twice" in note for note in one) for one in told] == [
        True,
        False,
    ]


def test_an_empty_plan_is_refused() -> None:
    assert [one.code for one in predict(state_of(plan=[])).reasons] == ["empty_plan"]


def test_a_plan_that_lionagi_cannot_read_is_refused() -> None:
    """A plan with node ids is heaveto's; lionagi 0.36 forbids members it lacks."""
    plan = [{**PLAN[0], "node_id": "1"}]
    [reason] = predict(state_of(plan=plan)).reasons
    assert (reason.code, reason.node) == ("checkpoint_refused", "a")
    assert "node_id" in reason.text


@pytest.mark.parametrize("places", [3, "0", [7], [-1], ["0"], {"a": 1}])
def test_dependencies_that_lead_nowhere_are_refused(places: object) -> None:
    plan = [{**PLAN[0], "dep_indices": places}]
    assert [one.code for one in predict(state_of(plan=plan)).reasons] == [
        "checkpoint_refused"
    ]


@pytest.mark.parametrize("odd", [None, 1, "x", [], {}, True, ["a"], {"a": 1}])
def test_members_of_any_type_are_no_crash(odd: Any) -> None:
    for name in SPAWN:
        entry = {**SPAWN, name: odd}
        for status in ("completed", "failed"):
            for retry in (False, True):
                state = state_of({"a": status}, [entry, {**SPAWN, "node_id": "n9"}])
                predict(state, retry_failed=retry)
    for name in PLAN[0]:
        predict(state_of({"a": "failed"}, plan=[{**PLAN[0], name: odd}, PLAN[1]]))
    state = state_of({"a": "completed"}, timeout=odd)
    state["ops"]["a"]["status"] = odd
    predict(state).as_dict()


def test_the_recorded_limit_is_used_again() -> None:
    plan = predict(state_of({"a": "completed"}, timeout=30))
    assert plan.effective_config["timeout"] == 30
    assert any("30 s" in note for note in plan.notes)


def test_stale_stops_at_what_runs_again() -> None:
    state = state_of({"a": "failed", "c": "completed"})
    found = {one.id: one for one in predict(state, retry_failed=True).nodes}
    assert found["a"].verdict == "retry"
    assert (found["b"].verdict, found["b"].stale) == ("run", False)
    assert (found["c"].verdict, found["c"].stale) == ("reuse", False)


def test_a_session_without_a_run_has_nothing_to_resume() -> None:
    case = LionagiCase(target="t", state=None, report=CLEAN, has_run=False)
    [reason] = predict_lionagi(case).reasons
    assert (reason.code, "no run" in reason.text) == ("no_checkpoint", True)


WORDS = {
    "failed_nodes": "failed_entries",
    "check1_operation": "spawn_check_1",
    "check2_status": "spawn_check_2",
    "check3_spawn_id": "spawn_check_3",
    "check4_workload": "spawn_check_4",
    "check5_settings": "spawn_check_5",
    "check6_parent": "spawn_check_6",
}


@pytest.mark.parametrize(
    "vector", VECTORS.read_text().splitlines(), ids=lambda line: json.loads(line)["id"]
)
def test_vectors_of_spawned_entries(vector: str) -> None:
    case = json.loads(vector)
    checkpoint, retry = case["checkpoint"], case["flags"]["retry_failed"]
    ops, plan = checkpoint["ops"], checkpoint["plan"]
    ids = {entry["agent_id"]: entry["node_id"] for entry in plan}
    replayable = ("completed",) if retry else ("completed", "failed")
    parents = {ids[name]: ops.get(name, {}).get("status") in replayable for name in ids}
    failed = check_failed(ops, checkpoint["spawned"], list(ids))
    kept, reasons = checkpoint["spawned"], failed
    if retry:
        again = {ids.get(str(one.node), str(one.node)) for one in failed}
        kept, _ = drop_under(kept, again)
        reasons = ()
    reasons += check_spawned(
        kept,
        parents=parents,
        retry_failed=retry,
        reads_settings=lambda role: case["branch_reads_settings"].get(role, True),
    )
    if case["expect"] == "ok":
        assert reasons == ()
        assert [node_id(one) for one in kept] == case["nodes"]
        return
    wanted = WORDS[case["expect"].removeprefix("refuse:")]
    assert [(one.code, one.node) for one in reasons] == [
        (wanted, node) for node in case["nodes"]
    ]
