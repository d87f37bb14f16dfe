"""The --out folder of a solo run: whether it may be used, who made it, and what it says of faults now.

The one rule: nothing is removed from a folder but what a demo has made, and only while nobody works there.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import orjson

from agent.adapters.folderlock import FolderLock
from agent.app.bootstrap.common import AUDIT, LETTERS, STATE
from agent.app.ledgers import CLUSTER_NAME
from agent.domain.events import ActiveFault, DurationTimer, FrequencyCounter
from agent.domain.ledger import Course, Kept, Related, Separation
from agent.domain.vocab import JobId, NodeName
from agent.errors import BadDocument, BadReport, BadUsage, CannotRun
from agent.wire.ledgerfile import LEDGER_KEY, decode_cluster_ledger, decode_job_ledger
from agent.wire.report import decode as decode_report

LOCK: Final = "lock"
"""In the state folder; one process at a time holds it."""
DEMO: Final = "demo"
"""In the state folder of a demo; what it stands in may be replaced by the next demo."""
REPORTS: Final = "reports"
CABINET: Final = "cabinet"

_OURS: Final = re.compile(
    rf"\.lock|{re.escape(AUDIT)}(\.torn)?|{re.escape(LETTERS)}(\.torn)?"
    rf"|{re.escape(STATE)}/({LOCK}|{DEMO}|{REPORTS}/[^/]+|{CABINET}/[^/]+)"
    r"|[^/.][^/]*/\.?(fault-agent-[^/]+|reset-config-[^/]+|vcjob-fault-npu-cm|job-reschedule-reason)\.json(\.tmp)?"
)
"""Every file, from the folder on, that a demo writes."""


def holds_state(out: Path) -> bool:
    """Whether a run has made a checkpoint here. A lock alone, or folders a run had made before it failed, is none."""
    folders = (out / STATE / REPORTS, out / STATE / CABINET)
    return any(not entry.name.startswith(".") for folder in folders if folder.is_dir() for entry in folder.iterdir())


def make_out(out: Path) -> None:
    """The folder, made if need be. Raises CannotRun when it cannot be."""
    try:
        (out / STATE).mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise CannotRun(f"--out {out} is a file, or lies below one", hint="give a folder; it is made") from error
    except OSError as error:
        raise CannotRun(
            f"--out {out} cannot be made: {error.strerror or error}", hint="give a folder where you may write"
        ) from error


def check_demo(out: Path) -> bool:
    """Whether the folder holds an earlier demo and nothing else; False: nothing at all. Raises BadUsage otherwise."""
    if not out.is_dir():
        return False
    files = list(_files(out))
    if not (out / STATE / DEMO).is_file():
        if all(name == f"{STATE}/{LOCK}" for name in files):
            return False
        raise BadUsage(
            f"{out} is not empty and was not made by a demo",
            hint="give --out a new folder, or remove this one yourself",
        )
    foreign = [name for name in files if not _OURS.fullmatch(name) or (out / name).is_symlink()]
    if foreign:
        more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
        raise BadUsage(
            f"{out} holds what no demo wrote: {', '.join(foreign[:3])}{more}",
            hint="move that away, or give --out a new folder",
        )
    return True


def clear_demo(out: Path) -> None:
    """Remove what an earlier demo wrote, file by file. Raises CannotRun while another process works there."""
    with FolderLock(out / STATE / LOCK):
        for name in _files(out):
            # The marker goes last: a removal that was cut short can be taken up again.
            if name not in (f"{STATE}/{LOCK}", f"{STATE}/{DEMO}"):
                (out / name).unlink(missing_ok=True)


def mark_demo(out: Path) -> None:
    """Note that all in the folder is a demo's."""
    (out / STATE / DEMO).write_text("A later `fault-agent demo --replace` may replace this folder.\n", encoding="utf-8")


def _files(out: Path) -> Iterator[str]:
    """Every entry that is no folder, and every link, by its path from `out`; sorted."""
    for path in sorted(out.rglob("*")):
        if path.is_symlink() or not path.is_dir():
            yield path.relative_to(out).as_posix()


@dataclass(frozen=True, slots=True)
class Standing:
    """What the state of a folder says now."""

    nodes: frozenset[str] = frozenset()
    """Nodes with a readable report."""
    active: Mapping[str, ActiveFault] = field(default_factory=dict)
    """By identity `node/plane/where/code`."""
    timers: Mapping[str, DurationTimer] = field(default_factory=dict)
    counters: Mapping[str, FrequencyCounter] = field(default_factory=dict)
    courses: Mapping[JobId, tuple[Course, ...]] = field(default_factory=dict)
    """Recoveries under way by job; none are kept in observe mode."""
    kept: Mapping[str, Kept] = field(default_factory=dict)
    """What a quiet rule keeps back from a job, by occurrence."""
    related: Mapping[JobId, Mapping[str, Related]] = field(default_factory=dict)
    """Pods that a relation rule made faulty, by job and UID."""
    separations: Mapping[NodeName, tuple[Separation, ...]] = field(default_factory=dict)


def read_standing(out: Path) -> Standing:
    """What the reports and ledgers of the folder say. What cannot be read says nothing here: the run itself tells."""
    nodes: set[str] = set()
    active: dict[str, ActiveFault] = {}
    timers: dict[str, DurationTimer] = {}
    counters: dict[str, FrequencyCounter] = {}
    for path in sorted((out / STATE / REPORTS).glob("*.json")):
        try:
            report = decode_report(path.read_bytes())
        except (BadReport, OSError):
            continue
        nodes.add(report.node)
        active.update({str(fault.key): fault for fault in report.active})
        timers.update({str(timer.key): timer for timer in report.timers})
        counters.update({str(counter.key): counter for counter in report.counters})
    courses: dict[JobId, tuple[Course, ...]] = {}
    kept: dict[str, Kept] = {}
    related: dict[JobId, Mapping[str, Related]] = {}
    for path in sorted(out.glob("*/fault-agent-job-*.json")):
        try:
            text = str(orjson.loads(path.read_bytes())["data"][LEDGER_KEY])
            cluster = str(orjson.loads(text)["cluster"])
            ledger = decode_job_ledger(text, cluster, str(path))
        except (BadDocument, OSError, orjson.JSONDecodeError, KeyError, TypeError):
            continue
        courses[ledger.job] = ledger.courses
        kept.update({key.partition("~")[0]: one for key, one in ledger.quiet.items()})
        related[ledger.job] = ledger.related
    return Standing(frozenset(nodes), active, timers, counters, courses, kept, related, _separations(out))


def _separations(out: Path) -> Mapping[NodeName, tuple[Separation, ...]]:
    """Devices separated by hand, as the cluster's ledger in the folder has them."""
    for path in sorted(out.glob(f"*/{CLUSTER_NAME}.json")):
        try:
            text = str(orjson.loads(path.read_bytes())["data"][LEDGER_KEY])
            return decode_cluster_ledger(text, str(orjson.loads(text)["cluster"]), str(path)).separations
        except (BadDocument, OSError, orjson.JSONDecodeError, KeyError, TypeError):
            continue
    return {}
