"""The terminal: what is written cannot fail, and what is pasted cannot press a key.

The drawing library writes to standard error and stops working when a write fails. Here
the text goes to standard output, where the terminal was found; characters it cannot
take become ``?``; a terminal that went away takes nothing more and raises nothing, so
that the console can still end in order.

It reads the terminal's size inside the signal handler, where a second change of size
can overtake the first and leave it with a size that is no longer true. Here the signal
only asks the loop to read the size.

Its parser turns an escape sequence inside pasted text into the keys it is spelled with.
:class:`InertParser` takes the escapes out of a paste first, so that a paste is text.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import selectors
import signal
import sys
from codecs import getincrementaldecoder
from typing import TYPE_CHECKING, Any

from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Paste, Resize
from textual.geometry import Size

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import IO

    from textual.message import Message

__all__ = ["InertParser", "Outlet", "PasteGuard", "TerminalDriver"]

_RESET = "\x1b[?2026l\x1b[0m"
_PASTE_START, _PASTE_END = "\x1b[200~", "\x1b[201~"
_SUBSTITUTE = "\x1a"
"""What a control character in a paste becomes: it is dropped where text is taken."""
_INERT = dict.fromkeys(set(range(0x20)) - {9, 10, 13}, _SUBSTITUTE)
_POLL_S = 0.1
_MORE_S = 0.01
"""Seconds without a byte after which a paste is taken as far as it came."""
_SHORT = 256
"""Bytes up to which something is no picture."""
_LOOKS = 20
"""So often is a terminal that takes nothing looked at, at the end."""
_PASTE_MAX = 4 * 1024 * 1024


class Outlet:
    """A terminal to write to, which never waits for one that takes nothing any more."""

    def __init__(self, descriptor: int, *, encoding: str = "utf-8") -> None:
        """Write to the terminal of a descriptor, which stays open and as it is."""
        self._descriptor = descriptor
        self._own = _opened_anew(descriptor)
        self._encoding = encoding
        self._pending = bytearray()
        self.gone = False
        """Nobody takes what is written."""
        self.ending = False
        """Only what is short is still sent: no pictures, but what restores."""

    def write(self, text: str) -> int:
        """Keep text until the next flush."""
        if not (self.ending and len(text) > _SHORT):
            self._pending += text.encode(self._encoding, "replace")
        return len(text)

    def flush(self) -> None:
        """Send what is kept, in one write where the terminal takes it."""
        data, self._pending = bytes(self._pending), bytearray()
        picture = len(data) > _SHORT
        looks = 0
        while data and not self.gone and not (self.ending and picture):
            try:
                sent = os.write(self._own, data)
            except InterruptedError:
                continue
            except BlockingIOError:
                self._wait()
                looks += self.ending
                self.gone = looks > _LOOKS
                continue
            except OSError:
                self.gone = True
                return
            data, looks = data[sent:], 0

    def _wait(self) -> None:
        """Wait for room, for a moment."""
        room = select.poll()
        room.register(self._own, select.POLLOUT)
        room.poll(_POLL_S * 1000)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Tell whether it is a terminal."""
        return os.isatty(self._descriptor)


def _opened_anew(descriptor: int) -> int:
    """Return a terminal opened once more, for writing without waiting.

    Not waiting is a property of the opening, which a descriptor shares with the shell.
    """
    try:
        flags = os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
        own = os.open(os.ttyname(descriptor), flags)
    except OSError:
        return descriptor
    if os.fstat(own).st_rdev == os.fstat(descriptor).st_rdev:
        return own
    os.close(own)
    return descriptor


class PasteGuard:
    """Replaces what could act inside a bracketed paste by a character that cannot.

    Outside of one nothing is changed or held back. Works on any cut of the stream.
    """

    def __init__(self) -> None:
        """Start outside of a paste."""
        self._inside = False
        self._matched = 0
        self._held = ""

    @property
    def idle(self) -> bool:
        """No paste has begun, not even with the first signs of its mark."""
        return not self._inside and not self._matched

    @property
    def inside(self) -> bool:
        """A paste has begun and not ended."""
        return self._inside

    def __call__(self, data: str) -> str:
        """Return the next part of the stream, made inert."""
        out: list[str] = []
        for char in data:
            if self._inside:
                self._paste(char, out)
            else:
                out.append(char)
                self._matched = _advance(_PASTE_START, self._matched, char)
                if self._matched == len(_PASTE_START):
                    self._inside, self._matched = True, 0
        return "".join(out)

    def _paste(self, char: str, out: list[str]) -> None:
        candidate = self._held + char
        if _PASTE_END.startswith(candidate):
            self._held = candidate
            if candidate == _PASTE_END:
                out.append(candidate)
                self._inside, self._held = False, ""
            return
        self._held = ""
        out.extend(_inert(each) for each in candidate[:-1])
        if char == "\x1b":
            self._held = char
        else:
            out.append(_inert(char))


def _advance(wanted: str, matched: int, char: str) -> int:
    """Return how much of a sequence stands at the end of the stream."""
    if char == wanted[matched]:
        return matched + 1
    return int(char == wanted[0])


def _inert(char: str) -> str:
    return _INERT.get(ord(char), char)


class InertParser(XTermParser):
    """The drawing library's parser of terminal input, behind a :class:`PasteGuard`."""

    def __init__(self, debug: bool = False) -> None:
        """Start outside of a paste."""
        super().__init__(debug)
        self._guard = PasteGuard()

    def pastes(self, data: bytes) -> bool:
        """Tell whether the next part of the input holds some of a paste."""
        return self._guard.inside or _PASTE_START.encode() in data

    def feed(self, data: str) -> Iterable[Message]:
        """Take the next part of the input.

        A paste that is there from its start to its end is taken whole: sign by sign, as
        the library does it, a megabyte takes seconds. It ends with the last end before
        another one begins, since not every terminal takes an end out of what it pastes,
        and what stands behind it would be keys.
        """
        while self._guard.idle and (found := _whole_paste(data)) is not None:
            start, end = found
            yield from self._keys(data[:start])
            self._guard(_PASTE_START + _PASTE_END)
            body = data[start + len(_PASTE_START) : end]
            yield Paste(body.translate(_INERT))
            data = data[end + len(_PASTE_END) :]
        yield from self._keys(data)

    def _keys(self, data: str) -> Iterable[Message]:
        """Hand on what is not held back; nothing at all would be the end of input."""
        inert = self._guard(data)
        return super().feed(inert) if inert else ()


def _whole_paste(data: str) -> tuple[int, int] | None:
    """Return where a paste begins and ends, if all of it is there."""
    start = data.find(_PASTE_START)
    if start < 0:
        return None
    first = data.find(_PASTE_END, start)
    if first < 0:
        return None
    following = data.find(_PASTE_START, first)
    limit = len(data) if following < 0 else following
    return start, data.rfind(_PASTE_END, first, limit)


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

    def start_application_mode(self) -> None:
        """Take the terminal, and follow its size from the loop."""
        self.outlet.ending = False
        super().start_application_mode()  # type: ignore[no-untyped-call]
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGWINCH, self.mind_size)
        loop.call_soon(self.mind_size)

    def mind_size(self) -> None:
        """Tell the app how large the terminal is now; runs in the loop."""
        if not self._in_band_window_resize:
            size = Size(*self._get_terminal_size())
            self._app.post_message(Resize(size, size))

    def _get_terminal_size(self) -> tuple[int, int]:
        """Ask the terminal itself: ``COLUMNS`` of a shell does not follow it."""
        with contextlib.suppress(OSError):
            width, height = os.get_terminal_size(self.outlet.fileno())
            if width and height:
                return width, height
        return super()._get_terminal_size()

    def run_input_thread(self) -> None:
        """Read the terminal until the driver ends; runs in a thread of its own."""
        parser = InertParser()
        decode = getincrementaldecoder("utf-8")("replace").decode
        with selectors.DefaultSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                data = b""
                if selector.select(_POLL_S):
                    data = self._read()
                    if not data:
                        return
                    while parser.pastes(data) and len(data) < _PASTE_MAX:
                        if not (selector.select(_MORE_S) and (more := self._read())):
                            break
                        data += more
                for event in parser.feed(decode(data)) if data else ():
                    self.process_message(event)
                for event in parser.tick():
                    self.process_message(event)

    def _read(self) -> bytes:
        """Return what the terminal sent; nothing when it went away."""
        try:
            return os.read(self.fileno, 4096)
        except OSError:
            return b""

    def stop_application_mode(self) -> None:
        """Leave no colours behind, then restore what was found."""
        self.outlet.ending = True
        with contextlib.suppress(AssertionError):
            self.write(_RESET)
        super().stop_application_mode()
