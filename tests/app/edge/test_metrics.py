"""Figures for Prometheus: recall, and the state of the installation."""

import re
import time
from contextlib import closing
from pathlib import Path

from app.edge.metrics import Metrics, read_installation
from app.engine import open_engine
from app.heartbeat import Heartbeat
from app.settings import Settings
from index.backup import write_backup
from index.catalogue.jobs import add_job, cancel_job
from index.vectors.ann import OperatingPoint


def test_recall_is_that_of_the_collections_that_have_codes_now() -> None:
    metrics = Metrics()
    metrics.recalls_measured([("films", "images", OperatingPoint(96, 200, 0.999, 0.9, 900))])
    figures = metrics.render().decode()
    assert 'recoquest_search_recall{collection="films",of="mean",target="images"} 0.999' in figures
    assert 'recoquest_search_recall{collection="films",of="lowest query",target="images"} 0.9' in figures
    metrics.recalls_measured([])
    assert "films" not in metrics.render().decode()


def test_an_installation_shows_its_disk_jobs_workers_and_last_backup(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home")
    with closing(open_engine(settings)) as engine:
        before = read_installation(settings, engine.home.catalogue)
        assert (before.workers, before.jobs, before.last_backup) == (0, {}, None)
        with engine.home.catalogue.write() as session:
            job = add_job(session, "tidy", [])
            add_job(session, "tidy", [])
            cancel_job(session, job.id)
        heartbeat = Heartbeat(settings)
        heartbeat.beat()
        begun = time.time()
        write_backup(engine.home, tmp_path / "backup.tar")
        after = read_installation(settings, engine.home.catalogue)
    assert after.workers == 1
    assert after.jobs == {"queued": 1, "cancelled": 1}
    assert after.last_backup is not None
    assert begun - 1 <= after.last_backup <= time.time()
    assert 0 < after.free_bytes < after.disk_bytes
    metrics = Metrics()
    metrics.installation_read(after)
    figures = metrics.render().decode()
    assert 'recoquest_jobs{state="cancelled"} 1.0' in figures
    assert 'recoquest_jobs{state="failed"} 0.0' in figures
    assert "recoquest_workers 1.0" in figures
    metrics.answered("x", 200, 0.1)
    metrics.encoded("text", 3, 0.1)
    for name, bounds in (
        ("request_seconds", "0.001 0.0025 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1.0 2.5 5.0 10.0 30.0 +Inf"),
        ("encode_batch_size", "1.0 2.0 4.0 8.0 16.0 32.0 64.0 128.0 +Inf"),
    ):
        result = re.findall(rf'recoquest_{name}_bucket{{.*le="(.*?)"', metrics.render().decode())
        assert result == bounds.split()
