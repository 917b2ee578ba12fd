"""Colours: six palettes by role, the themes made from them, and styles for lines.

Every pair of a role and a background has a contrast of at least 4.5:1 (WCAG 2.1), and
under the colour blindness a palette is made for, no two status roles meet; a test
computes the first. The ``ansi`` palette uses the terminal's own eight colours, and
``none`` no colour at all: there weight, reverse video and the words carry everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.theme import BUILTIN_THEMES, Theme

from heaveto_tui.lines import fit

if TYPE_CHECKING:
    from heaveto_tui.lines import Line, Look

__all__ = ["PALETTES", "Painter", "Palette", "theme_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Palette:
    """One set of colours; values are ``#rrggbb`` or the terminal's own names."""

    name: str
    dark: bool
    background: str
    panel: str
    selected: str
    text: str
    muted: str
    good: str
    live: str
    hold: str
    bad: str
    note: str


def _dark(name: str, good: str, live: str, hold: str, bad: str, note: str) -> Palette:
    return Palette(
        name=name,
        dark=True,
        background="#14171c",
        panel="#1b1f26",
        selected="#2b3442",
        text="#d7dbe0",
        muted="#98a1ad",
        good=good,
        live=live,
        hold=hold,
        bad=bad,
        note=note,
    )


def _light(name: str, good: str, live: str, hold: str, bad: str, note: str) -> Palette:
    return Palette(
        name=name,
        dark=False,
        background="#fbfbf8",
        panel="#f1f1ec",
        selected="#dce6f3",
        text="#1d2126",
        muted="#545b65",
        good=good,
        live=live,
        hold=hold,
        bad=bad,
        note=note,
    )


_ANSI = Palette(
    name="ansi",
    dark=True,
    background="default",
    panel="default",
    selected="default",
    text="default",
    muted="default",
    good="green",
    live="cyan",
    hold="yellow",
    bad="red",
    note="magenta",
)
_NONE = Palette(
    name="none",
    dark=True,
    **dict.fromkeys(
        (
            "background",
            "panel",
            "selected",
            "text",
            "muted",
            "good",
            "live",
            "hold",
            "bad",
            "note",
        ),
        "default",
    ),
)

PALETTES: dict[str, Palette] = {
    each.name: each
    for each in (
        _dark("night", "#7fc98f", "#7cb7ff", "#e3b75b", "#ff8a80", "#c9a6f5"),
        _light("day", "#1a6a33", "#0b57a8", "#7a5200", "#b3201a", "#6b3fa0"),
        _dark("deutan", "#d9f5e0", "#8ca5ff", "#ffc91a", "#e0905a", "#a698b3"),
        _dark("tritan", "#4fe070", "#8fa8ea", "#ece66a", "#ff7f52", "#ca80ff"),
        _light("deutan-day", "#0f6d8a", "#10206e", "#3d2f1f", "#b23b00", "#5e30e8"),
        _light("tritan-day", "#1f3a24", "#335ecc", "#6b3d00", "#bf0000", "#8a1fd0"),
        _ANSI,
        _NONE,
    )
}
"""Every palette by name; ``--theme`` takes any but ``none``."""


def theme_of(palette: Palette) -> Theme:
    """Return the drawing library's theme for a palette."""
    own = palette.background != "default"
    return Theme(
        name=f"heaveto-{palette.name}",
        primary=palette.live if own else "ansi_default",
        background=palette.background if own else "ansi_default",
        surface=palette.background if own else "ansi_default",
        panel=palette.panel if own else "ansi_default",
        foreground=palette.text if own else "ansi_default",
        dark=palette.dark,
        ansi=not own,
        variables={} if own else dict(BUILTIN_THEMES["ansi-dark"].variables),
    )


class Painter:
    """Turns lines into strips; the one place where a role becomes a colour.

    Attributes:
        palette: The colours in use.
        look: How text is spelled.
    """

    def __init__(self, palette: Palette, look: Look) -> None:
        """Use a palette and a look."""
        self.palette = palette
        self.look = look
        self._styles: dict[tuple[str, bool, bool], Style] = {}

    @property
    def coloured(self) -> bool:
        """Whether a background of our own is drawn."""
        return self.palette.background != "default"

    def style(self, role: str, *, selected: bool = False, panel: bool = False) -> Style:
        """Return the style of a role, such as ``bad`` or ``text+bold``.

        Args:
            role: A role with its marks.
            selected: On the selected row: another background, or reverse video where
                there are no backgrounds of our own.
            panel: Inside a question on top of the screen.
        """
        key = (role, selected, panel)
        style = self._styles.get(key)
        if style is None:
            style = self._styles[key] = self._make(role, selected, panel)
        return style

    def _make(self, role: str, selected: bool, panel: bool) -> Style:
        name, *marks = role.split("+")
        palette = self.palette
        ground = (
            palette.selected
            if selected
            else palette.panel
            if panel
            else palette.background
        )
        reverse = "reverse" in marks or (selected and not self.coloured)
        return Style(
            color=getattr(palette, name),
            bgcolor=ground,
            bold="bold" in marks or (name == "bad" and palette is _ANSI) or None,
            underline="under" in marks or None,
            reverse=reverse or None,
        )

    def strip(
        self, line: Line, width: int, *, selected: bool = False, panel: bool = False
    ) -> Strip:
        """Return a line as a strip of exactly ``width`` cells."""
        spelled = fit(self.look.spelled(line), width, mark=self.look.cut)
        styles, make = self._styles, self.style
        segments = [
            Segment(
                text,
                styles.get((role, selected, panel))
                or make(role, selected=selected, panel=panel),
            )
            for text, role in spelled
            if text
        ]
        return Strip(segments, width)

    def segment(self, text: str, role: str) -> Segment:
        """Return signs of ours as a part of a strip, not selected, not on a panel."""
        spelled = self.look.spelled(((text, role),))
        return Segment(spelled[0][0], self.style(role))
