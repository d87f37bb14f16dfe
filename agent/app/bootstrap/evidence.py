"""What `why` reads of the roles on services: the topics audit, dead letters and reports, the ledgers, a job's objects.

The one rule: nothing is written, and no right is used but to read.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

from agent.adapters.kafka import KafkaDeadLetters, KafkaJournal, KafkaReportLog
from agent.adapters.kube import (
    CONFIG_MAPS,
    POD_GROUPS,
    PODS,
    KubeDocumentStore,
    Watched,
    connect,
    listed,
    trimmed,
)
from agent.app.bootstrap.common import MANAGER, cluster_of, silence_client, wall_clock
from agent.app.bootstrap.coordinator import OURS, kube_of, wanted
from agent.app.bootstrap.topics import kafka_of
from agent.app.gather import Sources, gather
from agent.app.jobpicture import Picture, picture_of
from agent.app.settings import Settings
from agent.app.standing import Evidence, Standing, standing_of
from agent.domain.events import Record
from agent.domain.vocab import Millis, NodeName
from agent.ports import ConfigMap
from agent.wire import schedulerfile
from agent.wire.audit import AuditLine

PAGE: Final = 500
"""Objects per page of a list."""


def read_services(
    settings: Settings,
    nodes_of: Callable[[Sequence[AuditLine]], Collection[NodeName]],
    last: int,
    since: Millis | None,
) -> Evidence:
    """The evidence of the newest `last` decisions (and dead letters), of none that is older than `since` (ms).

    Raises BadUsage (no cluster.id), CannotRun, Refused, Unavailable: Kafka has to answer, the API server need not.
    """
    silence_client()
    kafka, names = kafka_of(settings), settings.kafka
    journal = KafkaJournal(kafka, names.topic("audit"))
    letters = KafkaDeadLetters(kafka, names.topic("deadletter"))
    log = KafkaReportLog(kafka, names.topic("reports"), names.report_partitions)

    async def newest_letters() -> Sequence[Record]:
        found = await letters.read_all(scan=last)
        return found if since is None else [letter for letter in found if letter.timestamp >= since]

    sources = Sources(
        cluster=cluster_of(settings),
        lines=lambda: journal.tail(last, since),
        letters=newest_letters,
        reports=log.of,
        ledgers=lambda: _ledgers(settings),
        now=wall_clock,
    )
    return asyncio.run(gather(sources, nodes_of))


def read_ledgers(settings: Settings) -> tuple[Standing, Sequence[str]]:
    """What the ledgers on the API server say, and a finding for each that cannot be read; Kafka is not asked.

    Raises BadUsage (no cluster.id), CannotRun, Refused, Unavailable.
    """
    silence_client()
    cluster = cluster_of(settings)
    return standing_of({}, asyncio.run(_ledgers(settings)), cluster)


async def _ledgers(settings: Settings) -> Sequence[ConfigMap]:
    client = await connect(kube_of(settings))
    try:
        return await KubeDocumentStore(client, MANAGER, labels=OURS).list()
    finally:
        await client.close()


def read_picture(settings: Settings, namespace: str, means: Callable[[str], bool]) -> Picture:
    """What the API server's objects say of the jobs that `means` says yes to; `namespace` empty: of all of them. Raises
    Refused, Unavailable, CannotRun.
    """
    return replace(asyncio.run(_picture(settings, namespace, means)), volcano=settings.volcano)


async def _picture(settings: Settings, namespace: str, means: Callable[[str], bool]) -> Picture:
    kinds = (
        Watched(PODS, namespace),
        Watched(POD_GROUPS, namespace, optional=True),
        Watched(CONFIG_MAPS, namespace),
        Watched(CONFIG_MAPS, schedulerfile.NAMESPACE, fields=f"metadata.name={schedulerfile.NAME}"),
    )
    keep = wanted(settings)
    objects: list[Mapping[str, Any]] = []
    client = await connect(kube_of(settings))
    try:
        for kind in kinds:
            async with aclosing(listed(client, kind, PAGE)) as items:
                objects += [trimmed(item) async for item in items if keep(item)]
    finally:
        await client.close()
    return picture_of(objects, (), means)
