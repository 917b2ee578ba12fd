"""What the options that every verb takes came to: homes, output, entry points."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from heaveto.cli.output import Output
from heaveto.errors import HeavetoError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from heaveto.config import Config
    from heaveto.observe import Observer
    from heaveto.runs import Home

__all__ = [
    "Scope",
    "account",
    "common_options",
    "is_path",
    "parse_duration",
    "target_argument",
]

F = TypeVar("F", bound="Callable[..., Any]")


@dataclass(slots=True, kw_only=True)
class Scope:
    """The surroundings of one command line.

    Filled while the options are parsed, before the verb as well as after it.
    """

    output: Output
    words: tuple[str, ...]
    """The command line as given, without the program's name."""
    console: str | None = None
    dag: str | None = None
    verb: str | None = None
    given_homes: list[Path] = field(default_factory=list)
    lionagi: bool | None = None
    """False when ``--no-lionagi`` was given, else None: the configuration decides."""

    def config(self) -> Config:
        """Return the settings.

        Raises:
            HomeError: The settings file is there and cannot be used.
        """
        from heaveto.config import load_config

        return load_config()

    def homes(self) -> tuple[Home, ...]:
        """Return the open homes, the own one first.

        Raises:
            HomeError: One of them is no home, or the settings cannot be used.
        """
        from heaveto.homes import resolve_homes

        return resolve_homes(
            self.given_homes,
            config=self.config(),
            lionagi=self.lionagi is not False,
        )

    def writing_home(self) -> Home:
        """Return the home that runs are written into.

        Raises:
            HomeError: No heaveto home is open.
        """
        from heaveto.homes import writing_home

        return writing_home(self.homes())

    def observer(self) -> Observer:
        """Return a reader of every open home; it is closed by ``with``."""
        from heaveto.observe import Observer

        return Observer(self.homes())


def account() -> str:
    """Return who is asking: the account's name, empty when it has none."""
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""


def is_path(subject: str) -> bool:
    """Tell whether an argument is a path, not a target (PRODUCT 2, Target)."""
    return "/" in subject or os.path.lexists(subject)


def parse_duration(text: str, option: str) -> float:
    """Return seconds for ``90``, ``90s``, ``15m``, ``2h``.

    Raises:
        UsageError: It is none of these.
    """
    number, unit = text.strip(), 1.0
    for suffix, size in (("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0)):
        if number.endswith(suffix):
            number, unit = number[:-1], size
            break
    try:
        seconds = float(number) * unit
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise UsageError(f"{option}: not a length of time: {text} (90s, 15m, 2h)")
    return seconds


def _complete_target(
    context: click.Context, _: click.Parameter, incomplete: str
) -> list[str]:
    """Return ids that begin with what was typed; nothing when no home can be read."""
    scope = context.find_object(Scope) or Scope(output=Output(), words=())
    try:
        with scope.observer() as observer:
            runs = observer.list_runs()
    except HeavetoError:
        return []
    ids = [one for run in runs for one in (run.session_id[:8], run.run_id) if one]
    return [one for one in ids if one.startswith(incomplete)]


target_argument = click.argument(
    "target", metavar="TARGET", shell_complete=_complete_target
)
"""The argument that names one run, by the one rule of PRODUCT 2."""


def _scope(context: click.Context) -> Scope:
    """Return the scope that belongs to a parse; completion parses without one."""
    scope = context.find_object(Scope)
    if scope is None:
        scope = context.find_root().obj = Scope(output=Output(), words=())
    return scope


def _add_homes(
    context: click.Context, _: click.Parameter, values: tuple[Path, ...]
) -> None:
    _scope(context).given_homes.extend(values)


def _leave_out_lionagi(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        _scope(context).lionagi = False


def _set_json(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        _scope(context).output.json = True


def common_options(function: F) -> F:
    """Add the options that stand before the verb and by every verb."""
    for decorate in (
        click.option(
            "--json",
            is_flag=True,
            expose_value=False,
            callback=_set_json,
            help="One JSON object on standard output.",
        ),
        click.option(
            "--no-lionagi",
            is_flag=True,
            expose_value=False,
            callback=_leave_out_lionagi,
            help="Leave lionagi's home out.",
        ),
        click.option(
            "--home",
            "homes",
            type=click.Path(path_type=Path),
            multiple=True,
            metavar="PATH",
            expose_value=False,
            callback=_add_homes,
            help="A home to open; may repeat; exactly those given are open.",
        ),
    ):
        function = decorate(function)
    return function
