"""Record files and cluster files on disk, for tests that drive the command itself."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rig import message

Line = Mapping[str, Any]


def fault_line(code: str, at: int, number: int, *, node: str = "n1", assertion: str = "occur", **given: Any) -> Line:
    """A line with one fault; `at` in Unix ms, `number` makes its message id."""
    given.setdefault("devices", (2,))
    value = message(code, node=node, assertion=assertion, at=at, number=number, **given)
    return {"key": node, "timestamp": at, "value": value}


def write_lines(path: Path, lines: Iterable[Line | str]) -> Path:
    """A record file of these lines; a string stands as it is."""
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def append_lines(path: Path, lines: Iterable[Line]) -> None:
    """More lines at the end of a record file."""
    with path.open("a") as file:
        file.write("".join(f"{json.dumps(line)}\n" for line in lines))


def write_cluster(path: Path, objects: Iterable[Mapping[str, Any]]) -> Path:
    """A cluster file with these objects."""
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    return path


def document(out: Path, place: str) -> Mapping[str, str] | None:
    """Data of a document of an --out folder, or None."""
    path = out / f"{place}.json"
    if not path.is_file():
        return None
    data: Mapping[str, str] = json.loads(path.read_text())["data"]
    return data


def journal(out: Path) -> list[dict[str, Any]]:
    """The audit lines of an --out folder, without one that is being written."""
    path = out / "audit.jsonl"
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.is_file() else []
