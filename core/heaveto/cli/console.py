"""``heaveto`` and ``heaveto watch``: hand over to the console, or do without it.

The console itself is a function that the caller of :func:`heaveto.cli.main` named. It
gets :class:`ConsoleOptions` and returns an exit code.
"""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from heaveto.cli.exits import Exit
from heaveto.cli.scope import Scope, common_options
from heaveto.errors import HomeError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from heaveto.config import Config
    from heaveto.runs import Home

__all__ = [
    "ConsoleOptions",
    "can_draw",
    "check_keyboard",
    "load",
    "open_console",
    "watch",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """What the console is started with.

    ``homes`` are open, in order; the first heaveto home is the one that is written to.
    ``target`` is as typed, or None for the list of runs. What stands here was said on
    the command line and wins over ``config``.
    """

    homes: tuple[Home, ...]
    config: Config
    target: str | None = None
    read_only: bool = False
    theme: str | None = None
    ascii_only: bool = False
    no_color: bool = False
    demo: bool = False


def can_draw() -> bool:
    """Tell whether standard output is a terminal that can be drawn on."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def check_keyboard() -> None:
    """Refuse to draw where no key could ever be pressed.

    Raises:
        UsageError: Standard output is a terminal and standard input is not.
    """
    if can_draw() and not sys.stdin.isatty():
        raise UsageError(
            "standard input is no terminal; use heaveto ls, show, logs or ctl"
        )


def load(name: str) -> Callable[..., object]:
    """Import what an import string ``module:function`` names."""
    module, _, attribute = name.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    assert callable(found)
    return found  # type: ignore[no-any-return]


def open_console(
    scope: Scope,
    *,
    target: str | None = None,
    read_only: bool = False,
    theme: str | None = None,
    ascii_only: bool = False,
    no_color: bool = False,
    plain: bool = False,
    demo: bool = False,
) -> int:
    """Open the console, or print the list once where it cannot be drawn.

    Raises:
        UsageError: Standard output is a terminal and standard input is not.
        HomeError: The console is not installed.
    """
    if plain:
        raise UsageError("--plain is not part of this version.", code="not_available")
    if not can_draw() or scope.output.json:
        from heaveto.cli.listing import print_list

        return print_list(scope)
    check_keyboard()
    options = ConsoleOptions(
        homes=scope.homes(),
        config=scope.config(),
        target=target,
        read_only=read_only,
        theme=theme,
        ascii_only=ascii_only,
        no_color=no_color or bool(os.environ.get("NO_COLOR")),
        demo=demo,
    )
    code = _console(scope)(options)
    return code if isinstance(code, int) else Exit.OK


def _console(scope: Scope) -> Callable[..., object]:
    """Return the function that opens the console."""
    missing = "the console is not installed here; use heaveto ls, show, logs or ctl"
    if scope.console is None:
        raise HomeError(missing, code="no_console")
    try:
        return load(scope.console)
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] in {"textual", "rich"}:
            raise HomeError(missing, code="no_console") from None
        raise


@click.command()
@common_options
@click.argument("target", required=False)
@click.option("--read-only", is_flag=True, help="Offer nothing that changes.")
@click.option("--theme", metavar="NAME", help="Its colours.")
@click.option("--ascii", "ascii_only", is_flag=True, help="ASCII signs only.")
@click.option("--no-color", is_flag=True, help="No colours.")
@click.option("--plain", is_flag=True, hidden=True)
@click.pass_obj
def watch(
    scope: Scope,
    target: str | None,
    read_only: bool,
    theme: str | None,
    ascii_only: bool,
    no_color: bool,
    plain: bool,
) -> int:
    """Open the console, at the run that TARGET names.

    Where standard output is no terminal, or TERM is dumb, the list is printed once.
    """
    return open_console(
        scope,
        target=target,
        read_only=read_only,
        theme=theme,
        ascii_only=ascii_only,
        no_color=no_color,
        plain=plain,
    )
