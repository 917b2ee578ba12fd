"""Checkpoints made by hand, byte by byte, and values compared by their JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["GENERATION", "OTHER", "base", "entry", "line", "plan", "text", "write_unit"]

GENERATION = "0123456789abcdef0123456789abcdef"
OTHER = "f" * 32


def text(value: Any) -> str:
    """Spell a value so that equal texts mean the same JSON, types included."""
    return json.dumps(value, sort_keys=True, default=str)


def plan(count: int = 2, *, ids: bool = False) -> list[dict[str, Any]]:
    return [
        {
            "agent_id": f"op-{place}",
            "dep_indices": [],
            "assignee": "worker",
            "task": "t",
            **({"node_id": f"{place:032x}"} if ids else {}),
        }
        for place in range(count)
    ]


def base(version: int = 3, **members: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "version": version,
        "session_id": "s-1",
        "prompt": "p",
        "plan": plan(),
        "flow_context": {"log": []},
        "ops": {},
        "spawned": [],
        "config": {},
    }
    if version == 3:
        made |= {"generation": GENERATION, "journal_seq": 0}
    return made | members


def entry(name: str = "op-0", response: Any = "ok", **members: Any) -> dict[str, Any]:
    key = "node_id" if members.get("operation") else "agent_id"
    return {key: name, "status": "completed", "response": response, **members}


def line(seq: Any, *ops: Any, kind: Any = "op", **members: Any) -> bytes:
    record: dict[str, Any] = {
        "version": 3,
        "generation": GENERATION,
        "seq": seq,
        "kind": kind,
        "entry": entry(f"op-{seq}"),
    }
    record |= members
    if ops:
        record["flow_context"] = {"patch": list(ops)}
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def write_unit(
    folder: Path, document: Any = None, *lines: bytes, journal: bool = True
) -> Path:
    """Write a unit; a base that is bytes is written as it is."""
    path = folder / "checkpoint.json"
    content = base() if document is None else document
    if not isinstance(content, bytes):
        content = json.dumps(content, separators=(",", ":")).encode()
    path.write_bytes(content)
    if journal:
        path.with_name("checkpoint.json.journal").write_bytes(b"".join(lines))
    return path
