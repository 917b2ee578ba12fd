"""Labels as every terminal shows them: inert, of a width nobody disputes, cut to size.

Terminals and width tables disagree about joined emoji, flags, keycaps and variation
selectors. A box is only as straight as its label is measured, so such sequences are
replaced by plain characters whose widths simply add up.
"""

from __future__ import annotations

import re
from functools import lru_cache

from heaveto.text import cell_width, plain

__all__ = ["cut", "inert"]

_TAIL = re.compile(r"[^\w]?[0-9]{1,6}$")
_JOINED = re.compile("\u200d+[\u2190-\u2bff\U0001f000-\U0001faff]?")
_DROPPED = re.compile(
    "[\u00ad\u034f\u115f\u1160\u180b-\u180f\u3164\uffa0"  # nothing, or a blank
    "\ufe00-\ufe0f\u20e3\U0001f3fb-\U0001f3ff\U000e0100-\U000e01ef]"
)
_FLAG = re.compile("[\U0001f1e6-\U0001f1ff]")


def inert(text: object, *, ascii_only: bool = False) -> str:
    """Return one harmless line whose width is the sum of the widths of its characters.

    Args:
        text: Anything from a run.
        ascii_only: Spell out what is not ASCII.
    """
    line = plain(text)
    if line.isascii():
        return line
    if ascii_only:
        return line.encode("ascii", "backslashreplace").decode("ascii")
    return _simple(line)


def cut(line: str, width: int, *, mark: str = "…") -> str:
    """Return an inert line cut in its middle, so that a number at its end stays.

    Args:
        line: A line from :func:`inert`.
        width: Cells it may take, at least 4.
        mark: What stands for the part left out.
    """
    if len(line) <= width and line.isascii():
        return line
    widths = [cell_width(sign) for sign in line]
    if sum(widths) <= width:
        return line
    room = width - cell_width(mark)
    tail = _TAIL.search(line)
    start = tail.start() if tail and tail.start() else len(line)
    if len(line) - start > room // 2:
        start = len(line)
    end, used = 0, sum(widths[start:])
    while used + widths[end] <= room:
        used += widths[end]
        end += 1
    short = line[:end] + mark + line[start:]
    if sum(map(cell_width, short)) != cell_width(short):
        return cut(_bare(line), width, mark=mark)  # a sign lost the one it joins
    return short


@lru_cache(maxsize=4096)
def _simple(line: str) -> str:
    line = _JOINED.sub("", line)
    line = _DROPPED.sub("", line)
    line = _FLAG.sub(lambda found: chr(ord(found.group()) - 0x1F1E6 + 65), line)
    if line and not cell_width(line[0]):
        line = f" {line}"  # a mark needs something to stand on
    return line if sum(map(cell_width, line)) == cell_width(line) else _bare(line)


def _bare(line: str) -> str:
    """Return the line with nothing left that could join, one cell a sign."""
    return "".join(sign if sign.isascii() else "\ufffd" for sign in line)
