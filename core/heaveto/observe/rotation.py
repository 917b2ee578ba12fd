"""Things looked at in turns, so that each has its turn once in a given time.

Pure but for the clock it is given; one owner.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Rotation"]


class Rotation:
    """A round of keys; each :meth:`turn` gives those that are due since the last."""

    def __init__(self, period: float, monotonic: Callable[[], float]) -> None:
        """Begin an empty round.

        Args:
            period: Seconds in which each key comes once.
            monotonic: Seconds that no clock change moves.
        """
        self._period = period
        self._monotonic = monotonic
        self._round: deque[str] = deque()
        self._members: set[str] = set()
        self._turned_at = monotonic()
        self._owed = 0.0

    def add(self, key: str) -> None:
        """Put a key at the end of the round, unless it is in it."""
        if key not in self._members:
            self._members.add(key)
            self._round.append(key)

    def remove(self, key: str) -> None:
        """Take a key out of the round."""
        self._members.discard(key)

    def turn(self) -> set[str]:
        """Return the keys whose turn has come; they stay in the round.

        After a long pause everything comes once, never twice.
        """
        now = self._monotonic()
        share = (now - self._turned_at) / self._period
        self._turned_at = now
        self._owed = min(self._owed + share * len(self._round), len(self._round))
        found: set[str] = set()
        while self._owed >= 1.0 and self._round:
            self._owed -= 1.0
            key = self._round.popleft()
            if key in self._members:
                found.add(key)
                self._round.append(key)
        return found
