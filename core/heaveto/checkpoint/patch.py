"""The patch subset: what turns one flow context into the next (SPEC E-21..E-33).

Three operations of RFC 6902, each with exactly these members::

    {"op":"add","path":POINTER,"value":JSON}      object: absent; array: 0..len or -
    {"op":"remove","path":POINTER}                the target exists
    {"op":"replace","path":POINTER,"value":JSON}  the target exists; "" takes an object

POINTER is RFC 6901 with ``~0`` and ``~1`` alone, decoded once; an index is ``0`` or a
nonzero ASCII digit followed by digits; ``-`` appends, as the last token of an ``add``
to an array only. A patch applies whole or not at all.

Pure; safe in any thread.
"""

from __future__ import annotations

import re
from itertools import chain, islice
from operator import is_
from typing import TYPE_CHECKING, TypeAlias

from heaveto.checkpoint.alignment import align
from heaveto.errors import PatchError
from heaveto.frozen import Chunk, Wide, array_items, is_array, is_object, object_items
from heaveto.jsonvalue import Frozen, Json, same, weight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Editing", "Op", "apply", "check", "diff"]

Op: TypeAlias = dict[str, Frozen]
"""An operation whose value, where it has one, is frozen."""

_FEW = 8
"""Operations from which on replacing the whole container may be better."""

_MANY = 64
"""Insertions alone, or removals alone, from which on it may be better."""

_INDEX = re.compile("0|[1-9][0-9]*")
_BAD_TILDE = re.compile("~(?![01])")
_MEMBERS = {
    "add": {"op", "path", "value"},
    "remove": {"op", "path"},
    "replace": {"op", "path", "value"},
}


# --- writing


def diff(old: Frozen, new: Frozen) -> list[Op]:
    """Return the operations that turn one frozen value into another.

    Members and elements that did not change are not mentioned; an insertion or removal
    in a long array costs one operation and not its tail. Where operations would be much
    longer than the whole new container, that replaces the old one.

    Args:
        old: The earlier capture.
        new: The later one, best frozen with ``old`` as its ``previous``.

    Returns:
        Operations with frozen values; empty when the values are the same. Cost: what
        differs, and one look at each chunk of a wide container.
    """
    return _changes(old, new, "")


def _changes(old: Frozen, new: Frozen, path: str) -> list[Op]:
    if old is new:
        return []
    if is_object(old) and is_object(new):
        ops = _object_changes(old, new, path)
    elif is_array(old) and is_array(new):
        ops = _array_changes(old, new, path)
    else:
        return [] if same(old, new) else [_op("replace", path, new)]
    return ops if len(ops) < _FEW else _shorter(ops, new, path)


def _op(verb: str, path: str, value: Frozen) -> Op:
    return {"op": verb, "path": path, "value": value}


def _removal(path: str) -> Op:
    return {"op": "remove", "path": path}


def _token(name: str) -> str:
    return "/" + name.replace("~", "~0").replace("/", "~1")


def _object_changes(old: Frozen, new: Frozen, path: str) -> list[Op]:
    olds, news = _members(old, new)
    ops = [_removal(path + _token(name)) for name in olds if name not in news]
    for name, item in news.items():
        if name not in olds:
            ops.append(_op("add", path + _token(name), item))
        elif olds[name] is not item:
            ops += _changes(olds[name], item, path + _token(name))
    return ops


def _members(old: Frozen, new: Frozen) -> tuple[dict[str, Frozen], dict[str, Frozen]]:
    """Return the members of two objects but for the chunks that they share."""
    if type(old) is not Wide or type(new) is not Wide:
        return object_items(old), object_items(new)
    shared = set(map(id, old.chunks)) & set(map(id, new.chunks))
    gone = [chunk for chunk in old.chunks if id(chunk) not in shared]
    come = [chunk for chunk in new.chunks if id(chunk) not in shared]
    if len(gone) == len(come) == 1 and come[0].extends(gone[0]):
        added, skip = come[0], len(gone[0].items)
        return {}, dict(zip((added.keys or ())[skip:], added.items[skip:], strict=True))
    return _named(gone), _named(come)


def _named(chunks: Sequence[Chunk]) -> dict[str, Frozen]:
    found: dict[str, Frozen] = {}
    for chunk in chunks:
        found.update(zip(chunk.keys or (), chunk.items, strict=True))
    return found


def _array_changes(old: Frozen, new: Frozen, path: str) -> list[Op]:
    ops: list[Op] = []
    for olds, news, at, last in _stretches(old, new):
        ops += _stretch_changes(olds, news, path, at, last)
    return ops


def _stretches(
    old: Frozen, new: Frozen
) -> Iterator[tuple[list[Frozen], list[Frozen], int, bool]]:
    """Cut two arrays at the chunks that they share.

    Yields:
        Old and new members between shared chunks, where they begin in the new array,
        and whether the arrays end behind them.
    """
    if type(old) is not Wide or type(new) is not Wide:
        yield array_items(old), array_items(new), 0, True
        return
    here, there = old.chunks, new.chunks
    shared = set(map(id, here)) & set(map(id, there))
    i = j = at = 0
    while i < len(here) or j < len(there):
        first, second, begin = i, j, at
        while i < len(here) and id(here[i]) not in shared:
            i += 1
        while j < len(there) and id(there[j]) not in shared:
            at += len(there[j].items)
            j += 1
        if i > first or j > second:
            last = i == len(here) and j == len(there)
            olds, news = _flat(here[first:i]), _flat(there[second:j])
            if i - first == j - second == 1 and there[second].extends(here[first]):
                begin += len(olds)
                olds, news = [], news[len(olds) :]
            yield olds, news, begin, last
        while i < len(here) and j < len(there) and here[i] is there[j]:
            at += len(there[j].items)
            i, j = i + 1, j + 1


def _flat(chunks: Sequence[Chunk]) -> list[Frozen]:
    if len(chunks) == 1:
        return chunks[0].items
    return list(chain.from_iterable(chunk.items for chunk in chunks))


def _stretch_changes(
    olds: list[Frozen], news: list[Frozen], path: str, at: int, last: bool
) -> list[Op]:
    """Return what turns one stretch of an array into another, from left to right.

    Args:
        olds: Its members before.
        news: Its members after.
        path: Of the array.
        at: Where the stretch begins in the new array.
        last: It ends where the array ends.
    """
    head, tail = _common(olds, news)
    olds, news = olds[head : len(olds) - tail], news[head : len(news) - tail]
    at += head
    last = last and not tail
    ops: list[Op] = []
    i = j = 0
    for kept, there in [*align(olds, news), (len(olds), len(news))]:
        end = last and kept == len(olds)
        ops += _gap_changes(olds[i:kept], news[j:there], path, at + j, end)
        i, j = kept + 1, there + 1
    return ops


def _common(olds: list[Frozen], news: list[Frozen]) -> tuple[int, int]:
    """Return how many members two arrays have in common at their start and end."""
    short = min(len(olds), len(news))
    head = _run_length(olds, news, short)
    left = short - head
    if not left:
        return head, 0
    return head, _run_length(olds[: -left - 1 : -1], news[: -left - 1 : -1], left)


def _run_length(one: list[Frozen], other: list[Frozen], limit: int) -> int:
    """Return how many members are the same from the start on, at most a limit."""
    if all(map(is_, islice(one, limit), other)):
        return limit
    run = 0
    while run < limit and (one[run] is other[run] or same(one[run], other[run])):
        run += 1
    return run


def _gap_changes(
    olds: list[Frozen], news: list[Frozen], path: str, at: int, end: bool
) -> list[Op]:
    """Return what turns members into others that have none in common with them."""
    ops: list[Op] = []
    paired = min(len(olds), len(news))
    for place in range(paired):
        ops += _changes(olds[place], news[place], f"{path}/{at + place}")
    ops += [_removal(f"{path}/{at + paired}")] * (len(olds) - paired)
    for place in range(paired, len(news)):
        token = "-" if end else at + place
        ops.append(_op("add", f"{path}/{token}", news[place]))
    return ops


def _shorter(ops: list[Op], new: Frozen, path: str) -> list[Op]:
    """Choose between many operations and one replacement of the container.

    Insertions alone, or removals alone, stay what they are (SPEC E-30) until there are
    very many.
    """
    if path == "" and not is_object(new):
        return ops
    if len(ops) < _MANY and _alike(ops, len(path) + 1):
        return ops
    cost = sum(
        40 + len(op["path"]) + (weight(op["value"]) if "value" in op else 0)
        for op in ops
    )
    budget = cost // 2 - 512
    if weight(new, budget) >= budget:
        return ops
    return [_op("replace", path, new)]


def _alike(ops: list[Op], inside: int) -> bool:
    """Tell whether operations do nothing but add to this container, or take from it."""
    verbs = {op["op"] for op in ops}
    return (
        len(verbs) == 1
        and "replace" not in verbs
        and all("/" not in op["path"][inside:] for op in ops)
    )


# --- applying


def apply(document: Json, ops: Sequence[Json]) -> Json:
    """Return the document after a patch; the one given stays as it is.

    Args:
        document: A plain object.
        ops: Plain operations.

    Returns:
        A document that shares with the one given, and with the values of the
        operations, whatever the patch did not reach.

    Raises:
        PatchError: Nothing was applied.
    """
    check(ops)
    return Editing(owner=False).apply(document, ops)


def check(ops: Json) -> None:
    """Refuse a patch whose shape is wrong, whatever the document is.

    Raises:
        PatchError: ``patch_invalid`` with the index of the first bad operation.
    """
    if not isinstance(ops, (list, tuple)):
        raise PatchError("patch_invalid", None)
    for index, op in enumerate(ops):
        if not _well_formed(op):
            raise PatchError("patch_invalid", index)


def _well_formed(op: Json) -> bool:
    if not isinstance(op, dict):
        return False
    verb, path = op.get("op"), op.get("path")
    if not isinstance(verb, str) or not isinstance(path, str):
        return False
    if op.keys() != _MEMBERS.get(verb):
        return False
    if path == "":
        return verb == "replace" and isinstance(op["value"], dict)
    return path[0] == "/" and ("~" not in path or not _BAD_TILDE.search(path))


class Editing:
    """Applies checked patches to a document, one after the other, each whole or not.

    One owner, one thread.
    """

    def __init__(self, *, owner: bool) -> None:
        """Say whose the document is.

        Args:
            owner: True: all of it may be changed. False: others hold it too, so every
                container on the way of a patch is copied, once, before it is changed.
        """
        self._copies: dict[int, Json] | None = None if owner else {}
        self._back: list[Callable[[], object]] = []

    def apply(self, document: Json, ops: Sequence[Json]) -> Json:
        """Return the document after a patch.

        Args:
            document: What the last call returned, or the first one.
            ops: As :func:`check` accepts them; their values become part of it.

        Raises:
            PatchError: ``patch_conflict``; the document says what it said before.
        """
        for index, op in enumerate(ops):
            if op["path"] == "":
                document = op["value"]
                continue
            made = self._own(document)
            if made is None or not self._step(made, _tokens(op["path"]), op):
                while self._back:
                    self._back.pop()()
                raise PatchError("patch_conflict", index)
            document = made
        self._back.clear()
        return document

    def _own(self, box: Json) -> Json | None:
        """Return a container that may be changed instead of this one; None: it is none.

        A copy says what its original says, so it needs no way back.
        """
        if not isinstance(box, (dict, list)):
            return None
        if self._copies is None or id(box) in self._copies:
            return box
        made = box.copy()
        self._copies[id(made)] = made
        return made

    def _step(self, box: Json, tokens: list[str], op: Json) -> bool:
        """Follow all tokens but the last, then change what the last one names."""
        for token in tokens[:-1]:
            keyed = isinstance(box, dict)
            place = token if keyed else _index(token, len(box) - 1)
            if place is None or (keyed and place not in box):
                return False
            inner = self._own(box[place])
            if inner is None:
                return False
            box[place] = inner
            box = inner
        if isinstance(box, dict):
            return self._change_object(box, tokens[-1], op)
        return self._change_array(box, tokens[-1], op)

    def _change_object(self, box: dict[str, Json], name: str, op: Json) -> bool:
        verb = op["op"]
        if (name in box) == (verb == "add"):
            return False
        if verb == "add":
            box[name] = op["value"]
            self._back.append(lambda: box.pop(name))
            return True
        before = box[name]
        self._back.append(lambda: box.__setitem__(name, before))
        if verb == "remove":
            del box[name]
        else:
            box[name] = op["value"]
        return True

    def _change_array(self, box: list[Json], token: str, op: Json) -> bool:
        verb = op["op"]
        if verb == "add":
            at = len(box) if token == "-" else _index(token, len(box))
        else:
            at = _index(token, len(box) - 1)
        if at is None:
            return False
        place = at
        if verb == "add":
            box.insert(place, op["value"])
            self._back.append(lambda: box.pop(place))
            return True
        before = box[place]
        if verb == "remove":
            del box[place]
            self._back.append(lambda: box.insert(place, before))
        else:
            box[place] = op["value"]
            self._back.append(lambda: box.__setitem__(place, before))
        return True


def _tokens(path: str) -> list[str]:
    tokens = path[1:].split("/")
    if "~" in path:
        return [token.replace("~1", "/").replace("~0", "~") for token in tokens]
    return tokens


def _index(token: str, highest: int) -> int | None:
    """Read an array index of at most ``highest``; None when it is none."""
    if len(token) > 20 or not _INDEX.fullmatch(token):
        return None
    at = int(token)
    return at if at <= highest else None
