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

import json
import math
import re
from typing import TYPE_CHECKING, Any, TypeAlias

from heaveto.errors import CheckpointValueError, HeavetoError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heaveto.errors import CheckpointValueReason

__all__ = [
    "MAX_DEPTH",
    "MAX_DIGITS",
    "Encoded",
    "Frozen",
    "Json",
    "JsonError",
    "Tally",
    "encode",
    "freeze",
    "loads_strict",
    "normalize",
    "pieces",
    "same",
    "thaw",
]

Json: TypeAlias = Any
"""A plain JSON value."""

Frozen: TypeAlias = Any
"""An immutable picture of a JSON value, made by :func:`freeze`."""

MAX_DEPTH = 256
"""Containers inside each other, at most, in a captured value."""

WRAPPING = 4
"""Containers that the formats put around a value; reading allows that many more."""

MAX_DIGITS = 4300
"""Decimal digits of an integer, at most; the interpreter's own default limit."""


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


class Encoded:
    """A frozen value that is known by its canonical encoding alone."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        """Keep bytes that :func:`encode` made."""
        self.data = data


class Tally:
    """Counts of what capture did.

    Attributes:
        copied: Values that were captured anew; an unchanged subtree adds nothing.
    """

    __slots__ = ("copied",)

    def __init__(self) -> None:
        """Start at zero."""
        self.copied = 0


class _Refusal(Exception):
    """Travels up through the containers and collects the path on its way."""

    def __init__(self, reason: CheckpointValueReason, text: str) -> None:
        super().__init__(text)
        self.reason: CheckpointValueReason = reason
        self.text = text
        self.steps: list[str | int] = []
        self.around: list[int] = []


# --- capture

_MISSING = object()
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_SMALL = 10**600
_SPELLING = {True: "true", False: "false", None: "null"}


def freeze(
    value: object, previous: Frozen = None, *, tally: Tally | None = None
) -> Frozen:
    """Capture a live value, sharing what did not change with an earlier capture.

    Args:
        value: Anything; see the rules above. It is read, never kept.
        previous: What an earlier call returned for the same place.
        tally: Where to count.

    Returns:
        A frozen value; ``previous`` itself when nothing changed.

    Raises:
        CheckpointValueError: The value breaks a rule; its ``path`` says where.
    """
    tally = tally or Tally()
    try:
        return _freeze(value, previous, 0, tally)
    except _Refusal as found:
        raise _explained(found) from None
    except RecursionError:
        raise CheckpointValueError("depth", "$", "nested too deeply") from None


def _explained(found: _Refusal) -> CheckpointValueError:
    path = "$"
    for step in reversed(found.steps):
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    if found.reason == "depth" and len(set(found.around)) < len(found.around):
        return CheckpointValueError("serialization", path, "the value contains itself")
    return CheckpointValueError(found.reason, path, found.text)


def _freeze(value: Any, previous: Frozen, depth: int, tally: Tally) -> Frozen:
    kind = type(value)
    if kind is str or isinstance(value, (str, int, float)) or value is None:
        leaf = _leaf(value)
        if type(leaf) is type(previous) and _same_leaf(leaf, previous):
            return previous
        tally.copied += 1
        return leaf
    if isinstance(value, (list, tuple)):
        return _freeze_array(value, previous, depth, tally)
    if isinstance(value, dict):
        return _freeze_object(value, previous, depth, tally)
    try:
        text = str(value)
    except Exception as error:
        raise _Refusal(
            "serialization", f"str() of {kind.__name__} raised {type(error).__name__}"
        ) from None
    return _freeze(text, previous, depth, tally)


def _leaf(value: Any) -> Frozen:
    if isinstance(value, str):
        text = str.__str__(value)
        if not text.isascii() and _PAIR.search(text):
            text = text.encode("utf-16-le", "surrogatepass").decode(
                "utf-16-le", "surrogatepass"
            )
        return text
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return _integer(int(value))
    number = float.__float__(value)
    if not math.isfinite(number):
        raise _Refusal("non_finite", "not a finite number")
    return number


def _integer(number: int) -> int:
    if not -_SMALL < number < _SMALL:
        limit = 10**MAX_DIGITS
        if not -limit < number < limit:
            raise _Refusal("serialization", f"an integer of over {MAX_DIGITS} digits")
    return number


def _same_leaf(one: Frozen, other: Frozen) -> bool:
    if type(one) is float:
        return one == other and math.copysign(1.0, one) == math.copysign(1.0, other)
    return bool(one == other)


def _name(key: object) -> str:
    if isinstance(key, str):
        return str(_leaf(key))
    if key is None or isinstance(key, bool):
        return _SPELLING[key]
    if isinstance(key, float):
        if not math.isfinite(key):
            raise _Refusal("non_finite", "a member name that is not finite")
        return float.__repr__(key)
    if isinstance(key, int):
        return int.__repr__(_integer(key))
    raise _Refusal("bad_key", f"a member name of type {type(key).__name__}")


def _enter(value: object, depth: int) -> None:
    if depth >= MAX_DEPTH:
        refusal = _Refusal("depth", f"nested deeper than {MAX_DEPTH}")
        refusal.around.append(id(value))
        raise refusal


def _freeze_array(value: Any, previous: Frozen, depth: int, tally: Tally) -> Frozen:
    _enter(value, depth)
    old = previous if type(previous) is tuple else ()
    made = []
    changed = type(previous) is not tuple or len(old) != len(value)
    for index, item in enumerate(list(value)):
        before = old[index] if index < len(old) else _MISSING
        try:
            new = _freeze(item, before, depth + 1, tally)
        except _Refusal as found:
            found.steps.append(index)
            found.around.append(id(value))
            raise
        changed = changed or new is not before
        made.append(new)
    if not changed:
        return previous
    tally.copied += 1
    return tuple(made)


def _freeze_object(value: Any, previous: Frozen, depth: int, tally: Tally) -> Frozen:
    _enter(value, depth)
    old = previous if type(previous) is dict else {}
    made: dict[str, Frozen] = {}
    changed = type(previous) is not dict or len(old) != len(value)
    for key, item in list(value.items()):
        name = key if type(key) is str and key.isascii() else _name(key)
        if name in made:
            raise _Refusal("key_collision", "two member names become the same")
        before = old.get(name, _MISSING)
        try:
            new = _freeze(item, before, depth + 1, tally)
        except _Refusal as found:
            found.steps.append(name)
            found.around.append(id(value))
            raise
        changed = changed or new is not before
        made[name] = new
    if not changed:
        return previous
    tally.copied += 1
    return made


def normalize(value: object) -> Json:
    """Return the plain JSON value that a capture of ``value`` stands for.

    Raises:
        CheckpointValueError: As :func:`freeze`.
    """
    return thaw(freeze(value))


def thaw(frozen: Frozen) -> Json:
    """Return a fresh plain value; changing it changes nothing else."""
    if type(frozen) is dict:
        return {name: thaw(item) for name, item in frozen.items()}
    if type(frozen) is tuple:
        return [thaw(item) for item in frozen]
    if type(frozen) is Encoded:
        return loads_strict(frozen.data)
    return frozen


def same(one: Json | Frozen, other: Json | Frozen) -> bool:
    """Tell whether two plain or frozen values have the same JSON, types included."""
    if one is other:
        return True
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and len(one) == len(other)
            and all(k in other and same(v, other[k]) for k, v in one.items())
        )
    if isinstance(one, (list, tuple)):
        return (
            isinstance(other, (list, tuple))
            and len(one) == len(other)
            and all(map(same, one, other))
        )
    return type(one) is type(other) and _same_leaf(one, other)


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


_decode = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=_finite, parse_constant=_constant
).decode


def loads_strict(data: bytes | memoryview) -> Json:
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
        value = _decode(str(data, "utf-8"))
    except _Duplicate:
        raise JsonError("duplicate") from None
    except _NonFinite:
        raise JsonError("nonfinite") from None
    except (ValueError, RecursionError):
        raise JsonError("malformed") from None
    _check_depth(value)
    return value


def _check_depth(value: Json) -> None:
    level = [value]
    for _ in range(MAX_DEPTH + WRAPPING + 1):
        level = [
            item
            for box in level
            if type(box) in (dict, list)
            for item in (box.values() if type(box) is dict else box)
        ]
        if not level:
            return
    raise JsonError("malformed")


# --- writing


def encode(value: Json | Frozen) -> bytes:
    """Return the canonical encoding: ASCII, compact, finite (SPEC E-14).

    Args:
        value: Plain or frozen.
    """
    return b"".join(pieces(value))


def pieces(value: Json | Frozen) -> Iterator[bytes]:
    """Give the canonical encoding in pieces, so that no step holds the thread long."""
    yield json.dumps(
        thaw(value), ensure_ascii=True, allow_nan=False, separators=(",", ":")
    ).encode("ascii")
