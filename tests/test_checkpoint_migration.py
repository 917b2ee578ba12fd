"""From version 2 into version 3 and on: nothing is lost, the source is left alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.units import base, entry, plan, text, write_unit
from heaveto.checkpoint import (
    CheckpointValueError,
    CheckpointWriter,
    apply_patch,
    load_checkpoint,
    normalize,
)

SNAPSHOTS = Path(__file__).parent / "golden" / "v2"

EVERYTHING = base(
    2,
    plan=plan(3, ids=True),
    flow_context={"n": [1, 1.0, True, None, "é\u2028", -0.0], "o": {"": {"~/": []}}},
    ops={"op-0": entry("op-0"), "op-1": entry("op-1", {"error": "e"}, status="failed")},
    spawned=[
        {
            "node_id": "n-1",
            "status": "pending",
            "response": None,
            "operation": "operate",
            "assignee": "critic",
            "instruction": "review",
            "parent_id": "op-0",
            "spawn_id": "critic-1",
            "context": {"k": [None]},
            "emitter_workload": "restricted",
            "emitter_contains_user_settings": True,
            "result_digest": "ab",
            "future": [1],
        },
        {
            "node_id": "n-2",
            "status": "failed",
            "response": 1,
            "operation": "operate",
            "escalated_from": f"{0:032x}",
        },
    ],
    config={"max_ops": 0, "model_spec": "m"},
    max_spawn=4,
)

MEMBERS = (
    *("session_id", "prompt", "plan", "config", "max_spawn", "flow_context"),
    *("ops", "spawned"),
)


async def carry(path: Path, state: dict[str, Any], version: int) -> dict[str, Any]:
    """Write a state as a new unit and read it back."""
    members = {name: state[name] for name in MEMBERS}
    async with CheckpointWriter(path, version=version, **members) as writer:
        await writer.flush()
    loaded = load_checkpoint(path)
    assert (loaded.report.status, loaded.state["version"]) == ("clean", version)
    return loaded.state


@pytest.mark.parametrize(
    "name", ["everything", "failed", "killed-reactive", "reactive"]
)
async def test_every_member_arrives_and_stays(tmp_path: Path, name: str) -> None:
    source = SNAPSHOTS / name / "checkpoint.json"
    if name == "everything":
        source = write_unit(tmp_path, EVERYTHING, journal=False)
    before = source.read_bytes()
    first = load_checkpoint(source).state
    state = first
    for step, version in enumerate((3, 3, 2, 3)):
        path = tmp_path / f"run-{step}" / "checkpoint.json"
        state = await carry(path, state, version)
        for member in MEMBERS:
            assert text(state[member]) == text(first[member])
    assert source.read_bytes() == before


async def test_what_version_3_cannot_hold_stops_before_a_file_is_made(
    tmp_path: Path,
) -> None:
    spelled = json.dumps(base(2, ops={"op-0": entry("op-0", [7])}))
    source = write_unit(tmp_path, spelled.replace("[7]", '{"x": [NaN]}').encode())
    state = load_checkpoint(source).state
    with pytest.raises(CheckpointValueError) as caught:
        normalize(state)
    assert caught.value.path == "$.ops['op-0'].response.x[0]"
    with pytest.raises(CheckpointValueError):
        await carry(tmp_path / "new" / "checkpoint.json", state, 3)
    assert not (tmp_path / "new" / "checkpoint.json").exists()


async def test_both_versions_hold_the_same_at_every_acknowledgement(
    tmp_path: Path,
) -> None:
    start = {name: base()[name] for name in ("session_id", "prompt", "plan", "config")}
    context: dict[str, Any] = {"log": []}
    paths = [tmp_path / str(version) / "checkpoint.json" for version in (2, 3)]
    async with (
        CheckpointWriter(paths[0], version=2, **start) as snapshots,
        CheckpointWriter(paths[1], version=3, max_journal_records=3, **start) as unit,
    ):
        for step in range(12):
            context = apply_patch(
                context, [{"op": "add", "path": "/log/-", "value": {"step": step}}]
            )
            shown = None if step % 4 == 3 else context
            for writer in (snapshots, unit):
                if step % 3:
                    await writer.record(
                        f"op-{step % 5}",
                        status="completed",
                        response=[step],
                        flow_context=shown,
                    )
                else:
                    await writer.record_spawned(
                        f"n-{step % 2}",
                        status="failed" if step % 2 else "completed",
                        response={"step": step},
                        flow_context=shown,
                        operation="operate",
                    )
            states = [load_checkpoint(path).state for path in paths]
            for member in MEMBERS:
                assert text(states[0][member]) == text(states[1][member])
