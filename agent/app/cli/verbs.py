"""The command line: verbs registered in one place, errors turned into exit codes in one place.

The one rule: no traceback for anything foreseen; every error says what to do next.
Exit codes: 0 done, 1 findings or bad records, 2 wrong use, 3 cannot run, 130 broken off with Ctrl-C.
"""

import sys

import click

from agent import __version__
from agent.app.cli.config import config
from agent.app.cli.documents import documents
from agent.app.cli.explain import explain
from agent.app.cli.kafka import deadletter, topics
from agent.app.cli.policy import policy
from agent.app.cli.policydiff import diff_command
from agent.app.cli.policyimport import coverage, import_
from agent.app.cli.policylint import lint_command
from agent.app.cli.policyunknown import unknown_command
from agent.app.cli.rail import rail
from agent.app.cli.railexplain import explain_command as rail_explain
from agent.app.cli.railplan import plan_command as rail_plan
from agent.app.cli.railstatus import status_command as rail_status
from agent.app.cli.ranktable import ranktable
from agent.app.cli.ranktablebackup import backup_command
from agent.app.cli.ranktableenv import env_command
from agent.app.cli.ranktableshow import show_command as ranktable_show
from agent.app.cli.release import release
from agent.app.cli.run import run
from agent.app.cli.solo import demo, replay
from agent.app.cli.why import why
from agent.errors import AgentError, BadUsage

EXIT_USAGE = 2
EXIT_CANNOT_RUN = 3


class _Verbs(click.Group):
    """Shows the verbs in the order in which a newcomer needs them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


_HELP = """Turn NPU fault events into the ConfigMaps that MindCluster components read, once and with a reason.

\b
See it work          fault-agent demo
Ask about a code     fault-agent explain 80E18402
Run on files         fault-agent run --role solo --events FILE --cluster PATH --out DIR
Judge a recording    fault-agent replay FILE --cluster PATH --out DIR
Ask why              fault-agent why fault n1/chip/2/80E18402 --out DIR
What if a link fails fault-agent rail plan --cluster PATH --fault n1/network/2
On a real cluster    fault-agent topics create; fault-agent run --role node|coordinator --config FILE
"""


@click.group(
    cls=_Verbs,
    help=_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with: fault-agent demo. Exit codes: 0 done, 1 findings or bad records, 2 wrong use, 3 cannot run.",
)
@click.version_option(__version__, "-V", "--version", prog_name="fault-agent", message="%(prog)s %(version)s")
def cli() -> None:
    """Hold the verbs."""


@click.command(short_help="Show the version.", epilog="Example: fault-agent version --json")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def version(as_json: bool) -> None:
    """Show the version of the agent and of the Python below it."""
    python = ".".join(str(part) for part in sys.version_info[:3])
    if as_json:
        click.echo(f'{{"version":"{__version__}","python":"{python}"}}')
    else:
        click.echo(f"fault-agent {__version__} (Python {python})")


for of_policy in (lint_command, diff_command, import_, coverage, unknown_command):
    policy.add_command(of_policy)
for of_ranktable in (ranktable_show, backup_command, env_command):
    ranktable.add_command(of_ranktable)
for of_rail in (rail_plan, rail_explain, rail_status):
    rail.add_command(of_rail)
for verb in (
    demo,
    run,
    replay,
    explain,
    why,
    documents,
    release,
    policy,
    ranktable,
    rail,
    config,
    topics,
    deadletter,
    version,
):
    cli.add_command(verb)


def answer() -> int:
    """Do what the command line asks; the exit code. Raises KeyboardInterrupt when a person breaks it off."""
    try:
        code = _answer()
        sys.stdout.flush()  # here, where it can still be told that it failed
    except OSError as error:
        what = error.filename or "standard output cannot be written"
        click.echo(f"fault-agent: {what}: {error.strerror or error}", err=True)
        return EXIT_CANNOT_RUN
    return code


def _answer() -> int:
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.Abort as error:
        raise KeyboardInterrupt from error
    except click.ClickException as error:
        error.show()
        return EXIT_USAGE
    except AgentError as error:
        click.echo(f"fault-agent: {error}", err=True)
        return EXIT_USAGE if isinstance(error, BadUsage) else EXIT_CANNOT_RUN
    return code if isinstance(code, int) else 0  # click hands an Exit's code back instead of raising it
