"""``demo``: the bundled flows in a home of their own, in the console or headless."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import click

from heaveto.cli.console import can_draw, check_keyboard, open_console
from heaveto.cli.exits import Exit
from heaveto.cli.scope import Scope, common_options
from heaveto.demo import FLOWS, MESSAGE, PATIENCE, DemoFlow
from heaveto.errors import HeavetoError
from heaveto.files import Directory
from heaveto.model import OperationStatus, Verb
from heaveto.observe import Observer, is_over
from heaveto.text import short_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from heaveto.detach import Started
    from heaveto.observe.snapshot import RunDetail
    from heaveto.runs import Home

__all__ = ["demo"]

_LIMIT_S = 28.0
"""Seconds after which the headless demo gives up waiting."""
_END_S = 20.0


@click.command()
@common_options
@click.option("--headless", is_flag=True, help="Without the console; ends by itself.")
@click.option("--keep", is_flag=True, help="Leave the folder there.")
@click.pass_obj
def demo(scope: Scope, headless: bool, keep: bool) -> int:
    """Run the bundled flows in a fresh folder that is removed in the end.

    No other home is opened. One flow fans out, one fails, one is there to be paused and
    told something. Exit 0 of --headless: every run ended as its script says.
    """
    headless = headless or not can_draw() or scope.output.json
    if not headless:
        check_keyboard()
    with _folder(scope, keep=keep) as home:
        runs = _start_all(home, {} if headless else PATIENCE)
        scope.given_homes[:] = [home.path]
        try:
            if headless:
                return asyncio.run(_headless(scope, home, runs))
            return open_console(scope, demo=True)
        finally:
            _end_all(home, runs)


@dataclass(frozen=True, slots=True)
class _Run:
    """A demo flow that was started."""

    flow: DemoFlow
    started: Started


@contextlib.contextmanager
def _folder(scope: Scope, *, keep: bool) -> Iterator[Home]:
    """Make a private home, print where it is, and remove it afterwards."""
    from heaveto.homes import open_home

    path = Path(tempfile.gettempdir()) / f"heaveto-demo-{uuid4().hex[:8]}"
    with Directory.open(path.parent) as parent:
        parent.make(path.name).close()
    scope.output.note(f"demo home: {path}" + ("" if keep else " (removed at the end)"))
    try:
        yield open_home(path)
    finally:
        if not keep:
            with Directory.open(path.parent) as parent:
                parent.remove_tree(path.name)


def _start_all(home: Home, pace: Mapping[str, str]) -> list[_Run]:
    """Start every flow as a runner of its own session, in the environment of a pace."""
    from heaveto.detach import start

    runs = []
    try:
        for flow in FLOWS:
            words = ["run", "--home", str(home.path), str(flow.path)]
            # The user's settings, and what they run at an end, are not the demo's.
            plain = {"HEAVETO_CONFIG": os.devnull, **pace}
            runs.append(_Run(flow, start(words, cwd=home.path, environment=plain)))
    except BaseException:
        _end_all(home, runs)
        raise
    return runs


async def _headless(scope: Scope, home: Home, runs: list[_Run]) -> int:
    """Steer what wants it, wait for every end, compare with the script."""
    deadline = time.monotonic() + _LIMIT_S
    scope.output.note(f"{len(runs)} flows run; this takes about 15 seconds")
    with Observer((home,)) as observer:
        for run in runs:
            if run.flow.pauses_at is not None:
                await _steer(scope, observer, home, run, deadline)
        details = []
        for run in runs:
            left = max(0.1, deadline - time.monotonic())
            detail, _ = await observer.wait_for_end(run.started.session_id, left)
            details.append(detail)
        problems = [
            problem
            for run, detail in zip(runs, details, strict=True)
            for problem in _compare(run, detail)
        ]
        listed = observer.list_runs()
    for problem in problems:
        scope.output.note(f"heaveto: demo: {problem}")
    if scope.output.json:
        scope.output.answer({"runs": [run.as_dict() for run in listed]})
    else:
        from heaveto.cli.listing import list_lines

        for line in list_lines(listed, now=time.time()):
            scope.output.line(line)
    return Exit.FAILED if problems else Exit.OK


async def _steer(
    scope: Scope, observer: Observer, home: Home, run: _Run, deadline: float
) -> None:
    """Pause, say something, and resume, each when the one before has been taken."""
    from heaveto.controls import enqueue_async

    session = run.started.session_id

    async def until(ask: Callable[[RunDetail], bool]) -> None:
        while time.monotonic() < deadline:
            detail = await asyncio.to_thread(observer.read_run, session)
            if is_over(detail.run) or ask(detail):
                return
            await asyncio.sleep(0.1)

    await until(
        lambda detail: any(
            one.name == run.flow.pauses_at and one.status == OperationStatus.RUNNING
            for one in detail.operations
        )
    )
    for verb, text in (
        (Verb.PAUSE, None),
        (Verb.MESSAGE, MESSAGE),
        (Verb.RESUME, None),
    ):
        receipt = await enqueue_async(home, session, verb, text=text, by="demo")
        scope.output.note(f"{verb} queued for {short_id(session)}")
        sent = receipt.control.id
        await until(partial(_is_applied, sent))


def _is_applied(control_id: str, detail: RunDetail) -> bool:
    """Tell whether a control has been applied."""
    return any(
        one.id == control_id and one.klass == "applied" for one in detail.controls
    )


def _compare(run: _Run, detail: RunDetail) -> Iterator[str]:
    """Yield where a run did not end as its script says."""
    name = run.flow.name
    if detail.run.status != run.flow.ends:
        yield f"{name} ended as {detail.run.state}, not {run.flow.ends}"
    if run.flow.reads is not None and not any(
        one.name == run.flow.reads and one.rendered for one in detail.operations
    ):
        yield f"{name}: {run.flow.reads} did not read the message"
    if not any(one.status == OperationStatus.COMPLETED for one in detail.operations):
        yield f"{name}: no operation was completed"


def _end_all(home: Home, runs: list[_Run]) -> None:
    """End what still runs: SIGTERM, again so that nothing is waited for, then wait."""
    with contextlib.suppress(HeavetoError), Observer((home,)) as observer:
        deadline = time.monotonic() + _END_S
        for number in (1, 2):
            for run in _living(observer, runs):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(run.started.pid, signal.SIGTERM)
            time.sleep(0.1 * number)
        while _living(observer, runs) and time.monotonic() < deadline:
            time.sleep(0.1)


def _living(observer: Observer, runs: list[_Run]) -> list[_Run]:
    """Return the runs whose own process is there, asked anew."""
    return [
        run
        for run in runs
        if observer.read_run(run.started.session_id).run.alive is True
    ]
