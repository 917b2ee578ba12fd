"""Things looked at in turns, so that each has its turn once in a given time.

Pure but for the clock it is given; one owner.
"""

from __future__ import annotations

from itertools import islice
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
        self._round: dict[str, None] = {}
        self._turned_at = monotonic()
        self._owed = 0.0

    def __len__(self) -> int:
        """Return how many keys are in the round."""
        return len(self._round)

    def __contains__(self, key: str) -> bool:
        """Tell whether a key is in the round."""
        return key in self._round

    def add(self, key: str) -> None:
        """Put a key at the end of the round, unless it is in it."""
        self._round.setdefault(key)

    def remove(self, key: str) -> None:
        """Take a key out of the round."""
        self._round.pop(key, None)

    def turn(self) -> set[str]:
        """Return the keys whose turn has come; they stay in the round.

        After a long pause everything comes once, never twice.
        """
        now = self._monotonic()
        share = (now - self._turned_at) / self._period
        self._turned_at = now
        self._owed = min(self._owed + share * len(self._round), len(self._round))
        count = int(self._owed)
        self._owed -= count
        found = set(islice(self._round, count))
        for key in found:  # to the end of the round
            del self._round[key]
        self._round.update(dict.fromkeys(found))
        return found
