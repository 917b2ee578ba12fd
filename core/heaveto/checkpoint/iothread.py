"""The one thread that touches the disk for a writer.

It opens and locks the folder, then does jobs in the order of their admission; what has
come in while it was busy is one batch. It does not end before its last job, whatever
fails, and holds no reference to the writer, so that a forgotten writer is collected and
its folder freed.
"""

from __future__ import annotations

import os
import queue
import threading
from concurrent.futures import Future
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from heaveto.checkpoint.unit import poison
from heaveto.errors import (
    CheckpointBusyError,
    CheckpointError,
    CheckpointPersistenceError,
    FileIdentityError,
    FileMissingError,
    FileTypeError,
    LockHeldError,
)
from heaveto.files import Directory, Os, make_directories

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from pathlib import Path
    from typing import TypeAlias

    from heaveto.checkpoint.state import Transition
    from heaveto.checkpoint.unit import Unit

    Opened: TypeAlias = queue.SimpleQueue["Unit | BaseException"]

__all__ = ["Close", "Inbox", "Job", "start"]


_LOOP = attrgetter("loop")


class Job(NamedTuple):
    """A transition to make durable, or a step of its own, and who waits for it."""

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]
    transition: Transition | None = None
    step: Callable[[Unit], CheckpointError | None] | None = None


class Close:
    """The last job.

    Attributes:
        publish: Try once more to publish what is not on disk.
        done: What the end has to say, once everything is closed.
    """

    def __init__(self, *, publish: bool) -> None:
        """Make the job."""
        self.publish = publish
        self.done: Future[CheckpointError | None] = Future()


class Inbox(queue.SimpleQueue["Job | Close"]):
    """Jobs on their way to the thread.

    Attributes:
        taken: Transitions that the thread has taken in hand; counted by it.
        persisted: Of those, transitions that are durable.
    """

    taken = 0
    persisted = 0


def start(
    path: Path,
    system: Os,
    make: Callable[[Directory], Unit],
    inbox: Inbox,
    *,
    sync: bool,
) -> Unit:
    """Start the thread and wait until the folder is locked.

    Args:
        path: Of ``checkpoint.json``, absolute; its folder is made where it is missing.
        system: The system calls.
        make: Makes the unit in the locked folder.
        inbox: Where jobs will come from; a :class:`Close` ends the thread.
        sync: New folders are synced in their parents.

    Returns:
        The unit; its attributes may be read, its methods belong to the thread.

    Raises:
        CheckpointBusyError: Another writer holds the folder.
        CheckpointPersistenceError: The folder cannot be made, opened or locked.
    """
    opened: Opened = queue.SimpleQueue()
    threading.Thread(
        target=_serve,
        args=(lambda: _open(path, system, make, sync), opened, inbox),
        name="heaveto-checkpoint",
        daemon=True,
    ).start()
    found = opened.get()
    if isinstance(found, BaseException):
        raise found
    return found


def _serve(make: Callable[[], Unit], opened: Opened, inbox: Inbox) -> None:
    """Run the thread."""
    try:
        unit = make()
    except BaseException as error:
        opened.put(error)
        return
    opened.put(unit)
    last: Close | None = None
    while last is None:
        batch: list[Job] = []
        for job in _drain(inbox):
            if isinstance(job, Close):
                last = job
                break
            if job.step is None:
                batch.append(job)
                continue
            _do(_write, unit, batch, inbox)
            _do(_step, unit, [job], inbox)
            batch = []
        _do(_write, unit, batch, inbox)
    try:
        last.done.set_result(unit.close(publish=last.publish))
    except BaseException as error:
        last.done.set_result(poison(error))


def _open(
    path: Path, system: Os, make: Callable[[Directory], Unit], sync: bool
) -> Unit:
    """Make the folder, open it and hold its lock."""
    try:
        make_directories(path.parent, sync=sync, system=system)
        directory = Directory.open(path.parent, system=system)
        try:
            directory.hold()
            return make(directory)
        except BaseException:
            directory.close()
            raise
    except LockHeldError as error:
        raise CheckpointBusyError(error.message) from None
    except (OSError, FileIdentityError, FileMissingError, FileTypeError) as error:
        text = os.strerror(error.errno or 0) if isinstance(error, OSError) else error
        raise CheckpointPersistenceError(
            f"the checkpoint's folder cannot be used: {text}", published="no"
        ) from error


def _drain(inbox: Inbox) -> list[Job | Close]:
    """Wait for a job and take all that are there."""
    jobs = [inbox.get()]
    while not inbox.empty():
        jobs.append(inbox.get())
    return jobs


def _do(
    work: Callable[[Unit, list[Job], Inbox], None],
    unit: Unit,
    jobs: list[Job],
    inbox: Inbox,
) -> None:
    """Do jobs, if there are any; whatever fails, their callers hear of it."""
    if not jobs:
        return
    try:
        work(unit, jobs, inbox)
    except BaseException as error:
        _settle(jobs, poison(error))


def _write(unit: Unit, jobs: list[Job], inbox: Inbox) -> None:
    """Write a run of transitions and tell each caller its own outcome."""
    receipt = unit.write([job.transition for job in jobs if job.transition])
    inbox.taken += len(jobs)
    if receipt.error is None:
        inbox.persisted = inbox.taken
        _settle(jobs, None)
    else:
        inbox.persisted += receipt.durable
        _settle(jobs[: receipt.durable], None)
        _settle(jobs[receipt.durable :], receipt.error)


def _step(unit: Unit, jobs: list[Job], inbox: Inbox) -> None:
    """Do a step; one that succeeds has made all before it durable."""
    (job,) = jobs
    error = job.step(unit) if job.step is not None else None
    if error is None:
        inbox.persisted = inbox.taken
    _settle(jobs, error)


def _settle(jobs: list[Job], error: CheckpointError | None) -> None:
    """Wake the callers, with one call for each loop among them."""
    for loop, group in groupby(jobs, key=_LOOP):
        try:
            loop.call_soon_threadsafe(_resolve, list(group), error)
        except RuntimeError:  # the loop is closed: nobody is waiting any more
            continue


def _resolve(jobs: list[Job], error: CheckpointError | None) -> None:
    """Set what callers wait for, on their own thread."""
    for job in jobs:
        future = job.future
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
