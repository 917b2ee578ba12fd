"""Draw the README's pictures: the real console over real runs of the demo flows.

``python screenshots/render.py`` runs the bundled flows in a folder of its own, drives
the console by its keys and writes ``runs.svg``, ``run.svg``, ``message.svg`` and
``controls.svg`` beside this file. Nothing is drawn by hand; the cells are those that a
terminal gets.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from heaveto.demo import FLOWS
from heaveto.detach import start
from heaveto.homes import open_home
from heaveto.observe import Observer
from heaveto.text import cell_width
from heaveto_tui.app import HeavetoApp
from heaveto_tui.presentation import Clock
from heaveto_tui.state import Settings
from heaveto_tui.theme import PALETTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.style import Style
    from textual.pilot import Pilot

CELL_W, CELL_H, PAD, BAR = 8.4, 18, 14, 30
FONT = "ui-monospace, 'DejaVu Sans Mono', 'Cascadia Mono', Menlo, Consolas, monospace"
SIZE = (124, 30)
PALETTE = PALETTES["night"]


def svg(app: HeavetoApp, title: str) -> str:
    """Return what the console shows as SVG: a rectangle and a text for each run."""
    columns, rows = app.size
    width, height = columns * CELL_W + 2 * PAD, rows * CELL_H + PAD + BAR
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg"'
        f' viewBox="0 0 {width:.0f} {height:.0f}"'
        f' font-family="{FONT}" font-size="14" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="100%" height="100%" rx="8" fill="{PALETTE.background}"/>',
        f'<text x="{width / 2:.0f}" y="20" fill="{PALETTE.muted}"'
        f' text-anchor="middle">{escape(title)}</text>',
    ]
    for row, strip in enumerate(app.screen._compositor.render_strips()):
        column = 0
        for text, style, _ in strip:
            cells = cell_width(text)
            parts.extend(_run(text, style, column, row, cells))
            column += cells
    return "\n".join([*parts, "</svg>", ""])


def _run(
    text: str, style: Style | None, column: int, row: int, cells: int
) -> list[str]:
    """Return one run of cells of one style."""
    x, y = PAD + column * CELL_W, BAR + row * CELL_H
    fore, back = PALETTE.text, PALETTE.background
    bold = ""
    if style is not None:
        fore = style.color.name if style.color is not None else fore
        back = style.bgcolor.name if style.bgcolor is not None else back
        if style.reverse:
            fore, back = back, fore
        bold = ' font-weight="bold"' if style.bold else ""
    found = []
    if back != PALETTE.background:
        found.append(
            f'<rect x="{x:.1f}" y="{y}" width="{cells * CELL_W:.1f}"'
            f' height="{CELL_H}" fill="{back}"/>'
        )
    if text == "│":
        found.append(
            f'<rect x="{x + CELL_W / 2:.1f}" y="{y}" width="1" height="{CELL_H}"'
            f' fill="{fore}"/>'
        )
    elif text.strip():
        found.append(
            f'<text x="{x:.1f}" y="{y + 13.5:.1f}" fill="{fore}"{bold}'
            f' textLength="{cells * CELL_W:.1f}" xml:space="preserve">'
            f"{escape(text)}</text>"
        )
    return found


class Tour:
    """One walk through the console, with pictures on the way."""

    def __init__(self, app: HeavetoApp, pilot: Pilot[int], folder: Path) -> None:
        """Walk with a pilot; put pictures into a folder."""
        self.app, self.pilot, self.folder = app, pilot, folder

    def text(self) -> str:
        """Return what is shown."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join(strip.text for strip in strips)

    async def until(self, seen: Callable[[str], bool], limit: float = 40.0) -> None:
        """Wait until the screen satisfies a test."""
        end = time.monotonic() + limit
        while not seen(self.text()):
            if time.monotonic() > end:
                raise TimeoutError(f"never shown; the screen is\n{self.text()}")
            await self.pilot.pause(0.05)

    async def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            await self.pilot.press(key)
            await self.pilot.pause(0.1)

    async def select(self, name: str) -> None:
        """Put the cursor on the run of a name."""
        seat = next(seat for seat in self.app.store.seats() if seat.run.name == name)
        self.app.choose_run(seat.key)
        self.app.draw_now()
        await self.pilot.pause(0.2)

    def take(self, name: str, title: str) -> None:
        """Write a picture."""
        path = self.folder / f"{name}.svg"
        path.write_text(svg(self.app, title), encoding="utf-8")
        print(path, file=sys.stderr)  # noqa: T201

    async def walk(self) -> None:
        """See a failure, pause another run, tell it something, follow the words."""
        await self.until(lambda shown: "build-arm failed" in shown)
        await self.select("steer-me")
        await self.press("p", "enter")
        await self.until(lambda shown: "pausing" in shown or "paused" in shown)
        await self.press("home")
        await self.until(lambda shown: "OPERATIONS" in shown)
        self.take("runs", "heaveto: who needs me?")
        await self.select("release-notes")
        await self.press("enter")
        await self.until(lambda shown: "check-links" in shown and "done" in shown)
        self.take("run", "heaveto: what is it doing?")
        await self.press("1")
        await self.select("steer-me")
        await self.press("enter", "m")
        await self.pilot.press(*(_key(char) for char in "Name the three alarms."))
        await self.press("enter")
        await self.until(lambda shown: "OPERATOR STEER" in shown)
        self.take("message", "heaveto: a message, as the next operation will read it")
        await self.press("enter")
        await self.until(lambda shown: "Nobody has read it yet" in shown)
        await self.press("5", "r", "enter")
        await self.until(lambda shown: "read" in shown.split("WHAT EACH")[0])
        self.take("controls", "heaveto: did my words arrive?")


def _key(char: str) -> str:
    return {" ": "space", ".": "full_stop"}.get(char, char)


async def main(folder: Path) -> None:
    """Run the flows, walk, and end what still runs."""
    with tempfile.TemporaryDirectory(prefix="heaveto-pictures-") as temporary:
        path = Path(temporary) / "home"
        path.mkdir(mode=0o700)
        runs = [
            await asyncio.to_thread(
                start, ["run", "--home", str(path), str(flow.path)], cwd=path
            )
            for flow in FLOWS
        ]
        home = open_home(path)
        app = HeavetoApp(
            Observer([home]),
            homes=("~/.local/share/heaveto",),
            usual=(str(path),),
            palette=PALETTE,
            clock=Clock(),
            settings=Settings(motion=False),
        )
        try:
            async with app.run_test(size=SIZE) as pilot:
                await Tour(app, pilot, folder).walk()
        finally:
            await _let_end(path, [run.session_id for run in runs])


async def _let_end(home: Path, sessions: list[str]) -> None:
    """Wait for every run; what was paused has been resumed by then."""
    with Observer([home]) as observer:
        for session in sessions:
            await observer.wait_for_end(session, 60)


if __name__ == "__main__":
    asyncio.run(main(Path(__file__).parent))
