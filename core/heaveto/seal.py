"""A seal: what a runner left on disk at its end, so that a list need not load it.

The runner writes the seal into its session row (``node_metadata.checkpoint_seal``)
after its writer is closed: the facts a list shows of the checkpoint, and the identity
of both files at that moment. A reader that finds the files unchanged uses the facts;
one that finds anything else loads the unit. A seal never makes changed bytes trusted.

Two ``stat`` calls per check, no file is opened. Safe in any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from heaveto.files import OS, Os

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Seal", "read_seal", "seal", "unit_identity"]

UnitIdentity = tuple[tuple[int, ...] | None, tuple[int, ...] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """The facts a list shows of a sealed checkpoint."""

    version: int | None
    generation: str | None
    seq: int | None
    records_since_base: int | None
    saved: int
    """Operations whose outcome is in it."""
    files: UnitIdentity
    """Base and journal as they were sealed and still are."""


def seal(
    checkpoint: Path,
    *,
    version: int,
    generation: str | None,
    seq: int | None,
    saved: int,
) -> dict[str, object] | None:
    """Return the value for ``node_metadata.checkpoint_seal``.

    Args:
        checkpoint: The path of ``checkpoint.json``; its writer is closed.
        version: The format's version.
        generation: The base's generation, None for version 2.
        seq: The last acknowledged sequence number, None for version 2.
        saved: Operations whose outcome is in it.

    Returns:
        A JSON object, or None when there is no such file.
    """
    base, journal = unit_identity(checkpoint)
    if base is None:
        return None
    return {
        "version": version,
        "generation": generation,
        "seq": seq,
        "records_since_base": seq,
        "saved": saved,
        "base": list(base),
        "journal": None if journal is None else list(journal),
    }


def read_seal(
    metadata: Mapping[str, object], checkpoint: Path | str, *, system: Os = OS
) -> Seal | None:
    """Return the sealed facts, or None when the files are not as they were sealed.

    Args:
        metadata: A session's ``node_metadata``.
        checkpoint: The path of ``checkpoint.json``.
        system: The system calls.
    """
    found = metadata.get("checkpoint_seal")
    if not isinstance(found, dict) or not _sound(found):
        return None
    base, journal = unit_identity(checkpoint, system=system)
    if base is None or list(base) != found["base"]:
        return None
    if found["journal"] != (None if journal is None else list(journal)):
        return None
    return Seal(
        version=found["version"],
        generation=found["generation"],
        seq=found["seq"],
        records_since_base=found["records_since_base"],
        saved=found["saved"],
        files=(base, journal),
    )


def unit_identity(checkpoint: Path | str, *, system: Os = OS) -> UnitIdentity:
    """Return what tells this state of base and journal from every other.

    Size and modification time alone do not (a rewrite can keep both), so device,
    inode and change time are in it too. Absent files give None.
    """
    text = str(checkpoint)
    return _identity(text, system), _identity(text + ".journal", system)


def _identity(path: str, system: Os) -> tuple[int, ...] | None:
    """Return the identity of one file, None when it cannot be looked at."""
    try:
        found = system.stat(path)
    except OSError:
        return None
    return (
        found.st_dev,
        found.st_ino,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
    )


def _sound(found: Mapping[str, object]) -> bool:
    """Tell whether the members have their types; a row is only data."""
    get = found.get
    return (
        isinstance(get("version"), int)
        and isinstance(get("generation"), str | None)
        and isinstance(get("seq"), int | None)
        and isinstance(get("records_since_base"), int | None)
        and isinstance(get("saved"), int)
        and isinstance(get("base"), list)
        and isinstance(get("journal"), list | None)
    )
