"""States, bases and records: what is written, what is read, what is refused."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.units import GENERATION, OTHER, base, entry, line, plan, text
from heaveto.checkpoint import encode_record, v2, v3
from heaveto.checkpoint.report import Reason, ReasonCode, RecoveryReport, RecoveryStatus
from heaveto.checkpoint.state import (
    UNCHANGED,
    Entry,
    Folding,
    Kind,
    State,
    Transition,
    read_entry,
)
from heaveto.errors import CheckpointValueError
from heaveto.jsonvalue import encode, freeze
from test_jsonvalue import VALUES

SPAWNED: dict[str, Any] = {
    "node_id": "n-1",
    "status": "completed",
    "response": {"ok": [1]},
    "operation": "operate",
    "assignee": "critic",
    "instruction": "review",
    "parent_id": "op-0",
    "spawn_id": "critic-1",
    "context": {"k": [None, 1.5]},
    "emitter_workload": "restricted",
    "emitter_contains_user_settings": True,
    "result_digest": "ab",
    "future": {"kept": True},
}


def state_of(document: dict[str, Any]) -> State:
    found = v3.decode_base(document)
    assert isinstance(found, v3.Base)
    return found.state


def written(state: State, generation: str = GENERATION) -> bytes:
    return b"".join(v3.base_pieces(state, generation))


def transition(value: dict[str, Any], context: Any = UNCHANGED) -> Transition:
    kind = Kind.SPAWNED if "node_id" in value else Kind.OP
    found = read_entry(kind, value)
    assert found is not None
    return Transition(entry=found, context=context)


# --- bases

FULL = base(
    plan=plan(3, ids=True),
    flow_context={"a": [1, 1.0, True, None, "é", -0.0], "": {}},
    ops={"op-0": entry("op-0", result_digest="x"), "op-1": entry("op-1", None)},
    spawned=[SPAWNED, SPAWNED | {"node_id": "n-2", "escalated_from": "op-0"}],
    config={"max_ops": 0},
    max_spawn=3,
    unknown={"kept": [1]},
)


def test_a_base_is_written_as_it_was_read() -> None:
    data = written(state_of(FULL))
    assert data.isascii()
    assert text(json.loads(data)) == text(FULL)
    assert written(state_of(json.loads(data))) == data
    assert b'{"version":3,"session_id":"s-1","prompt":"p","plan":[' in data
    assert data.endswith(b',"generation":"%b","journal_seq":0}' % GENERATION.encode())
    names = list(json.loads(data))
    assert len(names) == len(set(names))


def test_version_2_holds_the_same_members_but_those_of_version_3() -> None:
    data = b"".join(v2.base_pieces(state_of(FULL)))
    document = json.loads(data)
    expected = {**FULL, "version": 2}
    del expected["generation"], expected["journal_seq"]
    assert text(document) == text(expected)
    read = v2.decode(document)
    assert isinstance(read, State)
    assert text(read.plain()) == text(state_of(FULL).plain())


def test_max_spawn_is_written_only_when_it_is_set() -> None:
    assert b"max_spawn" not in written(state_of(base()))
    assert b'"max_spawn":0' in written(state_of(base(max_spawn=0)))


WRONG_BASES: list[dict[str, Any]] = [
    {"session_id": 1},
    {"prompt": None},
    {"plan": {}},
    {"plan": ["op"]},
    {"flow_context": []},
    {"ops": []},
    {"ops": {"op-0": entry("op-1")}},
    {"ops": {"op-0": []}},
    {"ops": {"op-0": {"agent_id": "op-0", "status": "completed"}}},
    {"ops": {"op-0": entry("op-0", None, status="pending")}},
    {"spawned": {}},
    {"spawned": [SPAWNED, SPAWNED]},
    {"spawned": [SPAWNED | {"status": "pending"}]},
    {"spawned": [SPAWNED | {"operation": 5}]},
    {"spawned": [SPAWNED | {"node_id": ""}]},
    {"spawned": [SPAWNED | {"emitter_contains_user_settings": 1}]},
    {"spawned": [SPAWNED | {"emitter_workload": []}]},
    {"spawned": [SPAWNED | {"escalated_from": 1}]},
    {"spawned": [SPAWNED | {"result_digest": 1}]},
    {"config": []},
    {"max_spawn": -1},
    {"max_spawn": True},
    {"max_spawn": None},
    {"max_spawn": 1.0},
    {"generation": GENERATION.upper()},
    {"generation": GENERATION + "\n"},
    {"generation": GENERATION[1:]},
    {"journal_seq": 1},
    {"journal_seq": False},
    {"journal_seq": 0.0},
]


@pytest.mark.parametrize("members", WRONG_BASES, ids=repr)
def test_a_wrong_member_refuses_a_base(members: dict[str, Any]) -> None:
    assert v3.decode_base(base(**members)) is ReasonCode.BASE_INVALID_FIELD


@pytest.mark.parametrize(
    "name", [n for n in base() if n != "version"], ids=lambda name: name
)
def test_a_missing_member_refuses_a_base(name: str) -> None:
    document = base()
    del document[name]
    assert v3.decode_base(document) is ReasonCode.BASE_INVALID_FIELD


@pytest.mark.parametrize("name", [n for n in base(2) if n != "version"])
def test_a_missing_member_refuses_a_version_2_snapshot(name: str) -> None:
    document = base(2)
    del document[name]
    assert v2.decode(document) is ReasonCode.BASE_INVALID_FIELD


def test_version_2_leaves_the_judgement_of_entries_to_a_resume() -> None:
    odd = [
        {"node_id": "a", "status": "running", "response": 1},
        {"node_id": "b", "status": "completed", "response": 1, "operation": 7},
    ]
    found = v2.decode(base(2, spawned=odd, ops={"x": {"status": "odd"}}))
    assert isinstance(found, State)
    assert found.plain()["spawned"] == odd
    assert found.plain()["ops"] == {"x": {"status": "odd"}}
    for wrong in ([1], [{"node_id": "a"}], [odd[0], odd[0]], [{"status": "failed"}]):
        assert v2.decode(base(2, spawned=wrong)) is ReasonCode.BASE_INVALID_FIELD


# --- splices


def test_a_splice_needs_a_promoted_plan_or_a_pending_entry() -> None:
    witness = SPAWNED | {"node_id": "w", "escalated_from": "op-0"}
    pending = SPAWNED | {"node_id": "p", "status": "pending", "response": None}
    unguarded = ReasonCode.SPLICE_UNGUARDED
    for decode, version in ((v3.decode_base, 3), (v2.decode, 2)):
        assert decode(base(version, spawned=[witness])) is unguarded
        assert decode(base(version, spawned=[witness], plan=[])) is unguarded
        half = [*plan(1, ids=True), *plan(1)]
        assert decode(base(version, spawned=[witness], plan=half)) is unguarded
        whole = plan(2, ids=True)
        for guarded in (
            base(version, spawned=[witness], plan=whole),
            base(version, spawned=[witness, pending]),
            base(version, spawned=[witness | {"escalated_from": None}]),
        ):
            assert not isinstance(decode(guarded), ReasonCode)


def test_a_guard_that_goes_leaves_the_splice_unguarded() -> None:
    witness = SPAWNED | {"node_id": "w", "escalated_from": "op-0"}
    pending = SPAWNED | {"node_id": "p", "status": "pending", "response": None}
    folding = Folding(state_of(base()))
    folding.add(transition(pending))
    assert folding.guarded(transition(witness).entry)
    folding.add(transition(witness))
    assert folding.guarded()
    done = transition(pending | {"status": "completed"}).entry
    assert not folding.guarded(done)
    assert folding.guarded(transition(entry()).entry)
    assert folding.state().guarded()


# --- folding


def test_a_repeated_id_replaces_the_whole_entry_in_its_place() -> None:
    first, second = SPAWNED, SPAWNED | {"node_id": "n-2"}
    bare = {"node_id": "n-1", "status": "failed", "response": {"error": "e"}}
    start = state_of(base())
    state = start.fold(
        [
            transition(first),
            transition(entry("n-1")),
            transition(second),
            transition(bare),
            transition(entry("n-1", status="failed")),
        ]
    )
    assert state.plain()["spawned"] == [bare, second]
    assert state.plain()["ops"] == {"n-1": entry("n-1", status="failed")}
    assert start.plain()["spawned"] == []


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(), st.booleans()),
        max_size=12,
    )
)
def test_folding_at_once_or_one_by_one_is_the_same(
    script: list[tuple[str, bool, int, bool]],
) -> None:
    steps = [
        transition(
            SPAWNED | {"node_id": name, "response": number}
            if spawned
            else entry(name, number),
            {"n": number} if changes else UNCHANGED,
        )
        for name, spawned, number, changes in script
    ]
    state = start = state_of(base())
    for step in steps:
        before = text(state.plain())
        following = state.fold([step])
        assert text(state.plain()) == before
        state = following
    assert text(start.fold(steps).plain()) == text(state.plain())
    ops = {name: n for name, spawned, n, _ in script if not spawned}
    spawned = {name: n for name, is_spawned, n, _ in script if is_spawned}
    plain = state.plain()
    assert {k: e["response"] for k, e in plain["ops"].items()} == ops
    assert [e["node_id"] for e in plain["spawned"]] == list(spawned)
    assert [e["response"] for e in plain["spawned"]] == list(spawned.values())


# --- records


def test_a_record_is_written_in_one_order() -> None:
    record = json.loads(line(7, {"op": "remove", "path": "/é"}))
    shuffled = dict(sorted(record.items()))
    made = encode_record(shuffled)
    assert made == line(7, {"op": "remove", "path": "/é"})
    assert list(json.loads(made)) == [
        *("version", "generation", "seq", "kind", "entry", "flow_context")
    ]
    assert made.count(b"\n") == 1
    assert made.isascii()
    patch = v3.encode_patch([{"op": "remove", "path": "/é"}])
    assert v3.record_line(GENERATION, 7, Kind.OP, encode(entry("op-7")), patch) == made
    bare = v3.record_line(GENERATION, 7, Kind.OP, encode(entry("op-7")))
    assert bare == line(7)


def test_a_record_that_json_cannot_say_is_not_written() -> None:
    with pytest.raises(CheckpointValueError) as caught:
        encode_record({"entry": {"response": [float("nan")]}})
    assert caught.value.path == "$.entry.response[0]"


@given(VALUES, VALUES)
def test_what_is_written_as_a_record_is_read(response: Any, context: Any) -> None:
    op = {"op": "add", "path": "/x", "value": context}
    record = {
        "version": 3,
        "generation": GENERATION,
        "seq": 1,
        "kind": "spawned",
        "entry": SPAWNED | {"response": response, "context": context},
        "flow_context": {"patch": [op]},
    }
    read = v3.decode_record(encode_record(record).removesuffix(b"\n"))
    assert (read.generation, read.seq, read.entry.kind) == (GENERATION, 1, "spawned")
    assert text(read.entry.value) == text(record["entry"])
    assert text(read.patch) == text([op])


def code_of(data: bytes) -> ReasonCode | None:
    try:
        v3.decode_record(data.removesuffix(b"\n"))
    except v3.RecordError as error:
        return error.code
    return None


R = ReasonCode

FAULTY: list[tuple[bytes, ReasonCode]] = [
    (b"", R.RECORD_MALFORMED),
    (b"[]", R.RECORD_MALFORMED),
    (b"null", R.RECORD_MALFORMED),
    (line(1)[:-2] + b"}}", R.RECORD_MALFORMED),
    (line(1).replace(b'"ok"', b"[NaN]"), R.RECORD_NONFINITE_NUMBER),
    (line(1).replace(b'"ok"', b"1e999"), R.RECORD_NONFINITE_NUMBER),
    (line(1).replace(b'"ok"', b'{"a":1,"a":2}'), R.RECORD_DUPLICATE_MEMBER),
    (line(1, version=2), R.RECORD_UNSUPPORTED_VERSION),
    (line(1, version=3.0), R.RECORD_UNSUPPORTED_VERSION),
    (line(1, version=True), R.RECORD_UNSUPPORTED_VERSION),
    (line(1, version=None), R.RECORD_UNSUPPORTED_VERSION),
    (line(1, kind="compact"), R.RECORD_UNKNOWN_KIND),
    (line(1, kind=None), R.RECORD_UNKNOWN_KIND),
    (line(1, kind=[]), R.RECORD_UNKNOWN_KIND),
    (line(1, ts=1), R.RECORD_UNKNOWN_MEMBER),
    (line(1, generation=GENERATION.upper()), R.RECORD_INVALID_FIELD),
    (line(1, generation=None), R.RECORD_INVALID_FIELD),
    (line(0), R.SEQUENCE_INVALID),
    (line(2**63), R.SEQUENCE_INVALID),
    (line(1.0), R.SEQUENCE_INVALID),
    (line(True), R.SEQUENCE_INVALID),
    (line("1"), R.SEQUENCE_INVALID),
    (line(1, entry=[]), R.RECORD_INVALID_FIELD),
    (line(1, entry={}), R.RECORD_INVALID_ENTRY),
    (line(1, entry=entry(status="pending")), R.RECORD_INVALID_ENTRY),
    (line(1, entry=entry(status="running")), R.RECORD_INVALID_ENTRY),
    (line(1, entry=entry(status=[])), R.RECORD_INVALID_ENTRY),
    (line(1, kind="spawned"), R.RECORD_INVALID_ENTRY),
    (line(1, flow_context=None), R.RECORD_INVALID_FIELD),
    (line(1, flow_context={}), R.RECORD_INVALID_FIELD),
    (line(1, flow_context={"patch": {}}), R.RECORD_INVALID_FIELD),
    (line(1, flow_context={"patch": [], "set": {}}), R.RECORD_INVALID_FIELD),
    (line(1, {"op": "move"}), R.PATCH_INVALID),
    (line(1, {"op": "add", "path": "/~", "value": 1}), R.PATCH_INVALID),
]


@pytest.mark.parametrize(
    ("data", "code"),
    [pytest.param(*case, id=f"{n}-{case[1]}") for n, case in enumerate(FAULTY)],
)
def test_a_faulty_record(data: bytes, code: ReasonCode) -> None:
    assert code_of(data) is code


@pytest.mark.parametrize("name", ["version", "generation", "seq", "kind", "entry"])
def test_a_missing_member_refuses_a_record(name: str) -> None:
    record = json.loads(line(1))
    del record[name]
    assert code_of(json.dumps(record).encode()) is R.RECORD_INVALID_FIELD


STAGES: list[tuple[str, Any, ReasonCode]] = [
    ("version", 4, R.RECORD_UNSUPPORTED_VERSION),
    ("kind", "x", R.RECORD_UNKNOWN_KIND),
    ("extra", 1, R.RECORD_UNKNOWN_MEMBER),
    ("generation", "x", R.RECORD_INVALID_FIELD),
    ("seq", 0, R.SEQUENCE_INVALID),
    ("entry", {}, R.RECORD_INVALID_ENTRY),
    ("flow_context", {"patch": [{}]}, R.PATCH_INVALID),
]


@pytest.mark.parametrize("first", range(len(STAGES)))
def test_the_earliest_fault_is_named(first: int) -> None:
    record = json.loads(line(1)) | {name: value for name, value, _ in STAGES[first:]}
    assert code_of(json.dumps(record).encode()) is STAGES[first][2]
    assert code_of(json.dumps(record).encode()[:-1]) is R.RECORD_MALFORMED
    assert code_of(b"\xff" + json.dumps(record).encode()) is R.RECORD_MALFORMED


@pytest.mark.parametrize("spelled", [b" ", b"\t", b"\r", b"\r\n"])
def test_other_spellings_of_a_record_are_read(spelled: bytes) -> None:
    wide = json.dumps(json.loads(line(1)), ensure_ascii=False, indent=None).encode()
    for data in (wide + spelled, spelled + wide):
        assert code_of(data) is None


# --- replay


def replayed(*lines: bytes, document: dict[str, Any] | None = None) -> v3.Replay:
    found = v3.decode_base(document or base())
    assert isinstance(found, v3.Base)
    run = v3.Replay(found)
    run.feed(b"".join(lines))
    return run


def script() -> list[bytes]:
    """A journal with all kinds of change."""
    add = {"op": "add", "path": "/log/-", "value": {"é": [1.0]}}
    return [
        line(1, add, {"op": "add", "path": "/n", "value": None}),
        line(2, kind="spawned", entry=SPAWNED),
        line(3, {"op": "replace", "path": "/log/0/é/0", "value": True}),
        line(4, {"op": "remove", "path": "/n"}, entry=entry("op-1", "again")),
        line(5, {"op": "replace", "path": "", "value": {"log": []}}),
        line(6, add, kind="spawned", entry=SPAWNED | {"response": None}),
    ]


def test_every_cut_gives_the_prefix_and_reports_the_rest() -> None:
    lines = script()
    ends = [sum(map(len, lines[:n])) for n in range(len(lines) + 1)]
    states = [text(replayed(*lines[:n]).state().plain()) for n in range(len(lines) + 1)]
    data = b"".join(lines)
    for cut in range(len(data) + 1):
        run = replayed(data[:cut])
        whole = sum(end <= cut for end in ends) - 1
        report = run.report()
        assert text(run.state().plain()) == states[whole]
        assert (report.last_seq, report.applied_records) == (whole, whole)
        assert report.valid_bytes == ends[whole]
        assert report.discarded_tail_bytes == cut - ends[whole]
        assert report.status == ("clean" if cut in ends else "recovered_prefix")


@given(st.lists(st.integers(0, 2000), max_size=6))
def test_bytes_in_any_portions_give_the_same(cuts: list[int]) -> None:
    data = b"".join([*script(), line(3), b'{"torn'])
    run = replayed()
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(places):
        run.feed(data[start:end])
    whole = replayed(data)
    assert run.report() == whole.report()
    assert text(run.state().plain()) == text(whole.state().plain())


def test_a_state_handed_out_does_not_change_any_more() -> None:
    run = replayed()
    states = [(run.state(), text(run.state().plain()))]
    for data in script():
        run.feed(data)
        state = run.state()
        states.append((state, text(state.plain())))
    assert len({spelled for _, spelled in states}) == len(states)
    for state, spelled in states:
        assert text(state.plain()) == spelled


def test_records_of_other_generations_are_checked_counted_and_left_out() -> None:
    stale = line(9, {"op": "remove", "path": "/nowhere"}, generation=OTHER)
    run = replayed(stale, line(1), stale, line(2))
    assert (run.applied, run.stale, run.last_seq) == (2, 2, 2)
    report = run.report()
    assert report.status is RecoveryStatus.RECOVERED_PREFIX
    assert report.reasons == (
        Reason(
            code=R.STALE_GENERATION,
            fatal=False,
            where="journal",
            line=1,
            offset=0,
            count=2,
        ),
    )
    broken = stale.replace(b'"status":"completed"', b'"status":"?"')
    assert replayed(line(1), broken).fatal is not None


@pytest.mark.parametrize(
    ("seqs", "code", "found", "expected"),
    [
        ([1, 3], R.SEQUENCE_GAP, 3, 2),
        ([2], R.SEQUENCE_GAP, 2, 1),
        ([1, 2, 2], R.SEQUENCE_DUPLICATE, 2, 3),
        ([1, 2, 1], R.SEQUENCE_DUPLICATE, 1, 3),
        ([1, 2**63 - 1], R.SEQUENCE_GAP, 2**63 - 1, 2),
    ],
)
def test_only_the_next_number_goes_on(
    seqs: list[int], code: ReasonCode, found: int, expected: int
) -> None:
    run = replayed(*map(line, seqs), line(expected))
    assert run.fatal is not None
    assert (run.fatal.code, run.fatal.seq, run.fatal.expected_seq) == (
        code,
        found,
        expected,
    )
    assert run.last_seq == expected - 1


def test_a_refused_record_leaves_neither_outcome_nor_context() -> None:
    ops = [
        {"op": "add", "path": "/x", "value": 1},
        {"op": "add", "path": "/log/-", "value": 2},
        {"op": "remove", "path": "/missing"},
    ]
    run = replayed(line(1), line(2, *ops), line(2))
    plain = run.state().plain()
    assert plain["flow_context"] == {"log": []}
    assert list(plain["ops"]) == ["op-1"]
    assert run.fatal is not None
    assert (run.fatal.code, run.fatal.line, run.fatal.op_index) == (
        R.PATCH_CONFLICT,
        2,
        2,
    )


def test_only_a_line_feed_ends_a_record() -> None:
    raw = json.dumps(
        json.loads(line(1, entry=entry("op-1", "a\u2028b\u0085c\x0bd"))),
        ensure_ascii=False,
    )
    run = replayed(raw.replace("\\u000b", "\\u000b").encode() + b"\n", line(2))
    assert run.fatal is None
    assert run.state().plain()["ops"]["op-1"]["response"] == "a\u2028b\u0085c\x0bd"
    inside = line(1).replace(b',"seq"', b',\n"seq"')
    assert replayed(inside).fatal is not None


# --- reports


def test_the_report_is_the_contract() -> None:
    run = replayed(line(1), b"torn")
    assert json.loads(json.dumps(run.report(attempts=2).as_dict())) == {
        "report_version": 1,
        "status": "recovered_prefix",
        "checkpoint_version": 3,
        "generation": GENERATION,
        "base_seq": 0,
        "last_seq": 1,
        "applied_records": 1,
        "stale_records": 0,
        "valid_bytes": len(line(1)),
        "discarded_tail_bytes": 4,
        "attempts": 2,
        "reasons": [
            {
                "code": "torn_tail",
                "fatal": False,
                "where": "journal",
                "line": 2,
                "offset": len(line(1)),
                "seq": None,
                "expected_seq": None,
                "op_index": None,
                "count": 4,
            }
        ],
    }


def test_the_codes_are_the_closed_list() -> None:
    assert {str(code) for code in ReasonCode} == set(
        re.findall(
            r"\w+",
            """torn_tail stale_generation base_missing base_unreadable base_malformed
            base_duplicate_member base_nonfinite_number base_invalid_field
            version_ambiguous version_unsupported splice_unguarded journal_missing
            journal_unreadable record_malformed record_duplicate_member
            record_nonfinite_number record_unsupported_version record_unknown_kind
            record_unknown_member record_invalid_field record_invalid_entry
            sequence_invalid sequence_gap sequence_duplicate patch_invalid
            patch_conflict incoherent_unit""",
        )
    )


def test_status_follows_from_the_reasons() -> None:
    torn = Reason(code=R.TORN_TAIL, fatal=False, where="journal")
    gap = Reason(code=R.SEQUENCE_GAP, fatal=True, where="journal")
    for reasons, status in (
        ((), "clean"),
        ((torn,), "recovered_prefix"),
        ((torn, gap), "refused"),
    ):
        report = RecoveryReport(reasons=reasons)
        assert report.status == report.as_dict()["status"] == status


def test_an_entry_may_be_frozen_or_encoded_in_a_base() -> None:
    value = entry("op-0", {"deep": [1] * 500})
    frozen = Entry(kind=Kind.OP, id="op-0", status="completed", value=freeze(value))
    data = written(state_of(base()).fold([Transition(entry=frozen)]))
    assert json.loads(data)["ops"] == {"op-0": value}
