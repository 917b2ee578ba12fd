"""The views of a run's operations beside the outline, with one cursor for all of them.

The place that shows them says which operation is chosen; every view shows that one and
tells when the operator has chosen another. Only what is in view is drawn.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from heaveto.errors import HeavetoError
from heaveto.model import OperationStatus as Status
from heaveto_tui.export import FORMS, export
from heaveto_tui.pictures import (
    ON_REQUEST,
    Plan,
    State,
    grid_of,
    plan_key,
    plan_of,
    state_of,
)
from heaveto_tui.presentation import is_live
from heaveto_tui.screens.dialogs import Choice
from heaveto_tui.screens.place import Place
from heaveto_tui.widgets.around import MAX_HOPS, Around
from heaveto_tui.widgets.canvas import Canvas
from heaveto_tui.widgets.flow_map import FlowMap
from heaveto_tui.widgets.lineview import Bar, ListView
from heaveto_tui.widgets.op_table import (
    ORDERS,
    draw_row,
    sorted_rows,
    table_entries,
    table_title,
)
from heaveto_tui.widgets.outline_pane import count_line, is_ticking
from heaveto_tui.widgets.run_table import run_key
from heaveto_tui.widgets.timeline import TimelineView

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from textual.app import ComposeResult
    from textual.timer import Timer
    from textual.widget import Widget

    from heaveto.observe.snapshot import RunDetail
    from heaveto_tui.availability import Situation
    from heaveto_tui.lines import Line
    from heaveto_tui.outline import OutlineRow
    from heaveto_tui.screens.place import Console
    from heaveto_tui.widgets.flow_view import FlowView

__all__ = ["VAST", "VIEWS", "FlowPlace"]

VIEWS: dict[str, str] = {
    "outline": "o",
    "canvas": "c",
    "around": "e",
    "map": "w",
    "timeline": "t",
    "table": "T",
}
"""Ways to look at a run's operations, with their keys."""
VAST = 160
"""From this width on the outline stays beside the canvas, and the map under it."""

_PICTURES = ("canvas", "around", "map", "timeline")
_QUIET_S = 2.0
"""Seconds without a key after which rows may change their places."""
_SMALL_MAP = 76
"""Columns that the map under the canvas takes at most."""


class FlowPlace(Place):
    """A place that shows the operations of one run in several ways.

    Attributes:
        view: One of :data:`VIEWS`.
        canvas: The whole flow drawn.
        around: The part around the cursor drawn.
        map: One mark an operation.
        minimap: The same, small, under the canvas.
        timeline: Bars in time.
        table: Rows in columns.
    """

    def __init__(self, console: Console) -> None:
        """Start with the outline."""
        super().__init__(console)
        painter = console.painter
        self.view = "outline"
        self.canvas = Canvas(painter, id="canvas")
        self.around = Around(painter, id="around")
        self.map = FlowMap(painter, id="map")
        self.minimap = FlowMap(painter, id="minimap", small=True)
        self.timeline = TimelineView(painter, id="timeline")
        self.table = ListView["OutlineRow"](painter, id="table")
        self._heading = Bar(painter, id="view-title")
        self._caption = Bar(painter, id="caption")
        self._order = next(iter(ORDERS))
        self._places: dict[str, int] = {}  # of the table's rows, as they are shown
        self._touched = float("-inf")
        self._sorting: Timer | None = None
        self._only_chain = False
        self._asked: Hashable | None = None
        self._plan_key: Hashable | None = None
        self._plan = Plan((), {}, ())
        self._grid: Sequence[Sequence[str]] = ()

    # --- what the place says of itself

    def chosen(self) -> str | None:
        """Return the operation under the cursor."""
        raise NotImplementedError

    def choose(self, operation_id: str) -> None:
        """Put the cursor on an operation."""
        raise NotImplementedError

    def tree_rows(self) -> Sequence[OutlineRow]:
        """Return every operation, in the order of the outline."""
        raise NotImplementedError

    # --- panes

    def picture_panes(self) -> ComposeResult:
        """Yield the views; one of them is displayed."""
        yield self._heading
        yield from self._panes().values()
        yield self._caption

    def _panes(self) -> dict[str, Widget]:
        return {
            "canvas": self.canvas,
            "around": self.around,
            "map": self.map,
            "timeline": self.timeline,
            "table": self.table,
        }

    def view_pane(self) -> Widget | None:
        """Return the pane of the view, or None where that is the outline."""
        return self._panes().get(self.view)

    @property
    def outline_shown(self) -> bool:
        """Whether the outline is in view, alone or beside another view."""
        if self.view == "canvas":
            return self.app.size.width >= VAST
        return self.view == "outline" or self.wide

    def _fit(self) -> None:
        super()._fit()
        picture = self.view != "outline"
        self.set_class(picture, "-picture")
        self.set_class(picture and self.outline_shown, "-beside")
        for name, pane in self._panes().items():
            pane.display = name == self.view
        self._heading.display = self.view in ("table", "timeline")
        self._caption.display = picture
        self.minimap.display = self.view == "canvas" and self.app.size.width >= VAST

    def tabs(self) -> Line:
        """Return the row that names the views."""
        parts: list[tuple[str, str]] = [(" ", "text")]
        gap = "   " if self.size.width >= 76 else "  "
        for name, key in VIEWS.items():
            if name == self.view:
                parts.append((f"[{key} {name}]", "text+bold"))
            else:
                parts.append((f"{key} {name}", "muted"))
            parts.append((gap, "text"))
        return tuple(parts)

    # --- drawing

    def draw_view(self, detail: RunDetail) -> None:
        """Build the view beside the outline, if one is shown."""
        if self.view == "outline":
            return
        if self.view in ("canvas", "around", "map"):
            self._draw_picture(detail)
        elif self.view == "timeline":
            self._draw_timeline(detail)
        else:
            self._draw_table(detail)
        look = self.console.painter.look
        words = look.clip(look.plain(self._words(detail)), self._caption.size.width - 2)
        self._caption.set_lines([((f" {words}", "muted"),)])

    def _draw_picture(self, detail: RunDetail) -> None:
        run, cursor = run_key(detail.run), self.chosen()
        key = plan_key(detail)
        if (run, key) != self._plan_key:
            self._plan_key = (run, key)
            self._plan = plan_of(detail, self.console.painter.look)
            self._grid = grid_of(self._plan)
        states = {each.id: state_of(each) for each in detail.operations}
        if self.view == "canvas":
            self.canvas.show_plan(run, self._plan, key, states)
            self.canvas.select(cursor)
            if self.minimap.display:
                self._draw_small_map(run, key, states, cursor)
        elif self.view == "around":
            self.around.show_around(self._plan, (run, key), cursor, states)
        else:
            shown = self.canvas.shows(run, key)
            frame = self.canvas.layers_in_view() if shown else None
            self.map.show_grid(self._ordered(run, key), states, cursor, frame)

    def _ordered(self, run: Hashable, key: Hashable) -> Sequence[Sequence[str]]:
        """Return the grid, in the order of the canvas where there is one."""
        drawing = self.canvas.drawing
        if drawing is not None and self.canvas.shows(run, key):
            return drawing.layers
        return self._grid

    def _draw_small_map(
        self,
        run: Hashable,
        key: Hashable,
        states: dict[str, State],
        cursor: str | None,
    ) -> None:
        grid = self._ordered(run, key)
        self.minimap.styles.width = min(_SMALL_MAP, 2 * len(grid) + 4)
        frame = self.canvas.layers_in_view()
        self.minimap.show_grid(grid, states, cursor, frame)

    def _rows(self) -> Sequence[OutlineRow]:
        """Return the operations that timeline and table are about."""
        rows = self.tree_rows()
        return [row for row in rows if row.chain] if self._only_chain else rows

    def _draw_timeline(self, detail: RunDetail) -> None:
        view = self.timeline
        view.cursor = self.chosen()
        view.show_time(detail, self._rows(), self.console.settings.now())
        self._heading.set_lines(view.head)
        self._adopt(view.cursor)

    def _draw_table(self, detail: RunDetail) -> None:
        console, view = self.console, self.table
        now, look, clock = console.settings.now(), console.painter.look, console.clock
        ends = {each.id: each.ended_at for each in detail.operations}
        self._heading.set_lines([table_title(view.size.width or self.size.width)])
        view.cursor = self.chosen()
        entries = table_entries(self._sorted(now), self.found())
        view.show(
            entries,
            lambda row, width, selected: draw_row(
                row,
                width,
                selected,
                detail=detail,
                ends=ends,
                now=now,
                look=look,
                clock=clock,
            ),
        )
        if not entries:
            view.show_lines([(("   Nothing matches. Esc shows all again.", "muted"),)])
        self._adopt(view.cursor)

    def _sorted(self, now: float) -> list[OutlineRow]:
        """Return the rows of the table, which stay put while somebody presses keys."""
        rows = sorted_rows(self._rows(), self._order, now)
        clock = self.console.settings.monotonic
        wait = self._touched + _QUIET_S - clock()
        if wait > 0 and self._places:
            places, last = self._places, len(self._places)
            held = sorted(rows, key=lambda row: places.get(row.operation.id, last))
            if held != rows and self._sorting is None:
                self._sorting = self.set_timer(wait, self._sort_now)
            rows = held
        self._places = {row.operation.id: at for at, row in enumerate(rows)}
        return rows

    def _sort_now(self) -> None:
        self._sorting = None
        self.redraw()

    def at_the_keys(self) -> None:
        """Take note that the operator is at the keys."""
        self._touched = self.console.settings.monotonic()

    def action_act(self, name: str) -> None:
        """Do an action of the table; rows wait until the operator pauses."""
        self.at_the_keys()
        super().action_act(name)

    def _adopt(self, cursor: Hashable | None) -> None:
        """Choose what a filtered list has put its cursor on."""
        if isinstance(cursor, str) and cursor != self.chosen():
            self.choose(cursor)

    # --- the line under a view

    def _words(self, detail: RunDetail) -> str:
        """Return in words what the view shows."""
        match self.view:
            case "canvas":
                return self._canvas_words(detail)
            case "around":
                return self._around_words(detail)
            case "map":
                frame = ", framed: on canvas" if self.map.framed else ""
                return f"{len(self._grid)} steps{frame}. {count_line(detail)}"
            case "timeline":
                idle = "i all idle time" if self.timeline.folded else "i folds it"
                keys = f"< > scale, {idle}, * chain"
                return " · ".join(filter(None, (self.timeline.legend(), keys)))
            case _:
                return self._table_words(detail)

    def _canvas_words(self, detail: RunDetail) -> str:
        parts = []
        drawing = self.canvas.drawing
        if drawing is None:
            return self.canvas.words
        seen = self.canvas.layers_in_view()
        if seen is not None:
            steps = len(drawing.layers)
            parts.append(f"steps {seen[0] + 1} to {seen[1] + 1} of {steps}")
        parts.append(count_line(detail).rstrip("."))
        if self.canvas.follow:
            parts.insert(0, "following what runs")
        if self.canvas.added:
            parts.append(f"{self.canvas.added} fitted in, Z tidies")
        if self._plan.dropped:
            parts.insert(0, self._damage())
        kinds = [f"{line} {kind}" for line, kind in drawing.legend()]
        if len(kinds) > 1:
            parts.append("  ".join(kinds))
        return " · ".join(parts)

    def _damage(self) -> str:
        count = len(self._plan.dropped)
        noun = "dependency" if count == 1 else "dependencies"
        verb = "closes" if count == 1 else "close"
        return f"! damaged plan: {count} {noun} that {verb} a cycle not drawn"

    def _around_words(self, detail: RunDetail) -> str:
        drawing = self.around.drawing
        if drawing is None:
            return self.around.words
        name = next(
            (each.name for each in detail.operations if each.id == self.chosen()), ""
        )
        hops = self.around.hops
        steps = "1 step" if hops == 1 else f"{hops} steps"
        total = len(detail.operations)
        return f"{steps} around {name}: {len(drawing.boxes)} of {total} operations"

    def _table_words(self, detail: RunDetail) -> str:
        total = len(detail.operations)
        chain = " · only the longest chain" if self._only_chain else ""
        return (
            f"{len(self.table.keys)} of {total} shown{chain} · sorted "
            f"{ORDERS[self._order][0]} · s changes the order"
        )

    # --- clocks

    def view_ticks(self) -> bool:
        """Tell whether a clock in the view goes."""
        if self.view == "timeline":
            return self.timeline.time is not None and self.timeline.time.live
        if self.view == "table":
            return any(
                entry.key is not None and is_ticking(entry.payload)
                for entry in self.table.in_view()
            )
        return False

    def view_tick(self) -> None:
        """Move the clocks of the view."""
        detail = self.detail
        if detail is not None and self.view_ticks():
            self.draw_view(detail)

    # --- keys

    def situation(self) -> Situation:
        """Add which view is shown and what can be done in it."""
        return replace(
            super().situation(),
            view=self.view,
            folded_in=self.canvas.added,
            started=self.detail is not None
            and any(each.started_at is not None for each in self.detail.operations),
        )

    def on_flow_view_moved(self, event: FlowView.Moved) -> None:
        """Choose what a view was moved to."""
        event.stop()
        self.choose(event.key)
        self.redraw()

    def on_flow_view_opened(self, event: FlowView.Opened) -> None:
        """Open what was clicked twice."""
        event.stop()
        self.action_act("nav.open")

    def on_flow_view_panned(self, event: FlowView.Panned) -> None:
        """Tell what part is in view now."""
        event.stop()
        self.redraw()

    def on_timeline_view_resized(self, event: TimelineView.Resized) -> None:
        """Make an axis of the new width."""
        event.stop()
        self.redraw()

    def show_view(self, name: str) -> None:
        """Show the operations in another way."""
        if name != self.view:
            self.view = name
            self._places = {}
            self._fit()
            self.focus_first()
            self.call_after_refresh(self.redraw)
        self.redraw()

    def do_view_outline(self) -> None:
        """Show the outline."""
        self.show_view("outline")

    def do_view_canvas(self) -> None:
        """Show the canvas, on the cursor; a large flow only when asked twice."""
        run = self.run
        detail = self.detail
        key = None if run is None else run_key(run)
        count = 0 if detail is None else len(detail.operations)
        if count > ON_REQUEST and self._asked != key:
            self._asked = key
            self.console.say(
                f"{count} operations: press c again to draw them all. "
                "The map (w) and around (e) show them at once."
            )
            return
        if self.view == "canvas":
            self.canvas.follow = False
            self.canvas.centre(self.chosen())
            self.canvas.repaint()
        self.show_view("canvas")

    def do_view_around(self) -> None:
        """Show what is around the cursor."""
        self.show_view("around")

    def do_view_map(self) -> None:
        """Show the map."""
        self.show_view("map")

    def do_view_timeline(self) -> None:
        """Show the timeline."""
        self.show_view("timeline")

    def do_view_table(self) -> None:
        """Show the table."""
        self.show_view("table")

    def do_view_next(self) -> None:
        """Show the next view that is drawn without being asked twice."""
        names = list(VIEWS)
        count = 0 if self.detail is None else len(self.detail.operations)
        if count > ON_REQUEST:
            names.remove("canvas")
        place = names.index(self.view) if self.view in names else 0
        self.show_view(names[(place + 1) % len(names)])

    def do_view_less(self) -> None:
        """Show fewer steps, or a shorter time."""
        self._scale(-1)

    def do_view_more(self) -> None:
        """Show more steps, or a longer time."""
        self._scale(1)

    def _scale(self, by: int) -> None:
        if self.view == "timeline":
            self.timeline.rescale(longer=by > 0)
        else:
            self.around.hops = max(1, min(MAX_HOPS, self.around.hops + by))
        self.redraw()

    def do_view_direction(self) -> None:
        """Turn the canvas."""
        self.canvas.turn()
        self.redraw()

    def do_view_tidy(self) -> None:
        """Lay the canvas out afresh."""
        self.canvas.tidy()
        self.redraw()

    def do_view_idle(self) -> None:
        """Fold idle time, or show it in full."""
        self.timeline.folded = not self.timeline.folded
        self.redraw()

    def do_view_chain(self) -> None:
        """Show the longest chain alone, or everything again."""
        self._only_chain = not self._only_chain
        self.redraw()

    def do_file_save(self) -> None:
        """Ask what to make of the flow, and write it to a file."""
        detail, look = self.detail, self.console.painter.look
        assert detail is not None
        try:
            folder = Path.cwd()
        except OSError:
            self.console.say("Not saved: the folder of this console is gone.")
            return

        def done(form: str | None) -> None:
            if form is not None:
                self.run_worker(self._save(detail, form, folder))

        where = look.clip_start(look.plain(folder), 40)
        options = [
            (form, word, f"in {where}, .{ending}")
            for form, (word, ending) in FORMS.items()
        ]
        question = Choice(self.console, title="Save the flow", options=options)
        self.app.push_screen(question, done)

    async def _save(self, detail: RunDetail, form: str, folder: Path) -> None:
        try:
            path = await asyncio.to_thread(
                export,
                detail,
                form,
                folder,
                direction=self.canvas.direction,
                ascii_only=self.console.painter.look.ascii_only,
            )
        except (OSError, HeavetoError) as error:
            self.console.say(f"Not saved in {folder}: {error}")
            return
        self.console.say(f"Saved as {path.name} in {folder}")

    def do_list_sort(self) -> None:
        """Sort the table otherwise."""
        orders = list(ORDERS)
        self._order = orders[(orders.index(self._order) + 1) % len(orders)]
        self._places = {}
        self.redraw()

    # --- find

    def picture_find(self) -> bool:
        """Tell whether a search moves the cursor here instead of hiding rows."""
        return self.view in _PICTURES and bool(self.found())

    def go_to_match(self, step: int) -> bool:
        """Put the cursor on the next operation that matches; False without one."""
        rows = self.tree_rows()
        hits = [entry.key for entry in table_entries(rows, self.found())]
        if not hits:
            self.console.say("Nothing matches.")
            return False
        order = [row.operation.id for row in rows]
        chosen = self.chosen()
        here = order.index(chosen) if chosen in order else -1
        places = [order.index(str(hit)) for hit in hits]
        if step == 0:
            at = next((n for n, place in enumerate(places) if place >= here), 0)
        elif step > 0:
            at = next((n for n, place in enumerate(places) if place > here), 0)
        else:
            before = [n for n, place in enumerate(places) if place < here]
            at = before[-1] if before else len(places) - 1
        self.choose(order[places[at]])
        self.console.say(f"Match {at + 1} of {len(hits)}; n and N go on.")
        return True

    def canvas_can_follow(self) -> bool:
        """Tell whether something can still run that the canvas could follow."""
        run, detail = self.run, self.detail
        return (
            run is not None
            and detail is not None
            and is_live(run)
            and any(each.status is not Status.COMPLETED for each in detail.operations)
        )
