"""How things stand by reports and ledgers, wherever they come from."""

from dataclasses import replace

import pytest

from agent.app.standing import Standing, standing_of
from agent.domain.events import ActiveFault, FaultKey, NodeReport
from agent.domain.ledger import ClusterLedger, JobLedger, Member
from agent.domain.rail.reservations import RailLedger
from agent.domain.vocab import JobId, Millis, NodeName, OccurrenceId, Plane, Source
from agent.ports import ConfigMap
from agent.wire.ledgerfile import LEDGER_KEY, encode_cluster_ledger, encode_job_ledger
from agent.wire.railfile import encode_ledger
from agent.wire.report import encode

NODE, JOB = NodeName("n1"), JobId("train/demo")
KEY = FaultKey(NODE, Plane.CHIP, "2", "80E18402")
FAULT = ActiveFault(KEY, Millis(50), "SeparateNPU", "chip-table", OccurrenceId("0:0:0:0"), Source.DCMI, devices=(2,))
REPORT = NodeReport("prod", NODE, 1, 1, "i", active=(FAULT,))
LEDGER = JobLedger(JOB, "prod", members=(Member("u", "demo-0", NODE, (2, 3)),))


def document(name: str, text: str, namespace: str = "fault-agent") -> ConfigMap:
    return ConfigMap(namespace, name, {LEDGER_KEY: text})


DOCUMENTS = (
    document("fault-agent-job-demo", encode_job_ledger(LEDGER), "train"),
    document("fault-agent-cluster", encode_cluster_ledger(ClusterLedger("prod", term=4))),
    document("fault-agent-rails", encode_ledger(RailLedger(), "prod")),
    ConfigMap("train", "fault-agent-rail-demo", {"plan.json": "{}"}),
)


@pytest.mark.parametrize("cluster", ["prod", ""])
def test_reports_and_ledgers_are_read_and_other_documents_are_not(cluster: str) -> None:
    standing, findings = standing_of({NODE: encode(REPORT)}, DOCUMENTS, cluster)
    assert findings == []
    assert standing == Standing({NODE: REPORT}, {JOB: LEDGER}, RailLedger(), ClusterLedger("prod", term=4))
    assert standing.active == {str(KEY): FAULT}


def test_what_is_of_another_cluster_is_a_finding_and_counts_for_nothing() -> None:
    standing, findings = standing_of({NODE: encode(REPORT)}, DOCUMENTS, "other")
    assert standing == Standing(rails_unread=True), "what cannot be read refuses borrows"
    assert len(findings) == 4
    assert all("'prod'" in finding and "'other'" in finding for finding in findings)


def test_what_cannot_be_read_is_a_finding_and_the_rest_counts() -> None:
    torn = (document("fault-agent-job-torn", "{", "train"), document("fault-agent-cluster", "[]"), *DOCUMENTS)
    standing, findings = standing_of({NODE: encode(REPORT), NodeName("n2"): b"torn"}, torn)
    assert standing.active == {str(KEY): FAULT}
    assert standing.ledgers == {JOB: LEDGER}
    assert [finding.partition(":")[0] for finding in findings] == [
        "report of n2",
        "train/fault-agent-job-torn",
        "fault-agent/fault-agent-cluster",
    ]


def test_a_fault_is_active_from_its_beginning_on_where_its_node_is_known() -> None:
    standing = Standing({NODE: REPORT})
    assert standing.is_active(f"{KEY}@50") is True
    assert standing.is_active(f"{KEY}@60") is True, "an earlier beginning was told later"
    assert standing.is_active(f"{KEY}@49") is False, "an earlier episode"
    assert standing.is_active("n1/chip/3/80E18402@50") is False
    assert standing.is_active("n2/chip/2/80E18402@50") is None
    assert standing.is_active("") is None


def test_a_job_has_left_a_device_that_none_of_its_pods_holds() -> None:
    standing = Standing({NODE: REPORT}, {JOB: LEDGER})
    assert not standing.has_left(JOB, FAULT)
    assert standing.has_left(JOB, replace(FAULT, devices=(1,)))
    assert not standing.has_left(JOB, replace(FAULT, devices=())), "the whole node"
    assert standing.has_left(JOB, replace(FAULT, key=replace(KEY, node=NodeName("n2")), devices=()))


def test_where_nothing_is_known_of_the_pods_of_a_job_it_has_left_nothing() -> None:
    elsewhere = replace(FAULT, devices=(1,))
    assert not Standing({NODE: REPORT}).has_left(JOB, elsewhere)
    assert not Standing({NODE: REPORT}, {JOB: replace(LEDGER, members=())}).has_left(JOB, elsewhere)
