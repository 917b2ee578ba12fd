"""The map: one mark for each operation, one column for each step of the flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding
from textual.geometry import Region
from textual.strip import Strip

from heaveto_tui.lines import EMPTY
from heaveto_tui.pictures import State, step_on_grid
from heaveto_tui.widgets.flow_view import ARROWS, FlowView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.segment import Segment
    from textual import events
    from textual.binding import BindingType

    from heaveto_tui.lines import Line
    from heaveto_tui.theme import Painter

__all__ = ["FlowMap"]

_NO_STATE = State("?", "hold", " ")
_FIRST = 1
"""The row of the first marks: the frame's upper side lies above them."""


class FlowMap(FlowView):
    """The whole flow, a mark each.

    Attributes:
        x: The first step in view.
        y: The first row in view.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        *ARROWS,
        Binding("home", "edge(0)", show=False),
        Binding("end", "edge(-1)", show=False),
    ]

    def __init__(
        self, painter: Painter, *, id: str | None = None, small: bool = False
    ) -> None:
        """Start empty; a ``small`` map stands beside the canvas and takes no keys."""
        super().__init__(painter, id=id)
        self.can_focus = not small
        self.x = 0
        self.y = 0
        self._grid: Sequence[Sequence[str]] = ()
        self._states: Mapping[str, State] = {}
        self._frame: tuple[int, int] | None = None
        self._places: dict[str, tuple[int, int]] = {}

    @property
    def columns(self) -> int:
        """Steps that fit."""
        return max(1, (self.size.width - 2) // 2)

    @property
    def depth(self) -> int:
        """Rows of marks that fit between the two sides of the frame."""
        return max(1, self.height - 2)

    @property
    def framed(self) -> bool:
        """Whether a frame shows what the canvas shows."""
        return self._frame is not None

    @property
    def rows_used(self) -> int:
        """Rows that the whole map takes, with its frame."""
        return max((len(column) for column in self._grid), default=0) + 2

    def show_grid(
        self,
        grid: Sequence[Sequence[str]],
        states: Mapping[str, State],
        cursor: str | None,
        frame: tuple[int, int] | None = None,
    ) -> None:
        """Show a flow.

        Args:
            grid: The ids by steps.
            states: What each shows.
            cursor: The chosen one.
            frame: First and last step that the canvas shows.
        """
        before, self._states = self._states, states
        shown = (grid, frame, cursor)
        if shown == (self._grid, self._frame, self.cursor) and self.in_size:
            self._renew(before)
            return
        if grid != self._grid:
            self._places = {
                name: (x, y)
                for x, column in enumerate(grid)
                for y, name in enumerate(column)
            }
        self._grid, self._frame, self.cursor = shown
        self._keep_in_view()
        self.repaint()

    def _renew(self, before: Mapping[str, State]) -> None:
        """Put other marks where one differs."""
        columns, depth = self.columns, self.depth
        rows: dict[int, list[Segment]] = {}
        at: dict[int, list[int]] = {}
        for name, state in self._states.items():
            if before.get(name) == state or name not in self._places:
                continue
            x, y = self._places[name]
            x, y = x - self.x, y - self.y + _FIRST
            if 0 <= x < columns and _FIRST <= y < depth + _FIRST:
                segments = rows.setdefault(y, list(self._strips[y]))
                segments[2 * x + 2] = self.painter.segment(*self._mark(name))
                at.setdefault(y, []).append(2 * x + 2)
        for y, segments in rows.items():
            self._strips[y] = Strip(segments, self._strips[y].cell_length)
        changed = [
            Region(min(cells), y, max(cells) + 1 - min(cells), 1)
            for y, cells in at.items()
        ]
        if changed:
            self.refresh(*changed)

    def _keep_in_view(self) -> None:
        """Move the window as little as shows the cursor."""
        if not self.size.width:
            return
        found = self._places.get(self.cursor or "")
        if found is not None:
            x, y = found
            self.x = min(max(self.x, x - self.columns + 1), x)
            self.y = min(max(self.y, y - self.depth + 1), y)
        lowest = max((len(column) for column in self._grid), default=0) - self.depth
        self.x = max(0, min(self.x, len(self._grid) - self.columns))
        self.y = max(0, min(self.y, lowest))

    def on_resize(self) -> None:
        """Keep the cursor in view in the new size."""
        self._keep_in_view()

    # --- keys and the mouse

    def action_step(self, way: str) -> None:
        """Go to the next step, or to the next operation of this one."""
        along = {"left": -1, "right": 1}.get(way, 0)
        across = {"up": -1, "down": 1}.get(way, 0)
        if self.cursor is not None:
            self.move_to(
                step_on_grid(self._grid, self.cursor, along=along, across=across)
            )

    def action_edge(self, place: int) -> None:
        """Go to the first or the last step."""
        if self._grid:
            self.move_to(self._grid[place][0])

    def scroll_rows(self, rows: int) -> None:
        """Move the window as the mouse wheel does."""
        lowest = max((len(column) for column in self._grid), default=0) - self.depth
        self.y = max(0, min(self.y + rows, lowest))
        self.repaint()

    def on_click(self, event: events.Click) -> None:
        """Choose the mark that was clicked."""
        x = self.x + (event.x - 2) // 2
        y = self.y + event.y - _FIRST
        if event.x >= 2 and event.x % 2 == 0 and 0 <= x < len(self._grid):
            column = self._grid[x]
            if 0 <= y < len(column):
                self.clicked(column[y])

    # --- drawing

    def _strip(self, row: int, width: int) -> Strip:
        return self.painter.strip(self._line(row), width)

    def _line(self, row: int) -> Line:
        depth = min(self.depth, self.rows_used - 2)
        if row == 0:
            return self._side("╭", "╮", " on canvas ")
        if row == depth + _FIRST:
            return self._side("╰", "╯", "")
        if row > depth:
            return EMPTY
        y, last = self.y + row - _FIRST, min(self.x + self.columns, len(self._grid))
        parts: list[tuple[str, str]] = [(" ", "muted")]
        for x in range(self.x, last):  # two parts each, so that a mark is one part
            name = self._grid[x][y] if y < len(self._grid[x]) else ""
            parts += [self._before(x, name), self._mark(name)]
        if self._frame is not None and self._frame[1] == len(self._grid) - 1:
            parts.append(("│", "muted"))
        return tuple(parts)

    def _before(self, x: int, name: str) -> tuple[str, str]:
        """Return what stands before a mark: the cursor, or a side of the frame."""
        if name and name == self.cursor:
            return "▌", "text"
        if self._frame is not None and x in (self._frame[0], self._frame[1] + 1):
            return "│", "muted"
        return " ", "muted"

    def _mark(self, name: str) -> tuple[str, str]:
        """Return the mark of an operation; of none a blank."""
        if not name:
            return " ", "muted"
        state = self._states.get(name, _NO_STATE)
        glyph = "!" if state.mark == "!" and state.glyph == "●" else state.glyph
        return glyph, f"{state.role}+reverse" if name == self.cursor else state.role

    def _side(self, left: str, right: str, title: str) -> Line:
        """Return the upper or the lower side of the frame."""
        if self._frame is None:
            return EMPTY
        first = max(self._frame[0], self.x) - self.x
        last = min(self._frame[1], self.x + self.columns - 1) - self.x
        if last < first:
            return EMPTY
        inner = 2 * (last - first) + 1
        text = title if len(title) + 2 <= inner else ""
        return (
            (" " * (1 + 2 * first), "text"),
            (left + text.center(inner, "─") + right, "muted"),
        )
