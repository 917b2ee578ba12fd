"""A home of lionagi's as a source of runs, read as it is and never written.

Rows, signals, controls and checkpoints have the form that heaveto's own have, so that
the list, the follower and the conclusions are those of ``native``. What is different is
here: what only ``run.json`` and the row's metadata tell, which of lionagi's words mean
something else than they say, and how the database may be older, newer or partial. What
is concluded from all that is in :mod:`~heaveto.observe.lionagi_truth`.

Blocking; one thread at a time.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from heaveto.errors import RunError, StateDBError
from heaveto.observe.assemble import detail
from heaveto.observe.derive import Gate
from heaveto.observe.follow import Followed
from heaveto.observe.lionagi_truth import Known, refined, with_segments
from heaveto.observe.native import NativeSource
from heaveto.observe.words import notice
from heaveto.runs import read_run_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from heaveto.observe.snapshot import HomeView, Notice, RunDetail

__all__ = ["LionagiRun", "LionagiSource"]

KNOWN_VERSION = 4
"""The newest version of lionagi's database that was looked at."""
_TABLES = ("sessions", "session_signals", "session_controls", "plays", "invocations")
_COLUMNS = ("run_id", "node_metadata", "status", "invocation_kind", "current_phase")


class LionagiRun(Followed):
    """One run of lionagi's and what was read of it so far."""

    _record: Mapping[str, object] | None = None

    def _look(self) -> bool:
        """Look at the directory, and at what its ``run.json`` says beside the row."""
        changed = super()._look()
        before, self._record = self._record, self._read_record()
        return changed or before != self._record

    def _read_record(self) -> Mapping[str, object]:
        if self.run_dir is None:
            return {}
        try:
            record = read_run_json(self.run_dir)
        except RunError:
            return {}
        return {**record.extra, "status": record.status}

    def snapshot(
        self,
        *,
        resumed_from: str | None,
        superseded_by: str | None,
        survivors: Sequence[dict[str, object]] = (),
        attempts: Sequence[str] = (),
    ) -> RunDetail:
        """Return the run as it was read last.

        Args:
            resumed_from: The run id it continues.
            superseded_by: The run id that took it over.
            survivors: None: lionagi records no children.
            attempts: Run ids of resumes of it that ended before they began.
        """
        facts = self._facts(resumed_from, superseded_by)
        fold, patched = with_segments(facts.fold, self.row.node_metadata, self.saved)
        # The gate belongs to the graph; what comes after it is not held by it.
        gate = Gate() if self.row.poller == "stopped" else None
        found = detail(
            replace(facts, fold=fold, gate=gate), None if patched else self._memory
        )
        known = Known(
            row=self.row,
            record=self._record or {},
            saved=self.saved,
            patched=patched,
            attempts=tuple(attempts),
        )
        return refined(found, known)


class LionagiSource(NativeSource):
    """A home that lionagi writes."""

    follower: ClassVar[type[Followed]] = LionagiRun

    def _detail(self, followed: Followed) -> RunDetail:
        assert isinstance(followed, LionagiRun)
        resumed_from, superseded_by = self._relations.of(followed.row)
        return followed.snapshot(
            resumed_from=resumed_from,
            superseded_by=superseded_by,
            attempts=self._relations.attempts(followed.row),
        )

    def health(self) -> HomeView:
        """Return how the home itself stands, and what of its database is unknown."""
        view = super().health()
        if view.problem is not None:
            return view
        return replace(view, problem=self._unfamiliar())

    def _unfamiliar(self) -> Notice | None:
        """Say what of the database is newer than known, or missing."""
        schema = self._roster.schema
        if schema is None:
            return None
        if (schema.version or 0) > KNOWN_VERSION:
            return notice(
                "schema_newer",
                f"lionagi's database has version {schema.version}, known up to"
                f" {KNOWN_VERSION}: what is new in it is not shown.",
            )
        missing = [name for name in _TABLES if name not in schema.tables]
        with contextlib.suppress(StateDBError):
            database = self._roster.open()
            missing += [
                f"{table}.{name}"
                for table in _TABLES
                for name in database.unread(table)
            ]
            missing += [
                f"sessions.{name}"
                for name in _COLUMNS
                if database.has_column("sessions", "id")
                and not database.has_column("sessions", name)
            ]
        if not missing:
            return None
        return notice(
            "schema_partial",
            f"lionagi's database has no {', '.join(missing)}: it is older than known,"
            " and less of its runs can be told.",
        )
