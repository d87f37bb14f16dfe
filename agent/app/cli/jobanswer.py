"""What the cluster's objects answer to `why job`: what it waits for and asks for, and how the scheduler is configured.

The one rule: what was not seen is said to be unknown, never taken for absent.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from agent.app.cli.show import folded
from agent.app.jobpicture import JobNow, Picture
from agent.domain.jobs.conditions import WAITING, Condition
from agent.domain.vocab import utc_text
from agent.wire.audit import rfc3339
from agent.wire.schedulerfile import NAME, NAMESPACE, PARAMS, PLACE, Scheduler

_OVER: Final = frozenset({"Running", "Completed"})
"""Phases of a job that has been scheduled; a condition of before may stand on."""
_UNKNOWN: Final = "a reason that is not known here; the message is the scheduler's own"


def job_lines(picture: Picture | None) -> Iterator[str]:
    """For people; nothing when no objects were read, or none of the job."""
    if picture is None or not picture.jobs:
        return
    yield ""
    yield "By the objects of the cluster:"
    for one in picture.jobs:
        yield from _job(one)
    yield "  scheduler"
    for text in (*_scheduler(picture), *_disagrees(picture)):
        yield from folded("", text, 0)


def job_plain(picture: Picture | None) -> Iterator[dict[str, object]]:
    """For machines: an object for each job, and one for the scheduler."""
    if picture is None or not picture.jobs:
        return
    for one in picture.jobs:
        yield {
            "kind": "job",
            "job": one.job.id,
            "phase": one.job.phase,
            "placed": one.placed,
            "needed": one.job.min_member,
            "waits": [_plain_wait(condition) for condition in one.waits],
            "says": dict(one.says),
            "slices": {name: list(cards) for name, cards in one.slices.items()},
            "findings": [{"code": str(f.code), "object": f.object, "reason": f.reason} for f in one.findings],
        }
    scheduler = picture.scheduler
    yield {
        "kind": "scheduler",
        "seen": scheduler is not None,
        "npu_plugin": None if scheduler is None else scheduler.plugin,
        "init_params": {} if scheduler is None else _params(scheduler),
        "findings": [] if scheduler is None else list(scheduler.problems),
    }


def _job(one: JobNow) -> Iterator[str]:
    needed = f" of {one.job.min_member}" if one.job.min_member else ""
    yield f"  {one.job.id}  {one.job.phase or 'no phase yet'}, {one.placed}{needed} pods placed"
    over = one.job.phase in _OVER
    for condition in one.waits:
        since = f" since {utc_text(condition.since)}" if condition.since else ""
        message = f": {condition.message}" if condition.message else ""
        yield from folded("waited" if over else "waits", f"{condition.reason or condition.type}{since}{message}")
        known = WAITING.get(condition.reason)
        yield from folded("meaning", known.meaning if known is not None else _UNKNOWN)
        if known is not None and not over:
            yield from folded("do", known.do)
    if one.says:
        yield from folded("says", ", ".join(f"{key}={value}" for key, value in one.says.items()))
    for name, cards in one.slices.items():
        listed = ", ".join(map(str, cards))
        yield from folded("slices", f"pod {name} holds slices (vNPU) of card {listed}; others may hold the rest")
    for finding in one.findings:
        yield from folded("finding", f"{finding.code} {finding.object}: {finding.reason}")


def _plain_wait(condition: Condition) -> dict[str, object]:
    known = WAITING.get(condition.reason)
    return {
        "reason": condition.reason,
        "type": condition.type,
        "since": rfc3339(condition.since) if condition.since else None,
        "message": condition.message,
        "meaning": "" if known is None else known.meaning,
        "do": "" if known is None else known.do,
    }


def _params(scheduler: Scheduler) -> Mapping[str, str]:
    """Every init-param: as given, else what the plugin takes it for."""
    return {name: one.default for name, one in PARAMS.items()} | dict(scheduler.params)


def _disagrees(picture: Picture) -> Iterator[str]:
    """Where the settings state something else of the plugin than the scheduler's configuration."""
    if picture.scheduler is None:
        return
    match picture.volcano, bool(picture.scheduler.plugin):
        case "absent", True:
            yield "the settings say volcano: absent; if the plugin runs all the same, its evictions race our recoveries"
        case "alive", False:
            yield "the settings say volcano: alive; so its documents are only compared, though nobody may write them"


def _scheduler(picture: Picture) -> Iterator[str]:
    scheduler = picture.scheduler
    if scheduler is None:
        wrong = [one.removeprefix(f"{PLACE}: ") for one in picture.unread if one.startswith(PLACE)]
        state = f"cannot be read ({'; '.join(wrong)})" if wrong else "was not seen"
        yield f"{NAMESPACE}/{NAME} {state}: whether the NPU plugin is configured is not known"
        return
    if not scheduler.plugin:
        yield (
            f"no tier of {NAMESPACE}/{NAME} names a plugin volcano-npu_…: Volcano moves no job because of a faulty NPU"
        )
        return
    yield f"NPU plugin {scheduler.plugin} is configured"
    given = scheduler.params
    marks = {name: " (bad: see the finding)" if scheduler.is_bad(name) else "" for name in given}
    words = (f"{name} {value}{marks.get(name, ' (default)')}" for name, value in _params(scheduler).items())
    yield f"init-params: {', '.join(words)}"
    for problem in scheduler.problems:
        yield f"finding: {problem}"
