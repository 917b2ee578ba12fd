"""JSON values: capture, comparison, strict reading, canonical writing; no I/O.

A **plain** value is what ``json`` gives: dict, list, str, int, float, bool, None. A
**frozen** value is an immutable picture of one, taken by :func:`freeze` and opaque to
everyone else: pass it to :func:`freeze` as ``previous``, to :func:`thaw`,
:func:`encode` or :func:`pieces`, or walk it with :mod:`heaveto.checkpoint.patch`.

Capture rules (SPEC E-80..E-101), the same that ``json.dumps(default=str)`` follows, but
for what it lets through:

* exact and derived ``str``, ``int``, ``float``, ``bool`` and ``None`` are JSON scalars,
  lists and tuples are arrays, dicts are objects, everything else becomes
  ``str(value)``, once;
* NaN and infinities are refused, as values and as member names;
* member names may be str, int, float, bool or None and get their JSON spelling; two
  that become the same name are refused, any other type is refused;
* nesting deeper than :data:`MAX_DEPTH`, integers longer than :data:`MAX_DIGITS`, cycles
  and objects whose ``str`` fails are refused.

Two values are the same when their JSON is: ``1``, ``1.0``, ``True`` and ``"1"`` differ,
``0.0`` and ``-0.0`` differ, and no ``__eq__`` of a foreign class is asked.

Capture reads live objects and belongs on their thread; everything else here is pure
and safe in any thread. Cost: finding out what changed reads every leaf of a value.
"""

from __future__ import annotations

import functools
import json
from itertools import chain
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Any, TypeAlias

from heaveto.capture import MAX_DEPTH, Tally, freeze
from heaveto.errors import HeavetoError
from heaveto.frozen import (
    MAX_DIGITS,
    SCALARS,
    WIDE,
    Frozen,
    Wide,
    array_items,
    is_array,
    is_object,
    object_items,
    same_scalar,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "MAX_DEPTH",
    "MAX_DIGITS",
    "Frozen",
    "Json",
    "JsonError",
    "Tally",
    "count",
    "encode",
    "encode_flat",
    "freeze",
    "loads_strict",
    "normalize",
    "pieces",
    "same",
    "scan_strict",
    "thaw",
    "too_deep",
    "weight",
]

Json: TypeAlias = Any
"""A plain JSON value."""

WRAPPING = 4
"""Containers that the formats put around a value; reading allows that many more."""

_PIECE = 1 << 16
_LONG = 4096
_WORD = 100
_SHORT = frozenset({int, float, bool, type(None)})
_UNESCAPED = bytes(b for b in range(0x20, 0x80) if b not in b'"\\')


class JsonError(HeavetoError):
    """Bytes are not strict JSON.

    Attributes:
        kind: ``malformed``, ``duplicate`` (two members of one name), ``nonfinite``.
    """

    default_code = "json"

    def __init__(self, kind: str) -> None:
        """Keep the kind; the message quotes nothing."""
        super().__init__(f"not strict JSON: {kind}", code=kind)
        self.kind = kind


# --- values


def normalize(value: object) -> Json:
    """Return the plain JSON value that a capture of ``value`` stands for.

    Raises:
        CheckpointValueError: As :func:`freeze`.
    """
    return thaw(freeze(value))


def thaw(frozen: Frozen) -> Json:
    """Return a fresh plain value; changing it changes nothing else."""
    if is_object(frozen):
        return {
            name: item if type(item) in SCALARS else thaw(item)
            for name, item in object_items(frozen).items()
        }
    if is_array(frozen):
        return [
            item if type(item) in SCALARS else thaw(item)
            for item in array_items(frozen)
        ]
    return frozen


def same(one: Json | Frozen, other: Json | Frozen) -> bool:
    """Tell whether two plain or frozen values have the same JSON, types included.

    The order of members does not matter.
    """
    if type(one) in SCALARS:
        return type(other) in SCALARS and same_scalar(one, other)
    if one is other:
        return True
    if is_array(one) and is_array(other):
        ones, others = array_items(one), array_items(other)
        return len(ones) == len(others) and all(map(same, ones, others))
    if is_object(one) and is_object(other):
        named, names = object_items(one), object_items(other)
        return len(named) == len(names) and all(
            name in names and same(item, names[name]) for name, item in named.items()
        )
    return False


def count(frozen: Json | Frozen) -> int:
    """Return how many values are in one, itself included."""
    if is_object(frozen):
        values = list(object_items(frozen).values())
    elif is_array(frozen):
        values = array_items(frozen)
    else:
        return 1
    if {*map(type, values)} <= SCALARS:
        return 1 + len(values)
    return 1 + sum(map(count, values))


def weight(frozen: Json | Frozen, limit: int = 1 << 62) -> int:
    """Return about how many bytes a value takes, or any number from ``limit`` on.

    Cost: as much of the value as the limit lets in.
    """
    if type(frozen) is str:
        return 2 + len(frozen) * (1 if frozen.isascii() else 6)
    if is_object(frozen):
        members = frozen.items() if type(frozen) is dict else frozen.pairs()
        total = 2
        for name, item in members:
            total += 4 + len(name) + weight(item, limit - total)
            if total >= limit:
                break
        return total
    if is_array(frozen):
        total = 2
        for item in frozen if type(frozen) is list else frozen.items():
            total += 1 + weight(item, limit - total)
            if total >= limit:
                break
        return total
    return len(repr(frozen))


# --- reading


class _Duplicate(ValueError):
    pass


class _NonFinite(ValueError):
    pass


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _Duplicate
    return made


def _finite(text: str) -> float:
    number = float(text)
    if number - number != 0.0:
        raise _NonFinite
    return number


def _constant(_: str) -> float:
    raise _NonFinite


_STRICT = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=_finite, parse_constant=_constant
)


def loads_strict(data: bytes) -> Json:
    """Parse one JSON value strictly (SPEC F-07, F-14, F-19).

    Args:
        data: UTF-8 without a byte order mark.

    Returns:
        The plain value.

    Raises:
        JsonError: Its ``kind`` is the earliest fault: ``malformed`` (encoding, grammar,
            nesting, an integer over the limit), ``duplicate`` or ``nonfinite``.
    """
    try:
        text = str(data, "utf-8")
        value = _STRICT.decode(text)
    except (_Duplicate, _NonFinite) as error:
        raise JsonError(_first_fault(text, error)) from None
    except (ValueError, RecursionError, MemoryError):
        raise JsonError("malformed") from None
    if too_deep(value):
        raise JsonError("malformed")
    return value


def scan_strict(text: str, start: int) -> tuple[Json, int] | None:
    """Parse a value that begins at a place in a text, and tell where it ends.

    Returns:
        The value and the place behind it; None when it is not strict JSON, which
        :func:`loads_strict` can explain.
    """
    try:
        value, end = _STRICT.raw_decode(text, start)
    except (ValueError, RecursionError, MemoryError):
        return None
    return None if too_deep(value) else (value, end)


def _first_fault(text: str, error: Exception) -> str:
    """Name a fault of meaning, unless the grammar is wrong further on."""
    try:
        json.loads(text)
    except (ValueError, RecursionError, MemoryError):
        return "malformed"
    return "duplicate" if isinstance(error, _Duplicate) else "nonfinite"


def too_deep(value: Json) -> bool:
    """Tell whether a parsed document nests deeper than reading allows."""
    level = [value]
    for _ in range(MAX_DEPTH + WRAPPING):
        if not level:
            return False
        below: list[Json] = []
        if len(level) < _LONG:
            for item in level:
                if type(item) is dict:
                    below += item.values()
                elif type(item) is list:
                    below += item
        else:
            kinds = {*map(type, level)}
            if dict in kinds:
                objects = _only(dict, level, kinds)
                below.extend(chain.from_iterable(map(dict.values, objects)))
            if list in kinds:
                below.extend(chain.from_iterable(_only(list, level, kinds)))
        level = below
    return any(type(item) in (dict, list) for item in level)


def _only(kind: type, values: list[Json], kinds: set[type]) -> list[Json]:
    """Return the values of one type; ``kinds`` are the types of all."""
    return values if len(kinds) == 1 else [v for v in values if type(v) is kind]


# --- writing


def encode(value: Json | Frozen) -> bytes:
    """Return the canonical encoding: ASCII, compact, finite (SPEC E-14).

    Args:
        value: Frozen, or plain as :func:`loads_strict` or :func:`normalize` give it.
    """
    kind = type(value)
    if kind is dict and len(value) < WIDE:
        flat = encode_flat(value)
        if flat is not None:
            return flat
    elif kind is str and len(value) < _PIECE:
        return _text(value)
    return b"".join(pieces(value))


def encode_flat(value: dict[str, Json | Frozen]) -> bytes | None:
    """Encode an object of texts and nulls, as most entries are, in the fewest steps.

    Returns:
        As :func:`encode`; None when the object holds anything else, or a long text.
    """
    parts: list[bytes] = []
    for name, item in value.items():
        parts.append(_member(name) if len(name) < _WORD else _head(name))
        if type(item) is str and len(item) < _PIECE:
            if len(item) > _WORD and item.isascii():
                raw = item.encode("ascii")
                if not raw.translate(None, _UNESCAPED):
                    parts += (b'"', raw, b'"')
                    continue
            parts.append(encode_basestring_ascii(item).encode("ascii"))
        elif item is None:
            parts.append(b"null")
        else:
            return None
    if parts:
        parts[0] = parts[0][1:]
    return b"{%b}" % b"".join(parts)


def _head(name: str) -> bytes:
    """Encode a member's name with what stands around it, a comma before it."""
    return b",%b:" % _text(name)


def _text(text: str) -> bytes:
    """Encode a string; most longer ones need no escape, which is found out faster."""
    if len(text) > _WORD and text.isascii():
        raw = text.encode("ascii")
        if not raw.translate(None, _UNESCAPED):
            return b'"%b"' % raw
    return encode_basestring_ascii(text).encode("ascii")


_member = functools.lru_cache(maxsize=256)(_head)
"""Member names, of which entries have a dozen."""


def pieces(value: Json | Frozen) -> Iterator[bytes]:
    """Give the canonical encoding in pieces.

    A step encodes about 64 KiB at a time, so that a thread that encodes a large value
    never keeps another one waiting for long.
    """
    kind = type(value)
    if kind is dict:
        yield from _object_pieces(value)
    elif kind is list:
        yield from _array_pieces(value)
    elif kind is Wide:
        yield from _wide_pieces(value)
    elif kind is str and len(value) > _LONG:
        yield from _text_pieces(value)
    else:
        yield _encode(value).encode("ascii")


def _expand(value: Any) -> Json:
    """Show the C encoder what is inside a wide container that lies deep in a batch."""
    if type(value) is Wide:
        return object_items(value) if value.keyed else array_items(value)
    raise TypeError(f"not a JSON value: {type(value).__name__}")


_encode = json.JSONEncoder(
    ensure_ascii=True,
    allow_nan=False,
    check_circular=False,
    separators=(",", ":"),
    default=_expand,
).encode


def _light(values: Iterable[Frozen]) -> bool:
    """Tell whether values are scalars that one step can encode."""
    kinds = {*map(type, values)}
    if str not in kinds:
        return kinds <= SCALARS
    texts = [value for value in values if type(value) is str]
    return kinds <= SCALARS and sum(map(len, texts)) < _PIECE


def _object_pieces(value: dict[str, Frozen]) -> Iterator[bytes]:
    if len(value) < WIDE and _light(value.values()):
        yield _encode(value).encode("ascii")
        return
    lead = "{"
    for name, item in value.items():
        yield f"{lead}{encode_basestring_ascii(name)}:".encode("ascii")
        yield from pieces(item)
        lead = ","
    yield b"}"


def _array_pieces(value: list[Frozen]) -> Iterator[bytes]:
    yield b"["
    yield from _batches(value, None)
    yield b"]"


def _wide_pieces(value: Wide) -> Iterator[bytes]:
    yield b"{" if value.keyed else b"["
    for place, chunk in enumerate(value.chunks):
        if place:
            yield b","
        yield from _batches(chunk.items, chunk.keys)
    yield b"}" if value.keyed else b"]"


def _batches(items: list[Frozen], names: list[str] | None) -> Iterator[bytes]:
    """Encode members with commas between them, as many at a time as make a piece."""
    at, step = 0, 1
    while at < len(items):
        part = items[at : at + step]
        if at:
            yield b","
        if step == 1 and type(part[0]) not in _SHORT:
            if names is not None:
                yield encode_basestring_ascii(names[at]).encode("ascii") + b":"
            size = 0
            for piece in pieces(part[0]):
                size += len(piece)
                yield piece
        else:
            heads = None if names is None else names[at : at + step]
            batch = part if heads is None else dict(zip(heads, part, strict=True))
            text = _encode(batch)[1:-1]
            size = len(text)
            yield text.encode("ascii")
        at += len(part)
        step = max(1, min(step * 8, step * _PIECE // max(size, 1)))


def _text_pieces(text: str) -> Iterator[bytes]:
    """Encode a long string; most need no escape, which is found out faster."""
    yield b'"'
    for start in range(0, len(text), _PIECE):
        part = text[start : start + _PIECE]
        raw = part.encode("ascii") if part.isascii() else b"\n"
        if raw.translate(None, _UNESCAPED):
            raw = encode_basestring_ascii(part)[1:-1].encode("ascii")
        yield raw
    yield b'"'
