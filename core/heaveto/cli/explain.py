"""``explain``: a run's state, or a code, in words with what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from heaveto.cli.exits import Exit
from heaveto.cli.scope import Scope, common_options
from heaveto.cli.words import explain as explain_code
from heaveto.errors import TargetError
from heaveto.observe.words import Explanation

if TYPE_CHECKING:
    from heaveto.observe.snapshot import RunDetail

__all__ = ["explain"]


@click.command()
@common_options
@click.argument("subject", metavar="TARGET|CODE")
@click.pass_obj
def explain(scope: Scope, subject: str) -> int:
    """Say what a code means, or why a run is as it is, and what can be done."""
    subject = subject.strip()
    found = explain_code(subject)
    code = subject
    if found is None:
        code, found = _run(scope, subject)
    if scope.output.json:
        scope.output.answer({"target": subject, "code": code, **found._asdict()})
        return Exit.OK
    scope.output.line(f"{code}: {found.text}")
    if found.what_to_do:
        scope.output.line(found.what_to_do)
    return Exit.OK


def _run(scope: Scope, subject: str) -> tuple[str, Explanation]:
    """Return what is to be said about a run: its first warning, else its state.

    Raises:
        TargetError: It is neither a code nor a run.
    """
    try:
        with scope.observer() as observer:
            detail = observer.read_run(subject)
    except TargetError as error:
        if error.code != "target_unknown":
            raise
        raise TargetError(
            f"{subject} is neither a code nor the start of a run's id", code=error.code
        ) from None
    return _reason(detail)


def _reason(detail: RunDetail) -> tuple[str, Explanation]:
    """Return the code and the words that matter most about a run."""
    run = detail.run
    for warning in run.warnings:
        return warning.code, Explanation(warning.text, warning.what_to_do)
    for code in (run.reason_code, str(run.state)):
        if code and (found := explain_code(code)):
            return code, found
    return str(run.state), Explanation(f"The run is {run.state}.", "")
