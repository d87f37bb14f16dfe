"""What the cluster's objects say of jobs now, for who asks why: what a job waits for, what it asks for, what is wrong.

The one rule: the objects are read as the coordinator reads them, and nothing is decided by what only people are shown.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agent.app.world import World
from agent.domain.cluster import ClusterBook, Limits
from agent.domain.jobs import Finding, Job, Pod
from agent.domain.jobs.conditions import Condition, waiting
from agent.domain.jobs.others import SHOWN
from agent.domain.vocab import JobId
from agent.errors import BadDocument
from agent.wire.kubeobjects import conditions_of
from agent.wire.schedulerfile import PLACE, Scheduler

Objects = Iterable[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class JobNow:
    """One job as its objects stand."""

    job: Job
    placed: int
    """Pods that run or start on a node."""
    waits: tuple[Condition, ...]
    """Why the scheduler did not place it, newest first."""
    says: Mapping[str, str]
    """Labels and annotations that somebody reads, as merged."""
    slices: Mapping[str, tuple[int, ...]]
    """Pods that hold slices (vNPU), and of which cards."""
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """The jobs that were asked for, and how the scheduler is configured."""

    jobs: tuple[JobNow, ...] = ()
    scheduler: Scheduler | None = None
    """None: its ConfigMap was not seen, or cannot be read."""
    unread: tuple[str, ...] = ()
    """What could not be read."""
    volcano: str = "auto"
    """What the settings say of the plugin: alive, absent, or auto."""


def picture_of(
    objects: Objects, findings: Iterable[str], means: Callable[[str], bool], laid: Iterable[Any] = ()
) -> Picture:
    """The picture of the jobs that `means` says yes to; `laid`: what a record file has brought on top (World.laid)."""
    book = ClusterBook("", Limits())
    world = World(book, remembers=False)
    world.lay(laid)
    world.replace(objects, findings)
    jobs = book.jobs
    found = tuple(_now(job, jobs.pods_of(job.id), world) for job in jobs.jobs() if means(job.id))
    problems = world.scheduler.problems if world.scheduler is not None else ()
    told = {f"{PLACE}: {problem}" for problem in problems}
    return Picture(found, world.scheduler, tuple(one for one in world.findings if one not in told))


def _now(job: Job, pods: tuple[Pod, ...], world: World) -> JobNow:
    texts = {**job.labels, **job.annotations}
    return JobNow(
        job=job,
        placed=sum(pod.live and pod.node is not None for pod in pods),
        waits=_waits(job.id, world),
        says={key: texts[key] for key in SHOWN if texts.get(key)},
        slices={pod.name: pod.bound for pod in pods if pod.virtual},
        findings=world.book.jobs.findings_of(job.id),
    )


def _waits(job: JobId, world: World) -> tuple[Condition, ...]:
    namespace, _, name = job.partition("/")
    raw = world.raw("PodGroup", namespace, name)
    try:
        return waiting(conditions_of(raw)) if raw is not None else ()
    except BadDocument as error:
        world.findings.append(str(error))
        return ()
