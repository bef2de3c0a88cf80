"""The encoder without a service, in a process of its own: batches, one at a time, and decoding.

`python -m tests.benchmarks.throughput.bare BUNDLE FOLDER SIZE SECONDS` prints one line of JSON. FOLDER has
`texts.json` and JPEG files; SIZE is that of the batches.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING

from training.common.host import keep_waiting_threads_quiet

if TYPE_CHECKING:
    from training.models.onnx import OnnxEncoder


@dataclass(frozen=True, slots=True)
class Bare:
    """Items a second in batches, and milliseconds of one at a time.

    Batches follow each other, each on a thread for every core; `lanes` of them run side by side where the
    name says so. One item at a time is on the threads of a lane. `text_cpu_ms` and
    `image_cpu_ms` are of the processor for each item of a batch: other processes change them little.
    """

    threads: int
    lanes: int
    texts_per_s: float
    images_per_s: float
    texts_side_by_side_per_s: float
    images_side_by_side_per_s: float
    text_ms: float
    image_ms: float
    decode_ms: float
    text_cpu_ms: float
    image_cpu_ms: float


def measure(bundle: Path, folder: Path, size: int, seconds: float) -> Bare:
    """Measure the ONNX graphs alone, with the threads and the lanes that the service would choose."""
    import numpy as np

    from app.encoding.threads import ComputeThreads
    from training.common.host import cores
    from training.imaging.images import decode_image
    from training.models.onnx import load_onnx_encoder

    given = os.environ.get("RECOQUEST_THREADS")
    threads = ComputeThreads.share(int(given) if given else None)
    whole = load_onnx_encoder(bundle, threads=cores())
    encoder = load_onnx_encoder(bundle, threads=threads.side_by_side)
    assert whole is not None
    assert encoder is not None
    texts: list[str] = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
    files = [path.read_bytes() for path in sorted(folder.glob("*.jpg"))]
    images = [encoder.prepare_image(decode_image(content)) for content in files]
    some_texts, some_images, some_files = cycle(texts), cycle(images), cycle(files)

    def batch_of_texts(by: "OnnxEncoder") -> object:
        return by.embed_texts(list(islice(some_texts, size)))

    def batch_of_images(by: "OnnxEncoder") -> object:
        return by.embed_images(np.stack(list(islice(some_images, size))))

    def decode() -> object:
        return encoder.prepare_image(decode_image(next(some_files), min_side=encoder.min_image_side))

    text_rate, text_cpu = _rate_and_cpu(lambda: batch_of_texts(whole), seconds / 2)
    image_rate, image_cpu = _rate_and_cpu(lambda: batch_of_images(whole), seconds / 2)
    return Bare(
        threads.side_by_side,
        threads.lanes,
        size * text_rate,
        size * image_rate,
        size * _side_by_side(threads.lanes, lambda: batch_of_texts(encoder), seconds / 2),
        size * _side_by_side(threads.lanes, lambda: batch_of_images(encoder), seconds / 2),
        1000 / _rate(lambda: encoder.embed_texts([next(some_texts)]), seconds / 2),
        1000 / _rate(lambda: encoder.embed_images(next(some_images)[None]), seconds / 2),
        1000 / _rate(decode, seconds / 2),
        text_cpu * 1000 / size,
        image_cpu * 1000 / size,
    )


def _side_by_side(lanes: int, one: Callable[[], object], seconds: float) -> float:
    """How often a second `one` is done in all lanes together."""
    lock, rates = threading.Lock(), list[float]()

    def lane() -> None:
        rate = _rate(one, seconds)
        with lock:
            rates.append(rate)

    begun = [threading.Thread(target=lane) for _ in range(lanes)]
    for thread in begun:
        thread.start()
    for thread in begun:
        thread.join()
    return sum(rates)


def _rate(one: Callable[[], object], seconds: float) -> float:
    """How often a second `one` is done."""
    return _rate_and_cpu(one, seconds)[0]


def _rate_and_cpu(one: Callable[[], object], seconds: float) -> tuple[float, float]:
    """How often a second `one` is done, and the seconds of processor time of each."""
    one()
    count, begin, cpu = 0, time.perf_counter(), time.process_time()
    while (taken := time.perf_counter() - begin) < seconds:
        one()
        count += 1
    return count / taken, (time.process_time() - cpu) / count


def main() -> None:
    """Measure, and print a line of JSON."""
    keep_waiting_threads_quiet()
    bundle, folder, size, seconds = sys.argv[1:]
    found = measure(Path(bundle), Path(folder), int(size), float(seconds))
    print(json.dumps(asdict(found)))  # noqa: T201


if __name__ == "__main__":
    main()
