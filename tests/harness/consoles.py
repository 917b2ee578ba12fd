"""The console under a test: started on a source, driven by keys, read as pictures."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from textual.events import Key
from textual.keys import _character_to_key, key_to_character

from harness.worlds import HOME, NOW, Scripted, world
from heaveto_tui.app import HeavetoApp
from heaveto_tui.lines import Look
from heaveto_tui.presentation import Clock
from heaveto_tui.state import Settings
from heaveto_tui.theme import PALETTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from textual.pilot import Pilot

    from heaveto.observe.snapshot import RunDetail

__all__ = ["Driven", "console", "make_app"]

_ROLES = ("text", "muted", "good", "live", "hold", "bad", "note")


def make_app(
    source: Any,
    *,
    palette: str = "night",
    ascii_only: bool = False,
    homes: tuple[str, ...] = (HOME,),
    **settings: Any,
) -> HeavetoApp:
    """Return a console with a fixed clock; drawing waits for nothing."""
    ticks = itertools.count()
    values: dict[str, Any] = {
        "now": lambda: NOW,
        "monotonic": lambda: float(next(ticks)),
        "user_home": "/home/alice",
    }
    return HeavetoApp(
        source,
        homes=homes,
        usual=homes,
        palette=PALETTES[palette],
        look=Look(ascii_only=ascii_only),
        clock=Clock(),
        settings=Settings(**{**values, **settings}),
    )


class Driven:
    """A running console and its keyboard."""

    def __init__(self, app: HeavetoApp, pilot: Pilot[int]) -> None:
        self.app = app
        self.pilot = pilot

    async def press(self, *keys: str) -> None:
        """Press keys, and wait after each until everything they caused is done."""
        for key in keys:
            self.send(key)
            await self.settle()

    async def type(self, text: str) -> None:
        """Type a text."""
        for char in text:
            self.send(char)
        await self.settle()

    def send(self, key: str) -> None:
        """Send a key as the terminal's reader does."""
        if len(key) == 1:
            name, char = _character_to_key(key), key
        else:
            name = key
            found = key_to_character(key)
            char = found if found is not None else ""
        event = Key(name, char or None)
        event.set_sender(self.app)
        assert self.app._driver is not None
        self.app._driver.send_message(event)

    async def quiet(self) -> None:
        """Wait until everything that was wanted has been read and drawn."""
        for _ in range(1000):
            await self.settle(2)
            if not self.app.feed.reading:
                break
            await asyncio.sleep(0.005)
        await self.settle()

    async def settle(self, rounds: int = 12) -> None:
        """Wait until every message, and what it caused, has been handled."""
        for _ in range(rounds):
            await self.pilot._wait_for_screen()
            await asyncio.sleep(0)
        self.app.screen._on_timer_update()

    async def until(self, wanted: str) -> None:
        """Wait until a text is shown."""
        for _ in range(1000):
            if wanted in self.text():
                return
            await self.settle(1)
            await asyncio.sleep(0.01)
        raise AssertionError(f"never shown: {wanted!r} in\n{self.text()}")

    def rows(self) -> list[str]:
        """Return what is shown, row by row."""
        strips = self.app.screen._compositor.render_strips()
        return [strip.text.rstrip() for strip in strips]

    def text(self) -> str:
        """Return what is shown."""
        return "\n".join(self.rows())

    def row(self, part: str) -> str:
        """Return the one row that holds a text."""
        found = [row for row in self.rows() if part in row]
        assert found, f"no row holds {part!r} in\n{self.text()}"
        return found[0]

    @property
    def word(self) -> str:
        """The last word."""
        return self.app.last_word

    @property
    def place(self) -> str:
        """The place in view."""
        place = self.app.place
        return "" if place is None else place.PLACE

    @property
    def on_top(self) -> str:
        """The name of the class of what takes the keys."""
        return type(self.app.screen).__name__

    def roles(self) -> list[str]:
        """Return a letter for each cell: its role; a capital where it is bold.

        ``.`` is a blank; ``s`` and ``S`` stand where the row is selected.
        """
        palette = self.app.painter.palette
        letters = {getattr(palette, role): role[0] for role in _ROLES}
        found = []
        for strip in self.app.screen._compositor.render_strips():
            row = ""
            for text, style, _ in strip:
                letter = "?"
                if style is not None and style.color is not None:
                    letter = letters.get(style.color.name, "?")
                if style is not None and style.reverse:
                    letter = "r"
                if style is not None and style.bold:
                    letter = letter.upper()
                row += "".join("." if char == " " else letter for char in text)
            found.append(row.rstrip("."))
        return found


@asynccontextmanager
async def console(
    details: Iterable[RunDetail] | None = None,
    *,
    size: tuple[int, int] = (80, 24),
    source: Any = None,
    **options: Any,
) -> AsyncIterator[Driven]:
    """Run a console over runs, or over any source."""
    played = source or Scripted(world() if details is None else details)
    app = make_app(played, **options)
    async with app.run_test(size=size) as pilot:
        driven = Driven(app, pilot)
        for _ in range(1000):
            if app.store.listed:
                break
            await asyncio.sleep(0.005)
        await driven.quiet()
        yield driven
