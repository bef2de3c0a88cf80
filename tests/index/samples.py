"""Small collections: manifests of noise images, and collections of vectors that no encoder made."""

import hashlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sqlalchemy import select

from index.catalogue.collections import Generation, find_generation, open_generation
from index.catalogue.tables import ModelRow
from index.engine import SearchEngine
from index.generations.activation import activate
from index.ingest import IngestReport, ingest_manifest
from index.vectors.gpu import Gpu
from index.vectors.protocol import Vectors, encode_vectors
from index.writes.images import ImageWrite, PictureWrite, write_images
from index.writes.vectors import ImageEncoder
from tests.training.models.tiny import tiny_config, tiny_model, tiny_preprocessing
from training.common.manifest import Manifest, Record, read_manifest, write_manifest
from training.models.bundle import BundleInfo, save_bundle

LABELS = ("Cardiomegaly", "Edema", "Pneumonia")


class HalfIndex:
    """FAISS's flat index of a GPU, on the CPU: float16 queries, 2,048 neighbors, one caller at a time."""

    def __init__(self, dim: int) -> None:
        self.d = dim
        self._index = faiss.IndexScalarQuantizer(
            dim, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
        )
        self._used = threading.Lock()

    @property
    def ntotal(self) -> int:
        return int(self._index.ntotal)

    def add(self, vectors: Vectors) -> None:
        with self._alone():
            self._index.add(vectors)

    def search(self, queries: Vectors, count: int) -> tuple[Vectors, NDArray[np.int64]]:
        assert count <= 2048
        with self._alone():
            page: tuple[Vectors, NDArray[np.int64]] = self._index.search(
                queries.astype(np.float16).astype(np.float32), count
            )
            return page

    @contextmanager
    def _alone(self) -> Iterator[None]:
        assert self._used.acquire(blocking=False), "two threads use the GPU at once"
        try:
            yield
        finally:
            self._used.release()


class CpuAsGpu(Gpu):
    """A GPU with some bytes left whose index is computed by the CPU."""

    def __init__(self, left: int = 1 << 40) -> None:
        super().__init__("cuda")
        self.left = left

    def new_index(self, dim: int) -> HalfIndex:
        return HalfIndex(dim)

    def check(self) -> None:
        """Nothing to try."""

    def free(self) -> int:
        return self.left


def make_bundle(
    folder: Path, *, seed: int = 0, name: str = "tiny", dim: int = 12, **preprocessing: Any
) -> BundleInfo:
    return save_bundle(
        folder,
        name=name,
        model=tiny_model(tiny_config(dim=dim), seed=seed),
        preprocessing=tiny_preprocessing(**preprocessing),
        metrics={"rsum": 12.5},
        recipe_yaml="name: tiny\n",
    )


def make_records(count: int) -> list[Record]:
    return [
        Record(
            id=f"image-{number:03d}",
            image=f"images/{number:03d}.png",
            split=("train", "val", "test")[number % 3],
            texts=tuple(f"text {number}.{position}" for position in range(number % 3)),
            group=None if number % 5 == 0 else f"patient-{number}",
            labels=LABELS[: number % 4],
            report=f"Report {number}. No effusion." if number % 2 else None,
            metadata={"age": 20 + number, "view": "PA" if number % 2 else "AP", "urgent": number % 7 == 0},
        )
        for number in range(count)
    ]


def make_picture(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (40, 48, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def make_manifest(folder: Path, records: Sequence[Record]) -> Manifest:
    for number, record in enumerate(records):
        if not (folder / record.image).exists():
            make_picture(folder / record.image, number)
    write_manifest(folder, records)
    return read_manifest(folder)


def ingest(
    engine: SearchEngine, encoder: ImageEncoder, manifest: Manifest, collection: str = "c", **options: Any
) -> IngestReport:
    """Put what a manifest has into a collection, in small batches."""
    arguments = {"batch_size": 6, "show_progress": False, **options}
    return ingest_manifest(engine, collection, encoder, manifest, **arguments)


def unit_vectors(count: int, dim: int, seed: int = 0) -> Vectors:
    vectors = np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def begin_generation(
    engine: SearchEngine, collection: str, dim: int, *, digest: str = "a" * 64, **columns: Any
) -> Generation:
    made = {"name": "made-up", "unsigned": False, "recipe": "", "created": "2026-01-01", "metrics": {}}
    with engine.home.catalogue.write() as session:
        model = session.execute(select(ModelRow).where(ModelRow.digest == digest)).scalar_one_or_none()
        if model is None:
            model = ModelRow(digest=digest, dim=dim, **{**made, **columns})
            session.add(model)
            session.flush()
        return open_generation(session, collection, model)


def put_vectors(
    engine: SearchEngine,
    generation: Generation,
    records: Sequence[Record],
    vectors: Vectors,
    texts: Vectors | None = None,
) -> None:
    """Write records with these vectors, as ingest does, and make the generation active.

    `texts` are vectors of the first text of each record.
    """
    of_texts = [None] * len(records) if texts is None else encode_vectors(texts)
    writes = [
        ImageWrite(
            record,
            PictureWrite(hashlib.sha256(record.id.encode()).hexdigest(), "image/png", 48, 40, value),
            text_vectors={} if text is None else {record.texts[0]: text},
        )
        for record, value, text in zip(records, encode_vectors(vectors), of_texts, strict=True)
    ]
    with engine.home.catalogue.write() as session:
        write_images(session, generation, writes)
    with engine.home.catalogue.write() as session:
        active = find_generation(session, generation.collection_id, "active")
        if active is None or active.id != generation.id:
            activate(session, generation)


def put_records(
    engine: SearchEngine, records: Sequence[Record], dim: int, seed: int = 0, into: str = "c", **model: Any
) -> Generation:
    """Write records with vectors drawn at random to a generation, and make it active."""
    generation = begin_generation(engine, into, dim, **model)
    put_vectors(engine, generation, records, unit_vectors(len(records), dim, seed))
    return generation


def snapshot_of(uid: str, digest: str, dim: int, *, unsigned: bool = False) -> Generation:
    """Return a generation that a snapshot may be of."""
    return Generation(1, uid, 1, "c", "model", digest, dim, 1, unsigned)
