"""Writes the JSON Schemas of the settings and of the rail plan from the models that read them.

    python schemas/generate.py            write them
    python schemas/generate.py --check    exit 1 if a file is not what its model gives

The one rule: a key of a schema comes from the model, never from this program. (The schema of policy files is written
by policies/generate.py.)
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from agent.app.settings import settings_schema
from agent.wire.railplan import rail_plan_schema

HERE: Final = Path(__file__).resolve().parent


def text() -> str:
    """The schema of the settings as it should stand."""
    return json.dumps(settings_schema(), indent=2, ensure_ascii=False) + "\n"


SCHEMAS: Final[Mapping[str, Callable[[], str]]] = {
    "settings.schema.json": text,
    "rail-plan.schema.json": rail_plan_schema,
}
"""Each file and what it should hold."""


def main(arguments: list[str]) -> int:
    """Write or compare; the exit code."""
    if arguments not in ([], ["--check"]):
        sys.stderr.write("usage: python schemas/generate.py [--check]\n")
        return 2
    stale = [name for name, made in SCHEMAS.items() if not _stands(HERE / name, made())]
    if not arguments:
        for name in stale:
            (HERE / name).write_text(SCHEMAS[name](), encoding="utf-8")
        return 0
    for name in stale:
        sys.stderr.write(f"{name} is not what its model gives; run: python schemas/generate.py\n")
    return 1 if stale else 0


def _stands(path: Path, wanted: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == wanted


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
