"""The --out folder of a solo run: whether it may be used, who made it, and what it says of faults now.

The one rule: nothing is removed from a folder but what a demo has made, and only while nobody works there.
"""

import asyncio
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import orjson

from agent.adapters.clusterfiles import ClusterFiles
from agent.adapters.directory import DirectoryCabinet
from agent.adapters.folderlock import FolderLock
from agent.adapters.recordline import parse_line
from agent.app.bootstrap.common import AUDIT, LETTERS, STATE, read_audit
from agent.app.jobpicture import Picture, picture_of
from agent.app.keep import CABINET as CABINET_PLACE
from agent.app.keep import kept_of
from agent.app.solo import OBJECTS
from agent.app.standing import Evidence, standing_of
from agent.domain.events import Position, Record
from agent.domain.vocab import NodeName
from agent.errors import BadUsage, CannotRun
from agent.ports import ConfigMap

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


def read_evidence(out: Path) -> Evidence:
    """What a folder says: journal, dead letters, reports, ledgers; nothing of it is changed. Raises CannotRun when it
    is no folder of a run.
    """
    lines, findings = read_audit(out)
    reports: dict[NodeName, bytes] = {}
    for path in sorted((out / STATE / REPORTS).glob("*.json")):
        try:
            reports[NodeName(path.stem)] = path.read_bytes()
        except OSError as error:
            findings.append(f"report of {path.stem}: {error.strerror or error}")
    documents = [_document(path, findings) for path in sorted(out.glob("*/fault-agent-*.json"))]
    standing, unread = standing_of(reports, filter(None, documents))
    return Evidence(lines, _letters(out), standing, (*findings, *unread))


def read_picture(out: Path, cluster: Path, means: Callable[[str], bool]) -> Picture:
    """What the cluster's files, and the objects that the run's stream laid over them, say of the jobs that `means` says
    yes to. Raises CannotRun, Unavailable.
    """
    scan = ClusterFiles(cluster, static=True).scan()
    laid = asyncio.run(DirectoryCabinet(out / STATE / CABINET).load(OBJECTS))
    on_top = kept_of(laid, f"{CABINET_PLACE}{OBJECTS}").laid if laid is not None else ()
    return picture_of(scan.objects, scan.findings, means, on_top)


def _document(path: Path, findings: list[str]) -> ConfigMap | None:
    place = f"{path.parent.name}/{path.stem}"
    try:
        data = orjson.loads(path.read_bytes())["data"]
        return ConfigMap(path.parent.name, path.stem, {str(key): str(text) for key, text in data.items()})
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        findings.append(f"{place}: no ConfigMap: {error}")
        return None


def _letters(out: Path) -> list[Record]:
    path = out / LETTERS
    if not path.is_file():
        return []
    kept = (parse_line(line, Position(0, 0, at)) for at, line in enumerate(path.read_bytes().splitlines()))
    return [one for one in kept if isinstance(one, Record)]
