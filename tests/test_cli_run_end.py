"""The answer at the end of ``run`` where the database could not be told all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from heaveto.cli.run import _as_ended
from heaveto.model import OperationStatus, Outcome, RunState, RunStatus
from heaveto.observe.snapshot import OperationView, RunDetail, RunSummary
from heaveto.runner import Finished, Trouble
from heaveto.runner.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

S = OperationStatus


def view(name: str, status: OperationStatus, **more: Any) -> OperationView:
    members: dict[str, Any] = {
        "id": f"id-{name}",
        "name": name,
        "assignee": "w",
        "status": status,
        "status_source": "signals",
        "depends_on": (),
        "origin": "planned",
        "stale": False,
        "executed": status in (S.COMPLETED, S.FAILED),
        "persisted": None,
        "started_at": None,
        "ended_at": None,
    }
    return OperationView(**{**members, **more})


def detail(status: RunStatus, operations: Iterable[OperationView]) -> RunDetail:
    run = RunSummary(
        run_id="r",
        session_id="s",
        home="h",
        source="heaveto",
        name="n",
        status=status,
        state=RunState.EXECUTING,
        reason_code=None,
        phase="executing",
        alive=True,
        status_source="db",
        observed_at=1.0,
        confidence="sure",
        nodes={},
        checkpoint=None,
        generation_dir=None,
        started_at=None,
        ended_at=None,
        deadline_at=None,
        resumed_from=None,
        superseded_by=None,
    )
    return RunDetail(run=run, operations=tuple(operations))


def finished(*troubles: Trouble) -> Finished:
    registered: Any = None
    return Finished(
        registered=registered,
        verdict=Verdict(
            status=RunStatus.FAILED, reason_code="run.failed.operation", summary=""
        ),
        outcomes={
            "a": Outcome(operation_id="id-a", status=S.COMPLETED, response=1),
            "b": Outcome(
                operation_id="id-b",
                status=S.FAILED,
                error_code="not_started",
                error_text="No space left on device",
            ),
        },
        context={},
        troubles=troubles,
    )


@pytest.mark.parametrize("stored", [RunStatus.RUNNING, RunStatus.FAILED])
def test_what_the_process_knows_stands_in_the_answer(stored: RunStatus) -> None:
    shown = detail(
        stored, [view("a", S.RUNNING), view("b", S.WAITING), view("c", S.WAITING)]
    )
    gap = Trouble(code="signals_gap", text="signals were not stored")
    ended = _as_ended(shown, finished(gap, gap))
    assert [one.status for one in ended.operations] == [
        S.COMPLETED,
        S.FAILED,
        S.UNSTARTED,
    ]
    assert ended.operations[1].error_code == "not_started"
    assert ended.run.state == "failed"
    assert ended.run.alive is False
    assert ended.run.nodes == {"total": 3, "completed": 1, "failed": 1, "unstarted": 1}
    [warning] = ended.run.warnings
    assert warning.code == "signals_gap"
    assert warning.text == "signals were not stored"


def test_an_answer_that_the_database_gave_whole_is_left_alone() -> None:
    shown = detail(RunStatus.FAILED, [view("a", S.COMPLETED), view("b", S.FAILED)])
    assert _as_ended(shown, finished()) is shown
