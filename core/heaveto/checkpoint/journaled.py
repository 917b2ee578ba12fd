"""Version 3 on disk: append to a journal, compact it into a new base.

**Publication of a version 3 base** (SPEC E-66, E-109)::

    [first time: empty journal: temp, fsync, name; directory fsync]
    base: temp, all bytes, fsync  ->  name  ->  directory fsync
    journal, unless it is still empty: temp, fsync  ->  name  ->  directory fsync
    names checked; the former files removed and closed

Killed anywhere, the old base with the old journal, the new base with the old journal
(all its records are stale) or the new pair is there, each with everything acknowledged.

A batch of transitions is encoded, written and synced once; nothing in it counts as
durable before that sync has returned and the names have been found to lead to the unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from heaveto.checkpoint import v3
from heaveto.checkpoint.patch import diff
from heaveto.checkpoint.state import UNCHANGED, Kind, State, Transition
from heaveto.checkpoint.unit import PIECE, Unit
from heaveto.errors import FileIdentityError
from heaveto.files import Directory, OwnedFile, temp_name
from heaveto.jsonvalue import count

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["JournaledUnit"]


class JournaledUnit(Unit):
    """Version 3: a base and an append-only journal."""

    def __init__(
        self,
        directory: Directory,
        name: str,
        state: State,
        *,
        max_records: int,
        max_bytes: int,
        new_generation: Callable[[], str] = lambda: uuid4().hex,
    ) -> None:
        """Take over a locked directory.

        Args:
            directory: As for :class:`Unit`.
            name: As for :class:`Unit`.
            state: As for :class:`Unit`.
            max_records: Records in a journal, at most.
            max_bytes: Bytes in a journal, at most; a record that alone is longer goes
                into a base.
            new_generation: Makes a fresh generation.
        """
        super().__init__(directory, name, state)
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._new_generation = new_generation
        self._base: OwnedFile
        self._journal: OwnedFile
        self._empty: OwnedFile | None = None
        self._line_bytes: list[bytes] = []
        self._unwritten = 0
        self._seq = self._records = self._bytes = 0

    def _kept_names(self) -> tuple[str, ...]:
        return (self._journal_name,)

    def _flush(self) -> None:
        if self._behind:
            self._publish()
        else:
            self._verify()

    def _put(self, transitions: Sequence[Transition]) -> None:
        """Append what fits, compact when the journal is full (SPEC E-71..E-73)."""
        if self._behind and not self._touched:
            self._publish(carries=False)
        if self._behind:
            self._fold_all(transitions)
            self._publish()
            self._durable = len(transitions)
            return
        for index, transition in enumerate(transitions):
            kind, entry = transition.entry.kind, self._encoded(transition.entry)
            change = None
            if transition.context is not UNCHANGED:
                change = self._change(transition)
            line = self._line(kind, entry, change)
            if self._bytes + len(line) > self._max_bytes or self._seq == v3.MAX_SEQ:
                self._commit()
                self._durable = index
                if len(line) > self._max_bytes:
                    self._fold(transition, entry)
                    self._publish()
                    self._durable = index + 1
                    continue
                self._publish(carries=False)
                line = self._line(kind, entry, change)
            self._fold(transition, entry)
            self._append(line)
            if self._records >= self._max_records:
                self._commit()
                self._durable = index + 1
                self._publish(carries=False)
        self._commit()
        self._durable = len(transitions)

    # --- records

    def _change(self, transition: Transition) -> bytes | None:
        """Encode the change of the context; None when it says the same."""
        ops = diff(self._context, transition.context)
        if not ops:
            return None
        self.encoded += sum(count(op["value"]) for op in ops if "value" in op)
        return v3.encode_patch(ops)

    def _line(self, kind: Kind, entry: bytes, change: bytes | None) -> bytes:
        generation = self.generation or ""
        return v3.record_line(generation, self._seq + 1, kind, entry, change)

    def _append(self, line: bytes) -> None:
        """Take a line into the journal; a long run of lines is written on the way."""
        self._seq += 1
        self._records += 1
        self._bytes += len(line)
        self._line_bytes.append(line)
        self._unwritten += len(line)
        if self._unwritten >= PIECE:
            self._spill()

    def _spill(self) -> None:
        """Hand the gathered lines to the system."""
        data = b"".join(self._line_bytes)
        self._line_bytes.clear()
        self._unwritten = 0
        self._empty = None
        self._published = "uncertain"
        self._journal.append(data)

    def _commit(self) -> None:
        """Make every appended line durable, and see that the unit is reachable."""
        if self._seq == self.journal_seq:
            return
        if self._line_bytes:
            self._spill()
        self._journal.sync()
        self._verify()
        self.journal_seq = self._seq
        self._published = "no"

    def _verify(self) -> None:
        """Check that the published names lead to this unit (SPEC E-62).

        Raises:
            FileIdentityError: A name leads elsewhere or nowhere.
        """
        self.directory.verify(self._base, self._journal)

    # --- publication

    def _publish(self, *, carries: bool = True) -> None:
        """Publish a base with everything folded so far, and an empty journal.

        Args:
            carries: The base holds transitions that are nowhere else on disk.
        """
        self._behind = True
        self._line_bytes.clear()
        self._unwritten = 0
        self.directory.verify()
        self._look()
        self._holder(self._base_name)
        before = len(self._own)
        try:
            journal = self._holder(self._journal_name) or self._new_journal()
            base = self._new_base(carries=carries)
            if journal is not self._empty:
                journal = self._new_journal()
            self._base, self._journal = base, journal
        except BaseException:
            self._tidy(self._own[before:])
            raise
        self._tidy()
        self._verify()
        self._behind = False

    def _new_base(self, *, carries: bool) -> OwnedFile:
        """Write, sync and publish a base; from then on it is what is on disk."""
        generation = self._new_generation()
        state, entries = self._snapshot()
        data = v3.base_pieces(state, generation, **entries)
        base = self._make(temp_name(self._base_name), data, sync=True)
        try:
            self._install(base, self._base_name, carries=carries)
        except (OSError, FileIdentityError):
            if self.directory.locate(base, self._base_name):
                self._adopt(generation)
            raise
        self._adopt(generation)
        self.directory.sync()
        return base

    def _adopt(self, generation: str) -> None:
        """Take note of the base that is on disk now."""
        self.generation, self.journal_seq = generation, 0
        self._seq = self._records = self._bytes = 0
        self._bases += 1
        self.compactions = self._bases - 1

    def _new_journal(self) -> OwnedFile:
        """Make, sync and publish an empty journal."""
        journal = self._make(temp_name(self._journal_name), (), sync=True)
        self._install(journal, self._journal_name)
        self.directory.sync()
        self._empty = journal
        return journal
