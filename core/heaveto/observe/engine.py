"""The committed generation of a run's engine state, by its pointer alone."""

from __future__ import annotations

import os

from heaveto.files import OS

__all__ = ["committed_generation"]

_LIMIT = 66
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def committed_generation(run_dir: str) -> str | None:
    """Return the directory that ``engine_state/current`` names (``gen-0041``).

    Args:
        run_dir: A run directory.

    Returns:
        None without a store, and for a pointer that is malformed, a link or too long:
        ``heaveto generations`` says what is wrong with it.
    """
    try:
        fd = OS.open(f"{run_dir}/engine_state/current", _READ)
    except OSError:
        return None
    try:
        data = OS.read(fd, _LIMIT)
    except OSError:
        return None
    finally:
        OS.close(fd)
    return _name(data)


def _name(data: bytes) -> str | None:
    from heaveto.errors import GenerationError
    from heaveto.generations.layout import generation_name, parse_pointer

    try:
        return generation_name(parse_pointer(data))
    except GenerationError:
        return None
