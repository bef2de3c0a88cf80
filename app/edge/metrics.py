"""Figures for Prometheus: of requests, encoding, searches and events, and of the installation."""

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from sqlalchemy import func, select

from app.concurrency import record
from app.edge.sharing import Sharing, Texts
from app.encoding.queue import Kind
from app.heartbeat import count_workers
from app.settings import Settings
from index.catalogue import Catalogue
from index.catalogue.jobs import JOB_STATES
from index.catalogue.tables import BackupRow, JobRow
from index.vectors.ann import OperatingPoint

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128)
# Figures of one process as JSON; those of sixty operations are 130 kB.
_ROOM: Final = 16 << 20
_ADDED: Final = frozenset({"counter", "histogram"})
# Gauges whose values add up over processes; for the others, one process has the value, or all have the same.
_LOADS: Final = frozenset(
    {
        "recoquest_connections",
        "recoquest_encode_queue_depth",
        "recoquest_decodes_waiting",
        "recoquest_audit_queue_depth",
    }
)
_STARTED: Final = "_created"

# Name, description and type of a figure, and the values by name and labels.
_Figures = dict[tuple[str, str, str], dict[tuple[str, tuple[tuple[str, str], ...]], float]]


@dataclass(frozen=True)
class Installation:
    """State of an installation at one time; `last_backup` is a Unix time, None without any."""

    free_bytes: int
    disk_bytes: int
    workers: int
    jobs: Mapping[str, int]
    last_backup: float | None


def read_installation(settings: Settings, catalogue: Catalogue) -> Installation:
    """Look at the home folder and the catalogue."""
    disk = shutil.disk_usage(settings.home)
    with catalogue.read() as session:
        counts = session.execute(select(JobRow.state, func.count()).group_by(JobRow.state)).all()
        created = session.execute(select(func.max(BackupRow.created))).scalar()
    return Installation(
        free_bytes=disk.free,
        disk_bytes=disk.total,
        workers=count_workers(settings),
        jobs=dict(counts),
        last_backup=None if created is None else datetime.fromisoformat(created).timestamp(),
    )


def _events(registry: CollectorRegistry, name: str, about: str, label: str) -> Callable[[str], None]:
    """Return what counts one more event of a kind."""
    counter = Counter(name, about, (label,), registry=registry)
    return lambda kind: counter.labels(kind).inc()


class Metrics:
    """The figures of one application; labels never hold anything of a query or a patient.

    With several processes, each writes its figures where all can read them, and the scraped one adds them up.
    """

    def __init__(self, sharing: Sharing | None = None) -> None:
        self._sharing = sharing or Sharing()
        self._texts = Texts(self._sharing, _ROOM) if self._sharing.processes > 1 else None
        # What was counted by the processes that this one has replaced.
        self._inherited: _Figures | None = None
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        counter = partial(Counter, registry=self.registry)
        events = partial(_events, self.registry)
        gauge = partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry, buckets=_SECONDS)

        self._requests = counter("recoquest_requests", "Answered requests.", ("operation", "status"))
        self._latency = histogram(
            "recoquest_request_seconds",
            "From the arrival of a request to the end of its answer.",
            ("operation",),
        )
        self.key_refused = events(
            "recoquest_key_refusals",
            "Keys that were wrong, or came too early after other wrong ones.",
            "reason",
        )
        self.refused = events("recoquest_refused", "Requests that were not begun.", "kind")
        self.connection_ended = events(
            "recoquest_connections_ended",
            "Connections that the service ended: time-outs, bytes that are not HTTP, no capacity.",
            "reason",
        )
        self.connections = gauge("recoquest_connections", "Open connections.")

        self._batch_size = histogram(
            "recoquest_encode_batch_size", "Queries in one forward pass.", ("kind",), buckets=_SIZES
        )
        self._encode = histogram("recoquest_encode_seconds", "One forward pass.", ("kind",))
        self.restarted = counter("recoquest_encode_worker_restarts", "Encoding workers that died.").inc
        self.queries_waiting = gauge("recoquest_encode_queue_depth", "Queries that wait to be encoded.")
        self.decoded = events("recoquest_decodes", "Images and thumbnails decoded.", "outcome")
        self.decoder_restarted = events(
            "recoquest_decoder_restarts", "Decoding processes that were lost and replaced.", "reason"
        )
        self.decodes_waiting = gauge("recoquest_decodes_waiting", "Images that wait to be decoded.")

        self._search = histogram("recoquest_search_seconds", "From a vector to its hits.")
        self._recall = gauge(
            "recoquest_search_recall",
            "Recall@10 of calibration queries, after the last build of a collection's codes.",
            ("collection", "target", "of"),
        )

        self.audited = counter("recoquest_audit_events", "Events written to the audit trail.")
        self.audit_failures = counter(
            "recoquest_audit_failures",
            "Batches of events that the audit trail did not take; they are tried again.",
        )
        self.audit_letters = counter(
            "recoquest_audit_dead_letters",
            "Events that the audit trail never stored, kept in audit-dead-letters.ndjson of the home folder.",
        )
        self.audit_waiting = gauge("recoquest_audit_queue_depth", "Events that wait to be written.")

        self._verdicts = gauge(
            "recoquest_feedback_verdicts",
            "Valid judgements of this calendar month (UTC) and the previous one.",
            ("collection", "month", "verdict"),
        )
        self._rejected = gauge(
            "recoquest_feedback_rejected_share",
            "Share of rejected hits among those judged, of this calendar month (UTC) and the one before.",
            ("collection", "month"),
        )

        self._free = gauge("recoquest_home_free_bytes", "Free bytes of the disk with the home folder.")
        self._size = gauge("recoquest_home_disk_bytes", "Size of the disk with the home folder.")
        self._workers = gauge("recoquest_workers", "Running workers.")
        self._jobs = gauge("recoquest_jobs", "Jobs in the catalogue.", ("state",))
        self._backup = gauge(
            "recoquest_last_backup_timestamp_seconds", "Time of the newest backup; 0 without any."
        )

    def answered(self, operation: str, status: int, seconds: float) -> None:
        """A request has been answered."""
        self._requests.labels(operation, str(status)).inc()
        self._latency.labels(operation).observe(seconds)

    def encoded(self, kind: Kind, size: int, seconds: float) -> None:
        """A batch has been through an encoder."""
        self._batch_size.labels(kind).observe(size)
        self._encode.labels(kind).observe(seconds)

    def searched(self, seconds: float) -> None:
        """An index has been searched."""
        self._search.observe(seconds)
        record("search", seconds)

    def recalls_measured(self, recalls: Iterable[tuple[str, str, OperatingPoint]]) -> None:
        """Replace the calibrated recall of all views with PQ codes, by collection and target."""
        self._recall.clear()
        for collection, target, point in recalls:
            self._recall.labels(collection, target, "mean").set(point.recall)
            self._recall.labels(collection, target, "lowest query").set(point.lowest)

    def verdicts_counted(self, months: Mapping[str, Mapping[tuple[str, str], int]]) -> None:
        """Replace the numbers of verdicts, by month and then by collection and verdict."""
        self._verdicts.clear()
        self._rejected.clear()
        for month, counts in months.items():
            for (collection, verdict), count in counts.items():
                self._verdicts.labels(collection, month, verdict).set(count)
            for collection in {collection for collection, _ in counts}:
                accepted, rejected = (
                    counts.get((collection, verdict), 0) for verdict in ("accepted", "rejected")
                )
                # A supplement isn't a judged hit.
                if accepted + rejected:
                    self._rejected.labels(collection, month).set(rejected / (accepted + rejected))

    def installation_read(self, installation: Installation) -> None:
        """Replace the figures of the installation."""
        self._free.set(installation.free_bytes)
        self._size.set(installation.disk_bytes)
        self._workers.set(installation.workers)
        for state in JOB_STATES:
            self._jobs.labels(state).set(installation.jobs.get(state, 0))
        self._backup.set(installation.last_backup or 0)

    def render(self) -> bytes:
        """All figures, of all processes, in Prometheus' text format."""
        if self._texts is None:
            return generate_latest(self.registry)
        # Before others are read: then no process that is scraped next reports a smaller count.
        self.publish()
        total: _Figures = {}
        for index in range(self._sharing.processes):
            figures = _loaded(self._texts.read(index))
            serves = index == self._sharing.index or self._sharing.serving.part(index)
            _add(total, figures if serves else _counts(figures))
        registry = CollectorRegistry()
        registry.register(_Given(total))
        return generate_latest(registry)

    def publish(self) -> None:
        """Write the figures of this process where the others read them; nothing where there are none."""
        if self._texts is None:
            return
        if self._inherited is None:
            self._inherited = _counts(_loaded(self._texts.read(self._sharing.index)))
        figures: _Figures = {}
        _add(figures, self._inherited)
        for metric in self.registry.collect():
            family = (metric.name, metric.documentation, metric.type)
            samples = {(one.name, tuple(one.labels.items())): one.value for one in metric.samples}
            _add(figures, {family: samples})
        written = [[*family, list(values.items())] for family, values in figures.items()]
        self._texts.write(json.dumps(written).encode())


class _Given(Collector):
    """Figures that were added up before."""

    def __init__(self, figures: _Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterable[Metric]:
        for (name, about, kind), values in self._figures.items():
            metric = Metric(name, about, kind)
            for (sample, labels), value in values.items():
                metric.add_sample(sample, dict(labels), value)
            yield metric


def _loaded(text: bytes) -> _Figures:
    families: list[Any] = json.loads(text or b"[]")
    return {
        (name, about, kind): {
            (sample, tuple((label, is_) for label, is_ in labels)): value
            for (sample, labels), value in values
        }
        for name, about, kind, values in families
    }


def _counts(figures: _Figures) -> _Figures:
    """What remains of figures when their process has ended."""
    return {family: values for family, values in figures.items() if family[2] in _ADDED}


def _add(total: _Figures, figures: _Figures) -> None:
    for family, values in figures.items():
        name, _, kind = family
        sums = total.setdefault(family, {})
        for sample, value in values.items():
            current = sums.get(sample)
            if current is None:
                sums[sample] = value
            elif sample[0].endswith(_STARTED):
                sums[sample] = min(current, value)
            elif kind in _ADDED or name in _LOADS:
                sums[sample] = current + value
            else:
                sums[sample] = max(current, value)
