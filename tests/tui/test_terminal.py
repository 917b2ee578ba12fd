"""The shadow of the screen: what it leaves out, the terminal shows already."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style

from harness.terminal import PLAIN, Look, Screen, repen
from heaveto_tui.terminal import Pen, Shadow, cells

COLUMNS, ROWS = 24, 4
STYLES = [
    Style(color="#d7dbe0", bgcolor="#14171c"),
    Style(color="#7fc98f", bgcolor="#14171c"),
    Style(color="#7fc98f", bgcolor="#2b3442", bold=True),
    Style(reverse=True),
    Style(),
]

texts = st.text(st.sampled_from(list("ab .x漢✗e\u0301")), min_size=1, max_size=12)
segments = st.lists(
    st.tuples(texts, st.sampled_from(STYLES)).map(lambda pair: Segment(*pair)),
    min_size=1,
    max_size=3,
)
pieces = st.lists(
    st.tuples(st.integers(0, COLUMNS - 1), st.integers(0, ROWS - 1), segments),
    min_size=1,
    max_size=6,
)


def _full(shadow: Shadow) -> list[list[str]]:
    """Return what the shadow believes the terminal shows."""
    return [
        [char for char, _ in (row or [(" ", None)] * COLUMNS)] for row in shadow._rows
    ]


def _clean(rows: list[list[str]]) -> list[str]:
    return [
        "".join(" " if char in {"\0", " "} else char[:1] or "" for char in row)
        for row in rows
    ]


@settings(max_examples=150)
@given(st.lists(pieces, min_size=1, max_size=6))
def test_the_terminal_shows_what_the_shadow_believes(
    updates: list[list[tuple[int, int, list[Segment]]]],
) -> None:
    shadow = Shadow(ColorSystem.TRUECOLOR)
    shadow.resize(COLUMNS, ROWS)
    screen = Screen(COLUMNS, ROWS)
    blank = [(0, row, [Segment(" " * COLUMNS)]) for row in range(ROWS)]
    screen.feed(shadow.update(blank))
    for update in updates:
        whole = [piece for piece in update if _fits(piece)]
        screen.feed(shadow.update(whole))
        assert screen.strange == []
        assert _clean(screen.cells) == _clean(_full(shadow))
        assert _seen(screen) == _meant(shadow)
        assert shadow.update(whole[-1:]) == ""


def _seen(screen: Screen) -> list[Look]:
    """Return how every cell looks; of a blank what shows of it."""
    rows = zip(screen.cells, screen.pens, strict=True)
    return [
        _shown(char, pen)
        for cells, pens in rows
        for char, pen in zip(cells, pens, strict=True)
        if char
    ]


def _meant(shadow: Shadow) -> list[Look]:
    written = Pen(ColorSystem.TRUECOLOR)
    found: list[Look] = []
    for row in shadow._rows:
        for char, style in row or []:
            if char:
                written.forget()
                code = written.to(style).removeprefix("\x1b[").removesuffix("m")
                found.append(_shown(char[0], repen(PLAIN, code)))
    return found


def _shown(char: str, pen: Look) -> Look:
    attributes, fore, back = pen
    if char != " " or "7" in attributes:
        return pen
    return attributes & {"4", "9"}, "" if "4" not in attributes else fore, back


def _fits(piece: tuple[int, int, list[Segment]]) -> bool:
    return piece[0] + len(cells(piece[2])) <= COLUMNS


@given(segments)
def test_cells_are_as_many_as_columns(found: list[Segment]) -> None:
    width = sum(segment.cell_length for segment in found)
    assert len(cells(found)) == width


def _row(text: str, style: Style = STYLES[0]) -> list[tuple[int, int, list[Segment]]]:
    return [(0, 0, [Segment(text, style)])]


def test_one_changed_word_is_a_few_bytes() -> None:
    shadow = Shadow(ColorSystem.TRUECOLOR)
    shadow.resize(80, 24)
    line = "   researcher             running           12s  -        "
    shadow.update(_row(line.ljust(80)))
    ticked = shadow.update(_row(line.replace("12s", "13s").ljust(80)))
    assert ticked == "\x1b[1;46H3"
    done = shadow.update(_row(line.replace("running", "done   ").ljust(80)))
    assert len(done) < 40


def test_a_blank_takes_the_colour_that_is_there() -> None:
    shadow = Shadow(ColorSystem.TRUECOLOR)
    shadow.resize(20, 1)
    shadow.update(_row("waits".ljust(20), STYLES[0]))
    green = _row("done ".ljust(20), STYLES[1])
    assert shadow.update(green).count("\x1b[38") == 1
    underlined = STYLES[0] + Style(underline=True)
    assert "\x1b[0;4" in shadow.update(_row("done ".ljust(20), underlined))


def test_what_has_the_present_colour_goes_first() -> None:
    shadow = Shadow(ColorSystem.TRUECOLOR)
    shadow.resize(20, 4)
    rows = [(0, row, [Segment("-" * 20, STYLES[row % 2])]) for row in range(4)]
    assert shadow.update(rows).count("m") == 2
    changed = [(3, row, [Segment("x", STYLES[row % 2])]) for row in range(4)]
    assert shadow.update(changed).count("m") == 1


def test_an_unchanged_screen_writes_nothing() -> None:
    shadow = Shadow(ColorSystem.TRUECOLOR)
    shadow.resize(10, 1)
    assert shadow.update(_row("0123456789"))
    assert shadow.update(_row("0123456789")) == ""
    shadow.forget()
    assert shadow.update(_row("0123456789"))


@pytest.mark.parametrize("system", [None, ColorSystem.STANDARD, ColorSystem.TRUECOLOR])
def test_colours_only_where_the_terminal_has_some(system: ColorSystem | None) -> None:
    shadow = Shadow(system)
    shadow.resize(12, 1)
    screen = Screen(12, 1)
    screen.feed(shadow.update(_row("0123456789ab", STYLES[2])))
    assert bool(screen.colours) == (system is not None)
    assert screen.lines() == ["0123456789ab"]


def test_only_what_differs_of_a_style_is_written() -> None:
    shadow = Shadow(ColorSystem.TRUECOLOR)
    first = shadow.pen.to(STYLES[0])
    second = shadow.pen.to(STYLES[1])
    assert first.startswith("\x1b[0;38;2;215;219;224;48;2;20;23;28")
    assert second == "\x1b[38;2;127;201;143m"
    assert shadow.pen.to(STYLES[1]) == ""
    shadow.pen.forget()
    assert shadow.pen.to(STYLES[1]).startswith("\x1b[0;")


def test_another_size_is_drawn_whole() -> None:
    shadow = Shadow(ColorSystem.TRUECOLOR)
    shadow.resize(10, 1)
    shadow.update(_row("0123456789"))
    shadow.resize(12, 2)
    assert "0123456789" in shadow.update(_row("0123456789"))
    assert shadow.update([(0, 7, [Segment("off the screen")])]) == ""
