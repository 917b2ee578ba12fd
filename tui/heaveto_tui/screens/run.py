"""Run: what is it doing? The outline of its operations, and one of them in words.

The other views of the same operations are :class:`~heaveto_tui.screens.flow.FlowPlace`;
the cursor of the outline is the cursor of all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from heaveto.model import OperationStatus as Status
from heaveto_tui.actions import RUN
from heaveto_tui.lines import EMPTY
from heaveto_tui.outline import (
    Outline,
    OutlineRow,
    above,
    branch_end,
    outline,
    signature,
)
from heaveto_tui.screens.flow import FlowPlace
from heaveto_tui.screens.place import Rule
from heaveto_tui.widgets.detail import Growth, operation_detail
from heaveto_tui.widgets.lineview import Bar, Column, ListView, Row, TextView
from heaveto_tui.widgets.outline_pane import (
    Rows,
    count_line,
    is_ticking,
    outline_entries,
    outline_title,
)
from heaveto_tui.widgets.run_table import run_key

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from textual.app import ComposeResult
    from textual.widget import Widget

    from heaveto.observe.snapshot import OperationView, RunDetail
    from heaveto_tui.lines import Line
    from heaveto_tui.screens.place import Console

__all__ = ["RunScreen"]

_PROBLEMS = (Status.FAILED, Status.LOST)


class RunScreen(FlowPlace):
    """One run."""

    PLACE: ClassVar[str] = RUN

    def __init__(self, console: Console) -> None:
        """Start with the outline."""
        super().__init__(console)
        painter = console.painter
        self._columns = Bar(painter, id="columns")
        self.outline = ListView[OutlineRow](painter, id="outline")
        self._tally = Bar(painter, id="tally")
        self.text_pane = TextView(painter, id="detail")
        self._shown: Hashable | None = None
        self._tree: Outline | None = None
        self._cursors: dict[Hashable, str] = {}
        self._operation: str | None = None
        self._growth = Growth()
        self._lines = Rows()
        self._folded: set[str] = set()

    def panes(self) -> ComposeResult:
        """Yield the outline, a line, the other views over the detail."""
        with Column(id="views"):
            yield self._columns
            yield self.outline
            yield self._tally
        yield Rule(self.console.painter, id="rule")
        with Column(id="side"):
            yield from self.picture_panes()
            with Row(id="under"):
                yield self.text_pane
                yield self.minimap

    def main_pane(self) -> Widget:
        """The view has the keys."""
        return self.view_pane() or self.outline

    def place_title(self) -> Line:
        """Return which run this is."""
        return self.run_title("Run")

    def head(self) -> list[Line]:
        """Return state and checkpoint, and warnings."""
        run = self.run
        if run is None:
            return [EMPTY]
        look, width = self.console.painter.look, self.size.width
        lines = [self.run_row(run)]
        lines.extend(
            (
                (" ! ", "hold"),
                (look.clip(look.plain(warning.text), width - 4), "hold"),
            )
            for warning in run.warnings[:2]
        )
        return [*lines, self.tabs()]

    # --- drawing

    def draw_body(self) -> None:
        """Build outline and detail."""
        detail = self.detail
        run = self.run
        if run is not None and run_key(run) != self._shown:
            self._enter(run_key(run))
        focused = self.focused is not self.text_pane
        width = self.outline.size.width or self.size.width
        self._columns.set_lines([outline_title(width, focused=focused)])
        if detail is None:
            self.outline.show([], _nothing)
            self.text_pane.set_lines([((" Reading …", "muted"),)])
            return
        self._grow_tree(detail)
        if self.outline_shown:
            self._draw_outline(detail)
        self.draw_view(detail)
        self._draw_detail(detail)

    def _enter(self, key: Hashable) -> None:
        """Start looking at another run."""
        self._shown = key
        self._tree = None
        self._find = ""
        self._operation = None
        self._lines = Rows()
        self._folded = set()
        self.outline.cursor = self._cursors.get(key)
        self.outline.top = 0

    def _grow_tree(self, detail: RunDetail) -> None:
        """Bring the tree up to date, and begin with the operation that needs a look."""
        tree = self._tree
        if tree is None or tree.signature != signature(detail.operations):
            tree = outline(detail)
        else:
            tree = refreshed(tree, detail)
        self._tree = tree
        if self.outline.cursor is None:
            self.outline.cursor = first_look(detail)

    def _draw_outline(self, detail: RunDetail) -> None:
        tree = self._tree
        if tree is None:
            return
        look = self.console.painter.look
        now = self.console.settings.now()
        view = self.outline
        find = "" if self.picture_find() else self._find  # a picture hides nothing
        filtered, held = bool(find), view.cursor
        entries = outline_entries(tree, find, self._folded)
        view.show(
            entries,
            lambda row, width, selected: self._lines.draw(
                row,
                width,
                selected,
                look=look,
                now=now,
                detail=detail,
                filtered=filtered,
            ),
        )
        if filtered and not entries:
            view.show_lines([(("   Nothing matches. Esc shows all again.", "muted"),)])
            view.cursor = held
        if isinstance(view.cursor, str):
            self.select(view.cursor)
        self._tally.set_lines(
            [
                ((f" {part}", "muted"),)
                for part in look.wrap(count_line(detail), max(20, view.size.width - 2))
            ]
        )

    def operation(self) -> OperationView | None:
        """Return the operation under the cursor."""
        detail = self.detail
        if detail is None:
            return None
        cursor = self.outline.cursor
        return next((each for each in detail.operations if each.id == cursor), None)

    def _draw_detail(self, detail: RunDetail) -> None:
        console = self.console
        operation = self.operation()
        pane = self.text_pane
        if operation is None:
            pane.set_lines([])
            return
        if operation.id != self._operation:
            self._operation = operation.id
            pane.rewind()
            pane.follow = operation.status is Status.RUNNING
        console.feed.show_text(detail, operation.id)
        text = console.store.text(detail.run.run_id, operation.id)
        lines = operation_detail(
            operation,
            detail,
            text,
            width=max(10, pane.size.width - 2),
            now=console.settings.now(),
            look=console.painter.look,
            clock=console.clock,
        )
        pane.set_lines(
            [((" ", "text"), *line) for line in lines],
            grown=self._growth.since(text, len(lines)),
        )

    # --- the cursor of every view

    def chosen(self) -> str | None:
        """Return the operation under the cursor."""
        cursor = self.outline.cursor
        return cursor if isinstance(cursor, str) else None

    def choose(self, operation_id: str) -> None:
        """Put the cursor on an operation, wherever it is seen; its branch opens.

        It is the operator who does; so the canvas follows what runs no longer.
        """
        self.canvas.follow = False
        if self._folded:
            self._folded.difference_update(above(self.tree_rows(), operation_id))
        self.outline.select(operation_id)
        self.select(operation_id)

    def tree_rows(self) -> Sequence[OutlineRow]:
        """Return every operation, in the order of the outline."""
        return () if self._tree is None else self._tree.rows

    def ticks(self) -> bool:
        """Tell whether a clock in view goes."""
        return self.view_ticks() or (
            self.outline_shown
            and any(
                entry.key is not None and is_ticking(entry.payload)
                for entry in self.outline.in_view()
            )
        )

    def tick(self) -> None:
        """Move the clocks of running rows."""
        if self.detail is not None:
            if self.outline_shown:
                self._draw_outline(self.detail)
            self.view_tick()

    def idle_word(self) -> str:
        """Tell of lines that came while the output is not followed."""
        pane = self.text_pane
        if pane.unseen and self.live_output():
            return f"+{pane.unseen} new lines below; f follows."
        return ""

    # --- keys

    def do_view_fold(self) -> None:
        """Fold the branch under the cursor; of its end the one it stands in."""
        rows, chosen = self.tree_rows(), self.chosen()
        at = next((n for n, row in enumerate(rows) if row.operation.id == chosen), None)
        if at is None or chosen is None:
            return
        if branch_end(rows, at) == at + 1 or chosen in self._folded:
            chosen = next(iter(above(rows, chosen)), None)
        if chosen is None:
            self.console.say("Nothing hangs on this operation.")
            return
        self._folded.add(chosen)
        self.outline.cursor = chosen
        self.select(chosen)
        self.redraw()

    def do_view_unfold(self) -> None:
        """Open the branch under the cursor."""
        chosen = self.chosen()
        if chosen not in self._folded:
            self.console.say("Nothing is folded here.")
            return
        self._folded.discard(chosen)
        self.redraw()

    def problems(self) -> int:
        """Return how many operations, or else runs, need somebody."""
        return len(self._problem_ids()) or super().problems()

    def _problem_ids(self) -> list[str]:
        if self._tree is None:
            return []
        return [
            row.operation.id
            for row in self._tree.rows
            if row.operation.status in _PROBLEMS
        ]

    def live_output(self) -> bool:
        """Tell whether there is something to follow: output, or on the canvas work."""
        if self.view == "canvas":
            return self.canvas_can_follow()
        operation = self.operation()
        return operation is not None and operation.status is Status.RUNNING

    def on_list_view_moved(self, event: ListView.Moved) -> None:
        """Follow the cursor with the detail."""
        event.stop()
        self.at_the_keys()
        if event.view is self.outline:
            self.canvas.follow = False
        else:
            self.choose(str(event.key))
        self.redraw()

    def on_list_view_opened(self, event: ListView.Opened) -> None:
        """Open what was clicked twice."""
        event.stop()
        self.action_act("nav.open")

    def on_text_view_scrolled(self, event: TextView.Scrolled) -> None:
        """Tell of a follow that stopped."""
        event.stop()
        self.redraw()

    def on_descendant_focus(self) -> None:
        """Show which pane has the keys."""
        self.redraw()

    def do_nav_open(self) -> None:
        """Open the operation under the cursor."""
        operation = self.operation()
        if operation is None:
            self.console.say("No operation is chosen.")
        else:
            self.console.open_operation(operation.id)

    def do_nav_back(self) -> None:
        """End the search, else go back to the list."""
        if self._find:
            self.set_found("")
            self.redraw()
        else:
            self.console.go("runs")

    def do_nav_prev(self) -> None:
        """Go to the operation before."""
        self.move_cursor(-1)

    def do_nav_next(self) -> None:
        """Go to the operation after."""
        self.move_cursor(1)

    def do_nav_next_problem(self) -> None:
        """Go to the next operation that needs somebody, at the end to the next run."""
        self._problem(1)

    def do_nav_prev_problem(self) -> None:
        """Go to the one before."""
        self._problem(-1)

    def _problem(self, step: int) -> None:
        if self.picture_find():
            if self.go_to_match(step):
                self.redraw()
            return
        order = [row.operation.id for row in self.tree_rows()]
        here = order.index(self.outline.cursor) if self.outline.cursor in order else -1
        wanted = set(self._problem_ids())
        ahead = order[here + 1 :] if step > 0 else order[: max(0, here)][::-1]
        for identifier in ahead:
            if identifier in wanted:
                self.choose(identifier)
                self.redraw()
                return
        self.console.next_problem(step)

    def do_log_follow(self) -> None:
        """Follow the output of the operation under the cursor, or what runs."""
        if self.view == "canvas":
            self.canvas.start_follow()
            self.console.say("Following what runs; moving stops it.")
            return
        self.text_pane.start_follow()
        self.console.say("Following the output; scrolling up stops it.")

    def set_found(self, text: str) -> None:
        """Show only the operations that hold a text, or go to the first of them."""
        super().set_found(text)
        if self.picture_find():
            self.go_to_match(0)

    def move_cursor(self, by: int) -> None:
        """Move over the list in view; in a picture in the order of the outline."""
        if self.view == "table":
            self.table.step(by)
        elif self.view == "timeline":
            self.timeline.step(by)
        elif self.view == "outline":
            self.outline.step(by)
        elif self.picture_find():
            self.go_to_match(by)
            self.redraw()
        else:
            self._step(by)

    def _step(self, by: int) -> None:
        order = [row.operation.id for row in self.tree_rows()]
        chosen = self.chosen()
        if chosen in order:
            place = order.index(chosen) + by
            self.choose(order[min(max(0, place), len(order) - 1)])
            self.redraw()

    def select(self, operation_id: str) -> None:
        """Put the cursor on an operation, now or once the run has been read."""
        self.outline.cursor = operation_id
        if self._shown is not None:
            self._cursors[self._shown] = operation_id


def _nothing(row: OutlineRow, width: int, selected: bool) -> Line:
    return EMPTY


def refreshed(tree: Outline, detail: RunDetail) -> Outline:
    """Return a tree of the same order with operations as they are now."""
    by_id = {each.id: each for each in detail.operations}
    rows = tuple(
        row
        if by_id[row.operation.id] is row.operation
        else OutlineRow(
            operation=by_id[row.operation.id],
            guide=row.guide,
            depth=row.depth,
            chain=row.chain,
            dependencies=row.dependencies,
        )
        for row in tree.rows
    )
    return Outline(rows, tree.signature)


def first_look(detail: RunDetail) -> str | None:
    """Return the operation that the cursor starts on: the worst, else what runs."""
    for statuses in (
        (Status.FAILED,),
        (Status.LOST,),
        (Status.PAUSED,),
        (Status.RUNNING,),
    ):
        for each in detail.operations:
            if each.status in statuses:
                return each.id
    return detail.operations[0].id if detail.operations else None
