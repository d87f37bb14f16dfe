"""A file that states the environment of a job's processes, as `env` prints it or a shell script exports it.

The one rule: the file is the whole environment; a line that is no assignment is refused, never skipped.
"""

import re
from typing import Final

from agent.errors import BadDocument

_ASSIGNMENT: Final = re.compile(r"(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)")
_OURS: Final = re.compile(r"HCCL_|ASCEND_")


def parse_env_file(raw: bytes, place: str) -> dict[str, str]:
    """Names and values; the last assignment of a name counts. Quotes around a whole value are taken off.

    Lines that set none of the variables of HCCL or Ascend may have any form that `env` prints (values of several
    lines too). Raises BadDocument for a file that is no UTF-8 and for a line that names such a variable without
    setting it.
    """
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        broken = raw.count(b"\n", 0, error.start) + 1
        raise BadDocument("is not UTF-8", place=f"{place}:{broken}") from error
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        row = line.strip("\r\t ") if line.lstrip().startswith("export") else line.rstrip("\r")
        if not row.strip() or row.lstrip().startswith("#"):
            continue
        match = _ASSIGNMENT.fullmatch(row)
        if match is not None:
            value = match[2]
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
            found[match[1]] = value[1:-1] if quoted else value
        elif _OURS.match(row.lstrip()):
            raise BadDocument(f"{row[:60]!r} is no NAME=value", place=f"{place}:{number}")
    return found
