"""Panes drawn line by line: only what is in view is built, only what changed is drawn.

Every pane of the console is one of these: :class:`LineView` shows entries,
:class:`ListView` adds a cursor that stays on its entry by key, :class:`TextView` text
with a follow that stops when somebody scrolls. A pane keeps the lines it has drawn with
their strips; :meth:`LineView.repaint` makes the lines in view again, turns those into
strips that it did not draw before, and marks the rows that differ.
"""

from __future__ import annotations

from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    TypeAlias,
    TypeVar,
    cast,
)

from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.filter import ANSIToTruecolor
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from heaveto_tui.lines import EMPTY

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from textual import events
    from textual.binding import BindingType

    from heaveto_tui.lines import Line
    from heaveto_tui.theme import Painter

__all__ = ["Bar", "Column", "Entry", "LineView", "ListView", "Row", "TextView"]

P = TypeVar("P")
_Look: TypeAlias = "tuple[Line, int, bool, bool]"
"""A line, its width, whether it is selected and whether it stands on a panel."""


class Entry(NamedTuple, Generic[P]):
    """One line of a pane: whom it belongs to, and what it is drawn from."""

    key: Hashable | None
    """What a cursor can stand on; None for headings and blanks. Lines that follow each
    other with one key are one item."""
    payload: P


class Row(Horizontal):
    """Panes beside each other; what none of them covers is blank."""

    BLANK: ClassVar[bool] = True


class Column(Vertical):
    """Panes above each other; what none of them covers is blank."""

    BLANK: ClassVar[bool] = True


class LineView(Widget, Generic[P]):
    """A pane of entries, drawn on demand.

    Attributes:
        top: The first entry in view.
    """

    DEFAULT_CSS = "LineView { width: 1fr; height: 1fr; }"

    def __init__(
        self, painter: Painter, *, id: str | None = None, panel: bool = False
    ) -> None:
        """Draw with a painter; ``panel`` takes the background of a question."""
        super().__init__(id=id)
        self.painter = painter
        self.top = 0
        self._panel = panel
        self._entries: Sequence[Entry[P]] = ()
        self._draw: Callable[[P, int, bool], Line] | None = None
        self._strips: list[Strip] = []
        self._kept: dict[_Look, Strip] = {}
        self._building: dict[_Look, Strip] = {}

    @property
    def entries(self) -> Sequence[Entry[P]]:
        """What the pane holds."""
        return self._entries

    def in_view(self) -> Sequence[Entry[P]]:
        """Return the entries that can be seen."""
        return self._entries[self.top : self.top + self.height]

    @property
    def height(self) -> int:
        """Lines in view."""
        return self.size.height

    @property
    def lowest(self) -> int:
        """The largest value of ``top``."""
        return max(0, len(self._entries) - self.height)

    def show(
        self, entries: Sequence[Entry[P]], draw: Callable[[P, int, bool], Line]
    ) -> None:
        """Take other entries; the view stays where it is.

        Args:
            entries: All of them; building one must be cheap.
            draw: Makes the line of one that is in view, for a width, selected or not.
        """
        self._entries = entries
        self._draw = draw
        self.top = min(self.top, self.lowest)
        self.repaint()

    def show_lines(self, lines: Sequence[Line]) -> None:
        """Show plain lines instead of items, as an empty list does."""
        entries = [Entry(None, line) for line in lines]
        self.show(cast("list[Entry[P]]", entries), cast("Any", _as_is))

    def scroll_rows(self, rows: int) -> None:
        """Move the view; up is negative."""
        top = min(max(0, self.top + rows), self.lowest)
        if top != self.top:
            self.top = top
            self.repaint()

    def repaint(self) -> None:
        """Build what is in view again and mark the lines that differ."""
        width, height = self.size
        if not width or not height:
            return
        known = self._strips if self.in_size else None
        self._strips = self._build(width, height)
        if known is None:
            self.refresh()
            return
        changed = [
            Region(first, row, last - first, 1)
            for row, (strip, before) in enumerate(zip(self._strips, known, strict=True))
            if strip is not before
            for first, last in _difference(before, strip)
        ]
        if changed:
            self.refresh(*changed)

    def _build(self, width: int, height: int) -> list[Strip]:
        """Return the strips in view; of what was in view before, the same ones."""
        self._building = {}
        strips = [self._strip(row, width) for row in range(height)]
        self._kept, self._building = self._building, {}
        return strips

    def _painted(self, line: Line, width: int, selected: bool, panel: bool) -> Strip:
        """Return the strip of a line, the one in view if the line is in view."""
        key = (line, width, selected, panel)
        strip = self._building.get(key) or self._kept.get(key)
        if strip is None:
            strip = self.painter.strip(line, width, selected=selected, panel=panel)
        self._building[key] = strip
        return strip

    def _strip(self, row: int, width: int) -> Strip:
        index = self.top + row
        if index >= len(self._entries) or self._draw is None:
            return self._painted(EMPTY, width, False, self._panel)
        entry = self._entries[index]
        selected = self._is_selected(entry)
        line = self._draw(entry.payload, width, selected)
        return self._painted(line, width, selected, self._panel and not selected)

    def _is_selected(self, entry: Entry[P]) -> bool:
        return False

    @property
    def in_size(self) -> bool:
        """Whether what has been drawn has the present size."""
        width, height = self.size
        strips = self._strips
        return len(strips) == height > 0 and strips[0].cell_length == width

    def _ready(self) -> list[Strip]:
        """Return what is in view; in a new size it is drawn now."""
        if not self.in_size:
            self._strips = self._build(*self.size)
        return self._strips

    def render_line(self, y: int) -> Strip:
        """Return a line that :meth:`repaint` has built."""
        strips = self._ready()
        return strips[y] if y < len(strips) else Strip.blank(self.size.width)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return lines as they are: a pane has no border, no padding, no opacity.

        The drawing library asks for every line of every pane near a change, and would
        put each through its styles.
        """
        strips = self._ready()[crop.y : crop.bottom]
        for each in self.get_line_filters():
            if not isinstance(each, ANSIToTruecolor):  # painters use no ANSI colours
                ground = self.background_colors[1]
                strips = [strip.apply_filter(each, ground) for strip in strips]
        blank = [Strip.blank(self.size.width)] * (crop.height - len(strips))
        return [strip.crop(crop.x, crop.right) for strip in [*strips, *blank]]

    def on_resize(self) -> None:
        """Draw for the new size."""
        self.top = min(self.top, self.lowest)
        self._strips = []
        self.repaint()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Move the view, not the cursor."""
        event.stop()
        self.scroll_rows(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Move the view, not the cursor."""
        event.stop()
        self.scroll_rows(-3)


def _difference(before: Strip, after: Strip) -> list[tuple[int, int]]:
    """Return the columns between which two strips of one width differ, if they do."""
    old, new = list(before), list(after)
    if old == new:
        return []
    first, last, width = 0, 0, after.cell_length
    for left, right in zip(old, new, strict=False):
        if left != right:
            break
        first += right.cell_length
    for left, right in zip(reversed(old), reversed(new), strict=False):
        if left != right or first + last + right.cell_length > width:
            break
        last += right.cell_length
    return [(first, max(first + 1, width - last))]


class Bar(LineView["Line"]):
    """A few fixed lines: the head and the foot of a place."""

    DEFAULT_CSS = "Bar { height: auto; }"
    _rows = -1

    def set_lines(self, lines: list[Line]) -> None:
        """Show these lines; the bar grows and shrinks with them."""
        if len(lines) != self._rows:
            self._rows = len(lines)
            self.styles.height = len(lines)
        self.show([Entry(None, line) for line in lines], _as_is)


def _as_is(line: Line, width: int, selected: bool) -> Line:
    return line


class ListView(LineView[P]):
    """A list with a cursor that belongs to an item, not to a row."""

    can_focus = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "edge(0)", show=False),
        Binding("end", "edge(-1)", show=False),
    ]

    class Moved(Message):
        """The cursor stands on another item, moved by a key or a click."""

        def __init__(self, view: ListView[P], key: Hashable) -> None:
            """Name the list and the item."""
            super().__init__()
            self.view = view
            self.key = key

    class Opened(Message):
        """An item was clicked while the cursor stood on it."""

        def __init__(self, view: ListView[P]) -> None:
            """Name the list."""
            super().__init__()
            self.view = view

    def __init__(
        self, painter: Painter, *, id: str | None = None, panel: bool = False
    ) -> None:
        """Start without a cursor; the first item gets it."""
        super().__init__(painter, id=id, panel=panel)
        self._key_rows: list[Hashable | None] = []
        self.cursor: Hashable | None = None
        self._spans: dict[Hashable, tuple[int, int]] = {}
        self._keys: list[Hashable] = []

    @property
    def keys(self) -> Sequence[Hashable]:
        """The items, in their order."""
        return self._keys

    def show(
        self, entries: Sequence[Entry[P]], draw: Callable[[P, int, bool], Line]
    ) -> None:
        """Take other entries; cursor and its row on the screen stay (SCREENS rule 8).

        When the item under the cursor is gone, the next one after it gets the cursor.
        """
        before = self._spans.get(self.cursor) if self.cursor is not None else None
        offset = None if before is None else before[0] - self.top
        old = self._keys
        self._index(entries)
        if self.cursor not in self._spans:
            self.cursor = self._heir(old)
        self._entries = entries
        if offset is not None and self.cursor in self._spans:
            if 0 <= offset < self.height:
                self.top = self._spans[self.cursor][0] - offset
        elif self.cursor is not None:
            self._keep_in_view()
        self.top = min(max(0, self.top), self.lowest)
        super().show(entries, draw)

    def _heir(self, old: list[Hashable]) -> Hashable | None:
        """Return what gets the cursor of an item that is gone: its next neighbour."""
        place = old.index(self.cursor) if self.cursor in old else 0
        for key in [*old[place + 1 :], *old[:place][::-1]]:
            if key in self._spans:
                return key
        return self._keys[0] if self._keys else None

    def _index(self, entries: Sequence[Entry[P]]) -> None:
        rows = [entry.key for entry in entries]
        if rows == self._key_rows:
            return
        self._key_rows = rows
        spans: dict[Hashable, tuple[int, int]] = {}
        for row, key in enumerate(rows):
            if key is not None:
                spans[key] = (
                    (spans[key][0], row + 1) if key in spans else (row, row + 1)
                )
        self._spans = spans
        self._keys = list(spans)

    def select(self, key: Hashable) -> bool:
        """Put the cursor on an item, in view; False if it is not there."""
        if key not in self._spans:
            return False
        self.cursor = key
        self._keep_in_view()
        self.repaint()
        return True

    def _keep_in_view(self) -> None:
        """Move the view as little as shows the item, the first with its heading."""
        if self.cursor is None or self.cursor not in self._spans or not self.height:
            return
        first, end = self._spans[self.cursor]
        if self._keys and self.cursor == self._keys[0]:
            first = 0
        if end - self.top > self.height:
            self.top = end - self.height
        self.top = max(0, min(self.top, first))

    def _is_selected(self, entry: Entry[P]) -> bool:
        return entry.key is not None and entry.key == self.cursor

    def on_resize(self) -> None:
        """Keep the cursor in view in the new size."""
        self._keep_in_view()

    def step(self, by: int) -> None:
        """Move the cursor over items; it stops at both ends."""
        if not self._keys:
            return
        place = self._keys.index(self.cursor) if self.cursor in self._spans else 0
        self._go(min(max(0, place + by), len(self._keys) - 1))

    def _go(self, place: int) -> None:
        key = self._keys[place]
        moved = key != self.cursor
        self.select(key)
        if moved:
            self.post_message(self.Moved(self, key))

    def action_move(self, by: int) -> None:
        """Move by one item."""
        self.step(by)

    def action_page(self, by: int) -> None:
        """Move by a screenful."""
        per_item = max(1, len(self._entries) // max(1, len(self._keys)))
        self.step(by * max(1, (self.height - 1) // per_item))

    def action_edge(self, place: int) -> None:
        """Move to the first or the last item."""
        if self._keys:
            self._go(place % len(self._keys))

    def on_click(self, event: events.Click) -> None:
        """Select what was clicked; a click on the selected item opens it."""
        index = self.top + event.y
        if not 0 <= index < len(self._entries):
            return
        key = self._entries[index].key
        if key is None:
            return
        if key == self.cursor:
            self.post_message(self.Opened(self))
        else:
            self._go(self._keys.index(key))


class TextView(LineView["Line"]):
    """Text to scroll, with a follow that stops when somebody scrolls up.

    Attributes:
        follow: The end stays in view while the text grows.
        unseen: Lines that came below the view since it stopped.
    """

    can_focus = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "scroll(-1)", show=False),
        Binding("down", "scroll(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "edge(0)", show=False),
        Binding("end", "edge(-1)", show=False),
    ]

    class Scrolled(Message):
        """Somebody moved the view, so that follow may have changed."""

    def __init__(
        self, painter: Painter, *, id: str | None = None, panel: bool = False
    ) -> None:
        """Start at the top, without following."""
        super().__init__(painter, id=id, panel=panel)
        self.follow = False
        self.unseen = 0

    def set_lines(self, lines: Sequence[Line], *, grown: int = 0) -> None:
        """Show lines; where follow is on, their end.

        Args:
            lines: All of them, wrapped for the present width.
            grown: How many were added at the end since the last call.
        """
        entries: list[Entry[Line]] = [Entry(None, line) for line in lines]
        if self.follow:
            self.top = max(0, len(entries) - self.height)
            self.unseen = 0
        else:
            self.unseen += grown
        self.show(entries, _as_is)

    def start_follow(self) -> None:
        """Go to the end and stay there."""
        self.follow = True
        self.unseen = 0
        self.top = self.lowest
        self.repaint()

    def rewind(self) -> None:
        """Go to the top; for another text."""
        self.top = 0
        self.unseen = 0

    def scroll_rows(self, rows: int) -> None:
        """Move the view; moving up ends the follow, the end does not start it."""
        if rows < 0 and self.lowest:
            self.follow = False
        super().scroll_rows(rows)
        if self.top == self.lowest:
            self.unseen = 0
        self.post_message(self.Scrolled())

    def action_scroll(self, by: int) -> None:
        """Move by one line."""
        self.scroll_rows(by)

    def action_page(self, by: int) -> None:
        """Move by a screenful."""
        self.scroll_rows(by * max(1, self.height - 1))

    def action_edge(self, place: int) -> None:
        """Move to the first or the last line."""
        self.scroll_rows(-self.top if place == 0 else self.lowest - self.top)
