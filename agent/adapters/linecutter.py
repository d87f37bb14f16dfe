"""Cuts a stream of chunks into lines and knows at which byte each began.

The one rule: every byte belongs to exactly one line, and memory stays bounded: of a line that is too long only the
beginning is kept.
"""

from typing import Final

LONGEST: Final = 4 * 1_048_576
"""Bytes of a line that is still given whole."""


class LineCutter:
    """Lines wait in `waiting` as (byte where it began, line without newline). `kept` is what stays of one over
    `longest` bytes; it must be less.
    """

    def __init__(self, start: int, kept: int, longest: int = LONGEST) -> None:
        self.waiting: list[tuple[int, bytes]] = []
        self.start = start
        """Where the line that is still open began."""
        self._kept = kept
        self._longest = longest
        self._tail = b""
        self._dropped = 0
        """Bytes of the open line that were not kept."""

    @property
    def is_half(self) -> bool:
        """Whether a line is open: begun and without its newline."""
        return bool(self._tail)

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the stream."""
        if self._dropped:
            end = chunk.find(b"\n")
            if end < 0:
                self._dropped += len(chunk)
                return
            self._dropped += end
            self._close()
            self.start += 1
            chunk = chunk[end + 1 :]
        parts = (self._tail + chunk).split(b"\n")
        self._tail = parts.pop()
        start = self.start
        for part in parts:
            self.waiting.append((start, part if len(part) <= self._longest else part[: self._kept]))
            start += len(part) + 1
        self.start = start
        if len(self._tail) > self._longest:
            self._dropped = len(self._tail) - self._kept
            self._tail = self._tail[: self._kept]

    def finish(self) -> bool:
        """Nothing more comes: an open line is given as it is. Whether there was one."""
        if not self._tail:
            return False
        self._close()
        return True

    def take(self, count: int) -> list[tuple[int, bytes]]:
        """The next lines, at most `count`; they wait no longer."""
        taken = self.waiting[:count]
        del self.waiting[:count]
        return taken

    @property
    def next_start(self) -> int:
        """Where the first line that was not taken begins."""
        return self.waiting[0][0] if self.waiting else self.start

    def _close(self) -> None:
        self.waiting.append((self.start, self._tail))
        self.start += len(self._tail) + self._dropped
        self._tail = b""
        self._dropped = 0
