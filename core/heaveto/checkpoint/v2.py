"""Version 2 (and 1): one JSON object in one file, replaced whole (FORMATS 1).

    {"version":2,"session_id":STRING,"prompt":STRING,"plan":[OBJECT…],
     "flow_context":OBJECT,"ops":{AGENT_ID:ENTRY…},"spawned":[ENTRY…],
     "config":OBJECT[,"max_spawn":INTEGER]}

Spelling is free on reading, canonical on writing. Version 1 is the same with spawned
entries of ``node_id``, ``status`` and ``response`` alone; it is read, never written.

Reading keeps what older programs did (SPEC D-13): the last of two equal members wins
and the tokens NaN and Infinity are numbers, but for the version member, which must be
there exactly once. What an entry says is judged by a resume, not here, apart from a
pending entry with a response and from a splice that no guard protects.

Pure: bytes and values in, values out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heaveto.checkpoint.report import ReasonCode
from heaveto.checkpoint.state import MEMBERS, Entry, Kind, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from heaveto.jsonvalue import Json

__all__ = ["base_pieces", "decode"]

VERSION = 2


def decode(document: dict[str, Json]) -> State | ReasonCode:
    """Take the state out of a parsed version 1 or 2 document.

    Returns:
        The state, or why it is refused.
    """
    for name, kind in MEMBERS.items():
        if not isinstance(document.get(name), kind):
            return ReasonCode.BASE_INVALID_FIELD
    ops = {
        name: _entry(Kind.OP, value, name) for name, value in document["ops"].items()
    }
    spawned = [_entry(Kind.SPAWNED, value, None) for value in document["spawned"]]
    found = [*ops.values(), *spawned]
    table = {entry.id: entry for entry in spawned if entry is not None}
    max_spawn = document.get("max_spawn")
    if None in found or len(table) != len(spawned) or not _limit_holds(max_spawn):
        return ReasonCode.BASE_INVALID_FIELD
    state = State(
        session_id=document["session_id"],
        prompt=document["prompt"],
        plan=document["plan"],
        flow_context=document["flow_context"],
        ops={name: entry for name, entry in ops.items() if entry is not None},
        spawned=table,
        config=document["config"],
        max_spawn=max_spawn,
        extra={
            name: value
            for name, value in document.items()
            if name not in MEMBERS and name not in ("version", "max_spawn")
        },
    )
    return state if state.guarded() else ReasonCode.SPLICE_UNGUARDED


def _limit_holds(limit: Json) -> bool:
    return limit is None or (type(limit) is int and limit >= 0)


def _entry(kind: Kind, value: Json, name: str | None) -> Entry | None:
    """Take an entry as older programs do: an object with an id and a status."""
    if not isinstance(value, dict) or not isinstance(value.get("status"), str):
        return None
    identity = value.get("node_id") if name is None else name
    if not isinstance(identity, str):
        return None
    if value["status"] == "pending" and value.get("response") is not None:
        return None
    return Entry(
        kind=kind,
        id=identity,
        status=value["status"],
        witness=kind is Kind.SPAWNED and value.get("escalated_from") is not None,
        value=value,
    )


def base_pieces(state: State, **encoded: Iterable[bytes]) -> Iterator[bytes]:
    """Give the bytes of a version 2 file, in pieces that are cheap to make.

    Args:
        encoded: Entries that are encoded already, as for :meth:`State.pieces`.
        state: Its values plain or frozen; ``extra`` must hold no version member.
    """
    yield b'{"version":2,'
    yield from state.pieces(**encoded)
    yield b"}"
