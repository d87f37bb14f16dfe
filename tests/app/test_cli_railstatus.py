"""`fault-agent rail status`: who borrowed, since when, why, what is left, and what to do next."""

import asyncio
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from a3cluster import a3_pod, see_links, the_a3
from command import Command, a_recording
from kubebuilders import DEMO_JOB, a_group
from rig import Rig

from agent.app.bootstrap import SoloOrder, replay_solo, scenario
from agent.app.settings import Settings
from agent.ports import ConfigMap

LINK = "81078603"
LABELS = {"fault-scheduling": "grace"}
JOB = "train/pretrain-a3-a3d0b5c2-7e14-4f0a-9c31-5b8e2f6a1d70"
PLAN = "5b30b0639c8b"


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the shipped scenario: one borrow, whose link is back at its end."""
    out = tmp_path_factory.mktemp("night") / "out"
    events, cluster, _ = scenario()
    replay_solo(SoloOrder(events, cluster, out, Settings()), lambda _: None, lambda _: None, lambda _: None)
    return out


def test_it_tells_who_has_borrowed_since_when_why_and_what_to_do(call: Command, night: Path) -> None:
    code, out, err = call("rail", "status", "--out", night)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:8] == [
        f"{JOB}  3 NPUs held, 5 of its 8 left",
        f"  plan {PLAN}  advised since 2026-01-01 00:07:50.065Z, rule 28 BORROW",
        "    because   a3-node-0/network/2/81078603@1767226040000",
        "    a3-node-0 NPU 1  die 2→3  rank 2  its own link failed, up again since 2026-01-01 00:09:20.000Z",
        "    a3-node-2 NPU 1  die 2→3  rank 10  moved as the other end",
        "    a3-node-3 NPU 1  die 2→3  rank 14  moved as the other end",
        "    links     2-10, 2-14",
        "    warnings  BANDWIDTH_HALVED: two dies share one NIC: half the bandwidth, until repaired",
    ]
    assert "    advice    The link is up again" in out
    assert lines[-1] == (
        f"    record    kubectl -n train annotate podgroup {JOB.partition('/')[2]}"
        f" fault-agent/rail-returned={PLAN} --overwrite"
    )


def test_for_machines_it_is_one_object_with_every_npu(call: Command, night: Path) -> None:
    code, out, _ = call("rail", "status", "--out", night, "--json")
    assert code == 0
    found: dict[str, Any] = json.loads(out)
    assert (found["ledger"], found["held"]) == ("read", 3)
    assert found["room"]["of"] == 850_000
    (job,) = found["jobs"]
    assert (job["job"], job["npus"], job["left"]) == (JOB, 8, 5)
    (plan,) = job["plans"]
    assert {key: plan[key] for key in ("plan", "state", "since", "rule", "code", "overdue", "returnable")} == {
        "plan": PLAN,
        "state": "advised",
        "since": "2026-01-01T00:07:50.065Z",
        "rule": 28,
        "code": "BORROW",
        "overdue": False,
        "returnable": True,
    }
    assert plan["npus"][0] == {
        "node": "a3-node-0",
        "npu": 1,
        "device_from": 2,
        "device_to": 3,
        "rank": 2,
        "faulted": True,
        "links": [[2, 10], [2, 14]],
        "recorded_early": False,
        "link_back": "2026-01-01T00:09:20.000Z",
    }
    assert job["newest"]["plan"] == PLAN
    assert (job["waiting"], job["history"]) == ([], [])


@pytest.mark.parametrize("name", [JOB, "pretrain-a3", "train/pretrain-a3"])
def test_one_job_can_be_asked_for_by_its_names(call: Command, night: Path, name: str) -> None:
    _, out, _ = call("rail", "status", "--out", night, "--job", name, "--json")
    assert [one["job"] for one in json.loads(out)["jobs"]] == [JOB]


def test_another_job_has_nothing(call: Command, night: Path) -> None:
    code, out, _ = call("rail", "status", "--out", night, "--job", "finetune-a2")
    assert (code, out) == (0, "Nothing is known of rails of finetune-a2.\n")


def test_a_job_that_is_not_known_is_told_which_are(call: Command, night: Path) -> None:
    code, out, err = call("rail", "status", "--out", night, "--job", "nope")
    assert (code, out) == (1, "")
    head, *names = err.splitlines()
    assert head == "fault-agent: no job nope is known here; known here:"
    assert f"  {JOB}" in names
    code, out, _ = call("rail", "status", "--out", night, "--job", "nope", "--json")
    assert (code, json.loads(out)["jobs"]) == (1, [])


def test_where_nothing_was_ever_asked_it_says_so(call: Command, tmp_path: Path) -> None:
    files = a_recording(tmp_path)
    call.replay(files)
    code, out, _ = call("rail", "status", "--out", files / "out")
    assert code == 0
    assert out.startswith("No rail of a job is borrowed, waited for or refused")
    _, out, _ = call("rail", "status", "--out", files / "out", "--json")
    assert json.loads(out) == {"ledger": "absent", "held": 0, "room": {"used": 0, "of": 850_000}, "jobs": []}


def test_a_ledger_that_cannot_be_read_is_told_and_costs_the_exit_code(
    call: Command, night: Path, tmp_path: Path
) -> None:
    place = tmp_path / "out" / "fault-agent"
    place.mkdir(parents=True)
    whole = json.loads((night / "fault-agent" / "fault-agent-rails.json").read_text())
    whole["data"]["ledger.json"] = "{"
    (place / "fault-agent-rails.json").write_text(json.dumps(whole))
    (tmp_path / "out" / "audit.jsonl").write_bytes((night / "audit.jsonl").read_bytes())
    code, out, err = call("rail", "status", "--out", tmp_path / "out")
    assert code == 1
    assert out.startswith("The ledger of borrowed NPUs cannot be read: no borrow is planned until")
    assert "fault-agent-rails" in err


def test_what_an_unreadable_ledger_holds_is_unknown_and_not_nothing(call: Command, night: Path, tmp_path: Path) -> None:
    shutil.copytree(night, tmp_path / "out")
    place = tmp_path / "out" / "fault-agent" / "fault-agent-rails.json"
    whole = json.loads(place.read_text())
    place.write_text(json.dumps({**whole, "data": {"ledger.json": '{"schema":2}'}}))
    _, out, _ = call("rail", "status", "--out", tmp_path / "out", "--json")
    found = json.loads(out)
    assert (found["ledger"], found["held"], found["room"]["used"]) == ("unreadable", None, None)
    _, out, _ = call("rail", "status", "--out", tmp_path / "out")
    assert out.splitlines()[1] == f"{JOB}  what it holds is not known"


def test_a_folder_and_services_are_not_asked_together(call: Command, night: Path) -> None:
    code, _, err = call("rail", "status", "--out", night, "--config", "agent.yaml")
    assert code == 2
    assert "either --out" in err


async def _left(rig: Rig) -> tuple[Sequence[ConfigMap], Sequence[bytes]]:
    await rig.run()
    return await rig.disk.store.list(), await rig.disk.audit.read()


def _leave(rig: Rig, folder: Path) -> None:
    """What the run of the rig leaves, as a folder."""
    documents, journal = asyncio.run(_left(rig))
    for document in documents:
        place = folder / document.namespace / f"{document.name}.json"
        place.parent.mkdir(exist_ok=True)
        place.write_text(json.dumps({"data": dict(document.data)}))
    (folder / "audit.jsonl").write_bytes(b"".join(line + b"\n" for line in journal))


def returned_at(rig: Rig, name: str, at: float) -> None:
    """The operator records that plan `name` was returned by hand."""
    rig.apply(a_group(labels=LABELS, min_member=4, annotations={"fault-agent/rail-returned": name}), at)


def test_a_return_is_told_with_its_own_time_and_one_that_was_recorded_too_early_with_what_to_do(
    call: Command, tmp_path: Path
) -> None:
    """The link of n0's die 0 is down from 1 s to 60 s; a return is recorded at 50 s, taken away, recorded at 80 s."""
    for folder, times in (("early", [50]), ("whole", [50, 80])):
        rig = Rig(the_a3(labels=LABELS))
        see_links(rig, 0)
        rig.fault(LINK, 1, node="n0", device=0)
        rig.tick(40)
        for at in times:
            if at > 60:
                rig.apply(a_group(labels=LABELS, min_member=4), at - 5)
            returned_at(rig, "8c4ff11067de", at)
            if at < 60:
                rig.tick(at + 1)
                rig.clear(LINK, 60, node="n0", device=0)
                rig.tick(65)
        rig.tick(90)
        (tmp_path / folder).mkdir()
        _leave(rig, tmp_path / folder)
    _, out, _ = call("rail", "status", "--out", tmp_path / "early")
    lines = out.splitlines()
    assert lines[0] == f"{DEMO_JOB}  3 NPUs held, 5 of its 8 left"
    assert any(line.startswith("    recorded  A link was down then. This record came too early") for line in lines)
    assert f"    take away kubectl -n train annotate podgroup {GROUP} fault-agent/rail-returned-" in lines
    _, out, _ = call("rail", "status", "--out", tmp_path / "whole")
    assert (
        "  newest answer  rule 28 BORROW, at 2026-01-01T00:00:31.065Z; returned 2026-01-01 00:01:20.000Z"
    ) in out.splitlines()


GROUP = DEMO_JOB.partition("/")[2]


def test_what_was_refused_is_waited_for_and_has_ended_is_told_too(call: Command, tmp_path: Path) -> None:
    """A borrow of a job whose pods are then replaced; later a link without fresh facts, and one that just failed."""
    rig = Rig(the_a3(labels=LABELS))
    see_links(rig, 0)
    rig.fault(LINK, 1, node="n0", device=0)
    rig.tick(40)
    for number in range(4):
        rig.delete("Pod", "train", f"demo-{number}", 50)
    for number in range(4):
        rig.apply(a3_pod(number, uid=f"uid-new-{number}", created="2026-01-01T00:01:00Z", labels=LABELS), 60)
    rig.fault(LINK, 300, node="n1", device=2)
    rig.fault(LINK, 340, node="n2", device=3)
    rig.tick(341)
    _leave(rig, tmp_path)
    code, out, err = call("rail", "status", "--out", tmp_path)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"{DEMO_JOB}  0 NPUs held, 8 of its 8 left"
    assert lines[1].startswith("  observed since 2026-01-01 00:05:40.000Z: occurrence 0:0:")
    assert lines[1].endswith(", a flap until proven otherwise")
    assert lines[2] == "  newest answer  refused, rule 22 BACKUP_LINK_UNKNOWN, at 2026-01-01T00:05:30.065Z"
    assert "    detail    rank 6 (n1 device 2): no fresh link state of device 3" in lines
    ended = [line for line in lines if line.startswith("  ended")]
    assert [line.partition("NPUs ")[2] for line in ended] == [
        "superseded 2026-01-01 00:00:50.000Z, held since 2026-01-01 00:00:31.065Z"
    ]
    _, out, _ = call("rail", "status", "--out", tmp_path, "--json")
    (job,) = json.loads(out)["jobs"]
    assert job["newest"]["state"] == "refused"
    assert [one["state"] for one in job["waiting"]] == ["observed"]
    assert [(one["state"], one["npus"]) for one in job["history"]] == [("superseded", 3)]


def test_npus_that_are_held_on_though_their_links_are_gone_are_told_without_links(
    call: Command, tmp_path: Path
) -> None:
    """The pod of the failed end is replaced: the other ends' processes live, no link of theirs is borrowed any more."""
    rig = Rig(the_a3(labels=LABELS))
    see_links(rig, 0)
    rig.fault(LINK, 1, node="n0", device=0)
    rig.tick(40)
    rig.delete("Pod", "train", "demo-0", 50)
    rig.apply(a3_pod(0, uid="uid-new", created="2026-01-01T00:01:00Z", labels=LABELS), 60)
    rig.tick(70)
    _leave(rig, tmp_path)
    code, out, _ = call("rail", "status", "--out", tmp_path)
    assert code == 0
    assert out.splitlines()[0] == f"{DEMO_JOB}  2 NPUs held, 6 of its 8 left"
    assert "    n2 NPU 0  die 0→1  rank 8  moved as the other end" in out
    assert "    links " not in out
    _, out, _ = call("rail", "status", "--out", tmp_path, "--json")
    ((plan,),) = (job["plans"] for job in json.loads(out)["jobs"])
    assert [(npu["node"], npu["links"]) for npu in plan["npus"]] == [("n2", []), ("n3", [])]
