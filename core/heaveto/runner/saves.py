"""Outcomes on their way into the checkpoint: executed first, persisted when it is so.

An outcome is admitted to the writer in the very call that hands it over, so that its
place in the order and the context beside it are fixed before anything else happens
(SPEC E-34). That it is persisted is said when the writer has acknowledged it and never
before (SPEC E-41). Every failure is kept: the run's end inspects them all (SPEC E-42).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heaveto.errors import CheckpointError
from heaveto.model import OperationStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from heaveto.checkpoint import CheckpointWriter
    from heaveto.model import Outcome

__all__ = ["Saves"]


class Saves:
    """The outcomes of one run and what became of each; for the loop thread only.

    Attributes:
        digests: The result digest of each operation that has just answered, by id.
        persisted: Names of operations whose outcome was acknowledged, in that order.
        failures: What kept an outcome from being acknowledged, by operation name.
    """

    def __init__(
        self,
        writer: CheckpointWriter,
        names: Mapping[str, str],
        *,
        on_executed: Callable[[str, Outcome], None],
        on_persisted: Callable[[str, int | None], None],
        on_failed: Callable[[str, CheckpointError], None],
    ) -> None:
        """Connect a writer.

        Args:
            writer: Of the run's checkpoint.
            names: The name of each operation id.
            on_executed: Told of each outcome, before anything is written.
            on_persisted: Told of each acknowledgement, with its sequence number (None
                in version 2).
            on_failed: Told of each failure.
        """
        self._writer = writer
        self._names = names
        self._on_executed = on_executed
        self._on_persisted = on_persisted
        self._on_failed = on_failed
        self.digests: dict[str, str | None] = {}
        self.persisted: list[str] = []
        self.failures: dict[str, CheckpointError] = {}

    def take(
        self, outcome: Outcome, context: Mapping[str, object]
    ) -> Awaitable[object] | None:
        """Admit an outcome; the executor awaits what is returned before the run ends.

        Args:
            outcome: Of an operation that completed or failed.
            context: The shared context after it.
        """
        name = self._names[outcome.operation_id]
        digest = self.digests.pop(outcome.operation_id, None)
        if outcome.status is not OperationStatus.COMPLETED:
            digest = None
        self._on_executed(name, outcome)
        try:
            pending = self._writer.record(
                name,
                status=str(outcome.status),
                response=outcome.response,
                flow_context=dict(context),
                result_digest=digest,
            )
        except CheckpointError as error:
            self._fail(name, error)
            return None
        return self._settle(name, pending)

    async def _settle(self, name: str, pending: Awaitable[object]) -> None:
        """Wait for the acknowledgement and say what came."""
        try:
            await pending
        except CheckpointError as error:
            self._fail(name, error)
            return
        self.persisted.append(name)
        self._on_persisted(name, self._writer.journal_seq)

    def _fail(self, name: str, error: CheckpointError) -> None:
        """Keep a failure and say it."""
        self.failures[name] = error
        self._on_failed(name, error)
