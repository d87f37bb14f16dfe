"""The entry point of `fault-agent`, and nothing else.

The one rule: it imports nothing heavy before it can answer Ctrl-C, so that a start broken off leaves no traceback.
"""

import io
import os
import sys

EXIT_STOPPED = 130
"""Broken off by a person, as shells count it: 128 and the number of SIGINT."""


def main() -> None:
    """Entry point of `fault-agent`."""
    _occupy_standard_streams()
    try:
        from agent.app.cli.verbs import answer

        code = answer()
    except KeyboardInterrupt:
        code = EXIT_STOPPED
        from contextlib import suppress

        with suppress(OSError):  # where nobody can be told the exit code says it
            sys.stderr.write("fault-agent: stopped\n")
    _let_go_of_what_cannot_be_written()
    sys.exit(code)


def _occupy_standard_streams() -> None:
    """Put nothing where a standard stream is closed: else the next file opened, a journal perhaps, takes its number,
    and what is said goes into that file.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False))  # noqa: SIM115  # open as long as the process
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as standard error has it


def _let_go_of_what_cannot_be_written() -> None:
    """Else the interpreter tries once more as it ends, and its own exit code takes the place of ours."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
