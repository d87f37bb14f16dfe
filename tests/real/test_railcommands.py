"""`rail plan`, `rail explain` and `rail status` of a live cluster: what its API server, reports and ledgers hold."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from a3cluster import DEMO, the_a3
from a3table import GOOD_ENV
from contracts.railcontest import BYSTANDER
from kubebuilders import a_config_map
from realcluster import LABELS, RealCluster, texts
from services.processes import free_ports

from agent.domain.rail.reservations import RailLedger
from agent.wire.railfile import LEDGER_KEY, LEDGER_NAME, encode_ledger

LINK = "81078603"
OURS = {"app.kubernetes.io/managed-by": "fault-agent"}
QUICK = {**GOOD_ENV, "HCCL_RDMA_TIMEOUT": "5", "HCCL_RDMA_RETRY_CNT": "1"}
"""RDMA gives a link up after 0.13 ms, so that a fault is judged when its window of 3 s is over."""
UP = ["/bin/sh", "-c", "echo 'link status: UP'", "{device}"]
NOTHING = (
    "No rail of a job is borrowed, waited for or refused, as far as ledgers tell"
    " (an agent in observe mode keeps none).\n"
)
SEEN = ("n0", "n2", "n3")
"""Nodes of both ends of a link of n0."""


def furnish(cluster: RealCluster) -> None:
    """Topics, and job `demo` on the documented A3 table."""
    cluster.topics()
    cluster.apply(*the_a3(env=QUICK, labels=LABELS))


def look(cluster: RealCluster, *names: str) -> None:
    """A node role on each, which looks at the links of its four dies and finds them up."""
    for name in names:
        probe = {"command": UP, "devices": [0, 1, 2, 3], "every_s": 5}
        cluster.node(name, node={"name": name, "link_probe": probe})
    cluster.ready(*names)
    for name in names:
        cluster.until(f"the links of {name}", lambda name=name: _dark(cluster, name))  # type: ignore[misc]  # bound now


def _dark(cluster: RealCluster, node: str) -> str:
    reports = cluster.reports(node)
    links = {device: link.state for device, link in reports[-1].links.items()} if reports else {}
    return "" if links == dict.fromkeys(range(4), "up") else f"{node} reports {links}"


@pytest.fixture
def reader(cluster: RealCluster) -> Path:
    """Settings of an operator with no more rights than the coordinator has."""
    account = cluster.kube.service_account("fault-agent", "fault-agent-coordinator", seconds=3600)
    return cluster.config(kubernetes={"kubeconfig": str(account.kubeconfig)})


Ask = Callable[..., tuple[int, str]]


@pytest.fixture
def ask(cluster: RealCluster, reader: Path) -> Ask:
    """A rail verb on the live cluster: exit code, and all that it said."""
    return lambda verb, *words: cluster.run("rail", verb, "--config", str(reader), *words)


def first(said: str) -> Any:
    """What --json printed, behind which what is said on standard error stands."""
    return json.JSONDecoder().raw_decode(said)[0]


def test_before_during_and_after_a_borrow_each_verb_tells_what_the_cluster_holds(
    cluster: RealCluster, ask: Ask
) -> None:
    furnish(cluster)
    look(cluster, *SEEN)
    cluster.coordinator("c1")
    cluster.ready("c1")
    cluster.led()

    # Before: what would be, of links that are looked at and variables that pods show. Nothing is assumed, none is held.
    code, said = ask("plan", "--fault", "n0/network/2")
    assert code == 0, said
    lines = said.splitlines()
    assert lines[0] == f"{DEMO}: borrow, rule 28 BORROW"
    assert [line for line in lines if line.startswith(("  move", "  links", "  assumed"))] == [
        "  move     rank 2  n0 NPU 1  die 2→3  its own link failed",
        "  move     rank 10  n2 NPU 1  die 2→3  the other end moves",
        "  move     rank 14  n3 NPU 1  die 2→3  the other end moves",
        "  links    2-10, 2-14",
    ]
    code, said = ask("explain", "10", "22", "24", "--fault", "n0/network/2")
    assert code == 0, said
    assert "  10 ENV_INVALID: passed\n       · n0 HCCL_OP_RETRY_ENABLE: L1:1, L2:1\n" in said
    assert "  22 BACKUP_LINK_UNKNOWN: passed\n       · rank 2 (n0 device 2): device 3 up: seen up " in said
    assert "  24 PEER_NO_BACKUP_CONFIGURED: passed\n" in said
    assert ask("status") == (0, NOTHING)

    # During: the plan stands, the verbs find it in the ledgers of the server, by the fault that the node reports.
    cluster.occur(LINK, 2, node="n0", resource="hccn")
    cluster.until("the plan", lambda: _advised(cluster))
    (fault,) = [f"n0/network/2/{LINK}@{active.since}" for active in cluster.reports("n0")[-1].active]
    code, said = ask("status", "--json")
    assert code == 0, said
    found = first(said)
    (job,) = found["jobs"]
    (plan,) = job["plans"]
    assert (found["ledger"], found["held"], job["job"], job["npus"], job["left"]) == ("read", 3, DEMO, 8, 5)
    assert (plan["state"], plan["rule"], plan["code"], plan["faults"]) == ("advised", 28, "BORROW", [fault])
    assert [(npu["node"], npu["npu"], npu["device_from"], npu["device_to"], npu["rank"]) for npu in plan["npus"]] == [
        ("n0", 1, 2, 3, 2),
        ("n2", 1, 2, 3, 10),
        ("n3", 1, 2, 3, 14),
    ]
    cluster.until("its Event", lambda: "" if _told(cluster) else "none")
    (event,) = _told(cluster)
    assert (event["regarding"]["name"], event["type"]) == ("demo-0", "Warning")
    moves = "rule 28 BORROW: 3 ranks go to the other die (rank 2 on n0: 2→3, rank 10 on n2: 2→3, rank 14 on n3: 2→3)"
    assert f"n0/network/2/{LINK}: NotHandleFault: {moves}" in event["note"]
    code, said = ask("plan", "--fault", fault)
    assert (code, said.splitlines()[:2]) == (
        0,
        [f"{DEMO}: noop, rule 2 ALREADY_DONE", f"  fault    {fault}  rdma_down"],
    )
    code, said = ask("plan", "--fault", "n0/network/3", "--json")
    (refused,) = first(said)
    assert (code, refused["job"], refused["rule"]["number"], refused["rule"]["code"]) == (
        1,
        DEMO,
        19,
        "BACKUP_IN_USE_FAILED",
    )
    code, said = ask("explain", "20", "--fault", "n0/network/3", "--json")
    assert code == 0, said
    (told,) = first(said)
    assert (told["code"], told["rules"][0]["said"], told["rules"][0]["after_the_answer"]) == (
        "BACKUP_IN_USE_FAILED",
        "ALREADY_BORROWED",
        True,
    )

    # After: the link is repaired, and an operator who has switched back by hand records it with the command shown.
    cluster.recover(LINK, 2, node="n0", resource="hccn")
    cluster.until("the link back", lambda: "" if " up again since " in ask("status")[1] else ask("status")[1])
    code, said = ask("status", "--job", "demo")
    (record,) = [line.split("record", 1)[1].split() for line in said.splitlines() if line.startswith("    record ")]
    assert record[0] == "kubectl"
    cluster.kube.kubectl(*record[1:])
    cluster.until("the return", lambda: _returned(ask, plan["plan"]))
    code, said = ask("plan", "--fault", "n0/network/3")
    assert (code, said.splitlines()[0]) == (0, f"{DEMO}: borrow, rule 28 BORROW"), said


def test_what_no_agent_has_looked_at_or_was_there_before_it_acted_is_told_as_that(
    cluster: RealCluster, ask: Ask
) -> None:
    furnish(cluster)
    code, said = ask("plan", "--fault", "n0/network/2")
    assert (code, said.splitlines()[0]) == (1, f"{DEMO}: refuse, rule 22 BACKUP_LINK_UNKNOWN")

    look(cluster, "n0")
    cluster.occur(LINK, 2, node="n0", resource="hccn")
    cluster.until("the fault", lambda: cluster.reported(LINK, node="n0"))
    (fault,) = [f"n0/network/2/{LINK}@{active.since}" for active in cluster.reports("n0")[-1].active]
    code, said = ask("plan", "--fault", fault, "--links-up", "--json")
    (supposed,) = first(said)
    assert (code, supposed["rule"]["code"], [move["rank"] for move in supposed["moves"]]) == (0, "BORROW", [2, 10, 14])
    assert supposed["assumed"] == [
        "an agent has been acting since before these faults: no ledger tells since when one does",
        "the links of 12 devices of which nothing fresh is known are up",
    ]

    cluster.coordinator("c1")
    cluster.ready("c1")
    cluster.led()
    cluster.until("its word", lambda: "" if "BEFORE_ACT" in texts(cluster.reasons(), DEMO) else "none")
    code, said = ask("plan", "--fault", fault, "--links-up")
    assert (code, said.splitlines()[0]) == (1, f"{DEMO}: refuse, BEFORE_ACT")
    code, said = ask("explain", "28", "--fault", fault, "--links-up")
    assert (code, said.splitlines()[0]) == (0, f"{DEMO}: refuse, BEFORE_ACT")
    assert ask("status") == (0, NOTHING)


def test_what_cannot_be_asked_ends_the_verb_and_another_clusters_ledger_is_not_taken_for_ours(
    cluster: RealCluster, ask: Ask
) -> None:
    furnish(cluster)
    nowhere = str(cluster.folder / "nowhere.kubeconfig")
    blind = str(cluster.config(kubernetes={"kubeconfig": nowhere}))
    deaf = str(cluster.config(kafka={"bootstrap_servers": f"127.0.0.1:{free_ports(1)[0]}"}))
    for words in (("plan", "--fault", "n0/network/2"), ("explain", "--fault", "n0/network/2"), ("status",)):
        code, said = cluster.run("rail", *words, "--config", blind)
        assert (code, f"{nowhere}: no such kubeconfig" in said) == (3, True), said
    for verb in ("plan", "explain"):
        code, said = cluster.run("rail", verb, "--fault", "n0/network/2", "--config", deaf, seconds=90)
        assert (code, "127.0.0.1:" in said) == (3, True), said

    theirs = encode_ledger(RailLedger((BYSTANDER,)), "another")
    cluster.apply(a_config_map(LEDGER_NAME, {LEDGER_KEY: theirs}, namespace="fault-agent", labels=OURS))
    code, said = ask("plan", "--fault", "n0/network/2", "--links-up")
    assert code == 1
    assert f"{DEMO}: refuse, rule 2 LEDGER_UNREADABLE" in said
    assert "finding: fault-agent/fault-agent-rails: " in said
    code, said = ask("status")
    assert (code, "The ledger of borrowed NPUs cannot be read" in said) == (1, True)


def _advised(cluster: RealCluster) -> str:
    document = cluster.config_map("train", "fault-agent-rail-demo").get("plan.json")
    if document is None:
        return "no plan document"
    state = json.loads(document)["state"]
    return "" if state == "advised" else f"the plan is {state}"


def _told(cluster: RealCluster) -> list[dict[str, Any]]:
    return [one for one in cluster.events("train") if one["reason"] == "RailAdvised"]


def _returned(ask: Ask, plan: str) -> str:
    (job,) = first(ask("status", "--json")[1])["jobs"]
    over = [(one["plan"], one["state"]) for one in job["history"]]
    return "" if (job["plans"], over) == ([], [(plan, "returned")]) else f"held {job['plans']}, ended {over}"
