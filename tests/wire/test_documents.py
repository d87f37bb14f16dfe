"""The bytes of the shared documents, from cases worked by hand."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.faultnodes import FaultDevice, FaultNodeEntry
from agent.domain.reschedule import JobRecords, RescheduleRecord, RetryTimes, TaskReason
from agent.domain.reset import (
    Phase,
    Policy,
    RankEntry,
    Recovery,
    ResetDevice,
    ResetInfo,
    ResetLimits,
    Signal,
    merge,
    recorded,
    start,
    step,
)
from agent.domain.vocab import Millis, NodeName
from agent.errors import BadDocument
from agent.wire.documents import (
    decode_fault_nodes,
    decode_reschedule,
    decode_retry_times,
    encode_fault_nodes,
    encode_reschedule,
    encode_retry_times,
)
from agent.wire.resetfile import decode_reset, encode_reset, reset_data

T0 = Millis(1767225600000)

FAULT_NODE = (
    '[{"FaultDeviceList":[{"fault_type":"CardUnhealthy","npu_name":"Ascend910-2","fault_level":"SeparateNPU",'
    '"fault_handling":"SeparateNPU","large_model_fault_level":"SeparateNPU","fault_code":"80E18402"}],"NodeName":"n1",'
    '"UnhealthyNPU":["Ascend910-2"],"NetworkUnhealthyNPU":null,"NodeDEnable":false,"NodeHealthState":"CardUnhealthy",'
    '"UpdateTime":1767225600}]'
)
ENTRY = FaultNodeEntry(
    node=NodeName("n1"),
    health="CardUnhealthy",
    devices=(FaultDevice("CardUnhealthy", "Ascend910-2", "SeparateNPU", "80E18402"),),
    unhealthy=("Ascend910-2",),
    update_time=1767225600,
)


def test_fault_node_of_the_worked_case() -> None:
    assert encode_fault_nodes([ENTRY]) == FAULT_NODE
    assert decode_fault_nodes(FAULT_NODE) == (ENTRY,)


def test_a_node_of_another_writer_comes_out_as_it_was_read() -> None:
    text = (
        '[{"FaultDeviceList":[{"fault_type":"CardUnhealthy","npu_name":"Ascend910-2","fault_level":"SeparateNPU",'
        '"fault_handling":"RestartNPU","large_model_fault_level":null,"fault_code":"80E18402","rack":{"a":[1]}}],'
        '"NodeName":"n7","UnhealthyNPU":null,"NetworkUnhealthyNPU":null,"NodeDEnable":true,'
        '"NodeHealthState":"CardUnhealthy","UpdateTime":5,"zone":12345678901234567890,"note":null}]'
    )
    assert encode_fault_nodes(decode_fault_nodes(text)) == text


def test_fault_node_is_empty_text_for_none_and_sorted_by_node() -> None:
    assert encode_fault_nodes([]) == ""
    assert decode_fault_nodes("") == ()
    ordered = decode_fault_nodes(encode_fault_nodes([FaultNodeEntry(NodeName(n), "NodeUnhealthy") for n in "cab"]))
    assert [entry.node for entry in ordered] == ["a", "b", "c"]


@pytest.mark.parametrize("where", ["node", "device"])
def test_an_element_of_another_writer_is_written_as_it_was_also_after_one_that_is_equal(where: str) -> None:
    plain = FaultNodeEntry(NodeName("n1"), "NodeUnhealthy", (FaultDevice("CardUnhealthy", "Ascend910-0", "L1", "1"),))
    texts = []
    for value in (1, True, 1.0):
        device = replace(plain.devices[0], extra={"foreign": value}) if plain.devices and where == "device" else None
        entry = replace(plain, devices=(device,)) if device else replace(plain, extra={"foreign": value})
        texts.append(encode_fault_nodes([entry]))
    assert [re.findall(r'"foreign":([^,}]+)', text) for text in texts] == [["1"], ["true"], ["1.0"]]


def test_a_node_without_card_faults_has_an_empty_device_list() -> None:
    text = encode_fault_nodes([FaultNodeEntry(NodeName("n1"), "NodeUnhealthy", update_time=5)])
    assert text == (
        '[{"FaultDeviceList":[],"NodeName":"n1","UnhealthyNPU":null,"NetworkUnhealthyNPU":null,"NodeDEnable":false,'
        '"NodeHealthState":"NodeUnhealthy","UpdateTime":5}]'
    )


RETRY = '{"train/demo-1":{"UUID":"1","Times":3}}'


def test_remain_retry_times_of_the_worked_case() -> None:
    assert encode_retry_times({"train/demo-1": RetryTimes("1", 3)}) == RETRY
    assert decode_retry_times(RETRY) == ({"train/demo-1": RetryTimes("1", 3)}, ())


def test_remain_retry_times_is_valid_json_even_with_no_job() -> None:
    assert encode_retry_times({}) == "{}"
    assert decode_retry_times("") == ({}, ())


def test_remain_retry_times_lets_null_entries_go_and_keeps_unknown_keys() -> None:
    left, wrong = decode_retry_times('{"b":{"uuid":"u","Times":1,"new":[1]},"a":null}')
    assert [error.place for error in wrong] == ["/a"]
    assert encode_retry_times(left) == '{"b":{"UUID":"u","Times":1,"new":[1]}}'


@pytest.mark.parametrize(
    ("entry", "place"),
    [
        ('"ns/a":{"Times":"3"}', "/ns~1a/Times"),
        ('"ns/a":{"Times":1.0}', "/ns~1a/Times"),
        ('"ns/a":[]', "/ns~1a"),
        ('"a":{"UUID":1}', "/a/UUID"),
        ('"a":null', "/a"),
    ],
)
def test_an_entry_that_go_refuses_names_its_place_and_costs_no_other(entry: str, place: str) -> None:
    left, wrong = decode_retry_times(f'{{{entry},"ns/b":{{"UUID":"u","Times":9007199254740993}}}}')
    assert left == {"ns/b": RetryTimes("u", 9007199254740993)}
    assert [error.place for error in wrong] == [place]


@pytest.mark.parametrize("text", ["[]", "{", "null", "7"])
def test_retry_times_that_are_no_object_are_refused(text: str) -> None:
    with pytest.raises(BadDocument):
        decode_retry_times(text)


RECORDS = (
    '{"default/train-1-u":{"JobID":"default/train-1-u","TotalRescheduleTimes":1,"RescheduleRecords":'
    '[{"LogFileFormatTime":"I0908 11:36:10","RescheduleTimeStamp":1757302570,"ReasonOfTask":'
    '[{"RescheduleReason":"pod-failed","PodName":"train-1-worker-0","NodeName":"node2","NodeRankIndex":"1"}]}]}}'
)
RECORDED = JobRecords(
    "default/train-1-u",
    1,
    (RescheduleRecord("I0908 11:36:10", 1757302570, (TaskReason("pod-failed", "train-1-worker-0", "node2", "1"),)),),
)


def test_reschedule_records_as_volcano_writes_them() -> None:
    assert encode_reschedule({"default/train-1-u": RECORDED}) == RECORDS
    assert decode_reschedule(RECORDS) == {"default/train-1-u": RECORDED}
    assert (encode_reschedule({}), decode_reschedule("")) == ("", {})


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            '{"a":{"JobID":"a","TotalRescheduleTimes":2,"RescheduleRecords":null,"New":[null]}}', id="a null list"
        ),
        pytest.param(
            '{"a":{"JobID":"a","TotalRescheduleTimes":1,"RescheduleRecords":[{"LogFileFormatTime":"x",'
            '"RescheduleTimeStamp":5,"ReasonOfTask":null,"Cause":{"b":1}}],"AdditionalInfo":"i","New":{}}}',
            id="a record without tasks",
        ),
        pytest.param(
            '{"a":{"JobID":"a","TotalRescheduleTimes":1,"RescheduleRecords":[{"LogFileFormatTime":"x",'
            '"RescheduleTimeStamp":5,"ReasonOfTask":[{"RescheduleReason":"pod-failed","PodName":"p","NodeName":"n",'
            '"NodeRankIndex":"0","exit":1.5}]}]}}',
            id="a task with more",
        ),
    ],
)
def test_records_of_another_writer_come_out_as_they_were_read(text: str) -> None:
    assert encode_reschedule(decode_reschedule(text)) == text


def test_additional_info_comes_last_and_only_when_there_is_some() -> None:
    text = encode_reschedule({"a": JobRecords("a", 2, (), "3 older jobs dropped")})
    assert text == (
        '{"a":{"JobID":"a","TotalRescheduleTimes":2,"RescheduleRecords":[],"AdditionalInfo":"3 older jobs dropped"}}'
    )


def test_a_time_stamp_as_text_breaks_the_document_by_name() -> None:
    with pytest.raises(BadDocument) as caught:
        decode_reschedule('{"a":{"RescheduleRecords":[{"RescheduleTimeStamp":"1"}]}}')
    assert caught.value.place == "/a/RescheduleRecords/0/RescheduleTimeStamp"


def entry(rank: int, status: str, policy: str, codes: str = "[]", spelled: str = "") -> str:
    return (
        f'{{"RankId":{rank},"LogicId":{rank},"Status":"{status}","Policy":"{policy}","InitialPolicy":"restart_request",'
        f'"ErrorCode":{codes},"ErrorCodeHex":"{spelled}","RecoveryId":1}}'
    )


def reset(entries: str, update: int, retry: int) -> str:
    return (
        f'{{"RankList":[{entries}],"UpdateTime":{update},"RetryTime":{retry},"FaultFlushing":false,"GracefulExit":0,'
        '"RestartFaultProcess":false}'
    )


def listed(status: str, policy: str) -> str:
    faulty = entry(2, status, policy, "[2160689152]", "80C98000")
    return ",".join([entry(0, status, policy), entry(1, status, policy), faulty, entry(3, status, policy)])


def demo() -> Recovery:
    devices = [ResetDevice(i, i, NodeName("n1"), i, ("80C98000",) if i == 2 else ()) for i in range(4)]
    made = start(1, Policy.RESTART_REQUEST, devices, NodeName("n1"), T0, ResetLimits())
    assert isinstance(made, Recovery)
    return made


def moved(recovery: Recovery, signal: Signal, seconds: int) -> Recovery:
    made = step(recovery, signal, Millis(T0 + seconds * 1000), ResetLimits())
    assert made is not None
    return made.recovery


def test_reset_json_of_the_worked_case_that_recovers() -> None:
    recovery = demo()
    first = merge(decode_reset('{"status":"initializing"}'), recovery, T0)
    text = encode_reset(first.info)
    assert text == reset(listed("unrecovered", "restart_request"), 1767225600, 0)
    recovery = moved(recorded(recovery, first), Signal.CODES_GONE, 20)
    second = merge(decode_reset(text), recovery, Millis(T0 + 20_000))
    text = encode_reset(second.info)
    assert text == reset(listed("recovered", "restart_request"), 1767225620, 1)
    recovery = moved(recorded(recovery, second), Signal.DEADLINE, 110)
    assert encode_reset(merge(decode_reset(text), recovery, Millis(T0 + 110_000)).info) == reset("", 1767225710, 1)


def test_reset_json_of_the_worked_case_that_fails() -> None:
    recovery = demo()
    first = merge(decode_reset('{"status":"initializing"}'), recovery, T0)
    recovery = moved(recorded(recovery, first), Signal.DEADLINE, 30)
    second = merge(first.info, recovery, Millis(T0 + 30_000))
    assert encode_reset(second.info) == reset(listed("failed", "isolate"), 1767225630, 0)
    recovery = moved(recorded(recovery, second), Signal.DEADLINE, 150)
    assert recovery.phase is Phase.LEAVING
    assert encode_reset(merge(second.info, recovery, Millis(T0 + 150_000)).info) == reset("", 1767225750, 1)


def test_the_config_map_gets_its_checksum_and_keeps_what_is_not_ours() -> None:
    live = {"reset.json": "x", "checkCode": "", "mine": "1", "restartType": "podReschedule"}
    info = ResetInfo(rank_list=())
    assert reset_data(info, None, live) == {
        "reset.json": (
            '{"RankList":[],"UpdateTime":0,"RetryTime":0,"FaultFlushing":false,"GracefulExit":0,'
            '"RestartFaultProcess":false}'
        ),
        "checkCode": "2e3fdb96df01322d394485be117076da0914f97a9b3cc2abb9ceb13bcbf96e5f",
        "mine": "1",
        "restartType": "podReschedule",
    }
    assert reset_data(info, "hotReset", {})["restartType"] == "hotReset"


def test_unknown_keys_null_lists_and_a_missing_status_survive() -> None:
    text = (
        '{"RankList":[{"RankId":1,"LogicId":0,"Policy":"","InitialPolicy":"","ErrorCode":null,"ErrorCodeHex":"",'
        '"RecoveryId":"other","New":{"a":[]}}],"UpdateTime":1,"RetryTime":2,"FaultFlushing":true,"GracefulExit":1,'
        '"RestartFaultProcess":true,"More":null}'
    )
    info = decode_reset(text)
    assert (info.rank_list or ())[0].recovery_id is None
    assert encode_reset(info) == text
    assert encode_reset(decode_reset("{}")).startswith('{"RankList":null,')


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"RetryTime":"3"}', "/RetryTime"),
        ('{"RetryTime":1.0}', "/RetryTime"),
        ('{"RankList":{}}', "/RankList"),
        ('{"RankList":[null]}', "/RankList/0"),
        ('{"RankList":[{},{"Status":1}]}', "/RankList/1/Status"),
        ('{"RankList":[{"LogicId":2147483648}]}', "/RankList/0/LogicId"),
        ('{"RankList":[{"ErrorCode":[1,"2"]}]}', "/RankList/0/ErrorCode/1"),
        ('{"FaultFlushing":0}', "/FaultFlushing"),
        ("[]", "/"),
        ('{"RankList":[', "line 1 column 14"),
        (f'{{"RankList":[{"{}," * 25_000}{{}}]}}', "/RankList"),
    ],
)
def test_a_reset_json_that_go_refuses_names_its_place(text: str, place: str) -> None:
    with pytest.raises(BadDocument) as caught:
        decode_reset(text)
    assert caught.value.place == place


INTS = st.integers(-(2**31), 2**31 - 1)
KEYS = st.text(min_size=1, max_size=5).map(lambda key: "x" + key)
ENTRIES = st.builds(
    RankEntry,
    rank_id=INTS,
    logic_id=INTS,
    status=st.none() | st.text(max_size=5),
    policy=st.text(max_size=5),
    initial_policy=st.text(max_size=5),
    error_code=st.none() | st.lists(st.integers(0, 2**40), max_size=3).map(tuple),
    error_code_hex=st.text(max_size=5),
    recovery_id=st.none() | st.integers(1, 2**40),
    raw=st.dictionaries(KEYS, st.integers(), max_size=2),
)


@given(
    st.builds(
        ResetInfo,
        rank_list=st.none() | st.lists(ENTRIES, max_size=3).map(tuple),
        update_time=INTS,
        retry_time=INTS,
        fault_flushing=st.booleans(),
        graceful_exit=INTS,
        restart_fault_process=st.booleans(),
        extra=st.dictionaries(KEYS, st.text(), max_size=2),
    )
)
def test_reset_json_reads_back_what_it_wrote(info: ResetInfo) -> None:
    assert decode_reset(encode_reset(info)) == info


# --- every value comes back as it was, and every text of another writer in Go's dialect as it was read

WORDS = st.text(st.sampled_from('ab/<&>节🙂\u2028\u2029"\\\n\x01'), max_size=5)
BIG = st.integers(-(2**63), 2**63 - 1)
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**90), 2**90) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
EXTRA = st.dictionaries(WORDS.map(lambda word: f"x{word}"), JSONS, max_size=2)
NAMES = st.none() | st.lists(WORDS, max_size=3).map(tuple)
DEVICES = st.builds(
    FaultDevice,
    fault_type=WORDS,
    npu_name=WORDS,
    level=WORDS,
    fault_code=WORDS,
    differing=st.just({}) | st.just({"fault_handling": "other", "large_model_fault_level": None}),
    extra=EXTRA,
)
NODES = st.builds(
    FaultNodeEntry,
    node=WORDS.map(NodeName),
    health=WORDS,
    devices=st.none() | st.lists(DEVICES, max_size=2).map(tuple),
    unhealthy=NAMES,
    network_unhealthy=NAMES,
    node_d_enabled=st.booleans(),
    update_time=BIG,
    extra=EXTRA,
) | st.builds(
    FaultNodeEntry, node=WORDS.map(NodeName), health=WORDS, devices=st.none(), bare=st.just(True), extra=EXTRA
)
TASKS = st.builds(TaskReason, reason=WORDS, pod=WORDS, node=WORDS, rank_index=WORDS, extra=EXTRA)
RESTARTS = st.builds(
    RescheduleRecord, log_time=WORDS, timestamp=BIG, tasks=st.lists(TASKS, max_size=2).map(tuple), extra=EXTRA
)


def with_extras(value: FaultNodeEntry | RescheduleRecord | JobRecords) -> object:
    """The value with all that equality leaves aside."""
    if isinstance(value, FaultNodeEntry):
        return value, value.extra, [(one.extra, one.differing) for one in value.devices or ()]
    if isinstance(value, JobRecords):
        return value, [with_extras(record) for record in value.records]
    return value, value.extra, [task.extra for task in value.tasks]


@given(st.lists(NODES, max_size=3, unique_by=lambda entry: entry.node))
def test_fault_nodes_read_back_as_they_were_written(entries: list[FaultNodeEntry]) -> None:
    text = encode_fault_nodes(entries)
    back = decode_fault_nodes(text)
    ordered = sorted(entries, key=lambda entry: entry.node)
    assert [with_extras(entry) for entry in back] == [with_extras(entry) for entry in ordered]
    assert encode_fault_nodes(back) == text
    assert not set("<>&\u2028\u2029") & set(text)


@given(st.dictionaries(WORDS, st.builds(RetryTimes, uid=WORDS, times=BIG, extra=EXTRA), max_size=3))
def test_retry_times_read_back_as_they_were_written(left: dict[str, RetryTimes]) -> None:
    text = encode_retry_times(left)
    assert decode_retry_times(text) == (left, ())
    assert encode_retry_times(decode_retry_times(text)[0]) == text


@given(st.dictionaries(WORDS, st.tuples(BIG, st.lists(RESTARTS, max_size=2).map(tuple), WORDS, EXTRA), max_size=3))
def test_records_read_back_as_they_were_written(
    made: dict[str, tuple[int, tuple[RescheduleRecord, ...], str, Any]],
) -> None:
    jobs = {job: JobRecords(job, total, records, info, extra) for job, (total, records, info, extra) in made.items()}
    text = encode_reschedule(jobs)
    back = decode_reschedule(text)
    assert {job: with_extras(one) for job, one in back.items()} == {job: with_extras(one) for job, one in jobs.items()}
    assert encode_reschedule(back) == text


MANY = [
    pytest.param("[" + ",".join(["{}"] * 340_000) + "]", "holds 340000 objects", id="as nodes"),
    pytest.param(
        "[" + ",".join(['{"FaultDeviceList":[' + ",".join(["{}"] * 20) + "]}"] * 12_000) + "]",
        "holds 252000 objects",
        id="as devices of many nodes",
    ),
    pytest.param("[" + ",".join(["1"] * 500_000) + "]", "has 500000 elements", id="as numbers"),
    pytest.param('[{"x":[' + ",".join(["{}"] * 340_000) + "]}]", "holds 340001 objects", id="in a key of others"),
]


@pytest.mark.parametrize(("text", "said"), MANY)
def test_a_fault_node_of_more_than_anybody_writes_is_not_read(text: str, said: str) -> None:
    with pytest.raises(BadDocument, match=f"{said}, at most 25000 are read"):
        decode_fault_nodes(text)


def test_records_of_more_than_anybody_writes_are_not_read() -> None:
    job = '{"RescheduleRecords":[{"ReasonOfTask":[' + ",".join(["{}"] * 20) + "]}]}"
    text = "{" + ",".join(f'"{number}":{job}' for number in range(8000)) + "}"
    with pytest.raises(BadDocument, match="holds 176001 objects, at most 25000 are read"):
        decode_reschedule(text)


def test_the_most_that_fits_into_a_config_map_is_read() -> None:
    bare = '{"NodeName":"n%05d","NodeHealthState":"NodeUnhealthy"}'
    text = "[" + ",".join(bare % number for number in range(17_800)) + "]"
    assert len(text) == 996_801
    assert len(decode_fault_nodes(text)) == 17_800
