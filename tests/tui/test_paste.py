"""What is pasted is text to its last character, wherever its end may stand in it."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from textual.events import Key, Paste

from harness.terminal import Program
from heaveto_tui.driver import InertParser, PasteGuard

if TYPE_CHECKING:
    from collections.abc import Iterator

START, END = "\x1b[200~", "\x1b[201~"


def _events(parser: InertParser, data: str) -> list[str | None]:
    """Return texts of pastes and names of keys, pastes in angles."""
    return [
        f"<{each.text}>" if isinstance(each, Paste) else each.key
        for each in parser.feed(data)
        if isinstance(each, (Paste, Key))
    ]


def test_a_paste_ends_with_its_last_end() -> None:
    pasted = f"{START}a{END}q\r{END}"
    assert _events(InertParser(), f"x{pasted}y") == ["x", "<a\x1a[201~q\r>", "y"]


def test_two_pastes_and_what_is_typed_between_are_three_things() -> None:
    data = f"{START}a{END}b{START}c{END}d"
    assert _events(InertParser(), data) == ["<a>", "b", "<c>", "d"]


@pytest.mark.parametrize("seed", range(20))
def test_cut_anywhere_a_paste_is_the_same_text(seed: int) -> None:
    random.seed(seed)
    data = f"k{START}two\nlines\x07 \x1b[2J{END}j{START}{END}l"
    parser, guard = InertParser(), PasteGuard()
    found: list[str | None] = []
    inert = ""
    while data:
        size = random.randrange(1, len(data) + 1)
        found += _events(parser, data[:size])
        inert += guard(data[:size])
        data = data[size:]
    assert found == ["k", "<two\nlines\x1a \x1a[2J>", "j", "<>", "l"]
    assert inert == f"k{START}two\nlines\x1a \x1a[2J{END}j{START}{END}l"


def test_the_end_of_a_paste_may_come_sign_by_sign() -> None:
    parser = InertParser()
    found: list[str | None] = []
    for char in f"{START}a{END}b":
        found += _events(parser, char)
    assert found == ["<a>", "b"]


def test_a_large_paste_is_one_event() -> None:
    body = "x\x1b[Ay\n" * 200_000
    [event] = InertParser().feed(f"{START}{body}{END}")
    assert isinstance(event, Paste)
    assert event.text == body.replace("\x1b", "\x1a")


ROOT = Path(__file__).parents[2]


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    """Run the console over a home without runs."""
    (tmp_path / "config.toml").write_text("lionagi = false\n")
    environ = {
        "PYTHONPATH": os.pathsep.join((str(ROOT / "core"), str(ROOT / "tui"))),
        "LC_ALL": "C.UTF-8",
        "HEAVETO_CONFIG": str(tmp_path / "config.toml"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "HOME": str(tmp_path),
    }
    with Program(
        [sys.executable, "-m", "heaveto_tui", "--home", str(tmp_path / "home")],
        environ=environ,
        cwd=str(tmp_path),
    ) as started:
        started.until("No runs here yet.")
        yield started


def test_what_comes_in_pieces_is_what_it_is_in_one(program: Program) -> None:
    """A letter of two bytes, and a paste with its own end in it, over a slow line."""
    program.press("/")
    program.until("find:")
    for piece in (b"\xc3", b"\xa9", b"\x1b[200~a", b"\x1b", b"[201~", b"c"):
        program.send(piece)
        program.drain(0.3)
    program.until("find: \u00e9ac")
    program.send(b"\x1b[200~d\x1b[201~\x1bq\x1b[201~e")
    program.until("find: \u00e9acd[201~qe")
    assert program.process.poll() is None


def test_text_of_a_terminal_without_pastes_does_not_leave(program: Program) -> None:
    for text in ("quit now, please", "no, do not quit", "unique"):
        program.press(text)
        program.until("That q came with other keys")
        program.drain(0.2)
        program.press("n")
        program.until("Nothing needs you.")
    program.press("q")
    assert program.ended() == 0
