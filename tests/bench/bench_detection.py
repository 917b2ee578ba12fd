"""What a record costs the event loop: capture and comparison of the whole context.

Figures are thread time beside ``json.dumps`` of the same value in the same process, the
best of interleaved repetitions.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from heaveto.checkpoint.patch import diff
from heaveto.jsonvalue import Tally, encode, freeze, pieces

if TYPE_CHECKING:
    from collections.abc import Callable

REPEAT = 15


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return milliseconds of this thread and what the work returned."""
    start = time.thread_time_ns()
    result = work()
    return (time.thread_time_ns() - start) / 1e6, result


def word(n: int) -> str:
    return f"item-{n:06d}-{'x' * 19}"


def row(n: int) -> dict[str, Any]:
    return {"id": n, "name": f"n{n}", "ok": bool(n % 2)}


def turn(n: int) -> dict[str, Any]:
    content = [{"type": "text", "text": f"t{n}"}]
    return {"id": n, "role": "user", "content": content, "meta": {"cost": n / 7}}


def triple(n: int) -> list[Any]:
    return [n, f"s{n}", None]


CASES: list[tuple[str, Callable[[int], Any], int, float]] = [
    ("strings", word, 1_000, 1.0),
    ("strings", word, 10_000, 0.4),
    ("strings", word, 100_000, 0.16),
    ("rows", row, 1_000, 0.66),
    ("rows", row, 10_000, 0.66),
    ("rows", row, 100_000, 0.42),
    ("turns", turn, 30_000, 0.66),
    ("triples", triple, 100_000, 0.9),
    ("integers", int, 100_000, 0.45),
]


@pytest.mark.parametrize(
    ("name", "make", "size", "bound"), CASES, ids=[f"{c[0]}-{c[2]}" for c in CASES]
)
def test_one_append(
    name: str, make: Callable[[int], Any], size: int, bound: float
) -> None:
    context = {"log": {"entries": [make(n) for n in range(size)]}, "n": 1}
    first, frozen = cpu(lambda: freeze(context))
    best: dict[str, float] = {}

    def note(what: str, work: Callable[[], Any]) -> Any:
        spent, result = cpu(work)
        best[what] = min(spent, best.get(what, spent))
        return result

    copied = 0
    for step in range(REPEAT):
        context["log"]["entries"].append(make(size + step))  # type: ignore[index]
        tally = Tally()

        def record(before: Any = frozen, tally: Tally = tally) -> Any:
            after = freeze(context, before, tally=tally)
            return after, diff(before, after)

        frozen, ops = note("record", record)
        assert [op["path"] for op in ops] == ["/log/entries/-"]
        copied = tally.copied
        assert note("unchanged", lambda: freeze(context, frozen)) is frozen  # noqa: B023
        note("dumps", lambda: json.dumps(context))
        note("encode", lambda: encode(frozen))  # noqa: B023
    ratio = best["record"] / best["dumps"]
    print(
        f"\n{name} {size}: record {best['record']:.3f} ms = {ratio:.3f} of json.dumps"
        f" ({best['dumps']:.3f} ms); unchanged {best['unchanged']:.3f} ms; values"
        f" copied {copied}; first capture {first / best['dumps']:.2f}, encoding"
        f" {best['encode'] / best['dumps']:.2f} of json.dumps"
    )
    assert ratio <= bound


@pytest.mark.parametrize("size", [1_000, 10_000, 100_000])
def test_one_member(size: int) -> None:
    context: dict[str, Any] = {"o": {f"k{n}": n for n in range(size)}}
    frozen = freeze(context)
    best = dumps = 1e9
    for step in range(REPEAT):
        context["o"][f"new{step}"] = step
        before = frozen
        spent, frozen = cpu(lambda: freeze(context, before))  # noqa: B023
        more, ops = cpu(lambda: diff(before, frozen))  # noqa: B023
        assert [op["op"] for op in ops] == ["add"]
        best = min(best, spent + more)
        dumps = min(dumps, cpu(lambda: json.dumps(context))[0])
    print(f"\nobject {size}: {best:.3f} ms = {best / dumps:.3f} of json.dumps")


def test_the_longest_step_of_encoding() -> None:
    value = freeze(
        {
            "log": ["x" * 8192 for _ in range(2000)],
            "rows": [row(n) for n in range(50_000)],
            "text": "y" * 4_000_000,
        }
    )
    longest = total = 0.0
    steps = pieces(value)
    while True:
        spent, piece = cpu(lambda: next(steps, None))
        if piece is None:
            break
        longest, total = max(longest, spent), total + spent
    whole, _ = cpu(lambda: json.dumps("z" * 20_000_000))
    print(
        f"\nencoding 23 MB: longest step {longest:.3f} ms of {total:.1f} ms;"
        f" json.dumps of a string of 20 MB {whole:.1f} ms in one"
    )
    assert longest < whole / 4
