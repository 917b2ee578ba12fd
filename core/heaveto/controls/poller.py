"""The runner's side: the one consumer of a session's controls.

About ten times a second the poller asks whether another connection has changed the
database, and lists the session's open controls at once when one has; the full list
runs at least every 2.0 s whatever that says (PRODUCT 6.1, SPEC B-01). A loop that was
blocked leads to one tick afterwards, not to a burst (B-10).

One tick handles a bounded number of rows, oldest first, and stops at the first whose
outcome could not be stored: nothing overtakes it (B-04). What was done and not yet
stamped is remembered, so that the next tick stamps and does not do it again.

No error of a control or of the database ends the run (B-03, B-05).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

from heaveto.controls.words import (
    APPLIED,
    MESSAGE_LIMIT,
    NO_PENDING,
    SWEPT,
    claim_text,
    error_result,
    unsupported,
)
from heaveto.model import Verb
from heaveto.statedb.rows import TOO_LARGE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from heaveto.statedb.rows import ControlRow

__all__ = ["BATCH", "LOOK", "PERIOD", "ControlPoller", "ControlStore", "Steerable"]

log = logging.getLogger(__name__)

PERIOD = 2.0
"""Seconds between two full lists at most (SPEC B-01)."""
LOOK = 0.1
"""Seconds between two looks at ``PRAGMA data_version``."""
BATCH = 64
"""Controls that one tick handles; more wait for the next look."""
_PUBLISH = 2.0
"""Seconds that publishing the poller's own state may take (SPEC B-07)."""
_STAMPS = 2
"""Attempts to store an outcome in one tick (SPEC B-27)."""
_PHASES: dict[str, str] = {Verb.PAUSE: "paused", Verb.RESUME: "executing"}
"""What ``current_phase`` says after a verb."""


class Steerable(Protocol):
    """What the poller needs of an executor; called on the event loop's thread."""

    def pause(self) -> None:
        """Install the gate; again is harmless."""

    def resume(self) -> None:
        """Open and remove the gate; without one, do nothing."""

    def stop(self) -> None:
        """Let nothing start any more; again is harmless."""

    def has_pending(self) -> bool:
        """Tell whether an operation of the present graph has not started."""

    def append_message(self, entry: dict[str, object]) -> None:
        """Append ``{"ts", "text", "control_id"}`` to the shared operator messages."""


class ControlStore(Protocol):
    """What the poller needs of :class:`heaveto.statedb.store.StateDB`."""

    async def data_version(self) -> int:
        """Return a number that changes with other connections' commits."""

    async def pending_controls(self, session_id: str, limit: int) -> list[ControlRow]:
        """Return controls that nobody has taken, in order of service."""

    async def claim_control(self, control_id: str, claim: str) -> str | None:
        """Claim by compare-and-set and hand the stored claim back."""

    async def finalize_control(
        self, control_id: str, result: str, *, claim: str | None
    ) -> bool:
        """Store an outcome by compare-and-set on the claim."""

    async def log_controls(
        self, session_id: str, items: Sequence[Mapping[str, object]]
    ) -> None:
        """Append to the log in ``node_metadata``."""

    async def merge_metadata(
        self, session_id: str, patch: Mapping[str, object]
    ) -> None:
        """Merge members into ``node_metadata``."""

    async def set_phase(self, session_id: str, phase: str | None) -> None:
        """Write ``current_phase``."""

    async def sweep_controls(self, session_id: str, result: str) -> list[str]:
        """Close what was never claimed, if the session has ended."""


class _UndoneError(Exception):
    """This tick ends here; nothing may overtake what it could not do."""


class _Outcome(NamedTuple):
    """What a control came to, and the claim under which it may be stored."""

    result: str
    claim: str | None


class ControlPoller:
    """Applies the controls of one session to one steerable; see the module.

    For one event loop.

    Attributes:
        outcomes: How many outcomes this poller has stored.
    """

    def __init__(
        self,
        db: ControlStore,
        session_id: str,
        run_id: str | None,
        steerable: Steerable,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take what it needs; nothing happens before :meth:`run`.

        Args:
            db: The runner's state database.
            session_id: Whose controls.
            run_id: The owner that claims name.
            steerable: The executor.
            clock: Epoch seconds, for what is stored.
            monotonic: Seconds, for when to look.
        """
        self.outcomes = 0
        self._db = db
        self._session_id = session_id
        self._claim = claim_text(run_id)
        self._steerable = steerable
        self._clock = clock
        self._monotonic = monotonic
        self._stopping = asyncio.Event()
        self._unstamped: tuple[ControlRow, _Outcome] | None = None
        self._logged: list[dict[str, object]] = []
        self._phase: str | None = None
        self._version: int | None = None
        self._due = -math.inf
        self._failures = 0

    # --- life

    async def run(self) -> None:
        """Publish ``active``, then look and tick until :meth:`stop`.

        A caller that cancels this waits for the tick in hand: a claimed message is
        applied and stamped before the poller ends.
        """
        if not self._stopping.is_set():
            await self.publish("active")
        while not self._stopping.is_set():
            work = asyncio.ensure_future(self.look())
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                await asyncio.wait([work])
                raise
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), LOOK)

    async def stop(self) -> None:
        """Publish ``stopped`` within a bounded time, then let :meth:`run` end."""
        await self.publish("stopped")
        self._stopping.set()

    async def publish(self, state: str) -> None:
        """Write the poller's state where admission reads it (SPEC A-36, B-07)."""
        write = self._db.merge_metadata(
            self._session_id, {"flow_control_poller": state}
        )
        try:
            await asyncio.wait_for(write, _PUBLISH)
        except Exception as error:
            log.warning("the state of the control poller was not published: %r", error)

    async def sweep(self) -> None:
        """Close what was never claimed, once the session has its final status."""
        try:
            await self._db.sweep_controls(self._session_id, SWEPT)
        except Exception as error:
            log.warning("controls that came too late were not closed: %r", error)

    # --- when

    async def look(self) -> None:
        """Tick if something changed, something is left, or the period is over."""
        due = self._monotonic() >= self._due
        try:
            version = await self._db.data_version()
        except Exception as error:
            log.warning("the state database cannot be asked: %r", error)
            version = None
        if due or version != self._version:
            self._version = version
            await self.tick()

    async def tick(self) -> None:
        """List the open controls and handle them in order (SPEC B-02..B-04).

        What could not be done is tried again soon, then ever later up to the period.
        """
        begun = self._monotonic()
        try:
            more = await self._batch()
        except _UndoneError:
            self._failures += 1
            self._due = begun + min(PERIOD, LOOK * 2.0**self._failures)
        else:
            self._failures = 0
            self._due = begun if more else begun + PERIOD
        await self._write_phase()
        await self._write_log()

    async def _batch(self) -> bool:
        """Handle the oldest controls; tell whether there may be more of them.

        Raises:
            _UndoneError: The list could not be made, or an outcome not be stored.
        """
        await self._stamp()
        try:
            rows = await self._db.pending_controls(self._session_id, BATCH)
        except Exception as error:
            log.warning("controls cannot be listed: %r", error)
            raise _UndoneError from None
        for row in rows:
            await self._handle(row)
        return len(rows) == BATCH

    # --- what

    async def _handle(self, row: ControlRow) -> None:
        """Apply a control once and stamp it."""
        try:
            outcome = await self._apply(row)
        except Exception as error:
            log.warning("control %s was not taken: %r", row.id, error)
            raise _UndoneError from None
        if outcome is not None:
            self._unstamped = (row, outcome)
            await self._stamp()

    async def _apply(self, row: ControlRow) -> _Outcome | None:
        """Apply a control in the order of its verb; None when another took it."""
        if row.verb == Verb.MESSAGE:
            return await self._apply_message(row)
        effects: dict[str, Callable[[], None]] = {
            Verb.PAUSE: self._steerable.pause,
            Verb.RESUME: self._steerable.resume,
            Verb.STOP: self._steerable.stop,
        }
        effect = effects.get(row.verb)
        if effect is None:
            return _Outcome(unsupported(row.verb), None)
        try:
            effect()
        except Exception as error:
            log.warning("control %s failed: %r", row.id, error)
            return _Outcome(error_result(error), None)
        return _Outcome(APPLIED, None)

    async def _apply_message(self, row: ControlRow) -> _Outcome | None:
        """Claim, then look for a reader, then append: at most once (SPEC B-30)."""
        claim = await self._db.claim_control(row.id, self._claim)
        if claim is None:
            return None
        try:
            result = self._deliver(row)
        except Exception as error:
            log.warning("message %s failed: %r", row.id, error)
            result = error_result(error)
        return _Outcome(result, claim)

    def _deliver(self, row: ControlRow) -> str:
        """Append a claimed message if an operation is left to read it."""
        text = row.text
        size = len(text.encode("utf-8", "replace"))
        if row.payload_raw == TOO_LARGE or size > MESSAGE_LIMIT:
            return error_result("the message is too long")
        if "\0" in text:
            return error_result("the message holds a NUL")
        if not self._steerable.has_pending():
            return NO_PENDING
        entry: dict[str, object] = {
            "ts": self._clock(),
            "text": text,
            "control_id": row.id,
        }
        self._steerable.append_message(entry)
        return APPLIED

    async def _stamp(self) -> None:
        """Store the outcome in hand, if there is one (SPEC B-27, B-61)."""
        if self._unstamped is None:
            return
        row, outcome = self._unstamped
        for _ in range(_STAMPS):
            try:
                stored = await self._db.finalize_control(
                    row.id, outcome.result, claim=outcome.claim
                )
            except Exception as error:
                log.warning("control %s was not stamped: %r", row.id, error)
                continue
            self._unstamped = None
            if stored:
                self._stored(row, outcome.result)
            else:
                log.warning("control %s was closed by another hand", row.id)
            return
        raise _UndoneError

    def _stored(self, row: ControlRow, result: str) -> None:
        """Note a stored outcome for the log and the phase."""
        self.outcomes += 1
        self._logged.append(
            {"id": row.id, "verb": row.verb, "result": result, "ts": self._clock()}
        )
        if result == APPLIED and row.verb in _PHASES:
            self._phase = _PHASES[row.verb]

    async def _write_phase(self) -> None:
        """Show the gate in the row, with one retry (SPEC B-29)."""
        phase, self._phase = self._phase, None
        if phase is None:
            return
        for _ in range(2):
            try:
                await self._db.set_phase(self._session_id, phase)
            except Exception as error:
                log.warning("the phase was not written: %r", error)
            else:
                return

    async def _write_log(self) -> None:
        """Append this tick's outcomes to the log; the rows stay what counts (B-06)."""
        if not self._logged:
            return
        items, self._logged = self._logged, []
        try:
            await self._db.log_controls(self._session_id, items)
        except Exception as error:
            log.warning("the log of controls was not written: %r", error)
