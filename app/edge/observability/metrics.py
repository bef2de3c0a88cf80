"""Figures for Prometheus; each application has its own registry."""

from collections.abc import Callable, Iterable, Mapping

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

from app.concurrency.timings import record
from app.edge.observability.installation import InstallationMetrics
from app.encoding import Kind
from index.vectors.ann import OperatingPoint
from training.imaging.processes.pool import DecodeOutcome, RestartReason

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Counts requests, batches and searches; labels never hold anything of a query or a patient."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._add_requests()
        self._add_encoding()
        self._add_searches()
        self._add_audit()
        self._add_verdicts()
        self.installation = InstallationMetrics(self.registry)

    def _add_requests(self) -> None:
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
        self._keys = Counter(
            "recoquest_key_refusals",
            "Keys that were wrong, or came too early after other wrong ones.",
            ("reason",),
            registry=self.registry,
        )
        self._refused = Counter(
            "recoquest_refused", "Requests that were not begun.", ("kind",), registry=self.registry
        )
        self._ended = Counter(
            "recoquest_connections_ended",
            "Connections that the service ended: time-outs, bytes that are no HTTP, no place.",
            ("reason",),
            registry=self.registry,
        )
        self._connections = Gauge("recoquest_connections", "Open connections.", registry=self.registry)

    def _add_encoding(self) -> None:
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
        self._restarts = Counter(
            "recoquest_encode_worker_restarts", "Encoding workers that died.", registry=self.registry
        )
        self._decodes = Counter(
            "recoquest_decodes", "Images and thumbnails decoded.", ("outcome",), registry=self.registry
        )
        self._decoder_restarts = Counter(
            "recoquest_decoder_restarts",
            "Decoding processes that were lost and replaced.",
            ("reason",),
            registry=self.registry,
        )
        self._decodes_waiting = Gauge(
            "recoquest_decodes_waiting", "Images that wait to be decoded.", registry=self.registry
        )
        self._depth = Gauge(
            "recoquest_encode_queue_depth", "Queries that wait to be encoded.", registry=self.registry
        )

    def _add_searches(self) -> None:
        self._search = Histogram(
            "recoquest_search_seconds", "From a vector to its hits.", buckets=_SECONDS, registry=self.registry
        )
        self._recall = Gauge(
            "recoquest_search_recall",
            "Recall@10 of calibration queries, after the last build of a collection's codes.",
            ("collection", "target", "of"),
            registry=self.registry,
        )

    def _add_audit(self) -> None:
        self._audited = Counter(
            "recoquest_audit_events", "Events written to the audit trail.", registry=self.registry
        )
        self._audit_failures = Counter(
            "recoquest_audit_failures",
            "Batches of events that the audit trail did not take; they are tried again.",
            registry=self.registry,
        )
        self._audit_letters = Counter(
            "recoquest_audit_dead_letters",
            "Events that the audit trail never took, kept in audit-dead-letters.ndjson of the home folder.",
            registry=self.registry,
        )
        self._audit_waiting = Gauge(
            "recoquest_audit_queue_depth", "Events that wait to be written.", registry=self.registry
        )

    def _add_verdicts(self) -> None:
        self._verdicts = Gauge(
            "recoquest_feedback_verdicts",
            "Judgements that stand, of this calendar month (UTC) and the one before.",
            ("collection", "month", "verdict"),
            registry=self.registry,
        )
        self._rejected = Gauge(
            "recoquest_feedback_rejected_share",
            "Share of rejected hits among those judged, of this calendar month (UTC) and the one before.",
            ("collection", "month"),
            registry=self.registry,
        )

    def recalls_measured(self, recalls: Iterable[tuple[str, str, OperatingPoint]]) -> None:
        """Replace the calibrated recall of all views with PQ codes, by collection and target."""
        self._recall.clear()
        for collection, target, point in recalls:
            self._recall.labels(collection, target, "mean").set(point.recall)
            self._recall.labels(collection, target, "lowest query").set(point.lowest)

    def watch_audit(self, number: Callable[[], int]) -> None:
        """Ask `number` for the waiting events of the audit trail whenever the figures are read."""
        self._audit_waiting.set_function(number)

    def audited(self, count: int) -> None:
        """Events have been written to the audit trail."""
        self._audited.inc(count)

    def audit_failed(self) -> None:
        """A batch of events was not written."""
        self._audit_failures.inc()

    def audit_letter_kept(self) -> None:
        """An event that the audit trail never took is in a file."""
        self._audit_letters.inc()

    def verdicts_counted(self, months: Mapping[str, Mapping[tuple[str, str], int]]) -> None:
        """Replace the numbers of verdicts, by month and then by collection and verdict."""
        self._verdicts.clear()
        self._rejected.clear()
        for month, counts in months.items():
            for (collection, verdict), count in counts.items():
                self._verdicts.labels(collection, month, verdict).set(count)
            for collection in {collection for collection, _ in counts}:
                accepted, rejected = (counts.get((collection, of), 0) for of in ("accepted", "rejected"))
                # A supplement is no hit that was judged.
                if accepted + rejected:
                    self._rejected.labels(collection, month).set(rejected / (accepted + rejected))

    def watch_connections(self, number: Callable[[], int]) -> None:
        """Ask `number` for the open connections whenever the figures are read."""
        self._connections.set_function(number)

    def refused(self, kind: str) -> None:
        """A request was refused before any work, because too many are at work."""
        self._refused.labels(kind).inc()

    def connection_ended(self, reason: str) -> None:
        """The service has ended a connection."""
        self._ended.labels(reason).inc()

    def watch_decoders(self, waiting: Callable[[], int]) -> None:
        """Ask `waiting` for the number of waiting images whenever the figures are read."""
        self._decodes_waiting.set_function(waiting)

    def decoded(self, outcome: DecodeOutcome) -> None:
        """A decoding process has ended a task, or was lost with it."""
        self._decodes.labels(outcome).inc()

    def decoder_restarted(self, reason: RestartReason) -> None:
        """A decoding process was lost and is replaced."""
        self._decoder_restarts.labels(reason).inc()

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

    def key_refused(self, reason: str) -> None:
        """A key was not taken."""
        self._keys.labels(reason).inc()

    def searched(self, seconds: float) -> None:
        """An index has been searched."""
        self._search.observe(seconds)
        record("search", seconds)

    def render(self) -> bytes:
        """All figures in Prometheus' text format."""
        return generate_latest(self.registry)
