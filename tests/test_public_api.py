"""The public names and their shapes, pinned."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import heaveto
import heaveto.checkpoint
import heaveto.executor
from heaveto import Flow, Operation, RunResult, run
from heaveto.checkpoint import CheckpointWriter, load_checkpoint
from heaveto.model import OperationStatus, RunStatus

if TYPE_CHECKING:
    from collections.abc import Callable


def names(function: Callable[..., object]) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_the_package_offers_exactly_these() -> None:
    assert sorted(heaveto.__all__) == ["Flow", "Operation", "RunResult", "run"]
    assert set(heaveto.__all__) <= set(dir(heaveto))
    for name in heaveto.__all__:
        assert getattr(heaveto, name)
    with pytest.raises(AttributeError):
        heaveto.no_such_name  # noqa: B018


def test_the_shape_of_a_flow() -> None:
    assert names(Flow) == [
        "name",
        "operations",
        "workers",
        "prompt",
        "max_concurrent",
        "timeout",
        "reactive",
        "max_ops",
        "context",
        "on_failure",
    ]
    assert inspect.signature(Flow).parameters["on_failure"].default == "skip"
    assert names(Operation) == [
        "id",
        "worker",
        "instruction",
        "depends_on",
        "gate",
        "inherit_context",
        "artifacts",
    ]


def test_the_shape_of_run() -> None:
    assert inspect.iscoroutinefunction(run)
    parameters = inspect.signature(run).parameters
    assert list(parameters)[:3] == ["flow", "home", "checkpoint_format"]
    assert parameters["home"].default is None
    assert parameters["checkpoint_format"].default == 3
    fields = list(RunResult.__dataclass_fields__)
    assert fields[:4] == ["run_id", "status", "operations", "context"]


def test_the_checkpoint_package_offers_these() -> None:
    assert set(heaveto.checkpoint.__all__) >= {
        "CheckpointBusyError",
        "CheckpointError",
        "CheckpointIdentityError",
        "CheckpointPersistenceError",
        "CheckpointRefused",
        "CheckpointValueError",
        "CheckpointVersionError",
        "CheckpointWriter",
        "apply_patch",
        "diff",
        "encode_record",
        "load_checkpoint",
        "normalize",
    }
    for name in heaveto.checkpoint.__all__:
        assert getattr(heaveto.checkpoint, name)
    parameters = inspect.signature(CheckpointWriter).parameters
    assert list(parameters)[:12] == [
        "path",
        "session_id",
        "prompt",
        "plan",
        "config",
        "max_spawn",
        "flow_context",
        "ops",
        "spawned",
        "version",
        "max_journal_records",
        "max_journal_bytes",
    ]
    assert parameters["version"].default == 2
    assert parameters["max_journal_records"].default == 128
    assert parameters["max_journal_bytes"].default == 8_388_608


def test_the_executor_can_be_steered() -> None:
    executor = heaveto.executor.DependencyAwareExecutor
    for name in ("pause", "resume", "stop", "execute"):
        assert callable(getattr(executor, name))


async def test_run_gives_the_result_of_a_flow(tmp_path: Path) -> None:
    flow = Flow(
        "api",
        [
            Operation("a", "w", "one"),
            Operation("b", "w", "two", depends_on=["a"]),
            Operation("c", "w", "three", depends_on=["b"]),
        ],
        workers={
            "w": {
                "kind": "scripted",
                "replies": [
                    {"operation": "a", "response": {"context": {"seen": 1}}},
                    {"operation": "b", "error": "broken"},
                    {"response": "never"},
                ],
            }
        },
        context={"given": 2},
    )
    result = await run(flow, home=tmp_path / "home", checkpoint_format=2)
    assert result.status == RunStatus.FAILED
    assert result.context == {"given": 2, "seen": 1}
    assert {name: one.status for name, one in result.operations.items()} == {
        "a": OperationStatus.COMPLETED,
        "b": OperationStatus.FAILED,
        "c": OperationStatus.SKIPPED,
    }
    assert result.operations["b"].error_text == "broken"
    unit = tmp_path / "home" / "runs" / result.run_id / "checkpoint.json"
    loaded = load_checkpoint(unit)
    assert loaded.report.checkpoint_version == 2
    assert loaded.state["ops"]["a"]["response"] == {"context": {"seen": 1}}


async def test_run_leaves_signals_to_the_program(tmp_path: Path) -> None:
    import signal

    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    flow = Flow(
        "api",
        [Operation("a", "w", "one")],
        workers={"w": {"kind": "scripted", "replies": [{"response": 1}]}},
    )
    task = asyncio.ensure_future(run(flow, home=str(tmp_path / "home")))
    while not task.done():
        assert before == (
            signal.getsignal(signal.SIGTERM),
            signal.getsignal(signal.SIGINT),
        )
        await asyncio.sleep(0)
    await task
