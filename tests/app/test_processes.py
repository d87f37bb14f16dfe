"""The command as processes: the same bytes from any of them, a growing file followed, an orderly end."""

import json
import signal
import time
from pathlib import Path

import pytest
from agentprocess import AgentProcess, replay
from kubebuilders import DEMO_JOB, a_pod, the_demo
from recordlines import append_lines, document, fault_line, journal, write_cluster, write_lines
from rig import T0

LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
REQUEST, SEPARATE = "80C98000", "80E18402"
VCJOB = "volcano-system/vcjob-fault-npu-cm"
RESET = "train/reset-config-demo"


def now() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a cluster file and an empty events file."""
    write_cluster(tmp_path / "cluster.json", the_demo(LABELS))
    write_lines(tmp_path / "events.jsonl", [])
    return tmp_path


def started(place: Path, *more: str) -> AgentProcess:
    agent = AgentProcess(place / "events.jsonl", place / "cluster.json", place / "out", *more)
    agent.until(lambda: bool(journal(place / "out")))
    return agent


def reasons(place: Path) -> list[str]:
    return [line["reason"] for line in journal(place / "out")]


def unhealthy(place: Path) -> dict[str, list[str] | None]:
    data = document(place / "out", VCJOB)
    nodes = json.loads(data["fault-node"]) if data else []
    return {node["NodeName"]: node["UnhealthyNPU"] for node in nodes}


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_two_processes_with_other_hash_seeds_make_byte_identical_folders(place: Path) -> None:
    lines = [fault_line((REQUEST, SEPARATE, "80E01801")[n % 3], T0 + n * 500, n, devices=(n % 4,)) for n in range(40)]
    lines += [fault_line(REQUEST, T0 + 30_000, 99, node="n2"), {"key": "n1", "value": "bad"}]
    lines += [{"delete": {"kind": "Pod", "namespace": "train", "name": "demo-0"}, "time": T0 + 40_000}]
    lines += [{"apply": a_pod("demo-0", uid="u2", node="n3", labels=LABELS), "time": T0 + 50_000}]
    write_lines(place / "events.jsonl", [*lines, {"tick": T0 + 900_000}])
    folders = []
    for seed in ("1", "4242"):
        out = place / f"out-{seed}"
        done = replay(place / "events.jsonl", "--cluster", place / "cluster.json", "--out", out, seed=seed)
        assert done.returncode == 1, done.stderr
        folders.append({name: data for name, data in tree(out).items() if not name.endswith((".state/lock",))})
    assert folders[0].keys() == folders[1].keys()
    different = [name for name, data in folders[0].items() if data != folders[1][name]]
    assert different == []
    assert len(folders[0]) > 8


def test_a_growing_file_is_followed_line_by_line_and_a_half_line_waits(place: Path) -> None:
    with started(place) as agent:
        append_lines(place / "events.jsonl", [fault_line(SEPARATE, now(), 1)])
        agent.until(lambda: unhealthy(place) == {"n1": ["Ascend910-2"]})
        whole = json.dumps(fault_line(SEPARATE, now(), 2, node="n2")) + "\n"
        with (place / "events.jsonl").open("a") as file:
            file.write(whole[:50])
            file.flush()
            append_lines(place / "other.jsonl", [])
            file.write(whole[50:])
        agent.until(lambda: unhealthy(place) == {"n1": ["Ascend910-2"], "n2": ["Ascend910-2"]})
        assert agent.end() == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_told_to_end_it_ends_in_order(place: Path, how: signal.Signals) -> None:
    with started(place) as agent:
        assert agent.end(how) == 0
    assert "Traceback" not in agent.log.read_text()


def test_a_second_process_on_the_folder_is_told_who_holds_it(place: Path) -> None:
    with started(place) as agent:
        second = AgentProcess(place / "events.jsonl", place / "cluster.json", place / "out")
        with second:
            assert second.process.wait() == 3
        assert f"another process (pid {agent.process.pid}) works on" in second.log.read_text()
        assert agent.end() == 0


def test_a_restart_goes_on_with_what_the_stream_applied_and_deleted(place: Path) -> None:
    with started(place) as agent:
        append_lines(place / "events.jsonl", [fault_line(SEPARATE, now(), 1)])
        agent.until(lambda: "ISOLATION_ONLY" in reasons(place))
        moved = a_pod("demo-0", uid="uid-2", node="n7", labels=LABELS)
        append_lines(
            place / "events.jsonl",
            [{"delete": {"kind": "Pod", "namespace": "train", "name": "demo-0"}}, {"apply": moved}],
        )
        agent.until(lambda: "RESCHEDULE_RECORDED" in reasons(place))
        agent.kill()
    with AgentProcess(place / "events.jsonl", place / "cluster.json", place / "out") as agent:
        append_lines(place / "events.jsonl", [fault_line(SEPARATE, now(), 2, node="n7")])
        agent.until(lambda: unhealthy(place) == {"n1": ["Ascend910-2"], "n7": ["Ascend910-2"]})
        agent.until(lambda: reasons(place).count("ISOLATION_ONLY") == 2)
        assert agent.end() == 0
    last = [line for line in journal(place / "out") if line["reason"] == "ISOLATION_ONLY"][-1]
    assert (last["job"], last["node"]) == (DEMO_JOB, "n7")
    assert reasons(place).count("RESCHEDULE_RECORDED") == 1


def test_observing_writes_no_document_of_others_and_no_ledger(place: Path) -> None:
    (place / "agent.yaml").write_text("mode: observe\n")
    with started(place, "--config", str(place / "agent.yaml")) as agent:
        append_lines(place / "events.jsonl", [fault_line(REQUEST, now(), 1)])
        agent.until(lambda: "OBSERVE" in reasons(place))
        assert agent.end() == 0
    assert sorted(path.name for path in (place / "out").iterdir() if not path.name.startswith(".")) == ["audit.jsonl"]
    assert {line["mode"] for line in journal(place / "out")} == {"observe"}


def test_standard_input_is_read_to_its_end_and_says_what_it_cannot_promise(place: Path) -> None:
    with AgentProcess("-", place / "cluster.json", place / "out") as agent:
        assert agent.process.stdin is not None
        agent.process.stdin.write(json.dumps(fault_line(SEPARATE, now(), 1)).encode() + b"\n")
        agent.process.stdin.flush()
        agent.until(lambda: unhealthy(place) == {"n1": ["Ascend910-2"]})
        agent.process.stdin.write(json.dumps(fault_line(SEPARATE, now(), 2, node="n2")).encode())
        agent.process.stdin.close()
        assert agent.process.wait() == 0
    assert set(unhealthy(place)) == {"n1", "n2"}
    assert "a pipe cannot be read again" in agent.log.read_text()


def test_a_changed_cluster_file_is_taken_in(place: Path) -> None:
    with started(place) as agent:
        moved = [one for one in the_demo(LABELS) if one["metadata"]["name"] != "demo-0"]
        moved.append(a_pod("demo-0", uid="uid-2", node="n7", labels=LABELS))
        fresh = write_cluster(place / "fresh.json", moved)
        fresh.rename(place / "cluster.json")
        append_lines(place / "events.jsonl", [fault_line(REQUEST, now() + 2000, 1, node="n7")])
        agent.until(lambda: any(line.get("job") for line in journal(place / "out")))
        assert agent.end() == 0
    told = [line for line in journal(place / "out") if line.get("job") and line.get("fault")]
    assert (told[0]["node"], told[0]["ranks"]) == ("n7", [2])


def test_a_cluster_file_that_breaks_is_told_and_takes_no_pod_away(place: Path) -> None:
    whole = (place / "cluster.json").read_text()
    with started(place) as agent:
        append_lines(place / "events.jsonl", [fault_line(REQUEST, now(), 1)])
        agent.until(lambda: "RECOVERY_STARTED" in reasons(place))
        (place / "cluster.json").write_text(whole[: len(whole) // 2])
        agent.until(lambda: "finding: " in agent.log.read_text())
        append_lines(place / "events.jsonl", [fault_line(REQUEST, now(), 2, assertion="recover")])
        agent.until(lambda: "RECOVERY_SUCCEEDED" in reasons(place))
        assert agent.end() == 0
    assert "RECOVERY_FAILED" not in reasons(place)
