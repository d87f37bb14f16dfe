"""A rail plan in traces and as an Event: the same words as in its document."""

import json

from a3cluster import see_links, the_a3
from kubebuilders import DEMO_JOB
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from rig import Rig

from agent.adapters.otel import OtelTracer
from agent.app.herald import Herald
from agent.domain.vocab import Mode, Reason

LINK = "81078603"
LABELS = {"fault-scheduling": "grace", "subHealthyStrategy": "graceExit"}
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Traced:
    """Spans kept in memory."""

    def __init__(self) -> None:
        self._kept = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self.tracer = OtelTracer(provider)

    def of(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._kept.get_finished_spans() if span.name == name]


async def borrowed() -> tuple[Rig, Traced]:
    traced = Traced()
    rig = Rig(the_a3(labels=LABELS), tracer=traced.tracer)
    see_links(rig, 0)
    rig.fault(LINK, 1, node="n0", device=0, trace=PARENT)
    rig.tick(40)
    rig.clear(LINK, 50, node="n0", device=0)
    rig.tick(60)
    await rig.run()
    return rig, traced


async def test_a_plan_is_a_span_of_its_fault_s_trace_with_what_its_document_says() -> None:
    rig, traced = await borrowed()
    data = await rig.data("train/fault-agent-rail-demo")
    assert data is not None
    document = json.loads(data["plan.json"])
    made, back = traced.of("rail")
    said = dict(made.attributes or {})
    assert made.context is not None
    assert f"{made.context.trace_id:032x}" == PARENT.split("-")[1]
    assert said["advice"] == (
        "Save a checkpoint soon, then repair the link. HCCL does not switch back by itself. The job's"
        " subHealthyStrategy ends it: the borrow buys time only until it is rescheduled."
    )
    assert {key: said[key] for key in said if key != "advice"} == {
        "job": DEMO_JOB,
        "plan": document["plan"],
        "state": "advised",
        "executor": "plan-only",
        "rule": 28,
        "code": "BORROW",
        "faults": "n0/network/0/81078603@1767225601000",
        "moves": "n0:0>1,n2:0>1,n3:0>1",
        "ranks_moved": 3,
        "links": "0-8,0-12",
        "warnings": "BANDWIDTH_HALVED,SUBHEALTH_POLICY_EXIT,NOT_JUDGED,PEERS_ASSUMED",
        "held": 3,
    }
    assert (back.attributes or {})["advice"] == document["advice"]
    assert document["advice"].startswith("The link is up again")


class Board:
    """Announcer that keeps what it is told."""

    def __init__(self) -> None:
        self.said: dict[str, tuple[str, str, str, bool]] = {}

    async def announce(self, kind: str, namespace: str, name: str, reason: str, note: str, warning: bool) -> None:
        self.said[reason] = (kind, name, note, warning)


async def test_the_events_on_the_pod_say_moves_rule_warnings_and_what_to_do() -> None:
    rig, _ = await borrowed()
    board = Board()
    herald = Herald(rig.book, board, Mode.ACT)
    for line in rig.told:
        if line.decision.reason in (Reason.RAIL_ADVISED, Reason.RAIL_NOOP):
            await herald.say(line)
    kind, name, note, warning = board.said["RailAdvised"]
    assert (kind, name, warning) == ("Pod", "demo-0", True)
    assert "rule 28 BORROW: 3 ranks go to the other die (rank 0 on n0: 0→1, rank 8 on n2: 0→1" in note
    assert "warnings BANDWIDTH_HALVED, SUBHEALTH_POLICY_EXIT, NOT_JUDGED, PEERS_ASSUMED" in note
    assert "Save a checkpoint soon, then repair the link." in note
    assert "subHealthyStrategy ends it" in note
    _, _, note, _ = board.said["RailNoop"]
    assert "NO_SWITCH_BACK: The link is up again" in note
    assert "fault-agent/rail-returned=" in note
