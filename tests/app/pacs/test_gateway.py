"""An Orthanc as `deploy/orthanc` configures it: what modalities send to it by DIMSE is taken over."""

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from app.application import create_app
from app.pacs.dicomweb.archive import Access, Archive
from tests.access import ADMIN_KEY, AS_ADMIN
from tests.app.pacs.conftest import COLLECTION, Home
from tests.browser.service import running
from tests.dicom_films import encoded, make_film, uid
from tests.needed import needed
from tests.orthanc import OrthancPrograms, OrthancServer, serve_orthanc

DEPLOY: Final = Path(__file__).resolve().parents[3] / "deploy" / "orthanc"
USER: Final = ("recoquest", "change-me")
_SECONDS: Final = 30.0


def _configured(folder: Path, jobs: str) -> dict[str, Any]:
    """The configuration as it is deployed, in a folder of the test and with another service."""
    found: dict[str, Any] = json.loads((DEPLOY / "orthanc.json").read_text(encoding="utf-8"))
    for name in ("StorageDirectory", "IndexDirectory"):
        found[name] = str(folder / "db")
    # Proxies of the test's machine.
    for name in ("HttpPort", "DicomPort", "Plugins"):
        del found[name]
    return {
        **found,
        "LuaScripts": [str(DEPLOY / "recoquest.lua")],
        "StableAge": 1,
        "Recoquest": {"Jobs": jobs, "Key": ADMIN_KEY},
    }


@pytest.fixture
def storescu() -> Callable[..., None]:
    """Sends films as a modality does."""
    program = needed(shutil.which("storescu"), "storescu", "`apt-get install dcmtk` brings it")

    def send(server: OrthancServer, *files: Path, title: str = "GATEWAY") -> None:
        order = [program, "-aet", "MODALITY", "-aec", title, "127.0.0.1", str(server.dicom_port)]
        subprocess.run([*order, *files], check=True, capture_output=True)

    return send


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = []
    for number in range(3):
        paths.append(tmp_path / f"{number}.dcm")
        paths[-1].write_bytes(encoded(make_film(number, study=number // 2)))
    return paths


@pytest.mark.slow
def test_what_a_modality_stores_starts_a_job_and_is_taken_over(
    films: Home,
    orthanc_programs: OrthancPrograms,
    storescu: Callable[..., None],
    files: list[Path],
    tmp_path: Path,
) -> None:
    settings = films.settings.model_copy(update={"pacs_sync": f"{COLLECTION} --modality DX"})
    folder = tmp_path / "gateway"
    folder.mkdir()
    with (
        running(create_app(settings)) as service,
        serve_orthanc(
            orthanc_programs, _configured(folder, f"{service}/v1/jobs"), folder=folder, auth=USER
        ) as gateway,
    ):
        sync = films.sync(Archive(gateway.dicom_web, Access(*USER)))
        assert sync.run().found == 0
        storescu(gateway, *files)
        report = sync.run()
        assert (report.studies, report.taken) == (2, 3)
        assert films.ids() == {uid("film", number) for number in range(3)}
        jobs = _until(lambda: _jobs(service))
    assert {(job["kind"], *job["arguments"]) for job in jobs} == {
        ("pacs_sync", COLLECTION, "--modality", "DX")
    }
    # A waiting job brings over films that came after it was queued.
    assert len(jobs) == 1


def test_a_modality_that_calls_another_archive_is_refused(
    orthanc_programs: OrthancPrograms, storescu: Callable[..., None], files: list[Path], tmp_path: Path
) -> None:
    with serve_orthanc(
        orthanc_programs, _configured(tmp_path, "http://127.0.0.1:9"), folder=tmp_path, auth=USER
    ) as gateway:
        with pytest.raises(subprocess.CalledProcessError):
            storescu(gateway, *files, title="ELSEWHERE")
        assert httpx.get(f"{gateway.url}/studies").status_code == 401


def _jobs(service: str) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = httpx.get(f"{service}/v1/jobs", headers=AS_ADMIN).json()["jobs"]
    return found


def _until(look: Callable[[], list[Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """Wait for what a server does by itself."""
    deadline = time.monotonic() + _SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found
