"""Decoding in processes: their limits hold, a lost one costs one task, and no slot is used twice."""

import io
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from app.decoding.pool import DecodingPool, Priority
from app.decoding.process import Answer, DecoderStartError, Task
from app.encoding import EncodingTimeoutError, QueueClosedError, QueueFullError
from tests.app.decoding.conftest import MIB, Told
from tests.training.data.hostile import deep_png, encoded, slow_bmp
from training.data.decoding.images import ImageLimits, decode_image
from training.errors import ImageError, ImageTooLargeError
from training.models.config import ImagePreprocessingConfig
from training.models.preprocessing import ImagePreprocessing

PATIENCE = 60.0
SIZE = 16
# Ticks of CPU time that an idle process does not use.
_AT_WORK = 10

MakePool = Callable[..., DecodingPool]


def prepare(content: bytes, resize: str = "crop", size: int = SIZE) -> Task:
    square = {"size": size, "resize": resize, "resize_to": None, "filter": "bicubic"}
    encoder = {"square": square, "min_side": None}
    header = {"task": "prepare", "limits": asdict(ImageLimits()), "encoder": encoder}
    return Task(header, 3 * size**2, content)


def small(colour: str = "red") -> bytes:
    return encoded(Image.new("RGB", (40, 30), colour), "PNG")


def wait_until(true: Callable[[], bool]) -> None:
    """Wait for something that other threads and processes do."""
    until = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < until
        time.sleep(0.01)


def the_process(pool: DecodingPool) -> int:
    wait_until(lambda: len(pool.pids) == 1)
    return pool.pids[0]


def cpu_ticks(pid: int) -> int:
    """Ticks of CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13]))


def is_at_work(pid: int, idle: int) -> bool:
    """Whether a process has a task, by its CPU time and that of before; the pool counts a task earlier."""
    return cpu_ticks(pid) >= idle + _AT_WORK


def status(pid: int, field: str) -> int:
    """Bytes that the system tells of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def is_there(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def noise(mode: str, width: int = 90, height: int = 70) -> Image.Image:
    pixels = np.random.default_rng(3).integers(0, 256, (height, width, 4), dtype=np.uint8)
    return Image.fromarray(pixels, "RGBA").convert("RGB").convert(mode)


def with_alpha() -> Image.Image:
    image = noise("RGB")
    image.putalpha(noise("L"))
    return image


def deep(kind: type[np.generic]) -> Image.Image:
    return Image.fromarray(np.random.default_rng(4).integers(5, 40_000, (70, 90)).astype(kind))


def turned() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return encoded(noise("RGB"), "JPEG", exif=exif)


FILES = {
    "jpeg": encoded(noise("RGB"), "JPEG"),
    "progressive": encoded(noise("RGB"), "JPEG", progressive=True),
    "turned": turned(),
    "cmyk": encoded(noise("CMYK"), "JPEG"),
    "grey": encoded(noise("L"), "PNG"),
    "palette": encoded(noise("P"), "PNG", transparency=3),
    "rgba": encoded(with_alpha(), "PNG"),
    "deep png": encoded(deep(np.uint16), "PNG"),
    "deep tiff": encoded(deep(np.uint16), "TIFF"),
    "int tiff": encoded(deep(np.int32), "TIFF"),
    "float tiff": encoded(deep(np.float32), "TIFF"),
    "webp": encoded(with_alpha(), "WEBP"),
    "gif": encoded(noise("P"), "GIF"),
    "bmp": encoded(noise("RGB"), "BMP"),
}


@pytest.mark.parametrize("resize", ["crop", "shortest_edge", "squash", "pad"])
def test_pixels_are_those_of_this_process_to_the_bit(make_pool: MakePool, resize: str) -> None:
    pool = make_pool()
    config = ImagePreprocessingConfig.model_validate({"size": SIZE, "resize": resize})
    for name, content in FILES.items():
        answer = pool.submit(prepare(content, resize), Priority.SEARCH).result(PATIENCE)
        expected = ImagePreprocessing(config).to_uint8(decode_image(content)).numpy()
        assert answer.body == expected.tobytes(), name
        upright = decode_image(content).size
        assert (answer.header["width"], answer.header["height"]) == upright, name


def test_a_file_that_is_refused_costs_no_process(make_pool: MakePool, told: Told) -> None:
    pool = make_pool()
    pid = the_process(pool)
    with pytest.raises(ImageError, match="The PNG image is damaged"):
        pool.submit(prepare(small()[:60]), Priority.SEARCH).result(PATIENCE)
    with pytest.raises(ImageTooLargeError, match="the limit is 50 megapixels"):
        pool.submit(prepare(encoded(Image.new("1", (9_000, 6_000)), "PNG")), Priority.SEARCH).result(PATIENCE)
    assert (told.outcomes, told.restarts, pool.pids) == (["refused", "too-large"], [], [pid])


def test_sixteen_bit_grey_of_fifty_megapixels_takes_little_memory(make_pool: MakePool) -> None:
    pool = make_pool()
    pid = the_process(pool)
    pool.submit(prepare(deep_png()), Priority.SEARCH).result(PATIENCE)
    assert pool.pids == [pid]
    assert status(pid, "VmHWM") < 450 * MIB


def test_an_image_that_takes_too_much_memory_is_refused(make_pool: MakePool, told: Told) -> None:
    pool = make_pool(memory_bytes=200 * MIB)
    pid = the_process(pool)
    with pytest.raises(ImageTooLargeError, match=r"^Decoding the image takes more memory than the 210 MB "):
        pool.submit(prepare(deep_png()), Priority.SEARCH).result(PATIENCE)
    assert pool.submit(prepare(small()), Priority.SEARCH).result(PATIENCE).outcome == "done"
    assert told.outcomes == ["memory", "done"]
    assert told.restarts == ["memory"]
    assert pool.pids != [pid]
    assert not is_there(pid)


def test_a_file_that_takes_too_long_costs_its_own_task(make_pool: MakePool, told: Told) -> None:
    pool = make_pool(cpu_s=1)
    slow = pool.submit(prepare(slow_bmp()), Priority.SEARCH)
    others = [pool.submit(prepare(small()), Priority.SEARCH) for _ in range(4)]
    with pytest.raises(ImageTooLargeError, match="takes more than 1 seconds of work"):
        slow.result(PATIENCE)
    assert [other.result(PATIENCE).outcome for other in others] == ["done"] * 4
    assert (told.outcomes, told.restarts) == (["cpu", *["done"] * 4], ["cpu"])


@pytest.mark.slow
def test_the_time_of_each_task_is_its_own(make_pool: MakePool, told: Told) -> None:
    pool = make_pool(cpu_s=1)
    content = deep_png(5_000, 2_000)
    for _ in range(20):
        pool.submit(prepare(content), Priority.SEARCH).result(PATIENCE)
    assert told.restarts == []


def test_a_task_past_its_deadline_is_killed(make_pool: MakePool, told: Told) -> None:
    pool = make_pool(deadline_s=1.0)
    pid = the_process(pool)
    with pytest.raises(EncodingTimeoutError):
        pool.submit(prepare(slow_bmp()), Priority.SEARCH).result(PATIENCE)
    wait_until(lambda: pool.pids not in ([], [pid]))
    assert (told.outcomes, told.restarts) == (["wall"], ["wall"])
    assert not is_there(pid)


def test_a_process_that_is_killed_at_work_costs_one_task(make_pool: MakePool, told: Told) -> None:
    pool = make_pool()
    pid = the_process(pool)
    idle = cpu_ticks(pid)
    slow = pool.submit(prepare(slow_bmp()), Priority.SEARCH)
    after = pool.submit(prepare(small()), Priority.SEARCH)
    wait_until(lambda: is_at_work(pid, idle))
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ImageError, match=r"its decoder broke down; save it anew\.$"):
        slow.result(PATIENCE)
    assert after.result(PATIENCE).outcome == "done"
    assert (told.outcomes, told.restarts) == (["crash", "done"], ["crash"])


def test_a_process_that_is_killed_idle_costs_none(make_pool: MakePool, told: Told) -> None:
    pool = make_pool()
    pid = the_process(pool)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_there(pid))
    assert pool.submit(prepare(small()), Priority.SEARCH).result(PATIENCE).outcome == "done"
    assert (told.outcomes, told.restarts) == (["done"], ["crash"])


@contextmanager
def stopped(pool: DecodingPool, processes: int = 1) -> Iterator[list[Future[Answer]]]:
    """Tasks that stay at work for as long as the block runs, one for each process."""
    wait_until(lambda: len(pool.pids) == processes)
    pids = pool.pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        futures = [pool.submit(prepare(small()), Priority.SEARCH) for _ in pids]
        wait_until(lambda: pool.busy == processes)
        yield futures
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def test_a_caller_that_leaves_gives_no_slot_back(make_pool: MakePool) -> None:
    pool = make_pool(processes=2)
    with stopped(pool, processes=2) as first:
        pids = pool.pids
        for future in first:
            assert not future.cancel()
        later = [pool.submit(prepare(small()), Priority.SEARCH) for _ in range(6)]
        done, _ = wait(later, 0.5, FIRST_COMPLETED)
        assert not done
        assert not any(future.running() for future in later)
        assert (pool.busy, pool.waiting, pool.pids) == (2, 6, pids)
    wait([*first, *later], PATIENCE)
    assert {future.result().outcome for future in (*first, *later)} == {"done"}


def test_a_task_whose_caller_has_gone_is_not_done(make_pool: MakePool, told: Told) -> None:
    pool = make_pool()
    with stopped(pool):
        left = [pool.submit(prepare(small()), Priority.SEARCH) for _ in range(4)]
        for future in left:
            assert future.cancel()
        last = pool.submit(prepare(small("blue")), Priority.SEARCH)
    assert last.result(PATIENCE).outcome == "done"
    assert told.outcomes == ["done", "done"]


def test_searches_come_before_uploads_and_those_before_thumbnails(make_pool: MakePool) -> None:
    pool = make_pool()
    done: list[Priority] = []

    def submit(priority: Priority) -> Future[Answer]:
        future = pool.submit(prepare(small()), priority)
        future.add_done_callback(lambda _: done.append(priority))
        return future

    with stopped(pool):
        futures = [submit(Priority(number)) for number in (2, 1, 0, 1, 0)]
    wait(futures, PATIENCE)
    assert done == [0, 0, 1, 1, 2]


def test_a_full_queue_refuses_what_comes_last_in_it(make_pool: MakePool) -> None:
    pool = make_pool(waiting=2)
    with stopped(pool):
        thumbnails = [pool.submit(prepare(small()), Priority.THUMBNAIL) for _ in range(2)]
        with pytest.raises(QueueFullError, match="Too many images are waiting"):
            pool.submit(prepare(small()), Priority.THUMBNAIL)
        search = pool.submit(prepare(small()), Priority.SEARCH)
        with pytest.raises(QueueFullError):
            thumbnails[1].result(PATIENCE)
    assert search.result(PATIENCE).outcome == thumbnails[0].result(PATIENCE).outcome == "done"


def test_a_task_that_waits_too_long_is_dropped(make_pool: MakePool, told: Told) -> None:
    pool = make_pool(deadline_s=0.5)
    with stopped(pool):
        waiting = pool.submit(prepare(small()), Priority.SEARCH)
        with pytest.raises(EncodingTimeoutError):
            waiting.result(PATIENCE)
    assert told.outcomes == ["wall"]


def test_where_no_process_starts_a_task_fails_and_the_next_is_tried(
    make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(sys, "executable", "/nowhere/python")
        pool = make_pool()
        with pytest.raises(DecoderStartError, match="Images cannot be decoded now"):
            pool.submit(prepare(small()), Priority.SEARCH).result(PATIENCE)
    assert pool.busy == 0
    wait_until(lambda: _is_done(pool))


def _is_done(pool: DecodingPool) -> bool:
    try:
        return pool.submit(prepare(small()), Priority.SEARCH).result(PATIENCE).outcome == "done"
    except DecoderStartError:
        return False


def test_closing_ends_whatever_is_at_work(make_pool: MakePool) -> None:
    pool = make_pool(processes=2)
    wait_until(lambda: len(pool.pids) == 2)
    pids = pool.pids
    idle = [cpu_ticks(pid) for pid in pids]
    futures = [pool.submit(prepare(slow_bmp()), Priority.SEARCH) for _ in range(4)]
    wait_until(lambda: all(map(is_at_work, pids, idle)))
    pool.close()
    assert all(future.done() for future in futures)
    for future in futures:
        with pytest.raises(QueueClosedError):
            future.result()
    with pytest.raises(QueueClosedError):
        pool.submit(prepare(small()), Priority.SEARCH)
    assert not any(is_there(pid) for pid in pids)


def test_a_thumbnail_is_made_of_a_file(make_pool: MakePool, tmp_path: Path) -> None:
    path = tmp_path / "picture"
    path.write_bytes(encoded(Image.new("RGB", (600, 300)), "PNG"))
    task = Task({"task": "thumbnail", "path": str(path)}, MIB)
    answer = make_pool().submit(task, Priority.THUMBNAIL).result(PATIENCE)
    with Image.open(io.BytesIO(answer.body)) as image:
        assert (image.format, image.size) == ("WEBP", (256, 128))
