"""Patches: what changes are called, how few there are, and how they are applied."""

from __future__ import annotations

import collections
import copy
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.units import GENERATION, entry, text
from heaveto.checkpoint import (
    CheckpointValueError,
    PatchError,
    apply_patch,
    diff,
    encode_record,
    normalize,
)
from heaveto.checkpoint.alignment import align
from heaveto.checkpoint.patch import Editing, check
from heaveto.checkpoint.patch import diff as frozen_diff
from heaveto.jsonvalue import encode, freeze, thaw
from test_jsonvalue import VALUES, change, grown, large

OBJECTS = st.dictionaries(st.text(max_size=3), VALUES, max_size=5)


def shapes(before: Any, after: Any) -> list[tuple[str, str]]:
    ops = diff(before, after)
    assert text(apply_patch(before, ops)) == text(normalize(after))
    return [(op["op"], op["path"]) for op in ops]


def test_a_change_is_called_by_its_name() -> None:
    assert shapes({"n": {"e": [1]}}, {"n": {"e": [1, 2]}}) == [("add", "/n/e/-")]
    assert shapes({"o": {"a": 1}}, {"o": {"a": 1, "b": 2}}) == [("add", "/o/b")]
    assert shapes({"a": 1, "b": 2}, {"a": 1, "b": 3}) == [("replace", "/b")]
    assert shapes({"a": 1, "b": 2}, {"a": 2, "b": 3}) == [
        ("replace", "/a"),
        ("replace", "/b"),
    ]
    assert shapes({"a": 1, "b": 2}, {"b": 2}) == [("remove", "/a")]
    assert shapes({"l": [1, 2, 3]}, {"l": [1, 3]}) == [("remove", "/l/1")]
    assert shapes({"l": [1, 3]}, {"l": [1, 2, 3]}) == [("add", "/l/1")]
    assert shapes({"l": [1, 5]}, {"l": [1, 2, 3, 4, 5]}) == [
        ("add", "/l/1"),
        ("add", "/l/2"),
        ("add", "/l/3"),
    ]
    assert shapes({"l": [1, 2, 3, 4]}, {"l": [4]}) == [("remove", "/l/0")] * 3
    assert shapes({"l": [{"a": 1}, 2]}, {"l": [{"a": 5}, 2]}) == [("replace", "/l/0/a")]
    assert shapes({"l": [1, 2]}, {"l": [1, 7, 8]}) == [
        ("replace", "/l/1"),
        ("add", "/l/-"),
    ]
    assert shapes({"a": {}}, {"a": []}) == [("replace", "/a")]
    assert shapes({"a": None}, {}) == [("remove", "/a")]
    assert shapes({}, {"a": None}) == [("add", "/a")]
    assert shapes({"a/b": {"~": {"": 1}}}, {"a/b": {"~": {"": 2}}}) == [
        ("replace", "/a~1b/~0/")
    ]
    assert shapes({"~1": [0], "/": 1}, {"~1": [], "/": 1}) == [("remove", "/~01/0")]
    assert shapes({"o": {"-": 1}}, {"o": {"-": 2}}) == [("replace", "/o/-")]
    assert shapes({"a": [1, {"b": ()}]}, {"a": (1, {"b": []})}) == []


@pytest.mark.parametrize("size", [1_000, 10_000, 100_000])
@pytest.mark.parametrize("rows", [False, True])
def test_one_append_is_one_line_whatever_the_size(size: int, rows: bool) -> None:
    items: list[Any] = [{"id": n} if rows else f"old {n}" for n in range(size)]
    live = {"log": {"entries": items}}
    before = freeze(live)
    items.append("new")
    ops = frozen_diff(before, freeze(live, before))
    record = encode_record(
        {
            "version": 3,
            "generation": GENERATION,
            "seq": 1,
            "kind": "op",
            "entry": entry(),
            "flow_context": {"patch": [thaw(op) for op in ops]},
        }
    )
    assert ops == [{"op": "add", "path": "/log/entries/-", "value": "new"}]
    assert b"old" not in record
    assert b'"id"' not in record
    assert len(record) < len(encode(entry())) + len('"new""/log/entries/-"') + 172


@pytest.mark.parametrize("size", [1_000, 10_000, 100_000])
def test_one_new_member_is_one_line_whatever_the_size(size: int) -> None:
    live = {"o": {f"k{n}": n for n in range(size)}}
    before = freeze(live)
    live["o"]["new/~"] = 1
    ops = frozen_diff(before, freeze(live, before))
    assert ops == [{"op": "add", "path": "/o/new~1~0", "value": 1}]


@given(
    response=VALUES,
    value=VALUES,
    path=st.lists(st.text(max_size=5), min_size=1, max_size=4),
    seq=st.integers(1, 2**63 - 1),
    spawned=st.booleans(),
)
def test_the_bound_of_a_line(
    response: Any, value: Any, path: list[str], seq: int, spawned: bool
) -> None:
    pointer = "".join("/" + t.replace("~", "~0").replace("/", "~1") for t in path)
    outcome = entry("x", response, **({"operation": "o"} if spawned else {}))
    record = {
        "version": 3,
        "generation": GENERATION,
        "seq": seq,
        "kind": "spawned" if spawned else "op",
        "entry": outcome,
        "flow_context": {"patch": [{"op": "add", "path": pointer, "value": value}]},
    }
    parts = sum(len(encode(normalize(part))) for part in (outcome, value, pointer))
    assert len(encode_record(record)) <= parts + 171


def edited(size: int, how: str) -> tuple[list[Any], list[Any], int]:
    """Return a long array, a later one, and the operations that suffice."""
    old = [{"id": n, "t": f"t{n % 7}"} for n in range(size)]
    new = copy.deepcopy(old)
    middle, quarter = size // 2, size // 4
    if how == "insert":
        new.insert(middle, {"id": -1, "t": ""})
        return old, new, 1
    if how == "delete":
        del new[middle]
        return old, new, 1
    if how == "shift":
        del new[0]
        new.append({"id": -1, "t": ""})
        return old, new, 2
    if how == "apart":
        new.insert(quarter, {"id": -1, "t": ""})
        del new[middle]
        new[-quarter]["t"] = "other"
        return old, new, 3
    if how == "blocks":
        new[middle:middle] = [{"id": -n, "t": "m"} for n in range(1, 31)]
        new[quarter:quarter] = [{"id": -n, "t": "q"} for n in range(1, 31)]
        return old, new, 60
    del new[quarter : quarter + 40]
    return old, new, 40


@pytest.mark.parametrize("how", ["insert", "delete", "shift", "apart", "blocks", "cut"])
@pytest.mark.parametrize("size", [60, 300, 5_000])
def test_the_tail_of_an_array_is_not_written_again(size: int, how: str) -> None:
    old, new, enough = edited(size, how)
    assert len(shapes({"l": old}, {"l": new})) == enough


def test_a_container_that_changed_all_over_is_replaced() -> None:
    old = {"rows": [{"id": n} for n in range(500)], "keep": 1}
    for new in (
        {"rows": [{"id": -n} for n in range(500)], "keep": 1},
        {"rows": [f"s{n}" for n in range(500)], "keep": 1},
        {"rows": [], "keep": 1},
    ):
        assert shapes(old, new) == [("replace", "/rows")]
    many = {f"k{n}": n for n in range(500)}
    assert shapes(many, {name: n + 1 for name, n in many.items()}) == [("replace", "")]
    assert shapes(many, {}) == [("replace", "")]


def test_a_patch_is_never_much_longer_than_the_new_value() -> None:
    rng = random.Random(5)
    for _ in range(60):
        before, after = ({"a": large(rng), "b": grown(rng)} for _ in range(2))
        enough = 2.3 * len(encode(normalize(after))) + 4096
        assert len(encode(diff(before, after))) < enough


def follow(seed: int) -> None:
    rng = random.Random(seed)
    live: Any = {"a": large(rng), "b": grown(rng), "c": large(rng)}
    frozen = freeze(live)
    document, own = thaw(frozen), thaw(frozen)
    for _ in range(rng.randrange(1, 9)):
        for _ in range(rng.choice([1, 1, 1, 2, 5])):
            change(rng, live)
        before, frozen = frozen, freeze(live, frozen)
        ops = [thaw(op) for op in frozen_diff(before, frozen)]
        expected, earlier = text(live), text(document)
        assert bool(ops) is (expected != earlier)
        after = apply_patch(document, ops)
        assert text(document) == earlier
        assert text(after) == expected
        own = Editing(owner=True).apply(own, json.loads(text(ops)))
        assert text(own) == expected
        fresh = diff(json.loads(earlier), json.loads(expected))
        assert text(apply_patch(json.loads(earlier), fresh)) == expected
        document = after


@pytest.mark.parametrize("seed", range(30))
def test_following_a_context_that_changes(seed: int) -> None:
    follow(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30, 1500))
def test_following_many_contexts_that_change(seed: int) -> None:
    follow(seed)


@given(OBJECTS, OBJECTS)
def test_any_object_becomes_any_other(before: Any, after: Any) -> None:
    assert text(apply_patch(before, diff(before, after))) == text(after)


@given(
    st.lists(st.integers(0, 6), max_size=30), st.lists(st.integers(0, 6), max_size=30)
)
def test_alignment_is_a_common_subsequence(a: list[int], b: list[int]) -> None:
    pairs = align(a, b)
    assert all(a[i] == b[j] for i, j in pairs)
    assert pairs == sorted(set(pairs))
    assert len({i for i, _ in pairs}) == len({j for _, j in pairs}) == len(pairs)
    if set(a) & set(b):
        assert pairs


def test_alignment_of_long_arrays() -> None:
    a = [n % 50 for n in range(300)] + list(range(1000, 3000))
    b = [*a[:1500], 9, 9, 9, *a[1500:2000], *a[2100:]]
    assert len(align(a, b)) >= len(a) - 100


# --- applying

CONFLICTS: list[tuple[Any, list[Any]]] = [
    ({"a": 1}, [{"op": "add", "path": "/a", "value": 2}]),
    ({"a": None}, [{"op": "add", "path": "/a", "value": 2}]),
    ({"l": [1]}, [{"op": "add", "path": "/l/2", "value": 2}]),
    ({"l": [1]}, [{"op": "add", "path": "/l/01", "value": 2}]),
    ({"l": [1]}, [{"op": "replace", "path": "/l/-", "value": 2}]),
    ({"l": [1]}, [{"op": "remove", "path": "/l/1"}]),
    ({"l": [1]}, [{"op": "remove", "path": "/l/-1"}]),
    ({"l": [1]}, [{"op": "remove", "path": "/l/\u0660"}]),
    ({"l": [1]}, [{"op": "remove", "path": "/l/" + "9" * 400}]),
    ({"l": [{}]}, [{"op": "add", "path": "/l/-/a", "value": 1}]),
    ({}, [{"op": "remove", "path": "/a"}]),
    ({}, [{"op": "replace", "path": "/a", "value": 1}]),
    ({}, [{"op": "add", "path": "/a/b", "value": 1}]),
    ({"a": 1}, [{"op": "add", "path": "/a/b", "value": 1}]),
    ({"a": "text"}, [{"op": "replace", "path": "/a/0", "value": 1}]),
]

INVALID: list[Any] = [
    [{"op": "add", "path": "", "value": {}}],
    [{"op": "remove", "path": ""}],
    [{"op": "replace", "path": "", "value": []}],
    [{"op": "replace", "path": "", "value": None}],
    [{"op": "move", "from": "/a", "path": "/b"}],
    [{"op": "test", "path": "/a", "value": 1}],
    [{"op": "add", "path": "/b"}],
    [{"op": "remove", "path": "/a", "value": 1}],
    [{"op": "add", "path": "/b", "value": 1, "note": 1}],
    [{"op": "add", "path": "b", "value": 1}],
    [{"op": "add", "path": "/b~", "value": 1}],
    [{"op": "add", "path": "/b~2", "value": 1}],
    [{"op": "add", "path": 1, "value": 1}],
    [{"op": 1, "path": "/b", "value": 1}],
    [{"op": [], "path": "/b", "value": 1}],
    [{"path": "/b", "value": 1}],
    ["add"],
    [None],
    {"op": "add"},
    None,
    "add",
]


@pytest.mark.parametrize(("document", "ops"), CONFLICTS)
def test_what_does_not_apply_changes_nothing(document: Any, ops: list[Any]) -> None:
    before = text(document)
    good: list[Any] = [
        {"op": "add", "path": "/new", "value": [1]},
        {"op": "add", "path": "/new/-", "value": {"x": 1}},
        {"op": "replace", "path": "/new/0", "value": 5},
        {"op": "remove", "path": "/new/1"},
    ]
    for lead in ([], good):
        with pytest.raises(PatchError) as caught:
            apply_patch(document, [*lead, *ops])
        assert (caught.value.code, caught.value.op_index) == (
            "patch_conflict",
            len(lead),
        )
        for owner in (True, False):
            with pytest.raises(PatchError):
                Editing(owner=owner).apply(document, copy.deepcopy([*lead, *ops]))
            assert text(document) == before


@pytest.mark.parametrize("ops", INVALID, ids=repr)
def test_a_patch_of_the_wrong_shape_is_refused_whatever_the_document(ops: Any) -> None:
    with pytest.raises(PatchError) as caught:
        apply_patch({"a": 1}, ops)
    assert caught.value.code == "patch_invalid"
    assert caught.value.op_index == (0 if isinstance(ops, list) else None)


def test_the_earliest_wrong_shape_counts_before_any_conflict() -> None:
    ops: list[Any] = [{"op": "remove", "path": "/x"}, {"op": "add", "path": "/~"}, {}]
    with pytest.raises(PatchError) as caught:
        apply_patch({}, ops)
    assert (caught.value.code, caught.value.op_index) == ("patch_invalid", 1)


def test_later_operations_see_earlier_ones() -> None:
    ops: list[Any] = [
        {"op": "replace", "path": "", "value": {"l": []}},
        {"op": "add", "path": "/l/-", "value": {"a": 1}},
        {"op": "add", "path": "/l/0", "value": 0},
        {"op": "add", "path": "/l/1/b", "value": 2},
        {"op": "remove", "path": "/l/1/a"},
    ]
    spelled = text(ops)
    assert apply_patch({"x": 1}, ops) == {"l": [0, {"b": 2}]}
    assert text(ops) == spelled


def test_a_document_that_others_hold_is_copied_where_it_changes() -> None:
    document = {"a": {"deep": [1]}, "b": {"rest": [2]}}
    held = document
    editing = Editing(owner=False)
    check(ops := [{"op": "add", "path": "/a/deep/-", "value": 3}])
    first = editing.apply(document, ops)
    second = editing.apply(first, ops)
    assert held == {"a": {"deep": [1]}, "b": {"rest": [2]}}
    assert second == {"a": {"deep": [1, 3, 3]}, "b": {"rest": [2]}}
    assert second["b"] is document["b"]
    assert second["a"]["deep"] is first["a"]["deep"]


def test_a_refused_patch_leaves_what_earlier_ones_did() -> None:
    document: Any = {"l": [1], "o": {"x": 1}}
    for owner in (True, False):
        editing = Editing(owner=owner)
        now = editing.apply(
            copy.deepcopy(document), [{"op": "add", "path": "/l/-", "value": 2}]
        )
        bad = [
            {"op": "remove", "path": "/o/x"},
            {"op": "add", "path": "/l/0", "value": 0},
            {"op": "remove", "path": "/l/1"},
            {"op": "replace", "path": "/l/1", "value": 9},
            {"op": "remove", "path": "/o/x"},
        ]
        with pytest.raises(PatchError):
            editing.apply(now, bad)
        assert now == {"l": [1, 2], "o": {"x": 1}}


def test_a_context_is_an_object() -> None:
    for before, after in (({}, []), ([1], [2]), ("a", "b"), ({}, None)):
        with pytest.raises(CheckpointValueError):
            diff(before, after)


def test_derived_dicts_are_documents_too() -> None:
    document = collections.OrderedDict(a=collections.defaultdict(list, b=[1]))
    after = apply_patch(document, [{"op": "add", "path": "/a/b/-", "value": 2}])
    assert after == {"a": {"b": [1, 2]}}
    assert document == {"a": {"b": [1]}}
