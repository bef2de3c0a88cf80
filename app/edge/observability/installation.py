"""Figures of the home folder and the catalogue: the disk, jobs, workers, backups."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from prometheus_client import CollectorRegistry, Gauge
from sqlalchemy import func, select

from app.heartbeat import count_workers
from app.settings import Settings
from index.catalogue.database import Catalogue
from index.catalogue.jobs import JOB_STATES
from index.catalogue.tables import BackupRow, JobRow


@dataclass(frozen=True)
class Installation:
    """State of an installation at one time.

    Attributes:
        free_bytes: Free bytes of the disk with the home folder, for users without special rights.
        disk_bytes: Size of that disk.
        workers: Running workers.
        jobs: Number of jobs by state.
        last_backup: Unix time of the newest backup; None without any.
    """

    free_bytes: int
    disk_bytes: int
    workers: int
    jobs: Mapping[str, int]
    last_backup: float | None


def read_installation(settings: Settings, catalogue: Catalogue) -> Installation:
    """Look at the home folder and the catalogue.

    Raises:
        OSError: The home folder cannot be read.
        CatalogueError: The catalogue cannot be read.
    """
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


class InstallationMetrics:
    """Gauges of an installation, in the registry of an application."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._free = Gauge(
            "recoquest_home_free_bytes", "Free bytes of the disk with the home folder.", registry=registry
        )
        self._size = Gauge(
            "recoquest_home_disk_bytes", "Size of the disk with the home folder.", registry=registry
        )
        self._workers = Gauge("recoquest_workers", "Running workers.", registry=registry)
        self._jobs = Gauge("recoquest_jobs", "Jobs in the catalogue.", ("state",), registry=registry)
        self._backup = Gauge(
            "recoquest_last_backup_timestamp_seconds",
            "Time of the newest backup; 0 without any.",
            registry=registry,
        )

    def show(self, installation: Installation) -> None:
        """Replace all figures."""
        self._free.set(installation.free_bytes)
        self._size.set(installation.disk_bytes)
        self._workers.set(installation.workers)
        for state in JOB_STATES:
            self._jobs.labels(state).set(installation.jobs.get(state, 0))
        self._backup.set(installation.last_backup or 0)
