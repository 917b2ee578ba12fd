"""The list of runs: one line for a run, a second with the reason where it needs you.

Pure: summaries in, lines out. Building the entries is cheap for ten thousand runs; a
line is only built while it is in view.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from heaveto.observe.attention import SORT_KEYS as SORTS
from heaveto.observe.attention import Group, is_idle_resume, is_live, rank
from heaveto.text import short_id
from heaveto_tui.effects import plural
from heaveto_tui.lines import DASH, EMPTY, pad
from heaveto_tui.presentation import counts, run_face
from heaveto_tui.widgets.lineview import Entry
from heaveto_tui.wording import list_when, reason_sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from heaveto.observe.snapshot import RunDetail, RunSummary
    from heaveto_tui.lines import Line, Look

__all__ = [
    "SORT_ORDER",
    "Listing",
    "RunRow",
    "Seat",
    "draw_row",
    "list_title",
    "listing",
    "run_key",
    "ticking",
]

SORT_ORDER = ("attention", "started", "name", "state", "done", "home")
"""The orders that the sort key goes through; the first is the one at the start."""

_TITLES = {
    Group.NEEDS: ("NEEDS YOU", "worst first, then oldest"),
    Group.LIVE: ("RUNNING", ""),
    Group.ENDED: ("ENDED", ""),
}


class RunRow(NamedTuple):
    """What one line of the list is drawn from."""

    kind: str
    """``head``, ``reason``, ``title`` or ``blank``."""
    run: RunSummary | None
    text: str = ""
    more: str = ""


class Seat:
    """One run in the list, with what is worked out once for a summary.

    Attributes:
        run: The summary.
        place: Its rank.
        live: Something of it may still go on.
        idle: A resume that ended before it did anything: left out.
    """

    __slots__ = ("_hay", "_keys", "_rows", "idle", "key", "live", "place", "run")

    def __init__(self, run: RunSummary) -> None:
        """Work out what the list needs of a run."""
        self.run = run
        self.key = run_key(run)
        self.place = rank(run)
        self.live = is_live(run)
        self.idle = is_idle_resume(run)
        self._keys: dict[str, tuple[object, ...]] = {}
        self._hay = ""
        self._rows: tuple[Entry[RunRow], ...] = ()

    def holds(self, wanted: str) -> bool:
        """Tell whether a casefolded text stands in what the run is searched by."""
        if not self._hay:
            run = self.run
            parts = (run.name or "", run.run_id, run.session_id, run.state, run.home)
            self._hay = "\n".join(parts).casefold()
        return wanted in self._hay

    def rows(self) -> tuple[Entry[RunRow], ...]:
        """Return its lines: the run, and the reason where it needs somebody."""
        if not self._rows or self._rows[0].payload.run is not self.run:
            head = Entry(self.key, RunRow("head", self.run))
            reason = Entry(self.key, RunRow("reason", self.run))
            self._rows = (head, reason)
        return self._rows if self.place.group is Group.NEEDS else self._rows[:1]

    def rank_at(self, now: float) -> bool:
        """Rank the run as it stands now; tell whether that changed its place."""
        place = rank(replace(self.run, observed_at=now))
        if place == self.place:
            return False
        self.place = place
        self._keys.clear()
        return True

    def order(self, sort: str) -> tuple[object, ...]:
        """Return where it stands in an order."""
        key = self._keys.get(sort)
        if key is None:
            key = self._keys[sort] = SORTS[sort](self.run, self.place)
        return key


class Listing(NamedTuple):
    """The list as it stands."""

    entries: list[Entry[RunRow]]
    needs: int
    live: int
    ended: int
    hidden: int
    shown: int


def run_key(run: RunSummary) -> Hashable:
    """Return what tells a run from every other, in every home."""
    return (run.home, run.run_id, run.session_id)


def listing(seats: Iterable[Seat], *, sort: str, find: str = "") -> Listing:
    """Arrange runs into entries.

    Args:
        seats: Runs; the caller keeps a seat while its summary stays the same object.
        sort: One of :data:`SORT_ORDER`.
        find: Only runs that hold this text.
    """
    every = list(seats)
    known = [seat for seat in every if not seat.idle]
    wanted = find.casefold()
    chosen = [seat for seat in known if not wanted or seat.holds(wanted)]
    chosen.sort(key=lambda seat: seat.order(sort))
    live = sum(seat.live for seat in known)
    return Listing(
        entries=_entries(chosen, grouped=sort == "attention"),
        needs=sum(seat.place.group is Group.NEEDS for seat in known),
        live=live,
        ended=len(known) - live,
        hidden=len(every) - len(known),
        shown=len(chosen),
    )


def _entries(chosen: list[Seat], *, grouped: bool) -> list[Entry[RunRow]]:
    entries: list[Entry[RunRow]] = []
    group: Group | None = None
    for seat in chosen:
        if grouped and seat.place.group is not group:
            group = seat.place.group
            title, more = _TITLES[group]
            entries.append(Entry(None, RunRow("title", None, title, more)))
        entries.extend(seat.rows())
    return entries


class Columns(NamedTuple):
    """Which columns there is room for."""

    word: int = 13
    when: int = 13
    home: int = 3


def draw_row(
    row: RunRow,
    width: int,
    selected: bool,
    *,
    look: Look,
    now: float,
    homes: bool,
    detail_of: Callable[[RunSummary], RunDetail | None],
    heir_of: Callable[[RunSummary], str],
) -> Line:
    """Return one line of the list.

    Args:
        row: What it is drawn from.
        width: Cells.
        selected: The cursor stands on its run.
        look: How text is spelled.
        now: Epoch seconds.
        homes: Whether several homes are open, so that a run's home is told.
        detail_of: The run whole, where it has been read.
        heir_of: How the run that took over is called.
    """
    if row.kind == "title":
        more = ((f"  {row.more}", "muted"),) if row.more else ()
        return ((f" {row.text}", "text+bold"), *more)
    if row.run is None:
        return EMPTY
    if row.kind == "reason":
        sentence = look.plain(reason_sentence(row.run, detail_of(row.run), now))
        return (("      ", "text"), (look.clip(sentence, width - 8), "muted"))
    return _head(
        row.run, width, selected, look=look, now=now, homes=homes, heir_of=heir_of
    )


def _head(
    run: RunSummary,
    width: int,
    selected: bool,
    *,
    look: Look,
    now: float,
    homes: bool,
    heir_of: Callable[[RunSummary], str],
) -> Line:
    face = run_face(run)
    columns = Columns(when=13 if width >= 76 else 0, home=3 if homes else 0)
    name = look.plain(run.name) if run.name else DASH
    if run.superseded_by:
        name = f"by {heir_of(run)}  {name}"
    fixed = 3 + columns.word + 8 + 2 + 6 + columns.when + columns.home + 2
    room = max(4, width - fixed)
    identifier = short_id(run.session_id or run.run_id)
    return (
        ("▌" if selected else " ", "text"),
        (face.glyph, face.role),
        (" ", "text"),
        (pad(face.word, columns.word), face.role),
        (pad(identifier, 8), "text"),
        ("  ", "text"),
        (pad(name, room, mark=look.cut), "text"),
        (pad(counts(run.nodes), 6, right=True), "text"),
        (pad(list_when(run, now), columns.when, right=True), "muted"),
        (_home_mark(run) if columns.home else "", "muted"),
    )


def _home_mark(run: RunSummary) -> str:
    return " hv" if run.source == "heaveto" else " li"


def list_title(found: Listing, *, sort: str, find: str) -> tuple[str, str]:
    """Return the second row of the place: counts left, order and search right."""
    parts = [f"{found.live} live", f"{found.ended} ended"]
    left = f"{plural(found.live + found.ended, 'run')}: {', '.join(parts)}"
    if found.needs:
        left += f", {found.needs} {'needs' if found.needs == 1 else 'need'} you"
    right = []
    if found.hidden:
        noun = "resume" if found.hidden == 1 else "resumes"
        right.append(f"{found.hidden} empty {noun} left out")
    if sort != SORT_ORDER[0]:
        right.append(f"sort: {sort}")
    if find:
        right.append(f"find: {find} ({found.shown})")
    return left, "   ".join(right)


def ticking(entries: Sequence[Entry[RunRow]]) -> bool:
    """Tell whether a row among those in view has a clock that goes."""
    return any(
        entry.payload.kind == "head"
        and entry.payload.run is not None
        and is_live(entry.payload.run)
        for entry in entries
    )
