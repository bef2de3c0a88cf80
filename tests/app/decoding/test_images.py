"""Images of callers: decoded as coroutines ask, in every form, and hostile ones at nobody else's cost."""

import asyncio
import gc
import io
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families

from app.decoding.images import ImageDecoders, PreparedImage
from app.settings import Settings
from tests.access import OPEN
from tests.app.conftest import COLLECTION, Indexed, make_bundle, serve
from tests.app.images.test_uploads import nearest, picture, post, put, statuses
from tests.app.search.test_search import problem_of, search_image
from tests.image_files import encoded
from tests.image_form import ImageForm
from tests.image_formats import IMAGE_FORMS
from tests.image_quadrants import LOSSY, differs_by
from tests.training.data.hostile import deep_png, jpeg_with, png_chunk, png_with, rle_bmp, segment, slow_bmp
from tests.training.imaging.processes.decoding import (
    FILES,
    cpu_ticks,
    is_at_work,
    is_there,
    noise,
    small,
    wait_until,
)
from training.common.errors import ImageError, ImageTooLargeError
from training.common.manifest import Record, read_manifest, write_manifest
from training.imaging.images import decode_image
from training.imaging.processes.pool import DecodersBusyError, DecodingPool, DecodingTimeoutError
from training.models.config import ImagePreprocessingConfig
from training.models.image_input import to_pixels

CONFIG = ImagePreprocessingConfig(size=24)


@pytest.fixture
def decoders() -> Iterator[ImageDecoders]:
    settings = Settings(concurrent_decodes=2, encode_queue_size=4, encode_deadline_s=30.0)
    with closing(ImageDecoders(settings)) as made:
        wait_until(lambda: len(made.pool.pids) == 2)
        yield made


def stopped(pool: DecodingPool, count: int = 2) -> list[int]:
    """Stop the decoders of a pool once there are so many, and return their processes."""
    wait_until(lambda: len(pool.pids) == count)
    pids = pool.pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    return pids


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"resize_to": 30},
        {"resize": "shortest_edge"},
        {"resize": "squash"},
        {"resize": "pad"},
        {"resize": "shortest_edge", "resize_to": 30, "filter": "bilinear"},
    ],
)
def test_the_pixels_of_a_query_are_those_of_an_import(
    decoders: ImageDecoders, change: dict[str, object]
) -> None:
    config = CONFIG.model_copy(update=change)
    for content in FILES.values():
        pixels = asyncio.run(decoders.decode_query(content, config)).pixels
        expected = to_pixels(decode_image(content), config)
        assert (pixels.dtype, pixels.shape, pixels.flags.c_contiguous) == (expected.dtype, (3, 24, 24), True)
        assert np.array_equal(pixels, expected)


def test_the_file_of_a_stored_image_is_decoded_as_a_query(decoders: ImageDecoders, tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
        sent = asyncio.run(decoders.decode_query(content, CONFIG))
        stored = asyncio.run(decoders.decode_query(tmp_path / name, CONFIG))
        assert np.array_equal(stored.pixels, sent.pixels)
        assert stored.picture == sent.picture == decode_image(content).size


def test_a_thumbnail_is_made_of_a_file(decoders: ImageDecoders, tmp_path: Path) -> None:
    path = tmp_path / "picture"
    path.write_bytes(encoded(Image.new("RGB", (600, 300)), "PNG"))
    with Image.open(io.BytesIO(decoders.thumbnail(path))) as image:
        assert (image.format, image.size) == ("WEBP", (256, 128))


def test_an_upload_has_the_size_that_it_is_shown_at(decoders: ImageDecoders) -> None:
    upload = asyncio.run(decoders.decode_upload(FILES["turned"], CONFIG))
    assert (upload.media_type, upload.width, upload.height) == ("image/jpeg", 70, 90)
    assert upload.pixels.shape == (3, 24, 24)


def test_a_large_jpeg_is_decoded_at_the_scale_that_its_encoder_takes(decoders: ImageDecoders) -> None:
    content = encoded(noise(801, 600).convert("RGB"), "JPEG")
    scaled = CONFIG.model_copy(update={"scaled_decoding": True})
    whole = asyncio.run(decoders.decode_upload(content, CONFIG))
    upload = asyncio.run(decoders.decode_upload(content, scaled))
    expected = to_pixels(decode_image(content, min_side=48), scaled)
    assert np.array_equal(upload.pixels, expected)
    assert not np.array_equal(upload.pixels, whole.pixels)
    assert (upload.width, upload.height) == (whole.width, whole.height) == (801, 600)


@pytest.mark.usefixtures("stops_last")
def test_a_file_of_no_format_is_refused_without_a_process(decoders: ImageDecoders) -> None:
    stopped(decoders.pool)
    with pytest.raises(ImageError, match="is not an image"):
        asyncio.run(decoders.decode_query(b"hello", CONFIG))
    with pytest.raises(ImageTooLargeError, match="the limit is"):
        asyncio.run(decoders.decode_query(small() + bytes(21 * 2**20), CONFIG))


@pytest.mark.usefixtures("stops_last")
@pytest.mark.anyio
async def test_callers_that_leave_free_no_slot(decoders: ImageDecoders) -> None:
    pids = stopped(decoders.pool)

    async def come(number: int) -> list[asyncio.Task[PreparedImage]]:
        tasks = [asyncio.create_task(decoders.decode_query(small(), CONFIG)) for _ in range(number)]
        await asyncio.sleep(0)
        return tasks

    tasks = await come(2)
    wait_until(lambda: decoders.pool.busy == 2)
    tasks += await come(4)
    assert decoders.pool.waiting == 4
    with pytest.raises(DecodersBusyError):
        await decoders.decode_query(small(), CONFIG)
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task
    # Those that wait make room; those at work do not.
    (last,) = await come(1)
    await asyncio.sleep(0.2)
    assert (decoders.pool.busy, decoders.pool.waiting, decoders.pool.pids) == (2, 1, pids)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    assert (await last).pixels.shape == (3, 24, 24)


@pytest.mark.usefixtures("stops_last")
def test_a_deadline_frees_a_slot_only_with_its_process() -> None:
    with closing(ImageDecoders(Settings(concurrent_decodes=1, encode_deadline_s=0.5))) as decoders:
        pids = stopped(decoders.pool, 1)
        with pytest.raises(DecodingTimeoutError):
            asyncio.run(decoders.decode_query(small(), CONFIG))
        wait_until(lambda: decoders.pool.busy == 0)
        wait_until(lambda: decoders.pool.pids not in ([], pids))


@pytest.mark.usefixtures("stops_last")
@pytest.mark.slow
@pytest.mark.anyio
async def test_images_of_an_upload_wait_for_each_other_beyond_the_deadline_of_a_search() -> None:
    settings = Settings(concurrent_decodes=1, encode_queue_size=4, encode_deadline_s=2.0)
    with closing(ImageDecoders(settings)) as decoders:
        (pid,) = stopped(decoders.pool, 1)
        upload = asyncio.create_task(decoders.decode_upload(small(), CONFIG))
        await asyncio.sleep(3.0)
        assert not upload.done()
        os.kill(pid, signal.SIGCONT)
        assert (await upload).pixels.shape == (3, 24, 24)


PATIENCE = 60.0

_LOADED = """
import sys
import app.decoding.worker
print("\\n".join(sys.modules))
"""

_PARENT = """
import time
from app.decoding.images import WORKER
from training.imaging.processes.pool import DecodingPool, PoolLimits

pool = DecodingPool(PoolLimits(WORKER, 2, 4, 60.0, 1 << 29))
while len(pool.pids) < 2:
    time.sleep(0.01)
print(*pool.pids, flush=True)
time.sleep(60)
"""


def test_it_loads_neither_torch_nor_the_service() -> None:
    command = [sys.executable, "-c", _LOADED]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout
    names = {name.split(".")[0] for name in loaded.split()}
    assert {"PIL", "numpy"} <= names
    assert not names & {"torch", "fastapi", "pydantic", "sqlalchemy", "transformers", "faiss"}


def test_it_is_killed_with_the_service() -> None:
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
        parent.kill()
    wait_until(lambda: not any(is_there(pid) for pid in pids))


# Every form is decoded by quick tests of `training`: here all ways of some.
NUMBERED = [
    pytest.param(number, form, id=form.name, marks=() if number % 4 == 0 else pytest.mark.slow)
    for number, form in enumerate(IMAGE_FORMS)
]
ALIKE = 0.9999


@dataclass(frozen=True)
class Served:
    """A service whose collection has every form by import."""

    client: TestClient
    decoders: ImageDecoders


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("forms")
    records = []
    for number, form in enumerate(IMAGE_FORMS):
        (folder / f"{number}.bin").write_bytes(form.make())
        records.append(Record(id=f"imported-{number}", image=f"{number}.bin", split="test"))
    write_manifest(folder, records)
    home = indexed_in(folder)
    with closing(ImageDecoders(home.settings)) as decoders, serve(home) as client:
        wait_until(lambda: bool(decoders.pool.pids))
        yield Served(client, decoders)


def indexed_in(folder: Path, **settings: Any) -> Indexed:
    """A home in a folder, with a collection of the images of its manifest."""
    home_settings = Settings(home=folder / "home", threads=1, device="cpu", **OPEN, **settings)
    home = Indexed(home_settings, read_manifest(folder), make_bundle(folder / "bundle", seed=0))
    home.index(COLLECTION, home.bundle)
    with home.engine() as engine:
        assert engine.collection(COLLECTION).count == len(home.manifest.records)
    return home


def shown(client: TestClient, image_id: str, kind: str) -> Image.Image:
    path = f"/v1/collections/{COLLECTION}/images/{image_id}/{kind}"
    answer = client.get(path, headers={"accept": "image/png"})
    assert answer.status_code == 200, answer.text
    return Image.open(io.BytesIO(answer.content)).convert("RGB")


@pytest.mark.parametrize(("number", "form"), NUMBERED)
def test_uploads_queries_imports_thumbnails_and_renditions_show_one_picture(
    served: Served, number: int, form: ImageForm
) -> None:
    content = form.make()
    assert put(served.client, f"uploaded-{number}", content).json()["status"] == "created"
    for image_id in (f"imported-{number}", f"uploaded-{number}"):
        hit = nearest(served.client, content, filter={"field": "id", "eq": image_id})
        assert (hit["id"], hit["score"] > ALIKE) == (image_id, True)
        for kind, tolerance in (("thumbnail", form.tolerance + LOSSY), ("rendition", form.tolerance)):
            assert differs_by(shown(served.client, image_id, kind), form.quadrants) <= tolerance
    config = ImagePreprocessingConfig(size=32)
    pixels = asyncio.run(served.decoders.decode_query(content, config)).pixels
    assert np.array_equal(pixels, to_pixels(decode_image(content), config))


def ids_with(client: TestClient, field: str) -> set[str]:
    query: dict[str, Any] = {"limit": 50, "filter": {"field": field, "eq": True}}
    answer = search_image(client, encoded(Image.new("RGB", (9, 9)), "PNG"), **query)
    assert answer.status_code == 200, answer.text
    return {hit["id"] for hit in answer.json()["hits"]}


def test_flags_are_fields_that_go_with_the_picture(tmp_path: Path) -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 90, 3), dtype=np.uint8))
    blank = encoded(Image.new("RGB", (60, 50), "teal"), "PNG")
    whole = encoded(noise, "JPEG")
    (tmp_path / "blank.png").write_bytes(blank)
    (tmp_path / "noise.jpg").write_bytes(whole)
    records = [Record(id=path, image=path, split="test") for path in ("blank.png", "noise.jpg")]
    write_manifest(tmp_path, records)
    with serve(indexed_in(tmp_path, accept_truncated_images=True)) as client:
        assert ids_with(client, "image.blank") == {"blank.png"}
        counted = client.post(f"/v1/collections/{COLLECTION}/facets", json={"field": "image.blank"}).json()
        counts = {value["value"]: value["count"] for value in counted["fields"][0]["values"]}
        assert counts == {True: 1, False: 1}
        assert counted["fields"][0]["distinct"] == 2
        put(client, "sent", blank)
        put(client, "cut", whole[: len(whole) // 2])
        assert ids_with(client, "image.blank") == {"blank.png", "sent"}
        assert ids_with(client, "image.truncated") == {"cut"}
        path = f"/v1/collections/{COLLECTION}/images"
        changes: dict[str, Any] = {"metadata": {"age": 3}}
        assert client.patch(f"{path}/sent", json=changes).status_code == 200
        assert ids_with(client, "image.blank") == {"blank.png", "sent"}
        put(client, "sent", whole, {"metadata": {"age": 4}})
        assert ids_with(client, "image.blank") == {"blank.png"}
        refused = client.patch(f"{path}/sent", json={"metadata": {"image.blank": True}})
        assert refused.status_code == 422
        assert "a flag that recoquest sets" in refused.text


IMAGE = f"/v1/collections/{COLLECTION}/images/image-3"
TOO_LARGE = (413, "image-too-large")
LATE = (504, "encoding-timeout")

HOSTILE = {
    "bmp": rle_bmp(50_000_000, 1, b"\1\1\0\0"),
    "jpeg": jpeg_with(segment(0xE1, b"Exif\0\0" + bytes(30)) * 20_000),
    "png": png_with(png_chunk(b"teSt") * 200_000),
    "memory": deep_png(),
}


@pytest.fixture
def home(make_indexed: Callable[..., Indexed]) -> Indexed:
    return make_indexed(decode_memory_bytes=200 * 2**20)


@pytest.fixture
def client(home: Indexed) -> Iterator[TestClient]:
    with serve(home) as running:
        yield running


def decoders_of(client: TestClient) -> ImageDecoders:
    application = client.app
    assert isinstance(application, FastAPI)
    result = application.state.services.images
    assert isinstance(result, ImageDecoders)
    return result


def counted(client: TestClient, name: str) -> dict[str, float]:
    """Values of a counter by its only label."""
    families = text_string_to_metric_families(client.get("/metrics").text)
    samples = [sample for family in families for sample in family.samples if sample.name == f"{name}_total"]
    return {next(iter(sample.labels.values())): sample.value for sample in samples}


@pytest.mark.slow
def test_hostile_queries_are_refused_and_the_next_is_answered(client: TestClient) -> None:
    for content in HOSTILE.values():
        assert problem_of(search_image(client, content)) == TOO_LARGE
    assert search_image(client, picture(1)).status_code == 200
    assert counted(client, "recoquest_decodes") == {"too-large": 3, "memory": 1, "done": 1}
    # The next query need not have waited for the process that left.
    wait_until(lambda: counted(client, "recoquest_decoder_restarts") == {"memory": 1})


@pytest.mark.slow
def test_one_bad_image_among_good_ones_is_refused_alone(client: TestClient) -> None:
    names = ["good", *HOSTILE, "none", "also-good"]
    files = [picture(1), *HOSTILE.values(), b"hello", picture(2)]
    answer = post(client, [{"id": name} for name in names], files)
    bad = [(name, "refused") for name in (*HOSTILE, "none")]
    assert statuses(answer) == [("good", "created"), *bad, ("also-good", "created")]


@pytest.mark.slow
def test_a_decoder_that_is_killed_at_work_costs_no_query(home: Indexed) -> None:
    with serve(home, decode_memory_bytes=560 * 2**20) as client, ThreadPoolExecutor(1) as caller:
        pool = decoders_of(client).pool
        wait_until(lambda: len(pool.pids) == 2)
        pids = pool.pids
        idle = [cpu_ticks(pid) for pid in pids]
        answer = caller.submit(search_image, client, slow_bmp(15_000_000))
        wait_until(lambda: any(map(is_at_work, pids, idle)))
        for pid, ticks in zip(pids, idle, strict=True):
            if is_at_work(pid, ticks):
                os.kill(pid, signal.SIGKILL)
        assert answer.result().status_code == 200
        assert search_image(client, picture(1)).status_code == 200
        assert counted(client, "recoquest_decoder_restarts") == {"crash": 1}


@pytest.fixture
def patient_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline of the whole request never comes first, however busy the machine is."""
    monkeypatch.setattr("app.edge.admission._GRACE_S", 30.0)


@pytest.mark.slow
@pytest.mark.usefixtures("patient_request")
def test_a_query_that_decodes_for_too_long_is_given_up(home: Indexed) -> None:
    with serve(home, encode_deadline_s=1.0, decode_memory_bytes=560 * 2**20) as client:
        pool = decoders_of(client).pool
        assert problem_of(search_image(client, slow_bmp())) == LATE
        wait_until(lambda: pool.busy == 0 and len(pool.pids) == 2)
        assert search_image(client, picture(1)).status_code == 200
        assert counted(client, "recoquest_decoder_restarts") == {"wall": 1}


def test_a_large_jpeg_is_found_by_itself_where_files_are_decoded_at_a_scale(
    home: Indexed, tmp_path: Path
) -> None:
    content = encoded(noise(640, 480).convert("RGB"), "JPEG")
    folder = home.manifest.folder
    (folder / "images" / "large.jpg").write_bytes(content)
    write_manifest(folder, [Record("large", "images/large.jpg", "test")])
    bundle = make_bundle(tmp_path / "scaled", seed=0, scaled_decoding=True)
    Indexed(home.settings, read_manifest(folder), bundle).index("scaled", bundle)
    with serve(home) as client:
        answer = client.post("/v1/collections/scaled/search", files={"image": ("large.jpg", content)})
        assert answer.json()["hits"][0]["score"] > 0.999999
        sent = post(client, [{"id": "again"}], [content], "/v1/collections/scaled/images")
        assert statuses(sent) == [("again", "created")]
        again = client.post("/v1/collections/scaled/search", json={"like": [{"id": "large"}]}).json()["hits"]
        assert [(hit["id"], hit["score"] > 0.999999) for hit in again] == [("again", True)]


def test_thumbnails_are_made_by_the_decoders(client: TestClient) -> None:
    for _ in range(2):
        answer = client.get(f"{IMAGE}/thumbnail")
        assert (answer.status_code, answer.headers["content-type"]) == (200, "image/webp")
    assert counted(client, "recoquest_decodes") == {"done": 1}


@pytest.mark.usefixtures("stops_last")
@pytest.mark.usefixtures("patient_request")
def test_a_thumbnail_waits_no_longer_than_a_query(home: Indexed) -> None:
    with serve(home, encode_deadline_s=0.5) as client:
        pids = stopped(decoders_of(client).pool)
        assert problem_of(client.get(f"{IMAGE}/thumbnail")) == LATE
        wait_until(lambda: not all(is_there(pid) for pid in pids))
        assert client.get(f"{IMAGE}/thumbnail").status_code in (200, 504)


def test_images_are_taken_and_found_though_all_decoders_are_stopped(home: Indexed) -> None:
    with serve(home) as client:
        for ask in (lambda: put(client, "new", picture(5)), lambda: search_image(client, picture(1))):
            stopped(decoders_of(client).pool)
            assert ask().status_code in (200, 201)
        assert set(counted(client, "recoquest_decoder_restarts")) == {"stopped"}


def test_no_decoder_is_left_when_the_service_ends(home: Indexed) -> None:
    with serve(home) as client:
        pool = decoders_of(client).pool
        wait_until(lambda: len(pool.pids) == 2)
        pids = pool.pids
    assert not any(is_there(pid) for pid in pids)


@pytest.mark.usefixtures("stops_last")
def test_thumbnails_that_wait_for_a_decoder_leave_searches_their_threads(home: Indexed) -> None:
    with serve(home, concurrent_decodes=1) as client:
        (pid,) = stopped(decoders_of(client).pool, 1)
        paths = [f"/v1/collections/{COLLECTION}/images/image-{number}/thumbnail" for number in range(20, 24)]
        with ThreadPoolExecutor(12) as threads:
            waiting = [threads.submit(client.get, path) for path in paths * 3]
            wait_until(lambda: decoders_of(client).pool.waiting >= 3)
            response = client.post(f"/v1/collections/{COLLECTION}/search", json={"text": "two dogs"})
            os.kill(pid, signal.SIGCONT)
            assert response.status_code == 200
            assert {answer.result().status_code for answer in waiting} == {200}


@pytest.mark.slow
def test_a_refused_image_is_let_go_without_a_garbage_collection(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, futures = DecodingPool.submit, list[weakref.ref[Any]]()

    def noted(self: DecodingPool, *args: Any) -> Any:
        future = submit(self, *args)
        futures.append(weakref.ref(future))
        return future

    monkeypatch.setattr(DecodingPool, "submit", noted)
    broken = picture(1)[:-40]
    gc.collect()
    gc.disable()
    try:
        assert problem_of(search_image(client, broken))[0] == 415
        assert statuses(post(client, [{"id": "broken"}], [broken])) == [("broken", "refused")]
        assert problem_of(put(client, "broken", broken))[0] == 415
        # The error of a task holds the frames that hold the image.
        wait_until(lambda: all(future() is None for future in futures))
    finally:
        gc.enable()
    assert len(futures) == 3
