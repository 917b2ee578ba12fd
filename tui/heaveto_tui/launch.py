"""Start the console for a command line, and leave the terminal as it was found.

Signals end it in order: TERM, HUP, QUIT and INT restore the terminal and give 128 plus
the signal's number, which the drawing library does by itself for none of the first
three. A terminal that went away is no error. What must be said is said after the screen
is restored.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
from typing import TYPE_CHECKING

from heaveto.errors import HeavetoError, HomeError, UsageError
from heaveto.homes import resolve_homes
from heaveto.observe import Observer
from heaveto.observe.attention import is_live
from heaveto.targets import resolve_target
from heaveto.text import short_id
from heaveto_tui.actions import KEYSETS, check_keymap
from heaveto_tui.app import HeavetoApp
from heaveto_tui.driver import Outlet, TerminalDriver
from heaveto_tui.lines import Look
from heaveto_tui.state import Settings
from heaveto_tui.theme import PALETTES

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from heaveto.cli.console import ConsoleOptions
    from heaveto.config import Config
    from heaveto_tui.actions import KeySet
    from heaveto_tui.theme import Palette

__all__ = ["choose_keys", "choose_look", "choose_palette", "launch"]

_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT)
_STDOUT = 1
_STARTED_S = 1.0
"""Seconds after which what the start made is there to stay."""
_COERCED = "C.UTF-8"
_EAST_ASIAN = ("zh", "ja", "ko")
"""Languages whose terminals draw many signs two cells wide."""


class LiveApp(HeavetoApp):
    """The console on a real terminal."""

    outlet: Outlet | None = None

    def on_mount(self) -> None:
        """Take the signals; the base begins."""
        if isinstance(self._driver, TerminalDriver):
            self.outlet = self._driver.outlet
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._ended_by, number)
        self.set_timer(_STARTED_S, self._started)

    def _started(self) -> None:
        """Collect garbage from now on, and never look at what the start made."""
        gc.freeze()
        gc.enable()

    def _ended_by(self, number: signal.Signals) -> None:
        self.exit(return_code=128 + number)


def launch(options: ConsoleOptions) -> int:
    """Run the console until it is left.

    Args:
        options: From the command line and the settings file.

    Returns:
        0, 128+n after a signal, 70 after a defect, 78 when a home cannot be read.

    Raises:
        UsageError: An unknown theme.
        HomeError: The settings name a key set or an action that is not there.
        TargetError: The run that was asked for is not there.
    """
    environ = os.environ
    config = options.config
    look = choose_look(options.ascii_only or config.ascii, environ)
    palette = choose_palette(options.theme or config.theme, options.no_color, environ)
    if palette.name == "none":
        environ["NO_COLOR"] = "1"
    else:  # empty, it asks for nothing; the library takes every colour away then
        environ.pop("NO_COLOR", None)
    keyset, keymap = choose_keys(config)
    homes = tuple(str(home.path) for home in options.homes)
    usual: tuple[str, ...] = ()
    with contextlib.suppress(HeavetoError):
        usual = tuple(str(home.path) for home in resolve_homes(config=config))
    app = LiveApp(
        Observer(options.homes),
        homes=homes,
        usual=usual,
        target=_target(options),
        palette=palette,
        look=look,
        driver_class=TerminalDriver,
        settings=Settings(
            read_only=options.read_only,
            motion=config.motion,
            mouse=config.mouse,
            keyset=keyset,
            keymap=keymap,
            demo=options.demo,
        ),
    )
    return _run(app)


def _target(options: ConsoleOptions) -> Hashable | None:
    """Return the key of the run that was asked for, by the one target rule.

    Raises:
        TargetError: It names no run, or several.
    """
    if options.target is None:
        return None
    found = resolve_target(options.homes, options.target)
    return (str(found.home.path), found.run_id or "", found.session_id or "")


def _run(app: LiveApp) -> int:
    code = 0
    # Next to nothing of what a start makes is garbage: looking for it is a tenth of the
    # time to the first picture.
    gc.disable()
    try:
        app.run(mouse=app.settings.mouse)
        code = app.return_code or 0
    finally:
        gc.enable()
        for number in _SIGNALS:
            with contextlib.suppress(ValueError, OSError):
                signal.signal(number, signal.SIG_DFL)
    if not os.isatty(_STDOUT):
        _let_go()
    words = _last_words(app)
    if words is not None:
        with contextlib.suppress(OSError, ValueError):
            _say(words, app.outlet)
    return code


def _let_go() -> None:
    """Give what is still said nowhere to go: the terminal was closed meanwhile."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, _STDOUT)
    os.close(nowhere)


def _say(words: str, outlet: Outlet | None) -> None:
    """Say something on standard error, and wait for no terminal that takes nothing."""
    if outlet is not None and sys.stderr.isatty():
        outlet.write(f"{words}\n")
        outlet.flush()
    else:
        print(words, file=sys.stderr)  # noqa: T201 - the terminal is ours again


def _last_words(app: LiveApp) -> str | None:
    """Return what goes on without the console."""
    if app.defect is not None:
        return app.defect
    running = [run for run in app.store.runs() if is_live(run)]
    if running and not app.settings.demo:
        names = ", ".join(short_id(run.session_id or run.run_id) for run in running[:6])
        more = f" and {len(running) - 6} more" if len(running) > 6 else ""
        noun = "flow keeps" if len(running) == 1 else "flows keep"
        return f"{len(running)} {noun} running: {names}{more}"
    return None


def choose_look(ascii_only: bool, environ: Mapping[str, str]) -> Look:
    """Return ASCII signs where they were asked for or nothing else can be drawn.

    Without any locale the terminal is taken for one of today, as Python does; Python
    then sets ``LC_CTYPE`` by itself, which says nothing about the terminal.
    """
    if ascii_only or environ.get("TERM") in {"linux", "vt100", "vt220"}:
        return Look(ascii_only=True)
    names = [environ.get(name, "") for name in ("LC_ALL", "LC_CTYPE", "LANG")]
    if names[1] == _COERCED:
        names[1] = ""
    wanted = next((name for name in names if name), _COERCED).lower()
    east_asian = wanted.startswith(_EAST_ASIAN)
    utf8 = "utf-8" in wanted or "utf8" in wanted
    return Look(ascii_only=east_asian or not utf8)


def choose_palette(
    name: str | None, no_color: bool, environ: Mapping[str, str]
) -> Palette:
    """Return the palette of a name, or what suits the terminal.

    Raises:
        UsageError: No palette has that name.
    """
    if no_color or environ.get("NO_COLOR"):
        return PALETTES["none"]
    if name in {None, "auto"}:
        few = environ.get("TERM") in {"linux", "vt100", "vt220", "screen", "ansi"}
        return PALETTES["ansi" if few and not environ.get("COLORTERM") else "night"]
    if name not in PALETTES or name == "none":
        known = ", ".join(each for each in PALETTES if each != "none")
        raise UsageError(f"no theme is called {name}; there are {known}")
    return PALETTES[name]


def choose_keys(config: Config) -> tuple[KeySet, Mapping[str, str]]:
    """Return the key set and the single keys of the settings.

    Raises:
        HomeError: ``config_invalid``: a set or an action that is not there, or one key
            for two actions.
    """
    if not isinstance(config.keys, str):
        wrong = check_keymap(config.keys)
        if wrong is not None:
            raise _invalid(config, wrong)
        return "default", config.keys
    for known in KEYSETS:
        if config.keys == known:
            return known, {}
    sets = ", ".join(KEYSETS)
    raise _invalid(config, f"no key set is called {config.keys}; there are {sets}")


def _invalid(config: Config, why: str) -> HomeError:
    return HomeError(f"{config.path}: keys: {why}", code="config_invalid")
