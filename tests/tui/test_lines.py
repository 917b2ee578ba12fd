"""Lines: what is measured is what a terminal draws."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from heaveto.text import cell_width, plain
from heaveto_tui.lines import (
    CRUMB,
    DASH,
    Look,
    boxed,
    even,
    fit,
    join,
    line_text,
    line_width,
    pad,
)

EMOJI = "👨‍👩‍👧 🇩🇪 1️⃣ ❤️ 👍🏽 漢字 e\u0301"


@given(st.text())
def test_even_text_has_one_width(text: str) -> None:
    shown = even(plain(text))
    assert cell_len(shown) == cell_width(shown)


@given(st.text())
def test_plain_in_ascii_mode_is_ascii(text: str) -> None:
    shown = Look(ascii_only=True).plain(text)
    assert shown.isascii()
    assert shown.isprintable()


def test_joined_emoji_are_shown_as_their_parts() -> None:
    assert even("👨‍👩‍👧") == "👨👩👧"
    assert even("🇩🇪") == "DE"


@given(st.lists(st.text(), max_size=5), st.integers(0, 60))
def test_fit_is_exact(texts: list[str], width: int) -> None:
    look = Look()
    line = tuple((look.plain(text), "text") for text in texts)
    assert line_width(fit(line, width)) == width


@given(st.text(), st.integers(0, 40), st.booleans())
def test_pad_is_exact(text: str, width: int, right: bool) -> None:
    shown = Look().plain(text)
    assert cell_width(pad(shown, width, right=right)) == width


@given(st.text(), st.integers(1, 40))
def test_wrapped_lines_fit_and_lose_no_word(text: str, width: int) -> None:
    look = Look()
    shown = look.plain(text)
    lines = look.wrap(shown, width)
    assert all(cell_width(line) <= max(2, width) for line in lines)
    assert "".join("".join(lines).split()) == "".join(shown.split())


def test_join_keeps_the_right_end() -> None:
    line = join((("a long name that gives way", "text"),), ((" 16:03", "muted"),), 14)
    assert line_text(line) == "a long … 16:03"


def test_a_box_is_as_wide_as_it_says() -> None:
    lines = boxed("Title", [(("body 漢字", "text"),)], 30)
    assert {line_width(line) for line in lines} == {30}


def test_every_sign_has_an_ascii_twin() -> None:
    look = Look(ascii_only=True)
    signs = "▼→←★╭─╮╰╯│“”·•┃▌└├†◐◑●○□✗▲◊⊘⊗◷◌‖¦" + DASH + CRUMB
    spelled = line_text(look.spelled(((signs, "text"),)))
    assert spelled.isascii()
    assert len(spelled) == len(signs)


def test_ascii_names_of_cut_and_enter() -> None:
    look = Look(ascii_only=True)
    assert (look.cut, look.enter) == ("..", "Enter")
    assert look.clip("a long name", 6) == "a lo.."
