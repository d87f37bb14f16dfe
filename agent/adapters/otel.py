"""OpenTelemetry traces, chosen by the standard OTEL_* variables; off unless one of them asks for them.

The one rule: a dead or slow collector never delays a decision; spans wait in a bounded queue and are dropped
when it is full, and closing is bounded.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Thread
from typing import TYPE_CHECKING

from agent import __version__
from agent.errors import BadUsage
from agent.ports import Span, Tracer

if TYPE_CHECKING:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

CLOSE_SECONDS = 3.0
"""How long closing may take; the SDK alone would wait out its exporter's retries."""


class _NoSpan:
    traceparent = ""

    def set(self, **attributes: str | int | bool) -> None:
        """Nothing is kept."""


class SilentTracer:
    """Tracing switched off: one shared context, nothing allocated per span."""

    enabled = False

    def __init__(self) -> None:
        self._context: AbstractContextManager[Span] = nullcontext(_NoSpan())

    def span(self, name: str, parent: str = "", **attributes: str | int | bool) -> AbstractContextManager[Span]:
        """The same empty span each time."""
        return self._context

    def close(self) -> None:
        """Nothing to hand over."""


class _OtelSpan:
    def __init__(self, span: "trace.Span") -> None:
        self._span = span
        context = span.get_span_context()
        self.traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"

    def set(self, **attributes: str | int | bool) -> None:
        self._span.set_attributes(dict(attributes))


class OtelTracer:
    """Spans through the OpenTelemetry SDK."""

    enabled = True

    def __init__(self, provider: "TracerProvider") -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("agent", __version__)
        self._propagator = TraceContextTextMapPropagator()

    @contextmanager
    def _span(self, name: str, parent: str, attributes: Mapping[str, str | int | bool]) -> Iterator[Span]:
        from opentelemetry.context import Context

        context = self._propagator.extract({"traceparent": parent}, Context()) if parent else Context()
        with self._tracer.start_as_current_span(name, context=context, attributes=attributes) as span:
            yield _OtelSpan(span)

    def span(self, name: str, parent: str = "", **attributes: str | int | bool) -> AbstractContextManager[Span]:
        """A span below `parent`, or the root of a new trace; an exception inside is recorded on it."""
        return self._span(name, parent, attributes)

    def close(self) -> None:
        """Flush and shut down in a daemon thread, waiting for it CLOSE_SECONDS at most."""
        ending = Thread(target=self._provider.shutdown, name="otel-close", daemon=True)
        ending.start()
        ending.join(CLOSE_SECONDS)


def make_tracer(environ: Mapping[str, str]) -> Tracer:
    """The tracer that the environment asks for.

    OTEL_TRACES_EXPORTER = console | otlp | none; left out: otlp when OTEL_EXPORTER_OTLP_ENDPOINT or
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set, else off. OTEL_SDK_DISABLED=true switches off.
    Raises BadUsage for an exporter this program does not have.
    """
    wanted = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    endpoint = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    kind = wanted or ("otlp" if endpoint else "none")
    if kind == "none" or environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return SilentTracer()
    if kind not in ("console", "otlp"):
        raise BadUsage(f"OTEL_TRACES_EXPORTER={wanted}: no such exporter here", hint="use console, otlp or none")
    return OtelTracer(_provider(_exporter(kind)))


def _exporter(kind: str) -> "SpanExporter":
    if kind == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        # Standard error: standard output belongs to the command's own answer.
        return ConsoleSpanExporter(out=sys.stderr)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def _provider(exporter: "SpanExporter") -> "TracerProvider":
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(
        # Closing is ours and bounded; the SDK's own at exit would wait for a dead collector.
        shutdown_on_exit=False,
        resource=Resource.create({"service.name": "ascend-fault-agent", "service.version": __version__}),
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider
