"""What the terminal shows, kept in memory, so that only changed cells are sent.

The drawing library repaints regions: a changed word costs its whole row up to it, and
every piece of text carries its full colours. Here each update is compared with what the
terminal already shows and only the cells that differ are written, with the colours that
differ from the last ones written. A change of colour costs more than a jump of the
cursor, so what has the present colour is written first, and a blank, which shows only
its background, takes whatever colour is there. One changed status is then some hundred
bytes and a ticking clock a dozen, which is what a slow link has room for.

:class:`Shadow` does no I/O: runs of segments in, a string of escape sequences out. When
anything else may have written to the terminal, :meth:`Shadow.forget` makes the next
update complete.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from rich.cells import cell_len
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.color import ColorSystem
    from rich.segment import Segment
    from textual.strip import Strip

__all__ = ["Pen", "Pieces", "Shadow", "every_piece", "pieces_of"]

Cell = tuple[str, "Style | None"]
Pieces: TypeAlias = "Iterable[tuple[int, int, Sequence[Segment]]]"
"""Columns, rows and segments of runs of cells."""
_WIDE = ("", None)
"""What stands in the second cell of a wide character."""
_GAP = 5
"""Unchanged cells that are cheaper to write again than to jump over."""
_SORTED = 64
"""Runs in one update above which they are written as they come."""
_NULL = Style.null()
Run: TypeAlias = "tuple[int, int, int]"
"""Row, first column and the column after the last one."""


class Pen:
    """The colours the terminal writes in now, and the codes from one to the next."""

    def __init__(self, system: ColorSystem | None) -> None:
        """Write for a colour system; None writes no colours."""
        self._system = system
        self._current: Style | None = None
        self._codes: dict[Style, tuple[str, str, str]] = {}

    def forget(self) -> None:
        """Assume nothing about the terminal's present colours."""
        self._current = None

    def to(self, style: Style | None) -> str:
        """Return the codes that change the terminal to a style, and assume it."""
        code = self.code(style)
        self._current = style or _NULL
        return code

    def code(self, style: Style | None) -> str:
        """Return the codes that would change the terminal to a style."""
        wanted = style or _NULL
        if wanted is self._current:
            return ""
        before = None if self._current is None else self._parts(self._current)
        after = self._parts(wanted)
        if after == before:
            return ""
        full = ";".join(part for part in ("0", *after) if part)
        if before is None or before[0] != after[0]:
            return f"\x1b[{full}m"
        colours = [
            now or neutral
            for old, now, neutral in zip(
                before[1:], after[1:], ("39", "49"), strict=True
            )
            if old != now
        ]
        return f"\x1b[{';'.join(colours)}m"

    def shows_blank(self, style: Style | None) -> bool:
        """Tell whether a blank written now looks as one of a style does."""
        if self._current is None:
            return False
        attributes, _, background = self._parts(self._current)
        wanted = self._parts(style or _NULL)
        lines = _lines(attributes), _lines(wanted[0])
        return lines == ("", "") and background == wanted[2]

    def _parts(self, style: Style) -> tuple[str, str, str]:
        """Return attribute codes, foreground codes and background codes."""
        parts = self._codes.get(style)
        if parts is None:
            parts = self._codes[style] = self._make(style)
        return parts

    def _make(self, style: Style) -> tuple[str, str, str]:
        flags = (
            (style.bold, "1"),
            (style.dim, "2"),
            (style.italic, "3"),
            (style.underline, "4"),
            (style.reverse, "7"),
            (style.strike, "9"),
        )
        attributes = ";".join(code for on, code in flags if on)
        return (
            attributes,
            self._colour(style, foreground=True),
            self._colour(style, foreground=False),
        )

    def _colour(self, style: Style, *, foreground: bool) -> str:
        colour = style.color if foreground else style.bgcolor
        if colour is None or colour.is_default or self._system is None:
            return ""
        codes = colour.downgrade(self._system).get_ansi_codes(foreground)
        return ";".join(codes)


class Shadow:
    """A copy of the screen of cells, and the shortest way to change the real one."""

    def __init__(self, system: ColorSystem | None) -> None:
        """Start without knowing what the terminal shows."""
        self.pen = Pen(system)
        self.known = False
        """Whether what the terminal shows is known; else an update must be complete."""
        self._rows: list[list[Cell] | None] = []
        self._width = 0

    def forget(self) -> None:
        """Take nothing for granted: the next update has to hold every cell."""
        self._rows = [None] * len(self._rows)
        self.known = False
        self.pen.forget()

    def resize(self, width: int, height: int) -> None:
        """Take another size; then nothing is known of what the terminal shows."""
        if (width, height) != (self._width, len(self._rows)):
            self._width = width
            self._rows = [None] * height
            self.forget()

    def update(self, pieces: Pieces) -> str:
        """Return what to write so that the terminal shows the pieces.

        Args:
            pieces: Column, row and segments of runs of cells; they may overlap what is
                shown already, which then costs nothing.
        """
        self.known = True
        runs: list[Run] = []
        for column, row, segments in pieces:
            if 0 <= row < len(self._rows):
                runs.extend(self._take(column, row, cells(segments)))
        out: list[str] = []
        at: tuple[int, int] | None = None
        while runs:
            at = self._run(runs.pop(self._next(runs)), out, at)
        return "".join(out)

    def _take(self, column: int, row: int, new: list[Cell]) -> Iterable[Run]:
        """Put cells into the copy; yield the runs that the terminal does not show."""
        shown = self._rows[row]
        if shown is None:
            # A row that is not known is written from what the piece holds; the cells
            # beside it stay unknown until their own piece comes.
            shown = self._rows[row] = [("\0", None)] * self._width
        new = new[: max(0, self._width - column)]
        if not new:
            return ()
        # What covers half of a wide character leaves nothing of the other half.
        if column and shown[column] is _WIDE:
            column -= 1
            new.insert(0, (" ", _of_blank(shown[column][1])))
        end = column + len(new)
        if end < self._width and shown[end] is _WIDE:
            new.append((" ", _of_blank(new[-1][1])))
        runs = list(_changed(shown[column : column + len(new)], new))
        shown[column : column + len(new)] = new
        return [(row, column + start, column + end) for start, end in runs]

    def _next(self, runs: list[Run]) -> int:
        """Return the index of the run that is the cheapest to write now."""
        if len(runs) > _SORTED:
            return 0
        costs: dict[Style | None, int] = {}
        best, least = 0, -1
        for index, (row, start, _) in enumerate(runs):
            style = self._cells(row)[start][1]
            cost = costs.get(style)
            if cost is None:
                cost = costs[style] = len(self.pen.code(style))
            if cost < least or least < 0:
                best, least = index, cost
        return best

    def _cells(self, row: int) -> list[Cell]:
        cells = self._rows[row]
        assert cells is not None
        return cells

    def _run(
        self, run: Run, out: list[str], at: tuple[int, int] | None
    ) -> tuple[int, int] | None:
        """Write one run of the copy; return where the cursor stands then."""
        row, start, end = run
        while start < end and self._cells(row)[start] is _WIDE:
            start += 1  # a later piece wrote over it, and has a run of its own
        if at != (start, row):
            out.append(f"\x1b[{row + 1};{start + 1}H")
        pen = self.pen
        for text, style in self._cells(row)[start:end]:
            if text == " " and pen.shows_blank(style):
                out.append(text)
            elif text:
                out.append(pen.to(style))
                out.append(text)
        # After the last column a terminal may keep the cursor on it: never rely on it.
        return None if end >= self._width else (end, row)


@lru_cache(256)
def _lines(attributes: str) -> str:
    """Return those attributes that show on a blank: underline, reverse, strike."""
    return ";".join(each for each in attributes.split(";") if each in {"4", "7", "9"})


@lru_cache(1024)
def _of_blank(style: Style | None) -> Style | None:
    """Return what of a style shows on a blank."""
    if style is None or style.reverse or style.underline or style.strike:
        return style
    return Style(bgcolor=style.bgcolor)


def cells(segments: Sequence[Segment]) -> list[Cell]:
    """Return segments as cells; a wide character is one cell and one empty one."""
    found: list[Cell] = []
    for text, style, control in segments:
        if control:
            continue
        if text.isascii():
            blank = (" ", _of_blank(style))
            found.extend([blank if char == " " else (char, style) for char in text])
            continue
        joined, parts = _split(text)
        if joined and found:
            last = -2 if found[-1] is _WIDE and len(found) > 1 else -1
            found[last] = (found[last][0] + joined, found[last][1])
        blank = (" ", _of_blank(style))
        for part in parts:
            if part == " ":
                found.append(blank)
            else:
                found.append((part, style) if part else _WIDE)
    return found


@lru_cache(4096)
def _split(text: str) -> tuple[str, tuple[str, ...]]:
    """Return text as what goes into each cell, an empty text after a wide character.

    What has no width and stands first comes before them: it joins the cell before.
    """
    joined, parts = "", list[str]()
    for char in text:
        width = cell_len(char)
        if width == 0 and not parts:
            joined += char
        elif width == 0:
            parts[-1 if parts[-1] else -2] += char
        else:
            parts.extend((char, "") if width == 2 else (char,))
    return joined, tuple(parts)


def _changed(shown: list[Cell], new: list[Cell]) -> Iterable[tuple[int, int]]:
    """Yield the runs that differ, joined where the gap is not worth a jump."""
    start: int | None = None
    end = 0
    for index, cell in enumerate(new):
        if index < len(shown) and shown[index] == cell:
            continue
        if start is not None and _bridged(new, end, index):
            end = index + 1
            continue
        if start is not None:
            yield _whole(new, start, end)
        start, end = index, index + 1
    if start is not None:
        yield _whole(new, start, end)


def _bridged(new: list[Cell], end: int, start: int) -> bool:
    """Tell whether what lies between two runs is cheaper to write again."""
    if start - end > _GAP:
        return False
    style = new[end - 1][1]
    return all(text == " " or each == style for text, each in new[end:start])


def _whole(new: list[Cell], start: int, end: int) -> tuple[int, int]:
    """Widen a run so that it does not begin or end inside a wide character."""
    while start > 0 and new[start] is _WIDE:
        start -= 1
    while end < len(new) and new[end] is _WIDE:
        end += 1
    return start, end


# --- what the drawing library hands over


def pieces_of(
    update: object,
) -> Pieces | None:
    """Return an update of the drawing library as runs of cells, None if unknown."""
    if isinstance(update, LayoutUpdate):
        return _layout_pieces(update)
    if isinstance(update, ChopsUpdate):
        return _chop_pieces(update)
    return () if update is None else None


def every_piece(strips: Sequence[Strip]) -> Pieces:
    """Return a whole screen as runs of cells, a row each."""
    return [(0, row, list(strip)) for row, strip in enumerate(strips)]


def _layout_pieces(
    update: LayoutUpdate,
) -> Pieces:
    for row, strips in enumerate(update.strips, update.region.y):
        column = update.region.x
        for strip in strips:
            yield column, row, list(strip)
            column += strip.cell_length


def _chop_pieces(
    update: ChopsUpdate,
) -> Pieces:
    for row, first, last in update.spans:
        for end, (column, strip) in zip(
            update.chop_ends[row], update.chops[row].items(), strict=False
        ):
            if strip is None or column >= last or end <= first:
                continue
            start = max(column, first)
            part = strip.crop(start - column, min(end, last) - column)
            yield start, row, list(part)
