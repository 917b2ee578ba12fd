"""What is shown of eleven homes that real flows of lionagi left.

The tables here were written from what the flows did; the whole snapshots beside the
homes were reviewed by hand and hold every other member still.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from harness.lionagi import (
    LIVE,
    NAMES,
    Vm,
    everyone,
    expected_file,
    make,
    source_of,
    told,
)
from heaveto.observe.attention import Group, arrange, rank
from heaveto.observe.words import explain

if TYPE_CHECKING:
    from pathlib import Path

Shown = dict[str, Any]

DIAMOND = ["researcher", "researcher-2", "analyst", "architect", "contrarian"]


_SHOWN: dict[str, list[Shown]] = {}


def shown(path: Path, name: str) -> list[Shown]:
    """Return what is shown of a home; it is read once and must not be changed."""
    if name not in _SHOWN:
        home = make(name, path / name)
        _SHOWN[name] = told(source_of(home, alive=name in LIVE))
    return _SHOWN[name]


def original(path: Path, name: str) -> Shown:
    """The run that the home is about: its oldest."""
    return shown(path, name)[-1]


def statuses(run: Shown) -> dict[str, str]:
    return {one["name"]: one["status"] for one in run["operations"]}


def codes(run: Shown) -> list[str]:
    return [one["code"] for one in run["warnings"]]


def names(run: Shown) -> dict[str, str]:
    return {one["id"]: one["name"] for one in run["operations"]}


@pytest.mark.parametrize("name", NAMES)
def test_snapshot_is_the_reviewed_one(tmp_path: Path, name: str) -> None:
    assert shown(tmp_path, name) == json.loads(expected_file(name).read_text())


def test_all_eleven_homes_are_here() -> None:
    assert len(NAMES) == 11


STATES = {
    "controlled": "completed",
    "failed": "failed",
    "failed-then-retried": "failed",
    "killed": "dead",
    "killed-reactive": "dead",
    "killed-then-resumed": "dead",
    "normal": "completed",
    "normal-live": "executing",
    "paused-live": "paused",
    "reactive": "failed",
    "wedged-claim": "dead",
}


@pytest.mark.parametrize("name", NAMES)
def test_states_of_the_first_runs(tmp_path: Path, name: str) -> None:
    run = original(tmp_path, name)
    assert run["state"] == STATES[name]
    assert run["alive"] is (name in LIVE)
    assert run["source"] == "lionagi"
    assert run["checkpoint"]["version"] == 2


@pytest.mark.parametrize("name", ["killed", "killed-then-resumed", "wedged-claim"])
def test_a_killed_flow_is_dead_although_its_row_says_running(
    tmp_path: Path, name: str
) -> None:
    run = original(tmp_path, name)
    assert run["status"] == "running"
    assert (run["status_source"], run["reason_code"]) == ("process", "process_gone")
    assert statuses(run) == {
        "researcher": "completed",
        "researcher-2": "completed",
        "analyst": "lost",
        "architect": "unstarted",
        "contrarian": "unstarted",
        "evaluator": "unstarted",
    }
    ended = {one["name"]: one for one in run["operations"]}
    assert ended["researcher"]["persisted"] is True
    assert ended["analyst"]["executed"] is False


def test_edges_come_from_the_signals(tmp_path: Path) -> None:
    run = original(tmp_path, "killed")
    by_id = names(run)
    assert [(by_id[head], by_id[tail]) for head, tail in run["edges"]] == [
        ("researcher", "analyst"),
        ("researcher-2", "analyst"),
        ("analyst", "architect"),
        ("analyst", "contrarian"),
        ("architect", "evaluator"),
        ("contrarian", "evaluator"),
    ]


def test_a_spawn_hangs_on_its_emitter(tmp_path: Path) -> None:
    run = original(tmp_path, "killed-reactive")
    by_id = names(run)
    spawn = next(one for one in run["operations"] if one["origin"] == "spawned")
    assert (spawn["name"], spawn["assignee"]) == ("spawn-1", "analyst")
    assert spawn["status"] == "completed"
    links = {(by_id[one["from"]], by_id[one["to"]]): one for one in run["links"]}
    assert links["researcher", "spawn-1"]["kind"] == "spawn"
    assert codes(run) == ["li_refuses"]


def test_a_retry_takes_the_place_of_what_it_answers(tmp_path: Path) -> None:
    run = original(tmp_path, "reactive")
    by_id = names(run)
    assert statuses(run)["assessor"] == "escalated"
    assert statuses(run)["assessor escalation retry"] == "completed"
    links = {(by_id[one["from"]], by_id[one["to"]]): one for one in run["links"]}
    retry = "assessor escalation retry"
    assert links["assessor", retry]["kind"] == "escalation"
    assert links["assessor", "writer"]["active"] is False
    assert links[retry, "writer"]["active"] is True
    summary = next(one for one in run["operations"] if one["origin"] == "synthesis")
    assert summary["name"] == "orchestrator"


def test_a_verdict_that_its_operations_do_not_bear_out(tmp_path: Path) -> None:
    run = original(tmp_path, "reactive")
    warning = next(one for one in run["warnings"] if one["code"] == "verdict_differs")
    assert "every operation finished" in warning["text"]
    assert "unknown role counsel" in warning["text"]
    assert {"li_refuses", "spawn_ignored"} <= set(codes(run))
    ignored = next(one for one in run["warnings"] if one["code"] == "spawn_ignored")
    assert ignored["text"].startswith("spawn-1 asked")


def test_what_ran_on_an_error_is_stale(tmp_path: Path) -> None:
    run = original(tmp_path, "failed")
    by_name = {one["name"]: one for one in run["operations"]}
    failed = by_name["researcher-2"]
    assert failed["status"] == "failed"
    assert failed["error"]["code"] == "worker_error"
    assert "status 400" in failed["error"]["text"]
    stale = [name for name, one in by_name.items() if one["stale"]]
    assert stale == ["analyst", "architect", "contrarian", "evaluator"]
    assert codes(run) == ["input_failed"]


def test_retried_failures_leave_stale_results_and_attempts(tmp_path: Path) -> None:
    retried, *attempts, first = shown(tmp_path, "failed-then-retried")
    assert retried["status"] == "completed"
    assert codes(retried) == ["stale_result"]
    assert retried["resumed_from"] == first["run_id"]
    assert first["superseded_by"] == retried["run_id"]
    told_of = next(one for one in first["warnings"] if one["code"] == "resume_attempts")
    assert told_of["text"].startswith("3 attempts")
    for attempt in attempts:
        assert attempt["resumed_from"] == first["run_id"]
        assert attempt["nodes"] == {"total": 0}
        assert codes(attempt) == ["did_nothing"]


def test_attempts_that_did_nothing_are_folded(tmp_path: Path) -> None:
    home = make("failed-then-retried", tmp_path / "home")
    source = source_of(home)
    source.refresh()
    runs = source.listed()
    assert len(runs) == 5
    assert len(arrange(runs)) == 2
    assert len(arrange(runs, everything=True)) == 5
    first = next(run for run in runs if run.superseded_by is not None)
    assert rank(first).group == Group.ENDED


def test_a_resumed_run_supersedes_the_dead_one(tmp_path: Path) -> None:
    resumed, attempt, dead = shown(tmp_path, "killed-then-resumed")
    assert dead["superseded_by"] == resumed["run_id"]
    assert dead["status"] == "running"
    assert attempt["nodes"] == {"total": 0}
    reused = [
        one["name"]
        for one in resumed["operations"]
        if one["started_at"] is None and one["status"] == "completed"
    ]
    assert reused == ["researcher", "researcher-2"]


def test_steers_that_no_checkpoint_holds_are_lost(tmp_path: Path) -> None:
    run = original(tmp_path, "killed")
    lost = [one["text"] for one in run["controls"] if one["lost"]]
    assert lost == ["Prefer the boring option.", "And write down why."]
    assert [one["class"] for one in run["controls"]] == [
        "applied",
        "applied",
        "never_landed",
    ]
    assert codes(run)[:2] == ["steer_lost", "never_landed"]


def test_a_wedged_claim_has_its_age(tmp_path: Path) -> None:
    run = original(tmp_path, "wedged-claim")
    claim = next(one for one in run["controls"] if one["class"] == "claimed")
    assert claim["result"] == "applying"
    assert claim["owner"] is None
    assert claim["age_s"] == pytest.approx(60.0, abs=1.0)
    assert "not_reported" in codes(run)


def test_a_steer_names_the_one_operation_that_read_it(tmp_path: Path) -> None:
    run = original(tmp_path, "controlled")
    by_id = names(run)
    read = [one for one in run["controls"] if one["rendered_into"] is not None]
    assert [by_id[one["rendered_into"]] for one in read] == ["analyst", "analyst"]
    assert not any(one["lost"] for one in run["controls"])
    for one in read:
        assert 0.0 < one["applied_at"] - one["created_at"] < 2.5
    results = [one["result"] for one in run["controls"]]
    assert results[-2] == "rejected:no-pending-ops"
    assert results[-1].startswith("rejected: run reached terminal status")
    for result in filter(None, results):
        assert explain(result) is not None


def test_paused_is_a_gate_with_somebody_at_it(tmp_path: Path) -> None:
    run = original(tmp_path, "paused-live")
    assert run["phase"] == "paused"
    found = statuses(run)
    assert found.pop("researcher") == "completed"
    assert found.pop("analyst") == "paused"
    assert set(found.values()) == {"waiting"}


def test_a_live_flow_from_its_own_and_from_another_host(tmp_path: Path) -> None:
    home = make("normal-live", tmp_path / "home")
    [there] = told(source_of(home, machine=Vm(everyone(home), host="other")))
    reviewed = expected_file("normal-live", elsewhere=True)
    assert [there] == json.loads(reviewed.read_text())
    assert there["alive"] is None
    assert there["confidence"] == "derived"
    assert codes(there) == ["liveness_unknown"]
    [here] = told(source_of(home, alive=True))
    assert here["confidence"] == "sure"
    assert here["operations"] == there["operations"]


def test_a_reboot_and_a_reused_number_are_death(tmp_path: Path) -> None:
    home = make("normal-live", tmp_path / "home")
    alive = everyone(home)
    [reused] = told(
        source_of(home, machine=Vm({pid: at + 60.0 for pid, at in alive.items()}))
    )
    assert (reused["state"], reused["reason_code"]) == ("dead", "pid_reused")

    class Rebooted(Vm):
        def boot_time(self) -> float:
            return super().boot_time() + 3600.0

    later = Rebooted({pid: at + 4000.0 for pid, at in alive.items()})
    [gone] = told(source_of(home, machine=later))
    assert (gone["state"], gone["reason_code"]) == ("dead", "rebooted")


@pytest.mark.parametrize("name", NAMES)
def test_every_word_is_explained(tmp_path: Path, name: str) -> None:
    for run in shown(tmp_path, name):
        said = [run["state"], run["reason_code"], *codes(run), *statuses(run).values()]
        said += [one["class"] for one in run["controls"]]
        assert [word for word in said if word and explain(word) is None] == []


@pytest.mark.parametrize("name", NAMES)
def test_counts_and_list_agree_with_the_detail(tmp_path: Path, name: str) -> None:
    home = make(name, tmp_path / name)
    source = source_of(home, alive=name in LIVE)
    source.refresh()
    for run in source.listed():
        detail = source.read(run.session_id, run.run_id)
        assert detail is not None
        assert detail.run.nodes == run.nodes
        assert detail.run.warnings == run.warnings
        assert run.nodes["total"] == len(detail.operations)


def test_several_homes_at_once(tmp_path: Path) -> None:
    from heaveto.observe import Observer

    homes = [make(name, tmp_path / name) for name in ("normal", "killed", "reactive")]
    with Observer(homes) as observer:
        runs = observer.list_runs()
        assert {run.home for run in runs} == {str(home.path) for home in homes}
        for run in runs:
            detail = observer.read_run(run.session_id[:8])
            assert detail.run.session_id == run.session_id
        assert all(view.problem is None for view in observer.health())
