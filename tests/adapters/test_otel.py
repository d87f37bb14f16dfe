"""Traces: one from record to document with the reason on each span, off unless asked for, and never in the way."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubebuilders import the_demo
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from recordlines import fault_line, write_cluster, write_lines
from rig import T0, Rig

from agent.adapters.otel import OtelTracer, SilentTracer, make_tracer
from agent.errors import BadUsage

LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-11111111111111111111111111111111-2222222222222222-01"


class Traced:
    """A tracer whose spans are kept in memory."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = OtelTracer(provider)

    def spans(self) -> list[ReadableSpan]:
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def of(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans() if span.name == name]


@pytest.fixture
def traced() -> Iterator[Traced]:
    made = Traced()
    yield made
    made.tracer.close()


def trace_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


def id_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.span_id:016x}"


def parent_of(span: ReadableSpan) -> str:
    return "" if span.parent is None else f"{span.parent.span_id:016x}"


def attribute(span: ReadableSpan, name: str) -> object:
    return (span.attributes or {}).get(name)


async def test_one_trace_leads_from_the_record_to_its_document(traced: Traced) -> None:
    rig = Rig(the_demo(LABELS), tracer=traced.tracer)
    rig.fault("80C98000", trace=PARENT)
    rig.tick(1)
    await rig.run()
    (record,) = traced.of("record")
    assert (trace_of(record), parent_of(record)) == ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    (decide,) = traced.of("decide")
    assert parent_of(decide) == id_of(record)
    assert attribute(decide, "reason") == "FAULT_SHOWN"
    (coordinate,) = traced.of("coordinate")
    assert parent_of(coordinate) == id_of(record)
    assert attribute(coordinate, "reason") == "RECOVERY_STARTED"
    (reset,) = [span for span in traced.of("document") if attribute(span, "kind") == "reset" and span.parent]
    assert parent_of(reset) == id_of(coordinate)
    assert attribute(reset, "document") == "train/reset-config-demo"
    assert attribute(reset, "reason") == "WRITTEN"
    assert len({trace_of(span) for span in (record, decide, coordinate, reset)}) == 1


async def test_a_later_step_of_a_recovery_belongs_to_the_record_that_began_it(traced: Traced) -> None:
    rig = Rig(the_demo(LABELS), tracer=traced.tracer)
    rig.fault("80C98000", trace=PARENT)
    rig.tick(600)
    await rig.run()
    steps = [(attribute(span, "reason"), trace_of(span)) for span in traced.of("coordinate")]
    assert steps == [
        ("RECOVERY_STARTED", "0af7651916cd43dd8448eb211c80319c"),
        ("RECOVERY_FAILED", "0af7651916cd43dd8448eb211c80319c"),
        ("RECOVERY_ENDED", "0af7651916cd43dd8448eb211c80319c"),
    ]


async def test_faults_of_two_records_keep_their_own_traces(traced: Traced) -> None:
    rig = Rig(the_demo(LABELS), tracer=traced.tracer)
    rig.fault("80E18402", trace=PARENT)
    rig.fault("80E18402", node="n2", trace=OTHER)
    await rig.run()
    assert [trace_of(span) for span in traced.of("record")] == [
        "0af7651916cd43dd8448eb211c80319c",
        "11111111111111111111111111111111",
    ]
    assert {trace_of(span) for span in traced.of("coordinate")} == {
        "0af7651916cd43dd8448eb211c80319c",
        "11111111111111111111111111111111",
    }


@pytest.mark.parametrize(
    "bad", ["", "nonsense", "00-0-0-01", PARENT.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32), "ü"]
)
async def test_a_bad_traceparent_begins_a_new_trace(traced: Traced, bad: str) -> None:
    rig = Rig(the_demo(LABELS), tracer=traced.tracer)
    rig.fault("80E18402", trace=bad)
    await rig.run()
    (record,) = traced.of("record")
    assert record.parent is None
    assert [one.trace[3:35] for one in rig.decisions if one.fault] == [trace_of(record)] * 2


async def test_the_journal_names_the_trace_of_a_decision(traced: Traced) -> None:
    rig = Rig(the_demo(LABELS), tracer=traced.tracer)
    rig.fault("80E18402", trace=PARENT)
    await rig.run()
    assert {one.trace[3:35] for one in rig.decisions if one.fault} == {"0af7651916cd43dd8448eb211c80319c"}


async def test_without_tracing_the_producer_s_trace_is_still_in_the_journal() -> None:
    rig = Rig(the_demo(LABELS))
    rig.fault("80E18402", trace=PARENT)
    await rig.run()
    assert {one.trace for one in rig.decisions if one.fault} == {PARENT}


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
        {"OTEL_SDK_DISABLED": "TRUE", "OTEL_TRACES_EXPORTER": "console"},
    ],
    ids=["nothing set", "none", "none beats an endpoint", "disabled"],
)
def test_off_unless_asked_for(environ: dict[str, str]) -> None:
    tracer = make_tracer(environ)
    assert isinstance(tracer, SilentTracer)
    with tracer.span("x", PARENT, a=1) as span:
        span.set(b=2)
        assert span.traceparent == ""
    tracer.close()


@pytest.mark.parametrize(
    "environ",
    [
        {"OTEL_TRACES_EXPORTER": "console"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/v1/traces"},
        {"OTEL_TRACES_EXPORTER": " OTLP "},
    ],
)
def test_on_when_a_standard_variable_asks(environ: dict[str, str]) -> None:
    tracer = make_tracer(environ)
    assert isinstance(tracer, OtelTracer)
    tracer.close()


def test_an_exporter_that_is_not_here_is_wrong_use() -> None:
    with pytest.raises(BadUsage, match="no such exporter here"):
        make_tracer({"OTEL_TRACES_EXPORTER": "zipkin"})


def test_an_exception_is_noted_on_its_span_and_goes_on(traced: Traced) -> None:
    with pytest.raises(ZeroDivisionError), traced.tracer.span("x"):
        raise ZeroDivisionError
    (span,) = traced.spans()
    assert [event.name for event in span.events] == ["exception"]


def _replay(tmp_path: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    cluster = write_cluster(tmp_path / "cluster.json", the_demo(LABELS))
    lines = [fault_line("80E18402", T0 + number, number, devices=(number % 4,)) for number in range(200)]
    events = write_lines(tmp_path / "events.jsonl", lines)
    program = (
        "import sys; from agent.app.cli.main import main\n"
        "try: main()\n"
        "finally: print(sum(name.startswith('opentelemetry') for name in sys.modules), file=sys.stderr)\n"
    )
    words = ["replay", str(events), "--cluster", str(cluster), "--out", str(tmp_path / "out"), "--json"]
    # The test's own time-out is the bound: a collector that holds the end up for longer fails here.
    return subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=False, env=environ
    )


def test_switched_off_it_is_not_even_loaded(tmp_path: Path) -> None:
    done = _replay(tmp_path)
    assert (done.returncode, done.stderr) == (0, "0\n")


def test_a_collector_that_never_answers_costs_a_bounded_moment_at_the_end(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        endpoint = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        done = _replay(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) > 200


def test_the_console_exporter_leaves_standard_output_to_the_answer(tmp_path: Path) -> None:
    done = _replay(tmp_path, OTEL_TRACES_EXPORTER="console")
    assert done.returncode == 0
    *decisions, summary = done.stdout.splitlines()
    assert all(line.startswith('{"schema":1') for line in decisions)
    assert summary.startswith('{"summary":')
    assert '"name": "record"' in done.stderr
