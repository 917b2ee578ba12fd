"""The unit on disk and its one owner: first publication, append, compaction, repair.

Two strategies, :class:`~heaveto.checkpoint.journaled.JournaledUnit` (version 3) and
:class:`SnapshotUnit` (version 2), take the same transitions in the same order. Both
live on the writer's I/O thread.

**Own files.** A unit remembers every file it made by its open handle. A published name
must lead to one of them, or to nothing, before it is touched and before anything is
acknowledged; what else is found there is never read, written, replaced or removed
(SPEC E-55..E-62). :meth:`~heaveto.handles.Directory.install` keeps that promise even
against a substitution between its own check and its own rename.

**After an error** whose effect is unknown the unit is *behind*: nothing is appended to
it, no call is repeated, no handle trusted. The transitions stay in memory, in order,
and the next write publishes a whole new base with all of them, or fails again. That one
way back serves a failed write, sync or rename, an interrupted journal reset and a torn
suffix alike, because it trusts nothing on disk but the identity of its own files. An
error that nobody foresaw poisons the unit: it stops for good.

**What was there before.** The first publication over an existing unit loads it, and
refuses unless every outcome in it is also in the initial state (a resumed run brings
them), so nothing acknowledged is lost silently; a unit that does not load is kept.
"""

from __future__ import annotations

import logging
import os
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn, ParamSpec

from heaveto.checkpoint import v2, v3
from heaveto.checkpoint.loader import JOURNAL_SUFFIX, load_checkpoint
from heaveto.checkpoint.state import UNCHANGED, Entry, Kind, State, Transition
from heaveto.errors import (
    CheckpointError,
    CheckpointIdentityError,
    CheckpointPersistenceError,
    FileIdentityError,
    FileMissingError,
    FileTypeError,
)
from heaveto.frozen import SCALARS
from heaveto.jsonvalue import count, encode, encode_flat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from heaveto.files import Directory, OwnedFile
    from heaveto.jsonvalue import Json

__all__ = ["PIECE", "Receipt", "SnapshotUnit", "Unit", "poison"]

_Given = ParamSpec("_Given")

_log = logging.getLogger("heaveto.checkpoint")

PIECE = 1 << 17
"""Bytes gathered before a write: many small values cost one call, and a large one lets
the interpreter lock go in time for the event loop."""

_EXPECTED = (
    OSError,
    FileIdentityError,
    FileMissingError,
    FileTypeError,
    CheckpointError,
)


class Receipt(NamedTuple):
    """What became of a batch.

    Attributes:
        durable: How many of its transitions, from the first, are on disk, reachable.
        error: Why the rest is not, or what failed after all were; else None.
    """

    durable: int
    error: CheckpointError | None


class Unit:
    """What both versions share: own files, names, failure; use a subclass.

    Attributes:
        generation: Of the base on disk; None before the first one and for version 2.
        journal_seq: Of the last record on disk; None likewise.
        compactions: Version 3: bases published after the first.
        encoded: Values encoded for entries and patches so far.
    """

    def __init__(self, directory: Directory, name: str, state: State) -> None:
        """Take over a locked directory; writing begins with the first publication.

        Args:
            directory: Open and locked; the unit closes it.
            name: Of the base in it.
            state: What the first base shall hold; its values frozen.
        """
        self.directory = directory
        self.generation: str | None = None
        self.journal_seq: int | None = None
        self.compactions = 0
        self.encoded = 0
        self._base_name = name
        self._journal_name = name + JOURNAL_SUFFIX
        self._state = replace(state, ops={}, spawned={})
        self._context = state.flow_context
        self._entries: dict[Kind, dict[str, bytes]] = {
            Kind.OP: {},
            Kind.SPAWNED: {},
        }
        self._brought = (state.ops.keys(), state.spawned.keys())
        for entry in (*state.ops.values(), *state.spawned.values()):
            self._keep(entry, encode(entry.value))
        self._own: list[OwnedFile] = []
        self._temps: list[str] = []
        self._asked = False
        self._touched = False
        self._looked = False
        self._behind = True
        self._bases = 0
        self._folded = 0
        self._durable = 0
        self._published: Literal["no", "uncertain"] = "no"
        self._cleanup: CheckpointError | None = None
        self._closing: CheckpointError | None = None
        self._poison: CheckpointError | None = None

    # --- what the writer calls

    def write(self, transitions: Sequence[Transition]) -> Receipt:
        """Make transitions durable, in order, as far as it goes.

        Every one is taken into the state, also when it could not be written: what is
        published later holds it.
        """
        self._folded = self._durable = 0
        error = self._attempt(self._put, transitions)
        if error is None:
            return Receipt(self._durable, None)
        self._attempt(self._fold_all, transitions[self._folded :])
        lost = self._attempt(self._find) if self._durable else None
        if lost is not None:
            return Receipt(0, _uncertain(lost))
        if self._durable == len(transitions):
            _log.warning("compaction failed, everything so far is safe: %s", error)
        return Receipt(self._durable, error)

    def flush(self) -> CheckpointError | None:
        """Publish the unit if it is not there, or not as it should be."""
        return self._attempt(self._flush)

    def replace_plan(self, plan: Json) -> CheckpointError | None:
        """Publish a base with another plan."""
        self._state = replace(self._state, plan=plan)
        return self._attempt(self._publish)

    def close(self, *, publish: bool = True) -> CheckpointError | None:
        """Publish what an earlier failure left out, if asked; then let everything go.

        Returns:
            What keeps the unit behind, or what could not be cleaned up or closed.
        """
        error = self._poison
        if publish and self._asked and self._behind:
            error = self._attempt(self._publish)
        if publish and self._looked and error is None:
            self._tidy()
        error = error or self._cleanup or self._closing
        for close in (*(owned.close for owned in self._own), self.directory.close):
            try:
                close()
            except OSError as failure:
                error = error or _explained(failure, "uncertain", code="close")
        return error

    # --- what the strategies do

    def _put(self, transitions: Sequence[Transition]) -> None:
        """Fold and write, counting in ``_folded`` and ``_durable``."""
        raise NotImplementedError

    def _flush(self) -> None:
        raise NotImplementedError

    def _publish(self) -> None:
        raise NotImplementedError

    # --- failure

    def _attempt(
        self, act: Callable[_Given, None], *args: _Given.args, **kwargs: _Given.kwargs
    ) -> CheckpointError | None:
        """Run one step and turn what it raises into what the caller is told."""
        if self._poison is not None:
            return self._poison
        self._asked = True
        self._published = "no"
        try:
            act(*args, **kwargs)
        except _EXPECTED as failure:
            self._behind = True
            return _explained(failure, self._published)
        except BaseException as failure:
            self._poison = poison(failure)
            return self._poison
        return None

    # --- state

    def _encoded(self, entry: Entry) -> bytes:
        """Encode an entry, for its record and for every later base."""
        value = entry.value
        self.encoded += 1 + len(value)
        flat = encode_flat(value)
        if flat is not None:
            return flat
        for item in value.values():
            if type(item) not in SCALARS:
                self.encoded += count(item) - 1
        return encode(value)

    def _fold(self, transition: Transition, data: bytes) -> None:
        """Take a transition into the state."""
        self._keep(transition.entry, data)
        if transition.context is not UNCHANGED:
            self._context = transition.context
        self._folded += 1
        self._touched = True

    def _keep(self, entry: Entry, data: bytes) -> None:
        """Keep an entry as it stands in a base: a planned one behind its name."""
        if entry.kind is Kind.OP:
            data = b"".join((encode(entry.id), b":", data))
        self._entries[entry.kind][entry.id] = data

    def _fold_all(self, transitions: Iterable[Transition]) -> None:
        for transition in transitions:
            self._fold(transition, self._encoded(transition.entry))

    def _snapshot(self) -> tuple[State, dict[str, Iterator[bytes]]]:
        """Return the state, and its entries as a base wants them."""
        state = replace(self._state, flow_context=self._context)
        return state, {
            "ops": _joined(list(self._entries[Kind.OP].values())),
            "spawned": _joined(list(self._entries[Kind.SPAWNED].values())),
        }

    # --- own files and names

    def _make(self, temp: str, pieces: Iterable[bytes], *, sync: bool) -> OwnedFile:
        """Create a temp and give it its whole content."""
        self._temps.append(temp)
        owned = self.directory.create(temp)
        self._own.append(owned)
        for chunk in _gathered(pieces):
            owned.append(chunk)
        if sync:
            owned.sync()
        return owned

    def _holder(self, name: str) -> OwnedFile | None:
        """Find which own file a name leads to; None when it is free.

        Raises:
            FileIdentityError: It leads to something else.
        """
        found = self.directory.identity_of(name)
        if found is None:
            return None
        for owned in self._own:
            if owned.identity == found:
                owned.name = name
                return owned
        raise FileIdentityError(f"another file is at {self.directory.path / name}")

    def _find(self) -> None:
        """Check that the published names lead to own files, whichever they are.

        Raises:
            FileIdentityError: What is durable cannot be reached.
        """
        self.directory.verify()
        for name in (self._base_name, *self._kept_names()):
            if self._holder(name) is None:
                where = self.directory.path / name
                raise FileIdentityError(f"the file is gone: {where}")

    def _install(self, owned: OwnedFile, name: str, *, carries: bool = False) -> None:
        """Publish an own file under a name that is free or an own file's.

        Args:
            owned: A file made for it.
            name: What to publish it as.
            carries: It holds transitions that are nowhere else on disk.

        Raises:
            FileIdentityError: A name leads to something else.
            OSError: It may have taken effect.
        """
        replacing = self._holder(name)
        if carries:
            self._published = "uncertain"
        self.directory.install(owned, name, replacing=replacing)

    def _sweep(self, made: Sequence[OwnedFile] = ()) -> None:
        """Remove and close own files that no published name needs.

        A temp name that leads to somebody else's file is forgotten, not removed. While
        the base's name does not lead to an own file, a former base under a temp name
        may be the only good one and stays.

        Args:
            made: Files that were never published; they can go in any case.
        """
        names = {self._base_name, *self._kept_names()}
        kept = {self.directory.identity_of(name) for name in names}
        base = self.directory.identity_of(self._base_name)
        safe = self._bases == 0 or any(owned.identity == base for owned in self._own)
        for owned in list(self._own):
            if owned.identity in kept or not (safe or owned in made):
                continue
            if self.directory.locate(owned, *self._temps):
                self.directory.discard(owned)
            elif not safe:
                continue
            self._own.remove(owned)
            self._release(owned)
        if safe:
            self._temps.clear()

    def _release(self, owned: OwnedFile) -> None:
        """Close a file that is needed no more; a failure is told at the end."""
        try:
            owned.close()
        except OSError as failure:
            self._closing = _explained(failure, "uncertain", code="close")
            _log.warning("closing a former checkpoint file failed: %s", self._closing)

    def _kept_names(self) -> tuple[str, ...]:
        """Name what the unit publishes beside its base."""
        return ()

    def _tidy(self, made: Sequence[OwnedFile] = ()) -> None:
        """Sweep; a failure takes nothing back and is told at the end (SPEC E-110)."""
        try:
            self._sweep(made)
        except (OSError, FileIdentityError) as failure:
            self._cleanup = _explained(failure, "uncertain", code="cleanup")
            _log.warning("cleanup beside a checkpoint failed: %s", self._cleanup)
        else:
            self._cleanup = None

    # --- what was there before

    def _look(self) -> None:
        """Adopt what a former writer left, if replacing it loses nothing.

        Raises:
            CheckpointRefused: The unit that is there cannot be loaded.
            CheckpointPersistenceError: It holds outcomes that the new state does not.
        """
        if self._looked:
            return
        names = (self._base_name, self._journal_name)
        found = [name for name in names if self.directory.stat(name) is not None]
        pinned: list[OwnedFile] = []
        try:
            pinned.extend(self.directory.pin(name) for name in found)
            if self._base_name in found:
                self._compare()
            elif found and pinned[0].size() > 0:
                _refuse_loss("a journal is there without its base")
            for owned in pinned:
                owned.verify()
        except BaseException:
            for owned in pinned:
                owned.close()
            raise
        self._own.extend(pinned)
        self._looked = True

    def _compare(self) -> None:
        """Refuse to replace a unit that knows more than the new state."""
        path = self.directory.path / self._base_name
        there = load_checkpoint(path, system=self.directory.system).state
        ops, spawned = self._brought
        nodes = {entry["node_id"] for entry in there["spawned"]}
        if there["ops"].keys() - ops or nodes - spawned:
            _refuse_loss("the checkpoint there holds outcomes that the new one lacks")
        if there["version"] == v3.VERSION and not self._kept_names():
            self._temps.append(self._journal_name)


class SnapshotUnit(Unit):
    """Version 2: one file, replaced whole, without any sync (SPEC D-08, D-11)."""

    def __init__(self, directory: Directory, name: str, state: State) -> None:
        """Take over a locked directory; as for :class:`Unit`."""
        super().__init__(directory, name, state)
        self._number = 0

    def _flush(self) -> None:
        self._publish()

    def _put(self, transitions: Sequence[Transition]) -> None:
        self._fold_all(transitions)
        self._publish()
        self._durable = len(transitions)

    def _publish(self) -> None:
        self._behind = True
        self.directory.verify()
        self._look()
        self._holder(self._base_name)
        before = len(self._own)
        try:
            state, entries = self._snapshot()
            data = v2.base_pieces(state, **entries)
            base = self._make(self._free_temp(), data, sync=False)
            self._install(base, self._base_name, carries=True)
            self._bases += 1
        except BaseException:
            self._tidy(self._own[before:])
            raise
        self._tidy()
        self.directory.verify()
        base.verify()
        self._behind = False

    def _free_temp(self) -> str:
        """Name the next temp; one that a killed writer left is passed over."""
        stem = self._base_name.removesuffix(".json")
        while True:
            self._number += 1
            temp = f"{stem}.{self._number}.tmp"
            if self.directory.stat(temp) is None:
                return temp


def poison(failure: BaseException) -> CheckpointPersistenceError:
    """Turn what nobody foresaw into what every caller is told from then on.

    The log gets its place in the code; its text might quote a value.
    """
    kind = type(failure).__name__
    place = "".join(traceback.format_tb(failure.__traceback__))
    _log.error("the checkpoint writer is stopped by %s at\n%s", kind, place)
    text = f"the checkpoint writer was stopped by an unforeseen {kind}"
    return CheckpointPersistenceError(text, published="uncertain", code="poisoned")


def _explained(
    failure: Exception,
    published: Literal["no", "uncertain"],
    *,
    code: str | None = None,
) -> CheckpointError:
    """Turn a failure into what a caller is told: no content, the actual state."""
    if isinstance(failure, CheckpointError):
        return failure
    if not isinstance(failure, OSError):
        return CheckpointIdentityError(str(failure), published=published)
    text = os.strerror(failure.errno) if failure.errno else type(failure).__name__
    return CheckpointPersistenceError(
        f"the checkpoint could not be written: {text}", published=published, code=code
    )


def _uncertain(error: CheckpointError) -> CheckpointError:
    """Say of transitions that were synced that they may be there."""
    if isinstance(error, CheckpointPersistenceError):
        error.published = "uncertain"
    return error


def _refuse_loss(text: str) -> NoReturn:
    raise CheckpointPersistenceError(text, published="no", code="would_lose_outcomes")


def _joined(entries: list[bytes]) -> Iterator[bytes]:
    """Join entries with commas, about as many at a time as make a piece."""
    size = sum(map(len, entries))
    step = max(1, len(entries) * PIECE // size) if size else 1
    for start in range(0, len(entries), step):
        lead = b"," if start else b""
        yield lead + b",".join(entries[start : start + step])


def _gathered(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Join small pieces so that each write is worth its call."""
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= PIECE:
            yield b"".join(waiting)
            waiting.clear()
            size = 0
    if waiting:
        yield b"".join(waiting)
