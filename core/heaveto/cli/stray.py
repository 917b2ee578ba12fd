"""What workers of this process print: kept off standard output, shown as inert lines.

A python worker runs in the runner's process, so whatever it, a thread or a child of it
writes to descriptor 1 would land in the middle of an answer. For as long as a flow runs
here, that descriptor is a pipe; a thread reads it and says each line on standard error
through the one printer, while the verb's own output keeps a descriptor of its own.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heaveto.cli.output import Output

__all__ = ["strays_apart"]

_LINE_LIMIT = 65_536
_LAST_WORDS_S = 1.0
"""How long a reader waits for the end when a child still holds the descriptor."""


@contextlib.contextmanager
def strays_apart(output: Output) -> Iterator[None]:
    """Keep what others print to standard output apart from the verb's own output.

    Args:
        output: The verb's printer; it prints through a descriptor of its own meanwhile,
            and afterwards too where a worker closed ``sys.stdout``.
    """
    try:
        fd = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):
        yield
        return
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    own = os.fdopen(os.dup(fd), "w", encoding=encoding, errors="backslashreplace")
    listener = _listen(fd, output)
    before = output.turn_to(own)
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os.dup2(own.fileno(), fd)
        listener.join(_LAST_WORDS_S)
        if not before.closed:
            output.turn_to(before)
            with contextlib.suppress(OSError, ValueError):
                own.close()


def _listen(fd: int, output: Output) -> threading.Thread:
    """Put a pipe in the place of a descriptor and say what comes through it."""
    reading, writing = os.pipe()
    os.dup2(writing, fd)
    os.close(writing)

    def say() -> None:
        with open(reading, "rb", buffering=_LINE_LIMIT) as stream:
            while line := stream.readline(_LINE_LIMIT):
                output.note(line.decode("utf-8", "replace").removesuffix("\n"))

    listener = threading.Thread(target=say, name="stray-output", daemon=True)
    listener.start()
    return listener
