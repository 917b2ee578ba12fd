"""The one target rule: which run a text names, over all open homes (PRODUCT 2).

An exact id first, in the order run, session, invocation, play. Else a literal,
case-exact beginning: of sessions, then invocations, then plays, or of a run id past its
``T``. Whatever fits more than once is refused with the candidates; the newest of
several is never taken (SPEC A-30).

Blocking.
"""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from heaveto.errors import StateDBError, TargetError
from heaveto.runs import run_names
from heaveto.statedb import BOUND, ReadDB, busy_timeout
from heaveto.text import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from heaveto.runs import Home

__all__ = ["Target", "check_target", "resolve_target"]

Kind = Literal["run", "session", "invocation", "play"]

_MALFORMED = re.compile(r"[\x00-\x1f\x7f/\ud800-\udfff]|^[-.]|^$")
_RUN_PREFIX = re.compile(r"\d{8}T.", re.ASCII)
_LENGTH = 200
_SHOWN = 10
_ID_KINDS: tuple[Kind, ...] = ("session", "invocation", "play")
_TABLES: dict[Kind, tuple[str, str]] = {
    "run": ("sessions", "run_id"),
    "session": ("sessions", "id"),
    "invocation": ("invocations", "id"),
    "play": ("plays", "id"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a text names.

    ``session_id`` is None for a run directory without a row, ``run_id`` None for a
    session without a run.
    """

    home: Home
    kind: Kind
    id: str
    """The id that fits, whole."""
    session_id: str | None
    run_id: str | None


@dataclass(frozen=True, slots=True)
class _Place:
    """A home and its database, where that can be read."""

    home: Home
    database: ReadDB | None

    def ids(self, kind: Kind, wanted: str, exact: bool) -> list[str]:
        """Return the ids of a kind that fit."""
        if self.database is None:
            return []
        table, column = _TABLES[kind]
        return self.database.ids(table, column, wanted, exact=exact)


@dataclass(frozen=True, slots=True)
class _Hit:
    """An id that fits, and where."""

    place: _Place
    kind: Kind
    id: str


def check_target(text: str) -> str:
    """Return the text stripped.

    Raises:
        TargetError: ``target_malformed``: it can name nothing.
    """
    stripped = text.strip()
    if _MALFORMED.search(stripped) or len(stripped) > _LENGTH:
        raise TargetError(
            "this names no run: an id or its first characters are expected",
            code="target_malformed",
        )
    return stripped


def resolve_target(homes: Sequence[Home], text: str) -> Target:
    """Find the one run that a text names, within the bound of a steering command.

    Args:
        homes: The open homes.
        text: What a person wrote.

    Raises:
        TargetError: ``target_malformed``, ``target_unknown``, ``target_ambiguous``
            (with full ids as candidates), ``target_no_session`` (an invocation or play
            without one).
        StateDBError: Nothing was found, and a database could not be read.
    """
    wanted = check_target(text)
    with contextlib.ExitStack() as stack:
        places, failures = _open(homes, stack)
        for exact in (True, False):
            hits = [hit for place in places for hit in _hits(place, wanted, exact)]
            if len(hits) > 1:
                raise _ambiguous(hits)
            if hits:
                return _target(hits[0])
    if failures:
        raise failures[0]
    raise TargetError("no run, session, invocation or play fits")


def _open(
    homes: Sequence[Home], stack: contextlib.ExitStack
) -> tuple[list[_Place], list[StateDBError]]:
    """Open each home's database; one that cannot be read leaves its run folders."""
    deadline = time.monotonic() + BOUND
    places, failures = [], []
    for home in homes:
        database = None
        left = max(0.0, min(busy_timeout(), deadline - time.monotonic()))
        try:
            database = stack.enter_context(ReadDB.open(home.state_db, busy=left))
        except StateDBError as error:
            if error.code not in ("db_missing", "db_elsewhere"):
                failures.append(error)
        places.append(_Place(home, database))
    return places, failures


def _hits(place: _Place, wanted: str, exact: bool) -> list[_Hit]:
    """Return what fits in one home: of the first kind that has any, and of runs."""
    runs = set()
    if exact or _RUN_PREFIX.match(wanted):
        fits = wanted.__eq__ if exact else _beginning(wanted)
        runs = {name for name in run_names(place.home) if fits(name)}
        runs.update(place.ids("run", wanted, exact))
    found = [_Hit(place, "run", each) for each in sorted(runs)]
    if exact and found:
        return found
    for kind in _ID_KINDS:
        if ids := place.ids(kind, wanted, exact):
            return [_Hit(place, kind, each) for each in ids] + found
    return found


def _beginning(wanted: str) -> Callable[[str], bool]:
    """Return a test for names that begin so."""
    return lambda name: name.startswith(wanted)


def _ambiguous(hits: Sequence[_Hit]) -> TargetError:
    """Return the refusal of a text that fits more than once."""
    candidates = list(dict.fromkeys(hit.id for hit in hits))
    more = "" if len(hits) <= _SHOWN else ", and more"
    homes = {hit.place.home.path for hit in hits}
    apart = len(homes) > 1
    shown = ", ".join(
        f"{hit.kind} {plain(hit.id)}"
        + (f" in {plain(str(hit.place.home.path))}" if apart else "")
        for hit in hits[:_SHOWN]
    )
    where = f" in {len(homes)} homes" if apart else ""
    advice = "; --home says which one is meant" if apart else ""
    return TargetError(
        f"more than one fits{where}: {shown}{more}{advice}",
        code="target_ambiguous",
        candidates=candidates[:_SHOWN],
    )


def _target(hit: _Hit) -> Target:
    """Find the session and run behind an id."""
    database = hit.place.database
    session_id = hit.id if hit.kind == "session" else None
    run_id = hit.id if hit.kind == "run" else None
    if database is not None:
        if hit.kind != "session":
            session_id = database.session_behind(hit.kind, hit.id)
        row = database.session(session_id) if session_id else None
        if row is not None and run_id is None:
            run_id = row.run_id
    if session_id is None and hit.kind != "run":
        raise TargetError(
            f"the {hit.kind} {plain(hit.id)} has no session behind it",
            code="target_no_session",
        )
    return Target(
        home=hit.place.home,
        kind=hit.kind,
        id=hit.id,
        session_id=session_id,
        run_id=run_id,
    )
