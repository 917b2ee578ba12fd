"""The log of an internal error: where it happened, never what the values were.

A traceback's message may quote a prompt or a response, so a report holds the kinds of
the exceptions and the frames, and no message of theirs.
"""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from heaveto.errors import HeavetoError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["describe", "write_report"]


def describe(error: BaseException) -> str:
    """Return the kinds and frames of an exception and of what caused it."""
    parts = [f"python {sys.version.split()[0]} on {sys.platform}"]
    for link in _chain(error):
        parts.append(f"{type(link).__module__}.{type(link).__qualname__}")
        parts += [
            f"  {frame.filename}:{frame.lineno} in {frame.name}"
            for frame in traceback.extract_tb(link.__traceback__)
        ]
    return "\n".join(parts) + "\n"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, then what it came from, each once."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        if isinstance(link, BaseExceptionGroup):
            for inner in link.exceptions:
                yield from _chain(inner)
        link = link.__cause__ or link.__context__


def write_report(error: BaseException) -> Path | None:
    """Write a report of its own file and return where; None when it cannot be done."""
    from heaveto.files import Directory, make_directories

    for folder in _folders():
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        name = f"internal-{stamp}-{uuid4().hex[:6]}.log"
        try:
            make_directories(folder)
            with Directory.open(folder) as directory, directory.create(name) as report:
                report.append(describe(error).encode("utf-8", "backslashreplace"))
        except (OSError, HeavetoError):
            continue
        return folder / name
    return None


def _folders() -> Iterator[Path]:
    """Yield where a report may go: the user's log folder, else a temporary one."""
    from platformdirs import user_log_path

    yield user_log_path("heaveto", appauthor=False)
    yield Path(tempfile.gettempdir())
