"""The terminal as a file that cannot fail: what is written is sent, or dropped.

The drawing library writes to standard error and stops working when a write fails. Here
the text goes to standard output, where the terminal was found; characters it cannot
take become ``?``; a terminal that went away takes nothing more and raises nothing, so
that the console can still end in order.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

from textual.drivers.linux_driver import LinuxDriver

if TYPE_CHECKING:
    from typing import IO

__all__ = ["Outlet", "TerminalDriver"]

_RESET = "\x1b[0m"


class Outlet:
    """A terminal to write to."""

    def __init__(self, descriptor: int, *, encoding: str = "utf-8") -> None:
        """Write to a descriptor, which stays open."""
        self._descriptor = descriptor
        self._encoding = encoding
        self._pending = bytearray()
        self.gone = False
        """Nobody takes what is written."""

    def write(self, text: str) -> int:
        """Keep text until the next flush."""
        self._pending += text.encode(self._encoding, "replace")
        return len(text)

    def flush(self) -> None:
        """Send what is kept, in one write where the terminal takes it."""
        data, self._pending = bytes(self._pending), bytearray()
        while data and not self.gone:
            try:
                sent = os.write(self._descriptor, data)
            except InterruptedError:
                continue
            except OSError:
                self.gone = True
                return
            data = data[sent:]

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Tell whether it is a terminal."""
        return os.isatty(self._descriptor)


class TerminalDriver(LinuxDriver):
    """The drawing library's driver for a terminal, over an :class:`Outlet`."""

    def __init__(self, app: Any, **options: Any) -> None:
        """Take standard output; send nothing above U+007F where the app draws so."""
        super().__init__(app, **options)
        stdout = sys.__stdout__
        descriptor = 1 if stdout is None else stdout.fileno()
        encoding = "ascii" if app.painter.look.ascii_only else "utf-8"
        self.outlet = Outlet(descriptor, encoding=encoding)
        self._file: IO[str] = self.outlet  # type: ignore[assignment]

    @property
    def behind(self) -> bool:
        """The terminal has not taken yet what was written lately."""
        thread = self._writer_thread
        return thread is not None and thread._queue.qsize() > 2

    def stop_application_mode(self) -> None:
        """Leave no colours behind, then restore what was found."""
        with contextlib.suppress(AssertionError):
            self.write(_RESET)
        super().stop_application_mode()
