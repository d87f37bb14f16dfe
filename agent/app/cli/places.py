"""Where a dead letter's record stands in its file, as a person finds it again.

The one rule: a file that is finished is counted in lines, one that still grows in bytes, for it may be another by now.
"""

from pathlib import Path
from typing import Final

from agent.app.telling import Letter

_CHUNK: Final = 1_048_576


class LinePlaces:
    """`night.jsonl line 9`, for letters of one finished file in the order of the file; each byte is read once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._byte = 0
        self._line = 1

    def of(self, letter: Letter) -> str:
        """The place of a letter, with the faults that were refused if the others were taken."""
        try:
            return f"{self._path.name} line {self._count(letter.offset)}{_faults(letter)}"
        except OSError:
            return byte_place(self._path.name, letter)

    def _count(self, byte: int) -> int:
        if byte < self._byte:
            self._byte, self._line = 0, 1
        with self._path.open("rb") as file:
            file.seek(self._byte)
            while self._byte < byte and (chunk := file.read(min(_CHUNK, byte - self._byte))):
                self._line += chunk.count(b"\n")
                self._byte += len(chunk)
        return self._line


def byte_place(name: str, letter: Letter) -> str:
    """`events.jsonl byte 1234`, and which generation of the file when it is not the first."""
    made_anew = f" of generation {letter.generation}" if letter.generation else ""
    return f"{name} byte {letter.offset}{made_anew}{_faults(letter)}"


def _faults(letter: Letter) -> str:
    _, found, listed = letter.source.partition("[")
    return f" faults[{listed.removesuffix(']')}]" if found else ""
