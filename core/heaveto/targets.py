"""The one target rule: which run a text names, over all open homes (PRODUCT 2).

An exact id first, in the order run, session, invocation, play. Else a literal,
case-exact beginning: of sessions, then invocations, then plays, or of a run id past its
``T``. Whatever fits more than once is refused with the candidates; the newest of
several is never taken (SPEC A-30).

Blocking.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from heaveto.errors import StateDBError, TargetError
from heaveto.runs import run_names
from heaveto.statedb import ReadDB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heaveto.runs import Home

__all__ = ["Target", "check_target", "resolve_target"]

Kind = Literal["run", "session", "invocation", "play"]

_MALFORMED = re.compile(r"[\x00-\x1f\x7f/]|^[-.]|^$")
_RUN_PREFIX = re.compile(r"\d{8}T.", re.ASCII)
_LENGTH = 200
_SHOWN = 10
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
class _Hit:
    """An id that fits, and where."""

    home: Home
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
    """Find the one run that a text names.

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
    failures: list[StateDBError] = []
    for exact in (True, False):
        hits = []
        for home in homes:
            try:
                hits += _hits(home, wanted, exact=exact)
            except StateDBError as error:
                if error.code != "db_missing":
                    failures.append(error)
        if len(hits) > 1:
            raise _ambiguous(hits)
        if hits:
            return _target(hits[0])
    if failures:
        raise failures[0]
    raise TargetError("no run, session, invocation or play fits")


def _hits(home: Home, wanted: str, *, exact: bool) -> list[_Hit]:
    """Return what fits in one home: of the first kind that has any, and of runs."""
    folders = [
        name
        for name in run_names(home)
        if name == wanted or (not exact and name.startswith(wanted))
    ]
    runs = set(folders)
    ids: list[_Hit] = []
    try:
        with ReadDB.open(home.state_db) as database:
            runs.update(database.ids("sessions", "run_id", wanted, exact=exact))
            for kind in ("session", "invocation", "play"):
                table, column = _TABLES[kind]
                found = database.ids(table, column, wanted, exact=exact)
                ids = [_Hit(home, kind, each) for each in found]
                if ids:
                    break
    except StateDBError as error:
        if error.code != "db_missing" and not folders:
            raise
    if exact:
        return [_Hit(home, "run", wanted)] if runs else ids[:1]
    if not _RUN_PREFIX.match(wanted):
        runs = set()
    return ids + [_Hit(home, "run", each) for each in sorted(runs)]


def _ambiguous(hits: Sequence[_Hit]) -> TargetError:
    """Return the refusal of a text that fits more than once."""
    candidates = list(dict.fromkeys(hit.id for hit in hits))
    more = "" if len(hits) <= _SHOWN else ", and more"
    homes = {hit.home.path for hit in hits}
    where = f" in {len(homes)} homes" if len(homes) > 1 else ""
    shown = ", ".join(f"{hit.kind} {hit.id}" for hit in hits[:_SHOWN])
    return TargetError(
        f"more than one fits{where}: {shown}{more}",
        code="target_ambiguous",
        candidates=candidates[:_SHOWN],
    )


def _target(hit: _Hit) -> Target:
    """Find the session and run behind an id."""
    session_id: str | None = hit.id
    run_id: str | None = None
    try:
        with ReadDB.open(hit.home.state_db) as database:
            if hit.kind != "session":
                found = database.session_behind(hit.kind, hit.id)
                if found is None and hit.kind != "run":
                    raise TargetError(
                        f"the {hit.kind} {hit.id} has no session behind it",
                        code="target_no_session",
                    )
                session_id = found
            row = database.session(session_id) if session_id else None
            run_id = row.run_id if row else None
    except StateDBError:
        if hit.kind != "run":
            raise
        session_id = None
    if hit.kind == "run":
        run_id = hit.id
    return Target(
        home=hit.home, kind=hit.kind, id=hit.id, session_id=session_id, run_id=run_id
    )
