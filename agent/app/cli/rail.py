"""`fault-agent rail`: what is borrowed.

The one rule: it reads and changes nothing.
"""

import click

from agent.app.cli.railstatus import status_command


@click.group(
    short_help="Look at borrowed rails.",
    epilog="Example: fault-agent rail status --out OUT",
)
def rail() -> None:
    """Look at rails: which NPUs send over their other die, and why."""


rail.add_command(status_command)
