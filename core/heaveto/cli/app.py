"""The root command: options before the verb, verbs loaded on use, errors to exit codes.

:func:`main` is the one place where an error becomes a sentence and a number. A
:class:`~heaveto.errors.HeavetoError` is an answer; anything else is a defect, which is
written to a log without the values it stumbled on and ends with status 70.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from typing import TYPE_CHECKING

import click

from heaveto.cli.exits import Exit, for_error
from heaveto.cli.output import Output, OutputClosed, OutputError
from heaveto.cli.scope import Scope, common_options
from heaveto.errors import HeavetoError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["VERBS", "main", "root"]

_GARBAGE_AFTER = 50_000
"""New objects after which garbage is looked for; the interpreter's own is 700."""

VERBS: dict[str, tuple[str, str]] = {
    "watch": ("console:watch", "Open the console, at a run if one is named."),
    "demo": ("demo:demo", "Run the bundled demo flows in a home of their own."),
    "run": ("run:run", "Run a flow."),
    "resume": (
        "resume:resume",
        "Tell what a resume would do (--dry-run, runs of lionagi).",
    ),
    "ctl": ("ctl:ctl", "Steer a live run: pause, resume, msg, stop, resolve, status."),
    "ls": ("listing:ls", "List runs."),
    "show": ("show:show", "Show one run."),
    "wait": ("listing:wait", "Wait until a run ends."),
    "logs": ("logs:logs", "Print what operations wrote."),
    "inspect": ("inspect:inspect", "Read a checkpoint and say what can be trusted."),
    "generations": (
        "generations:generations",
        "Show a generation store and what a load would read.",
    ),
    "close": ("upkeep:close", "End the row of a dead run."),
    "prune": ("upkeep:prune", "Remove runs that ended long ago."),
    "doctor": ("doctor:doctor", "Say what is wrong here and what to do."),
    "explain": ("explain:explain", "Put a run's state or a reason code in words."),
    "completion": ("completion:completion", "Print a shell completion script."),
}
"""Each verb: where its command is, below ``heaveto.cli``, and one line on it."""

NOT_YET = frozenset({"diff"})
"""Verbs that this version refuses by name."""


class LazyGroup(click.Group):
    """The verbs of :data:`VERBS`, each imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order of the table."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import one verb.

        Raises:
            UsageError: The verb is not part of this version.
        """
        if name in NOT_YET:
            raise UsageError(
                f"heaveto {name} is not part of this version.", code="not_available"
            )
        if name not in VERBS:
            return None
        module, _, attribute = VERBS[name][0].partition(":")
        command = getattr(importlib.import_module(f"heaveto.cli.{module}"), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Remember the verb: it decides what some errors mean."""
        scope = ctx.find_object(Scope)
        if scope is not None:
            scope.verb = args[0]
        return super().resolve_command(ctx, args)

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """List the verbs without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in VERBS.items()])


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 88},
)
@common_options
@click.option("--version", is_flag=True, help="Print the version and end.")
@click.option("--read-only", is_flag=True, help="Console: offer nothing that changes.")
@click.option("--theme", metavar="NAME", help="Console: its colours.")
@click.option("--ascii", "ascii_only", is_flag=True, help="Console: ASCII signs only.")
@click.option("--no-color", is_flag=True, help="Console: no colours.")
@click.option("--plain", is_flag=True, hidden=True)
@click.pass_context
def root(
    context: click.Context,
    version: bool,
    read_only: bool,
    theme: str | None,
    ascii_only: bool,
    no_color: bool,
    plain: bool,
) -> object:
    """Watch, steer and recover live agent flows.

    Without a command the console opens. TARGET names a run by its id, its session's
    id, or the first characters of either. --home, --no-lionagi and --json stand before
    the command or after it.
    """
    scope: Scope = context.obj
    if version:
        scope.output.line(f"heaveto {_version()}")
        context.exit(0)
    if context.invoked_subcommand is not None:
        return None
    from heaveto.cli.console import open_console

    return open_console(
        scope,
        read_only=read_only,
        theme=theme,
        ascii_only=ascii_only,
        no_color=no_color,
        plain=plain,
    )


def _version() -> str:
    """Return the version of the installed distribution."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("heaveto")
    except PackageNotFoundError:
        return "(not installed)"


def main(
    argv: Sequence[str] | None = None,
    *,
    console: str | None = None,
    dag: str | None = None,
) -> int:
    """Run one command line.

    Args:
        argv: The words after the program's name; None takes the process's own.
        console: Import string of the function that opens the console with
            :class:`heaveto.cli.console.ConsoleOptions` and returns an exit code.
        dag: Import string of the function that draws a graph.

    Returns:
        The exit code; see :mod:`heaveto.cli.exits`.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    # Verbs make much that stays until they end: look for garbage seldom.
    gc.set_threshold(_GARBAGE_AFTER)
    output = Output(as_json="--json" in words)
    if sys.platform == "win32":
        output.note("heaveto: Windows is not supported; use it inside WSL2.")
        return Exit.UNUSABLE
    scope = Scope(output=output, words=tuple(words), console=console, dag=dag)
    try:
        return _run(words, scope)
    except OutputClosed:
        return Exit.PIPE_CLOSED
    except OutputError as error:
        output.note(f"heaveto: {error.message}")
        return Exit.FAILED


def _run(words: list[str], scope: Scope) -> int:
    """Run a command line and turn what it raises into an exit code."""
    output = scope.output
    try:
        _check_folder()
        code = root.main(words, prog_name="heaveto", standalone_mode=False, obj=scope)
        output.flush()
    except (OutputClosed, OutputError):
        raise
    except HeavetoError as error:
        output.refuse(error)
        return for_error(error, scope.verb)
    except click.ClickException as error:
        output.refuse(UsageError(_sentence(error)))
        return Exit.REFUSED
    except (KeyboardInterrupt, click.Abort):
        return Exit.ABORTED
    except Exception as error:
        return _internal(error, output)
    return int(code) if isinstance(code, int) else Exit.OK


def _check_folder() -> None:
    """Refuse to work from a folder that was removed: no path could be told from it.

    Raises:
        UsageError: It is gone.
    """
    try:
        os.getcwd()
    except OSError:
        raise UsageError("the working folder is gone; change into another") from None


def _sentence(error: click.ClickException) -> str:
    """Return what click found wrong, with the command whose help tells more."""
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "heaveto"
    return f"{error.format_message()} ({where} --help tells more)"


def _internal(error: Exception, output: Output) -> int:
    """Write a defect to a log, without the values of the failing run, and name it."""
    from heaveto.cli.defects import write_report

    where = write_report(error)
    kind = type(error).__name__
    output.refuse(
        HeavetoError(
            f"internal error ({kind}); "
            + (f"the report is {where}" if where else "no report could be written"),
            code="internal",
        )
    )
    return Exit.INTERNAL
