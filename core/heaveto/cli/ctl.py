"""``ctl``: queue a control for a live run, close a stranded one, read the ledger."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from heaveto import controls
from heaveto.cli.exits import Exit, for_status_query
from heaveto.cli.output import table
from heaveto.cli.scope import Scope, account, common_options, target_argument
from heaveto.controls import MESSAGE_LIMIT
from heaveto.errors import ControlError, HeavetoError, StateDBError, UsageError
from heaveto.model import RunStatus, Verb
from heaveto.text import short_id

if TYPE_CHECKING:
    from typing import IO

    from heaveto.observe.snapshot import ControlView, RunDetail
    from heaveto.statedb import ControlRow

__all__ = ["ctl"]


@click.group()
@common_options
def ctl() -> None:
    """Steer a live run.

    A control is queued and applied by the run itself, at the boundary between two
    operations, about 2 seconds later. An operation that is running is never
    interrupted. A message is delivered at most once: to the next operation that
    starts. Exit 2: refused, nothing was queued.
    """


@ctl.command()
@common_options
@target_argument
@click.pass_obj
def pause(scope: Scope, target: str) -> int:
    """Let nothing new start; operations that are running finish."""
    return _queue(scope, target, Verb.PAUSE)


@ctl.command()
@common_options
@target_argument
@click.pass_obj
def resume(scope: Scope, target: str) -> int:
    """Open the pause again (to recover a dead run is another command)."""
    return _queue(scope, target, Verb.RESUME)


@ctl.command()
@common_options
@target_argument
@click.pass_obj
def stop(scope: Scope, target: str) -> int:
    """End a run for good: operations that are running finish and are saved."""
    return _queue(scope, target, Verb.STOP)


@ctl.command()
@common_options
@target_argument
@click.argument("text", required=False)
@click.option(
    "--file",
    "source",
    type=click.Path(path_type=Path),
    metavar="F",
    help="Read the text from F; it is then not visible in ps.",
)
@click.pass_obj
def msg(scope: Scope, target: str, text: str | None, source: Path | None) -> int:
    """Send TEXT to the next operation that starts, and only to that one.

    TEXT - reads standard input. At most 65,536 bytes. It reaches no operation that is
    running, and none at all when every operation has started. A text that begins with
    a dash stands after --.
    """
    return _queue(scope, target, Verb.MESSAGE, _text(text, source))


def _text(text: str | None, source: Path | None) -> str:
    """Return the message from wherever it comes.

    Raises:
        UsageError: None or two sources, or one that cannot be read as UTF-8.
    """
    if (text is None) == (source is None):
        raise UsageError("a message is either TEXT or --file F")
    try:
        if source is not None:
            with source.open("rb") as stream:
                return _bounded(stream)
        if text == "-":
            return _bounded(sys.stdin.buffer)
    except OSError as error:
        raise UsageError(f"the message cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError("the message is not UTF-8") from None
    assert text is not None
    return text


def _bounded(stream: IO[bytes]) -> str:
    """Read no more than shows that a text is too long, which its sender then hears."""
    data = stream.read(MESSAGE_LIMIT + 4)
    return data.decode("utf-8", "replace" if len(data) > MESSAGE_LIMIT else "strict")


def _queue(scope: Scope, target: str, verb: Verb, text: str | None = None) -> int:
    """Queue one control and say that it is queued, no more."""
    from heaveto.targets import resolve_target

    found = resolve_target(scope.homes(), target)
    if found.session_id is None:
        raise ControlError(
            "the run has no row, so it takes no controls", code="no_consumer"
        )
    receipt = controls.enqueue(
        found.home, found.session_id, verb, text=text, by=account()
    )
    row = receipt.control
    for warning in receipt.warnings:
        scope.output.warn(warning)
    if scope.output.json:
        control = {
            "id": row.id,
            "verb": row.verb,
            "session_id": row.session_id,
            "run_id": receipt.run_id,
            "created_at": row.created_at,
        }
        scope.output.answer({"control": control, "queued": True})
    else:
        scope.output.line(controls.acknowledgement(receipt))
    return Exit.OK


@ctl.command("resolve")
@common_options
@click.argument("control", metavar="CONTROL")
@click.option(
    "--as",
    "outcome",
    type=click.Choice(["applied", "abandoned"]),
    required=True,
    help="What became of it, as far as you know.",
)
@click.option("--by", metavar="WHO", help="Who decides; your account by default.")
@click.pass_obj
def resolve(scope: Scope, control: str, outcome: str, by: str | None) -> int:
    """Close a control that a run took and never reported, named by its full id.

    Nothing is sent again, whatever is decided.
    """
    who = by if by is not None else account()
    row = _close_claim(scope, control.strip(), outcome, who)
    if scope.output.json:
        view = {
            "id": row.id,
            "verb": row.verb,
            "session_id": row.session_id,
            "result": row.result,
            "class": controls.classify(row, run_over=True),
            "created_at": row.created_at,
            "claimed_at": row.claimed_at,
            "applied_at": row.applied_at,
        }
        scope.output.answer({"control": view})
    else:
        scope.output.line(f"closed {row.verb} {short_id(row.id)}: {row.result}")
    return Exit.OK


def _close_claim(scope: Scope, control: str, outcome: str, who: str) -> ControlRow:
    """Close a claim in whichever open home it is.

    Raises:
        ControlError: No home has it, or it is not claimed.
    """
    refusal: HeavetoError = ControlError(
        "no claimed control has this id", code="not_claimed"
    )
    for home in scope.homes():
        try:
            return controls.resolve(home, control, outcome, by=who)  # type: ignore[arg-type]
        except (ControlError, StateDBError) as error:
            if error.code not in ("not_claimed", "db_missing"):
                refusal = error
    raise refusal


@ctl.command()
@common_options
@target_argument
@click.pass_obj
def status(scope: Scope, target: str) -> int:
    """Show a run's state and what became of each control.

    Exit 0: completed, 3: running, 1: any other end or dead, 2: unknown.
    """
    with scope.observer() as observer:
        detail = observer.read_run(target)
    run = detail.run
    if scope.output.json:
        scope.output.answer(
            {
                "run": run.as_dict(),
                "controls": [control.as_dict() for control in detail.controls],
            }
        )
    else:
        for line in _ledger(detail, time.time()):
            scope.output.line(line)
    return for_status_query(run.status, alive=run.alive)


def _ledger(detail: RunDetail, now: float) -> list[str]:
    """Return the ledger as text."""
    from heaveto.cli.show import control_rows, state_line

    over = detail.run.status != RunStatus.RUNNING or detail.run.alive is False
    lines = [f"{short_id(detail.run.session_id)}  {state_line(detail.run, now)}"]
    if not detail.controls:
        return [*lines, "No control was ever sent."]
    rows = control_rows(detail, over=over, now=now)
    lines += table(
        ("CONTROL", "WHAT", "CAME TO", "AGE", "BY", "TEXT"), rows, right=(3,)
    )
    return lines + [line for one in detail.controls for line in _stranded(one)]


def _stranded(control: ControlView) -> list[str]:
    """Return what can be done about a control that was taken and not reported."""
    from heaveto.statedb.rows import is_claim

    # A word of a later version is no claim, and nothing closes it.
    if control.klass != "claimed" or not is_claim(control.result):
        return []
    owner = f" by {control.owner}" if control.owner else ""
    return [
        f"{short_id(control.id)} was taken{owner} {control.age_s:.0f}s ago and not "
        f"reported. heaveto ctl resolve {control.id} --as applied|abandoned closes it."
    ]
