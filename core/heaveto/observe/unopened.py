"""A home that cannot be opened now, and is tried again.

One bad home among several must not keep the others from being shown. Blocking; one
thread at a time.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from heaveto.errors import HomeError, StateDBError
from heaveto.homes import open_home
from heaveto.observe.native import NativeSource
from heaveto.observe.snapshot import HomeView, Notice
from heaveto.observe.words import EXPLANATIONS
from heaveto.runs import Home

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from heaveto.observe.snapshot import RunDetail, RunSummary

__all__ = ["UnopenedHome"]

_AGAIN_S = 2.0


class UnopenedHome:
    """Stands in for a home until it can be opened, then hands everything on to it."""

    def __init__(
        self,
        path: Path,
        error: HomeError,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep why it cannot be opened.

        Args:
            path: Where it should be.
            error: What opening it raised.
            monotonic: Seconds that no clock change moves.
        """
        self.home = Home(path)
        self._error = error
        self._monotonic = monotonic
        self._tried_at = monotonic()
        self._source: NativeSource | None = None

    def refresh(self, touched: Collection[str] | None = None) -> frozenset[str]:
        """Read what is new, after trying to open the home.

        Raises:
            StateDBError: It still cannot be opened.
        """
        source = self._opened()
        if source is None:
            raise StateDBError(self._error.message, code=self._error.code)
        return source.refresh(touched)

    def listed(self) -> tuple[RunSummary, ...]:
        """Return every run as it was read last."""
        return () if self._source is None else self._source.listed()

    def read(self, session_id: str | None, run_id: str | None) -> RunDetail | None:
        """Return one run whole, or None when it is not here."""
        source = self._opened()
        return None if source is None else source.read(session_id, run_id)

    def health(self) -> HomeView:
        """Return how the home stands."""
        if self._source is not None:
            return self._source.health()
        known = EXPLANATIONS.get(self._error.code) or EXPLANATIONS["home_unusable"]
        problem = Notice(
            code=self._error.code,
            text=self._error.message,
            what_to_do=known.what_to_do,
        )
        return HomeView(
            path=str(self.home.path), source="heaveto", read_at=None, problem=problem
        )

    def watch_paths(self) -> tuple[str, ...]:
        """Return the directories in which something may change."""
        return () if self._source is None else self._source.watch_paths()

    def close(self) -> None:
        """Close what is open."""
        if self._source is not None:
            self._source.close()

    def _opened(self) -> NativeSource | None:
        now = self._monotonic()
        if self._source is None and now - self._tried_at >= _AGAIN_S:
            self._tried_at = now
            with contextlib.suppress(HomeError):
                self.home = open_home(self.home.path)
                self._source = NativeSource(self.home)
        return self._source
