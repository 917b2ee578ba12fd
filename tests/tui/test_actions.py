"""The action table: one list feeds keys, help, palette and the command line's twins."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from harness.consoles import console, make_app
from harness.worlds import Scripted, world
from heaveto.cli.app import VERBS, LazyGroup
from heaveto.config import Config
from heaveto.errors import HomeError
from heaveto_tui.actions import (
    ACTIONS,
    KEYSETS,
    PLACES,
    action,
    actions_at,
    as_markdown,
    check_keymap,
    keys_of,
    twin,
)
from heaveto_tui.app import PERFORM
from heaveto_tui.availability import CHECKS
from heaveto_tui.launch import choose_keys
from heaveto_tui.screens.checkpoint import CheckpointScreen
from heaveto_tui.screens.controls import ControlsScreen
from heaveto_tui.screens.operation import OperationScreen
from heaveto_tui.screens.run import RunScreen
from heaveto_tui.screens.runs import RunsScreen
from heaveto_tui.screens.steering import STEERING

if TYPE_CHECKING:
    from heaveto_tui.screens.place import Place

SCREENS: dict[str, type[Place]] = {
    "runs": RunsScreen,
    "run": RunScreen,
    "operation": OperationScreen,
    "checkpoint": CheckpointScreen,
    "controls": ControlsScreen,
}


def test_ids_are_unique_and_complete() -> None:
    assert len({each.id for each in ACTIONS}) == len(ACTIONS)
    for each in ACTIONS:
        assert each.keys
        assert each.label
        assert each.does
        assert not each.does.endswith(".")
        assert each.places <= set(PLACES)


@pytest.mark.parametrize("place", PLACES)
def test_no_key_means_two_things_in_one_place(place: str) -> None:
    keys = [key for each in actions_at(place) for key in each.keys]
    assert len(keys) == len(set(keys))
    for keyset in KEYSETS.values():
        assert not set(keyset) & set(keys) - {"ctrl+z"}


@pytest.mark.parametrize("place", PLACES)
def test_every_action_of_a_place_is_done_by_somebody(place: str) -> None:
    screen = SCREENS[place]
    for each in actions_at(place):
        own = hasattr(screen, f"do_{each.id.replace('.', '_')}")
        assert own or each.id in PERFORM or each.id in STEERING


def test_what_writes_is_marked_and_goes_with_read_only() -> None:
    dangerous = {each.id for each in ACTIONS if each.danger != "none"}
    assert dangerous == set(STEERING)
    for place in PLACES:
        left = actions_at(place, read_only=True)
        assert not any(each.danger != "none" for each in left)
        assert {each.id for each in left} | dangerous >= {
            each.id for each in actions_at(place)
        }


def test_what_is_for_good_wants_typing() -> None:
    assert action("ctl.stop").danger == "type"
    assert action("run.end_now").danger == "type"


def test_every_check_belongs_to_an_action() -> None:
    assert set(CHECKS) <= {each.id for each in ACTIONS}


def _command(words: list[str]) -> click.Command | None:
    """Return the command that a line names, of the real command line."""
    root = LazyGroup(name="heaveto")
    context = click.Context(root)
    group: click.Command | None = root
    for word in words:
        if not isinstance(group, click.Group):
            return group
        group = group.get_command(context, word)
    return group


@pytest.mark.parametrize("name", [each.id for each in ACTIONS if each.twin])
def test_every_twin_is_a_real_command(name: str) -> None:
    line = twin(name, {"id": "7be41a20", "control": "c" * 32})
    assert line is not None
    program, *words = line.split()
    assert program == "heaveto"
    if words == ["--help"]:
        return
    assert words[0] in VERBS
    command = _command(words[: 2 if words[0] == "ctl" else 1])
    assert command is not None
    known = {option for each in command.params for option in each.opts}
    for word in words:
        if word.startswith("-"):
            assert word in known, f"{line}: {command.name} has no {word}"


def test_a_twin_names_the_home_where_it_is_needed() -> None:
    line = twin("ctl.pause", {"id": "7be41a20"}, ("--home", "/tmp/x"))
    assert line == "heaveto --home /tmp/x ctl pause 7be41a20"
    assert twin("nav.back", {}) is None


def test_the_tmux_set_shows_backspace_and_never_suspends() -> None:
    assert keys_of("nav.back", "tmux")[0] == "backspace"
    assert keys_of("app.suspend", "tmux") == ()


async def test_bindings_are_the_table() -> None:
    app = make_app(Scripted(world()))
    async with app.run_test() as pilot:
        await pilot.pause()
        for place in PLACES:
            screen = app.place_named(place)
            bound = set(screen._bindings.key_to_bindings)
            assert bound == {key for each in actions_at(place) for key in each.keys}


async def test_read_only_binds_nothing_that_changes() -> None:
    app = make_app(Scripted(world()), read_only=True)
    async with app.run_test() as pilot:
        await pilot.pause()
        for place in PLACES:
            screen = app.place_named(place)
            assert not {"p", "r", "m", "x", "X", "A", "C"} & set(
                screen._bindings.key_to_bindings
            )


DOC = Path(__file__).parents[2] / "core" / "docs" / "console.md"


def test_the_documentation_holds_the_table() -> None:
    text = DOC.read_text(encoding="utf-8")
    before, _, rest = text.partition("<!-- actions -->\n")
    shown, _, after = rest.partition("\n<!-- /actions -->")
    if os.environ.get("UPDATE_PICTURES") == "1":
        DOC.write_text(
            f"{before}<!-- actions -->\n{as_markdown()}\n<!-- /actions -->{after}",
            encoding="utf-8",
        )
        return
    assert shown == as_markdown()


def test_single_keys_replace_the_usual_ones() -> None:
    assert keys_of("ctl.pause", "default", {"ctl.pause": "f5"}) == ("f5",)
    assert check_keymap({"ctl.pause": "f5"}) is None
    assert check_keymap({"ctl.nope": "f5"}) == "no action is called ctl.nope"
    clash = check_keymap({"ctl.pause": "x"})
    assert clash is not None
    assert "x is the key of" in clash


async def test_a_key_of_the_settings_works_and_is_shown() -> None:
    async with console(keymap={"nav.find": ";", "go.help": "f1"}) as at:
        assert "; find" in at.rows()[-1]
        await at.press(";")
        await at.type("night")
        assert "find: night" in at.text()
        await at.press("escape", "f1")
        assert at.on_top == "Help"


def test_settings_that_cannot_be_stop_the_start() -> None:
    for keys in ("emacs", {"ctl.nope": "a"}, {"ctl.pause": "x"}):
        config = Config(path=Path("/c.toml"), keys=keys)
        with pytest.raises(HomeError, match=r"/c\.toml: keys: "):
            choose_keys(config)
    assert choose_keys(Config(keys="vim")) == ("vim", {})
    assert choose_keys(Config(keys={"ctl.pause": "f5"})) == (
        "default",
        {"ctl.pause": "f5"},
    )
