"""How the command line shows things to people: one console, one way to print a time.

The one rule: people see UTC and local time with its offset; machines get JSON elsewhere.
"""

import sys
from datetime import UTC, datetime

from rich.console import Console

PLAIN_WIDTH = 160
"""Columns when the output is no terminal, so that a pipe gets whole rows."""


def console(*, stderr: bool = False) -> Console:
    """A console that wraps at the terminal's width, and at PLAIN_WIDTH elsewhere; no markup in data."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PLAIN_WIDTH
    return Console(stderr=stderr, width=width, markup=False, highlight=False, emoji=False)


def utc_time(at: int) -> str:
    """Unix ms as a UTC clock with milliseconds, e.g. `2026-01-01 00:00:05.250Z`."""
    try:
        return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"
    except (OverflowError, ValueError, OSError):
        return f"{at}ms"


def both_times(at: int) -> str:
    """UTC, and the local time with its offset behind it."""
    try:
        local = datetime.fromtimestamp(at / 1000, UTC).astimezone()
    except (OverflowError, ValueError, OSError):
        return f"{at}ms"
    offset = local.strftime("%z")
    return f"{utc_time(at)} ({local:%H:%M:%S}{offset[:3]}:{offset[3:]})"


def utc_clock(at: int) -> tuple[str, str]:
    """Day and clock of a Unix time in ms, in UTC: `2026-01-01`, `00:00:05.250`."""
    day, _, clock = utc_time(at).removesuffix("Z").partition(" ")
    return day, clock or day


def local_offset(at: int) -> str:
    """The local zone's offset at that time, e.g. `+08:00`."""
    return both_times(at).rpartition("(")[2].rstrip(")")[8:]
