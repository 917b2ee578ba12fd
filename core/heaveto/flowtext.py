"""The text of a flow file: a plain tree, and the line on which each part of it stands.

A part is named by its path, member names and indices, as in
``("operations", 1, "depends_on", 0)``. TOML is read by :mod:`tomllib`, which forgets
where a value stood; a second, much simpler walk over the text, which is then known to
be well formed, notes the lines. JSON is read here, because the standard reader keeps
the last of two equal members and takes NaN for a number.

Pure. A byte order mark is accepted, as editors write it.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from json.decoder import JSONDecodeError
from json.decoder import scanstring as _scan  # type: ignore[attr-defined]
from typing import Any, NoReturn

from heaveto.errors import FlowFileError

__all__ = ["Document", "Path", "parse"]

Path = tuple[str | int, ...]

_MAX_DEPTH = 200


class Document:
    """What a text says and where it says it.

    Attributes:
        value: Plain dicts, lists and scalars; TOML dates are kept as they are.
        name: How the file is called in an error.
    """

    def __init__(self, value: Any, name: str, lines: dict[Path, int]) -> None:
        """Keep the tree and the lines."""
        self.value = value
        self.name = name
        self._lines = lines

    def line(self, path: Path) -> int:
        """Return the line of a part, or of what is around it when it is not there."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)


def parse(data: bytes, *, name: str) -> Document:
    """Read TOML or JSON.

    Args:
        data: The bytes of the file.
        name: Its path; the ending ``.toml`` or ``.json`` decides, without one the
            first character does.

    Raises:
        FlowFileError: No UTF-8, or not well formed; with its line.
    """
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FlowFileError("not UTF-8", path=name, line=line) from None
    is_json = name.endswith(".json")
    if not is_json and not name.endswith(".toml"):
        is_json = text.lstrip().startswith("{")
    if is_json:
        reader = _Json(text, name)
        return Document(reader.document(), name, reader.lines)
    value = _toml(text, name)
    return Document(value, name, _TomlLines(text, name).walk())


def _toml(text: str, name: str) -> dict[str, Any]:
    if (deep := _long_key(text)) is not None:
        line = text.count("\n", 0, deep) + 1
        raise FlowFileError("nested too deeply", path=name, line=line)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
    except RecursionError:
        raise FlowFileError("nested too deeply", path=name) from None
    except ValueError:  # Python converts no more digits than that
        number = re.search(r"[0-9_]{4000,}", text)
        line = 1 if number is None else text.count("\n", 0, number.start()) + 1
        raise FlowFileError("a number is too long", path=name, line=line) from None
    found = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", message)
    line = int(found[1]) if found and found[1] else text.count("\n") + 1
    reason = message[: found.start()] if found else message
    raise FlowFileError(reason, path=name, line=line)


def _long_key(text: str) -> int | None:
    """Return where a dotted key begins that would take the reader for ever."""
    if _LONG_KEY.search(text) is None:
        return None
    tokens = _TOML_TOKEN.finditer(text)  # it may stand in a string or a comment
    return next((each.start() for each in tokens if each["deep"]), None)


class _Walk:
    """A place in a text that moves forward and notes lines."""

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name
        self.at = 0
        self.lines: dict[Path, int] = {}
        self._breaks = [found.start() for found in re.finditer("\n", text)]

    def line(self, at: int | None = None) -> int:
        return bisect_right(self._breaks, (self.at if at is None else at) - 1) + 1

    def note(self, path: Path) -> None:
        self.lines.setdefault(path, self.line())

    def next(self) -> str:
        return self.text[self.at : self.at + 1]

    def skip(self, pattern: re.Pattern[str]) -> str:
        """Move over what matches here and return it; it may be nothing."""
        found = pattern.match(self.text, self.at)
        if found is None:
            return ""
        self.at = found.end()
        return found.group()


_JSON_SPACE = re.compile(r"[ \t\r\n]*")
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_JSON_WORD = re.compile(r"-?[A-Za-z]+")
_JSON_WORDS = {"true": True, "false": False, "null": None}


class _Json(_Walk):
    """Strict JSON (RFC 8259) with the line of every member and item."""

    def document(self) -> Any:
        self.skip(_JSON_SPACE)
        value = self._value((), 0)
        self.skip(_JSON_SPACE)
        if self.next():
            self._refuse("text after the end of the document")
        return value

    def _refuse(self, text: str, path: Path = ()) -> NoReturn:
        member = ".".join(str(part) for part in path)
        raise FlowFileError(text, path=self.name, line=self.line(), member=member)

    def _value(self, path: Path, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            self._refuse("nested too deeply")
        self.note(path)
        first = self.next()
        if first == "{":
            return self._object(path, depth)
        if first == "[":
            return self._array(path, depth)
        if first == '"':
            return self._string()
        return self._scalar()

    def _scalar(self) -> Any:
        found = _JSON_NUMBER.match(self.text, self.at)
        if found is None:
            start = self.at
            word = self.skip(_JSON_WORD)
            if word in _JSON_WORDS:
                return _JSON_WORDS[word]
            self.at = start
            what = f"{word} is no JSON value" if word else "a value is missing"
            self._refuse(what)
        if len(found.group()) > 4000:
            self._refuse("a number is too long")
        self.at = found.end()
        exact = found[1] is None and found[2] is None
        return int(found.group()) if exact else float(found.group())

    def _string(self) -> str:
        try:
            value, self.at = _scan(self.text, self.at + 1, True)
        except JSONDecodeError as error:
            self.at = min(error.pos, len(self.text))
            self._refuse(error.msg)
        return str(value)

    def _object(self, path: Path, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._more(found, "}"):
            if self.next() != '"':
                self._refuse("a member name in quotes is missing")
            line = self.line()
            name = self._string()
            if name in found:
                self._refuse("the member occurs twice", (*path, name))
            self.lines[*path, name] = line
            self.skip(_JSON_SPACE)
            if self.next() != ":":
                self._refuse("a colon is missing")
            self.at += 1
            self.skip(_JSON_SPACE)
            found[name] = self._value((*path, name), depth + 1)
        return found

    def _array(self, path: Path, depth: int) -> list[Any]:
        found: list[Any] = []
        while self._more(found, "]"):
            found.append(self._value((*path, len(found)), depth + 1))
        return found

    def _more(self, found: object, end: str) -> bool:
        """Move to the next member or item; False: the container is closed."""
        first = not found
        if first:
            self.at += 1
        self.skip(_JSON_SPACE)
        if self.next() == end:
            self.at += 1
            return False
        if first:
            return True
        if self.next() != ",":
            self._refuse(f"a comma or {end} is missing")
        self.at += 1
        self.skip(_JSON_SPACE)
        return True


_TOML_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_TOML_SPACE = re.compile(r"[ \t]*")
_TOML_BARE = re.compile(r"[A-Za-z0-9_-]+")
_TOML_SCALAR = re.compile(r"[^,\]}\n#]*")
_TOML_STRINGS = (
    re.compile(r'"""(?:[^\\]|\\.)*?"""(?:"{0,2})', re.DOTALL),
    re.compile(r"'''.*?'''(?:'{0,2})", re.DOTALL),
    re.compile(r'"(?:[^"\\]|\\.)*"'),
    re.compile(r"'[^']*'"),
)


# Possessive, and only from the beginning of a word: linear in long words and blanks.
_KEY = r"""(?:(?<![A-Za-z0-9_-])[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')"""
_LONG_KEY = re.compile(rf"{_KEY}(?:[ \t]*+\.[ \t]*+{_KEY}){{{_MAX_DEPTH}}}")
_TOML_TOKEN = re.compile(
    rf"{_TOML_STRINGS[0].pattern}|{_TOML_STRINGS[1].pattern}|(?P<deep>{_LONG_KEY.pattern})"
    r"""|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|\#[^\n]*|[A-Za-z0-9_-]+|.""",
    re.DOTALL,
)


class _TomlLines(_Walk):
    """The lines of a TOML text that :mod:`tomllib` has accepted."""

    def walk(self) -> dict[Path, int]:
        """Note every header, member and item."""
        table: Path = ()
        self._items: dict[Path, int] = {}
        while self.skip(_TOML_BLANK) or self.next():
            if not self.next():
                break
            if self.next() == "[":
                table = self._header()
            else:
                self._member(table)
        return self.lines

    def _header(self) -> Path:
        """Read ``[a.b]`` or ``[[a.b]]`` and return the path it opens."""
        is_item = self.text.startswith("[[", self.at)
        self.at += 2 if is_item else 1
        names = self._names()
        path = self._resolve(names)
        if is_item:
            self.lines.setdefault(path, self.line())
            self._items[path] = self._items.get(path, -1) + 1
            path = (*path, self._items[path])
        self.note(path)
        self.at += 2 if is_item else 1
        return path

    def _resolve(self, names: list[str]) -> Path:
        """Turn the names of a header into a path, through the last items so far."""
        path: Path = ()
        for name in names:
            if path in self._items:
                path = (*path, self._items[path])
            path = (*path, name)
        return path

    def _names(self) -> list[str]:
        names = []
        while True:
            self.skip(_TOML_SPACE)
            names.append(self._name())
            self.skip(_TOML_SPACE)
            if self.next() != ".":
                return names
            self.at += 1

    def _name(self) -> str:
        if self.next() not in ("'", '"'):
            return self.skip(_TOML_BARE)
        quoted = self._quoted()
        return str(next(iter(tomllib.loads(f"{quoted} = 0"))))

    def _quoted(self) -> str:
        return next(found for kind in _TOML_STRINGS if (found := self.skip(kind)))

    def _member(self, table: Path) -> None:
        """Read ``a.b = value``."""
        start = self.line()
        path = table
        for name in self._names():
            path = (*path, name)
            self.lines.setdefault(path, start)
        self.at += 1
        self.skip(_TOML_SPACE)
        self._value(path)

    def _value(self, path: Path) -> None:
        if len(path) > _MAX_DEPTH:
            line = self.line()
            raise FlowFileError("nested too deeply", path=self.name, line=line)
        first = self.next()
        if first == "[":
            self._list(path)
        elif first == "{":
            self._inline(path)
        elif first in ("'", '"'):
            self._quoted()
        else:
            self.skip(_TOML_SCALAR)

    def _list(self, path: Path) -> None:
        self.at += 1
        index = 0
        while True:
            self.skip(_TOML_BLANK)
            if self.next() == "]":
                break
            self.note((*path, index))
            self._value((*path, index))
            index += 1
            self._comma()
        self.at += 1

    def _inline(self, path: Path) -> None:
        self.at += 1
        while True:
            self.skip(_TOML_BLANK)
            if self.next() == "}":
                break
            self._member(path)
            self._comma()
        self.at += 1

    def _comma(self) -> None:
        self.skip(_TOML_BLANK)
        if self.next() == ",":
            self.at += 1
