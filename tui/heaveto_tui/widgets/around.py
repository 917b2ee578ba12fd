"""Around: an operation with what it depends on and what depends on it, some steps far.

The picture is made anew around the cursor wherever it goes; that takes some
milliseconds, however large the flow is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heaveto_tui.dag_layout import ego
from heaveto_tui.dag_layout.plans import around
from heaveto_tui.widgets.flow_view import PictureView

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from heaveto_tui.pictures import Plan, State
    from heaveto_tui.theme import Painter

__all__ = ["MAX_HOPS", "Around"]

MAX_HOPS = 9
_MOST = 250
"""More operations than this are not drawn here: it would take too long at a key."""
_NARROW, _LABELS = 100, (14, 20)
"""Below so many columns names are cut to the first length, else to the second."""


class Around(PictureView):
    """A part of the flow.

    Attributes:
        hops: Steps along dependencies, either way.
    """

    def __init__(self, painter: Painter, *, id: str | None = None) -> None:
        """Start with two steps."""
        super().__init__(painter, id=id)
        self.hops = 2
        self._made: Hashable | None = None

    def show_around(
        self,
        plan: Plan,
        key: Hashable,
        cursor: str | None,
        states: Mapping[str, State],
    ) -> None:
        """Show what is around an operation.

        Args:
            plan: The whole flow.
            key: Equal for equal plans of one run.
            cursor: The operation in the middle.
            states: What each operation shows.
        """
        if cursor is None or all(node[0] != cursor for node in plan.nodes):
            self.drawing = self._made = None
            self.words = "No operation is chosen."
            self.repaint()
            return
        label = _LABELS[self.size.width >= _NARROW]
        wanted = (key, cursor, self.hops, label)
        if wanted == self._made:
            self.set_states(states)
            return
        self._made = wanted
        self.drawing = None
        self.cursor = cursor
        part = around(plan.nodes, cursor, self.hops)
        if len(part) > _MOST:
            self.words = (
                f"{len(part)} operations so near: too many to draw. "
                "< takes fewer steps, w shows the map."
            )
            self.repaint()
            return
        drawing = ego(
            part,
            cursor,
            self.hops,
            kinds=plan.kinds,
            ascii=self.painter.look.ascii_only,
            label_width=label,
        )
        self.set_drawing(drawing, states)
