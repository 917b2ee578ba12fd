"""A log of bounded size that is written while its operation runs.

What comes is appended at once, so that a reader can follow it, until the limit comes
near; from then on the newest bytes are kept in memory and follow at the end, after a
line that says how much is missing. A log that cannot be written does not stop its
operation: it remembers the error and takes no more.

Used by one thread; all calls block.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heaveto.files import Directory

__all__ = ["Log"]

_LONGEST_TAIL = 1 << 20


class Log:
    """One log file; the name is taken exclusively, or continued when it is there.

    Attributes:
        error: Why it is incomplete; None when it is not.
    """

    def __init__(self, directory: Directory, name: str, limit: int) -> None:
        """Open the file.

        Args:
            directory: The operation's folder.
            name: ``output.log`` or ``error.log``.
            limit: Bytes of content that are kept.
        """
        self.error: OSError | None = None
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._left_out = 0
        self._tail_limit = min(limit // 2, _LONGEST_TAIL)
        self._head_left = limit - self._tail_limit
        try:
            self._file = directory.create(name)
        except FileExistsError:
            self._file = directory.open_append(name)

    def write(self, data: bytes) -> None:
        """Take what an operation has written."""
        if self._head_left:
            self._append(data[: self._head_left])
            data, self._head_left = (
                data[self._head_left :],
                max(0, self._head_left - len(data)),
            )
        if data:
            self._keep(data)

    def _keep(self, data: bytes) -> None:
        """Put bytes into the tail and drop its oldest."""
        self._tail.append(data)
        self._tail_size += len(data)
        while (excess := self._tail_size - self._tail_limit) > 0:
            oldest = self._tail.popleft()
            if len(oldest) > excess:
                self._tail.appendleft(oldest[excess:])
            dropped = min(len(oldest), excess)
            self._tail_size -= dropped
            self._left_out += dropped

    def _append(self, data: bytes) -> None:
        if self.error is not None:
            return
        try:
            self._file.append(data)
        except OSError as error:
            self.error = error

    def close(self) -> None:
        """Write the tail and close the file."""
        if self._left_out:
            self._append(f"\n[{self._left_out} bytes left out]\n".encode())
        if self._tail:
            self._append(b"".join(self._tail))
        self._file.close()
