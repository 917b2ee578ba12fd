"""``explain``: a run's state, or a code, in words with what to do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from heaveto.cli.exits import Exit
from heaveto.cli.scope import Scope, common_options
from heaveto.cli.words import explain as explain_code
from heaveto.errors import TargetError
from heaveto.model import RunState
from heaveto.observe.words import Explanation
from heaveto.text import short_id

if TYPE_CHECKING:
    from heaveto.observe.snapshot import RunDetail, RunSummary

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


_SERIOUS = frozenset(
    {
        RunState.DEAD,
        RunState.STALLED,
        RunState.FAILED,
        RunState.TIMED_OUT,
        RunState.ABORTED,
        RunState.CANCELLED,
        RunState.COMPLETED_EMPTY,
    }
)
"""States that say more about a run than its warnings do."""


def _reason(detail: RunDetail) -> tuple[str, Explanation]:
    """Return the code and the words that matter most about a run."""
    run = detail.run
    state = str(run.state)
    for warning in run.warnings:
        if warning.code == "verdict_differs":  # the reason code would mislead
            told = Explanation(warning.text, warning.what_to_do)
            return warning.code, _about(told, run)
    codes = [run.reason_code or "", *([state] if run.state in _SERIOUS else [])]
    for code in codes:
        if found := explain_code(code):
            return code, _about(found, run)
    for warning in run.warnings:
        return warning.code, _about(Explanation(warning.text, warning.what_to_do), run)
    found = explain_code(state)
    return state, _about(found or Explanation(f"The run is {state}.", ""), run)


def _about(found: Explanation, run: RunSummary) -> Explanation:
    """Return an explanation with this run's id in the commands that it names."""
    name = short_id(run.session_id) if run.session_id else run.run_id
    return Explanation(found.text, re.sub(r"\bRUN\b", name, found.what_to_do))
