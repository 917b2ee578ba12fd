"""Values: what capture makes of them, what it shares, how they are read and written."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import datetime
import decimal
import enum
import fractions
import json
import math
import pathlib
import random
import types
import uuid
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.units import text
from heaveto.errors import CheckpointValueError
from heaveto.jsonvalue import (
    MAX_DEPTH,
    MAX_DIGITS,
    JsonError,
    Tally,
    count,
    encode,
    freeze,
    loads_strict,
    normalize,
    pieces,
    same,
    scan_strict,
    thaw,
    weight,
)


class Colour(enum.IntEnum):
    RED = 1


class Word(enum.StrEnum):
    YES = "yes"


class Text(str):
    __slots__ = ()


class Half(float):
    __slots__ = ()


class Whole(int):
    __slots__ = ()


class Bag(dict[str, int]):
    pass


class Doubled(dict[str, int]):
    def items(self) -> Any:
        return [(name * 2, value) for name, value in super().items()]


class Reverse(list[int]):
    def __iter__(self) -> Any:
        return iter([3, 2, 1])


Pair = collections.namedtuple("Pair", "x y")


class Named:
    def __str__(self) -> str:
        return "a name"


TABLE: list[Any] = [
    [1, 1.0, True, None, "s", -0.0, 0.0, 1e300, 5e-324, 2**70, -(2**70)],
    {"a": [], "b": {}, "c": ()},
    (1, (2, [3])),
    Colour.RED,
    [Word.YES, {"w": Word.YES}],
    Text("x"),
    [Half(1.5), Whole(7)],
    Bag(a=1),
    Doubled(a=1),
    collections.OrderedDict([("z", 1), ("a", 2)]),
    collections.defaultdict(list, {"k": [1]}),
    collections.Counter("aab"),
    Reverse([1]),
    Pair(1, "y"),
    {2: "a", 1.5: "b", True: "t", None: "n"},
    {Colour.RED: 1},
    {Word.YES: 1},
    {Text("k"): 1},
    datetime.datetime(2026, 11, 29, 10, 15, tzinfo=datetime.UTC),
    [datetime.date(2026, 11, 29), datetime.timedelta(seconds=3)],
    pathlib.PurePosixPath("/a/b"),
    uuid.UUID(int=7),
    decimal.Decimal("1.10"),
    decimal.Decimal("NaN"),
    fractions.Fraction(1, 3),
    b"ab",
    bytearray(b"cd"),
    1j,
    {3},
    frozenset(),
    range(3),
    types.SimpleNamespace(a=1),
    types.MappingProxyType({"a": 1}),
    collections.ChainMap({"a": 1}),
    collections.deque([1, 2]),
    Named(),
    [Named()] * 3,
    ValueError("why"),
    len,
    int,
    'é\u2028\x00\x7f"\\/\b\f\n\r\t\U0001f378',
    "\ud800",
    {"\ud800": "\udc00"},
    "\ud83c\udf78",
    ["x" * 5000, "é" * 5000, "\\" * 5000, "x" * 200_000],
    [[], [[]], [[[]]]],
    {"": {"": 1}},
    [str(n) for n in range(3000)],
    [{"i": n, "s": str(n), "f": n / 2} for n in range(2500)],
    {f"k{n}": [n] for n in range(2000)},
    [[{"deep": [n, [n]]}] for n in range(1500)],
]


@pytest.mark.parametrize("value", TABLE, ids=lambda value: type(value).__name__)
def test_same_as_json_dumps(value: Any) -> None:
    expected = json.loads(json.dumps(value, default=str))
    assert text(normalize(value)) == text(expected)
    assert encode(freeze(value)) == json.dumps(expected, separators=(",", ":")).encode(
        "ascii"
    )


def test_a_lone_pair_of_surrogates_is_the_character_that_will_be_read() -> None:
    made = normalize({"k": "\ud83c\udf78"})
    assert made == {"k": "\U0001f378"}
    assert loads_strict(encode(freeze(made))) == made


class Loud:
    def __str__(self) -> str:
        raise RuntimeError("secret")


class Silent:
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]


class Broken(dict[str, int]):
    def items(self) -> Any:
        raise OSError("secret")


class Endless(list[int]):
    def __iter__(self) -> Any:
        raise KeyError("secret")


def cyclic_list() -> list[Any]:
    inner: list[Any] = []
    inner.append({"again": inner})
    return [inner]


def cyclic_dict() -> dict[str, Any]:
    value: dict[str, Any] = {"n": 1}
    value["self"] = [value]
    return value


def nested(depth: int, *, rows: bool = False) -> Any:
    value: Any = [] if not rows else {}
    for _ in range(depth - 1):
        value = {"k": value} if rows else [value]
    return value


def wide_nested(depth: int) -> Any:
    value: Any = [0] * 70
    for _ in range(depth - 1):
        value = [0] * 69 + [value]
    return value


REFUSED: list[tuple[Any, str, str]] = [
    ([math.nan], "non_finite", "$[0]"),
    ({"a": {"b": math.inf}}, "non_finite", "$.a.b"),
    ({"out": [1, {"h": -math.inf}]}, "non_finite", "$.out[1].h"),
    ([Half("nan")], "non_finite", "$[0]"),
    ({"x": {math.nan: 1}}, "non_finite", "$.x"),
    ({math.inf: 1}, "non_finite", "$"),
    ({"x y": [math.nan]}, "non_finite", "$['x y'][0]"),
    ([1.0] * 5000 + [math.nan], "non_finite", "$[5000]"),
    ([{"v": 1.0}] * 5000 + [{"v": math.nan}], "non_finite", "$[5000].v"),
    (
        {f"k{n}": math.nan if n == 700 else n for n in range(900)},
        "non_finite",
        "$.k700",
    ),
    ({1: "a", "1": "b"}, "key_collision", "$"),
    ({"q": [{True: 1, "true": 2}]}, "key_collision", "$.q[0]"),
    ({None: 1, "null": 2}, "key_collision", "$"),
    ({1.5: 1, "1.5": 2}, "key_collision", "$"),
    ({"\ud83c\udf78": 1, "\U0001f378": 2}, "key_collision", "$"),
    ({**{f"k{n}": n for n in range(500)}, 7: 1, "7": 2}, "key_collision", "$"),
    ({(1, 2): 3}, "bad_key", "$"),
    ({"a": {b"k": 1}}, "bad_key", "$.a"),
    ([{frozenset(): 1}], "bad_key", "$[0]"),
    ({**{str(n): n for n in range(500)}, (): 1}, "bad_key", "$"),
    ({"out": [1, {"h": Loud()}]}, "serialization", "$.out[1].h"),
    ([Silent()], "serialization", "$[0]"),
    ({"b": Broken(a=1)}, "serialization", "$.b"),
    ([[Endless([1])]], "serialization", "$[0][0]"),
    ({"n": 10**MAX_DIGITS}, "serialization", "$.n"),
    ([0] * 200 + [-(10**5000)], "serialization", "$[200]"),
    ({10**5000: 1}, "serialization", "$"),
    (cyclic_list(), "serialization", "$"),
    (cyclic_dict(), "serialization", "$"),
    (nested(100_000), "depth", "$"),
]


@pytest.mark.parametrize(
    ("value", "reason", "path"),
    [pytest.param(*case, id=f"{n}-{case[1]}") for n, case in enumerate(REFUSED)],
)
def test_refused(value: Any, reason: str, path: str) -> None:
    for previous in (None, freeze([1]), freeze({"a": 1})):
        with pytest.raises(CheckpointValueError) as caught:
            freeze(value, previous)
        assert (caught.value.reason, caught.value.code) == (reason, reason)
        if reason != "depth":
            assert caught.value.path == path
        assert "secret" not in str(caught.value)


def test_long_integers_up_to_the_limit() -> None:
    for number in (10**3999, 10**MAX_DIGITS - 1, -(10**MAX_DIGITS) + 1):
        data = encode(freeze([number]))
        assert loads_strict(data) == [number]
    with pytest.raises(JsonError) as caught:
        loads_strict(b"[" + b"9" * (MAX_DIGITS + 1) + b"]")
    assert caught.value.kind == "malformed"


@pytest.mark.parametrize("rows", [False, True])
def test_one_depth_for_capture_and_reading(rows: bool) -> None:
    assert MAX_DEPTH >= 200
    deepest = nested(MAX_DEPTH, rows=rows)
    frozen = freeze(deepest)
    for wrapped in (frozen, [frozen], [[[[frozen]]]]):
        assert loads_strict(encode(wrapped)) == json.loads(encode(wrapped))
    assert thaw(frozen) == deepest
    assert freeze(deepest, frozen) is frozen
    with pytest.raises(CheckpointValueError) as caught:
        freeze(nested(MAX_DEPTH + 1, rows=rows))
    assert caught.value.reason == "depth"
    with pytest.raises(JsonError):
        loads_strict(json.dumps(nested(MAX_DEPTH + 5, rows=rows)).encode())


def test_wide_containers_inside_each_other() -> None:
    for depth in (2, 40):
        value = wide_nested(depth)
        frozen = freeze(value)
        assert loads_strict(encode(frozen)) == value
        assert freeze(value, frozen) is frozen


def test_str_is_asked_once_and_eq_never() -> None:
    class Counted:
        asked = 0

        def __str__(self) -> str:
            Counted.asked += 1
            return "same"

        def __eq__(self, other: object) -> bool:
            raise AssertionError("asked for equality")

        __hash__ = None  # type: ignore[assignment]

    for size in (1, 10, 63, 200, 3000):
        for keyed in (False, True):
            value: Any = ["same"] * size
            if keyed:
                value = {f"k{n}": v for n, v in enumerate(value)}
            frozen = freeze(value)
            place: Any = f"k{size // 2}" if keyed else size // 2
            value[place] = Counted()
            Counted.asked = 0
            assert freeze(value, frozen) is frozen
            assert Counted.asked == 1
            value[place] = {"in": [Counted()]}
            Counted.asked = 0
            assert thaw(freeze(value, frozen))[place] == {"in": ["same"]}
            assert Counted.asked == 1


def test_a_str_that_changes_its_own_container() -> None:
    live: dict[str, Any] = {}

    class Meddler:
        def __str__(self) -> str:
            live[f"more{len(live)}"] = 1
            return "m"

    live["m"] = Meddler()
    with pytest.raises(CheckpointValueError) as caught:
        freeze(live)
    assert caught.value.reason == "serialization"


def test_a_str_that_empties_its_own_list() -> None:
    for size in (5, 500):
        live: list[Any] = []

        class Emptying:
            def __str__(self, live: list[Any] = live) -> str:
                live.clear()
                return "e"

        live += [Emptying(), *range(size)]
        frozen = freeze([0] * (size + 2))
        with contextlib.suppress(CheckpointValueError):
            freeze(live)
        live += [Emptying(), *range(size)]
        with contextlib.suppress(CheckpointValueError):
            freeze(live, frozen)


def test_a_class_that_pretends_is_taken_by_its_type() -> None:
    pretender = Mock(spec=str)
    pretender.configure_mock(__str__=lambda _: "mock")
    assert isinstance(pretender, str)
    assert normalize([pretender]) == ["mock"]
    frozen = freeze(["mock"] * 100)
    assert freeze(["mock"] * 99 + [pretender], frozen) is frozen


def test_lying_equality_hides_no_change() -> None:
    class Liar:
        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return hash("v")

        def __str__(self) -> str:
            return "another"

    for size in (3, 100, 2000):
        values: list[Any] = ["v"] * size
        rows: list[Any] = [{"a": "v", "b": 1} for _ in range(size)]
        frozen = freeze([values, rows])
        values[1] = Liar()
        rows[2]["a"] = Liar()
        made = thaw(freeze([values, rows], frozen))
        assert made[0][1] == "another"
        assert made[1][2]["a"] == "another"


class LyingText(str):
    """A text that claims to be equal to everything and to read differently."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash("x")

    def __str__(self) -> str:
        return "x"


ODD_TEXTS = [
    "",
    "a",
    "b",
    "ab",
    "\0",
    "a\0",
    "\0b",
    "a\0b",
    "\0\0",
    "é",
    "\ud800",
    "x" * 90,
]


@given(st.data())
def test_texts_that_join_to_the_same_are_told_apart(data: st.DataObject) -> None:
    """Whatever stands in them: the sign between joined texts, nothing, other types."""
    few = st.sampled_from(ODD_TEXTS)
    head = data.draw(st.lists(few, min_size=1, max_size=6))
    rest = ["word"] * 150
    live: list[Any] = [*head, *rest]
    frozen = freeze(live)
    assert freeze(list(live), frozen) is frozen
    for _ in range(3):
        text_type = data.draw(st.sampled_from([str, Text, LyingText]))
        new = data.draw(st.lists(few.map(text_type), min_size=1, max_size=6))
        live = [*new, *rest, *data.draw(st.lists(few | st.none(), max_size=3))]
        after = freeze(live, frozen)
        said = [None if item is None else str.__str__(item) for item in live]
        assert thaw(after) == said
        assert {*map(type, thaw(after))} <= {str, type(None)}
        assert (after is frozen) is (thaw(frozen) == said)
        frozen = after


def test_a_wide_container_of_one_kind_follows_one_of_the_other() -> None:
    texts, members = [f"t{n}" for n in range(100)], {f"k{n}": n for n in range(100)}
    emptied = freeze([], freeze(texts))
    for value in (texts, members, texts[:40], [], {}, [members] * 70, "x"):
        for before in (texts, members, [], {}, [1] * 100, None):
            assert thaw(freeze(value, freeze(before))) == value
        assert thaw(freeze(value, emptied)) == value


def test_texts_of_a_growing_list_are_compared_by_what_they_say() -> None:
    live: list[Any] = [f"entry {n}" for n in range(1500)]
    frozen = freeze(live)
    for step in range(3000):
        live.append(
            f"entry {1500 + step}" if step % 50 else ["long" * 100, 7, ""][step % 3]
        )
        if step % 7 == 0:
            live = [
                str(bytes(t, "ascii"), "ascii") if isinstance(t, str) else t
                for t in live
            ]
        after = freeze(live, frozen)
        assert after is not frozen
        frozen = after
        if step % 500 == 0:
            assert thaw(frozen) == live
    assert thaw(frozen) == live
    for place in (0, 700, 1023, 1024, len(live) - 1):
        before, live[place] = live[place], "another"
        assert thaw(freeze(live, frozen)) == live
        live[place] = before
    assert freeze(live, frozen) is frozen


SCALARS = [1, 1.0, True, "1", 0, 0.0, -0.0, False, "", None, "true", "null", 2**70]


def wrappings(value: Any) -> list[Any]:
    return [
        value,
        [value],
        {"k": value},
        [value] * 300,
        [{"k": value} for _ in range(300)],
        {f"k{n}": value for n in range(300)},
    ]


def test_scalars_of_other_types_are_other_values() -> None:
    for one in SCALARS:
        for other in SCALARS:
            expected = text(one) == text(other)
            assert same(one, other) is expected
            pairs = zip(wrappings(one), wrappings(other), strict=True)
            for first, second in pairs:
                before = freeze(first)
                after = freeze(second, before)
                assert (after is before) is expected
                assert same(before, after) is expected
                assert text(thaw(after)) == text(second)


# --- sharing


def test_unchanged_subtrees_are_the_same_objects_and_cost_nothing() -> None:
    live = {
        "big": [f"s{n}" for n in range(5000)],
        "rows": [{"id": n, "tags": ["x", n]} for n in range(3000)],
        "named": {f"k{n}": {"v": n} for n in range(300)},
        "small": {"a": [1, 2, {"b": None}]},
        "counter": 0,
    }
    frozen = freeze(live)
    tally = Tally()
    assert freeze(live, frozen, tally=tally) is frozen
    assert tally.copied == 0
    live["counter"] = 1
    after = freeze(live, frozen, tally=tally)
    assert tally.copied == 2  # the number and the object around it
    for name in ("big", "rows", "named", "small"):
        assert after[name] is frozen[name]


@pytest.mark.parametrize("size", [1_000, 10_000, 30_000])
def test_one_append_copies_the_same_few_values_whatever_the_size(size: int) -> None:
    for make in (str, lambda n: {"id": n, "name": str(n)}):
        entries: list[Any] = [make(n) for n in range(size)]
        live = {"log": {"entries": entries}}
        frozen = freeze(live)
        entries.append("one more")
        tally = Tally()
        after = freeze(live, frozen, tally=tally)
        assert tally.copied == 4
        assert thaw(after) == live


def test_members_behind_an_insertion_keep_their_identity() -> None:
    live: list[Any] = [{"id": n, "in": [n]} for n in range(4000)]
    frozen = freeze(live)
    members = {id(item) for item in frozen.items()}
    live.insert(10, {"id": "new", "in": []})
    del live[3000]
    live[2000]["in"].append("more")
    tally = Tally()
    after = freeze(live, frozen, tally=tally)
    assert thaw(after) == live
    kept = sum(id(item) in members for item in after.items())
    assert kept == len(live) - 2
    assert tally.copied < 20


def test_later_changes_of_the_live_value_reach_no_capture() -> None:
    live: dict[str, Any] = {"l": [{"n": [n]} for n in range(2000)], "d": {}}
    versions = []
    previous = None
    for step in range(30):
        previous = freeze(live, previous)
        versions.append((previous, text(live)))
        live["l"][step * 50]["n"].append(step)
        live["l"].append({"n": []})
        live["d"][f"k{step}"] = live["l"][-1]
    live["l"].clear()
    for version, expected in versions:
        assert text(thaw(version)) == expected


def test_thawing_gives_a_value_of_its_own() -> None:
    frozen = freeze({"l": [[1]], "w": [[n] for n in range(100)]})
    thawed = thaw(frozen)
    thawed["l"][0].append(2)
    thawed["w"][5].append(2)
    assert thaw(frozen) == {"l": [[1]], "w": [[n] for n in range(100)]}


async def test_capture_never_gives_the_loop_away() -> None:
    live = {"l": list(range(20_000)), "mark": 0}
    ran = asyncio.Event()

    async def mutate() -> None:
        live["mark"] = 1
        ran.set()

    task = asyncio.ensure_future(mutate())
    frozen = freeze(live)
    assert not ran.is_set()
    await task
    assert thaw(frozen)["mark"] == 0


def leaf(rng: random.Random) -> Any:
    choices: list[Any] = [*SCALARS, rng.randrange(10**6), rng.random(), Word.YES]
    return rng.choice([*choices, "é" * rng.randrange(4), f"k{rng.randrange(50)}"])


def grown(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.random()
    if depth > 3 or kind < 0.55:
        return leaf(rng)
    if kind < 0.75:
        return [grown(rng, depth + 1) for _ in range(rng.randrange(5))]
    if kind < 0.8:
        return tuple(grown(rng, depth + 1) for _ in range(rng.randrange(3)))
    if kind < 0.83:
        return [leaf(rng) for _ in range(rng.randrange(60, 140))]
    names = ["a", "b", "", "a/b", "~", "é", "-", "0"]
    return {rng.choice(names): grown(rng, depth + 1) for _ in range(rng.randrange(5))}


def large(rng: random.Random) -> Any:
    size = rng.choice([0, 3, 63, 64, 70, 500, 1023, 1024, 1025, 2500])
    kind = rng.randrange(6)
    if kind == 0:
        return [f"s{n}" for n in range(size)]
    if kind == 1:
        return [{"id": n, "f": rng.choice([0.0, -0.0])} for n in range(size)]
    if kind == 2:
        return [leaf(rng) for _ in range(size)]
    if kind == 3:
        return [grown(rng, 2) for _ in range(min(size, 200))]
    if kind == 4:
        return [[n, {"x": [n]}] for n in range(size)]
    return {f"m{n}": {"n": n} if n % 3 else n for n in range(size)}


def containers(value: Any) -> list[Any]:
    found = [value] if isinstance(value, (list, dict)) else []
    if found:
        for item in value.values() if isinstance(value, dict) else value:
            found += containers(item)
    return found


def change(rng: random.Random, root: Any) -> None:
    """Change one container of a live value in place, somehow."""
    boxes = containers(root)
    box = rng.choice(boxes) if rng.random() < 0.5 else max(boxes, key=len)
    how = rng.randrange(8)
    if isinstance(box, dict):
        names = list(box)
        if how < 3 or not names:
            box[f"k{rng.randrange(200)}"] = grown(rng, 1)
        elif how == 3:
            del box[rng.choice(names)]
        elif how == 4:
            box[rng.choice(names)] = grown(rng, 1)
        elif how == 5:
            name = rng.choice(names)
            box[name] = box.pop(name)
        elif how == 6:
            name = rng.choice(names)
            box[name] = json.loads(text(box[name]))
        else:
            for name in rng.sample(names, min(len(names), 30)):
                box[name] = leaf(rng)
        return
    at = rng.randrange(len(box) + 1)
    if how < 2:
        box.append(grown(rng, 2))
    elif how == 2:
        box.insert(at, grown(rng, 2))
    elif how == 3:
        del box[at : at + rng.choice([1, 1, 400])]
    elif how == 4:
        box[at : at + 1] = [grown(rng, 1)]
    elif how == 5:
        box[at : at + rng.randrange(30)] = [leaf(rng) for _ in range(rng.randrange(30))]
    elif how == 6:
        box[at:at] = [leaf(rng) for _ in range(rng.choice([1, 9, 300]))]
    else:
        box[at : at + 3] = json.loads(text(box[at : at + 3]))


def follow(seed: int) -> None:
    """Capture a live value while it changes; each capture is exact, old ones stay."""
    rng = random.Random(seed)
    live: Any = {"a": large(rng), "b": grown(rng), "c": large(rng)}
    frozen = freeze(live)
    versions = [(frozen, text(live))]
    for _ in range(rng.randrange(1, 9)):
        for _ in range(rng.choice([0, 1, 1, 1, 2, 5])):
            change(rng, live)
        if rng.random() < 0.1:
            live = json.loads(text(live))
        before, frozen = frozen, freeze(live, frozen)
        expected = text(live)
        assert text(thaw(frozen)) == expected
        assert text(loads_strict(encode(frozen))) == expected
        assert same(before, frozen) is (versions[-1][1] == expected)
        versions.append((frozen, expected))
    for version, expected in versions:
        assert text(thaw(version)) == expected


@pytest.mark.parametrize("seed", range(40))
def test_following_a_value_that_changes(seed: int) -> None:
    follow(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40, 1500))
def test_following_many_values_that_change(seed: int) -> None:
    follow(seed)


# --- reading

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_what_is_written_is_read(value: Any) -> None:
    frozen = freeze(value)
    data = encode(frozen)
    assert data.isascii()
    assert b"\n" not in data
    assert data == b"".join(pieces(frozen)) == encode(value)
    assert text(loads_strict(data)) == text(normalize(value))
    assert scan_strict("  " + data.decode(), 2) == (normalize(value), len(data) + 2)
    assert count(frozen) == count(normalize(value)) >= 1


UNREADABLE: list[tuple[bytes, str]] = [
    (b"", "malformed"),
    (b"  ", "malformed"),
    (b"\xef\xbb\xbf{}", "malformed"),
    (b"{}{}", "malformed"),
    (b'{"a":1,}', "malformed"),
    (b"[01]", "malformed"),
    (b"[+1]", "malformed"),
    (b"[.5]", "malformed"),
    (b"[nan]", "malformed"),
    (b"['a']", "malformed"),
    (b'["\t"]', "malformed"),
    (b'["\xff"]', "malformed"),
    (b'["\xed\xa0\x80"]', "malformed"),
    (b'["\xc0\x80"]', "malformed"),
    ("{}".encode("utf-16"), "malformed"),
    (b"\0" * 40, "malformed"),
    (b"[" * 100_000, "malformed"),
    (b"[" * 100_000 + b"]" * 100_000, "malformed"),
    (b'{"a":' * 3000 + b"1" + b"}" * 3000, "malformed"),
    (b"[" * 300 + b"]" * 300, "malformed"),
    (b"[" + b"1" * 5000 + b"]", "malformed"),
    (b"[" + b"1" * 500_000 + b"]", "malformed"),
    (b'{"a":1,"a":1}', "duplicate"),
    (b'{"ab":1,"\\u0061b":2}', "duplicate"),
    (b'[{"x":{"":1,"":2}}]', "duplicate"),
    (b'{"\\ud83c\\udf78":1,"\xf0\x9f\x8d\xb8":2}', "duplicate"),
    (b'{"a":1,"a":1', "malformed"),
    (b"[NaN]", "nonfinite"),
    (b"[Infinity,-Infinity]", "nonfinite"),
    (b"[1e999]", "nonfinite"),
    (b"[-1e400]", "nonfinite"),
    (b"[" + b"9" * 400 + b".0]", "nonfinite"),
    (b"[1e999", "malformed"),
]


@pytest.mark.parametrize(("data", "kind"), UNREADABLE, ids=lambda case: repr(case[:20]))
def test_unreadable(data: bytes, kind: str) -> None:
    with pytest.raises(JsonError) as caught:
        loads_strict(data)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b' {"b":1,\r\n"a":[ ]}\t', {"b": 1, "a": []}),
        (b'["\xe2\x80\xa8\xc2\x85"]', ["\u2028\u0085"]),
        (b'["\\ud800"]', ["\ud800"]),
        (b"[1e-400,-0.0,0,1E2]", [0.0, -0.0, 0, 100.0]),
        (b'["NaN","1e999"]', ["NaN", "1e999"]),
        (b"[9007199254740993]", [2**53 + 1]),
        (b'{"a":1,"A":2,"a ":3}', {"a": 1, "A": 2, "a ": 3}),
    ],
)
def test_readable(data: bytes, value: Any) -> None:
    assert text(loads_strict(data)) == text(value)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        value = loads_strict(data)
    except JsonError:
        return
    assert text(json.loads(data)) == text(value)


# --- writing


def test_no_step_of_writing_is_long() -> None:
    value = {
        "text": "x" * 1_000_000,
        "escaped": "\n" * 100_000,
        "list": [f"item {n}" for n in range(50_000)],
        "heavy": ["y" * 30_000 for n in range(100)],
        "rows": [{"id": n, "t": "z" * 50} for n in range(20_000)],
        "object": {f"k{n}": "v" * 20 for n in range(20_000)},
    }
    parts = list(pieces(freeze(value)))
    assert max(map(len, parts)) < 700_000
    assert json.loads(b"".join(parts)) == value
    assert len(parts) < 4000


def test_weight_is_near_the_encoded_length_and_stops_at_its_limit() -> None:
    value = {"rows": [{"id": n, "text": "x" * 40} for n in range(1000)], "é": "é" * 9}
    exact = len(encode(freeze(value)))
    for form in (value, freeze(value)):
        assert 0.8 * exact < weight(form) < 1.3 * exact
        assert 100 <= weight(form, 100) < 300


def test_values_that_are_not_json_are_not_encoded() -> None:
    with pytest.raises(TypeError, match="object"):
        encode([object()])
    with pytest.raises(ValueError, match="JSON"):
        encode([math.nan])
