"""Live flows of lionagi, watched, steered, killed and resumed beside heaveto.

Not collected by ``make test``: ``make interop`` installs lionagi and names this file.
``LI`` is the path of its ``li``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.lionagi import digests
from interop.model import PLUGIN, PROVIDER, Model, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LI = os.environ.get("LI", "li")
LIMIT = 60.0

pytestmark = pytest.mark.timeout(300)


class World:
    """A private home of lionagi with a model, and both programs beside it."""

    def __init__(self, path: Path, model: Model) -> None:
        self.home = path / "home"
        self.lionagi = self.home / ".lionagi"
        self.work = path / "work"
        self.work.mkdir()
        self.model = model
        plugin = self.lionagi / "plugins" / "held"
        plugin.mkdir(parents=True)
        (plugin / "plugin.yaml").write_text(PLUGIN)
        (plugin / "held.py").write_text(PROVIDER)
        self.flows: list[subprocess.Popen[str]] = []
        self.li("plugin", "trust", "held", "--yes")

    @property
    def environ(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in ("PATH", "LANG", "LC_ALL", "TERM")
        }
        return {
            **kept,
            "HOME": str(self.home),
            "LIONAGI_HOME": str(self.lionagi),
            "HELD_URL": self.model.url,
            "NO_COLOR": "1",
            "PYTHONWARNINGS": "ignore",
        }

    def li(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [LI, *words],
            cwd=self.work,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        with (self.work / "flow.err").open("a") as errors:
            flow = subprocess.Popen(
                [LI, "o", "flow", *words],
                cwd=self.work,
                env=self.environ,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self.flows.append(flow)
        return flow

    def flow(self, *words: str) -> subprocess.Popen[str]:
        return self.start("held/held", "Do the steps.", "--no-mcp-config", *words)

    def heaveto(self, *words: str) -> tuple[int, Any]:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "heaveto",
                "--home",
                str(self.lionagi),
                *words,
                "--json",
            ],
            cwd=self.work,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, json.loads(done.stdout)

    def runs(self) -> list[Any]:
        code, answer = self.heaveto("ls", "--all")
        assert code == 0, answer
        found: list[Any] = answer["runs"]
        return found

    def show(self, target: str) -> Any:
        code, answer = self.heaveto("show", target)
        assert code == 0, answer
        return answer

    def until(self, what: Callable[[], Any]) -> Any:
        """Look until something holds; return it."""
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            try:
                if found := what():
                    return found
            except AssertionError:
                pass
            time.sleep(0.1)
        raise AssertionError(f"not within {LIMIT} s: {self.runs()}")

    def first(self) -> str:
        """Return the session of the one run, once it executes."""

        def look() -> str | None:
            runs = self.runs() if (self.lionagi / "state.db").exists() else []
            ready = [run for run in runs if run["nodes"]["total"]]
            return str(ready[0]["session_id"]) if ready else None

        return str(self.until(look))

    def until_status(self, target: str, name: str, status: str) -> Any:
        def look() -> Any:
            shown = self.show(target)
            return shown if words(shown).get(name) == status else None

        return self.until(look)

    def close(self) -> None:
        self.model.close()
        for flow in self.flows:
            if flow.poll() is None:
                os.killpg(flow.pid, signal.SIGKILL)
            flow.wait()


def words(shown: Any) -> dict[str, str]:
    return {one["name"]: one["status"] for one in shown["operations"]}


def verdicts(answer: Any) -> dict[str, str]:
    return {one["name"]: one["verdict"] for one in answer["nodes"]}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Callable[[Model], World]]:
    made: list[World] = []

    def make(model: Model) -> World:
        made.append(World(tmp_path, model))
        return made[-1]

    yield make
    for one in made:
        one.close()


def chain() -> Model:
    return Model(
        Step("one", "researcher"),
        Step("two", "analyst", (1,)),
        Step("three", "writer", (2,)),
    )


def kill(flow: subprocess.Popen[str]) -> None:
    os.killpg(flow.pid, signal.SIGKILL)
    flow.wait()


# --- the one that CI runs


def test_smoke_pause_message_resume(world: Callable[[Model], World]) -> None:
    """A live flow is seen, held, told something and let go by heaveto."""
    here = world(chain())
    model = here.model
    flow = here.flow()
    model.wait_for("one")
    session = here.first()
    shown = here.until_status(session, "researcher", "running")
    assert (shown["state"], shown["alive"]) == ("executing", True)
    assert words(shown) == {
        "researcher": "running",
        "analyst": "waiting",
        "writer": "waiting",
    }
    code, answer = here.heaveto("ctl", "pause", session)
    assert (code, answer["queued"]) == (0, True)
    here.until(lambda: here.show(session)["state"] == "pausing")
    model.open("one")
    shown = here.until_status(session, "analyst", "paused")
    assert shown["state"] == "paused"
    assert here.heaveto("ctl", "stop", session)[0] == 2
    assert here.heaveto("ctl", "msg", session, "Use build 8811.")[0] == 0
    here.until(lambda: here.show(session)["controls"][-1]["class"] == "applied")
    assert here.heaveto("ctl", "resume", session)[0] == 0
    asked = model.wait_for("two")
    assert "Use build 8811." in asked
    model.open("two")
    assert "Use build 8811." not in model.wait_for("three")
    model.open("three")
    assert flow.wait(LIMIT) == 0
    code, shown = here.heaveto("wait", session, "--timeout", "30")
    assert (code, shown["state"]) == (0, "completed")
    message = next(one for one in shown["controls"] if one["verb"] == "message")
    reader = next(one for one in shown["operations"] if one["name"] == "analyst")
    assert message["rendered_into"] == reader["id"]
    assert not message["lost"]
    assert here.heaveto("ctl", "pause", session)[0] == 2
    assert set(words(shown).values()) == {"completed"}
    assert all(one["persisted"] for one in shown["operations"])


# --- the rest


def test_killed_flow_is_told_and_resumed_as_predicted(
    world: Callable[[Model], World],
) -> None:
    here = world(chain())
    model = here.model
    flow = here.flow()
    model.open("one")
    model.wait_for("two")
    session = here.first()
    here.until_status(session, "analyst", "running")
    assert here.heaveto("resume", session, "--dry-run")[0] == 1
    assert here.heaveto("ctl", "msg", session, "Mind the queue.")[0] == 0
    here.until(lambda: here.show(session)["controls"][-1]["class"] == "applied")
    kill(flow)
    before = digests(here.lionagi)
    shown = here.show(session)
    assert (shown["status"], shown["state"]) == ("running", "dead")
    assert words(shown) == {
        "researcher": "completed",
        "analyst": "lost",
        "writer": "unstarted",
    }
    [lost] = [one for one in shown["controls"] if one["lost"]]
    assert here.heaveto("ctl", "pause", session)[1]["error"]["code"] == "dead_run"
    code, plan = here.heaveto("resume", session, "--dry-run")
    assert (code, plan["decision"]) == (0, "resume")
    assert plan["lost_steers"] == [lost["id"]]
    assert digests(here.lionagi) == before
    model.open("two", "three")
    counts = {name: len(step.asked) for name, step in model.steps.items()}
    assert here.li("o", "flow", "--resume", shown["run_id"]).returncode == 0
    ran = {
        name
        for name, step in zip(
            ("researcher", "analyst", "writer"), model.steps.values(), strict=True
        )
        if len(step.asked) > counts[step.name]
    }
    told = verdicts(plan)
    assert {name for name, verdict in told.items() if verdict == "run"} == ran
    old = here.show(session)
    heir = next(run for run in here.runs() if run["resumed_from"] == old["run_id"])
    assert old["superseded_by"] == heir["run_id"]
    assert heir["state"] == "completed"
    assert "Mind the queue." not in model.steps["three"].asked[-1]


def test_flow_killed_while_paused(world: Callable[[Model], World]) -> None:
    here = world(chain())
    flow = here.flow()
    here.model.wait_for("one")
    session = here.first()
    assert here.heaveto("ctl", "pause", session)[0] == 0
    here.until(lambda: here.show(session)["state"] == "pausing")
    here.model.open("one")
    here.until_status(session, "analyst", "paused")
    kill(flow)
    before = digests(here.lionagi)
    shown = here.show(session)
    assert (shown["state"], shown["phase"]) == ("dead", "paused")
    assert words(shown)["analyst"] == "unstarted"
    assert digests(here.lionagi) == before


def killed_after_a_spawn(world: Callable[[Model], World]) -> tuple[World, str]:
    """Return where a flow was killed once its spawned operation was saved, and it."""
    spawn = {
        "instruction": "STEP=extra Look closer.",
        "assignee": "analyst",
        "independent": False,
        "reason": "it was not in the plan",
    }
    here = world(
        Model(
            Step("one", "researcher", spawns=spawn),
            Step("two", "analyst", (1,)),
            spawned=(Step("extra", "analyst"),),
        )
    )
    flow = here.flow()
    here.model.open("one", "extra")
    here.model.wait_for("two")
    session = here.first()
    here.until_status(session, "spawn-1", "completed")
    here.until(lambda: persisted(here.show(session), "spawn-1"))
    kill(flow)
    return here, session


def test_spawn_makes_a_resume_impossible(world: Callable[[Model], World]) -> None:
    here, session = killed_after_a_spawn(world)
    shown = here.show(session)
    assert "li_refuses" in [one["code"] for one in shown["warnings"]]
    code, plan = here.heaveto("resume", session, "--dry-run")
    assert code == 1
    [reason] = plan["reasons"]
    assert reason["code"] == "spawn_check_6"
    done = here.li("o", "flow", "--resume", shown["run_id"])
    assert done.returncode == 1
    assert reason["node"] in done.stdout + done.stderr
    attempt = next(run for run in here.runs() if run["resumed_from"])
    assert attempt["nodes"] == {"total": 0}
    assert here.show(session)["superseded_by"] is None


def persisted(shown: Any, name: str) -> bool:
    return any(one["name"] == name and one["persisted"] for one in shown["operations"])


def test_failed_flow_is_refused_then_retried_with_stale_results(
    world: Callable[[Model], World],
) -> None:
    here = world(
        Model(
            Step("one", "researcher", statuses=[400, 200]),
            Step("two", "analyst", (1,)),
        )
    )
    here.model.open("one", "two")
    assert here.flow().wait(LIMIT) == 1
    [run] = here.runs()
    target = run["run_id"]
    shown = here.show(target)
    assert words(shown) == {"researcher": "failed", "analyst": "completed"}
    assert [one["stale"] for one in shown["operations"]] == [False, True]
    code, plan = here.heaveto("resume", target, "--dry-run")
    assert (code, plan["reasons"][0]["node"]) == (1, "researcher")
    refused = here.li("o", "flow", "--resume", target)
    assert refused.returncode == 1
    assert "researcher" in refused.stdout + refused.stderr
    code, plan = here.heaveto("resume", target, "--dry-run", "--retry-failed")
    assert code == 0
    assert verdicts(plan) == {"researcher": "retry", "analyst": "reuse"}
    stale = [one["name"] for one in plan["nodes"] if one["stale"]]
    done = here.li("o", "flow", "--resume", target, "--retry-failed")
    assert done.returncode == 0
    heir = here.show(target)["superseded_by"]
    after = here.show(heir)
    assert [one["name"] for one in after["operations"] if one["stale"]] == stale


def test_escalation_that_worked_and_file_that_is_missing(
    world: Callable[[Model], World],
) -> None:
    """lionagi calls both runs failed; every operation finished."""
    help_me = {"reason": "an input is missing", "urgency": "blocked"}
    here = world(
        Model(
            Step("one", "researcher", escalates=help_me),
            Step("two", "writer", (1,)),
        )
    )
    here.model.open("one", "two")
    assert here.flow().wait(LIMIT) == 1
    [run] = here.runs()
    shown = here.show(run["run_id"])
    found = words(shown)
    assert found.pop("researcher") == "escalated"
    assert set(found.values()) == {"completed"}
    retry = next(one for one in shown["operations"] if one["origin"] == "retry")
    writer = next(one for one in shown["operations"] if one["name"] == "writer")
    assert writer["depends_on"] == [retry["id"]]
    verdict = warning(shown, "verdict_differs")
    assert "researcher asked for help, and the second try worked" in verdict
    code, plan = here.heaveto("resume", run["run_id"], "--dry-run")
    assert (code, plan["reasons"][0]["code"]) == (1, "spawn_check_6")
    assert here.li("o", "flow", "--resume", run["run_id"]).returncode == 1


def test_required_file_that_is_missing(world: Callable[[Model], World]) -> None:
    here = world(Model(Step("one", "researcher"), Step("two", "critic", (1,))))
    here.model.open("one", "two")
    assert here.flow().wait(LIMIT) == 1
    [run] = here.runs()
    shown = here.show(run["run_id"])
    assert set(words(shown).values()) == {"completed"}
    assert "review.md is not there" in warning(shown, "verdict_differs")


def warning(shown: Any, code: str) -> str:
    return next(str(one["text"]) for one in shown["warnings"] if one["code"] == code)


def test_time_limit_leaves_no_open_lane(world: Callable[[Model], World]) -> None:
    here = world(chain())
    here.model.open("one")
    flow = here.flow("--timeout", "15")
    assert flow.wait(LIMIT) == 124
    [run] = here.runs()
    shown = here.show(run["run_id"])
    assert shown["state"] == "timed_out"
    assert set(words(shown).values()) <= {"completed", "lost", "unstarted", "cancelled"}
    code, plan = here.heaveto("resume", run["run_id"], "--dry-run")
    assert code == 0
    assert float(plan["effective_config"]["timeout"]) == 15.0


# --- predictions on checkpoints of every form


def _each(**members: object) -> Callable[[Any], None]:
    def change(state: Any) -> None:
        for entry in state["spawned"]:
            entry.update(members)

    return change


def _without(name: str) -> Callable[[Any], None]:
    def change(state: Any) -> None:
        for entry in state["spawned"]:
            del entry[name]

    return change


def _failed_spawn(**members: object) -> Callable[[Any], None]:
    told = {"error": "it broke"}
    return _each(parent_id=None, status="failed", response=told, **members)


def _in_plan(**members: object) -> Callable[[Any], None]:
    return lambda state: state["plan"][1].update(members)


FORMS: dict[str, tuple[Callable[[Any], object], tuple[str, ...], str | None]] = {
    "as it is": (lambda state: None, (), "spawn_check_6"),
    "no plan": (lambda state: state.update(plan=[]), (), "empty_plan"),
    "a failed one": (
        lambda state: state["ops"]["researcher"].update(status="failed"),
        (),
        "failed_entries",
    ),
    "failed, not planned": (
        lambda state: (
            _each(parent_id=None)(state),
            state["ops"].update(ghost={"status": "failed", "response": {}}),
        ),
        (),
        None,
    ),
    "no operation": (_without("operation"), (), "spawn_check_1"),
    "a word": (_each(status="cancelled"), (), "spawn_check_2"),
    "pending": (_each(status="pending", response=None), (), "spawn_check_2"),
    "no spawn id": (_each(spawn_id=None), (), "spawn_check_3"),
    "no parent": (_each(parent_id=None), (), None),
    "its own parent": (
        lambda state: [
            entry.update(parent_id=entry["node_id"]) for entry in state["spawned"]
        ],
        (),
        "checkpoint_refused",
    ),
    "a circle": (
        lambda state: (_each(parent_id=None)(state), _in_plan(dep_indices=[1])(state)),
        (),
        "checkpoint_refused",
    ),
    "failed spawn": (_failed_spawn(), (), "failed_entries"),
    "failed spawn again": (_failed_spawn(), ("--retry-failed",), None),
    "class lost": (
        _failed_spawn(assignee=None, spawn_id=None, emitter_workload="cli"),
        ("--retry-failed",),
        "spawn_check_4",
    ),
    "settings": (
        _failed_spawn(
            assignee=None, spawn_id=None, emitter_contains_user_settings=True
        ),
        ("--retry-failed",),
        "spawn_check_5",
    ),
    "a member more": (_in_plan(node_id="x"), (), "checkpoint_refused"),
    "place unknown": (_in_plan(dep_indices=[9]), (), "checkpoint_refused"),
}
"""What is done to a checkpoint, how it is resumed, and why that is refused if it is."""


def test_predictions_on_checkpoints_of_every_form(
    world: Callable[[Model], World],
) -> None:
    """What heaveto says of a resume is what lionagi does, and it runs nothing."""
    here, session = killed_after_a_spawn(world)
    here.model.open("two")
    run_id = here.show(session)["run_id"]
    path = here.lionagi / "runs" / run_id / "checkpoint.json"
    whole = path.read_text()
    wrong = {}
    for name, (change, flags, wanted) in FORMS.items():
        state = json.loads(whole)
        change(state)
        path.write_text(json.dumps(state))
        code, plan = here.heaveto("resume", run_id, "--dry-run", *flags)
        told = plan["reasons"][0]["code"] if plan["reasons"] else None
        counts = {name: len(step.asked) for name, step in here.model.steps.items()}
        done = here.li("o", "flow", "--resume", run_id, *flags)
        ran = {
            name
            for name, step in here.model.steps.items()
            if len(step.asked) > counts[name]
        }
        if (told, code) != (wanted, 0 if wanted is None else 1):
            wrong[name] = f"predicted {plan['reasons']}"
        elif (wanted is None) != (done.returncode == 0):
            wrong[name] = f"lionagi: {done.returncode} {done.stderr[-300:]}"
        elif wanted is not None and ran:
            wrong[name] = f"lionagi ran {ran}"
        elif wanted is None:
            steps = {"researcher": "one", "analyst": "two", "spawn-1": "extra"}
            verdicts_ = verdicts(plan)
            expected = {
                steps[one]
                for one, verdict in verdicts_.items()
                if verdict in ("run", "retry")
            }
            if ran != expected:
                wrong[name] = f"lionagi ran {ran}, told {verdicts_}"
    assert not wrong
