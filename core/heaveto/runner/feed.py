"""Signals on their way into the state database: in order, in batches, none lost.

The executor hands signals over without waiting. One task writes what has gathered as
one transaction. While the database refuses, everything is kept and tried again; what is
left when the run ends gets a bounded last chance, and what even that cannot write is
counted and said.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from heaveto.errors import StateDBError

if TYPE_CHECKING:
    from collections.abc import Callable

    from heaveto.model import Signal
    from heaveto.statedb.store import StateDB

__all__ = ["SignalFeed"]

_RETRY_S = (0.1, 0.2, 0.5, 1.0, 2.0)
_BATCH = 500


class SignalFeed:
    """The way of one run's signals; for the loop thread only."""

    def __init__(
        self,
        db: StateDB,
        session_id: str,
        *,
        on_trouble: Callable[[StateDBError], None],
    ) -> None:
        """Start with nothing to write.

        Args:
            db: Where to.
            session_id: Whose signals.
            on_trouble: Told once for each stretch of refusals, with the first of it.
        """
        self._db = db
        self._session_id = session_id
        self._on_trouble = on_trouble
        self._waiting: list[Signal] = []
        self._wake = asyncio.Event()
        self._closing = False
        self._refusals = 0

    def put(self, signal: Signal) -> None:
        """Take a signal; it is written soon, after those before it."""
        self._waiting.append(signal)
        self._wake.set()

    async def run(self) -> None:
        """Write until :meth:`close` and until nothing waits any more."""
        while True:
            if not self._waiting:
                if self._closing:
                    return
                self._wake.clear()
                await self._wake.wait()
                continue
            batch = self._waiting[:_BATCH]
            try:
                await self._db.emit_signals(self._session_id, batch)
            except StateDBError as error:
                await self._refused(error)
            else:
                del self._waiting[: len(batch)]
                self._refusals = 0

    async def _refused(self, error: StateDBError) -> None:
        """Say it once, then wait a little longer each time."""
        if self._refusals == 0:
            self._on_trouble(error)
        delay = _RETRY_S[min(self._refusals, len(_RETRY_S) - 1)]
        self._refusals += 1
        await asyncio.sleep(delay)

    async def close(self, task: asyncio.Task[None], limit: float) -> int:
        """Let the writing task finish; give up after a while.

        Args:
            task: What runs :meth:`run`.
            limit: Seconds.

        Returns:
            How many signals could not be written.
        """
        self._closing = True
        self._wake.set()
        await asyncio.wait({task}, timeout=limit)
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        return len(self._waiting)
