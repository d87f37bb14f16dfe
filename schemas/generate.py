"""Writes the JSON Schema of the settings from the model that reads them.

    python schemas/generate.py            write it
    python schemas/generate.py --check    exit 1 if the file is not what the model gives

The one rule: a key of the schema comes from the model, never from this program. (The schema of policy files is written
by policies/generate.py; the one of the rail plan is compared in tests/wire/test_railfile.py.)
"""

import json
import sys
from pathlib import Path

from agent.app.settings import settings_schema

FILE = Path(__file__).resolve().parent / "settings.schema.json"


def text() -> str:
    """The schema as it should stand."""
    return json.dumps(settings_schema(), indent=2, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    """Write or compare; the exit code."""
    if arguments == ["--check"]:
        if FILE.is_file() and FILE.read_text(encoding="utf-8") == text():
            return 0
        sys.stderr.write(f"{FILE.name} is not what the settings give; run: python schemas/generate.py\n")
        return 1
    if arguments:
        sys.stderr.write("usage: python schemas/generate.py [--check]\n")
        return 2
    FILE.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
