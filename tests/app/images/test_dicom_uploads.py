"""DICOM films over HTTP: as queries and uploads, with windows, and without what they say of anybody."""

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pydicom
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from tests.app.conftest import Indexed, serve
from tests.app.images.test_writes import IMAGES, nearest, put
from tests.app.search.test_search import search_image
from tests.dicom_films import MARKER, draw, encoded, make_film
from training.imaging.images import decode_image

CENTRE, WIDTH = 1500.0, 2000.0


@pytest.fixture(scope="module")
def client(make_indexed: Callable[..., Indexed]) -> Iterator[TestClient]:
    with serve(make_indexed()) as running:
        for number, photometric in ((1, "MONOCHROME2"), (2, "MONOCHROME1")):
            assert put(running, f"film-{number}", film(number, photometric)).status_code == 201
        yield running


def film(number: int, photometric: str = "MONOCHROME2") -> bytes:
    return encoded(make_film(number, rows=120, columns=100, photometric=photometric))


def grey(content: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(content)).convert("L")).astype(float)


def test_an_uploaded_film_is_kept_and_shown(client: TestClient) -> None:
    known = client.get(f"{IMAGES}/film-1").json()
    assert (known["media_type"], known["width"], known["height"]) == ("application/dicom", 100, 120)
    shown = client.get(f"{IMAGES}/film-1/rendition", headers={"accept": "image/png"})
    assert np.array_equal(grey(shown.content), np.asarray(decode_image(film(1)).convert("L")))
    thumbnail = client.get(f"{IMAGES}/film-1/thumbnail")
    assert thumbnail.headers["content-type"] == "image/webp"
    assert np.corrcoef(grey(thumbnail.content).ravel(), draw(1, 120, 100).ravel())[0, 1] > 0.99


def test_a_negative_is_stored_as_it_came_and_never_shown(client: TestClient) -> None:
    for what in ("rendition", "thumbnail"):
        shown = grey(client.get(f"{IMAGES}/film-2/{what}").content)
        assert np.corrcoef(shown.ravel(), draw(2, 120, 100).ravel())[0, 1] > 0.99


@pytest.mark.parametrize("number", [1, 2])
def test_a_film_finds_itself(client: TestClient, number: int) -> None:
    for photometric in ("MONOCHROME1", "MONOCHROME2"):
        hit = nearest(client, film(number, photometric))
        assert (hit["id"], hit["score"] > 0.999) == (f"film-{number}", True)


def test_a_window_counts_values_of_the_film_and_its_own_is_told(client: TestClient) -> None:
    levels = client.get(f"{IMAGES}/film-1/levels").json()
    values = draw(1, 120, 100)
    assert (levels["deep"], levels["smallest"], levels["largest"]) == (True, values.min(), values.max())
    assert levels["automatic"] == levels["stated"] == {"centre": 2047.5, "width": 4095.0}
    asked = {"window": f"{CENTRE},{WIDTH}"}
    shown = client.get(f"{IMAGES}/film-1/rendition", params=asked, headers={"accept": "image/png"})
    expected = ((values - (CENTRE - WIDTH / 2)) / WIDTH).clip(0, 1) * 255
    assert np.abs(grey(shown.content) - expected).max() <= 1


def test_what_a_film_says_of_anybody_is_handed_out_by_no_address(client: TestClient) -> None:
    assert MARKER.encode() in film(1)
    content = client.get(f"{IMAGES}/film-1/content")
    assert content.headers["content-type"] == "application/dicom"
    assert not pydicom.dcmread(io.BytesIO(content.content)).get("PatientID")
    answers = [
        content,
        client.get(f"{IMAGES}/film-1"),
        search_image(client, film(1)),
        put(client, "again", film(1)),
    ]
    cut = put(client, "cut", film(1)[:-200])
    assert cut.status_code == 415
    assert "The DICOM image is damaged" in cut.text
    for answer in (*answers, cut):
        assert MARKER.encode() not in answer.content


def test_nothing_of_it_is_on_the_disk(own: Indexed) -> None:
    with serve(own) as client:
        assert put(client, "film", film(3)).status_code == 201
        assert search_image(client, film(3)).status_code == 200
    files = [path for path in Path(own.settings.home).rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if MARKER.encode() in path.read_bytes()]


def test_what_is_no_picture_is_refused_with_its_name(client: TestClient) -> None:
    report = make_film(5, PixelData=None, SOPClassUID="1.2.840.10008.5.1.4.1.1.88.33")
    for answer in (put(client, "report", encoded(report)), search_image(client, encoded(report))):
        assert "The DICOM file has no pixels: it is Comprehensive SR Storage." in answer.text
    huge = make_film(6, Rows=60_000, Columns=60_000)
    answer = search_image(client, encoded(huge))
    assert answer.status_code in (413, 422)
    assert "3,600 megapixels" in json.dumps(answer.json())
