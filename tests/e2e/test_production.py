"""Service and worker by the settings of docker/compose.production.yml, on PostgreSQL."""

import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import URL

from app.engine import open_engine
from app.settings import PREFIX, Settings
from index.generations.reindex import generation_for
from tests.docker.compose import merged_services
from tests.e2e.work import COMMAND, FURTHER, TINY, Work, service
from tests.index.samples import make_bundle
from tests.postgresql import PostgresqlServer
from training.models.encoder import load_encoder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

KEY = "a key of at least sixteen letters"
PASSWORD = "letters0and1digits"
PATIENCE_S = 600


@dataclass(frozen=True)
class Production:
    """The services of the compose files, with the addresses of this machine's servers in their secrets."""

    service: dict[str, Any]
    worker: dict[str, Any]

    def settings(self, home: Path) -> Settings:
        """Those of the service, with its volume elsewhere."""
        files = self.service["environment"].items()
        values = {
            name.removeprefix(PREFIX).removesuffix("_FILE").lower(): Path(path).read_text("utf-8").strip()
            for name, path in files
        }
        return Settings.model_validate({"home": home, **values})


@pytest.fixture
def production(
    postgresql: PostgresqlServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Production]:
    services = merged_services("production")
    database = services["postgres"]["environment"]
    owner = (database["POSTGRES_USER"], PASSWORD, database["POSTGRES_DB"])
    url = URL.create(
        "postgresql+psycopg", *owner[:2], database=owner[2], query={"host": str(postgresql.folder)}
    )
    secrets = tmp_path_factory.mktemp("secrets")
    given = {"database-url": url.render_as_string(hide_password=False), "admin-key": KEY}
    for name, value in given.items():
        (secrets / name).write_text(f"{value}\n")
    with postgresql.owned(*owner):
        for name in ("recoquest", "worker"):
            environment = services[name]["environment"]
            for variable, path in environment.items():
                environment[variable] = str(secrets / path.removeprefix("/run/secrets/"))
        yield Production(services["recoquest"], services["worker"])


@pytest.fixture
def work(production: Production, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Work:
    """Images in the catalogue, by commands as they run in a container beside the service."""
    work = Work(tmp_path)
    sets = [part for setting in TINY for part in ("--set", setting)]
    for name, value in production.service["environment"].items():
        monkeypatch.setenv(name, value)
    work.run("sample-data", "samples", "--images", 60)
    work.run("train", "demo-scenes", "--data", work.data, "--out", "first", *sets)
    work.run("index", "c", "--bundle", "first/bundle", "--data", work.data)
    return work


def _generation(client: httpx.Client) -> int:
    answer = client.post("/v1/collections/c/search", json={"text": "two dogs run"})
    assert answer.status_code == 200, answer.text
    number: int = answer.json()["served_by"]["generation"]
    return number


def _wait_for(client: httpx.Client, job: str) -> dict[str, Any]:
    """A job that is done; until then the service answers searches."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := client.get(job).json())["state"] in ("queued", "running"):
        assert time.monotonic() < deadline, found
        _generation(client)
        time.sleep(0.1)
    assert found["state"] == "done", found
    return dict(found)


def test_jobs_train_and_change_the_model_while_the_service_answers(
    production: Production, work: Work, tmp_path: Path
) -> None:
    environment = {**os.environ, "RECOQUEST_HOME": "home", **production.worker["environment"]}
    worker = subprocess.Popen([*COMMAND, *production.worker["command"]], cwd=tmp_path, env=environment)
    try:
        with service(work, admin_key=KEY, admin_key_file="") as (client, _):
            first = _generation(client)
            assert httpx.post(client.base_url.join("/v1/jobs"), json={"kind": "tidy"}).status_code == 401
            given = work.run("jobs", "start", "retrain", "c", "--gain", -1000, "--promote", *FURTHER)
            retrained = _wait_for(client, f"/v1/jobs/{given.stdout.strip()}")["result"]
            assert retrained["verdict"] == "waiting"
            place = f"/v1/collections/c/generations/{retrained['generation']}/activate"
            assert client.post(place).status_code == 200
            assert _generation(client) == retrained["generation"] != first

            asked = _reindexing(production.settings(tmp_path / "home"), tmp_path / "other")
            given_over_http = client.post("/v1/jobs", json=asked)
            assert given_over_http.status_code == 202, given_over_http.text
            _wait_for(client, given_over_http.headers["location"])
            assert _generation(client) == asked["generation"]
    finally:
        worker.terminate()
        assert worker.wait(timeout=60) in (0, 143, -15)
    assert not list((tmp_path / "home").glob("*.sqlite3")), "the production settings still write SQLite"


def _reindexing(settings: Settings, folder: Path) -> dict[str, Any]:
    """A job that swaps to another model."""
    engine = open_engine(settings)
    try:
        new = generation_for(
            engine.home, "c", load_encoder(make_bundle(folder, seed=1, name="other").folder, "cpu")
        )
    finally:
        engine.close()
    return {"kind": "reindex", "collection": "c", "generation": new.id, "activate": True}
