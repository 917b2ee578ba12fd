"""The sender's side: one way to steer for the command line and the console.

Everything a sender can know is checked before a row is written, and the conditions that
can change meanwhile are checked again inside the INSERT (SPEC A-31..A-36). A refusal
leaves no row. Success means *queued*: nobody waits for the effect (A-38).

The functions block, at most :data:`heaveto.statedb.BOUND` seconds in all; an event loop
uses the ``_async`` ones, which run them in a thread.
"""

from __future__ import annotations

import contextlib
import getpass
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from uuid import uuid4

from heaveto.controls.words import MESSAGE_LIMIT, check_text, resolved
from heaveto.errors import ControlError, StateDBError
from heaveto.files import check_owner
from heaveto.liveness import Liveness, judge
from heaveto.model import TERMINAL_RUN, Verb
from heaveto.statedb import (
    BOUND,
    ControlRow,
    ReadDB,
    Schema,
    busy_timeout,
    writing,
)
from heaveto.statedb.opening import identity, mapped
from heaveto.statedb.rows import json_text
from heaveto.statedb.statements import FINALIZE, admission
from heaveto.statedb.writing import check_schema
from heaveto.text import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from heaveto.runs import Home
    from heaveto.statedb import SessionRow

__all__ = [
    "MESSAGE_LIMIT",
    "Receipt",
    "acknowledgement",
    "enqueue",
    "enqueue_async",
    "resolve",
    "resolve_async",
]

_STEERABLE = ("flow", "play")
_LIONAGI_VERSION = 4
"""The newest version of lionagi's database whose rules of admission are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A control that was queued.

    Attributes:
        control: Its row as written.
        run_id: The run of its session, where there is one.
        kind: The kind of its session: flow, play, agent.
        poller: The state its consumer has published: pending or active.
        warnings: Sentences for the sender; empty as a rule.
    """

    control: ControlRow
    run_id: str | None
    kind: str | None
    poller: str | None
    warnings: tuple[str, ...] = ()


def acknowledgement(receipt: Receipt) -> str:
    """Return the sentence for a sender: queued, not more (SPEC A-38, A-39)."""
    control = receipt.control
    words = f"queued {control.verb} {control.id[:8]} for session"
    head = f"{words} {plain(control.session_id[:8])}: "
    if receipt.kind == "agent":
        return head + "delivered as a continuation turn when the current turn ends"
    when = "taken within about 2 s"
    if receipt.poller == "pending":
        when += ", once the flow's execution starts"
    if control.verb == Verb.MESSAGE:
        return f"{head}delivered before the next operation that starts; {when}"
    return f"{head}{when}, effective at the next operation boundary"


def enqueue(
    home: Home,
    session_id: str,
    verb: Verb | str,
    *,
    text: str | None = None,
    by: str | None = None,
    clock: Callable[[], float] = time.time,
    new_id: Callable[[], str] = lambda: uuid4().hex,
    alive: Callable[[Home, SessionRow], Liveness] | None = None,
) -> Receipt:
    """Queue a control for a session.

    Args:
        home: Where the session is.
        session_id: Its full id, as :func:`heaveto.targets.resolve_target` gives it.
        verb: What to do.
        text: The message, for verb message.
        by: Who sends it; None is the account of this process.
        clock: Epoch seconds.
        new_id: 32 lower-case hexadecimal digits.
        alive: Tells whether the run's process is there.

    Raises:
        ControlError: Refused; no row was written.
        StateDBError: ``db_missing db_busy db_newer …``; no row was written, unless
            ``db_replaced`` says that it went into a file nobody reads.
        ForeignOwnerError: The database or its folder is not ours alone.
    """
    wanted = Verb(verb)
    payload = None
    if wanted is Verb.MESSAGE:
        payload = {"text": check_text(text or "")}
    deadline = time.monotonic() + BOUND
    path = home.state_db
    before = identity(path)
    check_owner(home.path)
    check_owner(path)
    session, schema, sender = _session(home, session_id)
    _check_admission(session, wanted)
    if wanted is Verb.STOP and home.source == "lionagi":
        raise ControlError(
            f"lionagi flows do not know stop; li kill {plain(session_id[:8])} ends the"
            " process",
            code="unsupported_kind",
        )
    warnings = _check_alive(
        (alive or judge_session)(home, session), _way_on(home, session)
    )
    if home.source == "lionagi" and (schema.version or 0) > _LIONAGI_VERSION:
        warnings += (
            f"the home is of a newer lionagi (database version {schema.version}, known"
            f" up to {_LIONAGI_VERSION}): it may not take the control",
        )
    row = ControlRow(
        id=new_id(),
        session_id=session_id,
        verb=wanted.value,
        payload=payload,
        created_at=clock(),
        by=(account() if by is None else by) if sender else None,
        host=socket.gethostname() if sender else None,
    )
    _insert(home, row, sender=sender, deadline=deadline)
    if identity(path) != before:
        raise StateDBError(
            f"another file is at {path}; the control went into the old one",
            code="db_replaced",
        )
    return Receipt(
        control=row,
        run_id=session.run_id,
        kind=session.invocation_kind,
        poller=session.poller,
        warnings=warnings,
    )


async def enqueue_async(
    home: Home,
    session_id: str,
    verb: Verb | str,
    *,
    text: str | None = None,
    by: str | None = None,
) -> Receipt:
    """Queue a control from an event loop; see :func:`enqueue`."""
    import asyncio  # short verbs do not pay for it

    return await asyncio.to_thread(enqueue, home, session_id, verb, text=text, by=by)


def judge_session(home: Home, session: SessionRow) -> Liveness:
    """Tell whether the process of a session's run is there."""
    lock = None
    if home.source == "heaveto" and session.run_id is not None:
        lock = home.run(session.run_id).lock
    return judge(session.node_metadata, lock=lock, ended=session.status in TERMINAL_RUN)


def account() -> str:
    """Return the account of this process; "" when it has none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


@contextlib.contextmanager
def _reading(home: Home) -> Iterator[ReadDB]:
    """Read a database that may be written afterwards; a newer one may not."""
    with ReadDB.open(home.state_db) as database:
        if home.source == "heaveto":
            check_schema(database.schema, home.state_db)
        yield database


def _session(home: Home, session_id: str) -> tuple[SessionRow, Schema, bool]:
    """Read the session, the schema, and whether controls record their sender."""
    with _reading(home) as database:
        session = database.session(session_id)
        if session is None:
            raise ControlError("no such session", code="unknown_session")
        sender = database.has_column("session_controls", "by")
        return session, database.schema, sender


def _check_admission(session: SessionRow, verb: Verb) -> None:
    """Say why a session takes no such control (SPEC A-31..A-36)."""
    kind = session.invocation_kind
    if session.status != "running":
        raise ControlError(
            f"the run is not running: it is {plain(session.status)}{_instead(session)}",
            code="not_running",
        )
    if kind == "agent":
        _check_agent(session, verb)
        return
    if kind not in _STEERABLE:
        raise ControlError(
            f"a run of kind {plain(kind or 'unknown')} has no consumer for {verb};"
            " flows and plays have one, and agents take messages",
            code="unsupported_kind",
        )
    if session.poller not in ("pending", "active"):
        stopped = session.poller == "stopped"
        name = plain(session.id[:8])
        why = (
            f"has stopped; the run is about to end: heaveto wait {name}"
            if stopped
            else f"was never announced; heaveto show {name} tells how it stands"
        )
        raise ControlError(
            f"the consumer of this run's controls {why}",
            code="poller_stopped" if stopped else "no_consumer",
        )


_SHORT = frozenset({"failed", "timed_out", "aborted", "cancelled"})
"""Ends that leave something to do."""


def _instead(session: SessionRow) -> str:
    """Return what to do about a run that has ended instead of steering it."""
    if session.status not in _SHORT or session.invocation_kind not in _STEERABLE:
        return ""
    return f"; heaveto resume {plain(session.id[:8])} --dry-run tells how to go on"


def _check_agent(session: SessionRow, verb: Verb) -> None:
    """Say why an agent session takes no such control (SPEC A-33, A-34)."""
    if verb is not Verb.MESSAGE:
        raise ControlError(
            f"an agent session has no boundary at which it could {verb}; a message"
            " reaches it when its turn ends",
            code="unsupported_kind",
        )
    if session.run_id is None or not session.node_metadata.get("drains_controls"):
        raise ControlError(
            "this agent session has no runner that takes messages", code="no_consumer"
        )


def _way_on(home: Home, session: SessionRow) -> str:
    """Return what to do about a dead run instead of steering it."""
    if home.source != "lionagi" or session.run_id is None:
        return ""
    return f"; li o flow --resume {plain(session.run_id)} continues what was saved"


def _check_alive(found: Liveness, way_on: str) -> tuple[str, ...]:
    """Refuse a dead run; warn when it cannot be told (PRODUCT 6.3)."""
    if found.alive is False:
        raise ControlError(f"the run is dead: {found.why}{way_on}", code="dead_run")
    if found.alive is None:
        return (f"it cannot be told whether the run is alive: {found.why}",)
    return ()


def _insert(home: Home, row: ControlRow, *, sender: bool, deadline: float) -> None:
    """Write the row if the session still takes it; else say why not."""
    foreign = home.source == "lionagi"
    given: dict[str, object] = {
        "id": row.id,
        "session": row.session_id,
        "verb": row.verb,
        # lionagi stores the JSON text null where heaveto stores NULL.
        "payload": json_text(row.payload)
        if row.payload is not None or foreign
        else None,
        "now": row.created_at,
    }
    if sender:
        given |= {"by": row.by, "host": row.host}
    if _change(home, admission(sender=sender), given, deadline) != 1:
        session, *_ = _session(home, row.session_id)
        _check_admission(session, Verb(row.verb))
        raise ControlError("the run did not take the control", code="not_running")


def _change(
    home: Home, sql: str, given: dict[str, object] | tuple[object, ...], deadline: float
) -> int:
    """Make one change, and try again while the database is busy and time is left.

    Returns:
        How many rows changed.
    """
    path = home.state_db
    own = home.source == "heaveto"
    while True:
        left = deadline - time.monotonic()
        try:
            with (
                writing(path, busy=max(0.0, min(busy_timeout(), left)), own=own) as db,
                mapped(path),
            ):
                return db.execute(sql, given).rowcount
        except StateDBError as error:
            if error.code != "db_busy" or time.monotonic() > deadline - 0.1:
                raise
            time.sleep(0.05)


def resolve(
    home: Home,
    control_id: str,
    outcome: Literal["applied", "abandoned"],
    *,
    by: str | None = None,
    clock: Callable[[], float] = time.time,
) -> ControlRow:
    """Close by hand a control that was claimed and never reported (SPEC B-46..B-50).

    Nothing is delivered by it, whatever the outcome says.

    Args:
        home: Where the control is.
        control_id: Its full id.
        outcome: What the person found out.
        by: Who says so; None is the account of this process.
        clock: Epoch seconds.

    Raises:
        ControlError: ``not_claimed``: unknown, not claimed, finished, or changed
            meanwhile; which one is not told.
        StateDBError: As :func:`enqueue`.
        ForeignOwnerError: The database is not ours alone.
    """
    deadline = time.monotonic() + BOUND
    neutral = ControlError("no claimed control has this id", code="not_claimed")
    path = home.state_db
    before = identity(path)
    check_owner(home.path)
    check_owner(path)
    with _reading(home) as database:
        row = database.control(control_id)
    if row is None or row.claim is None or row.applied_at is not None:
        raise neutral
    result = resolved(outcome, account() if by is None else by, row.claim)
    now = clock()
    if _change(home, FINALIZE, (result, now, control_id, row.claim), deadline) != 1:
        raise neutral
    if identity(path) != before:
        raise StateDBError(f"another file is at {path}", code="db_replaced")
    with ReadDB.open(path) as database:
        return database.control(control_id) or row


async def resolve_async(
    home: Home,
    control_id: str,
    outcome: Literal["applied", "abandoned"],
    *,
    by: str | None = None,
) -> ControlRow:
    """Close a claim from an event loop; see :func:`resolve`."""
    import asyncio

    return await asyncio.to_thread(resolve, home, control_id, outcome, by=by)
