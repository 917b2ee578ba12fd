"""Reading one generation: which directory a load reads from, and from that one only.

A :class:`Pin` holds an open handle of one generation directory (or of a flat root).
Every file of a load is read through that handle, so a commit in between cannot mix two
generations (SPEC J-13, J-35). What a handle cannot prevent is that clean-up removes the
files of a directory that has since fallen out of the window; :meth:`Pin.read` tells
that apart from a file that never was there. Nothing here writes (SPEC J-14).
"""

from __future__ import annotations

import errno
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from heaveto.errors import FileMissingError, FileTypeError, GenerationError
from heaveto.files import Directory, Os
from heaveto.generations.layout import (
    CURRENT,
    MANIFEST,
    decode_manifest,
    generation_name,
    generation_number,
    parse_pointer,
)

__all__ = [
    "Pin",
    "Pointer",
    "absolute",
    "open_pin",
    "open_root",
    "read_pointer",
    "survivors",
]

_POINTER_BYTES = 128
_ATTEMPTS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """What ``current`` says: a number when it is well formed."""

    state: Literal["ok", "missing", "dangling", "malformed"]
    number: int | None = None


class Pin:
    """One generation directory, or a flat root, held open for a load.

    Attributes:
        number: The generation's number; None for the flat layout.
        directory: The open handle.
        taken: The parts that were already read through it.
    """

    def __init__(
        self, root: Directory, directory: Directory, number: int | None
    ) -> None:
        """Adopt both handles."""
        self._root = root
        self.directory = directory
        self.number = number
        self.taken: set[str] = set()

    @property
    def label(self) -> str:
        """Return the generation's name, or ``flat layout``."""
        return "flat layout" if self.number is None else generation_name(self.number)

    def close(self) -> None:
        """Close both handles; errors of closing a directory change nothing."""
        for directory in {id(d): d for d in (self.directory, self._root)}.values():
            close_quietly(directory)

    def read(self, name: str) -> bytes | None:
        """Read one file whole.

        Returns:
            Its bytes; None when this generation has no such file.

        Raises:
            GenerationError: ``superseded``, when the directory was removed meanwhile;
                ``state_corrupt``, when the name is no regular file; ``io``.
        """
        try:
            return self.directory.read(name)
        except FileMissingError:
            if not self.holds():
                raise GenerationError(
                    f"{self.label} was replaced during the load; load again",
                    code="superseded",
                ) from None
            return None
        except FileTypeError:
            raise GenerationError(
                f"{self.label}/{name}: not a regular file", code="state_corrupt"
            ) from None
        except OSError as error:
            raise io_error(f"reading {self.label}/{name}", error) from error

    def holds(self) -> bool:
        """Tell whether the directory still stands under its name, manifest first.

        Clean-up removes the manifest before anything else, so a directory that has
        lost other files has lost its manifest too, or its name.
        """
        if self.number is None:
            return self._root.identity_of(CURRENT) is None
        name = generation_name(self.number)
        if self._root.identity_of(name) != self.directory.identity:
            return False
        if self.directory.identity_of(MANIFEST) is not None:
            return True
        return read_pointer(self._root) == Pointer(state="ok", number=self.number)

    def manifest(self) -> dict[str, Any] | None:
        """Read the manifest; refuses a newer schema before anything else is read."""
        data = self.read(MANIFEST)
        if data is None:
            return None
        return decode_manifest(data, f"{self.label}/{MANIFEST}")


def absolute(path: Path | str) -> Path:
    """Make a root independent of a later change of the working directory.

    Raises:
        GenerationError: ``io``, for what is no path, or when the working directory
            that it is relative to is gone.
    """
    try:
        whole = Path(path).absolute()
    except OSError as error:
        raise io_error("finding the working directory", error) from error
    except TypeError:
        raise GenerationError("the root is not a path", code="io") from None
    if "\0" in str(whole):
        raise GenerationError("a path cannot hold a NUL character", code="io")
    return whole


def open_root(path: Path, system: Os) -> Directory | None:
    """Open the store's folder; None when there is none (SPEC J-50)."""
    try:
        return Directory.open(path, system=system)
    except FileMissingError:
        return None
    except FileTypeError as error:
        raise GenerationError(str(error), code="io") from None
    except OSError as error:
        raise io_error(f"opening {path}", error) from error


def read_pointer(root: Directory) -> Pointer:
    """Read ``current``, and look whether what it names is a real directory."""
    try:
        number = parse_pointer(root.read(CURRENT, limit=_POINTER_BYTES))
    except FileMissingError:
        return Pointer(state="missing")
    except (FileTypeError, GenerationError):
        return Pointer(state="malformed")
    except OSError as error:
        raise io_error("reading current", error) from error
    try:
        root.subdirectory(generation_name(number)).close()
    except (FileMissingError, FileTypeError):
        return Pointer(state="dangling", number=number)
    except OSError as error:
        raise io_error(f"opening {generation_name(number)}", error) from error
    return Pointer(state="ok", number=number)


def open_pin(path: Path, system: Os, *, strict: bool) -> Pin | None:
    """Resolve the pointer once and hold what it names.

    Args:
        path: The store's root.
        system: The system calls.
        strict: Raise for a dangling pointer instead of a warning and None.

    Returns:
        The pin; None when there is no checkpoint. The flat root is read only while
        there is no ``current`` at all (SPEC J-29) and it has a manifest (SPEC J-47).

    Raises:
        GenerationError: ``pointer_malformed``; ``pointer_dangling`` when strict.
    """
    for _ in range(_ATTEMPTS):
        root = open_root(path, system)
        if root is None:
            return None
        try:
            pin, settled = _resolve(root, strict)
        except BaseException:
            close_quietly(root)
            raise
        if pin is None:
            close_quietly(root)
        if settled:
            return pin
    raise GenerationError(
        f"current changed during each of {_ATTEMPTS} attempts to follow it",
        code="superseded",
    )


def _resolve(root: Directory, strict: bool) -> tuple[Pin | None, bool]:
    """Return the pin, and whether the answer is final."""
    pointer = read_pointer(root)
    if pointer.state == "malformed":
        raise GenerationError(
            "current does not hold the name of a generation",
            code="pointer_malformed",
            survivors=survivors(root),
        )
    if pointer.state == "missing":
        # A commit may have made the pointer between the two looks.
        flat = root.identity_of(MANIFEST) is not None
        if root.identity_of(CURRENT) is not None:
            return None, False
        return (Pin(root, root, None) if flat else None), True
    assert pointer.number is not None
    name = generation_name(pointer.number)
    if pointer.state == "ok":
        try:
            return Pin(root, root.subdirectory(name), pointer.number), True
        except (FileMissingError, FileTypeError):
            return None, False
    if read_pointer(root) != pointer:
        return None, False
    message = f"current names {name}, which is not there"
    if strict:
        raise GenerationError(
            message, code="pointer_dangling", survivors=survivors(root)
        )
    warnings.warn(message, RuntimeWarning, stacklevel=5)
    return None, True


def survivors(root: Directory) -> list[str]:
    """Return the names of the real generation directories, oldest first."""
    try:
        names = root.names()
    except OSError:
        return []
    numbers = [n for n in map(generation_number, names) if n is not None]
    return [
        name
        for name in map(generation_name, sorted(numbers))
        if _is_directory(root, name)
    ]


def _is_directory(root: Directory, name: str) -> bool:
    """Tell whether a name is a real directory, not a link to one."""
    try:
        root.subdirectory(name).close()
    except (FileMissingError, FileTypeError, OSError):
        return False
    return True


def close_quietly(directory: Directory) -> None:
    """Close a directory handle; a failing close of it loses nothing."""
    try:
        directory.close()
    except OSError:
        return


def io_error(doing: str, error: OSError) -> GenerationError:
    """Map what the system said, with the name of the error number."""
    word = errno.errorcode.get(error.errno or 0, "error")
    full = "; free some space and begin again" if error.errno == errno.ENOSPC else ""
    return GenerationError(f"{doing}: {word}{full}", code="io")
