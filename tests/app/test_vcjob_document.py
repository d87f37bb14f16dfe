"""`vcjob-fault-npu-cm` as a whole: which nodes are listed and how, and what ascend-operator decides by its retries."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kubebuilders import DEMO_GROUP, DEMO_JOB, DEMO_UID, a_config_map, a_group, a_node, a_pod, the_demo
from readers import RESTARTING, operator_decides
from rig import T0, Disk, Rig
from vcjobnight import LABELS, LINK, MILD, PRE, SEPARATE, SUB_HEALTH, SWITCH, UNKNOWN, VCJOB, holding, nodes_of

from agent.app.documents import NodesShown, render_vcjob
from agent.domain.cluster import ClusterBook, Limits
from agent.domain.faultnodes import DeviceFault, FaultNodeEntry, NodeFaults, fault_node
from agent.domain.jobs import PodGroup
from agent.domain.ledger import JobLedger
from agent.domain.vocab import JobId, NodeName, Plane
from agent.ports import ConfigMap

NODE_DOWN, SWITCH_DOWN = "2C000031", "[0x00f103b0,155907,na,na]"


# --- fault-node: one night of every kind, byte by byte


CARD_2 = (
    '{"fault_type":"CardUnhealthy","npu_name":"Ascend910-2","fault_level":"SeparateNPU",'
    '"fault_handling":"SeparateNPU","large_model_fault_level":"SeparateNPU","fault_code":"80E18402,8F180220"}'
)
"""Both codes of the card, ascending by value; PreSeparateNPU in use is the milder one."""
LINK_2 = (
    '{"fault_type":"CardNetworkUnhealthy","npu_name":"Ascend910-2","fault_level":"PreSeparateNPU",'
    '"fault_handling":"PreSeparateNPU","large_model_fault_level":"PreSeparateNPU","fault_code":"81078603"}'
)
PRE_1 = (
    '{"fault_type":"CardUnhealthy","npu_name":"Ascend910-1","fault_level":"PreSeparateNPU",'
    '"fault_handling":"PreSeparateNPU","large_model_fault_level":"PreSeparateNPU","fault_code":"8F180220"}'
)
MILD_0 = (
    '{"fault_type":"CardUnhealthy","npu_name":"Ascend910-0","fault_level":"NotHandleFault",'
    '"fault_handling":"NotHandleFault","large_model_fault_level":"NotHandleFault","fault_code":"80818200"}'
)


def card(name: str, kind: str = "CardUnhealthy", code: str = SEPARATE) -> str:
    return (
        f'{{"fault_type":"{kind}","npu_name":"{name}","fault_level":"SeparateNPU","fault_handling":"SeparateNPU",'
        f'"large_model_fault_level":"SeparateNPU","fault_code":"{code}"}}'
    )


def element(devices: str, node: str, cards: str, links: str, state: str, at: int, node_d: str = "false") -> str:
    return (
        f'{{"FaultDeviceList":[{devices}],"NodeName":"{node}","UnhealthyNPU":{cards},"NetworkUnhealthyNPU":{links},'
        f'"NodeDEnable":{node_d},"NodeHealthState":"{state}","UpdateTime":{at}}}'
    )


GOLDEN = ",".join(
    [
        # both kinds of unhealthy cards: CardUnhealthy; device 0 is mild and told beside them; the last thing that
        # changed was the link, after 20 s of being down and one millisecond
        element(f"{MILD_0},{CARD_2},{LINK_2}", "n1", '["Ascend910-2"]', '["Ascend910-2"]', "CardUnhealthy", 1767225623),
        # vanished at 30 with a pod of the job on it; the card's PreSeparateNPU in use is told beside that
        element(PRE_1, "n2", "null", "null", "NodeUnhealthy", 1767225630),
        # 64 devices, in the order of their numbers; a public fault of a card makes it unhealthy under its own kind
        element(
            ",".join([card("Ascend910-9"), card("Ascend910-10", "PublicFault", "220001001"), card("Ascend910-63")]),
            "n3",
            '["Ascend910-9","Ascend910-10","Ascend910-63"]',
            "null",
            "CardUnhealthy",
            1767225612,
        ),
        # a switch and a node fault: no device, lists null; NodeD's object of n6 is there
        element("", "n5", "null", "null", "NodeUnhealthy", 1767225605),
        element("", "n6", "null", "null", "NodeUnhealthy", 1767225606, "true"),
        # a link alone
        element(LINK_2, "n9", "null", '["Ascend910-2"]', "CardNetworkUnhealthy", 1767225629),
    ]
)


async def test_every_kind_of_fault_has_its_place_in_fault_node() -> None:
    objects = the_demo(LABELS)
    objects += [a_node(f"n{number}") for number in range(3, 10)]
    objects[-7] = a_node("n3", devices=range(64))
    objects.append(a_config_map("mindx-dl-nodeinfo-n6", {"NodeInfo": "{}"}, namespace="mindx-dl"))
    rig = Rig(objects)
    rig.fault(SEPARATE, 1)
    rig.fault(PRE, 2)
    rig.fault(LINK, 3, resource="hccn")
    rig.fault(MILD, 4, device=0)
    rig.fault(SUB_HEALTH, 4, node="n4")  # sub-health alone lists no node
    rig.fault(SWITCH_DOWN, 5, node="n5", device=None, resource="lingqu", location=SWITCH)
    rig.fault(NODE_DOWN, 6, node="n6", device=None, resource="ipmi")
    rig.fault(UNKNOWN, 7, node="n7")  # held for a person: in no document
    rig.fault(PRE, 8, node="n2", device=1)  # in use
    rig.fault(LINK, 9, node="n9", resource="hccn")
    rig.fault(SEPARATE, 10, node="n3", device=63)
    rig.fault(SEPARATE, 11, node="n3", device=9)
    rig.fault("220001001", 12, node="n3", device=10, resource="pingmesh")
    rig.fault(SEPARATE, 13, node="n8")
    rig.clear(SEPARATE, 14, node="n8")  # healthy again: it leaves
    rig.delete("Node", "", "n2", 30)
    rig.tick(40)
    await rig.run()
    data = await rig.data(VCJOB)
    assert data is not None
    assert data["fault-node"] == f"[{GOLDEN}]"
    assert data["remain-retry-times"] == f'{{"train/{DEMO_GROUP}":{{"UUID":"{DEMO_UID}","Times":3}}}}'


async def test_a_silent_node_keeps_its_entry_and_its_time() -> None:
    rig = Rig(the_demo(LABELS))
    rig.fault(SEPARATE, 1)
    rig.tick(2)
    rig.fault(SEPARATE, 100_000, node="n2")
    await rig.run()
    assert [(one["NodeName"], one["UpdateTime"] - T0 // 1000) for one in await nodes_of(rig)] == [
        ("n1", 1),
        ("n2", 100_000),
    ]


async def test_what_changes_nothing_of_a_node_moves_no_time() -> None:
    rig = Rig(the_demo(LABELS))
    rig.fault(SEPARATE, 1)
    rig.fault(SEPARATE, 5)  # once more
    rig.fault(UNKNOWN, 6)  # held
    rig.apply(a_pod("demo-0", phase="Succeeded", labels=LABELS), 7)
    rig.tick(60)
    await rig.run()
    again = Rig(rig.objects, disk=rig.disk)
    again.tick(100)
    await again.run()
    assert len({*rig.texts(VCJOB, "fault-node")} - {"[]"}) == 1
    assert again.texts(VCJOB, "fault-node") == []
    assert [one["UpdateTime"] - T0 // 1000 for one in await nodes_of(again)] == [1]


# --- what others write beside us


DEVICE = '{"fault_type":"CardUnhealthy","npu_name":"Ascend910-2","fault_level":"SeparateNPU","note":"d"}'


async def test_what_others_add_later_stays() -> None:
    rig = Rig(the_demo(LABELS))
    rig.fault(SEPARATE, 1)
    theirs = (
        f'[{{"FaultDeviceList":[{DEVICE}],"NodeName":"n1","NodeHealthState":"CardUnhealthy","rack":7}},'
        '{"NodeName":"far","NodeHealthState":"NodeUnhealthy","UpdateTime":5}]'
    )
    rig.apply(holding({"fault-node": theirs, "remain-retry-times": '{"x/y":{"UUID":"u","Times":1}}', "k": "v"}), 5)
    rig.fault(SEPARATE, 10, node="n2")
    rig.tick(20)
    await rig.run()
    data = await rig.data(VCJOB)
    assert data is not None
    far, first, second = sorted(json.loads(data["fault-node"]), key=lambda one: str(one["NodeName"]))
    assert (far["NodeName"], far["NodeHealthState"], far["UpdateTime"]) == ("far", "NodeUnhealthy", 5)
    assert (first["rack"], first["FaultDeviceList"][0]["note"], first["UpdateTime"] - T0 // 1000) == (7, "d", 1)
    assert first["UnhealthyNPU"] == ["Ascend910-2"]
    assert second["NodeName"] == "n2"
    assert (data["k"], json.loads(data["remain-retry-times"])["x/y"]) == ("v", {"UUID": "u", "Times": 1})


FAR = '[{"NodeName":"far","NodeHealthState":"NodeUnhealthy","UpdateTime":5}]'


@pytest.mark.parametrize("nodes", [(), ("n1", "n2"), ("n1", "n2", "far")], ids=["none", "without it", "with it"])
async def test_an_element_that_stood_there_at_the_start_stays_whatever_nodes_are_known(nodes: tuple[str, ...]) -> None:
    rig = Rig([*(one for one in the_demo(LABELS) if one["kind"] != "Node"), *map(a_node, nodes)])
    await rig.disk.store.put(ConfigMap("volcano-system", "vcjob-fault-npu-cm", {"fault-node": FAR}))
    rig.fault(SEPARATE, 1)
    await rig.run()
    later = Rig(rig.objects, disk=rig.disk)  # the document is claimed by now
    later.tick(100)
    await later.run()
    assert [(one["NodeName"], one["UpdateTime"]) for one in await nodes_of(later)] == [
        ("far", 5),
        ("n1", T0 // 1000 + 1),
    ]


async def test_a_node_of_ours_that_vanished_leaves_also_when_nobody_looked() -> None:
    rig = Rig(the_demo(LABELS))
    rig.delete("Node", "", "n1", 1)
    rig.tick(2)
    await rig.run()
    assert [one["NodeName"] for one in await nodes_of(rig)] == ["n1"]
    moved = [
        a_pod("demo-0", uid="new", node="n3", labels=LABELS),
        a_pod("demo-1", node="n2", rank_index=1, labels=LABELS),
    ]
    later = Rig([a_node("n2"), a_node("n3"), a_group(labels=LABELS), *moved], disk=rig.disk)
    later.tick(100)
    await later.run()
    assert await nodes_of(later) == []


# --- a node of which nothing is known any more


MARK = "fault-agent/fault-node"


async def with_a_lonely_node() -> Rig:
    """A folder whose coordinator has shown a node without a job, and whose ledgers and reports are lost after it."""
    rig = Rig([*the_demo(LABELS), a_node("n9")])
    rig.fault(SEPARATE, 1)
    rig.fault(SEPARATE, 1, node="n9", device=0)
    await rig.run()
    assert [one["NodeName"] for one in await nodes_of(rig)] == ["n1", "n9"]
    store = rig.disk.store
    for one in await store.list():
        if one.name.startswith("fault-agent-"):
            await store.delete(one.namespace, one.name, one.resource_version)
    return rig


async def begun_anew(rig: Rig, objects: Sequence[Mapping[str, Any]]) -> list[str]:
    """The nodes that another process shows which finds nothing but the documents."""
    later = Rig(objects, disk=Disk(store=rig.disk.store))
    later.fault(SEPARATE, 100)
    await later.run()
    return [one["NodeName"] for one in await nodes_of(later)]


async def marked(rig: Rig) -> bool:
    """Whether the document proves that all of its elements are ours."""
    live = await rig.disk.store.get("volcano-system", "vcjob-fault-npu-cm")
    assert live is not None
    return live.annotations.get(MARK) == sha256(live.data["fault-node"].encode()).hexdigest()


async def test_an_element_of_ours_leaves_though_node_report_and_ledger_went_while_nobody_looked() -> None:
    rig = await with_a_lonely_node()
    assert await marked(rig)
    assert await begun_anew(rig, the_demo(LABELS)) == ["n1"]
    assert await marked(rig)


async def test_as_long_as_there_is_a_node_of_that_name_its_element_stays() -> None:
    rig = await with_a_lonely_node()
    assert await begun_anew(rig, [*the_demo(LABELS), a_node("n9")]) == ["n1", "n9"]
    assert await marked(rig), "it is still ours"
    assert await begun_anew(rig, the_demo(LABELS)) == ["n1"]


async def test_where_no_node_objects_are_seen_an_element_stays() -> None:
    rig = await with_a_lonely_node()
    objects = [one for one in the_demo(LABELS) if one["kind"] != "Node"]
    assert await begun_anew(rig, objects) == ["n1", "n9"]


@pytest.mark.parametrize("what", ["text", "claim", "mark"])
async def test_what_another_hand_has_changed_proves_nothing_and_the_element_stays(what: str) -> None:
    rig = await with_a_lonely_node()
    live = await rig.disk.store.get("volcano-system", "vcjob-fault-npu-cm")
    assert live is not None
    assert rig.disk.foreign is not None
    if what == "text":
        live = replace(live, data={**live.data, "fault-node": live.data["fault-node"].replace(":17672", ":17671")})
    else:
        gone = MARK if what == "mark" else "fault-agent/cluster"
        live = replace(live, annotations={key: one for key, one in live.annotations.items() if key != gone})
    await rig.disk.foreign.put(live)
    assert await begun_anew(rig, the_demo(LABELS)) == ["n1", "n9"]
    assert not await marked(rig)


async def test_beside_an_element_of_somebody_else_nothing_is_proved() -> None:
    rig = Rig(the_demo(LABELS))
    await rig.disk.store.put(ConfigMap("volcano-system", "vcjob-fault-npu-cm", {"fault-node": FAR}))
    rig.fault(SEPARATE, 1)
    await rig.run()
    live = await rig.disk.store.get("volcano-system", "vcjob-fault-npu-cm")
    assert live is not None
    assert live.annotations == {"fault-agent/cluster": "solo"}


@pytest.mark.parametrize("mode", ["running", "stopped"])
async def test_a_person_who_empties_the_text_is_rid_of_what_is_nobody_s_and_what_holds_comes_back(mode: str) -> None:
    rig = Rig(the_demo(LABELS))
    await rig.disk.store.put(ConfigMap("volcano-system", "vcjob-fault-npu-cm", {"fault-node": FAR}))
    rig.fault(SEPARATE, 1)
    if mode == "running":
        rig.apply(holding({"fault-node": "[]"}), 10)
    await rig.run()
    if mode == "stopped":
        live = await rig.disk.store.get("volcano-system", "vcjob-fault-npu-cm")
        assert live is not None
        await rig.disk.store.put(replace(live, data={**live.data, "fault-node": "[]"}))
        rig = Rig(rig.objects, disk=rig.disk)
        rig.tick(100)
        await rig.run()
    assert [one["NodeName"] for one in await nodes_of(rig)] == ["n1"]
    assert await marked(rig)


async def test_a_fault_node_that_nobody_can_read_is_made_anew_and_said() -> None:
    rig = Rig(the_demo(LABELS))
    rig.apply(holding({"fault-node": "[7]"}), 0)
    rig.fault(SEPARATE, 1)
    await rig.run()
    assert [one["NodeName"] for one in await nodes_of(rig)] == ["n1"]
    assert any("fault-node was unreadable" in one.detail for one in rig.decisions)


WORDS = st.text(st.sampled_from('ab/<&>节\u2028"\\'), min_size=1, max_size=6)
NEW = WORDS.map(lambda word: f"x-{word}")
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
MORE = st.dictionaries(NEW, ANY, max_size=2)
THEIRS = st.fixed_dictionaries(
    {
        "keys": st.dictionaries(NEW, WORDS, max_size=2),
        "jobs": st.dictionaries(
            st.sampled_from(["a/b", DEMO_JOB, "c/<d>"]), st.tuples(st.integers(-(2**63), 2**63 - 1), MORE), max_size=3
        ),
        "nodes": st.dictionaries(st.sampled_from(["n1", "far", "n<>"]), st.tuples(MORE, MORE), max_size=3),
    }
)


def a_book(*nodes: str) -> ClusterBook:
    """The demo job with three retries, and these nodes with device 2 separated."""
    book = ClusterBook("solo", Limits())
    book.jobs.apply_group(PodGroup("train", DEMO_GROUP, owner_uid=DEMO_UID))
    book.ledgers[JobId(DEMO_JOB)] = JobLedger(JobId(DEMO_JOB), "solo", owner=DEMO_UID, retry_times=3)
    for name in nodes:
        node = NodeName(name)
        entry = fault_node(NodeFaults(node, (DeviceFault(2, Plane.CHIP, SEPARATE, "SeparateNPU", False),)))
        assert entry is not None
        book.entries[node] = entry
        book.judged.add(node)
    return book


def live_of(theirs: dict[str, Any]) -> ConfigMap:
    device = {"fault_type": "CardUnhealthy", "npu_name": "Ascend910-2", "fault_level": "SeparateNPU"}
    nodes = [
        {"FaultDeviceList": [device | of_device], "NodeName": name, "NodeHealthState": "CardUnhealthy"} | of_node
        for name, (of_node, of_device) in theirs["nodes"].items()
    ]
    jobs = {job: {"UUID": "u", "Times": times} | more for job, (times, more) in theirs["jobs"].items()}
    data = {"fault-node": json.dumps(nodes), "remain-retry-times": json.dumps(jobs), **theirs["keys"]}
    return ConfigMap("volcano-system", "vcjob-fault-npu-cm", data)


@settings(max_examples=60, deadline=None)
@given(THEIRS)
def test_the_merge_keeps_every_key_of_others_and_is_done_once(theirs: dict[str, Any]) -> None:
    book, live, shown = a_book("n1"), live_of(theirs), NodesShown()
    rendered = render_vcjob(book, frozenset(), live, shown)
    assert rendered.data is not None
    after = {**live.data, **rendered.data}
    nodes = {one["NodeName"]: one for one in json.loads(after["fault-node"])}
    jobs = json.loads(after["remain-retry-times"])
    assert {key: after[key] for key in theirs["keys"]} == theirs["keys"]
    assert set(nodes) == {"n1", *theirs["nodes"]}
    for name, (of_node, of_device) in theirs["nodes"].items():
        assert of_node.items() <= nodes[name].items()
        assert of_device.items() <= nodes[name]["FaultDeviceList"][0].items()
    assert set(jobs) == {DEMO_JOB, *theirs["jobs"]}
    for job, (times, more) in theirs["jobs"].items():
        ours = {"UUID": DEMO_UID, "Times": 3} if job == DEMO_JOB else {"UUID": "u", "Times": times}
        assert jobs[job] == ours | more
    for seen in (shown, NodesShown()):  # also when it has to be read again
        again = render_vcjob(book, frozenset(), ConfigMap(live.namespace, live.name, after), seen)
        assert {**after, **(again.data or {})} == after


# --- how much room there is


def full(book: ClusterBook, count: int, devices: int = 16) -> None:
    faults = tuple(DeviceFault(at, Plane.CHIP, SEPARATE, "SeparateNPU", False) for at in range(devices))
    entry = fault_node(NodeFaults(NodeName("one"), faults))
    assert entry is not None
    for number in range(count):
        node = NodeName(f"worker-{number:05}")
        book.entries[node] = replace(entry, node=node)
        book.judged.add(node)


def test_ten_thousand_nodes_of_sixteen_faulty_devices_are_all_named_beside_the_retries() -> None:
    book = a_book()
    full(book, 10_000)
    rendered = render_vcjob(book, frozenset(), None, NodesShown())
    assert rendered.data is not None
    nodes = json.loads(rendered.data["fault-node"])
    assert [(one["NodeName"], one["NodeHealthState"]) for one in nodes] == [
        (f"worker-{number:05}", "CardUnhealthy") for number in range(10_000)
    ]
    assert sum(len(text.encode()) for text in rendered.data.values()) <= 1_000_000
    assert operator_decides(rendered.data, DEMO_JOB) == RESTARTING
    cut = r"160000 device elements left out to fit; of (\d+) nodes name and state alone; retries: "
    found = re.search(cut, rendered.detail)
    assert found is not None
    assert int(found[1]) == sum("UpdateTime" not in one for one in nodes)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1_000_000), st.integers(0, 400), st.integers(0, 16), st.booleans())
def test_all_keys_together_stay_within_the_budget(foreign: int, nodes: int, devices: int, binary: bool) -> None:
    book = a_book()
    full(book, nodes, max(devices, 1))
    theirs = {"theirs": "x" * foreign}
    live = ConfigMap("volcano-system", "vcjob-fault-npu-cm", {} if binary else theirs)
    live = replace(live, extra={"binaryData": theirs} if binary else {})
    rendered = render_vcjob(book, frozenset(), live, NodesShown())
    assert rendered.data is not None
    assert operator_decides(rendered.data, DEMO_JOB) == RESTARTING
    ours = sum(len(text.encode()) for text in rendered.data.values())
    retries = len(rendered.data["remain-retry-times"].encode())
    # Beside a foreign key that fills the room the retries still stand, for without them the operator fails the job.
    assert foreign + ours <= max(1_000_000, foreign + retries + len("[]"))


def test_jobs_without_retries_go_first_when_the_retries_alone_are_too_long() -> None:
    book = a_book()
    others = {f"ns/job-{number:05}": {"UUID": "u" * 36, "Times": number % 2} for number in range(15_000)}
    live = ConfigMap("volcano-system", "vcjob-fault-npu-cm", {"remain-retry-times": json.dumps(others)})
    rendered = render_vcjob(book, frozenset(), live, NodesShown())
    assert rendered.data is not None
    left = json.loads(rendered.data["remain-retry-times"])
    assert len(left) == 7501
    assert {one["Times"] for one in left.values()} == {1, 3}
    assert "7500 jobs without retries left out of remain-retry-times to fit" in rendered.detail


def test_retries_are_measured_in_bytes() -> None:
    book = a_book()
    word = "é" * 300_000  # 600,000 bytes of a key that nobody here knows, twice
    others = {f"ns/{name}": {"UUID": "u", "Times": 0, "note": word} for name in ("a", "b")}
    live = ConfigMap("volcano-system", "vcjob-fault-npu-cm", {"remain-retry-times": json.dumps(others)})
    rendered = render_vcjob(book, frozenset(), live, NodesShown())
    assert rendered.data is not None
    assert "2 jobs without retries left out of remain-retry-times to fit" in rendered.detail
    assert sum(len(text.encode()) for text in rendered.data.values()) <= 1_000_000


def test_what_has_no_room_moves_no_time_after_a_restart() -> None:
    book, shown = a_book(), NodesShown()
    full(book, 1000)
    book.entries = {node: _at(entry, 100) for node, entry in book.entries.items()}
    first = render_vcjob(book, frozenset(), None, shown)
    assert first.data is not None
    assert "left out to fit" in first.detail
    live = ConfigMap("volcano-system", "vcjob-fault-npu-cm", dict(first.data))
    # The next coordinator finds less in the document than it knows, and takes that for a change of each node.
    book.entries = {node: _at(entry, 900) for node, entry in book.entries.items()}
    assert render_vcjob(book, frozenset(), live, NodesShown()).data == first.data
    book.entries[NodeName("worker-00001")] = _at(book.entries[NodeName("worker-00001")], 901, health="NodeUnhealthy")
    later = render_vcjob(book, frozenset(), live, NodesShown()).data
    assert later is not None
    moved = [one["NodeName"] for one in json.loads(later["fault-node"]) if one["UpdateTime"] != 100]
    assert moved == ["worker-00001"]


def _at(entry: FaultNodeEntry, second: int, **changes: Any) -> FaultNodeEntry:
    return replace(entry, update_time=second, **changes)
