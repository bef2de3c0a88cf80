"""A home folder that is not the catalogue's, as the service, its start and the doctor see it."""

import shutil
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.application import create_app
from app.cli.main import run
from app.engine import open_engine
from app.health.doctor import examine
from app.settings import Settings
from index.catalogue import open_catalogue
from tests.access import AS_ADMIN
from tests.app.conftest import COLLECTION, Indexed

LOCAL = ("127.0.0.1", 50_000)


def recoquest(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    monkeypatch.setattr("sys.argv", ["recoquest", *arguments])
    with pytest.raises(SystemExit) as ended:
        run()
    return ended.value.code


def lose_the_catalogue(home: Path) -> None:
    for file in home.glob("catalogue.sqlite3*"):
        file.unlink()


def test_a_home_that_is_moved_makes_a_service_unready_and_refuse_writes_until_it_is_back(
    own: Indexed,
) -> None:
    settings = own.settings.model_copy(update={"readiness_cache_s": 0.0})
    image = f"/v1/collections/{COLLECTION}/images/{own.manifest.records[0].id}"
    away = settings.home.with_name("away")
    with TestClient(
        create_app(settings),
        "http://127.0.0.1",
        raise_server_exceptions=False,
        client=LOCAL,
        headers=AS_ADMIN,
    ) as client:
        assert client.get("/readyz").json()["checks"]["home"] == "ok"
        settings.home.rename(away)
        unready = client.get("/readyz")
        assert unready.status_code == 503
        assert "home: was moved or replaced" in unready.json()["detail"]
        refused = client.delete(image)
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:recoquest:home-moved")
        assert str(settings.home) not in refused.text
        # Without an open connection, the catalogue has gone with its home.
        application = client.app
        assert isinstance(application, FastAPI)
        application.state.services.engine.home.catalogue._engine.dispose()
        gone = client.get("/readyz").json()["detail"]
        assert "home: was moved or replaced" in gone
        assert "catalogue: cannot be read" in gone
        refused = client.delete(image)
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:recoquest:home-moved")
        away.rename(settings.home)
        assert client.get("/readyz").status_code == 200
        assert client.delete(image).is_success


def test_images_whose_catalogue_is_lost_are_not_served_and_the_doctor_says_what_to_do(
    own: Indexed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home, backup = own.settings.home, str(tmp_path / "backup.tar")
    assert recoquest(monkeypatch, "backup", backup, "--home", str(home)) == 0
    lose_the_catalogue(home)
    capsys.readouterr()
    assert recoquest(monkeypatch, "serve", "--home", str(home), "--port", "0") == 1
    _, sentence = capsys.readouterr().err.strip().splitlines()
    assert "is empty, and" in sentence
    assert "`recoquest restore`" in sentence
    wrong = [one for one in examine(Settings(home=home, device="cpu")) if one.state == "wrong"]
    assert [one.subject for one in wrong] == ["home and catalogue"]
    assert "has images of another one: bring that one back" in wrong[0].found
    # The way out that both name.
    assert recoquest(monkeypatch, "restore", backup, "--home", str(home)) == 0
    assert "wrong" not in {one.state for one in examine(Settings(home=home, device="cpu"))}


def test_a_catalogue_whose_home_is_not_mounted_is_not_served(
    own: Indexed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    catalogue = tmp_path / "catalogue.sqlite3"
    shutil.copy(own.settings.home / catalogue.name, catalogue)
    monkeypatch.setenv("RECOQUEST_DATABASE_URL", f"sqlite:///{catalogue}")
    for command in (["serve", "--port", "0"], ["collections"]):
        assert recoquest(monkeypatch, *command, "--home", str(tmp_path / "unmounted")) == 1
        assert "has images, and no file of them is in" in capsys.readouterr().err
    assert not list((tmp_path / "unmounted").iterdir())


def test_a_new_home_is_for_its_user_alone_and_others_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(mode=0o755)
    for name, mode in (("new", 0o700), ("shared", (tmp_path / "shared").stat().st_mode & 0o777)):
        open_engine(Settings(home=tmp_path / name, device="cpu")).close()
        assert (tmp_path / name).stat().st_mode & 0o777 == mode
    open_catalogue(f"sqlite:///{tmp_path / 'database' / 'catalogue.sqlite3'}").close()
    assert (tmp_path / "database").stat().st_mode & 0o777 == 0o700
