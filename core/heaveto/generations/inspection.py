"""A generation store as a person inspects it; read-only.

The view says what is there, what a load would read and why, and what is wrong. It
holds names, sizes, counts and identities, never the content of a record.
"""

from __future__ import annotations

import hashlib
import itertools
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from heaveto.errors import (
    FileMissingError,
    FileTypeError,
    GenerationError,
)
from heaveto.files import OS, Directory, Os
from heaveto.generations.layout import (
    CANDIDATES,
    FILES,
    MANIFEST,
    RECOGNIZERS,
    SESSION_STATE,
    decode_lines,
    decode_object,
    generation_name,
    generation_number,
)
from heaveto.generations.pin import (
    Pin,
    absolute,
    open_root,
    read_pointer,
    survivors,
)

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["GenerationView", "StoreView", "diff_generations", "inspect_store"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationView:
    """One generation directory."""

    name: str
    bytes: int
    turn_count: int | None
    engine_identity: str | None
    parent_engine_identity: str | None
    files: tuple[str, ...]
    problem: str | None
    """Why it cannot be loaded; None when it can."""

    def as_dict(self) -> dict[str, object]:
        """Return the JSON of PRODUCT 3."""
        return {
            "name": self.name,
            "bytes": self.bytes,
            "turn_count": self.turn_count,
            "engine_identity": self.engine_identity,
            "parent_engine_identity": self.parent_engine_identity,
            "files": list(self.files),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreView:
    """A whole store.

    ``reads`` says in one sentence what a load would read and why; ``problems`` are
    sentences too. A store without problems is what ``heaveto generations`` ends with
    status 0 for.
    """

    path: str
    current: str | None
    predecessor: str | None
    orphans: tuple[str, ...]
    pointer: Literal["ok", "missing", "dangling", "malformed"]
    generations: tuple[GenerationView, ...]
    flat: bool
    """True when the flat layout is what a load reads."""
    reads: str
    problems: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """Return the JSON of PRODUCT 3."""
        return {
            "current": self.current,
            "predecessor": self.predecessor,
            "orphans": list(self.orphans),
            "pointer": self.pointer,
            "generations": [view.as_dict() for view in self.generations],
        }


def inspect_store(path: Path, *, system: Os = OS) -> StoreView | None:
    """Look at a store without changing anything.

    Args:
        path: The store's root.
        system: The system calls.

    Returns:
        The view; None when there is no such directory.

    Raises:
        GenerationError: ``io``, when the directory cannot be read at all.
    """
    root = open_root(absolute(path), system)
    if root is None:
        return None
    with root:
        pointer = read_pointer(root)
        names = survivors(root)
        views = tuple(_view(root, name) for name in names)
        committed = [
            view
            for view in views
            if pointer.state == "ok" and _number(view.name) <= (pointer.number or 0)
        ]
        aside = [name for name in root.names() if name.startswith("aside-")]
        flat = pointer.state == "missing" and root.identity_of(MANIFEST) is not None
        current = committed[-1].name if committed else None
        return StoreView(
            path=str(path),
            current=current,
            predecessor=committed[-2].name if len(committed) > 1 else None,
            orphans=(*(v.name for v in views if v not in committed), *aside),
            pointer=pointer.state,
            generations=views,
            flat=flat,
            reads=_reads(pointer.state, pointer.number, flat),
            problems=tuple(_problems(pointer.state, pointer.number, views, committed)),
        )


def _number(name: str) -> int:
    number = generation_number(name)
    assert number is not None
    return number


def _view(root: Directory, name: str) -> GenerationView:
    """Look at one generation directory."""
    files: list[str] = []
    size = 0
    manifest: dict[str, Any] | None = None
    problem = None
    try:
        with root.subdirectory(name) as directory:
            for file in directory.names():
                found = directory.stat(file)
                if found is not None and stat.S_ISREG(found.st_mode):
                    files.append(file)
                    size += found.st_size
            pin = Pin(root, directory, _number(name))
            if MANIFEST in files:
                manifest = pin.manifest()
                _read_all(pin)
            problem = "no manifest" if manifest is None else None
    except (FileMissingError, FileTypeError):
        problem = "removed while it was read"
    except GenerationError as error:
        problem = str(error)
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
    return GenerationView(
        name=name,
        bytes=size,
        turn_count=_typed(manifest, "turn_count", int),
        engine_identity=_typed(manifest, "engine_identity", str),
        parent_engine_identity=_typed(manifest, "parent_engine_identity", str),
        files=tuple(files),
        problem=problem,
    )


def _read_all(pin: Pin) -> None:
    """Read the files beside the manifest as a load would."""
    for name in (RECOGNIZERS, CANDIDATES):
        data = pin.read(name)
        if data is not None:
            decode_lines(data, f"{pin.label}/{name}")
    data = pin.read(SESSION_STATE)
    if data:
        decode_object(data, f"{pin.label}/{SESSION_STATE}")


def _typed(manifest: dict[str, Any] | None, member: str, kind: type) -> Any:
    """Return a member of the right type, else None."""
    value = None if manifest is None else manifest.get(member)
    return value if type(value) is kind else None


def _reads(state: str, number: int | None, flat: bool) -> str:
    """Say what a load would read, and why."""
    if state == "ok":
        assert number is not None
        return f"a load reads {generation_name(number)}: current names it"
    if state == "malformed":
        return "a load refuses: current does not hold the name of a generation"
    if state == "dangling":
        return "a load reads nothing: current names a directory that is not there"
    if flat:
        return "a load reads the flat layout: there is no current, and a manifest"
    return "a load reads nothing: there is no current and no flat manifest"


def _problems(
    state: str,
    number: int | None,
    views: tuple[GenerationView, ...],
    committed: list[GenerationView],
) -> list[str]:
    """List what is wrong, in sentences."""
    found = []
    if state == "malformed":
        found.append("current does not hold the name of a generation")
    if state == "dangling":
        found.append(
            f"current names {generation_name(number or 0)}, which is not there"
        )
    if state == "missing" and views:
        found.append("there are generation directories, but no current names one")
    found += [
        f"{view.name}: {view.problem}" for view in committed if view.problem is not None
    ]
    for before, after in itertools.pairwise(committed):
        if _number(after.name) - _number(before.name) == 1 and _lineage_broken(
            before, after
        ):
            found.append(
                f"{after.name}: its parent identity is not that of {before.name}"
            )
    return found


def _lineage_broken(before: GenerationView, after: GenerationView) -> bool:
    """Tell whether two neighbours name different engines (SPEC J-21)."""
    known = before.engine_identity and after.parent_engine_identity
    return bool(known) and before.engine_identity != after.parent_engine_identity


def diff_generations(
    path: Path, first: str, second: str, *, system: Os = OS
) -> list[dict[str, object]]:
    """Compare two generations file by file, by size and digest.

    Args:
        path: The store's root.
        first: A generation's name.
        second: Another one's.
        system: The system calls.

    Returns:
        One ``{"file", "change", "from", "to"}`` for every file that differs; ``from``
        and ``to`` are None or ``{"bytes", "blake2b", "records"}``, ``change`` is
        added, removed or changed. Values never.

    Raises:
        GenerationError: ``not_pending`` for a name that is not there; ``io``.
    """
    root = open_root(absolute(path), system)
    if root is None:
        raise GenerationError(f"no such directory: {path}", code="io")
    with root:
        sides = [_digests(root, name) for name in (first, second)]
    changes: list[dict[str, object]] = []
    for file in FILES:
        one, two = sides[0].get(file), sides[1].get(file)
        if one == two:
            continue
        change = "added" if one is None else "removed" if two is None else "changed"
        changes.append({"file": file, "change": change, "from": one, "to": two})
    return changes


def _digests(root: Directory, name: str) -> dict[str, dict[str, object]]:
    """Return size, digest and number of records of each file of a generation."""
    left = survivors(root)
    if name not in left:
        raise GenerationError("no such generation", code="not_pending", survivors=left)
    found: dict[str, dict[str, object]] = {}
    with root.subdirectory(name) as directory:
        for file in FILES:
            try:
                data = directory.read(file)
            except (FileMissingError, FileTypeError):
                continue
            found[file] = {
                "bytes": len(data),
                "blake2b": hashlib.blake2b(data).hexdigest(),
                "records": data.count(b"\n") if file.endswith(".jsonl") else 1,
            }
    return found
