"""The settings of docker/compose.production.yml with real processes: service, worker, PostgreSQL, Redis."""

import os
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from app.engine import open_engine
from app.settings import Settings
from index.ingest import ingest_manifest
from index.reindex import generation_for
from tests.e2e.work import COMMAND, Work, service
from tests.index.samples import make_bundle, make_manifest, make_records
from training.models.encoder import load_encoder

pytestmark = pytest.mark.slow

KEY = "a key of at least sixteen letters"
PATIENCE_S = 120


def _generation(client: httpx.Client) -> int:
    answer = client.post("/v1/collections/c/search", json={"text": "two dogs run"})
    assert answer.status_code == 200, answer.text
    number: int = answer.json()["served_by"]["generation"]
    return number


def _wait_for(client: httpx.Client, job: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (found := client.get(job).json())["state"] in ("queued", "running"):
        assert time.monotonic() < deadline, found
        _generation(client)
        time.sleep(0.1)
    assert found["state"] == "done", found


def test_a_job_changes_the_model_while_the_service_answers(
    tmp_path: Path, postgresql_url: str, redis_url: str
) -> None:
    settings = Settings(home=tmp_path / "home", database_url=postgresql_url, device="cpu")
    engine = open_engine(settings)
    manifest = make_manifest(tmp_path / "data", make_records(20))
    first, second = (make_bundle(tmp_path / name, seed=seed, name=name) for seed, name in enumerate("ab"))
    ingest_manifest(engine, "c", load_encoder(first.folder, "cpu"), manifest, show_progress=False)
    new = generation_for(engine, "c", load_encoder(second.folder, "cpu"))
    engine.close()
    shared = {"database_url": postgresql_url, "queue_url": redis_url, "admin_key": KEY, "device": "cpu"}
    environment = {f"RECOQUEST_{name.upper()}": value for name, value in shared.items()}
    worker = subprocess.Popen(
        [*COMMAND, "worker"], cwd=tmp_path, env={**os.environ, "RECOQUEST_HOME": "home", **environment}
    )
    try:
        with service(Work(tmp_path), **shared) as (client, _):
            assert _generation(client) != new.id
            asked = {"kind": "reindex", "collection": "c", "generation": new.id, "activate": True}
            assert client.post("/v1/jobs", json=asked).status_code == 401
            client.headers["authorization"] = f"Bearer {KEY}"
            given = client.post("/v1/jobs", json=asked)
            assert given.status_code == 202, given.text
            _wait_for(client, given.headers["location"])
            assert _generation(client) == new.id
    finally:
        worker.terminate()
        assert worker.wait(timeout=60) in (0, 143, -15)
