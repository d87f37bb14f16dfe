"""An OpenTelemetry Collector of the tests' own: takes OTLP and writes what it got, in full, as text.

The one rule: what a test sees is what the collector decoded, not what the sender meant to send.
"""

import shutil
from pathlib import Path

from services.processes import Process, free_ports, port_closed

START_S = 30.0

CONFIG = """\
receivers:
  otlp:
    protocols:
      grpc: {{endpoint: "127.0.0.1:{grpc}"}}
      http: {{endpoint: "127.0.0.1:{http}"}}
exporters:
  debug: {{verbosity: detailed}}
service:
  telemetry:
    metrics: {{level: none}}
  pipelines:
    traces: {{receivers: [otlp], exporters: [debug]}}
    metrics: {{receivers: [otlp], exporters: [debug]}}
    logs: {{receivers: [otlp], exporters: [debug]}}
"""


class Collector:
    """One collector on 127.0.0.1. A context manager, as Kafka is."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self._folder = folder
        self._grpc, self._http = free_ports(2)
        config = folder / "config.yaml"
        self.process = Process("otelcol", [str(binaries / "otelcol"), f"--config={config}"], folder / "otelcol.log")

    def __enter__(self) -> "Collector":
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def http(self) -> str:
        """Base address for OTLP over HTTP; traces go to `/v1/traces` under it."""
        return f"http://127.0.0.1:{self._http}"

    @property
    def grpc(self) -> str:
        """`host:port` for OTLP over gRPC."""
        return f"127.0.0.1:{self._grpc}"

    def start(self) -> None:
        """Start and wait until both doors are open. Raises ServiceFailedError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "config.yaml").write_text(CONFIG.format(grpc=self._grpc, http=self._http))
        self.process.start()
        ports = (self._grpc, self._http)
        self.process.wait_ready(lambda: "".join(map(port_closed, ports)), seconds=START_S)

    def received(self) -> str:
        """All it got so far, as its debug exporter writes it, among its own log lines."""
        return self.process.log.read_text(errors="replace")
