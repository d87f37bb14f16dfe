"""Where the house keeps what, for the tests that walk through it."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Room:
    """One Python file, read once."""

    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """Parsed when first asked for: most tests of the house look at names or text alone."""
        return ast.parse(self.text, filename=str(self.path))

    @property
    def name(self) -> str:
        """Path from the root of the repository."""
        return self.path.relative_to(ROOT).as_posix()


@cache
def rooms(folder: str) -> tuple[Room, ...]:
    """Every Python file below a folder of the repository."""
    return tuple(Room(path, path.read_text(encoding="utf-8")) for path in sorted((ROOT / folder).rglob("*.py")))


def pages() -> Iterator[Path]:
    """Every page that people read."""
    yield ROOT / "README.md"
    yield ROOT / "CHANGELOG.md"
    yield from sorted((ROOT / "docs").rglob("*.md"))


def cells(page: str, column: int) -> list[str]:
    """The texts of one column of all tables of a page, without marks of code."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    rows = [
        line.strip().strip("|").split(" | ") for line in lines if line.startswith("|") and not line.startswith("|--")
    ]
    return [row[column].strip().strip("`") for row in rows if len(row) > column]
