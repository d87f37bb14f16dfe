"""How the command line shows things to people: one console, one way to print a time, one way to break a line.

The one rule: people see UTC, with the local offset said once; what goes into a pipe is never broken or cut.
"""

import re
import shlex
import shutil
import sys
import textwrap
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich.console import Console

from agent.domain.vocab import utc_text

PROGRAM = "fault-agent"
_UNSEEN: Final = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
PLAIN_WIDTH = 160
"""Columns of a table when the output is no terminal, so that a pipe gets whole rows."""


def console(*, stderr: bool = False) -> Console:
    """A console that wraps at the terminal's width, and at PLAIN_WIDTH elsewhere; no markup in data."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PLAIN_WIDTH
    return Console(stderr=stderr, width=width, markup=False, highlight=False, emoji=False)


def program() -> str:
    """The command as the person can type it again: its name where that is found, else the path it was started by."""
    started = Path(sys.argv[0])
    if started.name != PROGRAM:
        return PROGRAM
    found = shutil.which(PROGRAM)
    if found is not None and started.exists() and Path(found).samefile(started):
        return PROGRAM
    return shlex.quote(shown_path(started))


def shown_path(path: Path) -> str:
    """A path as it is typed from here: from the present folder if it lies below that, else as given."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def visible(text: str) -> str:
    """The text on one line, with what would move a terminal's cursor or cannot be printed written out as escapes."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def folded(label: str, text: str, width: int = 10) -> list[str]:
    """An indented line `label  text`, broken between words at the terminal's width; elsewhere it is left whole."""
    lead, text = f"    {label:<{width}}", visible(text)
    if not sys.stdout.isatty():
        return [lead + text]
    columns = max(shutil.get_terminal_size().columns, 40)
    return textwrap.wrap(
        text,
        columns,
        initial_indent=lead,
        subsequent_indent=" " * len(lead),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [lead.rstrip()]


def counted(number: int, what: str) -> str:
    """A number with its noun: `1 code`, `2 codes`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def utc_clock(at: int) -> tuple[str, str]:
    """Day and clock of a Unix time in ms, in UTC: `2026-01-01`, `00:00:05.250`; no day when no clock was known yet."""
    if at <= 0:
        return "", "--:--:--.---"
    day, _, clock = utc_text(at).removesuffix("Z").partition(" ")
    return day, clock or day


def local_offset(at: int) -> str:
    """The local zone's offset at that time, e.g. `+08:00`."""
    try:
        offset = datetime.fromtimestamp(at / 1000, UTC).astimezone().strftime("%z")
    except (OverflowError, ValueError, OSError):
        return "unknown"
    return f"{offset[:3]}:{offset[3:]}"
