"""Loading a checkpoint: the one way to read it (SPEC F-01..F-24, F-38..F-49).

:func:`load_checkpoint` takes ``checkpoint.json`` and, for version 3, its journal as one
unit, folds them and reports what it found. It writes nothing, takes no lock, follows no
link to a file, and works beside a live writer: both files are opened, and the pair is
taken only when the base's name still leads to the opened base afterwards. A base is
replaced whole before its journal is, so a pair pinned that way belongs together, and it
holds everything acknowledged before the load began; what is read after that comes from
the two handles, however the names move on.

:class:`Follower` does the same again and again: as long as the base is the same file
and the journal only grew, it folds in the new bytes alone.

Dispatch is by the list of known versions, nothing is guessed: ``1``, ``2`` and ``3`` as
integers, declared exactly once.

Everything here blocks. One follower belongs to one thread.
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from heaveto.checkpoint import v2, v3
from heaveto.checkpoint.report import (
    Reason,
    ReasonCode,
    RecoveryReport,
    RecoveryStatus,
)
from heaveto.errors import (
    CheckpointRefused,
    CheckpointVersionError,
    FileMissingError,
    FileTypeError,
)
from heaveto.files import OS, Directory, Identity, Os
from heaveto.jsonvalue import JsonError, loads_strict, too_deep

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from heaveto.checkpoint.state import State
    from heaveto.files import OwnedFile
    from heaveto.jsonvalue import Json

__all__ = ["JOURNAL_SUFFIX", "Follower", "Loaded", "load_checkpoint"]

JOURNAL_SUFFIX = ".journal"

ATTEMPTS = 16
"""Captures at most; each fails only when the base is replaced within microseconds."""

_GRACE = (0.01, 0.03, 0.06)
"""Seconds to wait before a live unit that looks unfinished is read again."""

_PASSING = frozenset(
    {
        ReasonCode.BASE_MISSING,
        ReasonCode.JOURNAL_MISSING,
        ReasonCode.INCOHERENT_UNIT,
    }
)
"""Fatal reasons that a writer at work can cause for a moment."""

_KNOWN = (1, 2, v3.VERSION)
_WINDOW = 1 << 18
"""Bytes of a journal that are read at first."""

_MOST = 1 << 22
"""Bytes of it that are read at a time, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A checkpoint that may be used.

    Attributes:
        state: ``version`` of the source, ``session_id prompt plan flow_context ops
            spawned config max_spawn`` and unknown members, all plain.
        report: What the load found; clean or a recovered prefix.
    """

    state: dict[str, Any]
    report: RecoveryReport


def load_checkpoint(
    path: Path | str,
    *,
    live: bool = False,
    system: Os = OS,
    sleep: Callable[[float], None] = time.sleep,
) -> Loaded:
    """Load a checkpoint of any known version.

    Args:
        path: Of ``checkpoint.json``; its journal is looked for beside it.
        live: A writer is known to be at work and this is for display: what looks
            unfinished is read again shortly (SPEC F-49). A resume leaves it out.
        system: The system calls.
        sleep: How to wait, in seconds.

    Returns:
        The state, which is the caller's own, and the report.

    Raises:
        CheckpointVersionError: The version is unknown, ambiguous or missing.
        CheckpointRefused: Anything else that keeps it from being used; ``report`` says
            what, ``prefix`` is the state before a bad record, for inspection alone.
    """
    with Follower(path, system=system, sleep=sleep) as follower:
        return follower.poll(live=live)


class Follower:
    """Loads one checkpoint again and again, at the cost of what is new.

    It keeps the two files open between polls, so that no other file can be mistaken for
    them; close it.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        system: Os = OS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Remember where it is; nothing is read yet.

        Args:
            path: Of ``checkpoint.json``.
            system: The system calls.
            sleep: How to wait, in seconds.
        """
        self._path = Path(path)
        self._system = system
        self._sleep = sleep
        self._outcome: _Outcome | None = None
        self._pair: _Pair | None = None

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the files."""
        self.close()

    def close(self) -> None:
        """Close the files; the next poll would open them again."""
        pair, self._pair, self._outcome = self._pair, None, None
        if pair is not None:
            pair.close()

    def poll(self, *, live: bool = False) -> Loaded:
        """Return what the checkpoint holds now.

        A change of the journal costs its new bytes, and a copy of the containers that
        it changes; anything else that changed costs a load. Files that change in
        place, without another size or time, are not noticed.

        Args:
            live: As for :func:`load_checkpoint`.

        Returns:
            The very object of the last poll when nothing changed. Polls share what did
            not change, so states are not to be changed while polls go on.

        Raises:
            CheckpointRefused: As for :func:`load_checkpoint`.
        """
        outcome = self._look()
        for pause in _GRACE if live else ():
            if not outcome.unfinished():
                break
            self._sleep(pause)
            outcome = self._look()
        return outcome.value()

    def _look(self) -> _Outcome:
        try:
            with Directory.open(self._path.parent, system=self._system) as directory:
                outcome = self._grown(directory)
                if outcome is None:
                    self.close()
                    outcome = self._load(directory)
        except FileMissingError:
            self.close()
            outcome = _Outcome(result=_refusal(ReasonCode.BASE_MISSING, "base"))
        except (FileTypeError, OSError, ValueError):  # ValueError: NUL in the path
            self.close()
            outcome = _Outcome(result=_refusal(ReasonCode.BASE_UNREADABLE, "base"))
        self._outcome = outcome
        return outcome

    def _load(self, directory: Directory) -> _Outcome:
        """Capture the unit and decode it, from nothing."""
        for attempt in range(1, ATTEMPTS + 1):
            pair = _Pair.open(directory, self._path.name)
            if pair is not None:
                self._pair = pair
                outcome = _decoded(pair, attempt)
                if pair.is_intact():
                    return outcome
                self.close()
            self._sleep(min(0.001 * attempt, 0.01))
        error = _refusal(ReasonCode.INCOHERENT_UNIT, "unit", attempts=ATTEMPTS)
        return _Outcome(result=error)

    def _grown(self, directory: Directory) -> _Outcome | None:
        """Bring a known unit up to date; None when it has to be loaded."""
        known, pair = self._outcome, self._pair
        if known is None or pair is None or not pair.is_at(directory, self._path.name):
            return None
        before, now = pair.journal_mark, pair.present_journal_mark()
        if now == before:
            return known
        run = known.run
        if run is None or before is None or now is None or now.size <= before.size:
            return None
        run.rewind()
        for part in pair.read_journal(run.valid_bytes):
            run.feed(part)
        if not pair.is_at(directory, self._path.name):
            return None
        pair.journal_mark = now
        return _folded(run, attempts=1)


# --- capture


class _Mark(NamedTuple):
    """What tells a file, and its present content, from others."""

    object: Identity
    size: int
    modified: int
    changed: int

    @classmethod
    def of(cls, found: os.stat_result) -> _Mark:
        """Take it from a stat result."""
        times = (found.st_mtime_ns, found.st_ctime_ns)
        return cls(Identity.of(found), found.st_size, *times)

    @property
    def content(self) -> tuple[int, int]:
        """What changes when somebody writes into the file."""
        return self.size, self.modified

    @classmethod
    def at(cls, directory: Directory, name: str) -> _Mark | None:
        """Take it from a name; None when nothing is there."""
        found = directory.stat(name)
        return None if found is None else cls.of(found)


class _Pair:
    """A unit held open: two files that belong together.

    Attributes:
        journal: The open journal, or why there is none.
        base_mark: Taken before anything was read.
        journal_mark: Likewise; None where there is no journal.
    """

    def __init__(self, base: OwnedFile, journal: OwnedFile | ReasonCode) -> None:
        """Take the files over; use :meth:`open`."""
        self._base = base
        self._system = base.directory.system
        self.journal = journal
        self.base_mark = self._mark(base)
        self.journal_mark = self.present_journal_mark()

    @classmethod
    def open(cls, directory: Directory, name: str) -> _Pair | None:
        """Open a unit; None when the base was replaced meanwhile.

        Raises:
            FileMissingError: There is no base.
            FileTypeError: It is no regular file.
        """
        with contextlib.ExitStack() as held:
            base = held.enter_context(directory.pin(name))
            journal: OwnedFile | ReasonCode
            try:
                journal = held.enter_context(directory.pin(name + JOURNAL_SUFFIX))
            except FileMissingError:
                journal = ReasonCode.JOURNAL_MISSING
            except (FileTypeError, OSError):
                journal = ReasonCode.JOURNAL_UNREADABLE
            pair = cls(base, journal)
            if directory.identity_of(name) != base.identity:
                return None
            held.pop_all()
            return pair

    def close(self) -> None:
        """Close both files."""
        self._base.close()
        if not isinstance(self.journal, ReasonCode):
            self.journal.close()

    def is_intact(self) -> bool:
        """Tell whether nobody wrote into the base or cut the journal meanwhile."""
        if self._mark(self._base).content != self.base_mark.content:
            return False
        before, now = self.journal_mark, self.present_journal_mark()
        return before is None or (now is not None and now.size >= before.size)

    def is_at(self, directory: Directory, name: str) -> bool:
        """Tell whether both names still lead to these files, the base as it was."""
        if _Mark.at(directory, name) != self.base_mark:
            return False
        journal = directory.identity_of(name + JOURNAL_SUFFIX)
        return journal == (self.journal_mark.object if self.journal_mark else None)

    def present_journal_mark(self) -> _Mark | None:
        """Take the mark of the open journal anew."""
        if isinstance(self.journal, ReasonCode):
            return None
        return self._mark(self.journal)

    def read_base(self) -> bytes:
        """Read the whole base."""
        size = self.base_mark.size + 1
        return b"".join(_read(self._system, self._base.fd, size))

    def read_journal(self, start: int = 0) -> Iterator[bytes]:
        """Read the journal from a place on; nothing where there is none."""
        if isinstance(self.journal, ReasonCode):
            return iter(())
        return _read(self._system, self.journal.fd, _WINDOW, start)

    def _mark(self, file: OwnedFile) -> _Mark:
        return _Mark.of(self._system.fstat(file.fd))


def _read(system: Os, fd: int, size: int, start: int = 0) -> Iterator[bytes]:
    """Read an open file from a place to its present end.

    Args:
        system: The system calls.
        fd: Of the file.
        size: Bytes to ask for at first; further calls ask for up to :data:`_MOST`, so
            that a reader who keeps a rest keeps it few times, and memory stays small.
        start: Where to begin.
    """
    while chunk := system.pread(fd, size, start):
        yield chunk
        start += len(chunk)
        size = max(size, min(size * 2, _MOST))


# --- decoding


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """How a look at a unit ended.

    Attributes:
        result: What was loaded, or why it was refused.
        run: What folds further records in; None where nothing can follow.
    """

    result: Loaded | CheckpointRefused
    run: v3.Replay | None = None

    def value(self) -> Loaded:
        """Return or raise the result."""
        if isinstance(self.result, CheckpointRefused):
            raise self.result.with_traceback(None)
        return self.result

    def unfinished(self) -> bool:
        """Tell whether a writer at work may have caused this."""
        report = self.result.report
        if not isinstance(report, RecoveryReport):
            return False
        if report.status is RecoveryStatus.REFUSED:
            return report.reasons[-1].code in _PASSING
        return report.status is RecoveryStatus.RECOVERED_PREFIX


class _Document(NamedTuple):
    """A parsed base.

    Attributes:
        members: Of its root.
        versions: How often its root declares a version.
        fault: What version 3 refuses in it, although it can be parsed.
    """

    members: dict[str, Json]
    versions: int
    fault: ReasonCode | None


_FAULTS = {
    "duplicate": ReasonCode.BASE_DUPLICATE_MEMBER,
    "nonfinite": ReasonCode.BASE_NONFINITE_NUMBER,
}


def _parse(data: bytes) -> _Document | None:
    """Parse a base for whichever version it is; None when it is no JSON object."""
    try:
        value = loads_strict(data)
    except JsonError as error:
        fault = _FAULTS.get(error.kind)
        return None if fault is None else _parse_leniently(data, fault)
    if not isinstance(value, dict):
        return None
    return _Document(value, int("version" in value), None)


def _parse_leniently(data: bytes, fault: ReasonCode) -> _Document | None:
    """Parse what older programs wrote, the last of equal members winning."""
    root: list[tuple[str, Json]] = []

    def pairs(found: list[tuple[str, Json]]) -> dict[str, Json]:
        nonlocal root
        root = found
        return dict(found)

    value = json.loads(str(data, "utf-8"), object_pairs_hook=pairs)
    if not isinstance(value, dict) or too_deep(value):
        return None
    return _Document(value, sum(name == "version" for name, _ in root), fault)


def _decoded(pair: _Pair, attempts: int) -> _Outcome:
    """Read and decode a unit by its declared version."""
    try:
        document = _declared(pair.read_base(), attempts)
        version = document.members["version"]
        if version == v3.VERSION:
            return _journaled(pair, document, attempts)
        found = v2.decode(document.members)
        if isinstance(found, ReasonCode):
            raise _refusal(found, "base", attempts=attempts, version=version)
    except CheckpointRefused as error:
        return _Outcome(result=error)
    report = RecoveryReport(checkpoint_version=version, attempts=attempts)
    return _Outcome(result=Loaded(state=_plain(version, found), report=report))


def _declared(data: bytes, attempts: int) -> _Document:
    """Parse a base that declares one known version.

    Raises:
        CheckpointRefused: It does not.
    """
    document = _parse(data)
    if document is None:
        raise _refusal(ReasonCode.BASE_MALFORMED, "base", attempts=attempts)
    if document.versions > 1:
        raise _refusal(ReasonCode.VERSION_AMBIGUOUS, "base", attempts=attempts)
    version = document.members.get("version")
    if type(version) is not int or version not in _KNOWN:
        raise _refusal(
            ReasonCode.VERSION_UNSUPPORTED,
            "base",
            attempts=attempts,
            version=version if type(version) is int else None,
        )
    return document


def _journaled(pair: _Pair, document: _Document, attempts: int) -> _Outcome:
    """Decode a version 3 base and fold its journal in.

    Raises:
        CheckpointRefused: The base or the journal cannot be used at all.
    """
    found = document.fault or v3.decode_base(document.members)
    if isinstance(found, ReasonCode):
        raise _refusal(found, "base", attempts=attempts, version=v3.VERSION)
    reason = pair.journal
    if not isinstance(reason, ReasonCode):
        run = v3.Replay(found)
        try:
            for part in pair.read_journal():
                run.feed(part)
            return _folded(run, attempts=attempts)
        except OSError:
            reason = ReasonCode.JOURNAL_UNREADABLE
    raise _refusal(
        reason,
        "journal",
        attempts=attempts,
        version=v3.VERSION,
        generation=found.generation,
    )


def _folded(run: v3.Replay, *, attempts: int) -> _Outcome:
    report = run.report(attempts=attempts)
    state = _plain(v3.VERSION, run.state())
    if run.fatal is not None:
        return _Outcome(result=_error(report, prefix=state))
    return _Outcome(result=Loaded(state=state, report=report), run=run)


def _plain(version: int, state: State) -> dict[str, Json]:
    return {"version": version, "max_spawn": None, **state.plain()}


# --- refusing


def _refusal(
    code: ReasonCode,
    where: Literal["base", "journal", "unit"],
    *,
    attempts: int = 1,
    version: int | None = None,
    generation: str | None = None,
) -> CheckpointRefused:
    """Make the error of a unit whose journal was not read."""
    return _error(
        RecoveryReport(
            checkpoint_version=version,
            generation=generation,
            base_seq=None if generation is None else 0,
            attempts=attempts,
            reasons=(Reason(code=code, fatal=True, where=where),),
        )
    )


def _error(
    report: RecoveryReport, *, prefix: dict[str, Json] | None = None
) -> CheckpointRefused:
    """Make the typed error of a refused report."""
    reason = report.reasons[-1]
    where: str = reason.where
    if reason.line is not None:
        where += f" line {reason.line}, byte {reason.offset}"
    version = (ReasonCode.VERSION_AMBIGUOUS, ReasonCode.VERSION_UNSUPPORTED)
    kind = CheckpointVersionError if reason.code in version else CheckpointRefused
    return kind(
        f"checkpoint refused: {reason.code} ({where})",
        report=report,
        prefix=prefix,
        code=str(reason.code),
    )
