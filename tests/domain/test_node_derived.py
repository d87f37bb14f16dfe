"""Faults that follow from others: A5 ports (fault_code.go:1660, 1752) and L2 ports of a switch (device.go:171-225)."""

from dataclasses import replace

import pytest
from nodestream import NODE, S, Stream, T, entries, levels, outcomes, told
from tinypolicy import TinyPolicy

from agent.domain.events import Decoded, FaultEvent, FaultKey, Position
from agent.domain.node import NodeBook, Outcome, Relevelled, Shown
from agent.domain.vocab import Assertion, Millis, OccurrenceId, Plane, Reason, Source

PORT = "81078607"
ONE, TWO = "110000002", "110001024"
HYPER, SOME, ALL = "81B18603", "020001002", "020000002"
L2 = "[0x08520003,na,L2,na]"


class A5(Stream):
    """A stream with the codes of A5 in its policy, and with what only some events tell."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = TinyPolicy(
            levels={
                PORT: "NotHandleFault",
                ONE: "SubHealthFault",
                TWO: "PreSeparateNPU",
                HYPER: "NotHandleFault",
                SOME: "SeparateNPU",
                ALL: "SubHealthFault",
                L2: "SubHealthFault",
                "[0x08520003,na,cpu,na]": "SubHealthFault",
            }
        )

    def tell(
        self, code: str, word: str, at: int, where: str = "4", *, ports: int | None = None, chips: int | None = None
    ) -> tuple[Outcome, ...]:
        plane = Plane.NETWORK if code == PORT else Plane.SWITCH if code.startswith("[") else Plane.CHIP
        source = Source.LINGQU if plane is Plane.SWITCH else Source.DCMI
        event = FaultEvent(
            FaultKey(NODE, plane, where, code),
            Assertion(word),
            Millis(at),
            OccurrenceId(f"0:0:{self.offset}:0"),
            source,
            source.value,
            devices=(int(where),) if where.isdecimal() else (),
            ports_down=ports,
            chips=chips,
        )
        self.offset += 1
        return outcomes(self.take(Decoded(Position(0, 0, self.offset), NODE, f"m-{self.offset}", (event,)), at))


def codes(stream: Stream) -> set[tuple[str, str]]:
    return {(fault.key.where, fault.key.code) for fault in stream.report().active}


# -- A5, parameter plane -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ports", "also", "level", "why"),
    [
        (1, ONE, "SubHealthFault", "81078607 with 1 port down"),
        (2, TWO, "PreSeparateNPU", "81078607 with 2 ports down"),
        (3, TWO, "PreSeparateNPU", "81078607 with 3 ports down"),
    ],
)
def test_ports_down_are_a_fault_of_their_own_by_their_number(ports: int, also: str, level: str, why: str) -> None:
    stream = A5()
    given = stream.tell(PORT, "occur", T, ports=ports)
    assert told(given) == [(Shown, Reason.FAULT_SHOWN)] * 2
    assert levels(stream) == {f"n1/network/4/{PORT}": "NotHandleFault", f"n1/network/4/{also}": level}
    (added,) = (fault for fault in stream.report().active if fault.key.code == also)
    assert (added.since, added.devices) == (T, (4,))
    assert len({entry[0] for entry in entries(stream)}) == 2
    assert given[1].detail == f"{level} by network-table; {why}"


@pytest.mark.parametrize("ports", [0, None])
def test_without_a_port_down_nothing_follows(ports: int | None) -> None:
    stream = A5()
    stream.tell(PORT, "occur", T, ports=ports)
    assert codes(stream) == {("4", PORT)}


def test_a_second_port_takes_the_place_of_the_first() -> None:
    stream = A5()
    stream.tell(PORT, "occur", T, ports=1)
    stream.tell(PORT, "occur", T + S, ports=2)
    assert codes(stream) == {("4", PORT), ("4", TWO)}
    assert [entry for entry in entries(stream) if entry[2] is not None] == [
        (entries(stream)[1][0], 0, S, "SubHealthFault")
    ]


def test_an_occur_that_tells_no_ports_leaves_what_is_known() -> None:
    stream = A5()
    stream.tell(PORT, "occur", T, ports=1)
    stream.tell(PORT, "occur", T + S)
    assert codes(stream) == {("4", PORT), ("4", ONE)}


@pytest.mark.parametrize(("ports", "left"), [(None, set()), (0, set()), (1, {("4", ONE)}), (2, {("4", TWO)})])
def test_a_recover_removes_the_family_and_leaves_what_is_still_down(
    ports: int | None, left: set[tuple[str, str]]
) -> None:
    stream = A5()
    stream.tell(PORT, "occur", T, ports=2)
    stream.tell(PORT, "recover", T + S, ports=ports)
    assert codes(stream) == left


# -- A5, hyper plane -----------------------------------------------------------------------------------------------


def test_one_chip_without_its_hyper_plane_is_separate_and_all_of_them_are_sub_healthy() -> None:
    stream = A5()
    stream.tell(HYPER, "occur", T, "0", chips=2)
    assert levels(stream)[f"n1/chip/0/{SOME}"] == "SeparateNPU"
    given = stream.tell(HYPER, "occur", T + S, "1", chips=2)
    assert codes(stream) == {("0", HYPER), ("1", HYPER), ("0", ALL), ("1", ALL)}
    assert [one.detail for one in given][1:] == [
        "was SeparateNPU for 1 s; 81B18603 on 2 of 2 NPUs",
        "SubHealthFault by chip-table; 81B18603 on 2 of 2 NPUs",
        "SubHealthFault by chip-table; 81B18603 on 2 of 2 NPUs",
    ]
    stream.tell(HYPER, "recover", T + 2 * S, "0")
    assert codes(stream) == {("1", HYPER), ("1", SOME)}
    assert len({entry[0] for entry in entries(stream)}) == len(entries(stream))
    stream.tell(HYPER, "recover", T + 3 * S, "1")
    assert codes(stream) == set()


def test_on_other_chips_nothing_follows_from_it() -> None:
    stream = A5()
    stream.tell(HYPER, "occur", T, "0")
    assert codes(stream) == {("0", HYPER)}


def test_a_restart_does_not_change_what_follows() -> None:
    stream = A5()
    stream.tell(HYPER, "occur", T, "0", chips=2)
    stream.book = NodeBook.from_report(stream.report())
    stream.tell(HYPER, "occur", T + S, "1", chips=2)
    assert codes(stream) == {("0", HYPER), ("1", HYPER), ("0", ALL), ("1", ALL)}


# -- L2 ports of a switch chip -------------------------------------------------------------------------------------


def test_16_l2_ports_of_one_switch_chip_down_are_separate_and_15_are_not() -> None:
    stream = A5()
    for port in range(15):
        stream.tell(L2, "occur", T + port, f"0.{port}")
    stream.tell(L2, "occur", T + 20, "1.15")
    stream.tell("[0x08520003,na,cpu,na]", "occur", T + 20, "0.15")
    stream.tell(L2, "occur", T + 21, "0.3")  # the same port again
    stream.tell(L2, "once", T + 21, "0.17")  # up again at once
    assert set(levels(stream).values()) == {"SubHealthFault"}
    given = stream.tell(L2, "occur", T + 22, "0.16")
    assert told(given) == [(Shown, Reason.FAULT_SHOWN), *[(Relevelled, Reason.FAULT_SHOWN)] * 15]
    ports = {fault.key.where: fault.level for fault in stream.report().active if fault.key.code == L2}
    assert {where for where, level in ports.items() if level == "SubHealthFault"} == {"1.15"}
    assert {fault.rule for fault in stream.report().active if fault.level == "Separate"} == {"l2-ports:0"}
    assert entries(stream)[-1][3] == "Separate"


def test_with_one_port_up_again_the_others_have_their_own_level_also_after_a_restart() -> None:
    stream = A5()
    for port in range(17):
        stream.tell(L2, "occur", T + port, f"0.{port}")
    stream.book = NodeBook.from_report(stream.report())
    stream.tell(L2, "recover", T + 20, "0.0")
    assert set(levels(stream).values()) == {"Separate"}
    stream.tell(L2, "recover", T + 21, "0.1")
    assert set(levels(stream).values()) == {"SubHealthFault"}
    assert len(levels(stream)) == 15


def test_16_ports_in_one_message_count_too() -> None:
    stream = A5()
    first = stream.event((L2, Plane.SWITCH, Source.LINGQU), "occur", T, "0.0")
    several = tuple(
        replace(first, key=replace(first.key, where=f"0.{port}"), occurrence=OccurrenceId(f"0:0:0:{port}"))
        for port in range(16)
    )
    stream.take(Decoded(Position(0, 0, 0), NODE, "message", several), T)
    assert set(levels(stream).values()) == {"Separate"}


def test_ports_that_are_not_told_are_not_counted() -> None:
    stream = A5()
    for port in range(20):
        stream.tell(L2, "occur", T + port, f"-.{port}")
    stream.tell(L2, "occur", T + 30, "0.-")
    assert set(levels(stream).values()) == {"SubHealthFault"}


def test_a_policy_that_makes_the_code_worse_than_separate_is_not_weakened() -> None:
    stream = A5()
    stream.policy = TinyPolicy(levels={L2: "Separate"})
    for port in range(16):
        stream.tell(L2, "occur", T + port, f"0.{port}")
    assert {fault.rule for fault in stream.report().active} == {"switch-table"}
