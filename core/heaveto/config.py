"""The settings file: ``config.toml``, strictly read.

It lies in ``$HEAVETO_CONFIG`` or in platformdirs' configuration folder. A file that is
not there means defaults; a file that is there and cannot be used stops the start with
its name, line and key (PRODUCT 1), so that nobody works with settings he did not write.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from heaveto.errors import HomeError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Config", "config_path", "load_config"]

_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The settings, with their defaults.

    Attributes:
        path: The file they come from; None when there is none.
        homes: Further homes to open.
        lionagi: Open lionagi's home where there is one.
        theme: Name of the console's theme; None lets the console choose.
        ascii: Draw with ASCII alone.
        keys: Name of a key set, or single keys by the name of what they do.
        notify: Command to run when a run has ended, as one string; None for none.
        motion: False stops running clocks.
        mouse: False leaves the mouse to the terminal.
        bell: False keeps the console silent.
    """

    path: Path | None = None
    homes: tuple[Path, ...] = ()
    lionagi: bool = True
    theme: str | None = None
    ascii: bool = False
    keys: str | Mapping[str, str] = field(default_factory=dict)
    notify: str | None = None
    motion: bool = True
    mouse: bool = True
    bell: bool = True


def config_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where the settings file is looked for."""
    given = environ.get("HEAVETO_CONFIG")
    if given:
        return Path(given).expanduser()
    import platformdirs  # these two cost a short verb more than the rest of this

    return Path(platformdirs.user_config_path("heaveto")) / "config.toml"


def load_config(
    path: Path | None = None, environ: Mapping[str, str] = os.environ
) -> Config:
    """Read the settings.

    Args:
        path: The file; None looks for it with :func:`config_path`.
        environ: The environment.

    Raises:
        HomeError: ``config_invalid``, as ``file:line: key: text``.
    """
    where = config_path(environ) if path is None else path
    try:
        with open(where, "rb") as stream:
            data = stream.read(_LIMIT + 1)
    except (FileNotFoundError, NotADirectoryError):
        return Config()
    except OSError as error:
        raise _invalid(where, None, "", f"cannot be read: {error.strerror}") from None
    if len(data) > _LIMIT:
        raise _invalid(where, None, "", "is too large")
    text = _decode(where, data)
    return _checked(where, text, _parse(where, text))


def _decode(where: Path, data: bytes) -> str:
    """Decode the file; a byte order mark is fine."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _invalid(where, line, "", "is not UTF-8") from None


def _parse(where: Path, text: str) -> dict[str, object]:
    """Parse TOML and keep the place of a mistake."""
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        words = str(error)
        found = re.search(r"\s*\(at line (\d+), column \d+\)", words)
        line = int(found.group(1)) if found else text.count("\n") + 1
        key = _key_in(text.splitlines(), line)
        said = words[: found.start()] if found else words.split(" (")[0]
        raise _invalid(where, line, key, said) from None
    except RecursionError:
        raise _invalid(where, None, "", "is nested too deeply") from None


def _key_in(lines: list[str], number: int) -> str:
    """Return the key that a line begins with, if it does."""
    line = lines[number - 1] if 0 < number <= len(lines) else ""
    found = re.match(r"\s*([A-Za-z0-9_.-]+)\s*=", line)
    return found.group(1) if found else ""


def _checked(where: Path, text: str, found: dict[str, object]) -> Config:
    """Check every key and its type."""
    checks = {
        "homes": _homes,
        "lionagi": _boolean,
        "theme": _string,
        "ascii": _boolean,
        "keys": _keys,
        "notify": _string,
        "motion": _switch,
        "mouse": _switch,
        "bell": _switch,
    }
    values: dict[str, object] = {}
    for key, value in found.items():
        check = checks.get(key)
        try:
            if check is None:
                raise ValueError("unknown setting")
            values[key] = check(value)
        except ValueError as error:
            raise _invalid(where, _line_of(text, key), key, str(error)) from None
    return Config(path=where, **values)  # type: ignore[arg-type]


def _boolean(value: object) -> bool:
    """Check a switch."""
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def _switch(value: object) -> bool:
    """Check a switch that may be spelled on and off."""
    if value in ("on", "off"):
        return value == "on"
    if not isinstance(value, bool):
        raise ValueError('expected true or false, "on" or "off"')
    return value


def _string(value: object) -> str:
    """Check a text."""
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError("expected a text")
    return value


def _homes(value: object) -> tuple[Path, ...]:
    """Check a list of folders; ``~`` is the user's, relative paths are refused."""
    if not isinstance(value, list):
        raise ValueError("expected a list of folders")
    homes = []
    for item in value:
        path = Path(_string(item)).expanduser()
        if not path.is_absolute():
            raise ValueError("expected absolute paths")
        homes.append(path)
    return tuple(homes)


def _keys(value: object) -> str | dict[str, str]:
    """Check the name of a key set or a table of keys."""
    if isinstance(value, str):
        return _string(value)
    if not isinstance(value, dict):
        raise ValueError("expected the name of a key set, or a table of keys")
    for name, key in value.items():
        if not isinstance(key, str):
            raise ValueError(f"{name}: expected a text")
    return value


def _line_of(text: str, key: str) -> int | None:
    """Return the line on which a top-level key is set."""
    word = re.escape(key)
    pattern = rf"^\s*(?:\[\s*)?[\"']?{word}[\"']?\s*(?:=|\]|\.)"
    found = re.search(pattern, text, re.MULTILINE)
    return None if found is None else text.count("\n", 0, found.end()) + 1


def _invalid(where: Path, line: int | None, key: str, text: str) -> HomeError:
    """Return the error for a settings file that cannot be used."""
    place = str(where) if line is None else f"{where}:{line}"
    words = ": ".join(part for part in (place, key, text) if part)
    return HomeError(words, code="config_invalid")
