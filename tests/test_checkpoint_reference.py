"""The loader beside a second reader, written from the format's description alone.

The second reader is as simple as the rules allow and knows nothing of the first: no
reports, no windows, whole copies everywhere. Both read units that were damaged in ways
that keep them nearly right: journals of two units spliced, a base with the journal of
another, records repeated, lost or out of order, members repeated in other spellings,
numbers and texts at the edge, nesting at the limit.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import random
import re
from typing import TYPE_CHECKING, Any

import pytest

from harness.units import GENERATION, OTHER, base, entry, line, text, write_unit
from heaveto.checkpoint import CheckpointRefused, load_checkpoint
from heaveto.checkpoint.loader import Follower
from test_checkpoint_loader import sources

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class BadError(Exception):
    """A rule is broken; which one is the first reader's business."""


# --- the second reader


def strict(data: bytes) -> Any:
    """One JSON value: UTF-8, no mark, no repeated name, finite, not too deep."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        need(len(set(names)) == len(names))
        return dict(pairs)

    def finite(number: str) -> float:
        need(abs(float(number)) != float("inf"))
        return float(number)

    def constant(_: str) -> float:
        raise BadError

    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=unique,
            parse_float=finite,
            parse_constant=constant,
        )
    except (ValueError, RecursionError):
        raise BadError from None
    need(depth(value) <= 244)
    return value


def depth(value: Any) -> int:
    waiting, most = [(value, 1)], 0
    while waiting:
        one, level = waiting.pop()
        if isinstance(one, (dict, list)):
            most = max(most, level)
            inside = one.values() if isinstance(one, dict) else one
            waiting.extend((item, level + 1) for item in inside)
    return most


def need(holds: object) -> None:
    if not holds:
        raise BadError


def whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


NAMES = {"op": "agent_id", "spawned": "node_id"}
TEXTS = (
    *("operation", "assignee", "instruction", "parent_id", "spawn_id"),
    *("emitter_workload", "escalated_from", "result_digest"),
)
MEMBERS = {
    "session_id": str,
    "prompt": str,
    "plan": list,
    "flow_context": dict,
    "ops": dict,
    "spawned": list,
    "config": dict,
}


def check_entry(kind: str, value: Any) -> None:
    need(isinstance(value, dict) and "response" in value)
    name = value.get(NAMES[kind])
    need(isinstance(name, str) and name != "")
    need(value.get("status") in ("completed", "failed", "pending"))
    if kind == "op":
        need(value["status"] != "pending")
        need(isinstance(value.get("result_digest"), str | None))
        return
    need(value["status"] != "pending" or value["response"] is None)
    need(isinstance(value.get("emitter_contains_user_settings", False), bool))
    for member in TEXTS:
        need(isinstance(value.get(member), str | None))


def check_generation(value: Any) -> None:
    need(isinstance(value, str) and re.fullmatch("[0-9a-f]{32}", value))


def check_guard(plan: list[Any], spawned: dict[str, Any]) -> None:
    if plan and all(isinstance(step.get("node_id"), str) for step in plan):
        return
    spliced = any(one.get("escalated_from") is not None for one in spawned.values())
    need(not spliced or any(one["status"] == "pending" for one in spawned.values()))


def tokens(path: Any) -> list[str]:
    need(isinstance(path, str))
    if path == "":
        return []
    need(path[0] == "/" and not re.search("~(?![01])", path))
    return [t.replace("~1", "/").replace("~0", "~") for t in path[1:].split("/")]


def check_patch(ops: Any) -> None:
    need(isinstance(ops, list))
    for op in ops:
        need(isinstance(op, dict) and op.get("op") in ("add", "remove", "replace"))
        value = () if op["op"] == "remove" else ("value",)
        need(set(op) == {"op", "path", *value})
        if not tokens(op["path"]):
            need(op["op"] == "replace" and isinstance(op["value"], dict))


def place(token: str, highest: int) -> int:
    need(re.fullmatch("0|[1-9][0-9]*", token, re.ASCII) and len(token) < 30)
    need(int(token) <= highest)
    return int(token)


def applied(document: Any, ops: list[Any]) -> Any:
    for op in ops:
        *way, last = tokens(op["path"]) or [""]
        value = copy.deepcopy(op.get("value"))
        if op["path"] == "":
            document = value
            continue
        box = document
        for token in way:
            need(isinstance(box, (dict, list)))
            if isinstance(box, dict):
                need(token in box)
                box = box[token]
            else:
                box = box[place(token, len(box) - 1)]
        need(isinstance(box, (dict, list)))
        new = op["op"] == "add"
        if isinstance(box, dict):
            need((last in box) != new)
            at: Any = last
        elif new and last == "-":
            at = len(box)
        else:
            at = place(last, len(box) - (0 if new else 1))
        if op["op"] == "remove":
            del box[at]
        elif new and isinstance(box, list):
            box.insert(at, value)
        else:
            box[at] = value
    return document


def read_record(data: bytes) -> tuple[dict[str, Any], Any]:
    record = strict(data)
    need(isinstance(record, dict))
    need(whole(record.get("version")) and record["version"] == 3)
    need(isinstance(record.get("kind"), str) and record["kind"] in NAMES)
    need(
        set(record) - {"flow_context"}
        == {"version", "generation", "seq", "kind", "entry"}
    )
    check_generation(record["generation"])
    need(whole(record["seq"]) and 1 <= record["seq"] < 2**63)
    check_entry(record["kind"], record["entry"])
    if "flow_context" not in record:
        return record, []
    change = record["flow_context"]
    need(isinstance(change, dict) and set(change) == {"patch"})
    check_patch(change["patch"])
    return record, change["patch"]


def read(content: bytes, journal: bytes) -> tuple[str, dict[str, Any], int]:
    """Return status, state and the last number of a version 3 unit."""
    state = strict(content)
    need(isinstance(state, dict) and whole(state.get("version")))
    need(state["version"] == 3 and whole(state.get("journal_seq")))
    need(state.pop("journal_seq") == 0)
    generation = state.pop("generation", None)
    check_generation(generation)
    for name, kind in MEMBERS.items():
        need(isinstance(state.get(name), kind))
    state.setdefault("max_spawn", 0)
    need(whole(state["max_spawn"]) and state["max_spawn"] >= 0)
    need(all(isinstance(step, dict) for step in state["plan"]))
    for name, one in state["ops"].items():
        check_entry("op", one)
        need(one["agent_id"] == name)
    for one in state["spawned"]:
        check_entry("spawned", one)
    tables = {
        "op": state["ops"],
        "spawned": {e["node_id"]: e for e in state["spawned"]},
    }
    need(len(tables["spawned"]) == len(state["spawned"]))
    check_guard(state["plan"], tables["spawned"])
    last = stale = 0
    *records, tail = journal.split(b"\n")
    for data in records:
        record, ops = read_record(data)
        if record["generation"] != generation:
            stale += 1
            continue
        need(record["seq"] == last + 1)
        last += 1
        one = record["entry"]
        tables[record["kind"]][one[NAMES[record["kind"]]]] = one
        check_guard(state["plan"], tables["spawned"])
        state["flow_context"] = applied(state["flow_context"], ops)
    state["spawned"] = list(tables["spawned"].values())
    return ("recovered_prefix" if stale or tail else "clean"), state, last


# --- damage


def made(rng: random.Random) -> tuple[bytes, bytes]:
    context = {"log": [], "deep": {"a": {"b": [1, 2.5, None, True, "é\ud800x"]}}}
    values = [1, 1.0, "x", None, {"k": [0]}, 10**30, -0.0]
    lines = []
    for seq in range(1, rng.randrange(1, 7)):
        ops = [{"op": "add", "path": "/log/-", "value": rng.choice(values)}]
        if rng.random() < 0.3:
            ops.append({"op": "replace", "path": "/deep/a/b/0", "value": seq})
        one = entry(f"op-{seq % 3}", response=rng.choice(["ok", None, {"a": 1}]))
        lines.append(line(seq, *ops, entry=one))
    return json.dumps(base(flow_context=context)).encode(), b"".join(lines)


def unit(rng: random.Random) -> tuple[bytes, bytes]:
    return made(rng) if rng.random() < 0.6 else rng.choice(vectors())


@functools.cache
def vectors() -> list[tuple[bytes, bytes]]:
    return sources()


def nested(count: int, *, arrays: bool) -> bytes:
    if arrays:
        return b"[" * count + b"]" * count
    return b'{"a":' * count + b"1" + b"}" * count


NUMBERS = [
    *(b"1" + b"0" * 4299, b"1" + b"0" * 4300, b"-" + b"9" * 4300, b"-" + b"9" * 4301),
    *(b"1e308", b"1e309", b"-1e400", b"1" * 400 + b".5", b"0." + b"0" * 500 + b"1"),
    *(b"1E+2", b"-0", b"-0.0", b"9223372036854775807", b"9223372036854775808"),
    *(b"1.0", b"01", b"+1", b".5", b"1.", b"0x10", b"1_0", b"\xd9\xa1", b"true"),
]
TEXTS_AT_THE_EDGE = [
    *(b'"\\ud83d\\ude00"', b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\u0000"'),
    *(b'"\x00"', b'"\x7f"', b'"\xed\xa0\x80"', b'"\xc0\x80"', b'"\xf4\x90\x80\x80"'),
    *(b'"\\x41"', b'"\\u12"', b'"\t"', b'"\xe2\x80\xa8"', b"'a'", b'"\\/"', b'""'),
]
DEPTHS = [230, 238, 239, 240, 241, 242, 243, 244, 245, 246, 300, 20_000]
MARKS = [b"\xef\xbb\xbf", b"\xff\xfe", b"\0", b"\n", b" ", b"\r\n", b"\x1e"]


def with_value(rng: random.Random, data: bytes, values: list[bytes]) -> bytes:
    found = list(re.finditer(rb':("[^"\\]*"|-?\d+(?:\.\d+)?|null|true|false)', data))
    if not found:
        return data
    start, end = rng.choice(found).span(1)
    return data[:start] + rng.choice(values) + data[end:]


def with_repeated_name(rng: random.Random, data: bytes) -> bytes:
    found = list(re.finditer(rb'"([a-z_]+)":', data))
    if not found:
        return data
    match = rng.choice(found)
    spelled = "".join(
        f"\\u{ord(c):04x}" if rng.random() < 0.5 else c for c in match[1].decode()
    )
    name = f'"{spelled}":null,'.encode()
    return data[: match.start()] + name + data[match.start() :]


def reordered(rng: random.Random, journal: bytes, other: bytes) -> bytes:
    mine, theirs = journal.splitlines(keepends=True), other.splitlines(keepends=True)
    at = rng.randrange(len(mine) + 1)
    ways: list[Callable[[], list[bytes]]] = [
        lambda: mine[:at] + theirs,
        lambda: [one for pair in zip(mine, theirs, strict=False) for one in pair],
        lambda: mine[: at + 1] + mine[at:],
        lambda: mine[:at] + mine[at + 1 :],
        lambda: mine[at:] + mine[:at],
    ]
    return b"".join(rng.choice(ways)())


def damaged(rng: random.Random, content: bytes, journal: bytes) -> tuple[bytes, bytes]:
    other_content, other_journal = unit(rng)
    deep = [nested(rng.choice(DEPTHS), arrays=rng.random() < 0.5)]
    values = rng.choice([NUMBERS, TEXTS_AT_THE_EDGE, deep])
    how = rng.randrange(12)
    if how == 0:
        return content, reordered(rng, journal, other_journal)
    if how == 1:
        return content, other_journal
    if how == 2:
        return other_content, journal
    if how == 3:
        return content, with_repeated_name(rng, journal)
    if how == 4:
        return with_repeated_name(rng, content), journal
    if how in (5, 6):
        return content, with_value(rng, journal, values)
    if how == 7:
        return with_value(rng, content, values), journal
    if how == 8:
        return content, journal[: rng.randrange(len(journal) + 1)]
    if how == 9:
        mark = rng.choice(MARKS)
        return rng.choice([(mark + content, journal), (content, mark + journal)])
    if how == 10:
        return content, journal.replace(b"\n", rng.choice([b"\r\n", b"\r", b"\n\0"]))
    swapped = journal.replace(GENERATION.encode(), OTHER.encode(), rng.randrange(3))
    return content, swapped


def is_legacy(content: bytes) -> bool:
    with contextlib.suppress(ValueError, RecursionError, AttributeError):
        return json.loads(content).get("version") in (1, 2)
    return False


def check(folder: Path, seed: int) -> str:
    rng = random.Random(seed)
    content, journal = unit(rng)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        content, journal = damaged(rng, content, journal)
    if is_legacy(content):
        return "legacy"
    path = write_unit(folder, content, journal)
    try:
        status, state, last = read(content, journal)
    except BadError:
        with pytest.raises(CheckpointRefused):
            load_checkpoint(path)
        return "refused"
    loaded = load_checkpoint(path)
    assert (loaded.report.status, loaded.report.last_seq) == (status, last)
    found = loaded.state
    assert list(found["ops"]) == list(state["ops"])
    assert text({**found, "max_spawn": found["max_spawn"] or 0}) == text(state)
    follow(path, journal, rng.randrange(len(journal) + 1), loaded.state)
    return status


def follow(path: Path, journal: bytes, cut: int, state: Any) -> None:
    """A follower that sees the journal in two parts ends at the same state."""
    place = path.with_name("checkpoint.json.journal")
    place.write_bytes(journal[:cut])
    with Follower(path) as follower:
        follower.poll()
        with place.open("ab") as file:
            file.write(journal[cut:])
        assert text(follower.poll().state) == text(state)


def test_two_readers_agree(tmp_path: Path) -> None:
    seen = {check(tmp_path, seed) for seed in range(1000)}
    assert seen == {"clean", "recovered_prefix", "refused", "legacy"}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_readers_agree_for_long(tmp_path: Path) -> None:
    for seed in range(1000, 51_000):
        check(tmp_path, seed)


def test_a_unit_cut_at_every_byte(tmp_path: Path) -> None:
    content, journal = made(random.Random(7))
    path = write_unit(tmp_path, content, journal)
    for cut in range(len(journal)):
        path.with_name("checkpoint.json.journal").write_bytes(journal[:cut])
        status, state, last = read(content, journal[:cut])
        loaded = load_checkpoint(path)
        assert (loaded.report.status, loaded.report.last_seq) == (status, last)
        assert loaded.report.discarded_tail_bytes == cut - loaded.report.valid_bytes  # type: ignore[operator]
        assert text(loaded.state["flow_context"]) == text(state["flow_context"])
    path.with_name("checkpoint.json.journal").write_bytes(journal)
    for cut in range(len(content)):
        path.write_bytes(content[:cut])
        with pytest.raises(CheckpointRefused):
            load_checkpoint(path)
