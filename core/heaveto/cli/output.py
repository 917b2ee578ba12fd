r"""The only printer: inert lines for people, one JSON object for programs.

Everything that reaches a stream passes :func:`heaveto.text.plain` as a whole line or,
as JSON, :func:`heaveto.text.json_safe`; no escape sequence is ever written, whatever
the stream is. Data goes to standard output, everything else to standard error.

A reader that went away is no error: on standard error the rest is dropped, on standard
output :class:`OutputClosed` ends the verb quietly.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import sys
from typing import TYPE_CHECKING

from heaveto.errors import HeavetoError
from heaveto.text import json_safe, plain, plain_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import TextIO

__all__ = ["SCHEMA", "Output", "OutputClosed", "OutputError", "encode", "table"]

SCHEMA = 1
"""The version of every JSON object that a verb prints."""


class OutputClosed(Exception):
    """Nobody reads standard output any more."""


class OutputError(HeavetoError):
    """Standard output takes no more, as on a full disk."""

    default_code = "output"


def encode(value: object, *, ascii_only: bool = False, finite: bool = False) -> str:
    """Return one line of JSON that is safe on any terminal.

    A number that is not finite (an old checkpoint can hold one) becomes the text NaN,
    Infinity or -Infinity, since JSON has no such numbers.

    Args:
        value: Plain JSON values.
        ascii_only: Escape every character above U+007E.
        finite: All numbers are finite: the fast encoder, which cannot tell, will do.
    """
    if finite and not ascii_only:
        import orjson

        with contextlib.suppress(TypeError):  # what it does not take, as half a pair
            return json_safe(orjson.dumps(value).decode())

    def dump(value: object) -> str:
        return json.dumps(
            value, ensure_ascii=ascii_only, allow_nan=False, separators=(",", ":")
        )

    try:
        return json_safe(dump(value))
    except ValueError:
        return json_safe(dump(_finite(value)))


def _finite(value: object) -> object:
    """Return a value with every number that is not finite spelled as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity"}.get(str(value), "-Infinity")
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value


class Output:
    """Both streams of one verb.

    Attributes:
        json: Whether standard output carries JSON alone.
        quiet: Whether notes on the course of things are left out.
    """

    def __init__(
        self,
        *,
        as_json: bool = False,
        out: TextIO | None = None,
        err: TextIO | None = None,
    ) -> None:
        """Use the given streams, or the process's own."""
        self.json = as_json
        self.quiet = False
        self._out = out if out is not None else sys.stdout
        self._err: TextIO | None = err if err is not None else sys.stderr
        for stream in (self._out, self._err):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")

    def line(self, text: object = "") -> None:
        """Print one inert line on standard output."""
        self._write(plain(text) + "\n")

    def lines(self, text: object) -> None:
        """Print text of several lines on standard output, each of them inert."""
        self._write("".join(f"{line}\n" for line in plain_lines(text)))

    def answer(self, value: Mapping[str, object], *, finite: bool = False) -> None:
        """Print one JSON object, ``schema`` first, on standard output.

        Args:
            value: Plain JSON values.
            finite: See :func:`encode`.
        """
        encoding = (getattr(self._out, "encoding", None) or "ascii").lower()
        ascii_only = encoding.replace("-", "") != "utf8"
        whole = {"schema": SCHEMA, **value}
        self._write(encode(whole, ascii_only=ascii_only, finite=finite) + "\n")

    def note(self, text: object) -> None:
        """Print one inert line on standard error; a closed stream is no error."""
        if self._err is None:
            return
        try:
            self._err.write(plain(text) + "\n")
            self._err.flush()
        except (OSError, ValueError):
            self._err = None

    def progress(self, text: object) -> None:
        """Print a line on the course of things unless it was not wanted."""
        if not self.quiet:
            self.note(text)

    def warn(self, text: object) -> None:
        """Print a warning on standard error."""
        self.note(f"heaveto: warning: {text}")

    def refuse(self, error: HeavetoError) -> None:
        """Say what was refused: the sentence on stderr, with ``--json`` the object too.

        Raises:
            OutputClosed: Nobody reads standard output.
        """
        self.note(f"heaveto: {error.message}")
        for candidate in error.candidates:
            self.note(f"  {candidate}")
        if self.json:
            self.answer(
                {
                    "error": {
                        "code": error.code,
                        "message": error.message,
                        "candidates": list(error.candidates),
                    }
                }
            )

    def turn_to(self, out: TextIO) -> TextIO:
        """Print to another stream from now on; return the one before."""
        before, self._out = self._out, out
        return before

    def flush(self) -> None:
        """Hand everything to the system.

        Raises:
            OutputClosed: Nobody reads standard output.
        """
        self._write("")

    def _write(self, text: str) -> None:
        """Write to standard output and find out at once whether it was taken."""
        try:
            self._out.write(text)
            self._out.flush()
        except BrokenPipeError:
            _silence(self._out)
            raise OutputClosed from None
        except OSError as error:
            _silence(self._out)
            raise OutputError(
                f"standard output takes no more: {error.strerror}"
            ) from None


def _silence(stream: TextIO) -> None:
    """Point a broken stream to nowhere, so that the interpreter's exit is quiet."""
    with contextlib.suppress(OSError, ValueError, io.UnsupportedOperation):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[int] = ()
) -> list[str]:
    """Return lines in columns, widths in terminal cells.

    Args:
        head: The column titles.
        rows: Cells; they may hold text from a run.
        right: Indexes of the columns that are set flush right.
    """
    from heaveto.text import cell_width

    body = [[plain(cell) for cell in row] for row in rows]
    grid = [list(head), *body]
    widths = [max(cell_width(row[at]) for row in grid) for at in range(len(head))]
    flush = set(right)
    return [
        "  ".join(
            _pad(cell, width, at in flush)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in grid
    ]


def _pad(cell: str, width: int, right: bool) -> str:
    """Fill a cell up to a width in terminal cells."""
    from heaveto.text import cell_width

    room = " " * max(0, width - cell_width(cell))
    return room + cell if right else cell + room
