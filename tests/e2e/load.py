"""A client that checks every answer of a service while models are swapped and images are written."""

import hashlib
import io
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
from PIL import Image
from sqlalchemy import select

from index.catalogue.collections import Generation
from index.catalogue.tables import EmbeddingRow, ImageRow
from index.engine import SearchEngine
from index.errors import StaleWriteError
from index.vectors.protocol import Vectors, decode_vectors, encode_vectors
from index.writes.images import ImageWrite, PictureWrite
from index.writes.live import put_images
from training.common.manifest import Record
from training.models.encoder import Encoder

TEXTS = ("two dogs run", "the heart is enlarged", "a red ball", "x-ray", "green grass", "clear lungs")
K = 10
# What batching changes in a vector, far below what tells two models apart.
TOLERANCE = 1e-3


@dataclass(frozen=True)
class Answer:
    """One answer and when it was asked for and given."""

    text: str
    status: int
    page: Mapping[str, Any]
    asked: float
    seconds: float


@dataclass
class Load:
    """Threads that search until they are stopped, and one that writes images."""

    url: str
    threads: int
    answers: list[Answer] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    written: dict[str, float] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)

    def search(self, seed: int) -> None:
        """Search by texts, one after another."""
        draw = random.Random(seed)
        with httpx.Client(base_url=self.url, timeout=60) as client:
            while not self.stop.is_set():
                text, asked = draw.choice(TEXTS), time.monotonic()
                try:
                    got = client.post("/v1/collections/c/search", json={"text": text, "limit": K})
                except httpx.HTTPError as error:
                    self.errors.append(repr(error))
                    continue
                page = got.json()
                self.answers.append(Answer(text, got.status_code, page, asked, time.monotonic() - asked))

    def write(self, engine: SearchEngine, encoders: Mapping[str, Encoder], pause_s: float) -> None:
        """Write images with the vectors of whichever model is active, again if it has just been replaced."""
        number = 0
        while not self.stop.wait(pause_s):
            name = f"new-{number:04d}"
            active = engine.active("c")
            try:
                put_images(engine.home, active, [make_upload(name, encoders[active.digest])])
            except StaleWriteError:
                continue
            self.written[name] = time.monotonic()
            number += 1

    def run(self, engine: SearchEngine, encoders: Mapping[str, Encoder], pause_s: float) -> "_Running":
        """Start all threads; the block that this is used in is what happens meanwhile."""
        searching = self.search_only()
        writer = threading.Thread(target=self.write, args=(engine, encoders, pause_s))
        return _Running(self, [*searching.workers, writer])

    def search_only(self) -> "_Running":
        """Start the threads that search."""
        return _Running(
            self, [threading.Thread(target=self.search, args=(seed,)) for seed in range(self.threads)]
        )


@dataclass
class _Running:
    load: Load
    workers: Sequence[threading.Thread]

    def __enter__(self) -> None:
        for worker in self.workers:
            worker.start()

    def __exit__(self, *_: object) -> None:
        self.load.stop.set()
        for worker in self.workers:
            worker.join(120)


def make_upload(name: str, encoder: Encoder) -> ImageWrite:
    """An image of noise with its vector."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    pixels = np.random.default_rng(seed).integers(0, 256, (40, 48, 3), dtype=np.uint8)
    image, content = Image.fromarray(pixels), io.BytesIO()
    image.save(content, "PNG")
    vector = encode_vectors(encoder.embed_images(encoder.prepare_image(image)[None]))[0]
    digest = hashlib.sha256(content.getvalue()).hexdigest()
    record = Record(id=name, image="", split="train")
    picture = PictureWrite(digest, "image/png", 48, 40, vector)
    return ImageWrite(record, picture, content=content.getvalue())


@dataclass(frozen=True)
class Reference:
    """The vectors of a generation by image, and of every text by its encoder."""

    digest: str
    vectors: Mapping[str, Vectors]
    texts: Mapping[str, Vectors]

    def wrong(self, answer: Answer, written: Mapping[str, float]) -> str:
        """What is wrong with an answer of this generation; empty when nothing is."""
        query = self.texts[answer.text]
        hits = answer.page["hits"]
        if len(hits) != K:
            return f"{len(hits)} hits"
        if answer.page["served_by"]["digest"] != self.digest:
            return "generation and digest do not belong together"
        for hit in hits:
            exact = float(query @ self.vectors[hit["id"]])
            if abs(hit["score"] - exact) > TOLERANCE:
                return f"{hit['id']} scores {hit['score']}, not {exact}"
        shown = {hit["id"] for hit in hits}
        last = hits[-1]["score"]
        for name, vector in self.vectors.items():
            # What was written while the search went on may be in its answer or not.
            there = name not in written or written[name] < answer.asked
            if there and name not in shown and float(query @ vector) > last + TOLERANCE:
                return f"{name} is missing"
        return ""


def reference_of(engine: SearchEngine, generation: Generation, encoder: Encoder) -> Reference:
    """What a generation's answers are compared with."""
    with engine.home.catalogue.read() as session:
        query = (
            select(ImageRow.external_id, EmbeddingRow.vector)
            .join(ImageRow, ImageRow.id == EmbeddingRow.image_id)
            .where(EmbeddingRow.generation_id == generation.id)
        )
        rows = session.execute(query).all()
    vectors = decode_vectors([row.vector for row in rows], generation.dim)
    by_id = {row.external_id: vector for row, vector in zip(rows, vectors, strict=True)}
    texts = dict(zip(TEXTS, encoder.embed_texts(list(TEXTS)).vectors, strict=True))
    return Reference(generation.digest, by_id, texts)


def check_all(
    load: Load, references: Mapping[int, Reference], written: Mapping[str, float]
) -> tuple[Counter[int], list[str]]:
    """Count the right answers of each generation, and say what is wrong with the others."""
    right: Counter[int] = Counter()
    wrong = list(load.errors)
    for answer in load.answers:
        if answer.status != 200:
            wrong.append(f"{answer.status}: {answer.page}")
            continue
        number = answer.page["served_by"]["generation"]
        problem = references[number].wrong(answer, written) if number in references else "unknown generation"
        if problem:
            wrong.append(f"generation {number}: {problem}")
        else:
            right[number] += 1
    return right, wrong
