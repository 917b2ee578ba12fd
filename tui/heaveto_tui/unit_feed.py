"""Reading one checkpoint for the place that shows it, off the loop.

A read costs two ``stat`` calls while nothing changed; what changed is read on a thread,
so that a checkpoint of any size leaves the keys alone. Results are posted as messages.
Nothing is read while the place is out of view, and nothing is kept of what was loaded
but the view.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from textual.message import Message

from heaveto.errors import GenerationError
from heaveto.generations import diff_generations
from heaveto.observe.observer import is_over
from heaveto.observe.ondisk import Inspector
from heaveto_tui.widgets.run_table import run_key

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from heaveto.generations import StoreView
    from heaveto.observe.ondisk import UnitView
    from heaveto.observe.snapshot import RunDetail

__all__ = ["LINES", "Comparison", "GenerationsCompared", "UnitFeed", "UnitRead"]

PERIOD = 0.5
"""Seconds between two looks at the files in view."""
LINES = 5000
"""Lines of a journal that are listed: its end, or those around the bad one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two generations of a store compared by file, size and digest.

    Attributes:
        pair: Their names.
        changes: What differs; see :func:`heaveto.generations.diff_generations`.
        problem: Why they could not be compared.
    """

    pair: tuple[str, str]
    changes: Sequence[dict[str, object]] = ()
    problem: str | None = None


class UnitRead(Message):
    """A checkpoint, as it lies on disk now."""

    def __init__(self, key: Hashable, view: UnitView) -> None:
        """Name the run and hold its unit."""
        super().__init__()
        self.key = key
        self.view = view


class GenerationsCompared(Message):
    """Two generations of the store in view were compared."""

    def __init__(self, key: Hashable, found: Comparison) -> None:
        """Name the run and hold what differs."""
        super().__init__()
        self.key = key
        self.found = found


class UnitFeed:
    """Reads the checkpoint of the run that is looked at."""

    def __init__(
        self,
        post: Callable[[Message], object],
        wanted: Callable[[], RunDetail | None],
    ) -> None:
        """Read what is wanted, tell somebody.

        Args:
            post: Takes the messages.
            wanted: Returns the run that is looked at, None when nobody looks.
        """
        self._post = post
        self._wanted = wanted
        self._due = asyncio.Event()
        self._key: Hashable = None
        self._inspector: Inspector | None = None
        self._view: UnitView | None = None
        self._pair: tuple[str, str] | None = None
        self._compared: tuple[StoreView, tuple[str, str]] | None = None

    def look(self, pair: tuple[str, str] | None = None) -> None:
        """Look now, and compare two generations."""
        if pair != self._pair or self._key is None or self._is_other():
            self._pair = pair
            self._due.set()

    def _is_other(self) -> bool:
        detail = self._wanted()
        return detail is not None and self._key_of(detail) != self._key

    @staticmethod
    def _key_of(detail: RunDetail) -> Hashable:
        return run_key(detail.run), detail.run_dir

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._due.wait(), PERIOD)
            self._due.clear()
            detail = self._wanted()
            if detail is None:
                self._leave()
                await self._due.wait()
                continue
            if detail.run_dir is not None:
                await self._read(detail, detail.run_dir)

    def _leave(self) -> None:
        inspector, self._inspector = self._inspector, None
        self._key = self._view = self._compared = None
        if inspector is not None:
            inspector.close()

    async def _read(self, detail: RunDetail, run_dir: str) -> None:
        key = self._key_of(detail)
        if key != self._key or self._inspector is None:
            self._leave()
            self._key = key
            path = Path(run_dir) / "checkpoint.json"
            self._inspector = Inspector(path, limit=LINES)
        live = not is_over(detail.run)
        view = await asyncio.to_thread(self._inspector.read, live=live)
        if view is not self._view:
            self._view = view
            self._post(UnitRead(run_key(detail.run), view))
        await self._compare(detail, view)

    async def _compare(self, detail: RunDetail, view: UnitView) -> None:
        store, pair = view.store, self._pair
        if store is None or pair is None or self._compared == (store, pair):
            return
        found = await asyncio.to_thread(_compared, Path(store.path), pair)
        self._compared = (store, pair)
        self._post(GenerationsCompared(run_key(detail.run), found))


def _compared(path: Path, pair: tuple[str, str]) -> Comparison:
    try:
        return Comparison(pair=pair, changes=diff_generations(path, *pair))
    except GenerationError as error:
        return Comparison(pair=pair, problem=error.message)
    except OSError as error:
        return Comparison(pair=pair, problem=error.strerror or "it cannot be read")
