"""The decoders as coroutines call them: what their processes load, and who frees a slot."""

import asyncio
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from app.decoding.images import ImageDecoders, PreparedImage
from app.settings import Settings
from tests.training.data.hostile import encoded
from tests.training.imaging.processes.decoding import FILES, is_there, noise, small, wait_until
from training.common.errors import ImageError, ImageTooLargeError
from training.imaging.images import decode_image
from training.imaging.processes.pool import DecodersBusyError, DecodingTimeoutError
from training.models.config import ImagePreprocessingConfig
from training.models.inputs.images import to_pixels

CONFIG = ImagePreprocessingConfig(size=24)


@pytest.fixture
def decoders() -> Iterator[ImageDecoders]:
    made = ImageDecoders(Settings(concurrent_decodes=2, encode_queue_size=4, encode_deadline_s=30.0))
    wait_until(lambda: len(made.pool.pids) == 2)
    yield made
    made.close()


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"resize_to": 30},
        {"resize": "shortest_edge"},
        {"resize": "shortest_edge", "resize_to": 30, "filter": "bilinear"},
        {"resize": "squash"},
        {"resize": "pad"},
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
    content = encoded(noise("RGB", 801, 600), "JPEG")
    scaled = CONFIG.model_copy(update={"scaled_decoding": True})
    whole = asyncio.run(decoders.decode_upload(content, CONFIG))
    upload = asyncio.run(decoders.decode_upload(content, scaled))
    expected = to_pixels(decode_image(content, min_side=48), scaled)
    assert np.array_equal(upload.pixels, expected)
    assert not np.array_equal(upload.pixels, whole.pixels)
    assert (upload.width, upload.height) == (whole.width, whole.height) == (801, 600)


@pytest.mark.usefixtures("stops_last")
def test_a_file_of_no_format_is_refused_without_a_process(decoders: ImageDecoders) -> None:
    for pid in decoders.pool.pids:
        os.kill(pid, signal.SIGSTOP)
    with pytest.raises(ImageError, match="is not an image"):
        asyncio.run(decoders.decode_query(b"hello", CONFIG))
    with pytest.raises(ImageTooLargeError, match="the limit is"):
        asyncio.run(decoders.decode_query(bytes(21 * 2**20), CONFIG))


@pytest.mark.usefixtures("stops_last")
def test_callers_that_leave_free_no_slot(decoders: ImageDecoders) -> None:
    pids = decoders.pool.pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)

    async def come(number: int) -> list[asyncio.Task[PreparedImage]]:
        tasks = [asyncio.create_task(decoders.decode_query(small(), CONFIG)) for _ in range(number)]
        await asyncio.sleep(0)
        return tasks

    async def come_and_leave() -> None:
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

    asyncio.run(come_and_leave())


@pytest.mark.usefixtures("stops_last")
def test_a_deadline_frees_a_slot_only_with_its_process() -> None:
    decoders = ImageDecoders(Settings(concurrent_decodes=1, encode_deadline_s=0.5))
    try:
        wait_until(lambda: len(decoders.pool.pids) == 1)
        (pid,) = decoders.pool.pids
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(DecodingTimeoutError):
            asyncio.run(decoders.decode_query(small(), CONFIG))
        wait_until(lambda: decoders.pool.busy == 0)
        wait_until(lambda: decoders.pool.pids not in ([], [pid]))
    finally:
        decoders.close()


@pytest.mark.usefixtures("stops_last")
@pytest.mark.slow
def test_images_of_an_upload_wait_for_each_other_beyond_the_deadline_of_a_search() -> None:
    decoders = ImageDecoders(Settings(concurrent_decodes=1, encode_queue_size=4, encode_deadline_s=2.0))
    wait_until(lambda: len(decoders.pool.pids) == 1)
    (pid,) = decoders.pool.pids

    async def run() -> None:
        os.kill(pid, signal.SIGSTOP)
        upload = asyncio.create_task(decoders.decode_upload(small(), CONFIG))
        await asyncio.sleep(3.0)
        assert not upload.done()
        os.kill(pid, signal.SIGCONT)
        assert (await upload).pixels.shape == (3, 24, 24)

    try:
        asyncio.run(run())
    finally:
        decoders.close()


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
from training.imaging.processes.pool import DecoderLimits

pool = DecodingPool(PoolLimits(WORKER, 2, 4, 60.0, DecoderLimits(1 << 29)))
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
