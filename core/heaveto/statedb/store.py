"""The runner's long-lived connection to its state database (aiosqlite).

Every write is one short transaction that begins IMMEDIATE, so that it waits for the
lock at its start and is never refused half-way, and that runs to its end on a task of
its own: a caller that is cancelled while it waits leaves no transaction open and no
lock held (the change may then have been made, as after any answer that got lost).
Writes of one connection are in order, one at a time.

For one event loop. Close it: its thread would keep the process alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar
from uuid import uuid4

import aiosqlite

from heaveto.errors import StateDBError
from heaveto.statedb.opening import HERE, busy_timeout, identity, mapped, uri
from heaveto.statedb.rows import control_row, json_text, session_row
from heaveto.statedb.statements import (
    CLAIM,
    CONTROL_BY_ID,
    CREATE_SESSION,
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

log = logging.getLogger(__name__)

_T = TypeVar("_T")
Parameters = Any
_Statement = tuple[str, Any]


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
        self._lock = asyncio.Lock()
        self._running: set[asyncio.Task[Any]] = set()

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
        try:
            await self._settled(self._connect())
        except BaseException:
            await self._to_the_end(self._abandon())
            raise
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
        """Let running writes end, then close; again is harmless.

        A caller that is cancelled meanwhile is told so when it is closed: the thread
        of a connection that was left open would keep the process alive.
        """
        await self._to_the_end(self._abandon())

    async def _abandon(self) -> None:
        """Wait for what runs, however it ends, and disconnect."""
        while self._running:
            await asyncio.wait(self._running)
        await self._disconnect()

    async def _to_the_end(self, work: Coroutine[Any, Any, None]) -> None:
        """Await work that must have ended before a cancellation is passed on."""
        task = asyncio.ensure_future(work)
        cancelled = False
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError
        task.result()

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
        await self._write((CREATE_SESSION, row), (NOTE_CREATION, row))

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
        statements: list[_Statement] = [(NOTE_TRANSITION, given), (SET_STATUS, given)]
        if metadata:
            statements.append(merge(session_id, metadata))
        counts = await self._write(*statements)
        await self.verify()
        return counts[1] > 0

    async def merge_metadata(
        self, session_id: str, patch: Mapping[str, object]
    ) -> None:
        """Merge members into ``node_metadata``, each replacing its namesake whole.

        One statement, so that two writers never lose each other's (SPEC A-16).
        """
        if patch:
            await self._write(merge(session_id, patch))

    async def set_phase(self, session_id: str, phase: str | None) -> None:
        """Write the phase of a running session; an ended one keeps none."""
        given = (phase, self._clock(), session_id)
        await self._write((SET_PHASE, given))

    async def session(self, session_id: str) -> SessionRow | None:
        """Return a session by its full id."""
        found = await self._read(SESSION_BY_ID, (session_id,))
        return session_row(tuple(found[0])) if found else None

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
            await self._settled(self._transaction([(EMIT_SIGNAL, rows)]))

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
        found = await self._fetch(CLAIM, (claim, self._clock(), control_id))
        return str(found[0][0]) if found else None

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
        [count] = await self._write((FINALIZE, given))
        await self.verify()
        return count > 0

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
            await self._write((LOG_CONTROLS, given))

    async def sweep_controls(self, session_id: str, result: str) -> list[str]:
        """Close the unclaimed controls of an ended session (SPEC A-42..A-44).

        Returns:
            The ids of the closed ones; none of a session that has not ended.
        """
        now = self._clock()
        given = {"result": result, "now": now, "id": session_id}
        found = await self._fetch(SWEEP, given)
        await self.log_controls(
            session_id,
            [
                {"id": row[0], "verb": row[1], "result": result, "ts": now}
                for row in found
            ],
        )
        return [str(row[0]) for row in found]

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
        """Run one query between transactions."""
        async with self._lock:
            with mapped(self.path):
                return list(await self._open_connection().execute_fetchall(sql, given))

    async def _write(self, *statements: _Statement) -> list[int]:
        """Run statements as one transaction; see :meth:`_transaction`."""
        return await self._settled(self._transaction(list(statements)))

    async def _fetch(self, sql: str, given: Parameters) -> list[sqlite3.Row]:
        """Run one changing statement that returns rows; it commits by itself."""

        async def run() -> list[sqlite3.Row]:
            async with self._lock:
                with mapped(self.path):
                    return list(
                        await self._open_connection().execute_fetchall(sql, given)
                    )

        return await self._settled(run())

    async def _transaction(self, statements: list[_Statement]) -> list[int]:
        """Run statements as one transaction and return the rows each changed."""
        counts = []
        async with self._lock:
            connection = self._open_connection()
            with mapped(self.path):
                await connection.execute_fetchall("BEGIN IMMEDIATE")
                try:
                    for sql, given in statements:
                        many = isinstance(given, list) and sql is EMIT_SIGNAL
                        run = connection.executemany if many else connection.execute
                        async with run(sql, given) as cursor:
                            counts.append(cursor.rowcount)
                    await connection.execute_fetchall("COMMIT")
                except BaseException:
                    with contextlib.suppress(sqlite3.Error, ValueError):
                        await connection.execute_fetchall("ROLLBACK")
                    raise
        return counts

    async def _settled(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Await work that ends by itself even when its caller is cancelled."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """Forget a task and note an error that nobody waited for."""
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.debug("a write failed: %s", error)
