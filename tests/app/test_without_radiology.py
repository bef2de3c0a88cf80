"""An installation of photographs: none of the code for films, reports and archives is ever imported."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from fastapi.testclient import TestClient

import app.radiology
from app.application import create_app
from app.settings import SettingsError, load_settings
from tests.app.commands import run_command
from tests.app.conftest import COLLECTION, Indexed, serve
from tests.app.images.test_uploads import IMAGES, put
from tests.app.search.test_search import problem_of, search_image, search_like
from tests.dicom_films import encoded, make_film
from training.common.errors import RecoquestError

# What tells the application of radiology, whether or not it is on.
_REGISTERS: Final = {"__init__", "settings", "jobs", "commands"}
RADIOLOGY: Final = (
    *(
        f"app.radiology.{path.stem}"
        for path in Path(app.radiology.__file__).parent.glob("*.py")
        if path.stem not in _REGISTERS
    ),
    *("app.decoding.films", "training.imaging.dicom", "training.clinical.dicom"),
    *("training.importing.dicom", "training.importing.reports"),
    *("training.clinical.reports.hl7", "training.clinical.reports.fhir"),
    *("training.clinical.reports.structured", "training.clinical.reports.study_report"),
    "pydicom",
)
REFUSAL: Final = "DICOM files are not taken here: the setting RECOQUEST_RADIOLOGY=true takes them."
OFF: Final = "This is off here: the setting RECOQUEST_RADIOLOGY=true turns it on."
# Every process of Python that finds this file writes down what it imports of radiology.
_WATCH: Final = """
import sys

def note(event, arguments):
    name = arguments[0] if event == "import" else ""
    if any(name == one or name.startswith(one + ".") for one in {names!r}):
        with open({place!r}, "a") as file:
            print(sys.orig_argv, name, file=file)

sys.addaudithook(note)
"""
_PROCESS: Final = """
import sys
from pathlib import Path

from fastapi.testclient import TestClient

import app.generations.retraining, training.classification.run, training.samples, training.trainer.run
from app.application import create_app
from app.cli.main import build
from app.settings import Settings

folder, home, bundle, data = map(Path, sys.argv[1:])
run = build()

def command(*words):
    run([str(word) for word in words], standalone_mode=False)

settings = Settings(home=home, device="cpu", threads=1, open_reading=True)
key = {"Authorization": "Bearer " + "k" * 16}
image = (data / "images" / "3.png").read_bytes()
command("import", "folder", data / "images", folder / "imported", "--check")
command("index", "more", "--data", folder / "imported", "--bundle", bundle, "--home", home)
with TestClient(create_app(settings), "http://localhost") as client:
    sent = {"image": image, "record": (None, '{"texts": ["a boat at sea"]}')}
    put = client.put("/v1/collections/photos/images/sent", files=sent, headers=key)
    assert put.status_code == 201, put.text
    found = client.post("/v1/collections/photos/search", json={"text": "a boat, no edema"})
    assert found.status_code == 200, found.text
    found = client.post("/v1/collections/photos/search", files={"image": image})
    assert found.status_code == 200, found.text
    for kind in ("", "/thumbnail", "/rendition"):
        assert client.get("/v1/collections/photos/images/sent" + kind).status_code == 200
    film = {"image": (folder / "film.dcm").read_bytes(), "record": (None, "{}")}
    print(client.put("/v1/collections/photos/images/film", files=film, headers=key).text)
    assert client.delete("/v1/collections/photos/images/sent", headers=key).status_code == 200
command("search", "more", "a boat at sea", "--home", home)
command("search", "more", "--image", data / "images" / "3.png", "--home", home)
command("collections", "--home", home)
command("findings", "Small left pleural effusion.")
command("settings")
command("delete", "more", "--filter", '{"field": "id", "eq": "4"}', "--home", home)
command("tidy", "--home", home)
print(*sys.modules)
"""


@pytest.mark.slow
@pytest.mark.parametrize("radiology", [False, True])
def test_photographs_are_served_without_code_for_films(own: Indexed, tmp_path: Path, radiology: bool) -> None:
    imports = tmp_path / "imports.txt"
    (tmp_path / "watch").mkdir()
    (tmp_path / "watch" / "sitecustomize.py").write_text(_WATCH.format(names=RADIOLOGY, place=str(imports)))
    (tmp_path / "film.dcm").write_bytes(encoded(make_film(1)))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(tmp_path / "watch"), *sys.path)),
        "RECOQUEST_ADMIN_KEY": "k" * 16,
        "RECOQUEST_RADIOLOGY": str(radiology).lower(),
    }
    positions = (tmp_path, own.settings.home, own.bundle, own.manifest.folder)
    done = subprocess.run(
        [sys.executable, "-c", _PROCESS, *map(str, positions)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    *_, modules = done.stdout.splitlines()
    loaded = {name for name in modules.split() if any(f"{name}.".startswith(f"{one}.") for one in RADIOLOGY)}
    noted = imports.read_text() if imports.exists() else ""
    assert (REFUSAL in done.stdout) is not radiology
    assert bool(loaded) is radiology, loaded
    # Also the decoding worker's own.
    assert ("app.decoding.worker" in noted) is radiology, noted
    assert bool(noted) is radiology, noted


@pytest.fixture(scope="module")
def client(make_indexed: Callable[..., Indexed]) -> Iterator[TestClient]:
    with serve(make_indexed(radiology=False)) as running:
        yield running


@pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
def test_a_film_is_refused_by_one_sentence(client: TestClient, photometric: str) -> None:
    film = encoded(make_film(2, photometric=photometric))
    for answer in (put(client, "film", film), search_image(client, film)):
        assert problem_of(answer) == (415, "not-an-image")
        assert answer.json()["detail"] == REFUSAL
    assert client.get(f"{IMAGES}/film").status_code == 404


@pytest.mark.slow
def test_films_that_were_indexed_before_stay(make_indexed: Callable[..., Indexed]) -> None:
    home = make_indexed()
    with serve(home) as running:
        assert put(running, "film", encoded(make_film(2))).status_code == 201
    with serve(home, radiology=False) as running:
        for kind in ("", "/thumbnail", "/rendition", "/levels"):
            assert running.get(f"{IMAGES}/film{kind}").status_code == 200
        assert search_like(running, "film").status_code == 200
        assert running.delete(f"{IMAGES}/film").status_code == 200


def test_routes_of_radiology_are_unknown(client: TestClient) -> None:
    here = f"/v1/collections/{COLLECTION}"
    for method, path in (
        ("GET", f"{here}/studies/1.2.840.3/similar"),
        ("GET", "/v1/studies/1.2.840.3/similar"),
        ("POST", f"{here}/studies/1.2.840.3/index"),
        ("POST", f"{here}/studies/1.2.840.3/results"),
        ("POST", f"{here}/dicomweb/studies"),
        ("GET", "/dicomweb/studies"),
        ("GET", "/reading"),
        ("GET", "/viewer/app-config.js"),
    ):
        answer, unknown = client.request(method, path), client.request(method, "/no/such/route")
        assert answer.status_code == unknown.status_code == 404, path
        assert answer.json()["type"] == unknown.json()["type"], path
    paths = create_app(load_settings(radiology=False)).openapi()["paths"]
    assert not [path for path in paths if "studies" in path]
    assert [path for path in create_app(load_settings()).openapi()["paths"] if "studies" in path]


def test_commands_of_radiology_name_the_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOQUEST_RADIOLOGY", "false")
    monkeypatch.setenv("RECOQUEST_HOME", str(tmp_path / "home"))
    imported = ("import", "dicom", tmp_path, tmp_path / "out")
    short = ("pacs sync films", "reports films", "hl7 films", "viewer install")
    for words in (imported, *(words.split() for words in short)):
        with pytest.raises(RecoquestError) as refused:
            run_command(*words)
        assert str(refused.value) == OFF


def test_settings_that_need_it_are_refused_without_it() -> None:
    for name, value in (
        ("pacs_url", "https://pacs.example.org/dicom-web"),
        ("pacs_sync", "films --modality DX"),
        ("pacs_sync_at", "0 3 * * *"),
        ("viewer_url", "https://viewer.example.org/{study}"),
    ):
        given: dict[str, Any] = {name: value}
        load_settings(**given)
        with pytest.raises(SettingsError, match=f"RECOQUEST_{name.upper()} needs RECOQUEST_RADIOLOGY=true"):
            load_settings(radiology=False, **given)


@pytest.mark.parametrize("name", ["film.dcm", "film.png", "film"])
def test_a_folder_with_films_is_indexed_without_them(
    own: Indexed, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("RECOQUEST_RADIOLOGY", "false")
    folder = own.manifest.folder
    (folder / "images" / "3.png").unlink()
    (folder / "images" / name).write_bytes(encoded(make_film(3)))
    manifest = folder / "manifest.jsonl"
    manifest.write_text(manifest.read_text().replace("images/3.png", f"images/{name}"))
    done = own.run("index", "films", "--data", folder, "--bundle", own.bundle)
    assert REFUSAL in " ".join(done.output.split())
