"""`fault-agent documents diff` and `release`: exit codes, words for people, JSON for machines, the folder's lock."""

import json
from pathlib import Path
from typing import Any

import pytest
from command import REF, SEPARATE, Command, a_recording
from kubebuilders import DEMO_JOB, a_group
from recordlines import fault_line
from rig import T0

from agent.adapters.folderlock import FolderLock
from agent.domain.vocab import Millis
from agent.wire.audit import rfc3339

VCJOB, RESET = "volcano-system/vcjob-fault-npu-cm", "train/reset-config-demo"
REQUEST = "80C98000"


def observed(call: Command, folder: Path) -> list[str | Path]:
    """A replay in observe mode; the words that name its folder."""
    a_recording(folder)
    (folder / "agent.yaml").write_text("mode: observe\n", encoding="utf-8")
    call.replay(folder, "--config", folder / "agent.yaml")
    return ["--cluster", folder / "cluster.json", "--out", folder / "out", "--config", folder / "agent.yaml"]


def acted(call: Command, folder: Path) -> list[str | Path]:
    """A replay in act mode that ends within a recovery."""
    a_recording(folder, [fault_line(REQUEST, T0, 1), {"tick": T0 + 5_000}])
    call.replay(folder)
    return ["--cluster", folder / "cluster.json", "--out", folder / "out"]


def files(folder: Path) -> dict[str, bytes]:
    """Every file of a folder but locks."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in (".lock", "lock")
    }


def test_diff_after_observe_says_what_would_change_and_why(call: Command, tmp_path: Path) -> None:
    words = observed(call, tmp_path)
    before = files(tmp_path / "out")
    code, out, err = call("documents", "diff", *words)
    assert (code, err) == (1, "")
    lines = out.splitlines()
    what = f"faulty: n1 CardUnhealthy; retries: {DEMO_JOB} 3 left"
    assert lines[0] == f"{VCJOB}: would change (mode observe: not while it is in force) · {what}"
    assert lines[1] == f"  because  {REF}"
    assert lines[2].split() == [DEMO_JOB]
    assert lines[3:6:2] == [f"--- {VCJOB} fault-node, as it stands", "@@ -0,0 +1,22 @@"]
    assert lines[-1] == "1 document would change"
    assert files(tmp_path / "out") == before


def test_diff_tells_what_is_wrong_with_the_labels_of_jobs_as_a_replay_does(call: Command, tmp_path: Path) -> None:
    words = observed(call, tmp_path)
    group = a_group(labels={"fault-retry-times": "101"})
    (tmp_path / "cluster.json").write_text(json.dumps(group), encoding="utf-8")
    _, _, err = call("documents", "diff", *words)
    told = f"LABEL_BAD PodGroup {DEMO_JOB}: fault-retry-times: '101' is no whole number of 0 to 100; it counts as 101"
    assert f"finding: {told}" in err


def test_diff_for_machines(call: Command, tmp_path: Path) -> None:
    code, out, _ = call("documents", "diff", *observed(call, tmp_path), "--json")
    assert code == 1
    (one,) = json.loads(out)
    assert (one["document"], one["changes"], one["mode"], one["reason"]) == (VCJOB, True, "observe", "WRITTEN")
    assert one["causes"] == [{"fault": REF, "job": ""}, {"fault": "", "job": DEMO_JOB}]
    assert set(one["keys"]) == {"fault-node", "remain-retry-times"}
    assert one["keys"]["fault-node"]["before"] is None
    assert SEPARATE in one["keys"]["fault-node"]["after"]


def test_diff_after_act_has_nothing_to_say(call: Command, tmp_path: Path) -> None:
    words = acted(call, tmp_path)
    assert call("documents", "diff", *words) == (0, "0 documents would change\n", "")
    assert call("documents", "diff", *words, "--json") == (0, "[]\n", "")


def reset_json(folder: Path) -> dict[str, Any]:
    item = json.loads((folder / "out" / f"{RESET}.json").read_bytes())
    found: dict[str, Any] = json.loads(item["data"]["reset.json"])
    return found


def test_release_says_what_it_would_do_and_does_it_with_yes(call: Command, tmp_path: Path) -> None:
    words = acted(call, tmp_path)
    before = files(tmp_path / "out")
    code, out, err = call("release", "--job", "train/demo", *words)
    assert (code, err) == (0, "")
    assert out.splitlines()[0].startswith(f"{RESET}: would be released · recovery 1 ")
    assert out.splitlines()[-1] == "1 would change; nothing was done, --yes does it"
    assert files(tmp_path / "out") == before
    code, out, _ = call("release", "--job", "train/demo", *words, "--yes", "--json")
    (one,) = json.loads(out)
    assert (code, one["document"], one["job"], one["done"]) == (0, RESET, DEMO_JOB, True)
    assert (reset_json(tmp_path)["RankList"], reset_json(tmp_path)["RetryTime"]) == ([], 1)
    _, out, _ = call("why", "document", RESET, "--out", tmp_path / "out", "--json")
    *_, left, written = json.loads(out)
    assert (left["reason"], written["reason"]) == ("RECOVERY_ENDED", "WRITTEN")
    assert left["detail"].endswith("its document is let go of: out of act mode, or released")
    assert {left["time"], written["time"]} == {rfc3339(Millis(T0))}, "the newest time of the folder"
    after = files(tmp_path / "out")
    code, out, _ = call("release", "--job", "train/demo", *words, "--yes")
    assert (code, out.splitlines()[-1]) == (0, "0 changed")
    assert files(tmp_path / "out") == after


def test_release_of_what_cannot_be_read_is_a_finding(call: Command, tmp_path: Path) -> None:
    words = acted(call, tmp_path)
    (tmp_path / "out" / f"{RESET}.json").write_text("{", encoding="utf-8")
    code, out, _ = call("release", "--all", *words, "--yes")
    assert code == 1
    assert out.splitlines()[0].startswith(f"{RESET}: not let go of, DOCUMENT_UNREADABLE")


def test_release_waits_for_no_run_on_the_folder(call: Command, tmp_path: Path) -> None:
    words = acted(call, tmp_path)
    with FolderLock(tmp_path / "out" / ".state" / "lock"):
        code, _, err = call("release", "--all", *words, "--yes")
        assert (code, "works on" in err) == (3, True)
        assert call("release", "--all", *words)[0] == 0, "to look, no lock is needed"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("release",), "give either --job NAMESPACE/NAME or --all"),
        (("release", "--all", "--job", "a/b"), "give either --job NAMESPACE/NAME or --all"),
        (("release", "--all"), "give --cluster and --out for a folder, or --config alone for a cluster"),
        (("documents", "diff"), "give --cluster and --out for a folder, or --config alone for a cluster"),
        (("documents", "diff", "--out", "."), "give --cluster and --out for a folder, or --config alone"),
    ],
)
def test_wrong_use_is_said(call: Command, words: tuple[str, ...], said: str) -> None:
    code, _, err = call(*words)
    assert (code, said in err) == (2, True)


@pytest.mark.parametrize("verb", [("documents", "diff"), ("release", "--all")])
def test_a_cluster_without_a_name_is_refused_before_anything_is_asked(
    call: Command, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    (tmp_path / "agent.yaml").write_text("mode: observe\n", encoding="utf-8")
    code, _, err = call(*verb, "--config", tmp_path / "agent.yaml")
    assert (code, "cluster.id is not set" in err) == (2, True)


@pytest.mark.parametrize("verb", [("documents", "diff"), ("release", "--all")])
def test_a_folder_of_no_run_is_refused(call: Command, tmp_path: Path, verb: tuple[str, ...]) -> None:
    a_recording(tmp_path)
    (tmp_path / "out").mkdir()
    code, _, err = call(*verb, "--cluster", tmp_path / "cluster.json", "--out", tmp_path / "out")
    assert (code, "holds no audit.jsonl" in err) == (3, True)


@pytest.mark.parametrize("verb", [("documents", "diff"), ("release", "--all")])
def test_a_folder_of_another_cluster_id_is_refused(call: Command, tmp_path: Path, verb: tuple[str, ...]) -> None:
    words = acted(call, tmp_path)
    (tmp_path / "west.yaml").write_text("cluster: {id: west}\n", encoding="utf-8")
    code, _, err = call(*verb, *words, "--config", tmp_path / "west.yaml")
    assert (code, "belongs to cluster 'solo', the settings say 'west'" in err) == (3, True)


@pytest.mark.parametrize(
    "verb", [("why", "job", "demo"), ("rail", "status"), ("documents", "diff"), ("release", "--all")]
)
def test_a_folder_without_a_run_is_3_and_no_folder_is_2(call: Command, tmp_path: Path, verb: tuple[str, ...]) -> None:
    a_recording(tmp_path)
    (tmp_path / "empty").mkdir()
    cluster = ("--cluster", tmp_path / "cluster.json") if verb[0] in ("documents", "release") else ()
    assert call(*verb, *cluster, "--out", tmp_path / "empty")[0] == 3
    assert call(*verb, *cluster, "--out", tmp_path / "none")[0] == 2
