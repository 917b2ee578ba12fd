"""What changes in the open homes, as a stream of coalesced changes.

A thread of its own does all that blocks. Ten times a second it asks each database
whether it moved (one pragma on a connection that holds no transaction), takes the hints
of changed files, reads what is new and hands the difference over to the event loop.
While no run goes on it looks four times a second: an idle home costs one pragma and a
few ``stat`` a look.

The loop's side holds one merged change at most, so a slow reader costs no memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from heaveto.errors import StateDBError
from heaveto.observe.hints import Hints, polling_wanted
from heaveto.runs import file_system, is_remote

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

    from heaveto.observe.observer import Observer
    from heaveto.observe.snapshot import HomeView, RunSummary

__all__ = ["Change", "Watcher"]

_LOOK_S = 0.1
"""Time between two looks, and so between two changes, while a run goes on."""
_IDLE_LOOK_S = 0.25
"""The same while none does: a run that begins is still shown within half a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is shown otherwise than before."""

    runs: tuple[RunSummary, ...]
    """Every run as it is now."""
    keys: frozenset[str] | None
    """Session ids (run ids where there is no row) of the runs that differ, are new or
    are gone; None: everything, as in the first change."""
    homes: tuple[HomeView, ...]
    """How the homes stand."""

    def concerns(self, key: str) -> bool:
        """Tell whether a run may be shown otherwise."""
        return self.keys is None or key in self.keys

    def after(self, earlier: Change | None) -> Change:
        """Return this change with an earlier one that nobody took merged into it."""
        if earlier is None or self.keys is None:
            return self
        keys = None if earlier.keys is None else earlier.keys | self.keys
        return replace(self, keys=keys)


class Watcher:
    """The changes of an observer's homes; ``async with`` and ``async for``."""

    def __init__(self, observer: Observer) -> None:
        """Start nothing yet."""
        self._observer = observer
        self._hints: Hints | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = asyncio.Event()
        self._waiting: Change | None = None
        self._error: BaseException | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    async def __aenter__(self) -> Self:
        """Start looking."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(
            target=self._run, name="heaveto-observe", daemon=True
        )
        self._thread.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop looking and wait for the thread."""
        self.stop()
        if self._thread is not None:
            await asyncio.shield(asyncio.to_thread(self._thread.join))

    def stop(self) -> None:
        """Look no more and let the stream end; safe in any thread."""
        self._stop.set()

    async def __aiter__(self) -> AsyncIterator[Change]:
        """Yield changes as they come, merged when the reader is slow."""
        while True:
            await self._ready.wait()
            self._ready.clear()
            change, self._waiting = self._waiting, None
            if change is not None:
                yield change
            elif self._error is not None:
                raise self._error
            elif self._stop.is_set():
                return

    # --- the thread

    def _run(self) -> None:
        try:
            self._look_on()
        except BaseException as error:  # raised again on the loop
            self._hand_over(None, error)
        finally:
            if self._hints is not None:
                self._hints.close()
            self._hand_over(None)

    def _look_on(self) -> None:
        """Look until told to stop; what is there first, before any watch is set."""
        last: tuple[HomeView, ...] | None = None
        while not self._stop.is_set():
            began = time.monotonic()
            keys = self._refresh()
            homes = self._homes()
            if last is None or keys or _problems(homes) != _problems(last):
                told = None if last is None else keys
                self._hand_over(
                    Change(runs=self._observer.listed(), keys=told, homes=homes)
                )
            pause = _IDLE_LOOK_S
            if last is not None:
                paths = self._observer.watch_paths()
                self._watch(paths)
                # Each home watches its folder of runs, and one for a run that goes on.
                if len(paths) > len(self._observer.homes):
                    pause = _LOOK_S
            last = homes
            self._stop.wait(max(0.01, pause - (time.monotonic() - began)))

    def _watch(self, paths: tuple[str, ...]) -> None:
        """Ask to be told of changes in some directories."""
        if self._hints is None:
            self._hints = Hints(wanted=not polling_wanted() and self._is_local())
        self._hints.watch(paths)

    def _is_local(self) -> bool:
        """Tell whether every home is on a file system that gives notices."""
        return not any(
            is_remote(file_system(home.path)) for home in self._observer.homes
        )

    def _refresh(self) -> frozenset[str]:
        """Read what is new; what cannot be read is told by the homes' health."""
        with contextlib.suppress(StateDBError):
            hints = self._hints
            return self._observer.refresh(None if hints is None else hints.take())
        return frozenset()

    def _homes(self) -> tuple[HomeView, ...]:
        hints = self._hints
        polling = polling_wanted() if hints is None else hints.why_not is not None
        return tuple(replace(home, polling=polling) for home in self._observer.health())

    def _hand_over(
        self, change: Change | None, error: BaseException | None = None
    ) -> None:
        """Give a change to the loop; a loop that is gone ends the looking."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._take, change, error)
        except RuntimeError:
            self._stop.set()

    def _take(self, change: Change | None, error: BaseException | None) -> None:
        """Merge a change into what waits; on the loop."""
        if change is not None:
            self._waiting = change.after(self._waiting)
        if error is not None:
            self._error = error
        self._ready.set()


def _problems(homes: tuple[HomeView, ...]) -> tuple[object, ...]:
    return tuple(home.problem for home in homes)
