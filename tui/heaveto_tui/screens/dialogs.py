"""Questions on top of a place: what will happen, then yes or no.

A question opens without covering what it is about, says the effect as it would be now
(it is built again with every reading), and the command that does the same. Keys that
cannot have been meant are not obeyed: those within :data:`SETTLE_S` of its opening and
those that come closer together than a hand can type, so that pasted text decides
nothing. What is for good wants the first four characters of the run's id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.containers import Vertical
from textual.screen import ModalScreen

from heaveto_tui.lines import EMPTY, Line
from heaveto_tui.widgets.field import Field
from heaveto_tui.widgets.lineview import Bar, Entry, ListView

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual import events
    from textual.app import ComposeResult

    from heaveto_tui.screens.place import Console

__all__ = ["Choice", "Overlay", "Question", "Typed"]

SETTLE_S = 0.15
"""Seconds after its opening for which a question obeys no key."""
BURST_S = 0.03
"""Keys that come closer together were not typed by a hand."""


class Overlay(ModalScreen[str | None], inherit_bindings=False):
    """Something on top of a place that takes every key.

    Attributes:
        console: The app, as screens see it.
    """

    ALLOW_SELECT = False

    def __init__(self, console: Console) -> None:
        """Open over a place of a console."""
        super().__init__()
        self.console = console
        self._opened = 0.0
        self._last_key = 0.0

    def on_mount(self) -> None:
        """Start the time in which keys are not obeyed."""
        self._opened = self._last_key = self._time()
        self.redraw()

    def _time(self) -> float:
        from textual._time import get_time

        return get_time()

    def meant(self, event: events.Key) -> bool:
        """Tell whether a key can have been pressed by somebody who read the question.

        A driver without a keyboard (a test, a recording) sends what is meant.
        """
        before, self._last_key = self._last_key, event.time
        if self.app.is_headless:
            return True
        return event.time - self._opened >= SETTLE_S and event.time - before >= BURST_S

    def redraw(self) -> None:
        """Build everything again."""

    def on_resize(self) -> None:
        """Draw for the new size."""
        self.redraw()

    def on_paste(self, event: events.Paste) -> None:
        """Pasted text decides nothing."""
        event.stop()


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
        self.set_class(sheet, "-sheet")

    def compose(self) -> ComposeResult:
        """Stack frame and, for a typed answer, a field."""
        painter = self.console.painter
        with Vertical(id="question"):
            yield Bar(painter, id="above", panel=True)
            yield from self.answer()
            yield Bar(painter, id="below", panel=True)

    def answer(self) -> ComposeResult:
        """Yield what is typed into; nothing here."""
        yield from ()

    def ready(self) -> bool:
        """Tell whether yes can be said."""
        return self._off() is None

    def redraw(self) -> None:
        """Build the frame and what is in it."""
        if not self.is_mounted:
            return
        look = self.console.painter.look
        width = self.query_one("#question").size.width or min(78, self.size.width - 2)
        inner = width - 4
        off = self._off()
        body = self._body(inner)
        if off is not None:
            body = [*body, EMPTY, ((off, "bad"),)]
        title = look.clip(self._title, inner - 2)
        rule = "─" * max(0, width - 5 - len(title))
        top: Line = (("╭─ ", "muted"), (title, "text+bold"), (f" {rule}╮", "muted"))
        self.query_one("#above", Bar).set_lines(
            [top, *(_framed(line, width) for line in body)]
        )
        self.query_one("#below", Bar).set_lines(
            [*self._keys(width), (("╰" + "─" * (width - 2) + "╯", "muted"),)]
        )

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
            self.dismiss(None)
        elif event.key == "enter" and meant and self.ready():
            self.dismiss("yes")


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

    def answer(self) -> ComposeResult:
        """Yield the field."""
        yield Bar(self.console.painter, id="ask", panel=True)
        yield Confirm(self, id="typed", panel=True)

    def on_mount(self) -> None:
        """Give the field the keys."""
        super().on_mount()
        self.query_one("#typed", Field).focus(scroll_visible=False)

    def redraw(self) -> None:
        """Build the frame, the request and what is typed."""
        super().redraw()
        if not self.is_mounted:
            return
        width = self.query_one("#question").size.width
        words = f"Type {self._expected} (the id's first 4 characters) to do it:"
        self.query_one("#ask", Bar).set_lines(
            [_framed(EMPTY, width), _framed(((words, "text"),), width)]
        )

    def ready(self) -> bool:
        """Tell whether the characters match."""
        if not self.is_mounted:
            return False
        typed = self.query_one("#typed", Field).value
        return typed.casefold() == self._expected.casefold() and super().ready()

    def on_field_changed(self, event: Field.Changed) -> None:
        """Show whether the characters match."""
        event.stop()
        self.redraw()

    def on_field_done(self, event: Field.Done) -> None:
        """Answer."""
        event.stop()
        if event.key == "escape":
            self.dismiss(None)
        elif event.key == "enter" and self.ready():
            self.dismiss("yes")


class Confirm(Field):
    """The field of a typed confirmation: pasted text and key bursts stay out of it."""

    def __init__(self, question: Typed, *, id: str, panel: bool) -> None:
        """Belong to a question."""
        super().__init__(
            question.console.painter, label="│   ", limit=8, id=id, panel=panel
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

    def compose(self) -> ComposeResult:
        """Stack title, options, keys."""
        painter = self.console.painter
        with Vertical(id="question"):
            yield Bar(painter, id="above", panel=True)
            options = ListView["tuple[str, str, str]"](
                painter, id="options", panel=True
            )
            options.styles.height = len(self._options)
            yield options
            yield Bar(painter, id="below", panel=True)

    def on_mount(self) -> None:
        """Give the list the keys."""
        super().on_mount()
        view = self.query_one("#options", ListView)
        view.cursor = self._chosen
        view.focus(scroll_visible=False)
        self.redraw()

    def redraw(self) -> None:
        """Build title, options and keys."""
        if not self.is_mounted:
            return
        look = self.console.painter.look
        width = self.query_one("#question").size.width or min(78, self.size.width - 2)
        self.query_one("#above", Bar).set_lines(
            [((f" {self._title}", "text+bold"),), EMPTY]
            + [((" ", "text"), *line) for line in self._lines]
            + ([EMPTY] if self._lines else [])
        )
        self.query_one("#options", ListView).show(
            [Entry(option[0], option) for option in self._options], _option
        )
        self.query_one("#below", Bar).set_lines(
            [
                EMPTY,
                ((f" {look.arrows} choose   {look.enter} take it   Esc no", "muted"),),
            ]
        )
        del width

    def on_key(self, event: events.Key) -> None:
        """Choose or leave; arrows belong to the list."""
        meant = self.meant(event)
        if event.key in {"escape", "backspace", "q"}:
            event.stop()
            self.dismiss(None)
        elif event.key == "enter":
            event.stop()
            if meant:
                self.dismiss(str(self.query_one("#options", ListView).cursor))

    def on_list_view_opened(self, event: ListView.Opened) -> None:
        """A click on the chosen option takes it."""
        event.stop()
        self.dismiss(str(event.view.cursor))


def _option(option: tuple[str, str, str], width: int, selected: bool) -> Line:
    _, word, means = option
    return (
        ("▌ " if selected else "  ", "text"),
        (f"{word:<14} ", "text+bold" if selected else "text"),
        (means, "muted"),
    )


def _framed(line: Line, width: int) -> Line:
    from heaveto_tui.lines import fit

    return (("│ ", "muted"), *fit(line, width - 4), (" │", "muted"))
