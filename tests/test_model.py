"""The words of the contract (PRODUCT 3), pinned."""

from __future__ import annotations

import subprocess
import sys

import heaveto
from heaveto.model import (
    TERMINAL_OPERATION,
    TERMINAL_RUN,
    OnFailure,
    OperationStatus,
    Origin,
    RunState,
    RunStatus,
    SignalKind,
    Verb,
)


def test_the_words_of_operations() -> None:
    assert " ".join(OperationStatus) == (
        "waiting queued paused running completed failed skipped cancelled escalated "
        "pending lost unstarted unknown"
    )
    assert " ".join(sorted(TERMINAL_OPERATION)) == (
        "cancelled completed escalated failed skipped"
    )
    assert " ".join(Origin) == "planned spawned retry synthesis"
    assert " ".join(OnFailure) == "skip continue stop"


def test_the_words_of_runs() -> None:
    assert " ".join(RunStatus) == (
        "running completed completed_empty failed timed_out aborted cancelled"
    )
    assert set(RunStatus) - TERMINAL_RUN == {RunStatus.RUNNING}
    assert set(TERMINAL_RUN) < {str(state) for state in RunState}
    assert set(RunState) - {str(status) for status in TERMINAL_RUN} == {
        *("planning", "executing", "pausing", "paused", "stopping", "draining"),
        *("synthesizing", "stalled", "dead", "unknown"),
    }


def test_the_words_of_controls_and_signals() -> None:
    assert " ".join(Verb) == "pause resume message stop"
    assert " ".join(SignalKind) == (
        "NodeQueued NodeStarted NodePaused NodeCompleted NodeFailed NodeSkipped "
        "NodeCancelled NodeSpawned NodeEscalated"
    )


def test_the_public_api() -> None:
    assert {"Flow", "Operation", "run"} <= set(heaveto.__all__)
    assert all(name in dir(heaveto) for name in heaveto.__all__)
    assert heaveto.Flow.__name__ == "Flow"
    assert heaveto.Operation.__name__ == "Operation"
    assert not hasattr(heaveto, "nothing")


def test_importing_the_package_imports_nothing_else() -> None:
    code = (
        "import heaveto, sys; print(sorted(m for m in sys.modules if 'heaveto' in m))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "['heaveto']\n"
