"""Policy files as files: where the shipped ones lie, copies to edit, and those of MindCluster's to read.

The one rule: nothing that is there already is overwritten.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from agent.adapters.manifests import read_documents
from agent.adapters.recordline import parse_line
from agent.adapters.shipped import read_shipped, shipped_folder
from agent.app.bootstrap.common import LETTERS, STATE, read_audit
from agent.app.bootstrap.folder import REPORTS
from agent.app.policykeep import PolicyKeep
from agent.domain.events import NodeReport, Position, Record
from agent.errors import BadReport, BadUsage, CannotRun
from agent.wire.audit import AuditLine
from agent.wire.mindcluster import COMPONENTS
from agent.wire.report import decode as decode_report
from agent.wire.yamlnodes import MAX_BYTES, nearest

_POLL_INTERVAL: Final = "PollInterval"
"""How often device-plugin reads its ConfigMap; ours is looked at every few seconds."""
_FIRST: Final = 1024 * 1024
"""Bytes of a recording in which a time must stand; a record is at most as long."""
_TIME: Final = re.compile(rb'"(?:timestamp|time|tick)\\?"\s*:\s*(1[0-9]{12})\b')


def policy_folder() -> Path:
    """Where the shipped policy files lie. Raises CannotRun when they are missing."""
    return shipped_folder("policies")


def export_policy(folder: Path, only: Collection[str] = ()) -> list[Path]:
    """Write the shipped policy files, or `only` those named so, into a folder, made if need be; gives the files.

    Raises BadUsage when one of them is there already (then none is written), CannotRun when it cannot be written.
    """
    shipped = {name: data for name, data in read_shipped("policies").items() if name.endswith(".yaml")}
    return write_policy(folder, {name: data for name, data in shipped.items() if not only or name in only})


def write_policy(folder: Path, texts: Mapping[str, bytes]) -> list[Path]:
    """Write policy files into a folder, made if need be; gives the files.

    Raises BadUsage when one of them is there already (then none is written), CannotRun when it cannot be written.
    """
    files = {folder / name: data for name, data in texts.items()}
    there = [str(path) for path in files if path.exists()]
    if there:
        raise BadUsage(f"{', '.join(there)} is there already", hint="give an empty folder; nothing was written")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, data in files.items():
            with path.open("xb") as file:
                file.write(data)
    except OSError as error:
        raise CannotRun(f"cannot write the policy files into {folder}: {error.strerror or error}") from error
    return list(files)


def read_mindcluster(path: Path, name: str | None = None) -> tuple[list[tuple[str, bytes]], list[str]]:
    """The files of MindCluster's in a file, with the name of each: the file itself, known by its name or called `name`,
    or those in the data of the ConfigMaps that it holds (YAML or JSON, as `kubectl get cm -o yaml` prints them). And
    what stands beside them in those ConfigMaps that nobody reads.

    Raises BadUsage when it is none, CannotRun when it cannot be read.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise CannotRun(f"{path} cannot be read: {error.strerror or error}") from error
    called = name or path.name
    if called in COMPONENTS:
        return [(called, data)], []
    if len(data) > MAX_BYTES:
        raise CannotRun(f"{path} has more than {MAX_BYTES} bytes", hint="give the ConfigMap or the file alone")
    found = read_documents(data, str(path))
    maps = [one for _, one in found.objects if one.get("kind") == "ConfigMap" and isinstance(one.get("data"), Mapping)]
    files: list[tuple[str, bytes]] = []
    beside: list[str] = []
    for one in maps:
        known = {key: text for key, text in one["data"].items() if key in COMPONENTS and isinstance(text, str)}
        files += [(key, text.encode("utf-8", "surrogatepass")) for key, text in known.items()]
        if known:
            others = [str(key) for key in one["data"] if key not in known and key != _POLL_INTERVAL]
            beside += [f"data key {key!r} is no file of MindCluster's{nearest(key, COMPONENTS)}" for key in others]
    if not files:
        why = f"{found.findings[0]}; " if found.findings else ""
        hint = f"{why}a file is known by its name{nearest(path.name, COMPONENTS)}; or say which it is with --as"
        raise BadUsage(f"{path} is no fault configuration of MindCluster's and no ConfigMap with one", hint=hint)
    return files, beside


def recorded_day(events: Path) -> date | None:
    """The day (UTC) of the first time that stands in a recording; None when none does or it cannot be read."""
    with suppress(OSError), events.open("rb") as file:
        if found := _TIME.search(file.read(_FIRST)):
            return datetime.fromtimestamp(int(found[1]) / 1000, UTC).date()
    return None


def policy_samples(keep: PolicyKeep) -> Iterable[tuple[str, str, str, float, tuple[tuple[str, str], ...]]]:
    """Metrics of the policy in force."""
    yield "gauge", "fault_agent_policy_ok", "1 while the newest policy files are in force", float(not keep.trouble), ()
    yield "counter", "fault_agent_policy_loads", "Times the policy files were read again and taken", keep.loads, ()
    yield "counter", "fault_agent_policy_load_failures", "Times they were read and not taken", keep.failures, ()


def read_seen(out: Path) -> tuple[list[AuditLine], list[NodeReport], list[Record]]:
    """The decisions, the reports and the dead letters of a run's folder, as far as they can be read.

    Raises CannotRun when it is no folder of a run.
    """
    lines, _ = read_audit(out)
    reports: list[NodeReport] = []
    for path in sorted((out / STATE / REPORTS).glob("*.json")):
        with suppress(BadReport, OSError):
            reports.append(decode_report(path.read_bytes()))
    letters = out / LETTERS
    kept = letters.read_bytes().splitlines() if letters.is_file() else []
    parsed = (parse_line(line, Position(0, 0, at)) for at, line in enumerate(kept))
    return lines, reports, [one for one in parsed if isinstance(one, Record)]
