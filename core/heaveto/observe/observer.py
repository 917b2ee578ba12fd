"""Several homes read as one: the list, one run, what changes, waiting for an end.

Everything that blocks may be called from any thread; one lock keeps the sources to one
caller at a time. :meth:`Observer.watch` and :meth:`Observer.wait_for_end` are for an
event loop and read on a thread of their own.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Protocol, Self

from heaveto.errors import HomeError, StateDBError, TargetError
from heaveto.homes import open_home
from heaveto.model import TERMINAL_RUN
from heaveto.observe.lionagi import LionagiSource
from heaveto.observe.native import NativeSource
from heaveto.observe.unopened import UnopenedHome
from heaveto.runs import Home
from heaveto.targets import resolve_target

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable
    from pathlib import Path
    from types import TracebackType

    from heaveto.observe.snapshot import HomeView, RunDetail, RunSummary
    from heaveto.observe.watch import Change, Watcher

__all__ = ["Observer", "RunSource", "is_over"]


class RunSource(Protocol):
    """One home as a source of runs; all methods block.

    A second kind of home is a second implementation beside ``native``.
    """

    home: Home

    def refresh(self, touched: Collection[str] | None = None) -> frozenset[str]:
        """Read what is new; return the keys of the runs that are shown otherwise."""
        ...

    def listed(self) -> tuple[RunSummary, ...]:
        """Return every run as it was read last, the newest first."""
        ...

    def read(self, session_id: str | None, run_id: str | None) -> RunDetail | None:
        """Return one run whole, or None when it is not here."""
        ...

    def health(self) -> HomeView:
        """Return how the home stands."""
        ...

    def watch_paths(self) -> tuple[str, ...]:
        """Return the directories in which something may change."""
        ...

    def close(self) -> None:
        """Close what is open."""
        ...


class Observer:
    """A reader of the open homes; it changes nothing anywhere."""

    def __init__(
        self,
        homes: Iterable[Path | Home],
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Look what kind each home is; nothing else is read yet.

        Args:
            homes: Folders, or homes whose kind is known.
            clock: Epoch seconds.
            monotonic: Seconds that no clock change moves.

        Raises:
            HomeError: None of them can be opened. One that cannot be opened among
                others that can is shown by :meth:`health` and tried again.
        """
        self.lock = threading.RLock()
        self.sources: tuple[RunSource, ...] = ()
        self._watchers: set[Watcher] = set()
        self._closed = False
        failures: list[HomeError] = []
        for home in homes:
            try:
                opened = home if isinstance(home, Home) else open_home(home)
                kind = LionagiSource if opened.kind == "lionagi" else NativeSource
                source: RunSource = kind(opened, clock=clock, monotonic=monotonic)
            except HomeError as error:
                failures.append(error)
                path = home.path if isinstance(home, Home) else home
                source = UnopenedHome(path.absolute(), error, monotonic=monotonic)
            self.sources += (source,)
        if failures and len(failures) == len(self.sources):
            raise failures[0]

    @property
    def homes(self) -> tuple[Home, ...]:
        """The homes, in order."""
        return tuple(source.home for source in self.sources)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """End every stream and close every database; again is harmless."""
        with self.lock:
            self._closed = True
            for watcher in self._watchers:
                watcher.stop()
            for source in self.sources:
                source.close()

    # --- asked once

    def list_runs(self) -> tuple[RunSummary, ...]:
        """Return every run of every home, home by home, the newest first.

        Raises:
            StateDBError: No home could be read, now or before.
        """
        with self.lock:
            self.refresh()
            return self.listed()

    def listed(self) -> tuple[RunSummary, ...]:
        """Return every run as it was read last."""
        with self.lock:
            return tuple(run for source in self.sources for run in source.listed())

    def refresh(self, touched: Collection[str] | None = None) -> frozenset[str]:
        """Read what is new.

        Args:
            touched: Names of run directories in which files changed; None: look at all.

        Returns:
            The keys of the runs that are shown otherwise than before.

        Raises:
            StateDBError: No home could be read, now or before.
        """
        changed: set[str] = set()
        failures: list[StateDBError] = []
        with self.lock:
            for source in () if self._closed else self.sources:
                try:
                    changed |= source.refresh(touched)
                except StateDBError as error:
                    failures.append(error)
        if failures and len(failures) == len(self.sources):
            raise failures[0]
        return frozenset(changed)

    def read_run(self, target: str) -> RunDetail:
        """Return the run that a text names, whole.

        Args:
            target: An id or its beginning, by the one target rule.

        Raises:
            TargetError: It names no run, or several.
            StateDBError: The database cannot be read and nothing is known of the run.
        """
        with self.lock:
            found = resolve_target(self.homes, target)
            source = self._source(found.home)
            detail = source.read(found.session_id, found.run_id)
            if detail is None:
                raise TargetError("the run is gone", code="target_unknown")
            return detail

    def read(self, run: RunSummary) -> RunDetail | None:
        """Return a listed run whole, or None when it is gone; cheaper than a target."""
        with self.lock:
            for source in self.sources:
                if str(source.home.path) == run.home:
                    return source.read(run.session_id or None, run.run_id or None)
        return None

    def health(self) -> tuple[HomeView, ...]:
        """Return how each home stands, in order."""
        with self.lock:
            return tuple(source.health() for source in self.sources)

    def watch_paths(self) -> tuple[str, ...]:
        """Return the directories in which something may change."""
        with self.lock:
            return tuple(
                path for source in self.sources for path in source.watch_paths()
            )

    def _source(self, home: Home) -> RunSource:
        for source in self.sources:
            if source.home.path == home.path:
                return source
        raise HomeError(f"this home is not open: {home.path}")

    # --- on an event loop

    async def watch(self) -> AsyncIterator[Change]:
        """Yield what changes; the first change comes at once and is everything.

        At most ten changes come in a second, and what comes meanwhile is merged into
        the next one, so a slow reader misses no state, only intermediate ones.
        """
        from heaveto.observe.watch import Watcher

        async with Watcher(self) as watcher:
            self._watchers.add(watcher)
            try:
                async for change in watcher:
                    yield change
            finally:
                self._watchers.discard(watcher)

    async def wait_for_end(
        self, target: str, limit: float | None = None
    ) -> tuple[RunDetail, bool]:
        """Follow a run until it has ended or its process is gone.

        Args:
            target: An id or its beginning.
            limit: Seconds to wait at most; None waits for ever.

        Returns:
            The run as it is then, and whether the time ran out first.

        Raises:
            TargetError: The target names no run, or several.
        """
        import asyncio  # the heaviest import of a verb that only lists

        detail = await asyncio.to_thread(self.read_run, target)
        if is_over(detail.run):
            return detail, False
        try:
            async with asyncio.timeout(limit):
                async for change in self.watch():
                    key = detail.run.session_id or detail.run.run_id
                    if not change.concerns(key):
                        continue
                    newer = await asyncio.to_thread(self.read, detail.run)
                    if newer is None:
                        raise TargetError("the run is gone", code="target_unknown")
                    detail = newer
                    if is_over(detail.run):
                        return detail, False
        except TimeoutError:
            newer = await asyncio.to_thread(self.read, detail.run)
            return newer or detail, True
        return detail, False


def is_over(run: RunSummary) -> bool:
    """Tell whether nothing more will come from a run."""
    return run.status in TERMINAL_RUN or run.alive is False
