"""The entry point of `fault-agent`, and nothing else.

The one rule: it imports nothing heavy before it can answer Ctrl-C, so that a start broken off leaves no traceback.
"""

import io
import os
import sys

TYPE_CHECKING = False  # typing itself is too heavy here
if TYPE_CHECKING:
    from typing import Any, TextIO

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
    # Who reads standard output may leave (`| head`), and of standard error nobody can be told anything anyway: the work
    # and its exit code are the same. Any other failure of standard output is told.
    sys.stdout = _forgiving(sys.stdout, sys.__stdout__, BrokenPipeError)
    sys.stderr = _forgiving(sys.stderr, sys.__stderr__, OSError)


class _Outlet(io.FileIO):
    """A standard stream into which nothing goes any more once it failed in a way that is forgiven."""

    def __init__(self, number: int, forgiven: type[OSError]) -> None:
        super().__init__(number, "w", closefd=False)
        self._forgiven = forgiven

    def write(self, data: "Any", /) -> int:
        try:
            return super().write(data)
        except self._forgiven:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.fileno())
            os.close(null)
            return len(data)


def _forgiving(stream: "TextIO", original: "TextIO | None", forgiven: type[OSError]) -> "TextIO":
    if not isinstance(stream, io.TextIOWrapper) or stream is not original:  # a caller's own
        return stream
    outlet = _Outlet(stream.fileno(), forgiven)
    return io.TextIOWrapper(
        outlet if stream.write_through else io.BufferedWriter(outlet),
        encoding=stream.encoding,
        errors="backslashreplace",  # as standard error has it from the start
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _let_go_of_what_cannot_be_written() -> None:
    """Else the interpreter tries once more as it ends, and its own exit code takes the place of ours."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
