"""What is typed at the rail verbs: references of faults and links, and what is said when a word is wrong."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from a3cluster import DEMO, OTHER_JOB, the_a3, the_other
from a3table import a3_document, without_odd
from command import Command
from hypothesis import given
from hypothesis import strategies as st
from recordlines import write_cluster

from agent.app.cli.railasked import parse_fault, parse_link, parse_peers
from agent.domain.cluster.whatif import Supposed
from agent.domain.events import FaultKey
from agent.domain.vocab import Millis, NodeName, Plane
from agent.errors import BadUsage


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    return write_cluster(tmp_path / "cluster.json", the_a3())


def key(where: str, code: str, plane: Plane = Plane.NETWORK) -> FaultKey:
    return FaultKey(NodeName("n0"), plane, where, code)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("n0/network/2", Supposed(key("2", "81078603"))),
        ("n0/network/2/81078603", Supposed(key("2", "81078603"))),
        ("n0/network/02/0x81078603@1767225600000", Supposed(key("2", "81078603"), Millis(1767225600000))),
        ("n0/chip/2/81078603", Supposed(key("2", "81078603"))),
        ("n0/chip/2/80e18402", Supposed(key("2", "80E18402", Plane.CHIP))),
        (
            "n0/switch/3.17/[0x00f10509,132332,npu,na]@1767225600000",
            Supposed(key("3.17", "[0x00f10509,132332,npu,na]", Plane.SWITCH), Millis(1767225600000)),
        ),
        ("n0/node/-/0000001D", Supposed(key("-", "0000001D", Plane.NODE))),
    ],
)
def test_a_fault_is_taken_as_people_write_it(word: str, expected: Supposed) -> None:
    assert parse_fault(word) == expected


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("n0", "is no reference of a fault"),
        ("n0/chip/2", "is no reference of a fault"),
        ("/network/2", "is no reference of a fault"),
        ("n0/network/2/", "is no reference of a fault"),
        ("n0/roce/2/81078603", "'roce' is no plane; they are chip, network, switch, node, public, dpu"),
        ("n0/network/2/link", "'link' is no code of a chip or link"),
        ("n0/network/x", "'x' is no device"),
        ("n0/network/64", "'64' is no device"),
        ("n0/network/2@today", "'today' is no time in ms"),
        ("n0/network/2@123", "123 is no time of 2025 until 2100, in Unix ms"),
        ("n0/network/2@1767225600", "1767225600 is no time of 2025 until 2100, in Unix ms"),
        ("n0/network/2@4102444800000", "4102444800000 is no time of 2025 until 2100, in Unix ms"),
    ],
)
def test_a_word_that_is_no_fault_is_told_how_one_is_written(word: str, why: str) -> None:
    with pytest.raises(BadUsage) as error:
        parse_fault(word)
    assert error.value.message.startswith(f"--fault {word}: {why}")
    assert error.value.hint


@given(st.text(max_size=40))
def test_any_word_is_a_fault_or_wrong_use(word: str) -> None:
    with suppress(BadUsage):
        found = parse_fault(word)
        assert str(found.key.node)
        assert found.key.plane in Plane
    with suppress(BadUsage):
        (node, device), state = parse_link(word)
        assert (str(node) != "", 0 <= device < 64, state in ("up", "down")) == (True, True, True)
    with suppress(BadUsage):
        assert all(rank >= 0 for rank in (parse_peers(word)[0], *parse_peers(word)[1]))


def test_links_and_peers_are_taken_and_refused_by_their_form() -> None:
    assert parse_link("n0/3=down") == ((NodeName("n0"), 3), "down")
    assert parse_peers("2=10, 14") == (2, (10, 14))
    assert parse_peers("2=") == (2, ())
    for word in ("n0/3", "3=up", "n0/3=UP", "n0/x=up", "/3=up"):
        with pytest.raises(BadUsage):
            parse_link(word)
    for word in ("2", "x=1", "2=a", "2=1;3", "2=2", "2=10,2"):
        with pytest.raises(BadUsage):
            parse_peers(word)


@pytest.mark.parametrize("verb", ["plan", "explain"])
def test_nowhere_to_look_is_wrong_use_with_what_to_give(call: Command, tmp_path: Path, verb: str) -> None:
    code, out, err = call("rail", verb, "--fault", "n0/network/0")
    assert (code, out) == (2, "")
    assert "nowhere to look (give --cluster PATH" in err
    (tmp_path / "out").mkdir()
    code, _, err = call("rail", verb, "--fault", "n0/network/0", "--out", tmp_path / "out")
    assert code == 2
    assert "--out alone does not tell the jobs (give --cluster" in err


def test_no_fault_to_ask_about_is_wrong_use(call: Command, cluster: Path) -> None:
    code, _, err = call("rail", "plan", "--cluster", cluster)
    assert code == 2
    assert "no fault is asked about (give --fault or --leaf; a fault is node/plane/where/code" in err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--leaf", "n0"), "is not NODE/even or NODE/odd (for example --leaf n0/even)"),
        (("--leaf", "n9/even"), "no even device of node n9 is known (known nodes: n0, n1, n2, n3)"),
        (("--fault", "n0/network/0", "--job", "train/nope"), "no job train/nope is known here (known: train/demo"),
        (("--fault", "n0/network/0", "--link", "n0=up"), "is not NODE/DEVICE=up or NODE/DEVICE=down"),
        (
            ("--fault", "n0/network/0", "--link", "n9/3=up"),
            "--link n9/3: no device of node n9 is known (known nodes: n0, n1, n2, n3)",
        ),
        (
            ("--fault", "n0/network/0", "--link", "n0/4=up"),
            "--link n0/4: node n0 has no such device (known: 0, 1, 2, 3)",
        ),
        (
            ("--fault", "n9/network/0", "--job", "train/demo"),
            "holds no device that a fault is asked about on (no job does)",
        ),
        (("--fault", "n0/network/0", "--peers", "2=2"), "--peers 2=2: a rank is no peer of itself"),
        (
            ("--fault", "n0/network/0", "--peers", "2=99"),
            "--peers: rank 99 is in no rank table of the job (ranks: 0, 1, 2, 3, 4, 5, 6, 7 and 8 more)",
        ),
        (("--fault", "n0/network/0", "--peers", "16="), "--peers: rank 16 is in no rank table of the job"),
        (("--fault", "n0/network/0", "--retries-used", "-1"), "--retries-used"),
    ],
)
def test_words_that_mean_nothing_here_are_told_what_would(
    call: Command, cluster: Path, words: tuple[str, ...], why: str
) -> None:
    code, out, err = call("rail", "plan", "--cluster", cluster, *words)
    assert (code, out) == (2, "")
    assert why in err


def test_a_table_that_is_none_is_led_to_the_check(call: Command, cluster: Path, tmp_path: Path) -> None:
    (tmp_path / "hccl.json").write_text('{"status": "initializing", "version": "1.2"}', encoding="utf-8")
    code, _, err = call(
        "rail", "plan", "--cluster", cluster, "--fault", "n0/network/0", "--table", tmp_path / "hccl.json"
    )
    assert code == 2
    assert "STATUS_NOT_READY" in err
    assert "see fault-agent ranktable check" in err


def refused(document: dict[str, Any]) -> None:
    document["server_count"] = "3"
    document["server_list"][0]["device"][0]["device_ip"] = "192.168.3.999"


def same_rank(document: dict[str, Any]) -> None:
    document["server_list"][1]["device"][0]["rank_id"] = "0"


def same_device(document: dict[str, Any]) -> None:
    document["server_list"][1]["device"][1]["device_id"] = "0"


@pytest.mark.parametrize(("change", "code"), [(same_rank, "RANK_DUP"), (same_device, "DEVICE_ID_DUP")])
def test_a_table_that_gives_one_place_twice_is_refused_from_a_file_as_from_the_cluster(
    call: Command, cluster: Path, tmp_path: Path, change: Callable[[dict[str, Any]], None], code: str
) -> None:
    document = a3_document()
    change(document)
    (tmp_path / "hccl.json").write_bytes(orjson.dumps(document))
    bad = write_cluster(tmp_path / "bad.json", the_a3(change))
    for words in ((cluster, "--table", tmp_path / "hccl.json"), (bad,)):
        exit_code, out, _ = call("rail", "plan", "--fault", "n0/network/2", "--links-up", "--cluster", *words)
        assert exit_code == 1
        assert "refuse, rule 1 TABLES_CONTRADICT" in out
        assert "contradicts itself: /server_list/1/device/" in out
        assert code in out
        assert "advice   Put the rank table right: fault-agent ranktable check" in out


def without_backups(document: dict[str, Any]) -> None:
    for server in document["server_list"]:
        for die in server["device"]:
            del die["backup_device_ip"], die["backup_device_port"]


def test_the_proposal_of_backups_is_tried_in_the_place_of_the_jobs_table(call: Command, tmp_path: Path) -> None:
    document = a3_document()
    without_backups(document)
    (tmp_path / "hccl.json").write_bytes(orjson.dumps(document))
    start = ("rail", "plan", "--fault", "n0/network/2", "--links-up", "--cluster")
    bare = write_cluster(tmp_path / "bare.json", the_a3(without_backups))
    code, out, _ = call(*start, bare)
    assert (code, "refuse, rule 14 COMM_MODE_UNKNOWN" in out, "a what-if takes --comm-mode" in out) == (1, True, True)
    (tmp_path / "proposed.json").write_text(call("ranktable", "backup", tmp_path / "hccl.json")[1], encoding="utf-8")
    code, out, _ = call(*start, bare, "--table", tmp_path / "proposed.json")
    assert (code, "rule 28 BORROW" in out, "although it has" in out) == (0, True, False)


def test_what_hccl_would_refuse_in_a_table_is_told_beside_the_answer(
    call: Command, cluster: Path, tmp_path: Path
) -> None:
    document = a3_document()
    refused(document)
    (tmp_path / "hccl.json").write_bytes(orjson.dumps(document))
    bad = write_cluster(tmp_path / "bad.json", the_a3(refused))
    for words in ((cluster, "--table", tmp_path / "hccl.json"), (bad,)):
        _, out, _ = call("rail", "plan", "--fault", "n0/network/2", "--links-up", "--cluster", *words)
        assert "rule 28 BORROW" in out
        told = "taken although it has 2 errors, first /server_count: SERVER_COUNT_MISMATCH: 3 is written, 4 are listed"
        assert f"{told}; see fault-agent ranktable check" in out
    assert "although it has" not in call("rail", "plan", "--fault", "n0/network/2", "--cluster", cluster)[1]


def test_an_object_that_cannot_be_read_is_said_and_the_rest_is_asked(call: Command, tmp_path: Path) -> None:
    broken = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "train", "labels": 5}}
    cluster = write_cluster(tmp_path / "cluster.json", [*the_a3(), broken])
    code, out, err = call("rail", "plan", "--cluster", cluster, "--fault", "n0/network/0", "--links-up")
    assert code == 0
    assert "rule 28 BORROW" in out
    assert err == "fault-agent: finding: Pod train/x: metadata.labels: is no mapping\n"


def test_a_node_that_nothing_tells_of_is_said_and_which_are_known(call: Command, cluster: Path) -> None:
    code, out, err = call("rail", "plan", "--cluster", cluster, "--fault", "n9/network/0")
    assert code == 1
    assert out.startswith("no job: refuse, rule 1 UNKNOWN_TARGET")
    assert err == "fault-agent: finding: --fault: node n9 is not known here; known nodes: n0, n1, n2, n3\n"


def test_a_place_without_jobs_is_told_as_one(call: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    code, _, err = call("rail", "plan", "--cluster", tmp_path / "empty", "--fault", "n0/network/0")
    assert code == 1
    assert err.splitlines() == [
        "fault-agent: finding: 0 nodes and 0 jobs were read: no fault can hit a job here",
        "fault-agent: finding: --fault: node n0 is not known here; known nodes: none",
    ]


def test_a_job_that_holds_nothing_where_the_fault_lies_is_not_asked(call: Command, tmp_path: Path) -> None:
    both = write_cluster(tmp_path / "cluster.json", [*the_a3(without_odd, devices=(0, 2)), *the_other()])
    code, _, err = call("rail", "plan", "--cluster", both, "--fault", "n0/network/0", "--job", OTHER_JOB)
    assert code == 2
    assert f"--job {OTHER_JOB}: holds no device that a fault is asked about on (those that do: {DEMO})" in err


def test_the_job_may_be_named_by_its_own_name(call: Command, cluster: Path) -> None:
    for name in ("train/demo", "demo", DEMO, DEMO.partition("/")[2]):
        code, out, _ = call("rail", "plan", "--cluster", cluster, "--fault", "n0/network/0", "--job", name)
        assert code == 1
        assert "rule 22 BACKUP_LINK_UNKNOWN" in out
