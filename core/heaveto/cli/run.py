"""``run``: a flow, in the foreground, detached, or only described."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from heaveto.cli.exits import Exit, for_status
from heaveto.cli.scope import Scope, common_options
from heaveto.cli.stray import strays_apart
from heaveto.cli.words import explain
from heaveto.errors import HeavetoError, UsageError
from heaveto.model import OperationStatus, RunState, RunStatus
from heaveto.text import clip, duration, plain, short_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heaveto.flowfile import Flow
    from heaveto.model import Outcome, Signal
    from heaveto.observe.snapshot import Notice, OperationView, RunDetail
    from heaveto.runner import Cause, Finished, Options, Registered, Trouble
    from heaveto.runs import Home

__all__ = ["run"]

_NOT_YET = ("max_ops", "reactive", "timeout", "with_synthesis")


@click.command()
@common_options
@click.argument("flow", metavar="FLOW")
@click.option(
    "--max-concurrent",
    type=click.IntRange(min=0),
    metavar="N",
    help="Operations at a time; 0 is all.",
)
@click.option(
    "--on-failure",
    type=click.Choice(["skip", "continue", "stop"]),
    help="What a failure means for what depends on it.",
)
@click.option(
    "--save",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where artifacts go; the run directory by default.",
)
@click.option(
    "--notify",
    metavar="CMD",
    help="Run CMD (no shell) after the end; by default the settings' notify.",
)
@click.option(
    "--checkpoint-format",
    type=click.Choice(["2", "3"]),
    default="3",
    show_default=True,
    help="3: base and journal; 2: one file, rewritten at every save.",
)
@click.option("--dry-run", is_flag=True, help="Check and describe; create nothing.")
@click.option("--detach", is_flag=True, help="Run in a session of its own; return.")
@click.option("--watch", "console", is_flag=True, help="Detach and open the console.")
@click.option("--show-graph", is_flag=True, help="Draw the flow before it runs.")
@click.option("--quiet", is_flag=True, help="No lines on the course of things.")
@click.option("--announce", is_flag=True, hidden=True)
@click.option("--max-ops", hidden=True)
@click.option("--reactive", hidden=True)
@click.option("--timeout", hidden=True)
@click.option("--with-synthesis", is_flag=True, hidden=True)
@click.pass_obj
def run(
    scope: Scope,
    /,
    flow: str,
    max_concurrent: int | None,
    on_failure: str | None,
    save: Path | None,
    notify: str | None,
    checkpoint_format: str,
    dry_run: bool,
    detach: bool,
    console: bool,
    show_graph: bool,
    quiet: bool,
    announce: bool,
    **not_yet: object,
) -> int:
    """Run FLOW: a flow file (TOML or JSON), or module:attribute.

    Each operation is reported twice: when it was executed, and when its outcome is
    persisted, that is, survives the death of the process. An interrupt or SIGTERM lets
    what runs finish within its worker's grace and starts nothing new; a second one
    does not wait.
    """
    for name in _NOT_YET:
        if not_yet[name]:
            flag = "--" + name.replace("_", "-")
            raise UsageError(
                f"{flag} is not part of this version.", code="not_available"
            )
    if sum((dry_run, detach, console)) > 1:
        raise UsageError("--dry-run, --detach and --watch exclude each other")
    from heaveto.flowfile import Flow as LoadedFlow
    from heaveto.runner import Options, parse_notify

    if save is not None:
        _check_text(save)
    scope.output.quiet = quiet
    scope.output.json |= announce
    with strays_apart(scope.output):
        loaded = LoadedFlow.load(flow)
    command = scope.config().notify if notify is None else notify
    hook = None if command is None else parse_notify(command)
    options = Options(
        checkpoint_format=int(checkpoint_format),
        max_concurrent=max_concurrent,
        on_failure=on_failure,
        artifact_root=None if save is None else save.absolute(),
        signals=True,
    )
    if show_graph and not announce:
        _show_graph(scope, loaded, aside=detach or console)
    if dry_run:
        from heaveto.cli.dry_run import describe

        return describe(scope, loaded, options)
    if detach or console:
        return _start(scope, console=console)
    if announce:  # its standard output belongs to the parent, then to its log
        return _foreground(scope, loaded, options, hook, announce=True)
    with strays_apart(scope.output):
        return _foreground(scope, loaded, options, hook, announce=False)


def _show_graph(scope: Scope, flow: Flow, *, aside: bool) -> None:
    """Draw the flow: on standard output unless that belongs to an answer."""
    from heaveto.cli.drawing import drawing_lines
    from heaveto.cli.dry_run import flow_detail

    output = scope.output
    show = output.note if aside or output.json else output.line
    for line in drawing_lines(scope.dag, flow_detail(flow, "")):
        show(line)


def _check_text(folder: Path) -> None:
    """Refuse a folder whose name could not stand in a row or in JSON.

    Raises:
        UsageError: It is no UTF-8.
    """
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise UsageError("--save: the folder's name must be UTF-8") from None


def _start(scope: Scope, *, console: bool) -> int:
    """Start a runner of its own session; then return, or follow it in the console."""
    from heaveto.detach import start

    scope.writing_home()
    if console:
        from heaveto.cli.console import check_keyboard

        check_keyboard()
    started = start(runner_words(scope.words))
    if console:
        from heaveto.cli.console import open_console

        return open_console(scope, target=started.session_id)
    if scope.output.json:
        from heaveto.cli.show import print_detail

        with scope.observer() as observer:
            print_detail(scope, observer.read_run(started.session_id))
    else:
        scope.output.line(started.run_id)
    return Exit.OK


def runner_words(words: tuple[str, ...]) -> list[str]:
    """Return the command line of the runner for one that detaches, the verb first.

    Options that stood before the verb move behind it, where they mean the same.
    """
    kept = [word for word in words if word not in ("--detach", "--watch", "--json")]
    verb = kept.index("run")
    return ["run", *kept[:verb], *kept[verb + 1 :]]


def _foreground(
    scope: Scope,
    flow: Flow,
    options: Options,
    hook: tuple[str, ...] | None,
    *,
    announce: bool,
) -> int:
    """Run a flow in this process and end with its exit code."""
    from heaveto.runner import notify, run_flow

    home = scope.writing_home()
    progress = Progress(scope, announce=announce)

    async def whole() -> tuple[Finished, int]:
        finished = await run_flow(flow, home, options, progress)
        code = _exit_code(finished)
        if hook is not None:
            warning = await notify(
                hook,
                run_id=finished.registered.run_id,
                status=str(finished.verdict.status),
                exit_code=code,
            )
            if warning:
                scope.output.warn(warning)
        return finished, code

    with logged(scope):
        finished, code = asyncio.run(whole())
    _report(scope, home, finished, progress)
    return code


@contextlib.contextmanager
def logged(scope: Scope) -> Iterator[None]:
    """Print what the engine's modules log as warnings, through the one printer."""
    logger = logging.getLogger("heaveto")
    handler = _Printing(scope)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Printing(logging.Handler):
    """A log handler that warns."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(logging.WARNING)
        self._output = scope.output

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        self._output.warn(record.getMessage())


def _exit_code(finished: Finished) -> int:
    """Return the code of the status; what was not saved is no success."""
    code = for_status(finished.verdict.status)
    if code == Exit.OK and finished.troubles:
        return Exit.FAILED
    return code


def _report(scope: Scope, home: Home, finished: Finished, progress: Progress) -> None:
    """Say how it ended: one sentence, then the run as ``show`` shows it."""
    verdict = finished.verdict
    scope.output.progress(
        f"{short_id(finished.registered.session_id)} {verdict.status}"
        f" after {duration(time.monotonic() - progress.began)}"
        + (f": {verdict.summary}" if verdict.summary else "")
    )
    if finished.troubles:
        scope.output.warn("not everything was saved; the lines above say what")
    if progress.announced or (scope.output.quiet and not scope.output.json):
        return
    from heaveto.cli.output import OutputClosed
    from heaveto.cli.show import print_detail
    from heaveto.observe import Observer

    try:
        with Observer((home,)) as observer:
            detail = observer.read_run(finished.registered.session_id)
        print_detail(scope, _as_ended(detail, finished))
    except HeavetoError as error:
        scope.output.refuse(error)
    except OutputClosed:
        return


def _as_ended(detail: RunDetail, finished: Finished) -> RunDetail:
    """Return the run as it ended, also where the database could not be told so.

    What the database could not take (a full disk, a lock) this process knows: how the
    run and its operations ended, and what was not saved.
    """
    if detail.run.status != RunStatus.RUNNING and not finished.troubles:
        return detail
    verdict = finished.verdict
    operations = tuple(
        _operation_as_ended(one, finished.outcomes.get(one.name))
        for one in detail.operations
    )
    words = [str(one.status) for one in operations]
    run = dataclasses.replace(
        detail.run,
        status=verdict.status,
        state=RunState(verdict.status),
        reason_code=verdict.reason_code,
        phase=None,
        alive=False,
        status_source="process",
        nodes={"total": len(words), **{word: words.count(word) for word in words}},
        warnings=(*detail.run.warnings, *_troubles(detail, finished)),
    )
    return dataclasses.replace(detail, run=run, operations=operations)


_ENDS = {
    OperationStatus.COMPLETED,
    OperationStatus.FAILED,
    OperationStatus.SKIPPED,
    OperationStatus.CANCELLED,
}


def _operation_as_ended(view: OperationView, outcome: Outcome | None) -> OperationView:
    """Return an operation as this process saw it end, where no signal says so."""
    if view.status in _ENDS:
        return view
    if outcome is None or outcome.status not in _ENDS:
        started = view.status == OperationStatus.RUNNING
        word = OperationStatus.LOST if started else OperationStatus.UNSTARTED
        return dataclasses.replace(view, status=word, status_source="process")
    return dataclasses.replace(
        view,
        status=outcome.status,
        status_source="process",
        executed=True,
        error_code=outcome.error_code,
        error_text=outcome.error_text,
    )


def _troubles(detail: RunDetail, finished: Finished) -> Iterator[Notice]:
    """Yield what was not saved, as far as the row does not say it already."""
    from heaveto.observe.snapshot import Notice as Warned

    known = {warning.code for warning in detail.run.warnings}
    for trouble in finished.troubles:
        if trouble.code not in known:
            known.add(trouble.code)
            found = explain(trouble.code)
            yield Warned(
                code=trouble.code,
                text=trouble.text,
                what_to_do=found.what_to_do if found else "",
            )


def _turn_to_log(run: Registered) -> None:
    """Tell the parent that the run is registered; from here on write to its log."""
    from heaveto.detach import announce
    from heaveto.files import Directory

    with (
        Directory.open(run.run_dir.path) as folder,
        folder.create(run.run_dir.runner_log.name) as log,
    ):
        announce(
            run_id=run.run_id,
            session_id=run.session_id,
            home=run.home.path,
            log=log.fd,
        )


class Progress:
    """One line a change on standard error: ``executed``, then ``persisted``."""

    def __init__(self, scope: Scope, *, announce: bool) -> None:
        """Print to the scope's output; announce the run to a parent if asked."""
        self._output = scope.output
        self.announced = announce
        self.began = time.monotonic()

    def registered(self, run: Registered) -> None:
        """Name the run; a started runner tells its parent and turns to its log."""
        if self.announced:
            _turn_to_log(run)
            self._output.json = False
        self._say(f"run {run.run_id} session {run.session_id} in {run.home.path}")

    def signal(self, signal: Signal) -> None:
        """Say what happened to an operation, but for its end, which is said anyway."""
        words = {
            "NodeStarted": "started",
            "NodePaused": "paused",
            "NodeSkipped": "skipped",
            "NodeCancelled": "cancelled",
        }
        word = words.get(signal.kind)
        if word == "cancelled" and not signal.data.get("started"):
            word = "withheld"
        if word:
            self._say(f"{signal.name} {word}")

    def executed(self, name: str, outcome: Outcome) -> None:
        """Say that an operation has ended; nothing of it is saved yet."""
        error = ""
        if outcome.error_code:
            text = clip(plain(outcome.error_text or ""), 160)
            error = f" ({outcome.error_code})" + (f": {text}" if text else "")
        self._say(f"{name} executed, {outcome.status}{error}")

    def persisted(self, name: str, seq: int | None) -> None:
        """Say that an outcome is saved."""
        self._say(f"{name} persisted" + ("" if seq is None else f", seq {seq}"))

    def trouble(self, trouble: Trouble) -> None:
        """Say what could not be saved, also when quiet."""
        self._output.warn(trouble.text)

    def ending(self, cause: Cause, again: bool) -> None:
        """Say that the run is being ended."""
        if again:
            self._output.note(f"heaveto: {cause.word} again: what runs is ended now")
        else:
            self._output.note(
                f"heaveto: {cause.word}: nothing new starts, what runs may finish"
                " within its grace; once more ends it now"
            )

    def _say(self, text: str) -> None:
        """Print one line with the time."""
        clock = time.strftime("%H:%M:%S")
        self._output.progress(f"{clock} {text}")
