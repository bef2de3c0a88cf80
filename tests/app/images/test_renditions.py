"""A picture of an image over HTTP: the same as its thumbnail, in a format that the caller takes."""

import asyncio
import io
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from httpx2 import Response
from numpy.typing import NDArray
from PIL import Image

from app.decoding.images import ImageDecoders
from app.edge.admission import Budget
from app.settings import Settings
from index.files.renditions import Rendition
from tests.app.conftest import Indexed, serve
from tests.app.images.test_uploads import IMAGES, problem, put
from tests.index.pictures import smooth_picture
from tests.training.imaging.metadata_files import exif
from training.common.workers import LossReason
from training.imaging.images import decode_image
from training.imaging.processes.pool import DecodeOutcome

Pixels = NDArray[np.uint8]


def saved(image: Image.Image, form: str, **settings: Any) -> bytes:
    content = io.BytesIO()
    image.save(content, form, **settings)
    return content.getvalue()


def film(*, marker: bool = True) -> Image.Image:
    """A film of 12 bits in 16, with a bright marker in a corner."""
    grey = np.asarray(smooth_picture(3, (300, 240)).convert("L")).astype(np.uint16) * 12 + 300
    if marker:
        grey[4:20, 4:20] = 65_535
    return Image.fromarray(grey)


def with_alpha() -> Image.Image:
    image = smooth_picture(9, (180, 140)).convert("RGBA")
    image.putalpha(Image.linear_gradient("L").resize(image.size))
    return image


FILES: dict[str, Callable[[], bytes]] = {
    "film.png": lambda: saved(film(), "PNG"),
    "film.tif": lambda: saved(film(), "TIFF", compression="tiff_lzw"),
    "colours.tif": lambda: saved(smooth_picture(4, (300, 200)), "TIFF"),
    "cmyk.jpg": lambda: saved(smooth_picture(5, (320, 260)).convert("CMYK"), "JPEG", quality=95),
    "alpha.png": lambda: saved(with_alpha(), "PNG"),
    "palette.gif": lambda: saved(smooth_picture(6, (120, 90)).quantize(64, dither=Image.Dither.NONE), "GIF"),
    "turned.jpg": lambda: saved(smooth_picture(7, (320, 200)), "JPEG", exif=exif(6), comment="secret"),
    "tall.png": lambda: saved(Image.linear_gradient("L").resize((2, 17_000)), "PNG"),
}


@pytest.fixture(scope="module")
def client(make_indexed: Callable[..., Indexed]) -> Iterator[TestClient]:
    with serve(make_indexed()) as running:
        for name, make in FILES.items():
            assert put(running, name, make()).status_code == 201
        yield running


def get(client: TestClient, name: str, accept: str | None = "image/png", **query: Any) -> Response:
    headers = {} if accept is None else {"accept": accept}
    answer: Response = client.get(f"{IMAGES}/{name}/rendition", params=query, headers=headers)
    return answer


def pixels(content: bytes) -> Pixels:
    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(image.convert("RGB"))


def opened(answer: Response) -> Image.Image:
    assert answer.status_code == 200, answer.text
    image = Image.open(io.BytesIO(answer.content))
    image.load()
    return image


@pytest.mark.parametrize("name", [name for name in FILES if name != "tall.png"])
def test_a_rendition_shows_what_the_thumbnail_shows(client: TestClient, name: str) -> None:
    small = client.get(f"{IMAGES}/{name}/thumbnail")
    for accept in ("image/png", "image/jpeg", "image/webp"):
        answer = get(client, name, accept, size=256)
        assert answer.headers["content-type"] == accept
        made, shown = pixels(answer.content).astype(int), pixels(small.content).astype(int)
        assert made.shape == shown.shape
        assert np.abs(made - shown).mean() < 5
        # Metadata of the file is in none.
        image = opened(answer)
        assert not image.getexif()
        assert not {"comment", "xmp", "icc_profile"} & set(image.info)


@pytest.mark.parametrize("name", FILES)
def test_a_lossless_rendition_has_the_pixels_that_are_searched(client: TestClient, name: str) -> None:
    body = client.get(f"{IMAGES}/{name}").json()
    image = opened(get(client, name))
    assert image.mode in ("L", "RGB")
    assert image.size == (body["width"], body["height"])
    assert np.array_equal(np.asarray(image.convert("RGB")), np.asarray(decode_image(FILES[name]())))


def levels(client: TestClient, name: str) -> dict[str, Any]:
    answer = client.get(f"{IMAGES}/{name}/levels")
    assert answer.status_code == 200
    body: dict[str, Any] = answer.json()
    return body


@pytest.mark.parametrize("name", ["film.png", "film.tif"])
def test_the_automatic_window_of_a_film_shows_what_no_window_shows(client: TestClient, name: str) -> None:
    result = levels(client, name)
    assert (result["deep"], result["stated"]) == (True, None)
    stored = np.asarray(film())
    assert (result["smallest"], result["largest"]) == (stored.min(), 65_535)
    window = result["automatic"]
    # The marker is beyond it, and around it the film keeps its grey levels.
    assert window["centre"] + window["width"] / 2 < 255 * 12 + 300
    plain = get(client, name)
    same = get(client, name, window=f"{window['centre']},{window['width']}")
    assert np.array_equal(pixels(same.content), pixels(plain.content))
    assert get(client, name, window="auto").content == plain.content
    shown = np.asarray(opened(plain).convert("L"))[30:, 30:]
    assert len(np.unique(shown)) > 150
    assert shown.std() > 40
    # Another window spreads the stored values that it names.
    shown = np.asarray(opened(get(client, name, window="1000,400")).convert("L")).astype(int)
    expected = np.clip((stored.astype(float) - 800) / 400 * 255, 0, 255)
    assert np.abs(shown - expected).max() <= 1


NOTHING = {"deep": False, "smallest": None, "largest": None, "automatic": None, "stated": None}
STATED = {"centre": 1700, "width": 1400}


@pytest.mark.parametrize(
    ("name", "make", "expected"),
    [
        *((name, FILES[name], NOTHING) for name in ("colours.tif", "alpha.png", "turned.jpg", "palette.gif")),
        (
            "stated.tif",
            lambda: saved(film(), "TIFF", tiffinfo={340: 1000, 341: 2400}),
            {"deep": True, "stated": STATED, "automatic": STATED},
        ),
        (
            "flat.png",
            lambda: saved(Image.fromarray(np.full((40, 40), 1000, np.uint16)), "PNG"),
            {**NOTHING, "deep": True, "smallest": 1000, "largest": 1000},
        ),
    ],
)
def test_levels_of_images_of_8_bits_of_a_stated_window_and_of_one_value(
    client: TestClient, name: str, make: Callable[[], bytes], expected: dict[str, Any]
) -> None:
    if name not in FILES:
        put(client, name, make())
    result = levels(client, name)
    assert {field: result[field] for field in expected} == expected
    assert result.keys() == NOTHING.keys()


def test_the_longest_side_is_bounded_and_nothing_is_enlarged(client: TestClient) -> None:
    shapes = {None: (300, 240), 300: (300, 240), 5000: (300, 240), 150: (150, 120), 1: (1, 1)}
    for size, shape in {**shapes, 65_500: (300, 240)}.items():
        query: dict[str, Any] = {} if size is None else {"size": size}
        assert opened(get(client, "film.png", **query)).size == shape
    # Small and large ones show the same.
    for name in ("film.png", "turned.jpg", "cmyk.jpg"):
        large = opened(get(client, name)).convert("RGB")
        small = opened(get(client, name, size=100)).convert("RGB")
        expected = large.resize(small.size, Image.Resampling.LANCZOS)
        assert np.abs(np.asarray(small).astype(int) - np.asarray(expected).astype(int)).mean() < 2


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        (None, "image/jpeg"),
        ("*/*", "image/jpeg"),
        ("image/avif,image/webp,image/apng,image/*,*/*;q=0.8", "image/jpeg"),
        ("image/webp", "image/webp"),
        ("image/png, image/jpeg;q=0.9", "image/png"),
    ],
)
def test_the_format_is_the_one_that_the_caller_likes(
    client: TestClient, accept: str | None, media_type: str
) -> None:
    answer = get(client, "film.png", accept)
    assert answer.headers["content-type"] == media_type
    assert Image.MIME[opened(answer).format or ""] == media_type
    assert answer.headers["vary"] == "Accept"
    assert answer.headers["cache-control"] == "private, no-cache"
    assert "sandbox" in answer.headers["content-security-policy"]
    document = problem(get(client, "film.png", "image/avif, text/html"), 406, "not-acceptable")
    assert document["detail"] == "Accept one of image/jpeg, image/webp, image/png."


def test_a_format_that_cannot_be_so_large_is_passed_over(client: TestClient) -> None:
    assert get(client, "tall.png", "image/webp, image/jpeg;q=0.5").headers["content-type"] == "image/jpeg"
    document = problem(get(client, "tall.png", "image/webp"), 406, "not-acceptable")
    assert "17,000 pixels" in document["detail"]
    assert opened(get(client, "tall.png", "image/webp", size=16_383)).size == (2, 16_383)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("size", wrong) for wrong in ("0", "-1", "65501", "many", "1.5", "", "9" * 400)),
        *(("window", wrong) for wrong in ("", "1", "1,0", "1,-5", "nan,1", "1,inf", "a,b", "1,2,3")),
        ("window", "1e400,1"),
        ("window", f"{'0' * 57}1000,400"),
    ],
)
def test_wrong_values_are_named(client: TestClient, field: str, value: str) -> None:
    document = problem(get(client, "film.png", **{field: value}), 422, "invalid-request")
    assert [error["field"].split(".")[-1] for error in document["errors"]] == [field]


def test_a_current_copy_is_not_made_again(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    first = get(client, "film.png", "image/webp", size=200, window="1000,400")
    etag = first.headers["etag"]
    assert etag.startswith('"')
    application = client.app
    assert isinstance(application, FastAPI)
    made: list[object] = []
    monkeypatch.setattr(application.state.services.images.pool, "submit", made.append)
    address = f"{IMAGES}/film.png/rendition?size=200&window=1000,400"
    for tag in (etag, f'"other", W/{etag}', "*"):
        headers = {"accept": "image/webp", "if-none-match": tag}
        answer = client.get(address, headers=headers)
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", etag)
        assert answer.headers["vary"] == "Accept"
    assert not made


def test_every_other_picture_has_another_etag(client: TestClient) -> None:
    tags = [
        get(client, name, accept, **query).headers["etag"]
        for name in ("film.png", "colours.tif")
        for accept in ("image/png", "image/jpeg")
        for query in ({}, {"size": 64}, {"window": "1000,400"}, {"window": "1000,401"})
    ]
    assert len(set(tags)) == len(tags)
    whole = get(client, "film.png").headers["etag"]
    for same in ({"size": 300}, {"size": 5000}, {"window": "auto"}):
        assert get(client, "film.png", **same).headers["etag"] == whole
    for window in ("1e3,4e2", f"{'0' * 56}1000,400"):
        assert get(client, "film.png", window=window).headers["etag"] in tags


def test_a_damaged_file_is_an_error_that_names_no_path(own: Indexed) -> None:
    for path in (own.settings.home / "images" / "originals").glob("*/*"):
        path.write_bytes(path.read_bytes()[:100])
    with serve(own) as client:
        document = problem(get(client, "image-5"), 500, "image-file-unavailable")
        assert str(own.settings.home) not in str(document)


@pytest.mark.slow
def test_a_picture_that_takes_too_much_is_refused_with_advice(own: Indexed) -> None:
    large = saved(smooth_picture(1, (2400, 1600)).resize((7200, 4800)), "JPEG", quality=60)
    with serve(own) as client:
        assert put(client, "large", large).status_code == 201
    with serve(own, decode_memory_bytes=100 * 2**20) as client:
        document = problem(get(client, "large"), 422, "invalid-request")
        assert document["errors"][0]["field"] == "size"
        assert opened(get(client, "large", size=400)).size == (400, 267)


def test_a_caller_that_has_gone_leaves_the_queue(tmp_path: Path) -> None:
    path = tmp_path / "film"
    path.write_bytes(FILES["film.png"]())
    ended: list[str] = []

    class Observer:
        def decoded(self, outcome: DecodeOutcome) -> None:
            ended.append(outcome)

        def decoder_restarted(self, reason: LossReason) -> None:
            raise AssertionError(reason)

    async def leave() -> None:
        with closing(ImageDecoders(Settings(concurrent_decodes=1), Observer())) as decoders:
            work = [decoders.rendition(path, Rendition("image/png"), 300 * 240) for _ in range(4)]
            tasks = [asyncio.create_task(part) for part in work]
            await asyncio.sleep(0)
            assert decoders.pool.waiting >= 3
            for task in tasks[1:3]:
                task.cancel()
            first, *_, last = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(first, bytearray)
            assert first == last

    asyncio.run(leave())
    assert ended == ["done", "done"]


@pytest.mark.slow
def test_pictures_that_callers_do_not_take_keep_others_waiting(client: TestClient) -> None:
    application = client.app
    assert isinstance(application, FastAPI)
    pictures = application.state.services.stages.pictures
    assert isinstance(pictures, Budget)
    size = application.state.services.settings.max_bodies_bytes
    assert pictures.reserve(size)
    problem(get(client, "film.png"), 429, "too-many-requests")
    pictures.free(size)
    assert get(client, "film.png").status_code == 200
