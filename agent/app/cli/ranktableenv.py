"""`fault-agent ranktable env`: what HCCL makes of an environment, variable by variable, and what it may then do.

The one rule: retry and borrow are two verdicts, for HCCL retries more than it borrows for; unknown is never off.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click
import orjson

from agent.app.bootstrap import read_objects
from agent.app.cli.ranktable import read_env
from agent.domain import hccl
from agent.domain.hccl import Eligible, HcclEnv, Sight, env_from
from agent.domain.hcclwords import value_words, variable_words, variables_of
from agent.domain.jobs.stated import is_version
from agent.errors import BadUsage

_PATH: Final = click.Path(path_type=Path)


@click.command(
    "env",
    short_help="What HCCL makes of a job's variables: retry, borrow, time-outs, differences between pods.",
    epilog="Examples: fault-agent ranktable env --env job.env; "
    "fault-agent ranktable env --cluster cluster.yaml --cann 8.3.RC1 --json",
)
@click.option(
    "--env", "env_file", type=_PATH, help="The whole environment, a NAME=value a line. Example: --env job.env"
)
@click.option("--cluster", type=_PATH, help="Objects of the cluster: each pod with NPUs. Example: --cluster objects/")
@click.option(
    "--cann", default="", help="Version of CANN; the default levels of retry hang on it. Example: --cann 8.3.RC1"
)
@click.option("--json", "as_json", is_flag=True, help="For machines: an array, an element per environment.")
def env_command(env_file: Path | None, cluster: Path | None, cann: str, as_json: bool) -> None:
    """Tell each variable that decides about operator retry and rail-borrow, as HCCL reads it.

    A variable that a pod's spec does not show is unknown, not off: a start script may export it.
    """
    if cann and not is_version(cann):
        raise BadUsage(f"--cann {cann[:40]!r} is no version", hint="such as 8.3.RC1")
    if (env_file is None) == (cluster is None):
        raise BadUsage("give --env FILE or --cluster PATH", hint="one of them states the environment")
    jobs = {"": {str(env_file): env_from(read_env(env_file), True, cann)}} if env_file is not None else {}
    if cluster is not None:
        jobs = _of_pods(cluster, cann)
        if not jobs:
            raise BadUsage(f"{cluster} holds no pod with NPUs", hint="kubectl get pod -A -o yaml")
    named = {name: env for envs in jobs.values() for name, env in envs.items()}
    if as_json:
        found = [_plain(name, env) for name, env in named.items()]
        click.echo(orjson.dumps(found, option=orjson.OPT_INDENT_2))
        return
    click.echo("\n\n".join("\n".join(_text(name, env)) for name, env in named.items()))
    for job, envs in jobs.items():
        for line in _differences(envs):
            click.secho(f"\n{job} differs: {line}", fg="yellow")
    click.echo(f"\n{hccl.IN_PLACE}.")


def _of_pods(cluster: Path, cann: str) -> dict[str, dict[str, HcclEnv]]:
    """Job -> pod -> environment; a pod without a PodGroup is a job of its own."""
    known = read_objects(cluster)
    for finding in known.findings:
        click.echo(f"{finding} (not read)", err=True)
    jobs: dict[str, dict[str, HcclEnv]] = {}
    for pod in known.pods:
        if pod.live and pod.devices:
            jobs.setdefault(pod.job or str(pod), {})[str(pod)] = known.env(pod, cann)
    return jobs


def _guessed(env: HcclEnv) -> str:
    """Why the threshold is not what the timers come to."""
    timers = {hccl.RDMA_TIMEOUT: env.rdma_timeout, hccl.RDMA_RETRY_CNT: env.rdma_retry_cnt}
    unread = [name for name, seen in timers.items() if seen.sight in (Sight.INVALID, Sight.UNKNOWN)]
    return f" (assumed: {' and '.join(unread)} not known)" if unread else ""


def _verdicts(env: HcclEnv) -> dict[str, Eligible]:
    return {"retry": hccl.retry_eligible(env), "borrow": hccl.borrow_eligible(env)}


_ANSWER: Final[Mapping[bool | None, str]] = {True: "yes", False: "no", None: "unknown"}


def _text(name: str, env: HcclEnv) -> Iterator[str]:
    yield name
    for variable in variables_of(env):
        yield f"  {variable:<26} {variable_words(env, variable)}"
    for what, verdict in _verdicts(env).items():
        yield f"  {what:<26} {_ANSWER[verdict.answer]}: {verdict.why}"
    yield f"  {'flap threshold':<26} {hccl.flap_threshold_ms(env):.1f} ms{_guessed(env)}"


def _differences(named: Mapping[str, HcclEnv]) -> Iterator[str]:
    """Variables that are not the same for all; HCCL does not set up links between such ranks."""
    for variable in variables_of(HcclEnv()):
        if variable == hccl.VISIBLE_DEVICES:
            continue
        words: dict[str, list[str]] = {}
        for name, env in named.items():
            seen, default = variables_of(env)[variable]
            if seen.sight in (Sight.KNOWN, Sight.UNSET):
                words.setdefault(value_words(seen.value) if seen.sight is Sight.KNOWN else default, []).append(name)
        if len(words) > 1:
            told = "; ".join(f"{value} ({len(some)}: {some[0]})" for value, some in words.items())
            yield f"{variable}: {told}"


def _plain(name: str, env: HcclEnv) -> dict[str, Any]:
    return {
        "of": name,
        "variables": {
            variable: {
                "sight": seen.sight,
                "value": value_words(seen.value) if seen.sight is Sight.KNOWN else None,
                "default": default,
                "problem": seen.problem or None,
            }
            for variable, (seen, default) in variables_of(env).items()
        },
        "verdicts": {what: {"answer": _ANSWER[one.answer], "why": one.why} for what, one in _verdicts(env).items()},
        "flap_threshold_ms": hccl.flap_threshold_ms(env),
        "not_shown_by_variables": hccl.IN_PLACE,
    }
