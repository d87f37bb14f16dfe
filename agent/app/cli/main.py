"""The entry point of `fault-agent`, and nothing else.

The one rule: it imports nothing heavy before it can answer Ctrl-C, so that a start broken off leaves no traceback.
"""

import sys

EXIT_STOPPED = 130
"""Broken off by a person, as shells count it: 128 and the number of SIGINT."""


def main() -> None:
    """Entry point of `fault-agent`."""
    try:
        from agent.app.cli.verbs import answer

        code = answer()
    except KeyboardInterrupt:
        sys.stderr.write("fault-agent: stopped\n")
        code = EXIT_STOPPED
    sys.exit(code)
