"""Begin, commit and repair: everything that changes which generation is current.

Life of a generation::

    begin      lock the root; .pending := gen-N (synced); mkdir gen-N, empty, exclusive
    saves      temp + fsync + rename inside gen-N
    commit     fsync gen-N -> fsync root -> rename .pending to current, which is the
               commit point -> fsync root -> clean up older generations

Before that rename a crash leaves the prior generation; after it, the new one (SPEC
J-02, J-06). An attempt that failed in any step is over: the next begin hands out an
empty directory, never one with files of an earlier attempt (SPEC J-28). The root is
synced before the rename as well, so the pointer never names an entry that is less
durable than itself (SPEC J-34).

``.pending`` becomes ``current`` by the rename, so it exists exactly while an attempt is
open or was abandoned, and what it names may be removed.

One process holds the store from begin to commit, by an flock on the root. Within the
process the latest begin counts.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import threading
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

from heaveto.errors import (
    FileIdentityError,
    FileMissingError,
    FileTypeError,
    GenerationError,
    LockHeldError,
)
from heaveto.files import (
    Directory,
    Identity,
    Os,
    OwnedFile,
    make_directories,
    replace_file,
)
from heaveto.generations.layout import (
    CURRENT,
    FILES,
    MANIFEST,
    PENDING,
    generation_name,
    generation_number,
)
from heaveto.generations.pin import (
    Pin,
    close_quietly,
    io_error,
    open_root,
    read_pointer,
    survivors,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["Attempt", "begin", "commit", "find_attempt", "recover", "reset", "writing"]

_log = logging.getLogger("heaveto.generations")


@dataclass(slots=True, kw_only=True)
class Attempt:
    """A generation that was begun in this process and is not committed."""

    root: Directory
    directory: Directory
    pending: OwnedFile
    number: int
    base: int | None
    """What ``current`` named when it was begun."""
    open: bool = True


@dataclass(slots=True)
class _Attempts:
    """The attempts of this process, one a root; the flock lives in the root handle."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    by_root: dict[Identity, Attempt] = field(default_factory=dict)


_attempts = _Attempts()


def _forget_in_child() -> None:
    """Leave the attempts to the parent after a fork.

    The child shares the flock with its parent, so neither may it write under it, nor
    keep it alive, nor let go of it: the handles are closed without an unlock. Another
    thread of the parent may have held the lock of the process; it is not in the child.
    """
    _attempts.lock = threading.RLock()
    for attempt in list(_attempts.by_root.values()):
        attempt.root.holds = False
        _end(attempt)


os.register_at_fork(after_in_child=_forget_in_child)


def find_attempt(path: Path) -> Attempt | None:
    """Return the open attempt of this process whose directory is at a path."""
    if generation_number(path.name) is None:
        return None
    with _attempts.lock:
        for attempt in _attempts.by_root.values():
            if attempt.open and attempt.directory.path == path:
                return attempt
    return None


@contextlib.contextmanager
def writing(doing: str) -> Iterator[None]:
    """Keep other threads of this process out and map what the system says."""
    with _attempts.lock:
        try:
            yield
        except OSError as error:
            raise io_error(doing, error) from error
        except (FileIdentityError, FileMissingError, FileTypeError) as error:
            raise GenerationError(f"{doing}: {error}", code="io") from error


def begin(path: Path, system: Os) -> Attempt:
    """Lock the store and make the next generation's directory.

    Raises:
        GenerationError: ``busy``, ``pointer_malformed``, ``pointer_dangling``, ``io``.
    """
    with writing("begin"):
        root = _take_root(path, system)
        try:
            attempt = _begin(root)
        except BaseException:
            close_quietly(root)
            raise
        _attempts.by_root[root.identity] = attempt
        return attempt


def _take_root(path: Path, system: Os) -> Directory:
    """Open and lock the root, ending an abandoned attempt of this process."""
    make_directories(path, system=system)
    root = Directory.open(path, system=system)
    try:
        abandoned = _attempts.by_root.get(root.identity)
        if abandoned is not None:
            _end(abandoned)
        root.hold()
    except LockHeldError:
        close_quietly(root)
        raise GenerationError(
            f"another process is writing to {path}", code="busy"
        ) from None
    except BaseException:
        close_quietly(root)
        raise
    return root


def _begin(root: Directory) -> Attempt:
    """Make the pending directory under the lock."""
    base = _checked_base(root)
    _sweep_temps(root)
    if base is None and root.identity_of(MANIFEST) is not None:
        _migrate(root)
        base = 0
    number = 0 if base is None else base + 1
    directory, pending = _make_pending(root, number, base)
    return Attempt(
        root=root, directory=directory, pending=pending, number=number, base=base
    )


def _checked_base(root: Directory) -> int | None:
    """Return the committed generation's number, or refuse a broken pointer."""
    pointer = read_pointer(root)
    if pointer.state in ("malformed", "dangling"):
        left = survivors(root)
        raise GenerationError(
            f"current is {pointer.state}; generations that are there: "
            f"{', '.join(left[-8:]) or 'none'}; "
            "choose one with recover(), or start over with reset()",
            code=f"pointer_{pointer.state}",
            survivors=left,
        )
    return pointer.number


def _make_pending(
    root: Directory, number: int, base: int | None
) -> tuple[Directory, OwnedFile]:
    """Name the attempt in ``.pending`` and make its empty directory."""
    name = generation_name(number)
    _clear(root, name, keep=base is None)
    _remove_pending(root)
    pending = root.create(PENDING, mode=_mode_of(root, CURRENT, 0o600))
    try:
        pending.append(name.encode("ascii") + b"\n")
        pending.sync()
        mode = 0o700 if base is None else _mode_of(root, generation_name(base), 0o700)
        return root.make(name, mode), pending
    except BaseException:
        with contextlib.suppress(OSError):
            pending.close()
        raise


def _remove_pending(root: Directory) -> None:
    """Remove what an abandoned attempt left; a directory there is moved aside."""
    found = root.stat(PENDING)
    if found is not None and stat.S_ISDIR(found.st_mode):
        _set_aside(root, [PENDING])
    else:
        root.remove(PENDING)


def _migrate(root: Directory) -> None:
    """Copy the flat files into gen-0000 durably and point at it (SPEC J-25)."""
    target, pending = _make_pending(root, 0, None)
    with target, pending:
        for file in FILES:
            found = root.stat(file)
            if found is not None:
                mode = stat.S_IMODE(found.st_mode)
                replace_file(
                    target, file, root.read(file), mode=mode, sync_directory=False
                )
        target.sync()
        root.sync()
        root.publish(pending, CURRENT)
        root.sync()


def commit(path: Path, system: Os, number: int, keep: int) -> None:
    """Make a begun generation the current one; see ``EngineStateStore``."""
    with _attempts.lock:
        attempt = _open_attempt(path, system, number)
        _check_complete(attempt)
        attempt.open = False  # a failed sync proves nothing when it is repeated
        try:
            _publish(attempt)
            _collect(attempt.root, number, keep)
        finally:
            _end(attempt)


def _open_attempt(path: Path, system: Os, number: int) -> Attempt:
    """Return the open attempt of that number."""
    root = open_root(path, system)
    attempt = None
    if root is not None:
        attempt = _attempts.by_root.get(root.identity)
        close_quietly(root)
    wanted = attempt is not None and attempt.open and attempt.number == number
    if attempt is None or not wanted or type(number) is not int:
        raise GenerationError(
            "that generation was not begun here, or its attempt is over",
            code="not_pending",
        )
    return attempt


def _check_complete(attempt: Attempt) -> None:
    """Check the pending directory before the swap (SPEC J-32)."""
    name = generation_name(attempt.number)
    with writing(f"checking {name}"):
        if attempt.root.identity_of(name) != attempt.directory.identity:
            raise GenerationError(
                f"{name} is not the directory that was begun", code="not_pending"
            )
        pin = Pin(attempt.root, attempt.directory, attempt.number)
        if attempt.directory.identity_of(MANIFEST) is None or pin.manifest() is None:
            raise GenerationError(f"{name} has no manifest", code="state_corrupt")
        for file in FILES:
            found = attempt.directory.stat(file)
            if found is not None and not stat.S_ISREG(found.st_mode):
                raise GenerationError(
                    f"{name}/{file}: not a regular file", code="state_corrupt"
                )


def _publish(attempt: Attempt) -> None:
    """Sync, swap the pointer, sync."""
    root = attempt.root
    name = generation_name(attempt.number)
    try:
        root.verify()
        if read_pointer(root).number != attempt.base:
            raise GenerationError(
                "current was changed by another writer", code="not_pending"
            )
        attempt.directory.sync()
        root.sync()
        root.publish(attempt.pending, CURRENT)
    except (OSError, FileIdentityError) as error:
        if not _names(root, attempt.number):
            raise GenerationError(
                f"{name} is not committed: {_word(error)}", code="io"
            ) from error
        raise _unsynced(name, error) from error
    try:
        root.sync()
    except OSError as error:
        raise _unsynced(name, error) from error


def _names(root: Directory, number: int) -> bool:
    """Tell whether ``current`` names the generation now, after an uncertain error."""
    try:
        return read_pointer(root).number == number
    except (GenerationError, OSError):
        return False


def _unsynced(name: str, error: Exception) -> GenerationError:
    """Say that the swap is done and its durability unknown (SPEC J-44)."""
    return GenerationError(
        f"{name} is committed, but the directory was not synced: {_word(error)}",
        code="committed_unsynced",
    )


def _word(error: Exception) -> str:
    """Name an error without what it may quote."""
    return str(io_error("swap", error) if isinstance(error, OSError) else error)


def recover(
    path: Path,
    system: Os,
    generation: int | str,
    check: Callable[[Pin], object],
) -> None:
    """Make an existing generation the current one; see ``EngineStateStore``."""
    number = (
        generation_number(generation) if isinstance(generation, str) else generation
    )
    with _exclusive(path, system) as root:
        left = survivors(root)
        if type(number) is not int or number not in map(generation_number, left):
            raise GenerationError(
                f"no such generation; there are: {', '.join(left) or 'none'}",
                code="not_pending",
                survivors=left,
            )
        name = generation_name(number)
        with root.subdirectory(name) as directory:
            check(Pin(root, directory, number))
        later = [n for n in left if (generation_number(n) or 0) > number]
        found = root.stat(CURRENT)
        if found is not None and stat.S_ISDIR(found.st_mode):
            later.append(CURRENT)  # a directory there cannot be replaced by a file
        _set_aside(root, later)
        pointer = name.encode("ascii") + b"\n"
        replace_file(root, CURRENT, pointer, mode=_mode_of(root, CURRENT, 0o600))


def reset(path: Path, system: Os) -> None:
    """Move everything aside; see ``EngineStateStore``."""
    with _exclusive(path, system) as root:
        present = [n for n in (CURRENT, *FILES) if root.identity_of(n) is not None]
        _set_aside(root, present + survivors(root))


@contextlib.contextmanager
def _exclusive(path: Path, system: Os) -> Iterator[Directory]:
    """Hold the store for a repair."""
    with writing("repair"):
        root = _take_root(path, system)
        try:
            yield root
        finally:
            close_quietly(root)


def _mode_of(root: Directory, name: str, default: int) -> int:
    """Return the mode of what a name leads to, as the next one's mode (SPEC J-41)."""
    found = root.stat(name)
    return default if found is None else stat.S_IMODE(found.st_mode)


def _clear(root: Directory, name: str, *, keep: bool) -> None:
    """Make room for a pending directory.

    What ``.pending`` names was begun and never committed, so it is removed; so is
    anything above a committed generation. Without a ``current`` nothing else tells an
    abandoned attempt from a lost store, so then it is moved aside (SPEC J-28, J-48).
    """
    if root.identity_of(name) is None:
        return
    try:
        begun = root.read(PENDING, limit=64).decode("ascii", "replace").strip()
    except (FileMissingError, FileTypeError):
        begun = ""
    try:
        if begun == name or not keep:
            root.remove_tree(name)
            return
    except FileTypeError:
        pass  # a file or a link stands there; it is not ours to remove
    aside = _set_aside(root, [name])
    warnings.warn(
        f"{name} stood there without a pointer to it; it was moved to {aside}",
        RuntimeWarning,
        stacklevel=6,
    )


def _set_aside(root: Directory, names: list[str]) -> str:
    """Move names into a fresh directory of the root and return its name."""
    aside = f"aside-{uuid4().hex[:8]}"
    if not names:
        return aside
    with root.make(aside) as target:
        for name in names:
            root.system.rename(name, name, dir_fd=root.fd, target_dir_fd=target.fd)
        target.sync()
    root.sync()
    return aside


def _sweep_temps(root: Directory) -> None:
    """Remove temporary files that a killed writer left, under the lock (SPEC J-45)."""
    for name in root.names():
        if name.startswith(".") and name.endswith(".tmp"):
            with contextlib.suppress(OSError):
                root.remove(name)


def _collect(root: Directory, number: int, keep: int) -> None:
    """Remove committed generations outside the window; never fail (SPEC J-11, J-33)."""
    try:
        names = [n for n in survivors(root) if (generation_number(n) or 0) <= number]
    except OSError:
        return
    for name in names[:-keep]:
        try:
            # The manifest goes first: half a directory never looks whole.
            with root.subdirectory(name) as old:
                old.remove(MANIFEST)
            root.remove_tree(name)
        except (OSError, FileTypeError, FileMissingError):
            _log.debug("could not remove %s", name)
        else:
            _log.debug("removed %s", name)


def _end(attempt: Attempt) -> None:
    """End an attempt: drop its handles; closing the root releases the lock."""
    attempt.open = False
    if _attempts.by_root.get(attempt.root.identity) is attempt:
        del _attempts.by_root[attempt.root.identity]
    with contextlib.suppress(OSError):
        attempt.pending.close()
    close_quietly(attempt.directory)
    close_quietly(attempt.root)
