"""`fault-agent ranktable backup`: a table with backups for each die, made from one that has none.

The one rule: standard output is a table that `ranktable check` passes, or empty.
"""

from pathlib import Path

import click

from agent.app.bootstrap import read_tables
from agent.errors import BadDocument, BadUsage
from agent.wire.ranktables.inspect import open_table
from agent.wire.ranktables.proposal import propose

EXIT_FINDINGS = 1


@click.command(
    "backup",
    short_help="Propose backup_device_ip and ports for a table that has none.",
    epilog="Example: fault-agent ranktable backup hccl.json > with-backups.json",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--lenient", is_flag=True, help="Leave comments out; what is printed has none.")
def backup_command(file: Path, lenient: bool) -> None:
    """Print the table of FILE with a backup for each die: the other die of its NPU, on a port of its own.

    HCCL reads backups on A3, with retry between super-pods on and operators on the AI CPU; it then needs host_ip too.
    What is in the table stays. Where a rule cannot be kept nothing is printed, and the first reason is told (exit code
    1).
    """
    texts = read_tables(file)
    if len(texts) > 1:
        raise BadUsage(f"{file} holds {len(texts)} tables", hint="give a file with one")
    try:
        made = propose(open_table(texts[0].raw, lenient=lenient))
    except BadDocument as error:
        click.echo(f"{texts[0].name}: nothing is proposed: {error}", err=True)
        raise click.exceptions.Exit(EXIT_FINDINGS) from None
    click.echo(made.text, nl=False)
    click.echo(f"{texts[0].name}: added: backups {made.backups}, ports {made.ports}", err=True)
