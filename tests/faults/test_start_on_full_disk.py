"""A service that starts on a disk without space: it searches, and writes once there is some."""

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.application import create_app
from app.engine import open_engine
from app.health.doctor import examine_home
from app.settings import Settings
from index.backup import write, write_backup
from index.errors import DiskFullError
from tests.access import AS_ADMIN, OPEN
from tests.app.conftest import COLLECTION, LOCAL, Indexed, make_bundle, make_manifest
from tests.app.images.test_uploads import picture, put
from tests.faults.disks import fill


@pytest.fixture
def home(disk: Path, tmp_path: Path) -> Indexed:
    """A home folder on the small disk, of a service that was stopped cleanly."""
    indexed = Indexed(
        Settings(home=disk / "home", threads=1, device="cpu", **OPEN),
        make_manifest(tmp_path / "data", images=12),
        make_bundle(tmp_path / "bundle", seed=0),
    )
    indexed.index(COLLECTION, indexed.bundle)
    with serve(indexed):
        pass
    return indexed


def serve(home: Indexed) -> TestClient:
    return TestClient(
        create_app(home.settings),
        "http://127.0.0.1",
        raise_server_exceptions=False,
        client=LOCAL,
        headers=AS_ADMIN,
    )


def forget_log(home: Indexed) -> None:
    """Leave nothing beside the catalogue, as in a folder that was copied by its files."""
    for file in home.settings.home.glob("catalogue.sqlite3-*"):
        file.unlink()


@pytest.mark.parametrize(
    ("log_is_there", "free"), [(True, 0), pytest.param(False, 40 << 10, marks=pytest.mark.slow)]
)
def test_a_service_starts_and_searches_and_writes_once_there_is_space(
    disk: Path, home: Indexed, log_is_there: bool, free: int
) -> None:
    if not log_is_there:
        forget_log(home)
    filler = fill(disk, free)
    job = {"kind": "retrain", "collection": COLLECTION}
    # As the command does, for a sentence where it cannot be opened.
    open_engine(home.settings).close()
    with serve(home) as client:
        found = client.post(f"/v1/collections/{COLLECTION}/search", json={"text": "two dogs", "limit": 3})
        assert (found.status_code, len(found.json()["hits"])) == (200, 3)
        assert client.get("/readyz").status_code == 200
        assert client.get("/v1/jobs").json()["jobs"] == []
        fill(disk)
        for refused in (put(client, "late", picture(1, (200, 200))), client.post("/v1/jobs", json=job)):
            assert (refused.status_code, refused.json()["title"]) == (507, "The disk is full")
        filler.unlink()
        assert put(client, "late", picture(1)).status_code == 201
        assert client.post("/v1/jobs", json=job).status_code == 202
        assert [job["state"] for job in client.get("/v1/jobs").json()["jobs"]] == ["queued"]


def test_a_catalogue_that_has_no_space_to_be_read_says_so(disk: Path, home: Indexed) -> None:
    forget_log(home)
    filler = fill(disk)
    with pytest.raises(DiskFullError, match="cannot be used: the disk is full; free some space there"):
        open_engine(home.settings)
    filler.unlink()
    open_engine(home.settings).close()


@pytest.mark.slow
def test_the_doctor_advises_space(disk: Path, home: Indexed) -> None:
    fill(disk)
    finding = examine_home(home.settings)
    said = f"{home.settings.home} cannot be written: the disk is full; free some space there"
    assert (finding.state, said in finding.found) == ("wrong", True), finding


@pytest.mark.parametrize("step", ["open_catalogue", pytest.param("_add_files", marks=pytest.mark.slow)])
def test_a_backup_that_has_no_space_names_the_backup(
    disk: Path, home: Indexed, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    take = getattr(write, step)

    def take_on_full_disk(*given: Any) -> Any:
        fill(disk)
        return take(*given)

    monkeypatch.setattr(write, step, take_on_full_disk)
    engine = open_engine(home.settings)
    with pytest.raises(DiskFullError, match=r"disk/b\.tar cannot be written: the disk is full; free some"):
        write_backup(engine.home, disk / "b.tar", show_progress=False)
    engine.close()
    assert {path.name for path in disk.iterdir()} == {"home", "filler"}
