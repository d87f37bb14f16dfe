"""`why`, what is told beside a decision: causes of writes, ledgers, dead letters, what services say."""

import json
from pathlib import Path
from typing import Any

import pytest
from command import Command
from recordlines import write_lines
from rig import T0

from agent.app.bootstrap import SoloOrder, read_evidence, replay_solo, scenario
from agent.app.cli.answer import blocks, now
from agent.app.cli.asked import Asked, Kind
from agent.app.settings import Settings
from agent.app.standing import Evidence, Standing
from agent.domain.events import Behind, Decision, NodeReport
from agent.domain.vocab import JobId, Millis, NodeName, Reason
from agent.wire.audit import AuditLine

# --- what is beside a decision ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the shipped scenario."""
    out = tmp_path_factory.mktemp("night") / "out"
    events, cluster, _ = scenario()
    replay_solo(SoloOrder(events, cluster, out, Settings()), lambda _: None, lambda _: None, lambda _: None)
    return out


FINETUNE = "train/finetune-a2-f2c7e8a1-93b4-4d6e-8a05-1c4d7b9e3f26"
PRETRAIN = "train/pretrain-a3-a3d0b5c2-7e14-4f0a-9c31-5b8e2f6a1d70"
LOST = "a2-node-0/chip/2/80E18402@1767225980000"


def test_a_document_is_told_with_the_fault_and_the_job_behind_each_write(call: Command, night: Path) -> None:
    code, out, _ = call("why", "document", "job-reschedule-reason", "--out", night, "--json")
    assert code == 0
    assert [(one["reason"], one["causes"]) for one in json.loads(out)] == [
        ("WRITTEN", [{"fault": LOST, "job": FINETUNE}]),
        ("WRITTEN", [{"fault": "a2-node-1/chip/6/80C9800A@1767226050000", "job": FINETUNE}]),
    ]
    _, out, _ = call("why", "document", "job-reschedule-reason", "--out", night)
    assert f"    detail    records of jobs: 1\n    because   {LOST}  {FINETUNE}\n" in out


def test_every_write_of_the_night_has_a_fault_or_a_job_behind_it(night: Path) -> None:
    lines = [line.decision for line in read_evidence(night).lines]
    written = [one for one in lines if one.reason is Reason.WRITTEN]
    assert len(written) == 33
    assert [one for one in written if not one.causes] == []
    named = {cause.fault for one in written for cause in one.causes if cause.fault}
    assert named <= {one.fault for one in lines}


def test_a_ledger_is_told_by_what_it_keeps_and_what_it_holds(call: Command, night: Path) -> None:
    code, out, err = call("why", "document", "fault-agent/fault-agent-rails", "--out", night)
    assert (code, err) == (0, "")
    first, *rest = out.splitlines()
    assert first == (
        "fault-agent/fault-agent-rails is a ledger of the agent: no decision is about it, it keeps what these came to."
    )
    assert [line.split()[2] for line in rest if line.startswith("2026-")] == ["RAIL_ADVISED"]
    held = [line for line in rest if line.startswith("  held ")]
    assert [line.partition(", plan")[0] for line in held] == [
        f"  held     NPU 1 of {node}, die 2→3, by {PRETRAIN}: advised"
        for node in ("a3-node-0", "a3-node-2", "a3-node-3")
    ]


def test_the_ledger_of_a_job_is_told_by_all_that_was_decided_for_the_job(call: Command, night: Path) -> None:
    name = f"fault-agent-job-{FINETUNE.removeprefix('train/')}"
    told = {}
    for kind, ref in (("job", "finetune-a2"), ("document", name), ("document", f"train/{name}")):
        shown = json.loads(call("why", kind, ref, "--out", night, "--json")[1])
        told[ref] = [one for one in shown if one["job"]]
    assert told["finetune-a2"] == told[name] == told[f"train/{name}"]
    assert len(told[name]) > 20
    assert call("why", "document", f"other/{name}", "--out", night)[0] == 1


def test_a_ledger_in_which_nothing_is_kept_says_so(call: Command, night: Path) -> None:
    code, _, err = call("why", "document", "fault-agent-cluster", "--out", night)
    assert code == 1
    assert err == "fault-agent: fault-agent-cluster is a ledger of the agent; nothing that it keeps has been decided\n"


@pytest.mark.parametrize(
    ("node", "letters"),
    [("a3-node-1", ["NODE_NOT_KEY", "NOT_JSON"]), ("a3-node-2", ["NODE_NOT_KEY"]), ("a3-node-0", [])],
)
def test_a_node_is_told_with_the_dead_letters_that_name_it(
    call: Command, night: Path, node: str, letters: list[str]
) -> None:
    shown = json.loads(call("why", "node", node, "--out", night, "--json")[1])
    assert [one["reason"] for one in shown if one["kind"] == "dead_letter"] == letters
    assert [one["time"] for one in shown] == sorted(one["time"] for one in shown)
    _, out, _ = call("why", "node", node, "--out", night)
    assert [line.split()[3] for line in out.splitlines() if "  DEAD_LETTER  " in line] == letters


def test_a_dead_letter_is_told_with_its_source_and_what_was_wrong(call: Command, night: Path) -> None:
    _, out, _ = call("why", "node", "a3-node-2", "--out", night)
    assert (
        "2026-01-01 00:00:40.000Z  DEAD_LETTER  NODE_NOT_KEY  0:0:1711[0]\n"
        "    detail    faults[0].influence[1].nodeName: a3-node-2 is not the key a3-node-1\n"
    ) in out


def test_a_node_with_nothing_but_dead_letters_is_known(call: Command, files: Path) -> None:
    write_lines(files / "events.jsonl", [{"key": "n7", "value": {"id": 1}, "timestamp": T0}])
    call.replay(files)
    code, out, err = call("why", "node", "n7", "--out", files / "out", "--json")
    assert (code, err) == (0, "")
    assert [(one["kind"], one["reason"], one["key"]) for one in json.loads(out)] == [
        ("dead_letter", "FIELD_INVALID", "n7")
    ]


def test_a_fault_that_is_not_known_is_answered_with_the_nearest_ones_a_line_each(call: Command, night: Path) -> None:
    code, out, err = call("why", "fault", "a3-node-2/chip/3/80E00209", "--out", night)
    assert (code, out) == (1, "")
    first, near, *_, more, letters = err.splitlines()
    assert first == "fault-agent: nothing was decided about fault a3-node-2/chip/3/80E00209; known here:"
    assert near == "  a3-node-1/chip/3/80E00209@1767225640000"
    assert more == "  and 13 more"
    assert letters == "  dead letters that name a3-node-2: 1; ask why node a3-node-2"
    assert len(err.splitlines()) == 11


def test_a_fault_on_a_device_that_the_job_has_left_is_none_of_the_job_now(call: Command, night: Path) -> None:
    _, out, _ = call("why", "job", "finetune-a2", "--out", night)
    assert out.partition("\nNow:\n")[2].splitlines()[:4] == [
        f"  active   {LOST}  SeparateNPU",
        f"           {FINETUNE} has left the device: it is no fault of the job now",
        "  active   a2-node-1/node/CPU.1/0000001D@1767226030000  PreSeparateFault",
        f"           {FINETUNE} has left the node: it is no fault of the job now",
    ]
    _, out, _ = call("why", "job", "pretrain-a3", "--out", night)
    assert "has left" not in out.partition("\nNow:\n")[2], "its pods are where the faults are"


# --- what services say ------------------------------------------------------------------------------------------------


N1 = NodeName("n1")


def told_now(asked: Asked, at: int | None, **report: Any) -> list[str]:
    """What stands under "Now" for a node whose report is of T0."""
    standing = Standing({N1: NodeReport("prod", N1, 1, 1, "i", **{"clock": Millis(T0), "caught_up": True} | report)})
    evidence = Evidence((), (), standing, at=None if at is None else Millis(at))
    return list(now(asked, [], evidence))[2:]


def test_a_node_without_decisions_is_told_by_its_report() -> None:
    node = Asked("node", "n1")
    assert told_now(node, T0 + 60_000, policy="b4bcfd12f5691234") == [
        "  report   n1: of 2026-01-01 00:00:00.000Z, policy b4bcfd12f569"
    ]
    assert told_now(node, T0 + 60_000, policy="b4", caught_up=False) == [
        "  report   n1: of 2026-01-01 00:00:00.000Z, policy b4; it had not read all that had come"
    ]
    assert told_now(Asked("node", "n2"), T0) == ["  report   n2: there is none"]
    assert list(blocks([])) == ["Nothing was decided about it in what was read."]


def test_a_node_that_has_been_silent_for_long_is_doubted_and_in_a_folder_it_is_not() -> None:
    node = Asked("node", "n1")
    silent = "; silent for 5 min, so what is active is as of then"
    assert told_now(node, T0 + 300_000, policy="b4") == [
        f"  report   n1: of 2026-01-01 00:00:00.000Z, policy b4{silent}"
    ]
    for at in (None, T0 + 180_000):
        assert told_now(node, at, policy="b4") == ["  report   n1: of 2026-01-01 00:00:00.000Z, policy b4"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--since", "8h"], "--since is for --config; a folder is read whole"),
        (["--out", ".", "--config", "agent.yaml"], "give either --out"),
        (["--config", "agent.yaml", "--since", "8 hours"], "'8 hours' is no span; a number with s, min, h or d"),
        (["--config", "agent.yaml", "--last", "0"], "0 is not in the range x>=1"),
    ],
)
def test_what_does_not_go_together_is_wrong_use(call: Command, words: list[str], said: str) -> None:
    code, out, err = call("why", "node", "n1", *words)
    assert (code, out) == (2, "")
    assert said in err


def test_services_are_asked_for_with_a_named_cluster_and_a_broker_that_answers(
    call: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agent.yaml").write_text("kafka: {bootstrap_servers: 'localhost:1'}")
    code, _, err = call("why", "node", "n1", "--config", tmp_path / "agent.yaml")
    assert (code, err.startswith("fault-agent: cluster.id is not set")) == (2, True)
    monkeypatch.setenv("FAULT_AGENT_CLUSTER__ID", "prod")
    code, _, err = call("why", "node", "n1", "--config", tmp_path / "agent.yaml", "--since", "2d")
    assert (code, err.startswith("fault-agent: cannot connect to localhost:1: ")) == (3, True)


@pytest.mark.parametrize(
    ("ref", "kind", "nodes"),
    [
        ("n9", "node", {"n9"}),
        ("n9/chip/1", "fault", {"n9"}),
        ("train/demo", "job", {"n1", "n2"}),
        ("vcjob-fault-npu-cm", "document", {"n3"}),
    ],
)
def test_the_reports_that_matter_are_those_of_what_is_asked_for_and_of_what_was_decided_about_it(
    ref: str, kind: Kind, nodes: set[str]
) -> None:
    lines = [
        AuditLine(Decision(Millis(1), Reason.NO_RANK, N1, job=JobId("train/demo")), "act", ""),
        AuditLine(
            Decision(Millis(2), Reason.WRITTEN, job=JobId("train/demo"), causes=(Behind("n2/chip/1/A@1"),)), "", ""
        ),
        AuditLine(
            Decision(
                Millis(3),
                Reason.WRITTEN,
                document="volcano-system/vcjob-fault-npu-cm",
                causes=(Behind("n3/chip/1/A@1"),),
            ),
            "",
            "",
        ),
    ]
    assert Asked(kind, ref).nodes(lines) == nodes
