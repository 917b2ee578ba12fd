"""Questions on top of a place: what will happen, then yes or no.

A question opens without covering what it is about, says the effect as it would be now
(it is built again with every reading), and the command that does the same. Keys that
cannot have been meant are not obeyed: those right after its opening and
those that come closer together than a hand can type, so that pasted text decides
nothing (:class:`~heaveto_tui.screens.place.Overlay`). What is for good wants the first
four characters of the run's id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.containers import Vertical

from heaveto_tui.lines import EMPTY, Line, cell_width, fit
from heaveto_tui.screens.place import Overlay
from heaveto_tui.widgets.field import Field
from heaveto_tui.widgets.lineview import Bar, Entry, ListView

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual import events
    from textual.app import ComposeResult
    from textual.widget import Widget

    from heaveto_tui.screens.place import Console

__all__ = ["Choice", "Question", "Typed"]


class Question(Overlay):
    """What will happen, and Enter or Esc.

    The body is a function, so that the effect shown is always the present one.
    """

    def __init__(
        self,
        console: Console,
        *,
        title: str,
        yes: str,
        body: Callable[[int], list[Line]],
        no: str = "no",
        sheet: bool = True,
        off: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Ask.

        Args:
            console: The app.
            title: What it is about.
            yes: What Enter does, in a word or two.
            body: Builds the lines for a width.
            no: What Esc does.
            sheet: It stands at the bottom; else in the middle.
            off: Returns why it cannot be done any more, once that is so.
        """
        super().__init__(console)
        self._title, self._yes, self._no = title, yes, no
        self._body, self._off = body, off
        self._above = Bar(console.painter, id="above", panel=True)
        self._below = Bar(console.painter, id="below", panel=True)
        self.set_class(sheet, "-sheet")

    def compose(self) -> ComposeResult:
        """Stack frame and, for a typed answer, a field."""
        with Vertical(id="question"):
            yield self._above
            yield from self.answer()
            yield self._below

    def answer(self) -> ComposeResult:
        """Yield what is typed into; nothing here."""
        yield from ()

    def ready(self) -> bool:
        """Tell whether yes can be said."""
        return self._off() is None

    def redraw(self) -> None:
        """Build the frame and what is in it."""
        look = self.console.painter.look
        width = self.width
        inner = width - 4
        off = self._off()
        body = self._body(inner)
        if off is not None:
            body = [*body, EMPTY, ((off, "bad"),)]
        title = look.clip(self._title, inner - 2)
        self._above.set_lines(framed(title, body, width))
        self._below.set_lines([*self._keys(width), bottom(width)])

    @property
    def width(self) -> int:
        """Cells of the frame."""
        return self._above.size.width or min(76, max(20, self.app.size.width))

    def _keys(self, width: int) -> list[Line]:
        look = self.console.painter.look
        yes = f"{look.enter} {self._yes}"
        role = "text+bold"
        if not self.ready():
            yes, role = f"({yes})", "muted"
        keys: Line = ((yes, role), (f"     Esc {self._no}", "text"))
        return [_framed(EMPTY, width), _framed(keys, width)]

    def on_key(self, event: events.Key) -> None:
        """Answer."""
        event.stop()
        event.prevent_default()
        meant = self.meant(event)
        if event.key in {"escape", "backspace", "q"}:
            self.answer_with(None)
        elif event.key == "enter" and meant and self.ready():
            self.answer_with("yes")


class Typed(Question):
    """A question about what is for good: four characters of the id, then Enter."""

    def __init__(
        self,
        console: Console,
        *,
        title: str,
        yes: str,
        body: Callable[[int], list[Line]],
        expected: str,
        no: str = "leave it running",
        off: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Ask, and want the first four characters of ``expected``."""
        super().__init__(
            console, title=title, yes=yes, body=body, no=no, sheet=False, off=off
        )
        self._expected = expected[:4]
        self._request = Bar(console.painter, id="ask", panel=True)
        self._typed = Confirm(self, id="typed", panel=True)

    def answer(self) -> ComposeResult:
        """Yield the field."""
        yield self._request
        yield self._typed

    def first(self) -> Widget:
        """The field has the keys."""
        return self._typed

    def redraw(self) -> None:
        """Build the frame, the request and what is typed."""
        super().redraw()
        width = self.width
        words = f"Type {self._expected} (the id's first 4 characters) to do it:"
        self._request.set_lines(
            [_framed(EMPTY, width), _framed(((words, "text"),), width)]
        )

    def ready(self) -> bool:
        """Tell whether the characters match."""
        typed = self._typed.value
        return typed.casefold() == self._expected.casefold() and super().ready()

    def on_field_changed(self, event: Field.Changed) -> None:
        """Show whether the characters match."""
        event.stop()
        self.redraw()

    def on_field_done(self, event: Field.Done) -> None:
        """Answer."""
        event.stop()
        if event.key == "escape":
            self.answer_with(None)
        elif event.key == "enter" and self.ready():
            self.answer_with("yes")


class Confirm(Field):
    """The field of a typed confirmation: pasted text and key bursts stay out of it."""

    def __init__(self, question: Typed, *, id: str, panel: bool) -> None:
        """Belong to a question."""
        super().__init__(
            question.console.painter,
            label="│ > ",
            edge="│",
            limit=8,
            id=id,
            panel=panel,
        )
        self._question = question

    def on_key(self, event: events.Key) -> None:
        """Edit with what can have been meant."""
        if self._question.meant(event) or event.key == "escape":
            super().on_key(event)
        else:
            event.stop()
            event.prevent_default()

    def on_paste(self, event: events.Paste) -> None:
        """Pasted text confirms nothing."""
        event.stop()
        event.prevent_default()


class Choice(Overlay):
    """A short list to choose from."""

    def __init__(
        self,
        console: Console,
        *,
        title: str,
        options: Sequence[tuple[str, str, str]],
        chosen: str | None = None,
        body: Sequence[Line] = (),
    ) -> None:
        """Offer options.

        Args:
            console: The app.
            title: What it is about.
            options: Key, word and explanation of each.
            chosen: The key the cursor starts on.
            body: Lines above the options.
        """
        super().__init__(console)
        self._title, self._options = title, options
        self._chosen = chosen or options[0][0]
        self._lines = list(body)
        painter = console.painter
        self._above = Bar(painter, id="above", panel=True)
        self._list = ListView["tuple[str, str, str]"](painter, id="options", panel=True)
        self._list.styles.height = len(options)
        self._list.cursor = self._chosen
        self._below = Bar(painter, id="below", panel=True)

    def compose(self) -> ComposeResult:
        """Stack title, options, keys."""
        with Vertical(id="question"):
            yield self._above
            yield self._list
            yield self._below

    def first(self) -> Widget:
        """The list has the keys."""
        return self._list

    def redraw(self) -> None:
        """Build title, options and keys."""
        look = self.console.painter.look
        width = self._above.size.width or min(76, max(20, self.app.size.width))
        body = [*self._lines, EMPTY] if self._lines else []
        self._above.set_lines(framed(look.clip(self._title, width - 8), body, width))
        self._list.show([Entry(option[0], option) for option in self._options], _option)
        keys = f"{look.arrows} choose   {look.enter} take it   Esc no"
        self._below.set_lines(
            [_framed(EMPTY, width), _framed(((keys, "text"),), width), bottom(width)]
        )

    def on_key(self, event: events.Key) -> None:
        """Choose or leave; arrows belong to the list."""
        meant = self.meant(event)
        if event.key in {"escape", "backspace", "q"}:
            event.stop()
            self.answer_with(None)
        elif event.key == "enter":
            event.stop()
            if meant:
                self.answer_with(str(self._list.cursor))

    def on_list_view_opened(self, event: ListView.Opened) -> None:
        """A click on the chosen option takes it."""
        event.stop()
        self.answer_with(str(event.view.cursor))


def _option(option: tuple[str, str, str], width: int, selected: bool) -> Line:
    _, word, means = option
    line: Line = (
        ("▌ " if selected else "  ", "text"),
        (f"{word:<14} ", "text+bold" if selected else "text"),
        (means, "muted"),
    )
    return _framed(line, width)


def framed(title: str, body: Sequence[Line], width: int) -> list[Line]:
    """Return the top of a frame with its title, and lines between its sides."""
    rule = "─" * max(0, width - 5 - cell_width(title))
    top: Line = (("╭─ ", "muted"), (title, "text+bold"), (f" {rule}╮", "muted"))
    return [top, *(_framed(line, width) for line in body)]


def bottom(width: int) -> Line:
    """Return the bottom of a frame."""
    return (("╰" + "─" * max(0, width - 2) + "╯", "muted"),)


def _framed(line: Line, width: int) -> Line:
    return (("│ ", "muted"), *fit(line, width - 4), (" │", "muted"))
