"""Figures for Prometheus; each application has its own registry."""

from collections.abc import Callable

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from app.encoding import Kind
from app.http.guesses import Refusal

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Counts requests, batches and searches; labels never hold anything of a query or a patient."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._requests = Counter(
            "recoquest_requests", "Answered requests.", ("operation", "status"), registry=self.registry
        )
        self._latency = Histogram(
            "recoquest_request_seconds",
            "From the arrival of a request to the end of its answer.",
            ("operation",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._batch_size = Histogram(
            "recoquest_encode_batch_size",
            "Queries in one forward pass.",
            ("kind",),
            buckets=_SIZES,
            registry=self.registry,
        )
        self._encode = Histogram(
            "recoquest_encode_seconds",
            "One forward pass.",
            ("kind",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._search = Histogram(
            "recoquest_search_seconds", "From a vector to its hits.", buckets=_SECONDS, registry=self.registry
        )
        self._restarts = Counter(
            "recoquest_encode_worker_restarts", "Encoding workers that died.", registry=self.registry
        )
        self._keys = Counter(
            "recoquest_admin_key_refusals",
            "Admin keys that were wrong, or came too early after wrong ones to be looked at.",
            ("reason",),
            registry=self.registry,
        )
        self._depth = Gauge(
            "recoquest_encode_queue_depth", "Queries that wait to be encoded.", registry=self.registry
        )

    def watch_queues(self, depth: Callable[[], int]) -> None:
        """Ask `depth` for the number of waiting queries whenever the figures are read."""
        self._depth.set_function(depth)

    def answered(self, operation: str, status: int, seconds: float) -> None:
        """A request has been answered."""
        self._requests.labels(operation, str(status)).inc()
        self._latency.labels(operation).observe(seconds)

    def encoded(self, kind: Kind, size: int, seconds: float) -> None:
        """A batch has been through an encoder."""
        self._batch_size.labels(kind).observe(size)
        self._encode.labels(kind).observe(seconds)

    def restarted(self) -> None:
        """An encoding worker died and was replaced."""
        self._restarts.inc()

    def key_refused(self, reason: Refusal) -> None:
        """An admin key was not taken."""
        self._keys.labels(reason).inc()

    def searched(self, seconds: float) -> None:
        """An index has been searched."""
        self._search.observe(seconds)

    def render(self) -> bytes:
        """All figures in Prometheus' text format."""
        return generate_latest(self.registry)
