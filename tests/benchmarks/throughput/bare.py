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

from training.host import keep_waiting_threads_quiet

if TYPE_CHECKING:
    from app.encoding.threads import ComputeThreads


@dataclass(frozen=True, slots=True)
class Bare:
    """Items a second in batches, and milliseconds of one at a time.

    Batches follow each other, each on a thread for every core; `lanes` of them run side by side where the
    name says so. One item at a time is on the threads that the service would choose. `text_cpu_ms` and
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
    """Measure as the service computes: with the threads of torch and the lanes that it would choose."""
    import numpy as np
    import torch

    from app.encoding.passes import warm_up
    from app.encoding.threads import ComputeThreads, cores, use_torch_threads
    from training.data.decoding.images import decode_image
    from training.models.encoder import load_encoder

    torch.set_num_threads(1)
    encoder = load_encoder(bundle, "cpu")
    warm_up(encoder)
    texts: list[str] = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
    files = [path.read_bytes() for path in sorted(folder.glob("*.jpg"))]
    images = [encoder.prepare_image(decode_image(content)) for content in files]
    some_texts, some_images = cycle(texts), cycle(images)

    def batch_of_texts() -> object:
        return encoder.embed_texts(list(islice(some_texts, size)))

    def batch_of_images() -> object:
        return encoder.embed_images(np.stack(list(islice(some_images, size))))

    some_files = cycle(files)

    def decode() -> object:
        return encoder.prepare_image(decode_image(next(some_files), min_side=encoder.min_image_side))

    given = os.environ.get("RECOQUEST_THREADS")
    threads = ComputeThreads(int(given) if given else None)
    threads.measure([batch_of_images, batch_of_texts])
    chosen = torch.get_num_threads()
    use_torch_threads(cores())
    text_rate, text_cpu = _rate_and_cpu(batch_of_texts, seconds / 2)
    image_rate, image_cpu = _rate_and_cpu(batch_of_images, seconds / 2)
    use_torch_threads(chosen)
    return Bare(
        chosen,
        threads.lanes,
        size * text_rate,
        size * image_rate,
        size * _side_by_side(threads, batch_of_texts, seconds / 2),
        size * _side_by_side(threads, batch_of_images, seconds / 2),
        1000 / _rate(lambda: encoder.embed_texts([next(some_texts)]), seconds / 2),
        1000 / _rate(lambda: encoder.embed_images(next(some_images)[None]), seconds / 2),
        1000 / _rate(decode, seconds / 2),
        text_cpu * 1000 / size,
        image_cpu * 1000 / size,
    )


def _side_by_side(threads: "ComputeThreads", one: Callable[[], object], seconds: float) -> float:
    """How often a second `one` is done in all lanes together."""
    lock, rates = threading.Lock(), list[float]()

    def lane() -> None:
        threads.enter(alone=False)
        rate = _rate(one, seconds)
        with lock:
            rates.append(rate)

    begun = [threading.Thread(target=lane) for _ in range(threads.lanes)]
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
    """Measure in a thread that is not the main one, as the service does."""
    keep_waiting_threads_quiet()
    bundle, folder, size, seconds = sys.argv[1:]
    found: list[Bare] = []
    thread = threading.Thread(
        target=lambda: found.append(measure(Path(bundle), Path(folder), int(size), float(seconds)))
    )
    thread.start()
    thread.join()
    print(json.dumps(asdict(found[0])))  # noqa: T201


if __name__ == "__main__":
    main()
