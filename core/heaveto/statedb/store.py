"""The runner's long-lived connection to its state database (aiosqlite).

Every change is one short transaction that begins IMMEDIATE, so that it waits for the
lock at its start and is never refused half-way. It travels to the connection's thread
as one piece of work: a caller that is cancelled leaves no transaction open, and an
event loop that is blocked holds no lock. A change whose caller was cancelled may have
been made, as after any answer that got lost.

For one event loop. Close it: its thread would keep the process alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

import aiosqlite

from heaveto.errors import StateDBError
from heaveto.statedb.opening import HERE, busy_timeout, identity, mapped, uri
from heaveto.statedb.rows import control_row, json_text, session_row
from heaveto.statedb.statements import (
    CLAIM,
    CONTROL_BY_ID,
    CREATE_SESSION,
    DELETE_SESSION,
    EMIT_SIGNAL,
    FINALIZE,
    LOG_CONTROLS,
    LOG_LENGTH,
    NOTE_CREATION,
    NOTE_TRANSITION,
    PENDING,
    SESSION_BY_ID,
    SET_PHASE,
    SET_STATUS,
    SWEEP,
    merge,
    status_parameters,
)
from heaveto.statedb.writing import prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from pathlib import Path

    from heaveto.files import Identity
    from heaveto.model import RunStatus, Signal
    from heaveto.statedb.rows import ControlRow, SessionRow

__all__ = ["StateDB"]


@dataclass(slots=True)
class _Done:
    """What a statement did."""

    count: int
    rows: list[tuple[Any, ...]]


class _Transaction(str):
    """Statements that run as one on the connection's thread; they are its text.

    aiosqlite hands text to the connection untouched, and there is where this one is
    known. ``done`` is filled on that thread before the caller goes on.
    """

    __slots__ = ("done", "statements")

    statements: Sequence[tuple[str, Any]]
    done: list[_Done]

    @classmethod
    def of(cls, statements: Sequence[tuple[str, Any]]) -> _Transaction:
        """Make one of statements with their parameters; a list is for many runs."""
        self = cls(";".join(sql for sql, _ in statements))
        self.statements = statements
        self.done = []
        return self


class _Connection(sqlite3.Connection):
    """A connection that runs a :class:`_Transaction` whole."""

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        """Run one statement, or all of a transaction."""
        if not isinstance(sql, _Transaction):
            return super().execute(sql, parameters)
        cursor = super().execute("BEGIN IMMEDIATE")
        try:
            for statement, given in sql.statements:
                if isinstance(given, list):
                    cursor.executemany(statement, given)
                else:
                    cursor.execute(statement, given)
                rows = cursor.fetchall() if cursor.description else []
                sql.done.append(_Done(cursor.rowcount, rows))
            return cursor.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                cursor.execute("ROLLBACK")
            raise


class StateDB:
    """An own state database, open for writing; see the module.

    Attributes:
        path: The database file.
    """

    def __init__(
        self, path: Path, *, timeout: float, clock: Callable[[], float]
    ) -> None:
        """Use :meth:`open`."""
        self.path = path
        self._timeout = timeout
        self._clock = clock
        self._connection: aiosqlite.Connection | None = None
        self._file: Identity | None = None

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        create: bool = True,
        busy: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> StateDB:
        """Open the database of an own home, and make or migrate it first.

        Args:
            path: The file; its folder exists.
            create: False refuses an absent file.
            busy: Seconds to wait for a lock; None asks the environment.
            clock: Epoch seconds.

        Raises:
            StateDBError: ``db_missing db_newer db_busy db_readonly db_full …``; a
                newer or foreign file is left as it is, byte for byte.
        """
        waits = busy_timeout() if busy is None else busy
        self = cls(path, timeout=waits, clock=clock)
        await asyncio.to_thread(prepare, path, create=create, busy=waits)
        await _to_the_end(self._connect(), then=self._disconnect)
        return self

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()

    async def _connect(self) -> None:
        """Open the connection; runs to its end even when the caller is cancelled."""
        self._file = await asyncio.to_thread(identity, self.path)
        # A reader of this process may be copying the file: that takes a moment.
        await asyncio.to_thread(HERE.enter, self._file)
        try:
            with mapped(self.path):
                self._connection = await aiosqlite.connect(
                    uri(self.path, "mode=rw"),
                    uri=True,
                    timeout=self._timeout,
                    isolation_level=None,
                    factory=_Connection,
                )
                for rule in (
                    "trusted_schema = OFF",
                    "foreign_keys = ON",
                    "synchronous = NORMAL",
                    "journal_mode = WAL",
                ):
                    await self._connection.execute_fetchall(f"PRAGMA {rule}")
        except BaseException:
            await self._disconnect()
            raise

    async def close(self) -> None:
        """Let what runs end, then close; again is harmless.

        A caller that is cancelled meanwhile is told so when it is closed: the thread
        of a connection that was left open would keep the process alive.
        """
        await _to_the_end(self._disconnect())

    async def _disconnect(self) -> None:
        """Close the connection and forget it."""
        connection, self._connection = self._connection, None
        file, self._file = self._file, None
        try:
            if connection is not None:
                with contextlib.suppress(sqlite3.Error):
                    await connection.close()
        finally:
            if file is not None:
                await asyncio.to_thread(HERE.leave, file)

    # --- sessions

    async def create_session(
        self,
        *,
        session_id: str,
        run_id: str,
        name: str | None,
        kind: str = "flow",
        metadata: Mapping[str, object],
        phase: str | None = None,
        artifacts_path: str | None = None,
        artifact_contract: object = None,
        reason_code: str = "run.started",
    ) -> None:
        """Write the row of a run that begins, with status running.

        ``flow_control_poller`` is ``pending`` in it unless the metadata says otherwise
        (SPEC B-07).

        Raises:
            StateDBError: Also when the id is taken.
        """
        now = self._clock()
        merged = {"run_id": run_id, "flow_control_poller": "pending", **metadata}
        contract = None if artifact_contract is None else json_text(artifact_contract)
        row = {
            "id": session_id,
            "run_id": run_id,
            "name": name,
            "kind": kind,
            "metadata": json_text(merged),
            "phase": phase,
            "artifacts_path": artifacts_path,
            "contract": contract,
            "reason": reason_code,
            "now": now,
            "transition": uuid4().hex,
        }
        await self._change((CREATE_SESSION, row), (NOTE_CREATION, row))

    async def set_status(
        self,
        session_id: str,
        status: RunStatus | str,
        *,
        reason_code: str,
        reason_summary: str | None = None,
        source: str = "executor",
        actor: str | None = None,
        metadata: Mapping[str, object] | None = None,
    ) -> bool:
        """End a running session: the one way in which a status is written.

        The change, its entry in the audit and the metadata are one transaction. A
        session that has ended stays as it is (SPEC A-12).

        Args:
            session_id: Whose.
            status: A word of the vocabulary.
            reason_code: Why, for programs.
            reason_summary: Why, for people; no content of the run.
            source: executor, or admin for a person's verb.
            actor: Who says so.
            metadata: Merged into ``node_metadata`` with it.

        Returns:
            True when the status was written.

        Raises:
            StateDBError: ``status_unknown`` for another word.
        """
        given = status_parameters(
            session_id,
            status,
            now=self._clock(),
            reason_code=reason_code,
            reason_summary=reason_summary,
            source=source,
            actor=actor,
        )
        statements: list[tuple[str, Any]] = [
            (NOTE_TRANSITION, given),
            (SET_STATUS, given),
        ]
        if metadata:
            statements.append(merge(session_id, metadata))
        _, status_set, *_ = await self._change(*statements)
        await self.verify()
        return status_set.count > 0

    async def merge_metadata(
        self, session_id: str, patch: Mapping[str, object]
    ) -> None:
        """Merge members into ``node_metadata``, each replacing its namesake whole.

        One statement, so that two writers never lose each other's (SPEC A-16).
        """
        if patch:
            await self._change(merge(session_id, patch))

    async def set_phase(self, session_id: str, phase: str | None) -> None:
        """Write the phase of a running session; an ended one keeps none."""
        given = (phase, self._clock(), session_id)
        await self._change((SET_PHASE, given))

    async def session(self, session_id: str) -> SessionRow | None:
        """Return a session by its full id."""
        found = await self._read(SESSION_BY_ID, (session_id,))
        return session_row(tuple(found[0])) if found else None

    async def delete_session(self, session_id: str) -> bool:
        """Remove an ended session with its controls and signals (SPEC A-08).

        Returns:
            False when it has not ended, is not there, or a play refers to it.
        """
        [removed] = await self._change((DELETE_SESSION, (session_id,)))
        return removed.count > 0

    async def emit_signals(self, session_id: str, signals: Sequence[Signal]) -> None:
        """Append signals in the order given, each with the next ``seq`` (SPEC A-15)."""
        rows = [
            {
                "id": uuid4().hex,
                "session": session_id,
                "kind": str(signal.kind),
                "op": signal.operation_id,
                "ts": signal.at,
                "payload": json_text(
                    {
                        "op_id": signal.operation_id,
                        "name": signal.name,
                        **signal.data,
                    }
                ),
            }
            for signal in signals
        ]
        if rows:
            await self._change((EMIT_SIGNAL, rows))

    # --- controls

    async def data_version(self) -> int:
        """Return a number that changes when another connection has committed."""
        [(version,)] = await self._read("PRAGMA data_version", ())
        return int(version)

    async def pending_controls(self, session_id: str, limit: int) -> list[ControlRow]:
        """Return controls that nobody has taken, in order of service (SPEC B-02)."""
        found = await self._read(PENDING, (session_id, limit))
        return [control_row(tuple(row)) for row in found]

    async def control(self, control_id: str) -> ControlRow | None:
        """Return a control by its full id."""
        found = await self._read(CONTROL_BY_ID, (control_id,))
        return control_row(tuple(found[0])) if found else None

    async def claim_control(self, control_id: str, claim: str) -> str | None:
        """Claim a pending control and hand the stored claim back (SPEC B-17).

        Returns:
            The claim as stored, which :meth:`finalize_control` wants; None when the
            row was claimed or finished before.
        """
        [claimed] = await self._change((CLAIM, (claim, self._clock(), control_id)))
        return str(claimed.rows[0][0]) if claimed.rows else None

    async def finalize_control(
        self, control_id: str, result: str, *, claim: str | None
    ) -> bool:
        """Store the outcome of a control if it is still as the caller believes.

        Args:
            control_id: Which.
            result: The outcome.
            claim: The claim that the caller holds, None for a control without one.

        Returns:
            False when the row has moved on and nothing was written (SPEC B-16).
        """
        given = (result, self._clock(), control_id, claim)
        [stored] = await self._change((FINALIZE, given))
        await self.verify()
        return stored.count > 0

    async def log_controls(
        self, session_id: str, items: Sequence[Mapping[str, object]]
    ) -> None:
        """Append outcomes to ``node_metadata.controls``, a short log (SPEC B-06)."""
        if items:
            given = {
                "items": json_text([dict(item) for item in items]),
                "length": LOG_LENGTH,
                "id": session_id,
            }
            await self._change((LOG_CONTROLS, given))

    async def sweep_controls(self, session_id: str, result: str) -> list[str]:
        """Close the unclaimed controls of an ended session (SPEC A-42..A-44).

        Returns:
            The ids of the closed ones; none of a session that has not ended.
        """
        now = self._clock()
        given = {"result": result, "now": now, "id": session_id}
        [swept] = await self._change((SWEEP, given))
        await self.log_controls(
            session_id,
            [
                {"id": control, "verb": verb, "result": result, "ts": now}
                for control, verb in swept.rows
            ],
        )
        return [str(control) for control, _ in swept.rows]

    async def verify(self) -> None:
        """Check that the path still leads to the open file.

        Raises:
            StateDBError: ``db_replaced``: what was written went into a file that
                nobody will read.
        """
        if await asyncio.to_thread(identity, self.path) != self._file:
            raise StateDBError(
                f"another file is at {self.path}; what this run writes is lost",
                code="db_replaced",
            )

    # --- how it is done

    def _open_connection(self) -> aiosqlite.Connection:
        """Return the connection."""
        if self._connection is None:
            raise StateDBError(f"the state database is closed: {self.path}")
        return self._connection

    async def _read(self, sql: str, given: Sequence[object]) -> list[sqlite3.Row]:
        """Run one query."""
        with mapped(self.path):
            return list(await self._open_connection().execute_fetchall(sql, given))

    async def _change(self, *statements: tuple[str, Any]) -> list[_Done]:
        """Run statements as one transaction and return what each did."""
        work = _Transaction.of(statements)
        await self._read(work, ())
        return work.done


async def _to_the_end(
    work: Coroutine[Any, Any, None],
    then: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> None:
    """Await work that must have ended before a cancellation is passed on.

    Args:
        work: Ends by itself, in bounded time.
        then: Done after it, if there was a cancellation.
    """
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
        except BaseException:
            break
    if cancelled:
        if not task.cancelled():
            task.exception()  # the cancellation is what the caller is told
        if then is not None:
            await _to_the_end(then())
        raise asyncio.CancelledError
    task.result()
