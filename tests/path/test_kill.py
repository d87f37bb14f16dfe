"""`fault-agent run` killed with kill -9 again and again while it works: it ends where a run never killed ends.

What is compared are the documents of others, the faults that are active, the dead letters, and that each occurrence
began one recovery. Where a kill falls is left to chance on purpose; the matrix that dies at each single write in turn
is tests/app/test_kill_matrix.py.
"""

import json
import random
import time
from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from agentprocess import AgentProcess
from kubebuilders import a_config_map, a_group, a_pod, the_demo
from recordlines import append_lines, document, fault_line, journal, write_cluster, write_lines

from agent.wire.report import decode

LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
REQUEST, SEPARATE, MILD = "80BB8003", "80E18402", "80818200"
"""No frequency rule counts the first, and ClusterD's counting is off: it comes again and again to the same device."""
KILLS = 4
PIECES = KILLS + 1
MILD_FAULTS = 20
"""Occurs and recovers in each piece, so that a kill may fall in the middle of reading."""


def objects() -> list[dict[str, Any]]:
    """Job `demo` on n1 and n2, and `other` on n3, whose device is separated and whose pod is replaced."""
    other = a_group("other-1", owner="other", owner_uid="u2", min_member=1, labels=LABELS)
    off = {"manually_separate_policy.conf": "enabled: false"}
    counting = a_config_map("clusterd-config-cm", off, namespace="cluster-system")
    return [*the_demo(LABELS), other, a_pod("other-0", group="other-1", node="n3", labels=LABELS), counting]


def piece_of(number: int, now: int) -> list[Any]:
    """Some fifty lines: a recovery on n1 that gets well, a pod of `other` that is replaced, mild faults on n2, and a
    line that nobody can read. The last line is a fault whose decision shows that all was read.
    """
    ids = iter(range(number * 1000, number * 1000 + 1000))
    found = [fault_line(SEPARATE, now, next(ids), node=f"n{3 + number}")]
    for step in range(MILD_FAULTS):
        place: dict[str, Any] = {"node": "n2", "devices": (step % 4,)}
        found.append(fault_line(MILD, now, next(ids), **place))
        found.append(fault_line(MILD, now, next(ids), assertion="recover", **place))
        if step == MILD_FAULTS // 4:
            found.append({"delete": {"kind": "Pod", "namespace": "train", "name": "other-0"}})
        if step == MILD_FAULTS // 3:
            found.append({"key": "n1", "timestamp": now, "value": f"no record {number}"})
        if step == MILD_FAULTS // 2:
            uid, node = f"uid-life-{number}", f"n{4 + number}"
            found.append({"apply": a_pod("other-0", uid=uid, group="other-1", node=node, labels=LABELS)})
    found.append(fault_line(REQUEST, now, next(ids)))
    found.append(fault_line(REQUEST, now, next(ids), assertion="recover"))
    found.append(fault_line("80E01801", now, next(ids), node=f"x{number}"))
    return found


def is_done(out: Path, number: int) -> bool:
    """The piece was read to its end and its recovery is well: nothing but the clock moves any more."""
    read = any(line["reason"] == "NO_JOB" and line["node"] == f"x{number}" for line in journal(out))
    data = document(out, "train/reset-config-demo")
    entries = json.loads(data["reset.json"])["RankList"] if data else []
    return read and {(one["Status"], one["RecoveryId"]) for one in entries} == {("recovered", number + 1)}


def end_of(out: Path) -> dict[str, Any]:
    """What a run has come to, as far as it does not follow from when it ran."""
    vcjob = document(out, "volcano-system/vcjob-fault-npu-cm")
    records = document(out, "mindx-dl/job-reschedule-reason")
    reset = document(out, "train/reset-config-demo")
    assert vcjob is not None
    assert records is not None
    assert reset is not None
    nodes = json.loads(vcjob["fault-node"])
    jobs = json.loads(records["recent-reschedule-records"])
    info = json.loads(reset["reset.json"])
    active = set()
    for path in (out / ".state" / "reports").glob("*.json"):
        active |= {(str(fault.key), fault.level, fault.count) for fault in decode(path.read_bytes()).active}
    return {
        "nodes": [{key: value for key, value in node.items() if key != "UpdateTime"} for node in nodes],
        "retries": json.loads(vcjob["remain-retry-times"]),
        "totals": {job: one["TotalRescheduleTimes"] for job, one in jobs.items()},
        "records": [record["ReasonOfTask"] for record in jobs["train/other-1"]["RescheduleRecords"]],
        "entries": [(one["RankId"], one["Status"], one["RecoveryId"]) for one in info["RankList"]],
        "retry": info["RetryTime"],
        "active": active,
        "letters": [
            json.loads(line)["headers"]["fault-agent-source"]
            for line in (out / "dead-letters.jsonl").read_text().splitlines()
        ],
    }


def started_recoveries(out: Path) -> list[str]:
    return [line["occurrence"] for line in journal(out) if line["reason"] == "RECOVERY_STARTED"]


def facts(out: Path) -> Counter[tuple[str, str, str]]:
    """How often each decision about an occurrence was journalled."""
    told = (line for line in journal(out) if "occurrence" in line)
    return Counter((line["occurrence"], line["reason"], line.get("job", "")) for line in told)


def begun(place: Path, name: str) -> AgentProcess:
    """A run on files of its own whose ledger says since when it acts, so that every event comes after that."""
    events = write_lines(place / f"{name}.jsonl", [])
    agent = AgentProcess(events, place / "cluster.json", place / name)
    agent.until((place / name / "fault-agent" / "fault-agent-cluster.json").exists)
    return agent


def go_on(place: Path, name: str) -> AgentProcess:
    """The next run on the same files."""
    return AgentProcess(place / f"{name}.jsonl", place / "cluster.json", place / name)


def test_killed_at_many_moments_a_run_ends_as_one_that_never_was(tmp_path: Path) -> None:
    write_cluster(tmp_path / "cluster.json", objects())
    moments = random.Random(20260101)
    with ExitStack() as stack:
        whole = stack.enter_context(begun(tmp_path, "whole"))
        victim = stack.enter_context(begun(tmp_path, "killed"))
        now = time.time_ns() // 1_000_000
        for number, piece in enumerate(piece_of(number, now) for number in range(PIECES)):
            append_lines(tmp_path / "whole.jsonl", piece)
            append_lines(tmp_path / "killed.jsonl", piece)
            if number < KILLS:
                victim.wait(moments.uniform(0.0, 0.25))
                victim.kill()
                victim = stack.enter_context(go_on(tmp_path, "killed"))
            whole.until(partial(is_done, tmp_path / "whole", number))
            victim.until(partial(is_done, tmp_path / "killed", number))
        assert victim.end() == 0
        assert whole.end() == 0
    wanted, got = end_of(tmp_path / "whole"), end_of(tmp_path / "killed")
    for name, value in wanted.items():
        assert got[name] == value, name
    assert wanted["totals"] == {"train/other-1": PIECES}
    assert wanted["retry"] == PIECES
    assert len(wanted["letters"]) == PIECES
    for name in ("whole", "killed"):
        assert len(started_recoveries(tmp_path / name)) == len(set(started_recoveries(tmp_path / name))) == PIECES
        assert [fact for fact, times in facts(tmp_path / name).items() if times > 1] == []
    assert facts(tmp_path / "killed").keys() == facts(tmp_path / "whole").keys()
