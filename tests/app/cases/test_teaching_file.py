"""Teaching files: nothing in the zip names a film or a person, and it is whole or known not to be."""

import csv
import io
import json
import shutil
import subprocess
import tracemalloc
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from PIL import Image
from structlog.testing import capture_logs

from app.cases.teaching_file import teaching_file
from app.images import renditions
from app.services import Services
from index.cases import read_list
from index.catalogue.images import StoredImage
from index.writes.live import remove_images
from tests.app.conftest import COLLECTION, Indexed, serve
from training.common.manifest import read_manifest, write_manifest
from training.imaging.processes.pool import DecodersBusyError

HERE = f"/v1/collections/{COLLECTION}"
EXPORT = f"{HERE}/cases/taught/export"
MARKERS = ("1.2.826.77", "aabbccdd", "2024-03", "Zimmermann", "ACME-4711")


def films(home: Indexed) -> Indexed:
    """The home with images that have the metadata of films, of two patients and one unknown."""
    records = list(home.manifest.records)
    patients: list[tuple[str | None, str, dict[str, str | int]]] = [
        ("aabbccdd00000001", "2024-03-11", {"age": 63, "sex": "F", "laterality": "L"}),
        ("aabbccdd00000002", "2024-03-01", {"age": 90, "sex": "M", "view": "AP", "body_part": "CHEST"}),
        ("aabbccdd00000001", "2024-03-01", {"view": "Zimmermann, Dr."}),
        (None, "2024-03-05", {"manufacturer": "ACME-4711", "modality": "DX"}),
    ]
    for position, (patient, date, more) in enumerate(patients):
        uid = f"1.2.826.77.{position}"
        metadata: dict[str, Any] = {
            "study": uid, "series": f"{uid}.1", "sop": f"{uid}.1.1", "accession": "aabbccdd99999999",
            "date": date, **more, **({"patient": patient} if patient else {}),
        }  # fmt: skip
        records[position] = replace(
            records[position], id=f"{uid}.1.1", group=patient, metadata=metadata, report="No pneumothorax."
        )
    write_manifest(home.manifest.folder, records)
    again = Indexed(home.settings, read_manifest(home.manifest.folder), home.bundle)
    again.index(COLLECTION, home.bundle)
    return again


@pytest.fixture
def home(own: Indexed) -> Indexed:
    return films(own)


@pytest.fixture
def service(home: Indexed) -> Iterator[TestClient]:
    with serve(home) as running:
        yield running


def save(service: TestClient, *cases: tuple[str, str]) -> None:
    assert service.put(f"{HERE}/cases/taught", json={"name": "Pneumothorax"}).status_code == 201
    for image, note in cases:
        answer = service.put(f"{HERE}/cases/taught/images/{image}", json={"note": note})
        assert answer.status_code == 200, answer.text


def opened(content: bytes) -> tuple[zipfile.ZipFile, list[dict[str, str]]]:
    archive = zipfile.ZipFile(io.BytesIO(content))
    assert archive.testzip() is None
    return archive, list(csv.DictReader(io.StringIO(archive.read("cases.csv").decode("utf-8-sig"))))


def film(position: int) -> str:
    return f"1.2.826.77.{position}.1.1"


def test_a_teaching_file_teaches_and_identifies_nothing(service: TestClient, tmp_path: Path) -> None:
    save(service, *((film(position), f"note {position}") for position in range(4)))
    answer = service.get(EXPORT)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/zip"
    assert answer.headers["cache-control"] == "no-store"
    archive, rows = opened(answer.content)
    assert [(row["number"], row["patient"], row["days"]) for row in rows] == [
        ("1", "1", "10"), ("2", "2", "0"), ("3", "1", "0"), ("4", "", ""),
    ]  # fmt: skip
    assert [row["age"] for row in rows] == ["60-69", "90+", "", ""]
    assert [row["sex"] for row in rows] == ["F", "M", "", ""]
    # A text that is no code may say anything.
    assert [row["view"] for row in rows] == ["", "AP", "", ""]
    cells = ("1", "images/0001.png", "1", "10", "", "L", "60-69", "F", "", "", "pneumothorax: absent")
    assert tuple(rows[0].values()) == (*cells, "No pneumothorax.", "note 0")
    assert (rows[1]["body_part"], rows[3]["modality"]) == ("CHEST", "DX")
    assert {row["report"] for row in rows} == {"No pneumothorax."}
    assert [row["note"] for row in rows] == [f"note {position}" for position in range(4)]
    for row in rows:
        picture = Image.open(io.BytesIO(archive.read(row["file"])))
        picture.load()
        assert (picture.format, picture.mode, picture.info) == ("PNG", "RGB", {})
    readme = archive.read("README.txt").decode()
    assert readme.startswith("Teaching file: Pneumothorax\n\nimages/    4 pictures of 8 bits")
    assert "no diagnostic device" in readme
    assert {one.date_time for one in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert archive.namelist() == [f"images/{n:04}.png" for n in range(1, 5)] + ["cases.csv", "README.txt"]
    body = service.get(f"{HERE}/images/{film(0)}").json()
    hidden = [*MARKERS, body["sha256"]] if "sha256" in body else [*MARKERS]
    for content in (answer.content, *(archive.read(name) for name in archive.namelist())):
        for marker in hidden:
            assert marker.encode() not in content
    if shutil.which("unzip"):
        (tmp_path / "file.zip").write_bytes(answer.content)
        subprocess.run(["unzip", "-tq", tmp_path / "file.zip"], check=True, stdout=subprocess.DEVNULL)


def test_no_cell_is_a_formula_and_signs_of_other_alphabets_stay(service: TestClient) -> None:
    notes = [
        '=HYPERLINK("http://x")',
        " +1",
        "-2",
        "@SUM(A1)",
        "\uff1d1+1",
        'ärgerlich, "quoted"\nsecond line',
    ]
    save(service, *((f"image-{index + 8}", note) for index, note in enumerate(notes)))
    _, rows = opened(service.get(EXPORT).content)
    assert [row["note"] for row in rows] == [
        '\'=HYPERLINK("http://x")', "'+1", "'-2", "'@SUM(A1)", "'\uff1d1+1", notes[-1],
    ]  # fmt: skip


def test_an_empty_list_is_an_empty_table(service: TestClient) -> None:
    save(service)
    archive, rows = opened(service.get(EXPORT).content)
    assert rows == []
    assert archive.namelist() == ["cases.csv", "README.txt"]


def test_an_image_that_goes_meanwhile_is_left_out_and_counted(
    service: TestClient, home: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(service, *((f"image-{position}", f"note {position}") for position in range(8, 12)))
    with home.engine() as engine:
        engine.home.store.path(engine.image(COLLECTION, "image-10").sha256).unlink()

        async def making(services: Any, image: StoredImage, rendition: Any) -> bytes:
            if image.id == "image-8":
                remove_images(engine.home, COLLECTION, ["image-9"])
            return await renditions.make(services, image, rendition)

        monkeypatch.setattr("app.cases.teaching_file.make", making)
        answer = service.get(EXPORT)
    archive, rows = opened(answer.content)
    assert [(row["file"], row["note"]) for row in rows] == [
        ("images/0001.png", "note 8"),
        ("images/0002.png", "note 11"),
    ]
    readme = archive.read("README.txt").decode()
    assert "1 image of the list was removed meanwhile." in readme
    assert "1 image of the list cannot be read." in readme


def test_a_file_that_cannot_be_finished_is_known_for_it(
    service: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service ends the connection: a client that reads the length or the directory sees that."""
    save(service, *((f"image-{position}", "") for position in (8, 9)))
    tried: list[int] = []

    async def making(services: Any, image: StoredImage, rendition: Any) -> bytes:
        if image.id == "image-9":
            tried.append(0)
            raise DecodersBusyError("full")
        return await renditions.make(services, image, rendition)

    monkeypatch.setattr("app.cases.teaching_file.make", making)
    monkeypatch.setattr("app.cases.teaching_file._PAUSE_S", 0.0)
    with capture_logs() as lines:
        answer = service.get(EXPORT)
    assert not zipfile.is_zipfile(io.BytesIO(answer.content))
    assert [line["reason"] for line in lines if "reason" in line] == ["DecodersBusyError"]
    assert len(tried) == 5
    monkeypatch.setattr("app.cases.teaching_file.make", failing)
    refused = service.get(EXPORT)
    assert refused.status_code == 429
    assert json.loads(refused.content)["type"] == "urn:recoquest:too-many-requests"
    room: Any = service.app
    monkeypatch.setattr("app.cases.teaching_file.make", renditions.make)
    monkeypatch.setattr("app.cases.teaching_file._ROOM_PAUSE_S", 0.0)
    looks = iter([False] * 9 + [True] + [False] * 11)
    monkeypatch.setattr(room.state.services.stages.pictures, "reserve", lambda _: next(looks))
    assert not zipfile.is_zipfile(io.BytesIO(service.get(EXPORT).content))
    assert list(looks) == [False]


async def failing(services: Any, image: StoredImage, rendition: Any) -> bytes:
    raise DecodersBusyError("full")


@pytest.mark.slow
def test_five_hundred_films_take_the_memory_of_a_few(
    service: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pictures of a megabyte each, 500 of them, of which none is kept once it is on its way."""
    save(service, ("image-8", "note"))
    running: Any = service.app
    services: Services = running.state.services
    with services.engine.home.catalogue.read() as session:
        _, entries = read_list(session, COLLECTION, "taught")

    async def making(services: Any, image: StoredImage, rendition: Any) -> bytes:
        return bytes(1 << 20)

    async def read_all() -> tuple[int, int]:
        size, peak = 0, 0
        async for content in teaching_file(services, COLLECTION, "Many", entries * 500):
            size += len(content)
            peak = max(peak, tracemalloc.get_traced_memory()[0])
        return size, peak

    monkeypatch.setattr("app.cases.teaching_file.make", making)
    assert service.portal is not None
    tracemalloc.start()
    try:
        size, peak = service.portal.call(read_all)
    finally:
        tracemalloc.stop()
    assert size > 500 << 20
    assert peak < 16 << 20
