"""Images that no encoder has seen: everything about one follows from its id and a version."""

import hashlib
import random
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np

from index.catalogue import open_catalogue
from index.catalogue.tables import ModelRow
from index.engine import SearchEngine
from index.generations.models import create_collection
from index.home import Home
from index.vectors.protocol import Vectors, decode_vectors, encode_vectors
from index.writes.images import ImageWrite, PictureWrite
from training.common.manifest import Record

DIM: Final = 16
DIGEST: Final = "d" * 64
WORDS: Final = ("heart", "lung", "edema", "dog", "boat", "snow", "table", "square")
VIEWS: Final = ("PA", "AP", "lateral")


def open_world(home: Path) -> SearchEngine:
    """Open the engine of a folder."""
    catalogue = open_catalogue(f"sqlite:///{home / 'catalogue.db'}")
    return SearchEngine(Home.at(home, catalogue))


def begin_world(home: Path, *collections: str) -> SearchEngine:
    """Open the engine of a new folder with empty collections by a model that nobody has trained."""
    engine = open_world(home)
    (engine.home.bundles_folder / DIGEST).mkdir(parents=True)
    with engine.home.catalogue.write() as session:
        session.add(
            ModelRow(digest=DIGEST, name="made", dim=DIM, recipe="", created="2026-01-01", metrics={})
        )
    for name in collections:
        create_collection(engine.home, name, model=DIGEST)
    return engine


@lru_cache(maxsize=100_000)
def stored_vector(name: str) -> bytes:
    """Return the vector that belongs to a name, as the catalogue keeps it."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
    vector = np.random.default_rng(seed).normal(size=(1, DIM)).astype(np.float32)
    return encode_vectors(vector / np.linalg.norm(vector))[0]


def vector_of(name: str) -> Vectors:
    """Return the vector (D,) of length one that belongs to a name."""
    vector: Vectors = decode_vectors([stored_vector(name)], DIM)[0]
    return vector


def picture_name(image_id: str, version: int) -> str:
    """Name the picture of an image; every third version has one that other images have too."""
    return f"shared {version % 7}" if version % 3 == 0 else f"{image_id} {version}"


def made_record(image_id: str, version: int) -> Record:
    """Make what is said of an image."""
    draw = random.Random(f"{image_id} {version}")
    return Record(
        id=image_id,
        image="",
        split=draw.choice(("train", "val", "test")),
        texts=tuple(made_text(draw) for _ in range(draw.randrange(4))),
        group=draw.choice((None, "group-1", "group-2")),
        labels=tuple(draw.sample(WORDS[:3], draw.randrange(3))),
        report=draw.choice((None, f"{draw.choice(WORDS)} {version}")),
        metadata={"version": version, "view": draw.choice(VIEWS), "seen": version % 2 == 0},
    )


def made_text(draw: random.Random) -> str:
    """Make a text of two words; the same one often comes again."""
    return " ".join(draw.sample(WORDS, 2))


def made_upload(record: Record, picture: str) -> ImageWrite:
    """Make the upload of an image with a picture of this name."""
    content = picture.encode()
    found = PictureWrite(hashlib.sha256(content).hexdigest(), "image/png", 8, 8, stored_vector(picture))
    texts = {text: stored_vector(text) for text in record.texts}
    return ImageWrite(record, found, found.sha256, texts, content=content)


def without_picture(upload: ImageWrite) -> ImageWrite:
    """Make the upload of an image whose file and vector are there."""
    return replace(upload, picture=None)
