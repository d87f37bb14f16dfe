"""HTTP for the kubelet and for Prometheus: /livez, /readyz, /metrics.

The one rule: an answer is made from what is known in memory; asking never waits for a service.
"""

from collections.abc import Awaitable, Callable, Iterable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agent.errors import CannotRun

Sample = tuple[str, str, str, float, tuple[tuple[str, str], ...]]
"""kind (counter | gauge), name, help, value, labels."""


class _Samples(Collector):
    def __init__(self, read: Callable[[], Iterable[Sample]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        """Group the samples of a moment into families."""
        families: dict[str, Metric] = {}
        for kind, name, text, value, labels in self._read():
            family = families.get(name)
            if family is None:
                make = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
                family = families[name] = make(name, text, labels=[key for key, _ in labels])
            family.add_metric([label for _, label in labels], value)  # type: ignore[attr-defined]  # both kinds have it
        return families.values()


class HttpServer:
    """Serves until closed. Raises CannotRun when the port is taken."""

    def __init__(
        self,
        host: str,
        port: int,
        dead: Callable[[], str],
        not_ready: Callable[[], str],
        samples: Callable[[], Iterable[Sample]],
    ) -> None:
        self._host, self._port = host, port
        self._registry = CollectorRegistry()
        self._registry.register(_Samples(samples))
        self._dead, self._not_ready = dead, not_ready
        self._runner: web.AppRunner | None = None

    async def open(self) -> int:
        """Listen; gives the port."""
        app = web.Application()
        app.router.add_get("/livez", self._answer(self._dead))
        app.router.add_get("/readyz", self._answer(self._not_ready))
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port)
        try:
            await site.start()
        except OSError as error:
            await self.close()
            raise CannotRun(
                f"cannot listen on {self._host}:{self._port}: {error.strerror}", hint="set http.port, or 0 for none"
            ) from error
        return int(self._runner.addresses[0][1])

    def _answer(self, problem: Callable[[], str]) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            del request
            text = problem()
            return web.Response(status=503 if text else 200, text=f"{text or 'ok'}\n")

        return answer

    async def _metrics(self, request: web.Request) -> web.Response:
        del request
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def close(self) -> None:
        """Stop listening; idempotent."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()
