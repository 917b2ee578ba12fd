"""Which runs need somebody, how much, and in what order all of them stand.

A run takes the highest weight of what is wrong with it; the heaviest come first, and of
equals the one that has waited longest. What nobody has to look at weighs nothing. Pure,
and cheap enough for ten thousand runs: a rank needs the summary alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from heaveto.model import TERMINAL_RUN, OperationStatus, RunState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from heaveto.observe.snapshot import RunSummary

__all__ = [
    "SORT_KEYS",
    "Group",
    "Rank",
    "arrange",
    "is_idle_resume",
    "is_live",
    "matches",
    "rank",
]

NEEDS_FROM = 20
"""From this weight on a run stands among those that need somebody."""
PAUSED_AFTER_S = 120.0
"""A pause that holds for longer needs somebody."""

_STATES = {
    RunState.DEAD: 90,
    RunState.FAILED: 80,
    RunState.TIMED_OUT: 75,
    RunState.STALLED: 60,
    RunState.UNKNOWN: 55,
    RunState.COMPLETED_EMPTY: 45,
    RunState.ABORTED: 30,
    RunState.CANCELLED: 20,
}
_WARNINGS = {
    "persist_failed": 86,
    "checkpoint_refused": 85,
    "survivors": 85,
    "not_reported": 70,
    "wedged_claim": 70,
    "steer_lost": 65,
    "run_dir_missing": 55,
    "input_failed": 50,
    "stale_result": 50,
    "never_landed": 45,
    "checkpoint_prefix": 30,
    "verdict_differs": 30,
    "li_refuses": 80,
    "persistence_off": 55,
    "terminal_write_lost": 70,
    "runs_twice": 75,
    "spawn_ignored": 25,
}


class Group(IntEnum):
    """The three parts of the list, in their order."""

    NEEDS = 0
    LIVE = 1
    ENDED = 2


@dataclass(frozen=True, slots=True)
class Rank:
    """Where a run stands.

    Attributes:
        group: The part of the list.
        weight: How much it needs somebody; 0 is not at all.
        since: When that began, as well as it is known; epoch seconds.
    """

    group: Group
    weight: int
    since: float


def is_live(run: RunSummary) -> bool:
    """Tell whether something of a run may still go on."""
    return run.status not in TERMINAL_RUN and run.alive is not False


def rank(run: RunSummary) -> Rank:
    """Return where a run stands among the others.

    A run that another one took over needs nobody any more.
    """
    live = is_live(run)
    weight = 0 if run.superseded_by is not None and not live else _weight(run)
    since = run.ended_at or run.last_sign_at or run.started_at or run.observed_at
    if weight >= NEEDS_FROM:
        return Rank(Group.NEEDS, weight, since)
    return Rank(Group.LIVE if live else Group.ENDED, weight, since)


def _weight(run: RunSummary) -> int:
    """Return the highest weight of anything that is wrong with a run."""
    weight = _STATES.get(run.state, 0)
    if run.state == RunState.UNKNOWN and any(
        warning.code == "mirrored" for warning in run.warnings
    ):
        weight = 0  # it is not run from here, and nobody can do anything about it
    for warning in run.warnings:
        weight = max(weight, _WARNINGS.get(warning.code, 0))
    if run.nodes.get(OperationStatus.FAILED) and run.state != RunState.COMPLETED:
        weight = max(weight, 80)
    if run.state in (RunState.PAUSED, RunState.PAUSING) and _long_held(run):
        weight = max(weight, 40)
    return weight


def _long_held(run: RunSummary) -> bool:
    held = run.last_sign_at
    return held is not None and run.observed_at - held >= PAUSED_AFTER_S


SortKey = tuple[object, ...]
SORT_KEYS: dict[str, Callable[[RunSummary, Rank], SortKey]] = {
    "attention": lambda run, place: (
        place.group,
        -place.weight if place.group == Group.NEEDS else 0,
        place.since if place.group == Group.NEEDS else -place.since,
        run.run_id,
    ),
    "started": lambda run, place: (-(run.started_at or 0.0), run.run_id),
    "ended": lambda run, place: (-(run.ended_at or 0.0), run.run_id),
    "name": lambda run, place: ((run.name or "").casefold(), run.run_id),
    "state": lambda run, place: (run.state.value, -place.since, run.run_id),
    "done": lambda run, place: (-run.nodes.get("completed", 0), run.run_id),
    "home": lambda run, place: (run.home, place.group, -place.since, run.run_id),
}
"""Every order the list can stand in."""


def arrange(
    runs: Iterable[RunSummary],
    *,
    sort: str = "attention",
    find: str | None = None,
    attention: bool = False,
    everything: bool = False,
) -> tuple[RunSummary, ...]:
    """Return the runs asked for, in the order asked for.

    Args:
        runs: Summaries.
        sort: A key of :data:`SORT_KEYS`.
        find: Only runs whose name, ids or state hold this text, without regard to case.
        attention: Only runs that need somebody.
        everything: Also resumes that ended before they did anything.
    """
    key = SORT_KEYS[sort]
    chosen = []
    for run in runs:
        if not everything and is_idle_resume(run):
            continue
        if find and not matches(run, find):
            continue
        place = rank(run)
        if not attention or place.group == Group.NEEDS:
            chosen.append((key(run, place), run))
    chosen.sort(key=lambda pair: pair[0])
    return tuple(run for _, run in chosen)


def is_idle_resume(run: RunSummary) -> bool:
    """Tell whether a run is a resume that ended before it did anything."""
    return (
        run.resumed_from is not None and not run.nodes.get("total") and not is_live(run)
    )


def matches(run: RunSummary, text: str) -> bool:
    """Tell whether a run's name, ids, state or home hold a text."""
    wanted = text.casefold()
    parts = (run.name or "", run.run_id, run.session_id, run.state.value, run.home)
    return any(wanted in part.casefold() for part in parts)
