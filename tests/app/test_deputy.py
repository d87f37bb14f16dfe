"""The deputy: it waits, decides what nobody else reports, and what it has decided outlives a report that is late."""

from collections.abc import Mapping
from dataclasses import replace

from kubebuilders import a_node
from rig import POLICY, T0
from rolerig import CLUSTER, N1, Clock, Stream, a_report, make_deputy

from agent.adapters.otel import SilentTracer
from agent.app.deputy import covers, told_by_deputy
from agent.app.node_app import NodeSide, Taken
from agent.app.world import World
from agent.domain.cluster import ClusterBook, Limits
from agent.domain.events import Decision, NodeReport, Record, Scanned
from agent.domain.vocab import DeadReason, Millis, NodeName, Reason
from agent.wire.inbound import Limits as BorderLimits

DOWN = "2C000031"
SEPARATE, LINK = "80E18402", "81078603"


def at(seconds: float) -> Millis:
    return Millis(T0 + round(seconds * 1000))


def scanned(offset: int) -> NodeReport:
    return a_report(scanned={0: Scanned(0, offset)}, caught_up=True)


def reported_by_agent(*records: Record, epoch: int = 1, seq: int = 5) -> NodeReport:
    """What the node's own agent reports after these records."""
    side = NodeSide(POLICY, CLUSTER, "agent", BorderLimits(), Millis(900_000), SilentTracer())
    side.caught_up = True
    side.claim(N1)
    for record in records:
        side.take(record, record.timestamp, Taken())
    return replace(side.reports()[N1], epoch=epoch, seq=seq)


class Scene:
    """A book with node n1, its report, and a deputy."""

    def __init__(self, report: NodeReport | None = None, nodes: tuple[str, ...] = ("n1",)) -> None:
        self.book = ClusterBook(CLUSTER, Limits())
        world = World(self.book)
        for node in nodes:
            world.apply(a_node(node))
        if report is not None:
            self.book.reports[report.node] = report
        self.deputy = make_deputy(self.book, 4)
        self.stream = Stream(Clock())

    def due(self, seconds: float) -> tuple[dict[NodeName, NodeReport], Taken]:
        heard = self.deputy.due(at(seconds))
        self.book.reports.update(heard.reports)
        return heard.reports, heard.taken

    def spoke(self, report: NodeReport, seconds: float) -> NodeReport:
        self.book.reports[report.node] = self.deputy.spoke(report.node, report, at(seconds))
        return self.book.reports[report.node]


def codes(report: NodeReport) -> list[str]:
    return sorted(fault.key.code for fault in report.active)


def headers(record: Record) -> Mapping[str, bytes]:
    return dict(record.headers)


def test_a_record_is_decided_three_seconds_after_it_was_heard_and_not_before() -> None:
    scene = Scene(scanned(0))
    scene.deputy.hear([scene.stream.fault(SEPARATE)], at(10))
    assert scene.deputy.next_deadline() == at(13)
    assert scene.due(12.9)[0] == {}
    reports, taken = scene.due(13)
    assert codes(reports[N1]) == [SEPARATE]
    assert [decision.reason for decision in taken.decisions] == [Reason.FAULT_SHOWN]
    assert reports[N1].occurrences[0].id == "0:0:0:0"
    assert (reports[N1].epoch, reports[N1].seq, reports[N1].instance) == (1, 1, "deputy")
    assert scene.due(20)[0] == {}


def test_a_record_that_the_report_covers_is_not_even_held() -> None:
    scene = Scene(scanned(1))
    scene.deputy.hear([scene.stream.fault(SEPARATE)], at(0))
    assert scene.deputy.next_deadline() is None


def test_a_record_that_the_agent_reports_in_time_is_let_go_of() -> None:
    scene = Scene(scanned(0))
    record = scene.stream.fault(SEPARATE)
    scene.deputy.hear([record], at(0))
    scene.spoke(reported_by_agent(record), 0.3)
    assert scene.deputy.next_deadline() is None
    assert scene.due(10) == ({}, Taken())


def test_a_node_that_never_had_an_agent_is_spoken_for_too() -> None:
    scene = Scene()
    scene.deputy.hear([scene.stream.fault(DOWN, device=None, resource="ipmi", location={"deviceType": "BMC"})], at(0))
    reports, _ = scene.due(3)
    assert codes(reports[N1]) == [DOWN]
    assert (reports[N1].epoch, reports[N1].seq) == (0, 0)


def test_an_agent_that_is_behind_but_has_just_spoken_is_not_silent() -> None:
    scene = Scene(scanned(0))
    records = [scene.stream.fault(SEPARATE, device=device) for device in range(3)]
    scene.deputy.hear(records, at(0))
    scene.spoke(reported_by_agent(records[0], seq=2), 2.9)
    assert scene.due(3)[0] == {}
    assert scene.deputy.next_deadline() == at(3.9)
    reports, _ = scene.due(3.9)
    assert len(reports[N1].active) == 3


def test_what_was_decided_here_is_laid_over_a_report_that_does_not_cover_it_yet() -> None:
    scene = Scene(scanned(0))
    first, second = (scene.stream.fault(SEPARATE, device=device) for device in (0, 1))
    scene.deputy.hear([first, second], at(0))
    scene.due(3)
    late = scene.spoke(reported_by_agent(first, epoch=1, seq=9), 4)
    assert len(late.active) == 2
    assert (late.epoch, late.seq, late.instance) == (1, 9, "agent")
    assert scene.due(4.5)[0] == {}
    whole = reported_by_agent(first, second, epoch=2, seq=2)
    assert scene.spoke(whole, 5) is whole
    assert scene.deputy.next_deadline() is None


def test_the_returning_agent_says_the_same_occurrences() -> None:
    scene = Scene(scanned(0))
    records = [scene.stream.fault(SEPARATE), scene.stream.fault(SEPARATE, 1, assertion="recover")]
    scene.deputy.hear(records, at(0))
    reports, _ = scene.due(3)
    own = reported_by_agent(*records)
    assert reports[N1].occurrences == own.occurrences
    assert reports[N1].totals == own.totals
    assert reports[N1].active == own.active == ()


def test_a_rule_over_time_takes_effect_for_a_silent_node_too() -> None:
    scene = Scene(scanned(0))
    scene.deputy.hear([scene.stream.fault(LINK, device=0)], at(0))
    scene.due(3)
    deadline = scene.deputy.next_deadline()
    assert deadline is not None
    assert at(20) <= deadline <= at(24)
    reports, _ = scene.due(25)
    assert [fault.level for fault in reports[N1].active] == ["PreSeparateNPU"]


def test_a_duration_that_runs_when_its_agent_falls_silent_raises_and_clears_in_time() -> None:
    stream = Stream(Clock())
    scene = Scene()
    scene.spoke(reported_by_agent(stream.fault(LINK, device=0)), 1)
    assert scene.deputy.next_deadline() == at(23.001)
    assert scene.due(23) == ({}, Taken())
    reports, taken = scene.due(23.001)
    assert [fault.level for fault in reports[N1].active] == ["PreSeparateNPU"]
    assert (reports[N1].seq, reports[N1].instance) == (5, "deputy")
    assert [decision.reason for decision in taken.decisions] == [Reason.FAULT_SHOWN]
    assert scene.deputy.next_deadline() is None
    assert scene.due(900) == ({}, Taken())


def test_an_agent_that_speaks_of_its_deadline_or_has_just_spoken_is_not_spoken_for() -> None:
    stream = Stream(Clock())
    scene, record = Scene(), stream.fault(LINK, device=0)
    scene.spoke(reported_by_agent(record), 22.5)
    assert scene.deputy.next_deadline() == at(23.5)
    scene.spoke(reported_by_agent(record, seq=6), 23.4)
    assert scene.due(24.3) == ({}, Taken())
    scene.spoke(scanned(1), 24.35)
    assert scene.deputy.next_deadline() is None
    assert scene.due(60) == ({}, Taken())


def test_a_record_that_waits_is_decided_before_the_deadline_behind_it() -> None:
    stream = Stream(Clock())
    scene = Scene()
    scene.spoke(reported_by_agent(stream.fault(LINK, device=0)), 1)
    scene.deputy.hear([stream.fault(SEPARATE, device=1)], at(22))
    assert scene.due(24) == ({}, Taken())
    reports, _ = scene.due(25)
    assert sorted((fault.key.code, fault.level) for fault in reports[N1].active) == [
        (SEPARATE, "SeparateNPU"),
        (LINK, "PreSeparateNPU"),
    ]
    assert scene.due(40)[0] == {}


def test_a_new_term_knows_the_deadlines_of_the_reports_at_hand_and_a_gone_node_has_none() -> None:
    scene = Scene(reported_by_agent(Stream(Clock()).fault(LINK, device=0)))
    scene.deputy.begin()
    assert scene.deputy.next_deadline() == at(23.001)
    scene.deputy.frozen.add(N1)
    assert scene.due(30) == ({}, Taken())
    scene.deputy.frozen.clear()
    scene.deputy.begin()
    scene.deputy.forget(N1)
    assert scene.deputy.next_deadline() is None


def test_deadlines_that_move_are_not_kept() -> None:
    scene, whole = Scene(), reported_by_agent(Stream(Clock()).fault(LINK, device=0))
    for number in range(1_000):
        moved = tuple(replace(timer, due=Millis(timer.due + number)) for timer in whole.timers)
        scene.spoke(replace(whole, timers=moved), 1)
    assert scene.deputy.next_deadline() == at(24)
    assert len(scene.deputy._clocks) <= 66


def test_the_deputy_goes_on_from_what_it_has_decided_itself() -> None:
    scene = Scene(scanned(0))
    scene.deputy.hear([scene.stream.fault(SEPARATE, device=0)], at(0))
    scene.due(3)
    scene.deputy.hear([scene.stream.fault(SEPARATE, device=1)], at(60))
    reports, _ = scene.due(63)
    assert len(reports[N1].active) == 2


def test_poison_and_bad_records_become_letters_and_are_read() -> None:
    scene = Scene(scanned(0))
    scene.deputy.hear([scene.stream.raw(b"no json")], at(0))
    reports, taken = scene.due(3)
    assert headers(taken.letters[0])["fault-agent-reason"] == b"NOT_JSON"
    assert reports[N1].scanned[0].offset == 1


def test_what_no_agent_will_ever_look_at_is_dead_lettered_with_its_reason() -> None:
    scene = Scene(scanned(0))
    keyless = scene.stream.raw(b"{}", key=None)
    misrouted = scene.stream.fault(SEPARATE, partition=3)
    unknown = scene.stream.fault(SEPARATE, node="nx")
    scene.deputy.hear([keyless, misrouted, unknown], at(0))
    reports, taken = scene.due(3)
    assert reports == {}
    reasons = [headers(letter)["fault-agent-reason"].decode() for letter in taken.letters]
    assert sorted(reasons) == sorted([DeadReason.KEY_MISSING, DeadReason.MISROUTED, DeadReason.NODE_UNKNOWN])
    sources = {headers(letter)["fault-agent-source"] for letter in taken.letters}
    assert sources == {b"0:0:0", b"0:3:0", b"0:0:1"}
    assert scene.deputy.next_deadline() is None


def test_a_partition_that_the_agent_reads_from_before_the_topic_grew_is_not_misrouted() -> None:
    scene = Scene(a_report(scanned={3: Scanned(0, 0)}))
    scene.deputy.hear([scene.stream.fault(SEPARATE, partition=3)], at(0))
    reports, taken = scene.due(3)
    assert taken.letters == []
    assert codes(reports[N1]) == [SEPARATE]


def test_nobody_decides_for_a_node_whose_report_cannot_be_used() -> None:
    scene = Scene(scanned(0))
    scene.deputy.frozen.add(N1)
    scene.deputy.hear([scene.stream.fault(SEPARATE)], at(0))
    assert scene.due(5) == ({}, Taken())
    assert scene.deputy.next_deadline() is None


def test_a_new_term_and_a_node_that_is_gone_leave_nothing_behind() -> None:
    scene = Scene(scanned(0))
    scene.deputy.hear([scene.stream.fault(SEPARATE)], at(0))
    scene.deputy.begin()
    assert scene.due(9) == ({}, Taken())
    scene.deputy.hear([scene.stream.fault(SEPARATE)], at(10))
    scene.deputy.forget(N1)
    assert scene.deputy.next_deadline() is None


def test_a_report_of_a_newer_generation_covers_the_older() -> None:
    record = Stream(Clock()).fault(SEPARATE)
    assert covers(a_report(scanned={0: Scanned(1, 0)}), record)
    assert not covers(a_report(scanned={0: Scanned(0, 0)}), record)
    assert not covers(a_report(scanned={1: Scanned(0, 9)}), record)
    assert not covers(None, record)


def test_the_reason_says_who_decided() -> None:
    told = told_by_deputy(Decision(at(0), Reason.FAULT_SHOWN, detail="SeparateNPU"))
    assert told.detail == "SeparateNPU; decided by the coordinator, the node's agent is silent"
