"""The doctor says that a sound installation is sound, and names what is wrong with a broken one."""

import contextlib
import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import delete

from app.engine import open_engine
from app.health.doctor import (
    Finding,
    examine,
    examine_indexed,
    examine_jobs,
    examine_retraining,
    examine_versions,
    judge_postgresql,
)
from app.settings import Settings
from index.catalogue.jobs import beat, claim_job
from index.catalogue.tables import EmbeddingRow
from index.ingest import ingest_manifest
from tests.app.commands import run_command
from tests.app.conftest import COLLECTION, make_bundle, make_manifest
from tests.jobs import Jobs
from training.models.encoder import load_encoder


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    engine = open_engine(Settings(home=folder / "home"))
    manifest = make_manifest(folder / "data", images=12)
    ingest_manifest(engine, COLLECTION, load_encoder(make_bundle(folder / "bundle", seed=0), "cpu"), manifest)
    engine.close()
    return folder / "home"


@pytest.fixture
def home(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "home"))


def states(home: Path) -> dict[str, str]:
    return {finding.subject: finding.state for finding in examine(Settings(home=home, device="cpu"))}


def test_a_sound_installation(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.health.doctor.free_memory", lambda: 2 << 30)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5 << 30))
    every = list(examine(Settings(home=home, device="cpu")))
    assert {one.state for one in every} == {"ok"}
    messages = {one.subject: one.found for one in every}
    assert messages["memory"].startswith("2.0 GiB free, ")
    (encoder,) = home.glob("bundles/*")
    assert list(messages.items())[-7:] == [
        ("home", f"{home} can be written, 5.0 GiB free"),
        ("catalogue", f"sqlite:///{home / 'catalogue.sqlite3'}"),
        ("jobs", "0 running, 0 waiting"),
        ("retraining", "workers retrain nothing by themselves"),
        (f"collection {COLLECTION}", "12 images by tiny-0"),
        ("images", "12 files are there, 12 of them were read"),
        ("encoder tiny-0", f"{encoder.name[:12]} embeds"),
    ]


def _originals(home: Path) -> list[Path]:
    return sorted((home / "images/originals").glob("*/*"))


def _lose_an_image(home: Path) -> None:
    _originals(home)[0].unlink()


def _spoil_an_image(home: Path) -> None:
    with _originals(home)[0].open("ab") as file:
        file.write(b"x")


def _lose_an_encoder(home: Path) -> None:
    shutil.rmtree(home / "bundles")


def _spoil_an_encoder(home: Path) -> None:
    (weights,) = home.glob("bundles/*/model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")


def _spoil_the_catalogue(home: Path) -> None:
    path = home / "catalogue.sqlite3"
    content = bytearray(path.read_bytes())
    # Behind the first pages, which say what there is.
    content[len(content) // 2 : len(content) // 2 + 8192] = b"\xff" * 8192
    path.write_bytes(content)


def _no_catalogue(home: Path) -> None:
    (home / "catalogue.sqlite3").write_text("this is no database, however long one looks at it")


@pytest.mark.parametrize(
    ("damage", "subject"),
    [
        (_lose_an_image, "images"),
        (_spoil_an_image, "images"),
        (_lose_an_encoder, "encoder tiny-0"),
        (_spoil_an_encoder, "encoder tiny-0"),
        (_spoil_the_catalogue, "catalogue"),
        (_no_catalogue, "catalogue"),
    ],
)
def test_what_is_broken_is_named(home: Path, damage: Callable[[Path], None], subject: str) -> None:
    damage(home)
    result = states(home)
    assert {name for name, state in result.items() if state == "wrong"} == {subject}


def test_images_without_vectors_are_counted(home: Path) -> None:
    with (
        contextlib.closing(open_engine(Settings(home=home))) as engine,
        engine.home.catalogue.write() as session,
    ):
        session.execute(delete(EmbeddingRow).where(EmbeddingRow.image_id <= 3))
    (finding,) = [one for one in examine(Settings(home=home)) if one.subject == f"collection {COLLECTION}"]
    advice = "run `recoquest reindex` for it again."
    assert (finding.state, finding.found) == ("doubtful", f"3 of 12 images have no vector: {advice}")


def test_the_command_ends_with_one_where_something_is_wrong(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RECOQUEST_PROT", "RECOQUEST_PORT", "RECOQUEST_DEBUG"):
        monkeypatch.setenv(name, "1")
    slip = (
        "?? settings: RECOQUEST_PROT (for RECOQUEST_PORT?): "
        "not a setting, and without effect: mend the name or remove it"
    )
    assert slip in run_command("doctor", home=home).stdout
    _lose_an_image(home)
    printed = run_command("doctor", "--json", home=home, code=1).stdout
    results = {finding["subject"]: finding for finding in json.loads(printed)}
    assert results["images"]["state"] == "wrong"
    assert "1 of 12 files are missing" in results["images"]["found"]


def test_nothing_is_made_where_nothing_is(tmp_path: Path) -> None:
    assert "wrong" not in states(tmp_path / "nowhere").values()
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("below", ["", "deep/home"])
def test_a_home_that_is_a_file_is_wrong_and_nothing_is_said_of_indexing(tmp_path: Path, below: str) -> None:
    file = tmp_path / "file"
    file.write_text("no folder")
    results = [one for one in examine(Settings(home=file / below, device="cpu")) if one.state != "ok"]
    messages = {one.subject: (one.state, one.found) for one in results}
    assert messages["home"] == ("wrong", f"{file} is a file, not a folder: name another with --home.")
    assert "catalogue" not in messages
    url = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    states = {one.subject: one.state for one in examine(Settings(home=file / below, database_url=url))}
    assert (states["home"], states["catalogue"]) == ("wrong", "wrong")


def test_what_is_no_database_comes_with_what_to_do(home: Path) -> None:
    _no_catalogue(home)
    message = _of_catalogue(Settings(home=home))
    assert message.endswith(
        "file is not a database: restore a backup into an empty home folder, or name another with --home."
    )
    message = _of_catalogue(Settings(home=home, database_url=f"sqlite:///{home / 'catalogue.sqlite3'}"))
    assert message.endswith("into an empty home folder, or mend RECOQUEST_DATABASE_URL.")


@pytest.mark.parametrize(
    ("address", "reason"), [("h:port", "the port is not a number"), ("127.0.0.1:1", "Connection refused")]
)
def test_a_database_that_cannot_be_reached_comes_with_what_to_do(
    tmp_path: Path, address: str, reason: str
) -> None:
    pytest.importorskip("psycopg")
    url = f"postgresql+psycopg://u:secret@{address}/db"
    message = _of_catalogue(Settings(home=tmp_path, database_url=url))
    assert message.endswith(f"{reason}: mend RECOQUEST_DATABASE_URL, or start that database.")
    assert "secret" not in message


@pytest.mark.parametrize(
    ("revision", "advice"),
    [
        ("9999", "update recoquest, or give the address of another catalogue."),
        ("0014", "index your data again in a new home."),
    ],
)
def test_a_catalogue_of_another_schema_says_itself_what_to_do(home: Path, revision: str, advice: str) -> None:
    file = home / "catalogue.sqlite3"
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
    message = _of_catalogue(Settings(home=home, database_url=f"sqlite:///{file}"))
    assert message.endswith(f": {advice}")


def _of_catalogue(settings: Settings) -> str:
    (result,) = examine_indexed(settings)
    assert (result.subject, result.state) == ("catalogue", "wrong")
    return result.found


def test_a_device_that_does_not_compute_is_told_of_with_what_to_do(tmp_path: Path) -> None:
    # A device of torch that takes tensors and has no values, as a GPU whose driver is too old has none.
    (result,) = [
        one for one in examine(Settings(home=tmp_path / "nowhere", device="meta")) if one.subject == "device"
    ]
    assert result.state == "wrong"
    assert result.found.startswith("meta does not compute: ")
    assert result.found.endswith(": give --device cpu, or cuda where there is a GPU.")


def _examined(folder: Path, monkeypatch: pytest.MonkeyPatch, *requirements: str) -> Finding:
    """What is found where recoquest says that it needs this, found before what it says in truth."""
    described = folder / "recoquest-9.9.dist-info" / "METADATA"
    described.parent.mkdir()
    extras = ("one", "other")
    lines = [
        "Metadata-Version: 2.1",
        "Name: recoquest",
        "Version: 9.9",
        *(f"Provides-Extra: {each}" for each in extras),
        *(f"Requires-Dist: {each}" for each in requirements),
    ]
    described.write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(folder)
    return examine_versions()


@pytest.mark.parametrize(
    ("requirements", "state", "expected"),
    [
        (
            ["kornia<0.2,>=0.1", "numpy>=1", 'SQLAlchemy[asyncio]<1; extra == "one"'],
            "doubtful",
            f"kornia {version('kornia')} (<0.2,>=0.1 is needed), SQLAlchemy {version('sqlalchemy')} "
            "(<1 is needed): run `pip install 'kornia<0.2,>=0.1' 'SQLAlchemy<1'`.",
        ),
        (
            ["no-such-package>=2"],
            "wrong",
            "no-such-package is not installed (>=2 is needed): run `pip install 'no-such-package>=2'`.",
        ),
    ],
)
def test_what_is_outside_its_range_or_missing_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requirements: list[str], state: str, expected: str
) -> None:
    examined = _examined(tmp_path, monkeypatch, *requirements)
    assert (examined.subject, examined.state, examined.found) == ("versions", state, expected)


def test_what_is_in_its_range_is_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = _examined(
        tmp_path,
        monkeypatch,
        f"torch=={version('torch').partition('+')[0]}",
        "kornia>=0.1",
        "pytest<1; python_version < '3'",
        # Of an extra that is not installed nothing is asked.
        "pytest<1; extra == 'other'",
        "no-such-package; extra == 'other'",
    )
    assert result.state == "ok"
    assert f"recoquest 9.9, torch {version('torch')}" in result.found
    assert "faiss-" in result.found


@pytest.mark.parametrize(
    ("message", "state"), [("12.22", "wrong"), ("13.0", "ok"), ("15.14 (Debian 15.14-0+deb12u1)", "ok")]
)
def test_a_database_server_that_is_too_old_is_told_of(message: str, state: str) -> None:
    result = judge_postgresql("postgresql://db/x", message)
    assert (result.subject, result.state, f"PostgreSQL {message}" in result.found) == (
        "catalogue",
        state,
        True,
    )
    assert ("use PostgreSQL 13 or newer" in result.found) == (state == "wrong")


@pytest.mark.slow
def test_the_version_of_a_real_database_server_is_read(postgresql_url: str, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", database_url=postgresql_url)
    (result,) = [one for one in examine_indexed(settings) if one.subject == "catalogue"]
    assert (result.state, bool(re.search(r", PostgreSQL \d+\.\d+", result.found))) == ("ok", True)


def test_jobs_without_a_worker_are_told_of(jobs: Jobs) -> None:
    assert examine_jobs(jobs.catalogue).found == "0 running, 0 waiting"
    first, _ = jobs.give("tidy"), jobs.give("tidy")
    waiting = examine_jobs(jobs.catalogue, watch_s=0.5)
    message = ", and no worker sent a heartbeat for 0 seconds: run `recoquest worker` with the settings of"
    assert waiting.state == "doubtful"
    assert waiting.found.startswith(f"0 running, 2 waiting{message}")
    with jobs.catalogue.write() as session:
        claim_job(session, first, "a worker that is gone")
        beat(session, first, "a worker that is gone", None)
    silent = examine_jobs(jobs.catalogue, watch_s=0.5)
    assert (silent.state, silent.found.startswith(f"1 running, 1 waiting{message}")) == ("doubtful", True)


@pytest.mark.parametrize(
    ("values", "state", "message"),
    [
        ({}, "ok", "workers retrain nothing by themselves"),
        ({"retrain": ("a", "b"), "retrain_at": "0 3 * * 0"}, "ok", "workers retrain a, b by themselves"),
        ({"retrain": ("a",), "retrain_feedback": 5}, "ok", "workers retrain a by themselves"),
        ({"retrain": ("a", "c"), "retrain_feedback": 5}, "doubtful", "names c, which is no collection"),
        ({"retrain": ("a",)}, "doubtful", "set RECOQUEST_RETRAIN_AT or RECOQUEST_RETRAIN_FEEDBACK"),
        ({"retrain_feedback": 5}, "doubtful", "name the collections in RECOQUEST_RETRAIN"),
        ({"retrain_at": "0 3 * * 0"}, "doubtful", "name the collections in RECOQUEST_RETRAIN"),
    ],
)
def test_retraining_that_never_happens_is_told_of(
    tmp_path: Path, values: dict[str, Any], state: str, message: str
) -> None:
    result = examine_retraining(Settings(home=tmp_path, **values), ["b", "a"])
    assert (result.state, message in result.found) == (state, True)


def test_a_retraining_of_a_renamed_collection_is_told_with_its_new_name(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, retrain=("old",), retrain_at="0 3 * * 0")
    result = examine_retraining(settings, ["new"], {"old": "new"})
    assert (result.state, "old (called new now)" in result.found) == ("doubtful", True)


@pytest.mark.slow
def test_a_worker_that_takes_a_job_is_seen(jobs: Jobs) -> None:
    number = jobs.give("tidy")
    with jobs.worker():
        seen = examine_jobs(jobs.catalogue, watch_s=120)
        jobs.wait(number)
    assert (seen.state, seen.found) == ("ok", "0 running, 1 waiting; a worker is at work")
    results = {finding.subject: finding for finding in examine(jobs.settings)}
    assert (results["jobs"].state, results["jobs"].found) == ("ok", "0 running, 0 waiting")
