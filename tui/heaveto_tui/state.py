"""What the console knows and where the operator is: plain data, no drawing.

:class:`Store` is the one copy of what the feed has read; the app changes it, on its own
thread, and everything else reads it. A summary that is the same object as before keeps
its rank, so that a list of ten thousand costs what changed in it.
"""

from __future__ import annotations

import os
import shlex
import time
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from heaveto.model import RunState
from heaveto.observe.attention import Group
from heaveto.text import short_id
from heaveto_tui.actions import keys_of
from heaveto_tui.widgets.run_table import SORT_ORDER, Seat, run_key

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Hashable,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from heaveto.observe.snapshot import ControlView, HomeView, RunDetail, RunSummary
    from heaveto_tui.actions import KeySet
    from heaveto_tui.messages import OperationText

__all__ = ["Draft", "Settings", "Store", "home_option"]

_HELD = frozenset({RunState.PAUSED, RunState.PAUSING})
_DETAILS = 48
"""Runs kept whole; a detail is read again when it is asked for."""
_TEXTS = 16
"""Operation texts kept, each at most some hundred kilobytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the console was started.

    Attributes:
        read_only: Nothing can be changed from here.
        motion: Clocks of running rows go.
        mouse: The mouse works.
        keyset: Which keys are added to the default ones.
        keymap: Single keys by the ids of their actions.
        demo: The runs of this home belong to a demo and end with it.
        now: Epoch seconds.
        monotonic: Seconds that no clock change moves.
        user_home: What ``~`` stands for.
    """

    read_only: bool = False
    motion: bool = True
    mouse: bool = True
    keyset: KeySet = "default"
    keymap: Mapping[str, str] = field(default_factory=dict)
    demo: bool = False
    now: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    user_home: str = field(default_factory=lambda: os.path.expanduser("~"))

    def keys(self, name: str) -> tuple[str, ...]:
        """Return the keys of an action, as they are set here."""
        return keys_of(name, self.keyset, self.keymap)


@dataclass(slots=True)
class Draft:
    """A message that has been begun.

    Attributes:
        text: As typed so far.
        caret: Row and column.
    """

    text: str = ""
    caret: tuple[int, int] = (0, 0)


class Store:
    """Everything that has been read, and what has been chosen from it."""

    def __init__(self, homes: Sequence[str], usual: Sequence[str] = ()) -> None:
        """Start empty.

        Args:
            homes: The homes that are open.
            usual: Those that a command opens without being told to.
        """
        self.homes = tuple(homes)
        self.usual = frozenset(usual)
        self.sources: tuple[HomeView, ...] = ()
        self.listed = False
        """Whether the runs were read at least once."""
        self.sort = SORT_ORDER[0]
        self.find = ""
        self.current: Hashable | None = None
        self.drafts: dict[Hashable, Draft] = {}
        self.history: list[str] = []
        self.version = 0
        """Another number whenever a run is shown otherwise."""
        self._runs: dict[Hashable, Seat] = {}
        self._by_run_id: dict[tuple[str, str], RunSummary] = {}
        self._details: OrderedDict[Hashable, RunDetail] = OrderedDict()
        self._texts: OrderedDict[tuple[str, str], OperationText] = OrderedDict()

    # --- runs

    def set_runs(
        self, runs: Sequence[RunSummary], sources: tuple[HomeView, ...]
    ) -> bool:
        """Take a new list; tell whether anything in it differs from the old one."""
        before = self._runs
        after: dict[Hashable, Seat] = {}
        changed = len(runs) != len(before)
        for run in runs:
            key = run_key(run)
            known = before.get(key)
            if known is not None and (known.run is run or _looks_alike(known.run, run)):
                known.run = run
                after[key] = known
                continue
            changed = True
            after[key] = Seat(run)
        self._runs = after
        if changed:
            self.version += 1
            self._by_run_id = {
                (seat.run.home, seat.run.run_id): seat.run for seat in after.values()
            }
        changed = (
            changed or not self.listed or _problems(sources) != _problems(self.sources)
        )
        self.sources = sources
        self.listed = True
        return changed

    def seats(self) -> Iterable[Seat]:
        """Return every run with what the list needs of it."""
        return self._runs.values()

    def runs(self) -> Iterator[RunSummary]:
        """Yield every run."""
        return (seat.run for seat in self._runs.values())

    def run(self, key: Hashable | None) -> RunSummary | None:
        """Return a run by its key."""
        found = None if key is None else self._runs.get(key)
        return None if found is None else found.run

    @property
    def current_run(self) -> RunSummary | None:
        """The run that places 2 to 6 are about."""
        return self.run(self.current)

    @property
    def needs(self) -> int:
        """How many runs need somebody."""
        return sum(
            seat.place.group is Group.NEEDS and not seat.idle
            for seat in self._runs.values()
        )

    @property
    def going_on(self) -> bool:
        """Tell whether some run is live."""
        return any(seat.live for seat in self._runs.values())

    def grow_older(self, now: float) -> bool:
        """Rank held runs anew: a pause that lasts needs somebody.

        Returns:
            Whether any of them stands elsewhere than before.
        """
        changed = False
        for seat in self._runs.values():
            if seat.run.state in _HELD and seat.rank_at(now):
                changed = True
        self.version += changed
        return changed

    def checked_at(self, run: RunSummary) -> float:
        """Return when the state of a run was last known to be what is shown."""
        read = (each.read_at for each in self.sources if each.path == run.home)
        return max(run.observed_at, next(read, None) or 0.0)

    def successor(self, run: RunSummary | None) -> RunSummary | None:
        """Return the run that took over from another one."""
        if run is None or run.superseded_by is None:
            return None
        return self._by_run_id.get((run.home, run.superseded_by))

    def heir(self, run: RunSummary) -> str:
        """Return how the run that took over is called: by its session, if known."""
        later = self.successor(run)
        return short_id(
            later.session_id if later is not None else (run.superseded_by or "?")
        )

    # --- details and texts

    def set_detail(self, detail: RunDetail) -> bool:
        """Keep a run whole; tell whether it is drawn otherwise than before."""
        key = run_key(detail.run)
        before = self._details.get(key)
        self._details[key] = detail
        self._details.move_to_end(key)
        while len(self._details) > _DETAILS:
            self._details.popitem(last=False)
        return before is None or not _details_alike(before, detail)

    def detail(self, run: RunSummary | None) -> RunDetail | None:
        """Return a run whole, as it was last read."""
        return None if run is None else self._details.get(run_key(run))

    def details(self) -> tuple[RunDetail, ...]:
        """Return every run that is kept whole, the one read last first."""
        return tuple(reversed(self._details.values()))

    def set_text(self, text: OperationText) -> None:
        """Keep what an operation was told and wrote."""
        key = (text.run_id, text.operation_id)
        self._texts[key] = text
        self._texts.move_to_end(key)
        while len(self._texts) > _TEXTS:
            self._texts.popitem(last=False)

    def text(self, run_id: str, operation_id: str) -> OperationText | None:
        """Return what an operation was told and wrote, as it was last read."""
        return self._texts.get((run_id, operation_id))

    # --- freshness

    def data_age(self, now: float, home: str | None = None) -> float | None:
        """Return seconds since a home answered, or the slowest of all of them.

        None before the first answer.
        """
        ages = [
            max(0.0, now - source.read_at)
            for source in self.sources
            if source.read_at is not None and home in {None, source.path}
        ]
        return max(ages, default=None)

    def draft(self, key: Hashable) -> Draft:
        """Return the draft of a run; an empty one begins it."""
        return self.drafts.setdefault(key, Draft())


def _looks_alike(one: RunSummary, other: RunSummary) -> bool:
    """Tell whether two summaries of a run are drawn alike, but for the ages in them."""
    return one == replace(
        other,
        observed_at=one.observed_at,
        last_sign_at=one.last_sign_at,
    )


def _details_alike(one: RunDetail, other: RunDetail) -> bool:
    """Tell whether two readings of a run are drawn alike, but for the ages in them."""
    return (
        _looks_alike(one.run, other.run)
        and one.operations == other.operations
        and one.links == other.links
        and _ageless(one.controls) == _ageless(other.controls)
    )


def _ageless(controls: tuple[ControlView, ...]) -> list[ControlView]:
    return [replace(each, age_s=0.0) for each in controls]


def _problems(sources: tuple[HomeView, ...]) -> list[object]:
    return [source.problem for source in sources]


def home_option(store: Store, run: RunSummary) -> tuple[str, ...]:
    """Return the option that names a run's home, where a command needs it."""
    return () if run.home in store.usual else ("--home", shlex.quote(run.home))
