"""A service whose disk, database or home fails: nothing is left behind, and it says so in true words."""

import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import Connection, create_engine, select, text

from app.engine import open_engine
from app.health.doctor import examine
from app.settings import Settings
from index.catalogue import open_catalogue
from index.catalogue.tables import ImageRow, OrphanRow, TextEmbeddingRow
from index.errors import DiskFullError, StoreWriteError
from tests.app.conftest import COLLECTION, Indexed, serve
from tests.app.images.test_uploads import IMAGES, files_of, nearest, picture, post, problem, put
from tests.e2e.work import run_here
from tests.frozen import frozen_writer

_PUT = "index.files.image_store.ImageStore.put"


@pytest.mark.parametrize(
    ("broken", "error", "status", "slug", "message"),
    [
        (_PUT, DiskFullError("full"), 507, "disk-full", "nothing was written"),
        (_PUT, StoreWriteError("Permission denied"), 500, "file-not-written", "does not take a file"),
        # The files are in the store by then.
        ("index.writes.live.keep_files", DiskFullError("full"), 507, "disk-full", "nothing was written"),
    ],
)
def test_a_disk_that_takes_nothing_refuses_writes_leaves_nothing_and_lets_searches_be(
    local: TestClient,
    on_either: Indexed,
    monkeypatch: pytest.MonkeyPatch,
    broken: str,
    error: Exception,
    status: int,
    slug: str,
    message: str,
) -> None:
    before = files_of(on_either)
    late = f"{slug}-{broken}"

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(broken, fail)
        batch = post(local, [{"id": late}, {"id": "l2"}], [picture(41), picture(42)])
        for answer in (put(local, late, picture(40)), batch):
            assert message in problem(answer, status, slug)["detail"]
        assert nearest(local, picture(40))["id"] != late
    assert files_of(on_either) == before
    with on_either.read() as session:
        assert session.execute(select(OrphanRow.sha256)).scalars().all() == []
        # Every text of every image has its vector.
        assert session.execute(select(TextEmbeddingRow.text_id)).first() is not None
        assert session.execute(select(ImageRow.id)).first() is not None
    for name in (late, "l2"):
        assert local.get(f"{IMAGES}/{name}").status_code == 404
    assert put(local, late, picture(40)).status_code == 201
    assert local.delete(f"{IMAGES}/{late}").status_code == 200


def test_a_catalogue_is_said_to_be_unwritable_or_unreadable_as_it_is(own: Indexed) -> None:
    with serve(own) as service, sqlite3.connect(own.settings.home / "catalogue.sqlite3") as other:
        other.execute("DROP TABLE loose_files")
        document = problem(put(service, "late", picture(44)), 503, "catalogue-unavailable")
        assert document["title"] == "The catalogue cannot be written"
        assert "read" not in document["detail"]
        assert nearest(service, picture(44))["id"] != "late"
        other.execute("ALTER TABLE images RENAME TO lost")
        document = problem(service.get(f"{IMAGES}/image-1"), 503, "catalogue-unavailable")
        assert document["title"] == "The catalogue cannot be read"


def test_writes_are_refused_and_reads_go_on_until_it_goes_on(
    own: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.engine._LOCK_SECONDS", 0.3)
    image = f"/v1/collections/{COLLECTION}/images/{own.manifest.records[0].id}"
    search = f"/v1/collections/{COLLECTION}/search"
    with ExitStack() as frozen:
        frozen.enter_context(frozen_writer(own.settings.home / "catalogue.sqlite3"))
        with serve(own) as client:
            assert client.get("/readyz").status_code == 200
            for _ in range(3):
                refused = client.delete(image)
                problem(refused, 503, "catalogue-busy")
                assert refused.headers["retry-after"] == "2"
                assert client.post(search, json={"text": "two dogs"}).status_code == 200
                assert client.get(image).status_code == 200
            frozen.close()
            assert client.delete(image).is_success
            assert client.get(image).status_code == 404


SEARCH = {"text": "two dogs"}
AT_WORK = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid()"


def _falls_quiet(connection: Connection) -> bool:
    """Say whether no other connection is at work at some moment of the next seconds.

    Args:
        connection: In autocommit, as a transaction sees the activity of its first look only.
    """
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        if connection.execute(text(AT_WORK)).scalar_one() == 0:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
def test_a_read_that_takes_too_long_is_cut_off_and_nothing_goes_on_in_the_server(
    make_indexed: Callable[..., Indexed], postgresql_url: str
) -> None:
    indexed = make_indexed(database_url=postgresql_url, database_timeout_s=1.0)
    path = f"/v1/collections/{COLLECTION}/search"
    with (
        serve(indexed, key=False) as client,
        create_engine(postgresql_url).connect() as other,
        create_engine(postgresql_url, isolation_level="AUTOCOMMIT").connect() as observer,
    ):
        assert client.post(path, json=SEARCH).status_code == 200
        # Ids are not kept in memory as other fields are: the search reads them in the database.
        asked = SEARCH | {"filter": {"field": "id", "eq": "nothing"}}
        # Every read of images waits for this transaction.
        other.execute(text("LOCK TABLE images IN ACCESS EXCLUSIVE MODE"))
        answer = client.post(path, json=asked)
        problem(answer, 504, "catalogue-timeout")
        assert answer.headers["retry-after"] == "2"
        # The service reads fields into memory behind its start; it waits as well, and is cut off as well.
        assert _falls_quiet(observer)
        other.rollback()
        assert client.post(path, json=asked).status_code == 200


def recoquest(home: Path, *words: str, code: int = 0) -> str:
    """Run a command; return what it says on standard error."""
    done = run_here([*words, "--home", str(home)])
    assert done.returncode == code
    return done.stderr


def test_a_home_that_is_moved_makes_a_service_unready_and_refuse_writes_until_it_is_back(
    own: Indexed,
) -> None:
    home, image = own.settings.home, f"/v1/collections/{COLLECTION}/images/{own.manifest.records[0].id}"
    away = home.with_name("away")
    with serve(own, readiness_cache_s=0.0) as client:
        assert client.get("/readyz").json()["checks"]["home"] == "ok"
        home.rename(away)
        unready = client.get("/readyz")
        assert unready.status_code == 503
        assert "home: was moved or replaced" in unready.json()["detail"]
        refused = client.delete(image)
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:recoquest:home-moved")
        assert str(home) not in refused.text
        # Without an open connection, the catalogue has gone with its home.
        application = client.app
        assert isinstance(application, FastAPI)
        application.state.services.engine.home.catalogue._engine.dispose()
        gone = client.get("/readyz").json()["detail"]
        assert "home: was moved or replaced" in gone
        assert "catalogue: cannot be read" in gone
        refused = client.delete(image)
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:recoquest:home-moved")
        away.rename(home)
        assert client.get("/readyz").status_code == 200
        assert client.delete(image).is_success


def test_images_whose_catalogue_is_lost_are_not_served_and_the_doctor_says_what_to_do(
    own: Indexed, tmp_path: Path
) -> None:
    home, backup = own.settings.home, str(tmp_path / "backup.tar")
    recoquest(home, "backup", backup)
    for file in home.glob("catalogue.sqlite3*"):
        file.unlink()
    _, sentence = recoquest(home, "serve", "--port", "0", code=1).strip().splitlines()
    assert "is empty, and" in sentence
    assert "`recoquest restore`" in sentence
    wrong = [one for one in examine(Settings(home=home, device="cpu")) if one.state == "wrong"]
    assert [one.subject for one in wrong] == ["home and catalogue"]
    assert "has images of another one: bring that one back" in wrong[0].found
    # The way out that both name.
    recoquest(home, "restore", backup)
    assert "wrong" not in {one.state for one in examine(Settings(home=home, device="cpu"))}


def test_a_catalogue_whose_home_is_not_mounted_is_not_served(
    own: Indexed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue = tmp_path / "catalogue.sqlite3"
    shutil.copy(own.settings.home / catalogue.name, catalogue)
    monkeypatch.setenv("RECOQUEST_DATABASE_URL", f"sqlite:///{catalogue}")
    for command in (["serve", "--port", "0"], ["collections"]):
        message = recoquest(tmp_path / "unmounted", *command, code=1)
        assert "has images, and no file of them is in" in message
    assert not list((tmp_path / "unmounted").iterdir())


def test_a_new_home_is_for_its_user_alone_and_others_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(mode=0o755)
    for name, mode in (("new", 0o700), ("shared", (tmp_path / "shared").stat().st_mode & 0o777)):
        open_engine(Settings(home=tmp_path / name, device="cpu")).close()
        assert (tmp_path / name).stat().st_mode & 0o777 == mode
    open_catalogue(f"sqlite:///{tmp_path / 'database' / 'catalogue.sqlite3'}").close()
    assert (tmp_path / "database").stat().st_mode & 0o777 == 0o700
