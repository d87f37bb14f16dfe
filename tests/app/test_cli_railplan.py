"""`fault-agent rail plan`: answers for people and machines, on files and on a run's folder; assumptions are named."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from a3cluster import DEMO, OTHER_JOB, the_a3, the_other
from a3table import A3_TABLE, a3_document, without_odd
from command import Command
from kubebuilders import a_config_map
from recordlines import fault_line, write_cluster, write_lines
from rig import T0

from agent.wire.railplan import decode_plan

LINK = "81078603"


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    return write_cluster(tmp_path / "cluster.json", the_a3())


def a_night(call: Command, folder: Path, *more: Mapping[str, Any], settings: str = "") -> list[str | Path]:
    """A run in which n0's die 0 went down and was borrowed; the words that name it."""
    write_cluster(folder / "cluster.json", the_a3())
    up = {str(die): "up" for die in range(4)}
    lines: list[Mapping[str, Any]] = [
        *({"probe": {"node": f"n{number}", "links": up}, "time": T0} for number in range(4)),
        fault_line(LINK, T0 + 1000, 1, node="n0", devices=(0,), resource="hccn"),
        *more,
        {"tick": T0 + 45_000},
    ]
    write_lines(folder / "events.jsonl", lines)
    words: list[str | Path] = []
    if settings:
        (folder / "agent.yaml").write_text(settings, encoding="utf-8")
        words = ["--config", folder / "agent.yaml"]
    code, _, err = call.replay(folder, *words)
    assert code == 0, err
    return ["--cluster", folder / "cluster.json", "--out", folder / "out", *words]


def plans(out: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(out)
    return found


def verdicts(found: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, int, str]]:
    return [(one["job"], one["state"], one["rule"]["number"], one["rule"]["code"]) for one in found]


def test_a_borrow_is_told_move_by_move_with_what_was_assumed(call: Command, cluster: Path) -> None:
    code, out, err = call("rail", "plan", "--cluster", cluster, "--fault", f"n0/network/0/{LINK}@{T0}", "--links-up")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"{DEMO}: borrow, rule 28 BORROW",
        f"  fault    n0/network/0/{LINK}@{T0}  rdma_down",
        "  detail   3 ranks go to the other die of their NPU",
        "  move     rank 0  n0 NPU 0  die 0→1  its own link failed",
        "  move     rank 8  n2 NPU 0  die 0→1  the other end moves",
        "  move     rank 12  n3 NPU 0  die 0→1  the other end moves",
        "  links    0-8, 0-12",
        "  warning  BANDWIDTH_HALVED: two dies share one NIC: half the bandwidth, until repaired",
        "  warning  NOT_JUDGED: not given: host plane, operator, retries used",
        (
            "  warning  PEERS_ASSUMED: peers are not known; taken to be every rank of that device id in the other"
            " super-pods"
        ),
        "  assumed  nothing is borrowed yet: fault-agent-rails is not among the objects",
        "  assumed  it is 2026-01-01 00:00:30.065Z: objects have no clock; then these faults can be judged",
        "  assumed  the links of 15 devices of which nothing fresh is known are up",
        "  advice   Save a checkpoint soon, then repair the link. HCCL does not switch back by itself.",
        "",
        "A what-if: nothing was switched, reserved or written.",
    ]


def test_a_refusal_ends_with_1_and_says_what_to_do(call: Command, cluster: Path) -> None:
    code, out, err = call("rail", "plan", "--cluster", cluster, "--fault", f"n0/network/0/{LINK}@{T0}")
    assert (code, err) == (1, "")
    assert out.splitlines() == [
        f"{DEMO}: refuse, rule 22 BACKUP_LINK_UNKNOWN",
        f"  fault    n0/network/0/{LINK}@{T0}  rdma_down",
        "  detail   rank 0 (n0 device 0): no fresh link state of device 1",
        "  assumed  nothing is borrowed yet: fault-agent-rails is not among the objects",
        "  assumed  it is 2026-01-01 00:00:30.065Z: objects have no clock; then these faults can be judged",
        "  advice   Probe the link of the pair die; no borrow is planned without it.",
        "",
        "A what-if: nothing was switched, reserved or written.",
    ]


def test_for_machines_it_is_the_plan_document_and_the_assumptions(call: Command, cluster: Path) -> None:
    code, out, _ = call(
        "rail", "plan", "--cluster", cluster, "--fault", f"n0/network/2/{LINK}@{T0}", "--links-up", "--json"
    )
    (plan,) = plans(out)
    assert code == 0
    assert verdicts([plan]) == [(DEMO, "planned", 28, "BORROW")]
    assert plan["cluster"] == "solo"
    assert plan["faults"] == [f"n0/network/2/{LINK}@{T0}"]
    assert [(one["rank"], one["device_from"], one["device_to"]) for one in plan["moves"]] == [
        (2, 2, 3),
        (10, 2, 3),
        (14, 2, 3),
    ]
    assert plan["links"] == [[2, 10], [2, 14]]
    assert plan.pop("assumed") == [
        "nothing is borrowed yet: fault-agent-rails is not among the objects",
        "it is 2026-01-01 00:00:30.065Z: objects have no clock; then these faults can be judged",
        "the links of 15 devices of which nothing fresh is known are up",
    ]
    assert decode_plan(orjson.dumps(plan)).rule.number == 28


def test_a_leaf_switch_gives_one_grouped_plan_for_each_job(call: Command, tmp_path: Path) -> None:
    both = write_cluster(tmp_path / "cluster.json", [*the_a3(without_odd, devices=(0, 2)), *the_other()])
    code, out, _ = call("rail", "plan", "--cluster", both, "--leaf", "n0/even", "--leaf", "n0/odd", "--json")
    assert code == 1
    assert [one["job"] for one in plans(out)] == [DEMO, OTHER_JOB]
    whole = write_cluster(tmp_path / "whole.json", the_a3())
    code, out, _ = call("rail", "plan", "--cluster", whole, "--leaf", "n0/even", "--links-up")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == f"{DEMO}: borrow, rule 28 BORROW"
    assert [line.rpartition(" ")[2] for line in lines if line.startswith("  fault")] == ["leaf_switch"] * 2
    assert sum(line.startswith("  move") for line in lines) == 6
    assert "  warning  LEAF_SWITCH: n0: even devices 0, 2 went down together: their leaf switch?" in lines


def an_old_one(call: Command, folder: Path) -> list[str | Path]:
    """A run to which a link fault came 1,962 s after it began; the words that name it."""
    line = json.loads(json.dumps(fault_line(LINK, T0 + 2000, 2, node="n1", devices=(2,), resource="hccn")))
    line["value"]["faults"][0]["faultTime"] = OLD
    words = a_night(call, folder, line)
    return [*words, "--fault", f"n1/network/2/{LINK}@{OLD}"]


OLD = T0 - 1_960_000


def test_a_fault_that_the_coordinator_finds_too_old_is_expired(call: Command, tmp_path: Path) -> None:
    words = an_old_one(call, tmp_path)
    journal = [json.loads(line) for line in (tmp_path / "out" / "audit.jsonl").read_text().splitlines()]
    told = [one["reason"] for one in journal if one.get("fault") == f"n1/network/2/{LINK}@{OLD}" and "job" in one]
    assert "TOO_OLD" in told
    code, out, _ = call("rail", "plan", *words)
    assert code == 1
    assert out.splitlines()[:3] == [
        f"{DEMO}: expired, TOO_OLD",
        f"  fault    n1/network/2/{LINK}@{OLD}  rdma_down",
        (
            "  detail   1991 s old at 2026-01-01 00:00:31.065Z, older than max_event_age_s (900 s): no borrow is"
            " planned for old news"
        ),
    ]
    (plan,) = plans(call("rail", "plan", *words, "--json")[1])
    assert verdicts([plan]) == [(DEMO, "expired", 0, "TOO_OLD")]
    code, out, _ = call("rail", "explain", "28", *words)
    assert out.splitlines()[:2] == [f"{DEMO}: expired, TOO_OLD", "  28 BORROW: would pass"]


def test_a_fault_from_before_the_agent_acted_is_told_as_the_coordinator_told_it(call: Command, tmp_path: Path) -> None:
    line = json.loads(json.dumps(fault_line(LINK, T0 + 2000, 2, node="n1", devices=(2,), resource="hccn")))
    line["value"]["faults"][0]["faultTime"] = T0 - 100_000
    fault = f"n1/network/2/{LINK}@{T0 - 100_000}"
    words = [*a_night(call, tmp_path, line), "--fault", fault]
    journal = [json.loads(line) for line in (tmp_path / "out" / "audit.jsonl").read_text().splitlines()]
    assert "BEFORE_ACT" in [one["reason"] for one in journal if one.get("fault") == fault and one.get("job") == DEMO]
    code, out, _ = call("rail", "plan", *words)
    assert code == 1
    assert out.splitlines()[:3] == [
        f"{DEMO}: refuse, BEFORE_ACT",
        f"  fault    {fault}  rdma_down",
        (
            "  detail   began 2025-12-31 23:58:20.000Z, before the agent began to act (2026-01-01 00:00:00.000Z): no"
            " borrow is planned for old news"
        ),
    ]
    (plan,) = plans(call("rail", "plan", *words, "--json")[1])
    assert verdicts([plan]) == [(DEMO, "refused", 0, "BEFORE_ACT")]
    code, out, _ = call("rail", "explain", "28", *words)
    assert out.splitlines()[:2] == [f"{DEMO}: refuse, BEFORE_ACT", "  28 BORROW: would pass"]


def test_a_fault_that_was_judged_in_time_is_asked_again_however_old_it_is(call: Command, tmp_path: Path) -> None:
    words = a_night(call, tmp_path, {"tick": T0 + 44_000}, {"tick": T0 + 2_000_000})
    _, out, _ = call("rail", "plan", *words, "--fault", f"n0/network/0/{LINK}@{T0 + 1000}", "--json")
    assert verdicts(plans(out)) == [(DEMO, "noop", 2, "ALREADY_DONE")]


def test_objects_alone_have_no_clock_so_each_window_is_asked_when_it_can_be_judged(
    call: Command, cluster: Path
) -> None:
    later = T0 + 3_600_000
    faults = ("--fault", f"n0/network/0/{LINK}@{T0}", "--fault", f"n1/network/2/{LINK}@{later}")
    code, out, _ = call("rail", "plan", "--cluster", cluster, *faults, "--links-up", "--json")
    assert code == 0
    assert [one["at"] for one in plans(out)] == ["2026-01-01T00:00:30.065Z", "2026-01-01T01:00:30.065Z"]
    assert verdicts(plans(out)) == [(DEMO, "planned", 28, "BORROW")] * 2


def test_a_fault_of_the_window_that_needs_nothing_more_is_told_as_that(call: Command, tmp_path: Path) -> None:
    words = a_night(call, tmp_path)
    code, out, _ = call("rail", "plan", *words, "--leaf", "n0/even", "--links-up")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == f"{DEMO}: borrow, rule 28 BORROW"
    assert [(line.split("/")[2], line.endswith("  needs nothing more")) for line in lines if "  fault " in line] == [
        ("0", True),
        ("2", False),
    ]
    (aside,) = (line for line in lines if line.startswith("  aside"))
    assert aside.startswith(f"  aside    rule 2 ALREADY_DONE: n0/network/0/{LINK}@{T0 + 1000} was answered by plan ")
    assert [line.split()[1:3] for line in lines if line.startswith("  move")] == [
        ["rank", "2"],
        ["rank", "10"],
        ["rank", "14"],
    ]


def test_a_young_fault_says_until_when_it_is_observed(call: Command, tmp_path: Path) -> None:
    words = a_night(call, tmp_path)
    code, out, _ = call("rail", "plan", *words, "--fault", f"n1/network/2/{LINK}@{T0 + 40_000}")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == f"{DEMO}: observe, rule 9 FLAP"
    assert lines[3] == "  until    2026-01-01 00:01:10.065Z"


def test_on_the_folder_of_a_run_its_links_and_its_borrows_count(call: Command, tmp_path: Path) -> None:
    words = a_night(call, tmp_path)
    _, out, _ = call("rail", "plan", *words, "--fault", "n0/network/0", "--json")
    assert verdicts(plans(out)) == [(DEMO, "noop", 2, "ALREADY_DONE")]
    _, out, _ = call("rail", "plan", *words, "--fault", "n1/network/0", "--json")
    assert verdicts(plans(out)) == [(DEMO, "refused", 25, "PEER_ALREADY_BORROWED")]
    _, out, _ = call("rail", "plan", *words, "--fault", "n0/network/1", "--json")
    assert verdicts(plans(out)) == [(DEMO, "refused", 19, "BACKUP_IN_USE_FAILED")]
    code, out, _ = call("rail", "plan", *words, "--fault", "n1/network/2", "--json")
    assert (code, verdicts(plans(out))) == (0, [(DEMO, "planned", 28, "BORROW")])
    _, again, _ = call("rail", "plan", *words, "--fault", "n1/network/2", "--json")
    assert again == out
    files = {path.name: path.read_bytes() for path in (tmp_path / "out").rglob("*.json")}
    _, _, _ = call("rail", "plan", *words, "--fault", "n1/network/2")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").rglob("*.json")} == files


def test_the_settings_of_the_run_are_those_of_the_question(call: Command, tmp_path: Path) -> None:
    words = a_night(call, tmp_path, settings="rail: {strictness: source}\n")
    code, out, _ = call("rail", "plan", *words, "--fault", "n1/network/0", "--json")
    assert (code, verdicts(plans(out))) == (0, [(DEMO, "planned", 28, "BORROW")])
    code, out, _ = call("rail", "plan", *words, "--fault", "n1/network/0", "--strictness", "strict", "--json")
    assert (code, verdicts(plans(out))) == (1, [(DEMO, "refused", 25, "PEER_ALREADY_BORROWED")])
    code, out, _ = call("rail", "plan", *words, "--fault", "n1/network/2", "--json")
    assert (code, verdicts(plans(out))) == (0, [(DEMO, "planned", 28, "BORROW")])
    code, out, _ = call("rail", "plan", *words, "--fault", "n1/network/2", "--per", "communicator", "--json")
    assert (code, verdicts(plans(out))) == (1, [(DEMO, "refused", 20, "ALREADY_BORROWED")])


def test_the_ledger_in_a_dump_counts_whatever_its_cluster_is_called(call: Command, tmp_path: Path) -> None:
    a_night(call, tmp_path, settings="cluster: {id: prod}\n")
    ledger = json.loads((tmp_path / "out" / "fault-agent" / "fault-agent-rails.json").read_text())
    job = json.loads(next((tmp_path / "out" / "train").glob("fault-agent-job-*.json")).read_text())
    dump = write_cluster(tmp_path / "dump.json", [*the_a3(), ledger, job])
    code, out, err = call("rail", "plan", "--cluster", dump, "--fault", "n1/network/0", "--links-up", "--json")
    assert (code, err) == (1, "")
    assert verdicts(plans(out)) == [(DEMO, "refused", 25, "PEER_ALREADY_BORROWED")]
    (tmp_path / "other.yaml").write_text("cluster: {id: elsewhere}\n", encoding="utf-8")
    named: list[str | Path] = ["--cluster", dump, "--config", tmp_path / "other.yaml", "--links-up", "--json"]
    code, out, err = call("rail", "plan", *named, "--fault", "n1/network/0")
    assert (code, verdicts(plans(out))) == (1, [(DEMO, "refused", 2, "LEDGER_UNREADABLE")])
    assert "it is of cluster 'prod', this is 'elsewhere'" in err


@pytest.mark.parametrize("data", ["x", {"ledger.json": "{"}, {}], ids=["no ConfigMap", "no JSON", "no ledger in it"])
def test_a_ledger_that_cannot_be_read_refuses(call: Command, tmp_path: Path, data: Any) -> None:
    broken = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": "fault-agent", "name": "fault-agent-rails"},
        "data": data,
    }
    cluster = write_cluster(tmp_path / "cluster.json", [*the_a3(), broken])
    code, out, err = call("rail", "plan", "--cluster", cluster, "--fault", "n0/network/0", "--links-up", "--json")
    assert (code, verdicts(plans(out))) == (1, [(DEMO, "refused", 2, "LEDGER_UNREADABLE")])
    assert "fault-agent-rails" in err


def test_a_folder_of_another_cluster_is_refused(call: Command, tmp_path: Path) -> None:
    words = a_night(call, tmp_path)
    (tmp_path / "other.yaml").write_text("cluster: {id: elsewhere}\n", encoding="utf-8")
    code, out, err = call("rail", "plan", *words, "--config", tmp_path / "other.yaml", "--fault", "n0/network/0")
    assert (code, out) == (3, "")
    assert "belongs to cluster 'solo', the settings say 'elsewhere'" in err


def test_env_and_table_are_taken_in_the_place_of_what_is_not_known(call: Command, tmp_path: Path) -> None:
    """The pods run a script, and the operator's table names no backups."""
    bare = the_a3(
        lambda d: [item.pop("backup_device_ip") for server in d["server_list"] for item in server["device"]], env=None
    )
    objects = write_cluster(tmp_path / "cluster.json", bare)
    start: list[str | Path] = ["rail", "plan", "--cluster", objects, "--fault", "n0/network/0", "--links-up", "--json"]
    assert verdicts(plans(call(*start)[1])) == [(DEMO, "refused", 10, "ENV_UNKNOWN")]
    (tmp_path / "job.env").write_text("HCCL_OP_RETRY_ENABLE=L1:1,L2:1\n", encoding="utf-8")
    start += ["--env", tmp_path / "job.env"]
    assert verdicts(plans(call(*start)[1])) == [(DEMO, "refused", 14, "COMM_MODE_UNKNOWN")]
    (tmp_path / "hccl.json").write_text(A3_TABLE, encoding="utf-8")
    said = plans(call(*start, "--comm-mode", "ranktable")[1])
    assert verdicts(said) == [(DEMO, "refused", 15, "NO_BACKUP_CONFIGURED")]
    code, out, _ = call(*start, "--table", tmp_path / "hccl.json")
    assert (code, verdicts(plans(out))) == (0, [(DEMO, "planned", 28, "BORROW")])
    alone = write_cluster(tmp_path / "alone.json", [one for one in bare if one["kind"] != "ConfigMap"])
    code, out, _ = call(*start[:3], alone, *start[4:], "--table", tmp_path / "hccl.json")
    assert (code, verdicts(plans(out))) == (0, [(DEMO, "planned", 28, "BORROW")])


def test_two_tables_under_one_name_that_differ_are_refused_and_the_same_twice_is_not(
    call: Command, tmp_path: Path
) -> None:
    other = a3_document()
    other["server_list"].reverse()
    folder = tmp_path / "objects"
    folder.mkdir()
    write_cluster(folder / "a.json", the_a3())
    write_cluster(folder / "b.json", [a_config_map("rings-config-demo", {"hccl.json": orjson.dumps(other).decode()})])
    start = ("rail", "plan", "--cluster", folder, "--fault", "n0/network/0", "--links-up", "--json")
    code, out, err = call(*start)
    assert (code, verdicts(plans(out))) == (0, [(DEMO, "planned", 28, "BORROW")])
    assert "is given again" in err
    other["server_list"][0]["host_ip"] = "172.16.0.9"
    write_cluster(folder / "b.json", [a_config_map("rings-config-demo", {"hccl.json": orjson.dumps(other).decode()})])
    code, out, err = call(*start)
    (plan,) = plans(out)
    assert (code, verdicts([plan])) == (1, [(DEMO, "refused", 1, "TABLES_CONTRADICT")])
    assert "a.json" in plan["detail"]
    assert "b.json" in plan["detail"]
    assert plan["detail"].endswith("rank 12 has host_ip 172.16.0.103 and 172.16.0.9")


def test_what_the_agent_cannot_see_can_be_said(call: Command, cluster: Path) -> None:
    start = ("rail", "plan", "--cluster", cluster, "--fault", "n0/network/0", "--links-up", "--json")
    for words, rule in (
        (("--host-plane", "down"), (27, "HOST_PLANE_DOWN")),
        (("--operator", "not-retryable"), (27, "OP_NOT_RETRYABLE")),
        (("--retries-used", "3"), (27, "RETRY_EXHAUSTED")),
        (("--cross-die-traffic",), (23, "CROSS_DIE_TRAFFIC")),
        (("--peers", "0=9"), (23, "CROSS_DIE_TRAFFIC")),
        (("--link", "n2/1=down"), (26, "NO_COMMON_RAIL")),
    ):
        code, out, _ = call(*start, *words)
        assert (code, verdicts(plans(out))) == (1, [(DEMO, "refused", *rule)])
    (plan,) = plans(
        call(*start, "--peers", "0=8", "--host-plane", "up", "--operator", "retryable", "--retries-used", "0")[1]
    )
    assert plan["links"] == [[0, 8]]
    assert [one["code"] for one in plan["warnings"]] == ["BANDWIDTH_HALVED"]


def test_a_plan_of_many_moves_is_cut_for_people_alone(call: Command, tmp_path: Path) -> None:
    """Forty super-pods of one server: rank 0 talks to 39 others."""
    table = a3_document()
    first = table["server_list"][0]
    table["server_list"], table["super_pod_list"] = [], []
    objects = [one for one in the_a3() if one["kind"] not in ("Pod", "Node", "ConfigMap")]
    pod, node = (next(one for one in the_a3() if one["kind"] == kind) for kind in ("Pod", "Node"))
    for number in range(40):
        server: dict[str, Any] = json.loads(json.dumps(first))
        server.update(server_id=f"node_{number}", host_ip=f"172.16.1.{number}")
        for index, item in enumerate(server["device"]):
            item["rank_id"] = str(4 * number + index)
            for field in ("device_ip", "backup_device_ip"):
                item[field] = item[field].replace("192.168.1", f"192.168.{number + 10}")
        table["server_list"].append(server)
        table["super_pod_list"].append({"super_pod_id": str(number), "server_list": [{"server_id": f"node_{number}"}]})
        name = f"m{number}"
        meta = {**pod["metadata"], "name": name, "uid": name}
        meta["annotations"] = {**meta["annotations"], "hccl/rankIndex": str(number)}
        status = {**pod["status"], "hostIP": f"172.16.1.{number}", "podIP": f"10.9.0.{number}"}
        objects.append({**pod, "metadata": meta, "spec": {**pod["spec"], "nodeName": name}, "status": status})
        objects.append({**node, "metadata": {**node["metadata"], "name": name, "uid": name}})
    objects.append(a_config_map("rings-config-demo", {"hccl.json": orjson.dumps(table).decode()}))
    cluster = write_cluster(tmp_path / "cluster.json", objects)
    words: tuple[str | Path, ...] = ("rail", "plan", "--cluster", cluster, "--fault", "m0/network/0", "--links-up")
    code, out, _ = call(*words)
    assert code == 0
    lines = out.splitlines()
    assert sum(line.startswith("  move") for line in lines) == 32
    assert "  …        and 8 more moves; --json has all" in lines
    assert next(line for line in lines if line.startswith("  links")).endswith("0-124, 0-128 and 7 more")
    (plan,) = plans(call(*words, "--json")[1])
    assert (len(plan["moves"]), len(plan["links"])) == (40, 39)
