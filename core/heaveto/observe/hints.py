"""Hints that files changed, from the system's notices (inotify, FSEvents, kqueue).

A hint only saves looking: everything that is hinted at is also looked at once a second,
so a notice that is lost, a queue that overflows, a directory that was removed and made
again, or a file system that gives no notices costs a second and nothing else. Watched
are the directories of runs that go on, none of them recursively: watching ten thousand
runs whole would use up the system's watches. The folder of runs itself is no more than
one ``stat`` and is looked at every time.

Where no watch can be set, :attr:`Hints.why_not` says so and everything is looked at
every time. The watching runs on a thread of its own; the rest is safe in any thread.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from watchfiles import Change

__all__ = ["Hints", "polling_wanted"]

_STEP_MS = 50
"""How long the watching thread sleeps between two looks; 50 is 0.08 % of a core."""
_DEBOUNCE_MS = 100
_AT_LEAST_S = 1.0
"""A watch that was set stands for at least so long."""
_NAMES = frozenset(
    {"checkpoint.json", "checkpoint.json.journal", "run.json", ".lock", "current"}
)


def polling_wanted(environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether the user wants no file events (``HEAVETO_POLL=1``)."""
    return environ.get("HEAVETO_POLL", "") not in ("", "0")


class Hints:
    """Which directories the system has told of since they were taken last."""

    def __init__(
        self, *, wanted: bool = True, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Watch nothing yet.

        Args:
            wanted: False: never watch.
            monotonic: Seconds that no clock change moves.
        """
        self.why_not: str | None = None if wanted else "polling"
        """The code of why nothing can be watched: ``polling`` or ``watch_limited``."""
        self._wanted, self._monotonic = wanted, monotonic
        self._watched: frozenset[str] = frozenset()
        self._missing: frozenset[str] = frozenset()
        self._begun_at = -_AT_LEAST_S
        self._touched: set[str] = set()
        self._guard = threading.Lock()
        self._stop: threading.Event | None = None
        self._thread: threading.Thread | None = None

    def watch(self, paths: Collection[str]) -> None:
        """Watch these directories and no others; absent ones are left out.

        A watch is set anew at most once a second; until then a new directory counts
        as told of every time.
        """
        if not self._wanted:
            return
        wanted = frozenset(path for path in paths if os.path.isdir(path))
        self._missing = frozenset(os.path.basename(p) for p in wanted - self._watched)
        now = self._monotonic()
        if wanted == self._watched or now - self._begun_at < _AT_LEAST_S:
            return
        self.close()
        self._begun_at = now
        if wanted:
            self._watched, self._missing = wanted, frozenset()
            self._begin(sorted(wanted))

    def take(self) -> frozenset[str] | None:
        """Return the names of the directories that were told of, and forget them.

        Returns:
            None when nothing can be watched: everything has to be looked at.
        """
        if self.why_not is not None:
            return None
        with self._guard:
            touched, self._touched = self._touched, set()
        return self._missing.union(touched)

    def close(self) -> None:
        """Stop watching; the thread has ended afterwards."""
        stop, thread = self._stop, self._thread
        self._stop = self._thread = None
        self._watched = frozenset()
        if stop is not None and thread is not None:
            stop.set()
            thread.join()

    def _begin(self, paths: list[str]) -> None:
        stop = threading.Event()
        thread = threading.Thread(
            target=self._run, args=(paths, stop), name="heaveto-hints", daemon=True
        )
        self._stop, self._thread = stop, thread
        thread.start()

    def _run(self, paths: list[str], stop: threading.Event) -> None:
        from watchfiles import watch

        try:
            for changes in watch(
                *paths,
                watch_filter=_matters,
                recursive=False,
                step=_STEP_MS,
                debounce=_DEBOUNCE_MS,
                stop_event=stop,
                raise_interrupt=False,
            ):
                names = {os.path.basename(os.path.dirname(path)) for _, path in changes}
                with self._guard:
                    self._touched |= names
        except FileNotFoundError:  # a directory went away before it was watched
            self._watched = frozenset()
        except OSError:
            self._wanted, self.why_not = False, "watch_limited"


def _matters(change: Change, path: str) -> bool:
    """Tell whether a changed file says something about a run.

    Our own filter: the usual ones hide runs under names such as ``.venv``.
    """
    return os.path.basename(path) in _NAMES
