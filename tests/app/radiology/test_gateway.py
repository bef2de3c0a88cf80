"""An Orthanc as `deploy/orthanc` configures it: what modalities send to it by DIMSE is indexed."""

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from pydantic import SecretStr

from app.application import create_app
from index.keys.api_keys import Role, create_key
from tests.access import AS_ADMIN
from tests.app.radiology.conftest import FILMS, Home
from tests.browser.service import running
from tests.dicom_films import encoded, make_film, uid
from tests.jobs import Jobs
from tests.needed import needed
from tests.orthanc import OrthancPrograms, OrthancServer, serve_orthanc

DEPLOY: Final = Path(__file__).resolve().parents[3] / "deploy" / "orthanc"
USER: Final = ("recoquest", "change-me")
_SECONDS: Final = 30.0


def _configured(folder: Path, studies: str, key: str, *, note: bool = False) -> dict[str, Any]:
    """The configuration as it is deployed, in a folder of the test and with another service."""
    text: dict[str, Any] = json.loads((DEPLOY / "orthanc.json").read_text(encoding="utf-8"))
    for name in ("StorageDirectory", "IndexDirectory"):
        text[name] = str(folder / "db")
    # Proxies of the test's machine.
    for name in ("HttpPort", "DicomPort", "Plugins"):
        del text[name]
    return {
        **text,
        "LuaScripts": [str(DEPLOY / "recoquest.lua")],
        "StableAge": 1,
        "Recoquest": {"Studies": studies, "Key": key, "Note": note},
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


@contextmanager
def _service(
    home: Home, programs: OrthancPrograms, folder: Path, *roles: Role, forms: Sequence[str] = ()
) -> Iterator[tuple[str, OrthancServer, Jobs]]:
    """A service, the gateway that tells it of its studies, and the service's jobs, whose archive it is."""
    settings = home.settings.model_copy(update={"pacs_sync": f"{FILMS} --modality DX"})
    writing = settings.model_copy(update={"pacs_write_back": forms})
    folder.mkdir()
    with home.engine.home.catalogue.write() as session:
        made = create_key(session, "gateway", {FILMS: frozenset(roles)}, days=1)
    with running(create_app(writing)) as service:
        studies = f"{service}/v1/collections/{FILMS}/studies"
        configured = _configured(folder, studies, made.text, note=bool(forms))
        with serve_orthanc(programs, configured, folder=folder, auth=USER) as gateway:
            user = {"pacs_user": USER[0], "pacs_password": SecretStr(USER[1])}
            archive = settings.model_copy(update={"pacs_url": gateway.dicom_web, **user})
            yield service, gateway, Jobs(archive, home.engine.home.catalogue)


@pytest.mark.slow
def test_what_a_modality_stores_is_indexed_by_a_worker(
    home: Home,
    orthanc_programs: OrthancPrograms,
    storescu: Callable[..., None],
    files: list[Path],
    tmp_path: Path,
) -> None:
    with _service(home, orthanc_programs, tmp_path / "gateway", "curator") as (service, gateway, jobs):
        storescu(gateway, *files)
        queued = _until(lambda: _jobs(service), lambda jobs: len(jobs) == 2)
        assert {(job["kind"], *job["arguments"]) for job in queued} == {
            ("pacs_sync", FILMS, "--modality", "DX", "--study", uid("study", study)) for study in (0, 1)
        }
        assert home.ids() == set()
        with jobs.worker():
            ended = [jobs.wait(job["id"]) for job in queued]
        assert [job.state for job in ended] == ["done", "done"], jobs.log(ended[0].id)
        assert home.ids() == {uid("film", number) for number in range(3)}
        # One job for each study, and no more.
        assert len(_jobs(service)) == 2


@pytest.mark.slow
def test_a_note_comes_into_a_stable_study_once(
    home: Home,
    orthanc_programs: OrthancPrograms,
    storescu: Callable[..., None],
    files: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The worker reads it from the environment.
    monkeypatch.setenv("RECOQUEST_PACS_WRITE_BACK", "capture,report")
    folder, forms = tmp_path / "gateway", ("capture", "report")
    with (
        _service(home, orthanc_programs, folder, "curator", "judge", forms=forms) as (service, gateway, jobs),
        jobs.worker(),
    ):
        storescu(gateway, *files)
        # One job for each study, and one for each that has got a note, which finds it there.
        told = _until(lambda: _jobs(service), lambda jobs: _have_ended(jobs, 3), 6 * _SECONDS)
        log = "\n".join(jobs.log(job["id"]) for job in told)
        assert {job["state"] for job in told} == {"done"}, log
        assert log.count("Note written: 1 of") == 1, log
        assert log.count("No note: ") == 1, log
        assert log.count("The study has its note already.") == 1, log
        assert home.ids() == {uid("film", number) for number in range(3)}
        assert len(gateway.instances()) == len(files) + 2


def _have_ended(jobs: list[Mapping[str, Any]], count: int) -> bool:
    return len(jobs) == count and all(job["ended"] is not None for job in jobs)


@pytest.mark.slow
def test_a_modality_that_calls_another_archive_is_refused(
    orthanc_programs: OrthancPrograms, storescu: Callable[..., None], files: list[Path], tmp_path: Path
) -> None:
    with serve_orthanc(
        orthanc_programs, _configured(tmp_path, "http://127.0.0.1:9", "none"), folder=tmp_path, auth=USER
    ) as gateway:
        with pytest.raises(subprocess.CalledProcessError):
            storescu(gateway, *files, title="ELSEWHERE")
        assert httpx.get(f"{gateway.url}/studies").status_code == 401


def _jobs(service: str) -> list[Mapping[str, Any]]:
    body: list[Mapping[str, Any]] = httpx.get(f"{service}/v1/jobs", headers=AS_ADMIN).json()["jobs"]
    return body


def _until(
    look: Callable[[], list[Mapping[str, Any]]],
    true: Callable[[list[Mapping[str, Any]]], bool],
    seconds: float = _SECONDS,
) -> list[Mapping[str, Any]]:
    """Wait for what a server does by itself."""
    deadline = time.monotonic() + seconds
    while not true(result := look()):
        assert time.monotonic() < deadline, result
        time.sleep(0.1)
    return result
