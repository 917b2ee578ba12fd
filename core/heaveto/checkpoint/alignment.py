"""Which members of two arrays correspond, for a patch that moves nothing it need not.

Pure; safe in any thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING

from heaveto.frozen import SCALARS, Frozen
from heaveto.jsonvalue import encode

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["align"]

_SMALL = 4096
"""Pairs that are all looked at."""

_THOROUGH = 32768
"""Members on both sides together up to which containers are compared by content."""


def align(olds: list[Frozen], news: list[Frozen]) -> list[tuple[int, int]]:
    """Return places of members that both arrays hold, rising on both sides.

    Short arrays get the most pairs that there are; long ones are cut at members that
    occur once on each side.
    """
    if not olds or not news:
        return []
    a, b = _labels(olds, news)
    return _pairs(a, b)


def _labels(
    olds: list[Frozen], news: list[Frozen]
) -> tuple[list[Hashable], list[Hashable]]:
    """Label members so that the same label means the same JSON.

    Containers that both sides share have their identity as label; others their
    encoding, unless there are too many to encode.
    """
    shared = set(map(id, olds)) & set(map(id, news))
    thorough = len(olds) + len(news) <= _THOROUGH

    def label(item: Frozen) -> Hashable:
        kind = type(item)
        if kind in SCALARS:
            return (kind, repr(item) if kind is float else item)
        if id(item) in shared or not thorough:
            return id(item)
        return encode(item)

    return list(map(label, olds)), list(map(label, news))


def _pairs(a: list[Hashable], b: list[Hashable]) -> list[tuple[int, int]]:
    if len(a) * len(b) <= _SMALL:
        return _longest(a, b)
    short = min(len(a), len(b))
    head = next((i for i in range(short) if a[i] != b[i]), short)
    left = short - head
    tail = next((i for i in range(left) if a[-1 - i] != b[-1 - i]), left)
    found = [(i, i) for i in range(head)]
    found += _anchored(a[head : len(a) - tail], b[head : len(b) - tail], head)
    found += [(len(a) - i, len(b) - i) for i in range(tail, 0, -1)]
    return found


def _anchored(
    a: list[Hashable], b: list[Hashable], offset: int
) -> list[tuple[int, int]]:
    """Cut two long arrays at members that occur once on each side."""
    once_a, once_b = _once(a), _once(b)
    anchors = _rising([(i, once_b[k]) for k, i in once_a.items() if k in once_b])
    if not anchors:
        return []
    found: list[tuple[int, int]] = []
    i = j = 0
    for x, y in [*anchors, (len(a), len(b))]:
        for p, q in _pairs(a[i:x], b[j:y]):
            found.append((offset + i + p, offset + j + q))
        if x < len(a):
            found.append((offset + x, offset + y))
        i, j = x + 1, y + 1
    return found


def _once(labels: list[Hashable]) -> dict[Hashable, int]:
    """Return where labels are that occur once, in order."""
    counts = Counter(labels)
    return {k: place for place, k in enumerate(labels) if counts[k] == 1}


def _rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest run of pairs that rises on both sides; given by the first."""
    tops: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for place, (_, y) in enumerate(pairs):
        at = bisect_left(tops, y)
        before.append(ends[at - 1] if at else -1)
        tops[at : at + 1] = [y]
        ends[at : at + 1] = [place]
    run: list[tuple[int, int]] = []
    place = ends[-1] if ends else -1
    while place >= 0:
        run.append(pairs[place])
        place = before[place]
    return run[::-1]


def _longest(a: list[Hashable], b: list[Hashable]) -> list[tuple[int, int]]:
    """Return a longest common subsequence, by the table of all pairs."""
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in range(len(a) - 1, -1, -1):
        row, below = table[i], table[i + 1]
        for j in range(len(b) - 1, -1, -1):
            row[j] = below[j + 1] + 1 if a[i] == b[j] else max(below[j], row[j + 1])
    found: list[tuple[int, int]] = []
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i] == b[j]:
            found.append((i, j))
            i, j = i + 1, j + 1
        elif table[i + 1][j] >= table[i][j + 1]:
            i += 1
        else:
            j += 1
    return found
