"""Reading a plain tree strictly: every value has a reader, every fault has a place.

A reader takes a value and its path and returns what it means, or raises
:class:`Fault`. :func:`read_members` takes an object apart by a table of readers and
refuses what the table does not name. Pure.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from heaveto.jsonvalue import MAX_DIGITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from heaveto.flowtext import Path

    Reader = Callable[[object, Path], Any]

__all__ = [
    "Fault",
    "duration",
    "identifier",
    "items",
    "json_value",
    "mapping",
    "member_name",
    "not_yet",
    "one_of",
    "parse_duration",
    "parse_size",
    "read_members",
    "size",
    "text",
    "truth",
    "whole_number",
]

_ID = re.compile("[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?) *(s|m|h|)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
_SIZE = re.compile(r"([0-9]+) *(B|KiB|MiB|GiB|)")
_BYTES = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_LONGEST_S = 10 * 366 * 86_400
_LARGEST = 1 << 50
_DEEPEST = 200
_TOO_LONG = 10**MAX_DIGITS


class Fault(Exception):
    """A mistake in a tree: where it is and what it is."""

    def __init__(self, path: Path, text: str) -> None:
        """Keep the place and the sentence."""
        super().__init__(text)
        self.path = path
        self.text = text


def member_name(path: Path) -> str:
    """Write a path as people do: ``operations[1].depends_on[0]``."""
    written = ""
    for part in path:
        if isinstance(part, int):
            written += f"[{part}]"
        else:
            written += f".{part}" if written else part
    return written


def read_members(
    value: object,
    path: Path,
    readers: Mapping[str, Reader],
    *,
    required: Iterable[str] = (),
) -> dict[str, Any]:
    """Take an object apart.

    Args:
        value: What should be an object.
        path: Where it is.
        readers: A reader for every member that it may have.
        required: Members that it must have.

    Returns:
        What the readers made of the members that are there.

    Raises:
        Fault: It is no object, a member is unknown or missing, or a reader raised it.
    """
    members = mapping(value, path)
    for name in members:
        if name not in readers:
            raise Fault((*path, name), _unknown(name, readers))
    for name in required:
        if name not in members:
            raise Fault((*path, name), "is required")
    return {
        name: readers[name](inner, (*path, name)) for name, inner in members.items()
    }


def _unknown(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f'unknown member; is "{near[0]}" meant?' if near else "unknown member"


def _refuse(value: object, path: Path, wanted: str) -> Fault:
    return Fault(path, f"must be {wanted}, not {_kind(value)}")


def _kind(value: object) -> str:
    """Name the type of a value in the words of a flow file."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    for kinds, word in (
        (str, "text"),
        (int, "a whole number"),
        (float, "a number"),
        (Mapping, "an object"),
        ((list, tuple), "a list"),
    ):
        if isinstance(value, kinds):
            return word
    return (
        "a date or time" if "date" in type(value).__module__ else type(value).__name__
    )


def mapping(value: object, path: Path) -> Mapping[str, object]:
    """Read an object whose member names are text."""
    if not isinstance(value, Mapping):
        raise _refuse(value, path, "an object")
    for key in value:
        if not isinstance(key, str):
            raise Fault(path, "must have text as member names")
    return value


def items(reader: Reader, *, least: int = 0) -> Reader:
    """Make a reader of a list whose items all have one reader."""

    def read(value: object, path: Path) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise _refuse(value, path, "a list")
        if len(value) < least:
            raise Fault(path, "must not be empty")
        return tuple(reader(item, (*path, index)) for index, item in enumerate(value))

    return read


def text(value: object, path: Path) -> str:
    """Read text; no program can be given NUL or half a surrogate pair."""
    if not isinstance(value, str):
        raise _refuse(value, path, "text")
    if "\0" in value or (not value.isascii() and not _encodable(value)):
        raise Fault(path, "must not hold NUL or half a surrogate pair")
    return value


def _encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def identifier(value: object, path: Path) -> str:
    """Read an id (PRODUCT 5)."""
    if not isinstance(value, str):
        raise _refuse(value, path, "text")
    if not _ID.fullmatch(value):
        raise Fault(
            path, "must be 1 to 64 of A-Z a-z 0-9 _ -, beginning with a letter or digit"
        )
    return value


def truth(value: object, path: Path) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        raise _refuse(value, path, "true or false")
    return value


def whole_number(least: int) -> Reader:
    """Make a reader of a whole number that is not below ``least``."""

    def read(value: object, path: Path) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise _refuse(value, path, "a whole number")
        if not least <= value <= _LARGEST:
            raise Fault(path, f"must be {least} or more")
        return value

    return read


def one_of(*words: str) -> Reader:
    """Make a reader of one of some words."""

    def read(value: object, path: Path) -> str:
        if not isinstance(value, str) or value not in words:
            raise Fault(path, "must be " + " or ".join(f'"{word}"' for word in words))
        return value

    return read


def not_yet(allowed: Callable[[object], bool], otherwise: str) -> Reader:
    """Make a reader of a member that this version knows but does not serve.

    Args:
        allowed: Which values ask for nothing.
        otherwise: What may be written.
    """

    def read(value: object, path: Path) -> object:
        if not allowed(value):
            raise Fault(path, f"is not supported by this version ({otherwise})")
        return value

    return read


def parse_duration(value: object) -> float:
    """Return seconds from a number or from ``"90s"``, ``"15m"``, ``"2h"``.

    Raises:
        ValueError: It is none of these, negative, infinite or above ten years.
    """
    seconds = math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value) if abs(value) <= _LONGEST_S else math.inf
    elif isinstance(value, str) and (found := _DURATION.fullmatch(value.strip())):
        seconds = float(found[1]) * _SECONDS[found[2]]
    if not 0 <= seconds <= _LONGEST_S:
        raise ValueError('must be seconds, or a duration such as "90s", "15m", "2h"')
    return seconds


def duration(*, zero: bool = True) -> Reader:
    """Make a reader of a duration."""

    def read(value: object, path: Path) -> float:
        try:
            seconds = parse_duration(value)
        except ValueError as error:
            raise Fault(path, str(error)) from None
        if not seconds and not zero:
            raise Fault(path, "must be more than 0")
        return seconds

    return read


def parse_size(value: object) -> int:
    """Return bytes from a whole number or from ``"512B"``, ``"64KiB"``, ``"1MiB"``.

    Raises:
        ValueError: It is none of these, or not positive.
    """
    count = 0
    if isinstance(value, int) and not isinstance(value, bool):
        count = value
    elif isinstance(value, str) and len(value) < 32:
        found = _SIZE.fullmatch(value.strip())
        count = int(found[1]) * _BYTES[found[2]] if found else 0
    if not 0 < count <= _LARGEST:
        raise ValueError('must be bytes, or a size such as "64KiB", "1MiB"')
    return count


def size(value: object, path: Path) -> int:
    """Read a size."""
    try:
        return parse_size(value)
    except ValueError as error:
        raise Fault(path, str(error)) from None


def json_value(value: object, path: Path) -> Any:
    """Read any JSON value and return a copy: dicts, lists and scalars."""
    return _json(value, path, _DEEPEST)


def _json(value: object, path: Path, depth: int) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        if abs(value) >= _TOO_LONG:
            raise Fault(path, "is too long a number")
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Fault(path, "must be finite")
        return value
    if not depth:
        raise Fault(path, "is nested too deeply")
    if isinstance(value, list | tuple):
        return [_json(x, (*path, i), depth - 1) for i, x in enumerate(value)]
    if isinstance(value, Mapping):
        inner = mapping(value, path)
        return {key: _json(x, (*path, key), depth - 1) for key, x in inner.items()}
    raise _refuse(value, path, "a JSON value")
