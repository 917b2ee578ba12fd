"""Text that people read: the one sanitiser, cell widths, ages and clipped lines.

Text from a run (names, messages, model output, paths, error texts) is hostile. On its
way to a terminal it passes :func:`plain` or :func:`plain_lines`; on its way into JSON
that a terminal may show it passes :func:`json_safe`. Nothing else in the project
removes or rewrites control characters, and nothing interprets markup.

Everything here is pure and safe in any thread. Widths are in terminal cells.
"""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = [
    "age",
    "cell_width",
    "clip",
    "clip_start",
    "duration",
    "json_safe",
    "plain",
    "plain_lines",
    "printable_json",
    "short_id",
]

# C0, DEL, C1, the bidirectional controls and isolates, the invisible separators that
# some terminals act on, interlinear marks, and the tag block that hides text.
_UNSAFE_RANGES = (
    "\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
)
_UNSAFE = re.compile(f"[{_UNSAFE_RANGES}\ud800-\udfff]")
_UNSAFE_BUT_LF = re.compile(
    f"[{_UNSAFE_RANGES}\ud800-\udfff]".replace("\x00-\x1f", "\x00-\x09\x0b-\x1f")
)
_JSON_UNSAFE = re.compile(
    "[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def _visible(match: re.Match[str]) -> str:
    """Spell one unsafe character so that it is seen and does nothing."""
    point = ord(match.group())
    if point == 9:
        return "    "
    if 0xD800 <= point <= 0xDFFF:
        return "\ufffd"
    if point <= 0xFF:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point <= 0xFFFF else f"\\U{point:08x}"


def plain(text: object) -> str:
    r"""Return one inert line: every control character spelled out, none obeyed.

    Args:
        text: Anything from a run; what is not a string is converted with ``str``.

    Returns:
        Text without C0, C1, DEL, bidirectional controls, invisible separators or lone
        surrogates. A tab becomes four spaces, a line break ``\x0a``, a lone surrogate
        U+FFFD.
    """
    return _UNSAFE.sub(_visible, text if isinstance(text, str) else str(text))


def plain_lines(text: object) -> list[str]:
    """Return inert lines, split on LF and CR LF only.

    Args:
        text: Anything from a run.

    Returns:
        At least one line; a final line break does not add an empty one.
    """
    whole = text if isinstance(text, str) else str(text)
    lines = whole.replace("\r\n", "\n").split("\n")
    if len(lines) > 1 and not lines[-1]:
        lines.pop()
    return [plain(line) for line in lines]


def json_safe(encoded: str) -> str:
    r"""Escape what JSON leaves raw in encoded text: DEL, C1, bidi, lone surrogates.

    Args:
        encoded: Encoded JSON, in which such a character can only be inside a string.

    Returns:
        The same JSON with each of them as ``\uXXXX`` (PRODUCT 2, Output).
    """
    return _JSON_UNSAFE.sub(lambda found: f"\\u{ord(found.group()):04x}", encoded)


def printable_json(encoded: bytes) -> str:
    """Decode UTF-8 JSON and make it safe to print; see :func:`json_safe`."""
    return json_safe(encoded.decode("utf-8", "surrogatepass"))


def cell_width(text: str) -> int:
    """Return how many terminal cells an inert text takes.

    Args:
        text: Text that passed :func:`plain`.

    Returns:
        Cells by the tables of wcwidth, with joined emoji counted as one cluster.
    """
    if text.isascii():
        return len(text)
    return _wide_width(text)


@lru_cache(maxsize=4096)
def _wide_width(text: str) -> int:
    from wcwidth import wcswidth  # about 5 ms to import; most text is ASCII

    width = wcswidth(text)
    return width if width >= 0 else sum(1 for _ in text)


def clip(text: str, width: int, *, mark: str = "…") -> str:
    """Return the text cut to a width in cells, with a mark where something is left out.

    Args:
        text: Text that passed :func:`plain`.
        width: Cells; below one the result is empty.
        mark: What stands for the rest; ``"~"`` in ASCII mode.
    """
    if cell_width(text) <= width:
        return text
    if width < 1:
        return ""
    room = width - cell_width(mark)
    if room < 0:
        return ""
    end = min(len(text), room)
    if not text.isascii():
        end = _fitting(text, room)
    return text[:end] + mark


def clip_start(text: str, width: int, *, mark: str = "…") -> str:
    """Return the text cut at its start, as for paths, whose end tells them apart."""
    if cell_width(text) <= width:
        return text
    start = 0
    while start < len(text) and cell_width(text[start:]) > width - cell_width(mark):
        start += 1
    return clip(mark + text[start:], width, mark=mark)


def _fitting(text: str, room: int) -> int:
    """Return the longest prefix, in characters, that fits into the cells."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if cell_width(text[:middle]) <= room:
            low = middle
        else:
            high = middle - 1
    return low


def duration(seconds: float) -> str:
    """Return a length of time in at most two units: ``0.4s 12s 3m05s 2h10m 4d03h``.

    Args:
        seconds: A length; a negative one (a clock that jumped) reads as zero.
    """
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600:02d}h"


def age(then: float | None, now: float) -> str:
    """Return how long ago a moment was, in one unit: ``now 12s 3m 2h 4d``.

    Args:
        then: Epoch seconds; None, unknown, gives ``-``.
        now: Epoch seconds.
    """
    if then is None:
        return "-"
    seconds = int(max(0.0, now - then))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s" if seconds else "now"


def short_id(identifier: str) -> str:
    """Return the eight characters by which people call a session or a control."""
    return plain(identifier[:8])
