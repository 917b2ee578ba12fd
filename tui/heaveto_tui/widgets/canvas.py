"""The canvas: the whole flow drawn, seen through a window.

Small flows are laid out at once, larger ones in a thread; while that works the former
drawing stays, and of several requests the newest is the one that is shown. An operation
that is added is fitted into the drawing, so that nothing jumps while somebody looks.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from textual.message import Message

from heaveto_tui.dag_layout import draw
from heaveto_tui.pictures import INLINE, Plan, State, additions, with_additions
from heaveto_tui.widgets.flow_view import PictureView

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from heaveto_tui.dag_layout import Drawing
    from heaveto_tui.theme import Painter

__all__ = ["LABEL", "Canvas"]

LABEL = 22
"""Cells of a label on a canvas: a longer name is cut in its middle."""

_FRONT = frozenset({"◐", "‖"})
"""Signs of what is at work."""


class Canvas(PictureView):
    """The whole flow.

    Attributes:
        direction: ``LR`` or ``TB``.
        follow: What runs is kept in view.
        added: Operations that were fitted in since the last fresh layout.
    """

    class Drawn(Message):
        """A thread has finished a drawing."""

        def __init__(self, wanted: Hashable, drawing: Drawing | Exception) -> None:
            """Hold what was wanted and what came of it."""
            super().__init__()
            self.wanted = wanted
            self.drawing = drawing

    def __init__(self, painter: Painter, *, id: str | None = None) -> None:
        """Start without a flow, from left to right."""
        super().__init__(painter, id=id)
        self.direction = "LR"
        self.follow = False
        self.added = 0
        self._plan: Plan | None = None
        self._next: Plan | None = None
        self._drawn: Hashable | None = None
        self._wanted: Hashable | None = None
        self._run: Hashable | None = None
        self._at_work = False
        self._extent = (0, 0)
        self._seen_from: tuple[object, int, int, int, int] | None = None
        self._seen: tuple[int, int] | None = None

    def show_plan(
        self,
        run: Hashable,
        plan: Plan,
        key: Hashable,
        states: Mapping[str, State],
    ) -> None:
        """Show a flow as it is now.

        Args:
            run: Whose flow it is; the window of another run begins anew.
            plan: Its operations and dependencies.
            key: Equal for equal plans of one run.
            states: What each operation shows.
        """
        if run != self._run:
            self._run = run
            self._forget()
        wanted = (run, key, self.direction)
        if wanted == self._drawn:
            self.set_states(states)
        elif (grown := self._grow(plan, states)) is not None:
            self._take(wanted, plan, grown, states)
        elif len(plan.nodes) <= INLINE:
            self.added = 0
            self._take(wanted, plan, self._laid_out(plan, self.direction), states)
        else:
            self.set_states(states)
            self._request(wanted, plan)
        if self.follow:
            self._follow_front()

    def _forget(self) -> None:
        self.drawing = None
        self._plan = self._next = self._drawn = self._wanted = None
        self.added = 0
        self.follow = False
        self.x = self.y = 0

    def _grow(self, plan: Plan, states: Mapping[str, State]) -> Drawing | None:
        """Return the drawing with the operations that came, if that is all."""
        drawing, old = self.drawing, self._plan
        if drawing is None or old is None or drawing.direction != self.direction:
            return None
        more = additions(old, plan)
        if not more:
            return None
        self.added += len(more)
        return with_additions(drawing, more, plan)

    def _take(
        self,
        wanted: Hashable,
        plan: Plan,
        drawing: Drawing,
        states: Mapping[str, State],
    ) -> None:
        self._drawn = self._wanted = wanted
        self._plan = plan
        self.set_drawing(drawing, states)

    def _laid_out(self, plan: Plan, direction: str) -> Drawing:
        return draw(
            plan.nodes,
            direction,
            plan.kinds,
            ascii=self.painter.look.ascii_only,
            label_width=LABEL,
        )

    # --- layouts in a thread

    def _request(self, wanted: Hashable, plan: Plan) -> None:
        """Ask for a layout; while one is made the newest request waits."""
        if wanted == self._wanted and self._at_work:
            return
        self._wanted = wanted
        self._next = plan
        self.words = f"Laying out {len(plan.nodes)} operations …"
        if self.drawing is None:
            self.repaint()
        if not self._at_work:
            self._at_work = True
            # What is shown meanwhile is drawn first: the thread would slow it down.
            self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        if self._wanted is None or self._next is None:
            self._at_work = False
        else:
            self._start(self._wanted, self._next)

    def _start(self, wanted: Hashable, plan: Plan) -> None:
        self._at_work = True
        direction = self.direction

        def work() -> None:
            result: Drawing | Exception
            try:
                result = self._laid_out(plan, direction)
                result.spans(0)  # what lies in which row is found here, too
            except Exception as error:
                result = error
            with contextlib.suppress(RuntimeError):  # the console has been left
                self.post_message(self.Drawn(wanted, result))

        # A daemon: leaving the console does not wait for a picture.
        threading.Thread(target=work, name="layout", daemon=True).start()

    def on_canvas_drawn(self, event: Canvas.Drawn) -> None:
        """Show what was wanted last; begin with what is wanted by now."""
        event.stop()
        self._at_work = False
        if isinstance(event.drawing, Exception):
            raise event.drawing
        plan = self._next
        if plan is None or self._wanted is None or self._wanted == self._drawn:
            return
        if event.wanted != self._wanted:
            self._start(self._wanted, plan)
            return
        self.added = 0
        self._take(event.wanted, plan, event.drawing, self._states)
        self.post_message(self.Panned())

    def shows(self, run: Hashable, key: Hashable) -> bool:
        """Tell whether the drawing is of this plan of this run."""
        return self.drawing is not None and self._drawn == (run, key, self.direction)

    # --- what the operator asks for

    def move_to(self, key: str | None) -> None:
        """Go to another operation; following ends."""
        self.follow = False
        super().move_to(key)

    def pan(self, right: int, down: int) -> None:
        """Move the window by hand; following ends when it moves."""
        at = (self.x, self.y)
        super().pan(right, down)
        self.follow = self.follow and at == (self.x, self.y)

    def turn(self) -> None:
        """Let the flow run downwards, or from left to right again."""
        self.direction = "TB" if self.direction == "LR" else "LR"

    def tidy(self) -> None:
        """Lay out afresh, without what was fitted in."""
        self._drawn = None
        self._plan = None

    def start_follow(self) -> None:
        """Keep what runs in view until the operator moves."""
        self.follow = True
        self._follow_front()

    def _follow_front(self) -> None:
        """Move the window to what runs, if nothing of it is in view."""
        drawing = self.drawing
        if drawing is None:
            return
        front = [
            name for name in drawing.boxes if self._states.get(name, ("",))[0] in _FRONT
        ]
        if not front or all(self._in_view(name) for name in front):
            return
        front.sort(key=lambda name: drawing.boxes[name][:2])
        middle = front[len(front) // 2]
        if not self._in_view(middle):
            at = (self.x, self.y)
            self.centre(middle)
            if at != (self.x, self.y):
                self.repaint()

    def layers_in_view(self) -> tuple[int, int] | None:
        """Return the first and the last step of the flow of which a node is in view.

        While another view is shown, those that were in view last.
        """
        drawing = self.drawing
        if drawing is None:
            return None
        wide, high = self._extent if not self.size.width else self.size
        self._extent = (wide, high)
        at = (drawing, self.x, self.y, wide, high)
        if at != self._seen_from:
            self._seen_from = at
            self._seen = self._layers_at(drawing, wide, high)
        return self._seen

    def _layers_at(
        self, drawing: Drawing, wide: int, high: int
    ) -> tuple[int, int] | None:
        seen = [
            at
            for at, layer in enumerate(drawing.layers)
            for x, y, width, height in (drawing.boxes[name] for name in layer)
            if x < self.x + wide
            and x + width > self.x
            and y < self.y + high
            and y + height > self.y
        ]
        return (min(seen), max(seen)) if seen else None
