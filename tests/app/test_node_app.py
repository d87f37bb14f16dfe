"""The node side: poison costs one record, refusals become letters, and nothing grows with what has passed."""

import json
from collections.abc import Mapping
from dataclasses import fields, replace

from rig import POLICY, T0, Rig

from agent.adapters.otel import SilentTracer
from agent.app.node_app import NodeSide, Taken, encode_reports, letter_of
from agent.domain.events import Position, Rating, Record, Refusal
from agent.domain.policy import Policy
from agent.domain.vocab import DeadReason, Millis, NodeName, Plane, Reason
from agent.wire.inbound import Limits

LINK = "81078603"
POISON = "80E24E00"


def side(policy: Policy = POLICY) -> NodeSide:
    return NodeSide(policy, "solo", "test", Limits(max_clock_skew=Millis(300_000)), Millis(900_000), SilentTracer())


def records(rig: Rig) -> list[Record]:
    return [item for item in rig.source._items if isinstance(item, Record)]


def take(made: NodeSide, rig: Rig, taken: Taken | None = None) -> Taken:
    got = taken or Taken()
    for record in records(rig):
        made.take(record, record.timestamp, got)
    return got


def letter(record: Record) -> Mapping[str, bytes]:
    return dict(record.headers)


class Planted(Policy):
    """The shipped policy with a defect: rating one code fails."""

    __slots__ = ()

    def rate(self, plane: Plane, code: str, severity: int | None) -> Rating:
        if code == POISON:
            raise ZeroDivisionError("planted")
        return super().rate(plane, code, severity)


def planted() -> Policy:
    given = {one.name: getattr(POLICY, one.name) for one in fields(POLICY) if one.init}
    return Planted(**given)


async def test_a_record_whose_deciding_fails_is_dead_lettered_and_the_rest_goes_on() -> None:
    rig = Rig(policy=planted())
    rig.fault("80E18402", 0, device=0)
    rig.fault(POISON, 1, device=1)
    rig.fault("80E18402", 2, device=3)
    await rig.run()
    (dead,) = await rig.letters()
    assert dead["headers"]["fault-agent-reason"] == DeadReason.INTERNAL
    assert dead["headers"]["fault-agent-detail"] == "ZeroDivisionError: planted"
    assert dead["headers"]["fault-agent-source"] == "0:0:1"
    assert dead["value"] == (records(rig)[1].value or b"").decode()
    shown = [one.fault for one in rig.decisions if one.reason is Reason.FAULT_SHOWN]
    assert shown == [f"n1/chip/0/80E18402@{T0}", f"n1/chip/3/80E18402@{T0 + 2000}"]


def test_the_books_stand_as_before_a_record_that_failed() -> None:
    made, rig = side(planted()), Rig()
    rig.fault("80E18402")
    take(made, rig)
    before = made.reports()[NodeName("n1")]

    second = Rig(_number=5)
    second.source.add(b"n1", None)
    second.fault(POISON, 1)
    take(made, second)
    made.all_dirty()
    after = made.reports()[NodeName("n1")]
    assert (after.active, after.occurrences, after.ids) == (before.active, before.occurrences, before.ids)
    assert after.scanned[0].offset == 2


def test_a_repeated_message_and_a_record_read_again_change_nothing() -> None:
    made, rig = side(), Rig()
    rig.fault("80E18402")
    take(made, rig)
    first = made.reports()
    again = Taken()
    take(made, rig, again)
    assert (again.decisions, again.letters) == ([], [])
    repeated = Record(Position(0, 0, 9), b"n1", records(rig)[0].value, timestamp=Millis(T0))
    made.take(repeated, Millis(T0), again)
    assert [one.reason for one in again.decisions] == [Reason.DUPLICATE_MESSAGE]
    assert made.reports()[NodeName("n1")].active == first[NodeName("n1")].active


def test_only_nodes_that_changed_are_reported_each_with_its_next_number() -> None:
    made = side()
    for node in ("n1", "n2"):
        rig = Rig()
        rig.fault("80E18402", node=node)
        take(made, rig)
    assert {node: (one.epoch, one.seq) for node, one in made.reports().items()} == {"n1": (1, 1), "n2": (1, 1)}
    assert made.reports() == {}
    rig = Rig(_number=4)
    rig.source.add(b"n2", None)
    rig.clear("80E18402", 1, node="n2")
    take(made, rig)
    assert {node: one.seq for node, one in made.reports().items()} == {"n2": 2}


def test_a_restored_node_goes_on_with_the_next_epoch_and_its_deadlines() -> None:
    made, rig = side(), Rig()
    rig.fault(LINK, device=0)
    take(made, rig)
    report = made.reports()[NodeName("n1")]
    later = side()
    later.restore(report)
    assert later.next_deadline() == made.next_deadline() == T0 + 20_001
    taken = Taken()
    later.tick(Millis(T0 + 20_001), taken)
    assert [one.reason for one in taken.decisions] == [Reason.FAULT_SHOWN]
    assert (later.reports()[NodeName("n1")].epoch, later.next_deadline()) == (2, None)


def test_deadlines_that_are_replaced_for_ever_do_not_pile_up() -> None:
    made = side()
    taken = Taken()
    rig = Rig()
    for number in range(1000):
        rig.fault(LINK, number, device=0)
        rig.clear(LINK, number + 0.5, device=0)
    sizes = []
    for record in records(rig):
        made.take(record, record.timestamp, taken)
        made.tick(record.timestamp, taken)
        sizes.append(len(made._due))
    assert max(sizes[1000:]) <= max(sizes[:1000])
    assert max(sizes) < 100


def test_a_probe_of_a_device_is_a_fact_until_a_newer_one_and_never_an_older() -> None:
    made, taken = side(), Taken()
    node = NodeName("n1")
    made.probe(node, {0: "up", 1: "down"}, Millis(T0), taken)
    made.probe(node, {0: "down", 1: "gone"}, Millis(T0 - 5), taken)
    links = made.reports()[node].links
    assert {device: (link.state, link.at) for device, link in links.items()} == {0: ("up", T0), 1: ("down", T0)}
    made.probe(node, {0: "down", 1: "gone"}, Millis(T0 + 5), taken)
    assert {device: link.state for device, link in made.reports()[node].links.items()} == {0: "down"}


def test_a_letter_keeps_key_value_and_headers_and_says_why() -> None:
    record = Record(Position(2, 1, 7), b"n1", b"x", (("a", b"1"),), Millis(5))
    made = letter_of(record, Refusal(DeadReason.NOT_JSON, "why ö", b"x"))
    assert (made.key, made.value, made.timestamp, made.position) == (b"n1", b"x", 5, record.position)
    assert made.headers == (
        ("a", b"1"),
        ("fault-agent-reason", b"NOT_JSON"),
        ("fault-agent-detail", "why ö".encode()),
        ("fault-agent-source", b"2:1:7"),
    )
    part = letter_of(record, Refusal(DeadReason.CODE_INVALID, "", b"y", (0, 3)))
    assert (part.value, letter(part)["fault-agent-source"]) == (b"y", b"2:1:7[0,3]")


def test_reports_travel_within_their_limit() -> None:
    made, rig = side(), Rig()
    for device in range(64):
        for code in range(0x1000, 0x1040):
            rig.fault(f"8{code:X}000", device / 100, device=device, location={"severity": 1})
    take(made, rig)
    (data,) = encode_reports(made.reports()).values()
    assert len(data) <= 262_144


def milder() -> Policy:
    """The shipped policy, but SeparateNPU of 80E18402 is RestartNPU."""
    chip = {
        number: replace(row, level="RestartNPU") if number == 0x80E18402 else row for number, row in POLICY.chip.items()
    }
    return replace(POLICY, chip=chip)


async def test_a_new_policy_rates_every_node_at_once_and_says_both_hashes() -> None:
    rig = Rig()
    rig.fault("80E18402", 0, device=0)
    rig.fault("80E18402", 1, device=1, node="n2")
    made, taken = side(), Taken()
    take(made, rig)
    made.reports()
    made.use(milder())
    made.tick(Millis(T0 + 5_000), taken)
    assert [(one.reason, one.level) for one in taken.decisions] == [(Reason.FAULT_SHOWN, "RestartNPU")] * 2
    assert {one.detail for one in taken.decisions} == {
        f"policy {POLICY.digest[:12]} to {milder().digest[:12]}: RestartNPU by chip-table"
    }
    assert {report.policy for report in made.reports().values()} == {milder().digest}
    again = Taken()
    made.use(milder())
    made.tick(Millis(T0 + 6_000), again)
    assert again.decisions == []


async def test_what_an_earlier_run_rated_by_another_policy_is_rated_anew_without_a_record() -> None:
    rig = Rig()
    rig.fault("80E18402", 0, device=0)
    made, taken = side(), Taken()
    take(made, rig)
    after = side(milder())
    after.restore(made.reports()[NodeName("n1")])
    assert after.next_deadline() == T0
    after.tick(Millis(T0 + 1), taken)
    assert [one.level for one in taken.decisions] == ["RestartNPU"]
    assert after.next_deadline() is None


async def test_what_a_sender_tells_of_ports_gives_the_precise_code() -> None:
    value = {
        "id": "n1-000001",
        "timestamp": T0,
        "version": "1.0",
        "resource": "dcmi",
        "faults": [
            {
                "faultId": "n1-000001",
                "faultType": "NPU",
                "faultCode": "81078607",
                "faultTime": T0,
                "assertion": "occur",
                "faultLocation": {"portsDown": "2"},
                "influence": [{"nodeName": "n1", "deviceIds": [3]}],
            }
        ],
    }
    made, taken = side(), Taken()
    made.take(Record(Position(0, 0, 0), b"n1", json.dumps(value).encode()), Millis(T0), taken)
    (report,) = made.reports().values()
    assert [(fault.key.code, fault.level) for fault in report.active] == [
        ("81078607", "NotHandleFault"),
        ("110001024", "PreSeparateNPU"),
    ]
    assert [one.fault for one in taken.decisions] == [f"n1/network/3/81078607@{T0}", f"n1/network/3/110001024@{T0}"]
