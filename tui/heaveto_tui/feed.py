"""The only work beside the screen: reading runs, sending controls.

Everything that can block runs in threads. The observer tells what changed at most ten
times a second, so that two thousand events cost as much as ten; of the run that is
looked at the whole is read then, of the others nothing. Results are posted to the app
as messages; nothing here touches a widget.

A source that fails is no end of anything: what was read last stays, with its age, and
the reading goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from typing import TYPE_CHECKING, Literal, Protocol

from heaveto.errors import HeavetoError, RunError
from heaveto_tui.messages import (
    Answer,
    Beat,
    ControlAnswered,
    DetailRead,
    OperationText,
    RunsListed,
    TextRead,
)
from heaveto_tui.widgets.run_table import run_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
    from pathlib import Path

    from textual.message import Message

    from heaveto.model import Verb
    from heaveto.observe.snapshot import HomeView, RunDetail, RunSummary
    from heaveto.observe.watch import Change

__all__ = ["Feed", "Source"]

BEAT = 1.0
"""Seconds between two questions how the homes answer."""
TEXT_PERIOD = 0.25
"""Seconds between two looks at a growing output."""
LAST_WAIT = 5.0
"""Seconds that the end waits for what is being sent."""
TAIL = 192 * 1024
"""Bytes of an output that are kept; the rest stays on disk."""


class Source(Protocol):
    """What is read from: the observer, as far as the console needs it."""

    def read(self, run: RunSummary) -> RunDetail | None:
        """Return a listed run whole."""
        ...

    def health(self) -> tuple[HomeView, ...]:
        """Return how each home answers."""
        ...

    def watch(self) -> AsyncIterator[Change]:
        """Yield what changed; everything at first."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


class Order:
    """One wish to read a run; a later wish for the same run is another one."""

    __slots__ = ("run",)

    def __init__(self, run: RunSummary) -> None:
        """Name the run."""
        self.run = run


class Feed:
    """Reads and sends for one app.

    Attributes:
        changes: How many changes were taken; a measurement reads it.
    """

    def __init__(self, source: Source, post: Callable[[Message], object]) -> None:
        """Read from a source, tell an app."""
        self._source = source
        self._post = post
        self._due = asyncio.Event()
        self._wanted: dict[Hashable, Order] = {}
        self._shown: RunSummary | None = None
        self._text: tuple[RunDetail, str] | None = None
        self._text_sizes: tuple[int, ...] = ()
        self._text_unread = False
        self._text_due = asyncio.Event()
        self._sending: set[asyncio.Task[None]] = set()
        self.changes = 0

    async def run(self) -> None:
        """Read until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch())
                tasks.create_task(self._read_details())
                tasks.create_task(self._beat())
                tasks.create_task(self._follow_text())
        finally:
            await asyncio.shield(self._close())

    async def _close(self) -> None:
        """Let what is being sent arrive, then close the source."""
        if self._sending:
            await asyncio.wait(self._sending, timeout=LAST_WAIT)
        await asyncio.to_thread(self._source.close)

    # --- runs

    async def _watch(self) -> None:
        """Hand over every change; start again after a source that failed."""
        while True:
            with contextlib.suppress(HeavetoError, OSError):
                async for change in self._source.watch():
                    self.changes += 1
                    self._post(RunsListed(change.runs, change.homes))
                    self._newer(change)
            await asyncio.sleep(1.0)

    def _newer(self, change: Change) -> None:
        """Read the shown run again if it may be shown otherwise."""
        shown = self._shown
        if shown is None or not change.concerns(shown.session_id or shown.run_id):
            return
        key = run_key(shown)
        for run in change.runs:
            if run_key(run) == key:
                self._shown = run
                self.want([run])
                return

    async def _beat(self) -> None:
        """Ask once a second how the homes answer."""
        while True:
            await asyncio.sleep(BEAT)
            with contextlib.suppress(HeavetoError, OSError):
                self._post(Beat(await asyncio.to_thread(self._source.health)))

    @property
    def reading(self) -> bool:
        """Some run that is wanted whole, or some text, has not been read yet."""
        return bool(self._wanted) or (self._text_unread and self._text is not None)

    async def _read_details(self) -> None:
        """Read the runs that are wanted whole, one after the other."""
        while True:
            await self._due.wait()
            self._due.clear()
            while self._wanted:
                key, order = next(iter(self._wanted.items()))
                await self._detail(order.run)
                if self._wanted.get(key) is order:  # else it is wanted once more
                    del self._wanted[key]

    async def _detail(self, run: RunSummary) -> None:
        try:
            detail = await asyncio.to_thread(self._source.read, run)
        except HeavetoError as error:
            self._post(DetailRead(run, None, error))
        except OSError:
            return
        else:
            if detail is not None:
                self._post(DetailRead(run, detail, None))

    def show(self, run: RunSummary | None) -> None:
        """Keep this run's detail fresh from now on, and no other's."""
        before, self._shown = self._shown, run
        if run is not None and (before is None or run_key(before) != run_key(run)):
            self.want([run])

    def want(self, runs: list[RunSummary]) -> None:
        """Read the details of some runs once."""
        for run in runs:
            self._wanted[run_key(run)] = Order(run)
        if runs:
            self._due.set()

    # --- what operations were told and wrote

    def show_text(self, detail: RunDetail | None, operation_id: str = "") -> None:
        """Follow the texts of one operation from now on, and of no other."""
        before = self._text
        self._text = None if detail is None else (detail, operation_id)
        if detail is None:
            return
        if before is None or (before[0].run.run_id, before[1]) != (
            detail.run.run_id,
            operation_id,
        ):
            self._text_sizes = ()
            self._text_unread = True
            self._text_due.set()

    async def _follow_text(self) -> None:
        """Read the shown operation's texts whenever their sizes differ."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._text_due.wait(), TEXT_PERIOD)
            self._text_due.clear()
            if self._text is None:
                await self._text_due.wait()
                continue
            detail, identifier = self._text
            found = await asyncio.to_thread(
                read_text, detail, identifier, self._text_sizes
            )
            if self._text_due.is_set():
                continue  # another operation is looked at by now: its sizes are unknown
            self._text_unread = False
            if found is not None:
                self._text_sizes, text = found
                self._post(TextRead(text))

    # --- sending

    def send(
        self,
        action: str,
        short: str,
        work: Callable[[], Awaitable[tuple[str, str | None]]],
    ) -> None:
        """Do something that writes, without waiting for it here."""

        async def attempt() -> None:
            try:
                text, control_id = await work()
            except HeavetoError as error:
                answer = Answer(
                    action=action, short=short, ok=False, text=error.message
                )
            except OSError as error:
                answer = Answer(
                    action=action, short=short, ok=False, text=error.strerror or "error"
                )
            else:
                answer = Answer(
                    action=action,
                    short=short,
                    ok=True,
                    text=text,
                    control_id=control_id,
                )
            self._post(ControlAnswered(answer))

        task = asyncio.create_task(attempt())
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    def control(
        self, action: str, run: RunSummary, verb: Verb, text: str | None = None
    ) -> None:
        """Queue a control for a run."""
        from heaveto.controls import enqueue_async
        from heaveto.runs import Home

        async def work() -> tuple[str, str | None]:
            receipt = await enqueue_async(
                Home(_path(run.home)), run.session_id, verb, text=text
            )
            warning = f" {receipt.warnings[0]}" if receipt.warnings else ""
            row = receipt.control
            return f"{verb} {row.id[:8]} queued.{warning}", row.id

        self.send(action, run.session_id[:8], work)

    def resolve(
        self,
        run: RunSummary,
        control_id: str,
        outcome: Literal["applied", "abandoned"],
    ) -> None:
        """Close a control by hand."""
        from heaveto.controls import resolve_async
        from heaveto.runs import Home

        async def work() -> tuple[str, str | None]:
            await resolve_async(Home(_path(run.home)), control_id, outcome)
            return f"{control_id[:8]} closed as {outcome}.", None

        self.send("ctl.resolve", run.session_id[:8], work)

    def end_now(self, run: RunSummary) -> None:
        """Send SIGTERM to the verified process of a heaveto run (PRODUCT 6.10)."""
        from heaveto_tui.ending import end_process

        async def work() -> tuple[str, str | None]:
            pid = await asyncio.to_thread(end_process, run)
            return f"SIGTERM sent to process {pid}.", None

        self.send("run.end_now", run.session_id[:8], work)

    def command(self, action: str, run: RunSummary, words: list[str]) -> None:
        """Run a verb of the command line in a process of its own (SPEC K-22)."""

        async def work() -> tuple[str, str | None]:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "heaveto",
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            out, err = await process.communicate()
            said = (out if process.returncode == 0 else err).decode("utf-8", "replace")
            line = said.strip().splitlines()[-1] if said.strip() else "done"
            if process.returncode:
                raise HeavetoError(line.removeprefix("heaveto: "))
            return line, None

        self.send(action, run.session_id[:8], work)


def _path(home: str) -> Path:
    from pathlib import Path

    return Path(home)


# --- the texts of an operation; runs in a thread


def read_text(
    detail: RunDetail, operation_id: str, known: tuple[int, ...]
) -> tuple[tuple[int, ...], OperationText] | None:
    """Read an operation's texts unless their sizes are the known ones.

    Symbolic links are not followed in the last step, and of a long output only the end
    is read.
    """
    from heaveto.runs import RunDir, check_name

    name = next(
        (each.name for each in detail.operations if each.id == operation_id), None
    )
    try:
        if detail.run_dir is None:
            raise RunError("the run has no directory")
        folder = RunDir(_path(detail.run_dir)).operation(check_name(name or ""))
    except RunError:
        return None if known else ((0,), _nothing(detail, operation_id))
    paths = [folder / each for each in ("instruction.txt", "output.log", "error.log")]
    sizes = tuple(_size(path) for path in paths)
    if sizes == known:
        return None
    instruction, output, error = (_tail(path) for path in paths)
    return sizes, OperationText(
        run_id=detail.run.run_id,
        operation_id=operation_id,
        instruction=instruction if sizes[0] >= 0 else None,
        output=output,
        error=error,
        output_bytes=max(0, sizes[1]),
        error_bytes=max(0, sizes[2]),
        cut=max(sizes[1:]) > TAIL,
    )


def _nothing(detail: RunDetail, operation_id: str) -> OperationText:
    return OperationText(run_id=detail.run.run_id, operation_id=operation_id)


def _size(path: Path) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_size
    except OSError:
        return -1


def _tail(path: Path) -> str:
    """Return the end of a regular file; nothing for anything else."""
    from heaveto.files import Directory

    try:
        with Directory.open(path.parent) as folder, folder.reading(path.name) as fd:
            start = max(0, os.fstat(fd).st_size - TAIL)
            data = os.pread(fd, TAIL, start)
    except (OSError, HeavetoError):
        return ""
    if start:
        data = data.partition(b"\n")[2] or data
    return data.decode("utf-8", "replace")
