"""Codes that no table knows, as the book and its report remember them."""

from nodestream import CHIP, PUBLIC, S, Stream, T
from tinypolicy import TinyCount, TinyPolicy

from agent.domain.events import UnknownCode
from agent.domain.node import NodeBook
from agent.domain.vocab import Plane, Source

ODD = ("8FFFFFFF", Plane.CHIP, Source.DCMI)
NODE_CODE = ("8FFFFFFF", Plane.NODE, Source.IPMI)


def test_each_begin_of_an_unknown_code_is_noted_with_times_and_the_worst_severity() -> None:
    stream = Stream()
    stream.say(ODD, "occur", T, severity=0)
    stream.say(ODD, "occur", T + S, severity=3)  # the same fault again is no new one
    stream.say(ODD, "recover", T + 2 * S)
    stream.say(ODD, "once", T + 3 * S, where="5", severity=2)
    stream.say(CHIP, "once", T + 4 * S)
    stream.say(PUBLIC, "once", T + 4 * S)
    assert stream.report().unknown == (
        UnknownCode(Plane.CHIP, "8FFFFFFF", Source.DCMI, 2, 2, T, T + 3 * S),  # type: ignore[arg-type]
    )
    stream.say(ODD, "once", T - 9 * S, where="6", severity=None)
    (code,) = stream.report().unknown
    assert (code.severity, code.count, code.first) == (None, 3, T - 9 * S)


def test_a_code_of_another_plane_is_another_one() -> None:
    stream = Stream()
    stream.say(ODD, "once", T)
    stream.say(NODE_CODE, "once", T, where="07.1")
    stream.say(ODD, "once", T)
    assert [(one.plane, one.count) for one in stream.report().unknown] == [("node", 1), ("chip", 2)]


def test_a_code_that_a_policy_learns_leaves_the_list_and_a_restart_keeps_the_rest() -> None:
    stream = Stream()
    other = ("8FFFFFF0", Plane.CHIP, Source.DCMI)
    stream.say(ODD, "once", T)
    stream.say(other, "once", T)
    stream.book = NodeBook.from_report(stream.report())
    stream.policy = TinyPolicy(digest="two", levels={"8FFFFFFF": "NotHandleFault"})
    stream.tick(T + S)
    assert [one.code for one in stream.report().unknown] == ["8FFFFFF0"]


def test_a_level_that_a_rule_gives_does_not_make_a_code_known() -> None:
    stream = Stream()
    stream.policy = TinyPolicy(counts={"8FFFFFFF": TinyCount("8FFFFFFF", 60 * S, 1, "SubHealthFault", 60 * S)})
    stream.say(ODD, "once", T)
    assert [one.code for one in stream.report().unknown] == ["8FFFFFFF"]


def test_64_are_kept_and_the_longest_unseen_goes_first() -> None:
    stream = Stream()
    for number in range(70):
        stream.say((f"8F00{number:04X}", Plane.CHIP, Source.DCMI), "once", T + number)
        stream.say(ODD, "once", T + number)
    codes = [one.code for one in stream.report().unknown]
    assert len(codes) == 64
    assert codes[0] == "8F000007"
    assert codes[-1] == "8FFFFFFF"
