"""A program in a pseudo-terminal, and what a terminal would show of it.

:class:`Screen` understands what the console writes: text, cursor moves, erasing, colour
and mode sequences; everything else is kept in :attr:`Screen.strange`, so that a test
notices a sequence that should not have come through.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time
from typing import TYPE_CHECKING, TypeAlias

from wcwidth import wcwidth

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_SEQUENCE = re.compile(
    r"\x1b(?:\[(?P<args>[0-?]*)(?P<mid>[ -/]*)(?P<final>[@-~])"
    r"|\](?P<osc>.*?)(?:\x07|\x1b\\)|P.*?\x1b\\|(?P<short>[=>78cDEHM()].?))",
    re.S,
)
_KNOWN_FINALS = set("HJKmhlnuptABCDGdrq")
_SIZE = struct.Struct("HHHH")


Look: TypeAlias = "tuple[frozenset[str], str, str]"
PLAIN: Look = (frozenset(), "", "")


def repen(pen: Look, args: str) -> Look:
    """Return attributes, foreground and background after a colour sequence."""
    attributes, fore, back = pen
    codes = args.split(";")
    while codes:
        code = int(codes.pop(0) or 0)
        if code == 0:
            attributes, fore, back = PLAIN
        elif code < 10:
            attributes |= {str(code)}
        elif code in {38, 48}:
            count = {"2": 4, "5": 2}[codes[0]]
            value = ";".join([str(code), *codes[:count]])
            del codes[:count]
            fore, back = (value, back) if code == 38 else (fore, value)
        elif code in {39, 49}:
            fore, back = ("", back) if code == 39 else (fore, "")
        elif code % 10 < 8:
            high = code // 10 in {4, 10}
            fore, back = (fore, str(code)) if high else (str(code), back)
    return attributes, fore, back


class Screen:
    """The cells of a terminal.

    Attributes:
        pens: Attributes, foreground and background codes of every cell.
        modes: Private modes that are on, such as 1049 (alternate screen).
        colours: Colour codes that were written, in order of their first appearance.
        strange: Sequences that the console has no reason to write.
    """

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.cells = [[" "] * columns for _ in range(rows)]
        self.pens = [[PLAIN] * columns for _ in range(rows)]
        self.pen: Look = PLAIN
        self.modes: set[int] = {25}
        self.colours: list[str] = []
        self.strange: list[str] = []
        self._row = self._column = 0
        self._rest = ""

    def resize(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.cells = [[" "] * columns for _ in range(rows)]
        self.pens = [[PLAIN] * columns for _ in range(rows)]

    def feed(self, text: str) -> None:
        text = self._rest + text
        self._rest = ""
        place = 0
        while place < len(text):
            if text[place] != "\x1b":
                self._put(text[place])
                place += 1
                continue
            found = _SEQUENCE.match(text, place)
            if found is None:
                if len(text) - place < 4096:
                    self._rest = text[place:]
                    return
                self.strange.append(text[place : place + 20])
                place += 1
                continue
            self._obey(found)
            place = found.end()

    def _put(self, char: str) -> None:
        if char == "\r":
            self._column = 0
        elif char == "\n":
            self._row = min(self._row + 1, self.rows - 1)
        elif char == "\b":
            self._column = max(0, self._column - 1)
        elif char == "\x07":
            self.strange.append("BEL")
        elif ord(char) < 32 or 0x7F <= ord(char) < 0xA0:
            self.strange.append(repr(char))
        else:
            width = max(0, wcwidth(char))
            if width and self._column < self.columns and self._row < self.rows:
                self.cells[self._row][self._column] = char
                self.pens[self._row][self._column] = self.pen
                if width == 2 and self._column + 1 < self.columns:
                    self.cells[self._row][self._column + 1] = ""
            self._column += width

    def _obey(self, found: re.Match[str]) -> None:
        final, args = found["final"], found["args"] or ""
        if found["osc"] is not None:
            self.strange.append(f"OSC {found['osc'][:12]}")
        elif final is None:
            return
        elif final == "H":
            row, _, column = args.partition(";")
            self._row, self._column = int(row or 1) - 1, int(column or 1) - 1
        elif final == "J":
            self.cells = [[" "] * self.columns for _ in range(self.rows)]
        elif final == "m":
            self._colour(args)
        elif final in "hl" and args.startswith("?"):
            numbers = {int(each) for each in args[1:].split(";") if each.isdigit()}
            self.modes = self.modes | numbers if final == "h" else self.modes - numbers
        elif final not in _KNOWN_FINALS:
            self.strange.append(found.group())

    def _colour(self, args: str) -> None:
        self.pen = repen(self.pen, args)
        parts = [
            int(each or 0) for each in args.split(";") if each.isdigit() or not each
        ]
        for code in parts:
            if 30 <= code <= 49 or 90 <= code <= 107:
                if args not in self.colours and code not in {39, 49}:
                    self.colours.append(args)
                return

    def lines(self) -> list[str]:
        return ["".join(row).rstrip() for row in self.cells]

    def text(self) -> str:
        return "\n".join(self.lines())


class Program:
    """A program that believes it has a terminal."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        columns: int = 80,
        rows: int = 24,
        environ: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> None:
        self.screen = Screen(columns, rows)
        self.raw = bytearray()
        self._master, slave = os.openpty()
        self._poll = select.poll()  # any descriptor, unlike select
        self._poll.register(self._master, select.POLLIN)
        self._set_size(columns, rows)
        self.before = termios.tcgetattr(slave)
        env = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        env.pop("NO_COLOR", None)
        env.update(environ or {})
        self.process = subprocess.Popen(
            list(argv),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=env,
            cwd=cwd,
            preexec_fn=lambda: os.login_tty(slave),
        )
        self._slave = slave

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        for descriptor in (self._master, self._slave):
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, _SIZE.pack(rows, columns, 0, 0))

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(columns, rows)
        self._set_size(columns, rows)

    def hang_up(self) -> None:
        """Close the terminal's side, as a lost connection does."""
        os.close(self._master)
        os.close(self._slave)

    def press(self, keys: str) -> None:
        self.send(keys.encode())

    def send(self, data: bytes) -> None:
        """Send bytes as they come over a line, whole characters or not."""
        os.write(self._master, data)

    def drain(self, seconds: float = 0.0) -> int:
        """Take what was written; return how many bytes came within the time."""
        end = time.monotonic() + seconds
        count = 0
        while True:
            left = max(0.0, end - time.monotonic())
            ready = self._poll.poll(left * 1000)
            if not ready:
                return count
            try:
                data = os.read(self._master, 65_536)
            except OSError:
                return count
            if not data:
                return count
            count += len(data)
            self.raw += data
            self.screen.feed(data.decode("utf-8", "replace"))

    def until(
        self, wanted: str | Callable[[Screen], bool], limit: float = 20.0
    ) -> Screen:
        """Read until the screen shows a text, or satisfies a test."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            self.drain(0.02)
            shown = self.screen
            if (wanted in shown.text()) if isinstance(wanted, str) else wanted(shown):
                return shown
            if self.process.poll() is not None:
                self.drain(0.05)
                if isinstance(wanted, str) and wanted in shown.text():
                    return shown
                break
        raise AssertionError(
            f"never shown: {wanted!r}; the screen is:\n{self.screen.text()}"
        )

    def settle(self, quiet: float = 0.4, limit: float = 15.0) -> None:
        """Read until nothing has come for a while."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if not self.drain(quiet):
                return

    def end(self, number: signal.Signals, limit: float = 15.0) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.ended(limit)

    def ended(self, limit: float = 15.0) -> int:
        end = time.monotonic() + limit
        while self.process.poll() is None and time.monotonic() < end:
            self.drain(0.05)
        self.drain(0.1)
        return self.process.wait(max(0.1, end - time.monotonic()))

    def attributes(self) -> list[object]:
        """Return the terminal's line settings as they are now."""
        return termios.tcgetattr(self._slave)
