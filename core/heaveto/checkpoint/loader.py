"""Loading a checkpoint: the one way to read it (SPEC F-01..F-24, F-38..F-47).

:func:`load_checkpoint` takes ``checkpoint.json`` and, for version 3, its journal as one
unit, folds them and reports what it found. It writes nothing, takes no lock, follows no
link to a file, and works beside a live writer: both files are opened, and the pair is
taken only when the base's name still leads to the opened base afterwards. A base is
replaced whole before its journal is, so a pair pinned that way belongs together, and it
holds everything acknowledged before the load began; what is read after that comes from
the two handles, however the names move on.

Dispatch is by the list of known versions, nothing is guessed: ``1``, ``2`` and ``3`` as
integers, declared exactly once.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from heaveto.checkpoint import v2, v3
from heaveto.checkpoint.report import Reason, ReasonCode, RecoveryReport
from heaveto.errors import (
    CheckpointRefused,
    CheckpointVersionError,
    FileMissingError,
    FileTypeError,
)
from heaveto.files import OS, Directory, Identity, Os

if TYPE_CHECKING:
    from collections.abc import Callable

    from heaveto.checkpoint.state import State
    from heaveto.jsonvalue import Json

__all__ = ["JOURNAL_SUFFIX", "Loaded", "load_checkpoint"]

JOURNAL_SUFFIX = ".journal"
ATTEMPTS = 16
_CHUNK = 1 << 22
_KNOWN = (1, 2, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A checkpoint that may be used.

    Attributes:
        state: ``version`` of the source, ``session_id prompt plan flow_context ops
            spawned config max_spawn`` and unknown members, all plain; the caller owns
            it.
        report: What the load found; clean or a recovered prefix.
    """

    state: dict[str, Any]
    report: RecoveryReport


@dataclass(frozen=True, slots=True)
class _Capture:
    base: bytes
    journal: bytes | ReasonCode


def load_checkpoint(
    path: Path | str,
    *,
    system: Os = OS,
    sleep: Callable[[float], None] = time.sleep,
) -> Loaded:
    """Load a checkpoint of any known version.

    Args:
        path: Of ``checkpoint.json``; its journal is looked for beside it.
        system: The system calls.
        sleep: How to wait between attempts, in seconds.

    Returns:
        The state and the report.

    Raises:
        CheckpointVersionError: The version is unknown, ambiguous or missing.
        CheckpointRefused: Anything else that keeps it from being used; ``report`` says
            what, ``prefix`` is the state before a bad record, for inspection alone.
    """
    path = Path(path)
    attempts = 0
    try:
        with Directory.open(path.parent, system=system) as directory:
            for attempts in range(1, ATTEMPTS + 1):
                captured = _capture(directory, path.name)
                if captured is not None:
                    return _decoded(captured, attempts)
                sleep(min(0.001 * attempts, 0.01))
    except FileMissingError:
        _refuse(ReasonCode.BASE_MISSING, "base", attempts=max(1, attempts))
    except (FileTypeError, OSError, ValueError):
        _refuse(ReasonCode.BASE_UNREADABLE, "base", attempts=max(1, attempts))
    return _refuse(ReasonCode.INCOHERENT_UNIT, "unit", attempts=attempts)


def _capture(directory: Directory, name: str) -> _Capture | None:
    """Read a pair that belongs together; None when the base was replaced meanwhile."""
    with directory.reading(name) as base:
        before = directory.system.fstat(base)
        try:
            with directory.reading(name + JOURNAL_SUFFIX) as journal:
                pinned = directory.identity_of(name) == Identity.of(before)
                base_bytes = _read(directory.system, base)
                journal_bytes: bytes | ReasonCode = _read(directory.system, journal)
        except FileMissingError:
            journal_bytes = ReasonCode.JOURNAL_MISSING
        except (FileTypeError, OSError):
            journal_bytes = ReasonCode.JOURNAL_UNREADABLE
        if isinstance(journal_bytes, ReasonCode):
            base_bytes = _read(directory.system, base)
            pinned = directory.identity_of(name) == Identity.of(before)
        after = directory.system.fstat(base)
    unchanged = (before.st_size, before.st_mtime_ns) == (
        after.st_size,
        after.st_mtime_ns,
    )
    return _Capture(base_bytes, journal_bytes) if pinned and unchanged else None


def _read(system: Os, fd: int) -> bytes:
    """Read a file from where its descriptor stands to its present end."""
    chunks = []
    while chunk := system.read(fd, _CHUNK):
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


class _Notes:
    """Parses a base once for every version and notes what strictness would refuse."""

    def __init__(self) -> None:
        self.fault: ReasonCode | None = None
        self.root: list[tuple[str, Json]] | None = None

    def pairs(self, found: list[tuple[str, Json]]) -> dict[str, Json]:
        made = dict(found)
        if len(made) != len(found):
            self.fault = self.fault or ReasonCode.BASE_DUPLICATE_MEMBER
        self.root = found
        return made

    def number(self, text: str) -> float:
        value = float(text)
        if value - value != 0.0:
            self.fault = self.fault or ReasonCode.BASE_NONFINITE_NUMBER
        return value


def _parse(data: bytes) -> tuple[dict[str, Json], _Notes] | None:
    notes = _Notes()
    decoder = json.JSONDecoder(
        object_pairs_hook=notes.pairs,
        parse_float=notes.number,
        parse_constant=notes.number,
    )
    try:
        document = decoder.decode(data.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return (document, notes) if isinstance(document, dict) else None


def _decoded(captured: _Capture, attempts: int) -> Loaded:
    parsed = _parse(captured.base)
    if parsed is None:
        _refuse(ReasonCode.BASE_MALFORMED, "base", attempts=attempts)
    document, notes = parsed
    if sum(name == "version" for name, _ in notes.root or ()) > 1:
        _refuse(ReasonCode.VERSION_AMBIGUOUS, "base", attempts=attempts)
    version = document.get("version")
    if type(version) is not int or version not in _KNOWN:
        known = version if type(version) is int else None
        _refuse(
            ReasonCode.VERSION_UNSUPPORTED, "base", attempts=attempts, version=known
        )
    if version == v3.VERSION:
        return _journaled(captured, document, notes.fault, attempts)
    found = v2.decode(document)
    if isinstance(found, ReasonCode):
        _refuse(found, "base", attempts=attempts, version=version)
    report = RecoveryReport(checkpoint_version=version, attempts=attempts)
    return Loaded(state=_plain(version, found), report=report)


def _journaled(
    captured: _Capture,
    document: dict[str, Json],
    fault: ReasonCode | None,
    attempts: int,
) -> Loaded:
    found = fault or v3.decode_base(document)
    if isinstance(found, ReasonCode):
        _refuse(found, "base", attempts=attempts, version=v3.VERSION)
    if isinstance(captured.journal, ReasonCode):
        _refuse(
            captured.journal,
            "journal",
            attempts=attempts,
            version=v3.VERSION,
            generation=found.generation,
        )
    run = v3.Replay(found)
    run.feed(captured.journal)
    report = run.report(attempts=attempts)
    state = _plain(v3.VERSION, run.state())
    if run.fatal is not None:
        raise refusal(report, prefix=state)
    return Loaded(state=state, report=report)


def _plain(version: int, state: State) -> dict[str, Json]:
    return {"version": version, "max_spawn": None, **state.plain()}


def _refuse(
    code: ReasonCode,
    where: Any,
    *,
    attempts: int,
    version: int | None = None,
    generation: str | None = None,
) -> NoReturn:
    raise refusal(
        RecoveryReport(
            checkpoint_version=version,
            generation=generation,
            base_seq=None if generation is None else 0,
            attempts=attempts,
            reasons=(Reason(code=code, fatal=True, where=where),),
        )
    ) from None


def refusal(
    report: RecoveryReport, *, prefix: dict[str, Json] | None = None
) -> CheckpointRefused:
    """Make the typed error of a refused report."""
    reason = report.reasons[-1]
    where = str(reason.where)
    if reason.line is not None:
        where += f" line {reason.line}, byte {reason.offset}"
    kind = (
        CheckpointVersionError
        if reason.code.startswith("version_")
        else CheckpointRefused
    )
    return kind(
        f"checkpoint refused: {reason.code} ({where})",
        report=report,
        prefix=prefix,
        code=str(reason.code),
    )
