"""Lines of text on a grid of cells: the one currency of every pane.

A line is a tuple of ``(text, role)`` pairs. Roles are names, never colours: ``text
muted good live hold bad note`` and, with a ``+``, ``bold`` or ``under`` (focus). The
widgets turn roles into styles; the tests read them as they are.

Everything here is pure. Text that enters a line has passed :meth:`Look.plain`, so that
what is measured here is what a terminal draws.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from heaveto import text as texts
from heaveto.text import plain

__all__ = [
    "CRUMB",
    "DASH",
    "EMPTY",
    "Line",
    "Look",
    "boxed",
    "cell_width",
    "clip",
    "clip_start",
    "even",
    "fit",
    "join",
    "line_text",
    "line_width",
    "pad",
]

Line: TypeAlias = tuple[tuple[str, str], ...]
EMPTY: Line = ()
DASH = "\u2013"
"""What stands where a value is missing; never a 0 for what is unknown."""
CRUMB = "\u203a"
"""What stands between the names of a path through the places."""

_GLYPHS = {
    "○": ".",
    "◐": "%",
    "¦": "_",
    "‖": "=",
    "▼": "V",
    "●": "#",
    "□": "E",
    "✗": "X",
    "▲": "^",
    DASH: "-",
    "◊": ":",
    "⊘": "C",
    "⊗": "A",
    "◷": "T",
    "†": "D",
    "◌": "Q",
    "→": "S",
    "◑": "@",
    "★": "*",
    "▸": "+",
    "▾": "-",
    "┃": "|",
    "▌": ">",
    "·": "-",
    "“": '"',
    "”": '"',
    "│": "|",
    "─": "-",
    "├": "|",
    "└": "`",
    "╭": "+",
    "╮": "+",
    "╰": "+",
    "╯": "+",
    "←": "<",
    CRUMB: ">",
    "•": "*",
    "▏": "_",
    "»": ">",
    "█": "#",
    "▒": "%",
    "░": "=",
    "╌": "~",
    "┊": ":",
}
_TO_ASCII = str.maketrans(_GLYPHS)
_NARROW = dict.fromkeys(map(ord, [*_GLYPHS, "…", "↵", "↑", "↓"]), None)
"""Our own signs, each of one cell: lines of them need no table of widths."""

_PUNCTUATION = str.maketrans(
    {"·": "-", DASH: "-", "“": '"', "”": '"', "…": "..", "\u2019": "'"}
)
"""What sentences use beyond ASCII; in a name it stands for the same."""

_JOINERS = dict.fromkeys(
    [0x200D, 0x20E3, 0xFE0E, 0xFE0F, *range(0x1F3FB, 0x1F400)], None
) | {0x1F1E6 + n: chr(0x41 + n) for n in range(26)}
"""What glues characters into one picture, whose width no two programs agree on."""


def cell_width(text: str) -> int:
    """Return how many cells an inert text takes.

    The same as :func:`heaveto.text.cell_width`, without the tables of widths where
    there is nothing but ASCII and our own signs: they take long to import.
    """
    if text.isascii() or text.translate(_NARROW).isascii():
        return len(text)
    return texts.cell_width(text)


def clip(text: str, width: int, *, mark: str = "…") -> str:
    """Return the text cut at its end; see :func:`heaveto.text.clip`."""
    if cell_width(text) <= width:
        return text
    if not text.translate(_NARROW).isascii():
        return texts.clip(text, width, mark=mark)
    room = width - len(mark)
    return text[:room] + mark if room >= 0 else ""


def clip_start(text: str, width: int, *, mark: str = "…") -> str:
    """Return the text cut at its start; see :func:`heaveto.text.clip_start`."""
    if cell_width(text) <= width:
        return text
    if not text.translate(_NARROW).isascii():
        return texts.clip_start(text, width, mark=mark)
    room = width - len(mark)
    return mark + text[len(text) - room :] if room >= 0 else ""


@lru_cache(maxsize=4096)
def even(text: str) -> str:
    """Return text whose width every width table agrees on.

    Joined emoji are shown as their parts and flags as letters; a character that the
    drawing library measures otherwise than the terminal becomes ``?``.

    Args:
        text: Text that passed :func:`heaveto.text.plain`.
    """
    from rich.cells import cell_len

    if text.translate(_NARROW).isascii():
        return text
    parts = text.translate(_JOINERS)
    if cell_len(parts) == cell_width(parts):
        return parts
    return "".join(
        char if cell_len(char) == cell_width(char) > 0 else "?" for char in parts
    )


@dataclass(frozen=True, slots=True)
class Look:
    """How text is spelled on this terminal.

    Attributes:
        ascii_only: Draw with ASCII signs alone, and spell other characters out.
    """

    ascii_only: bool = False

    @property
    def cut(self) -> str:
        """What stands where something was cut off."""
        return ".." if self.ascii_only else "…"

    @property
    def enter(self) -> str:
        """How the Enter key is called."""
        return "Enter" if self.ascii_only else "↵"

    @property
    def arrows(self) -> str:
        """How the keys up and down are called."""
        return "up/down" if self.ascii_only else "↑↓"

    def plain(self, text: object) -> str:
        """Return one inert line of a run's text, as wide as it will be drawn."""
        line = plain(text)
        if line.isascii():
            return line
        if self.ascii_only:
            line = line.translate(_PUNCTUATION)
            return line.encode("ascii", "backslashreplace").decode("ascii")
        return even(line)

    def clip(self, text: str, width: int) -> str:
        """Cut at the end: names and sentences."""
        return clip(text, width, mark=self.cut)

    def clip_start(self, text: str, width: int) -> str:
        """Cut at the start: paths and homes."""
        return clip_start(text, width, mark=self.cut)

    def wrap(self, text: str, width: int) -> list[str]:
        """Break an inert line into lines of at most ``width`` cells."""
        return list(_wrapped(text, width)) if width > 0 else []

    def spelled(self, line: Line) -> Line:
        """Return the line in this terminal's signs, one for one.

        Every line passes here on its way to the terminal. What acts there has been
        spelled out before; should a text have come another way, it is spelled out now.
        """
        if not line_text(line).isprintable():
            line = tuple((self.plain(text), role) for text, role in line)
        if not self.ascii_only:
            return line
        return tuple(
            (text if text.isascii() else text.translate(_TO_ASCII), role)
            for text, role in line
        )


@lru_cache(maxsize=4096)
def _wrapped(text: str, width: int) -> tuple[str, ...]:
    """Break a line; what is in view is broken again at every drawing."""
    if text.isascii():
        return tuple(textwrap.wrap(text, width, drop_whitespace=True)) or ("",)
    return tuple(_wrap_wide(text, width))


def _wrap_wide(text: str, width: int) -> list[str]:
    """Wrap by cells, at spaces where there are some."""
    lines: list[str] = []
    current = ""
    for word in text.split(" "):
        candidate = f"{current} {word}" if current else word
        if cell_width(candidate) <= width:
            current = candidate
            continue
        if current:
            lines.append(current)
        while cell_width(word) > width:
            head = clip(word, width, mark="") or word[:1]
            lines.append(head)
            word = word[len(head) :]
        current = word
    return [*lines, current] if current or not lines else lines


def line_text(line: Line) -> str:
    """Return the text of a line without its roles."""
    return "".join([text for text, _ in line])


def line_width(line: Line) -> int:
    """Return how many cells a line takes."""
    return sum([cell_width(text) for text, _ in line])


def pad(text: str, width: int, *, right: bool = False, mark: str = "…") -> str:
    """Return the text in exactly ``width`` cells, cut or filled with blanks.

    Args:
        text: Inert text.
        width: Cells.
        right: Fill on the left, for numbers and times.
        mark: What stands for what is cut off.
    """
    if width <= 0:
        return ""
    size = cell_width(text)
    if size > width:
        text = clip(text, width, mark=mark)
        size = cell_width(text)
    blanks = " " * (width - size)
    return blanks + text if right else text + blanks


def fit(line: Line, width: int, *, mark: str = "…") -> Line:
    """Return the line in exactly ``width`` cells."""
    room = width
    out: list[tuple[str, str]] = []
    for text, role in line:
        size = len(text) if text.isascii() else cell_width(text)
        if size > room:
            cut = clip(text, room, mark=mark)
            if cut:
                out.append((cut, role))
                room -= cell_width(cut)
            break
        if size:
            out.append((text, role))
            room -= size
    if room > 0:
        out.append((" " * room, "text"))
    return tuple(out)


def join(left: Line, right: Line, width: int, *, mark: str = "…") -> Line:
    """Return a line with one part at each end; the left one gives way."""
    room = width - line_width(right)
    if room < 0:
        return fit(right, width, mark=mark)
    return (*fit(left, room, mark=mark), *right)


def boxed(title: str, body: list[Line], width: int) -> list[Line]:
    """Return lines inside a frame, ``width`` cells wide over all."""
    inner = width - 4
    head = f"╭─ {clip(title, inner - 2)} "
    top = head + "─" * (width - cell_width(head) - 1) + "╮"
    lines: list[Line] = [((top, "muted"),)]
    lines.extend((("│ ", "muted"), *fit(line, inner), (" │", "muted")) for line in body)
    lines.append((("╰" + "─" * (width - 2) + "╯", "muted"),))
    return lines
