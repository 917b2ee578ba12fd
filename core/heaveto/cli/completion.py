"""``completion``: the script that completes commands and targets in a shell."""

from __future__ import annotations

import click

from heaveto.cli.exits import Exit
from heaveto.cli.scope import Scope, common_options

__all__ = ["completion"]


@click.command()
@common_options
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_obj
def completion(scope: Scope, shell: str) -> int:
    """Print the completion script for a shell.

    For bash: ``eval "$(heaveto completion bash)"``.
    """
    from click.shell_completion import get_completion_class

    from heaveto.cli.app import root

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(root, {}, "heaveto", "_HEAVETO_COMPLETE").source()
    if scope.output.json:
        scope.output.answer({"shell": shell, "script": script})
    else:
        scope.output.lines(script)
    return Exit.OK
