"""What a frozen JSON value is made of, and what counts as a JSON scalar.

A frozen value is an exact ``str``, ``int``, ``float``, ``bool`` or None, a private
``list`` or ``dict`` that nobody changes any more, or a :class:`Wide` for containers of
many members. Unchanged parts are the same objects in the next capture, so comparing two
captures starts with ``is``.

How an unchanged live value is recognised quickly and exactly: a live container says
nothing by its identity, since it can be changed in place; a live **scalar** that is the
very object seen before is unchanged, since scalars are immutable. So each
:class:`Chunk` of a wide container keeps the live scalars it was captured from, level by
level, and compares them by identity in one C loop per level; a container's type is
checked to be exact before anything looks into it. Only when every scalar is known is
the shape compared with ``==``, which then meets nothing but exact lists, dicts and
identical scalars and asks no foreign ``__eq__``.

Short ASCII texts are compared faster still, and by what they say: a chunk of nothing
else keeps them joined by a sign that is in none of them, and live members are joined
the same way. ``join`` takes nothing but texts and asks none of them, and as many signs
in two equal joins leave one way only to take them apart.

Pure; a chunk may cache, and two threads that fill a cache write the same thing.
"""

from __future__ import annotations

import math
import re
from itertools import chain, compress, islice
from operator import is_
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from heaveto.errors import CheckpointValueReason

__all__ = [
    "CHUNK",
    "MAX_DIGITS",
    "SCALARS",
    "WIDE",
    "Builder",
    "Chunk",
    "Frozen",
    "Refusal",
    "Wide",
    "array_items",
    "is_array",
    "is_object",
    "is_scalar",
    "member_name",
    "object_items",
    "same_scalar",
    "scalar",
    "scalars",
]

Frozen: TypeAlias = Any
"""An immutable picture of a JSON value."""

MAX_DIGITS = 4300
"""Decimal digits of an integer, at most; the interpreter's own default limit."""

WIDE = 64
"""Members from which on a container is a :class:`Wide`."""

CHUNK = 1024
"""Members of a new chunk, at most."""

SCALARS = frozenset({str, int, float, bool, type(None)})

_SIGN = "\0"
_SHORT = 40
"""Characters that the texts of a chunk have on average, at most, to be joined."""

_UNKNOWN = ""

_DEEPEST = 24
"""Levels that a chunk describes; what is deeper is compared value by value."""

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_SURE = 10**600
_LIMIT = 10**MAX_DIGITS
_SPELLING = {True: "true", False: "false", None: "null"}


class Refusal(Exception):
    """A value breaks a rule; collects the path on its way up."""

    def __init__(self, reason: CheckpointValueReason, text: str) -> None:
        """Keep the rule; the text names types, never content."""
        super().__init__(text)
        self.reason: CheckpointValueReason = reason
        self.text = text
        self.steps: list[str | int] = []
        self.around: list[int] = []

    def inside(self, step: str | int, container: object) -> Refusal:
        """Note one container on the way up."""
        self.steps.append(step)
        self.around.append(id(container))
        return self


# --- scalars


def scalar(value: Any) -> Frozen:
    """Return the exact scalar that an instance of a scalar type stands for.

    Types are asked for by ``type``, as ``json`` does: ``__class__`` can be anything.

    Raises:
        Refusal: It is not finite, or an integer is too long.
    """
    kind = type(value)
    if issubclass(kind, str):
        return _text(value)
    if value is None or kind is bool:
        return value
    if issubclass(kind, int):
        return _integer(value)
    if not math.isfinite(value):
        raise Refusal("non_finite", "not a finite number")
    return float.__float__(value)


def _text(value: str) -> str:
    """Two lone surrogates in a row are one character once they were JSON."""
    text = value if type(value) is str else str.__str__(value)
    if not text.isascii() and _has_pair(text):
        encoded = text.encode("utf-16-le", "surrogatepass")
        return encoded.decode("utf-16-le", "surrogatepass")
    return text


def _has_pair(text: str) -> bool:
    return _PAIR.search(text) is not None


def _integer(value: int) -> int:
    if not -_SURE < value < _SURE and not -_LIMIT < value < _LIMIT:
        raise Refusal("serialization", f"an integer of more than {MAX_DIGITS} digits")
    return int.__index__(value)


def is_scalar(kind: type) -> bool:
    """Tell whether instances of a type are JSON scalars, exact or derived."""
    return kind in SCALARS or issubclass(kind, (str, int, float))


def same_scalar(one: Frozen, other: Frozen) -> bool:
    """Compare two exact scalars by type and value, the sign of zero included."""
    if type(one) is not type(other) or one != other:
        return False
    return type(one) is not float or one != 0.0 or _negative(one) == _negative(other)


def _negative(number: float) -> bool:
    return math.copysign(1.0, number) < 0.0


def member_name(key: Any) -> str:
    """Return the JSON spelling of a member name (SPEC E-85).

    Raises:
        Refusal: Its type cannot name a member, or it is not finite.
    """
    kind: type = type(key)
    if issubclass(kind, str):
        return _text(key)
    if key is None or kind is bool:
        return _SPELLING[key]
    if issubclass(kind, float):
        if not math.isfinite(key):
            raise Refusal("non_finite", "a member name that is not finite")
        return float.__repr__(key)
    if issubclass(kind, int):
        return int.__repr__(_integer(key))
    raise Refusal("bad_key", f"a member name of type {kind.__name__}")


def scalars(values: list[Any]) -> bool:
    """Tell at C speed whether all values are exact scalars that need no change.

    False only means that each has to be looked at.
    """
    kinds = {*map(type, values)}
    if not kinds <= SCALARS:
        return False
    if len(kinds) > 1:
        return all(
            _fits(kind, [v for v in values if type(v) is kind]) for kind in kinds
        )
    return all(_fits(kind, values) for kind in kinds)


def _fits(kind: type, values: list[Any]) -> bool:
    if kind is str:
        return all(map(str.isascii, values)) or not any(map(_has_pair, values))
    if kind is int:
        return bool(min(values) > -_SURE and max(values) < _SURE)
    return kind is not float or all(map(math.isfinite, values))


# --- wide containers


class _Level:
    """All values at one depth of a chunk, as they were seen alive.

    Attributes:
        leaves: Its scalars, in order.
        rows: The level below its objects, and where they are; likewise ``arrays``.
        flat: There is nothing below.
    """

    __slots__ = ("arrays", "flat", "leaf_mask", "leaves", "rows")

    def __init__(self, values: list[Any], types: list[type], inner: set[type]) -> None:
        self.flat = not inner
        self.leaf_mask: list[bool] | None = None
        self.leaves = values
        self.rows: tuple[_Level, list[bool] | None] | None = None
        self.arrays: tuple[_Level, list[bool] | None] | None = None
        if inner:
            mask = [kind not in inner for kind in types]
            self.leaf_mask = mask if any(mask) else None
            self.leaves = list(compress(values, mask))

    @classmethod
    def of(cls, values: list[Any], depth: int = 0) -> _Level | None:
        """Describe values; None when something in them has no fast comparison."""
        types = list(map(type, values))
        kinds = set(types)
        inner = {kind for kind in kinds if not is_scalar(kind)}
        if not inner <= {dict, list} or depth > _DEEPEST:
            return None
        made = cls(values, types, inner)
        for kind in inner:
            mask = None if len(kinds) == 1 else [one is kind for one in types]
            boxes = values if mask is None else list(compress(values, mask))
            below = cls.of(_inside(kind, boxes), depth + 1)
            if below is None:
                return None
            if kind is dict:
                made.rows = (below, mask)
            else:
                made.arrays = (below, mask)
        return made

    def extended(self, more: list[Any], whole: list[Any]) -> _Level | None:
        """Describe these values with ``more`` behind them; None when that is not easy.

        Args:
            more: The values that follow.
            whole: All of them.
        """
        level = _Level.of(more)
        if level is None or self.flat is not level.flat:
            return None
        if self.flat:
            return _Level(whole, [], set())
        if self.leaf_mask or level.leaf_mask or not (self.rows and level.rows):
            return None
        here, there = self.rows[0], level.rows[0]
        if not (here.flat and there.flat):
            return None
        made = _Level([], [], {dict})
        made.rows = (_Level(here.leaves + there.leaves, [], set()), None)
        return made

    def seen(self, values: list[Any]) -> bool:
        """Tell whether every scalar in live values is the object seen before.

        Containers are opened only when their type is exact. Shapes are not compared:
        a difference in shape leaves scalars before it checked and shifts those behind.
        """
        if self.flat:
            return all(map(is_, values, self.leaves))
        if self.leaf_mask is not None and not all(
            map(is_, compress(values, self.leaf_mask), self.leaves)
        ):
            return False
        return _below_seen(dict, self.rows, values) and _below_seen(
            list, self.arrays, values
        )


def _inside(kind: type, boxes: list[Any]) -> list[Any]:
    if kind is dict:
        return list(chain.from_iterable(map(dict.values, boxes)))
    return list(chain.from_iterable(boxes))


def _below_seen(
    kind: type, below: tuple[_Level, list[bool] | None] | None, values: list[Any]
) -> bool:
    if below is None:
        return True
    level, mask = below
    boxes = values if mask is None else list(compress(values, mask))
    if {*map(type, boxes)} != {kind}:
        return False
    found = chain.from_iterable(map(dict.values, boxes) if kind is dict else boxes)
    if level.flat:
        return all(map(is_, found, level.leaves))
    return level.seen(list(found))


class Chunk:
    """Consecutive members of a wide container; its content never changes.

    Attributes:
        keys: Member names, None in an array.
        items: Frozen values.
        leaves: The live scalars that the members were, where all are scalars; else
            None.
    """

    __slots__ = (
        *("_grown", "_joined", "_level", "_mark", "_mirror"),
        *("items", "keys", "leaves"),
    )

    def __init__(self, items: list[Frozen], keys: list[str] | None = None) -> None:
        """Take the lists over."""
        self.items = items
        self.keys = keys
        self._mark = object()
        self._grown: object = None
        self._joined: str | None = _UNKNOWN
        self._seen(items, _Level.of(items))

    def _seen(self, mirror: list[Any], level: _Level | None) -> None:
        self._mirror = mirror
        self._level = level
        self.leaves = level.leaves if level is not None and level.flat else None

    def extended(self, items: list[Frozen], keys: list[str] | None = None) -> Chunk:
        """Return a chunk with more members."""
        made = Chunk.__new__(Chunk)
        made.items = self.items + items
        made.keys = None if self.keys is None else [*self.keys, *(keys or ())]
        made._mark, made._grown = object(), self._mark
        made._joined = _UNKNOWN if self._joined is not None else None
        if self.leaves is self.items and {*map(type, items)} <= SCALARS:
            made._level, made._mirror, made.leaves = None, made.items, made.items
            if self._joined and (more := _joined(items)) is not None:
                made._joined = f"{self._joined}{_SIGN}{more}"
            return made
        whole = self._mirror is self.items
        mirror = made.items if whole else self._mirror + items
        level = None if self._level is None else self._level.extended(items, mirror)
        made._seen(mirror, level or _Level.of(mirror))
        return made

    def extends(self, other: Chunk) -> bool:
        """Tell whether this chunk was made by adding members to the other."""
        return self._grown is other._mark

    def says(self, part: list[Any]) -> bool:
        """Tell whether live members, as many as the chunk has, are these, unchanged."""
        if self.leaves is None:
            return self._follows(part)
        joined = self._joined
        if joined == _UNKNOWN:
            joined = self._joined = _joined(self.items)
        if joined is None:
            return all(map(is_, self.leaves, part))
        try:
            return _SIGN.join(part) == joined
        except TypeError:
            return False

    def follows(self, live: Iterator[Any]) -> bool:
        """Tell whether the next members of a live iteration are these, unchanged.

        Takes as many of them as the chunk has when they are, and some when not.
        """
        if self.leaves is not None:
            return all(map(is_, self.leaves, live))
        return self._follows(list(islice(live, len(self.items))))

    def _follows(self, part: list[Any]) -> bool:
        level = self._level
        return level is not None and level.seen(part) and part == self._mirror

    def adopt(self, part: list[Any], keys: list[str] | None = None) -> None:
        """Remember other live objects that mean the same.

        Args:
            part: Live members found to be unchanged. They are remembered where they are
                scalars, or exact objects of scalars, which are copied; derived scalars
                are as immutable as exact ones.
            keys: The live names, where the chunk has names.
        """
        if keys is not None:
            self.keys = keys
        kinds = {*map(type, part)}
        if all(map(is_scalar, kinds)):
            self._seen(part, _Level.of(part))
        elif kinds == {dict}:
            inside = {*map(type, chain.from_iterable(part))}
            inside.update(map(type, _inside(dict, part)))
            if all(map(is_scalar, inside)):
                mirror = list(map(dict.copy, part))
                self._seen(mirror, _Level.of(mirror))


def _joined(texts: list[Frozen]) -> str | None:
    """Join short ASCII texts; None when there is anything else among them."""
    if {*map(type, texts)} != {str} or sum(map(len, texts)) > _SHORT * len(texts):
        return None
    joined = _SIGN.join(texts)
    if not joined.isascii() or joined.count(_SIGN) != len(texts) - 1:
        return None
    return joined or None


class Wide:
    """A frozen container of many members, in chunks that captures share.

    Attributes:
        keyed: It is an object.
        chunks: None of them empty.
        size: Members.
    """

    __slots__ = ("chunks", "keyed", "size")

    def __init__(self, chunks: Sequence[Chunk], *, keyed: bool) -> None:
        """Take the chunks over."""
        self.chunks = tuple(chunks)
        self.keyed = keyed
        self.size = sum(len(chunk.items) for chunk in chunks)

    def grown(self, more: list[Frozen]) -> Wide:
        """Return an array with more members in its last chunk, where there is room."""
        last = self.chunks[-1].extended(more)
        made = Wide.__new__(Wide)
        made.keyed, made.chunks = False, (*self.chunks[:-1], last)
        made.size = self.size + len(more)
        return made

    def items(self) -> Iterator[Frozen]:
        """Give the values in order."""
        return chain.from_iterable(chunk.items for chunk in self.chunks)

    def keys(self) -> Iterator[str]:
        """Give the names in order."""
        return chain.from_iterable(chunk.keys or () for chunk in self.chunks)

    def pairs(self) -> Iterator[tuple[str, Frozen]]:
        """Give names and values in order."""
        return zip(self.keys(), self.items(), strict=True)


class Builder:
    """Puts shared chunks and new members of a wide container in a row."""

    def __init__(self, shared: Sequence[Chunk]) -> None:
        """Begin with chunks that are shared as they are."""
        self._made = list(shared)
        self._items: list[Frozen] = []
        self._names: list[str] = []

    def share(self, chunk: Chunk) -> None:
        """Append a chunk as it is."""
        self._flush()
        self._made.append(chunk)

    def add(self, items: list[Frozen], names: list[str] | None = None) -> None:
        """Append members."""
        self._items += items
        if names is not None:
            self._names.extend(names)

    def chunks(self) -> list[Chunk]:
        """Return all, in order."""
        self._flush()
        return self._made

    def _flush(self) -> None:
        """Make chunks of the members; a short chunk before them takes them in."""
        items, names = self._items, self._names
        if not items:
            return
        if self._made and len(self._made[-1].items) + len(items) <= CHUNK:
            self._made.append(self._made.pop().extended(items, names or None))
        else:
            step = len(items) if len(items) <= 2 * CHUNK else CHUNK
            for start in range(0, len(items), step):
                end = start + step
                self._made.append(Chunk(items[start:end], names[start:end] or None))
        self._items, self._names = [], []


def is_array(value: Frozen) -> bool:
    """Tell whether a frozen or plain value is an array."""
    return type(value) is list or (type(value) is Wide and not value.keyed)


def is_object(value: Frozen) -> bool:
    """Tell whether a frozen or plain value is an object."""
    return type(value) is dict or (type(value) is Wide and value.keyed)


def array_items(value: Frozen) -> list[Frozen]:
    """Return the members of a frozen or plain array; not to be changed."""
    return value if type(value) is list else list(value.items())


def object_items(value: Frozen) -> dict[str, Frozen]:
    """Return the members of a frozen or plain object; not to be changed."""
    return value if type(value) is dict else dict(value.pairs())
