"""Two generations of a collection compared on held-out images, before one replaces the other.

Nothing is embedded for it: the vectors are those that will be searched.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict
from sqlalchemy import Row, select, update
from sqlalchemy.orm import Session

from index.catalogue.collections import Generation, now
from index.catalogue.lookup import rows_among
from index.catalogue.tables import EmbeddingRow, GenerationRow, ImageRow, TextEmbeddingRow, TextRow
from index.home import Home
from index.vectors.protocol import decode_vectors
from training.evaluation.retrieval import (
    LabelledVectors,
    best_ranks,
    label_precision,
    overlap,
    recall_at,
    row_chunks,
)
from training.evaluation.similarity import Vectors, as_blades, similarity

HeldOut = Literal["test", "val", "sample"]
# Key, id, split, group and labels.
_Image = Row[int, str, str, str | None, list[str]]
_DEPTH: Final = 10
_RECALLS: Final = (1, 5, 10)
_QUERY_IMAGES: Final = 1000
_CANDIDATES: Final = 100_000
_SEED: Final = 0
_SPLITS: Final[tuple[Literal["test", "val"], ...]] = ("test", "val")


class _Figures(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TextToImage(_Figures):
    """Percent of the texts that find an image of theirs among the first k, by k; overlap of the first 10."""

    queries: int
    active: dict[int, float]
    new: dict[int, float]
    overlap: float


class ImageToImage(_Figures):
    """Overlap of the first 10 in percent; precision@10 in percent, where enough images have labels."""

    queries: int
    overlap: float
    labelled: int = 0
    active: float | None = None
    new: float | None = None


class Comparison(_Figures):
    """A generation against the active one.

    Attributes:
        against: Number of the generation that was active.
        measured: Time of the comparison in ISO 8601.
        held_out: Where the queries are from; "sample" when the collection has neither split.
        candidates: Images that were searched.
        text_to_image: None when texts have no vectors in one of the two, or there are none.
        image_to_image: Held-out images as queries for the others.
    """

    against: int
    measured: str
    held_out: HeldOut
    candidates: int
    text_to_image: TextToImage | None
    image_to_image: ImageToImage | None


def compare(home: Home, active: Generation, new: Generation) -> Comparison | None:
    """Measure a generation against the active one, and keep the result with it.

    Queries are the texts of up to 1,000 held-out images (test, otherwise val, otherwise a seeded sample), and
    these images themselves; candidates are all images of the collection, or a seeded sample of 100,000 of
    them.

    Returns:
        None when there are fewer than two images that both have vectors of.
    """
    with home.catalogue.read() as session:
        held_out, images, queries = _choose(session, active, new)
        if len(images) < 2:
            return None
        keys = [image.key for image in images]
        vectors = [
            _stored(session, generation, EmbeddingRow, EmbeddingRow.image_id, keys)
            for generation in (active, new)
        ]
        texts = _texts(session, (active, new), keys[:queries])
        text_vectors = [
            _stored(session, generation, TextEmbeddingRow, TextEmbeddingRow.text_id, list(texts))
            for generation in (active, new)
        ]
        relevant = _relevant(session, texts, images)
    result = Comparison(
        against=active.id,
        measured=now(),
        held_out=held_out,
        candidates=len(images),
        text_to_image=_by_text(text_vectors, vectors, relevant) if texts else None,
        image_to_image=_by_image(images, queries, vectors),
    )
    with home.catalogue.write() as session:
        session.execute(
            update(GenerationRow)
            .where(GenerationRow.id == new.id)
            .values(comparison=result.model_dump(mode="json"))
        )
    return result


def _choose(session: Session, active: Generation, new: Generation) -> tuple[HeldOut, list[_Image], int]:
    """Return where queries are from, the images that are searched, and how many of the first are queries."""
    both = [
        select(EmbeddingRow.image_id).where(EmbeddingRow.generation_id == generation.id)
        for generation in (active, new)
    ]
    query = (
        select(
            ImageRow.id.label("key"),
            ImageRow.external_id,
            ImageRow.split,
            ImageRow.group_name,
            ImageRow.labels,
        )
        .where(ImageRow.collection_id == new.collection_id, *(ImageRow.id.in_(each) for each in both))
        .order_by(ImageRow.id)
    )
    images = list(session.execute(query))
    draw = random.Random(_SEED)
    held_out: HeldOut = "sample"
    queries = images
    for split in _SPLITS:
        if any(image.split == split for image in images):
            held_out, queries = split, [image for image in images if image.split == split]
            break
    queries = draw.sample(queries, min(len(queries), _QUERY_IMAGES))
    keys = {image.key for image in queries}
    others = [image for image in images if image.key not in keys]
    searched = queries + draw.sample(others, min(len(others), _CANDIDATES - len(queries)))
    return held_out, searched, len(queries)


def _stored(session: Session, generation: Generation, table: Any, key: Any, keys: Sequence[int]) -> Vectors:
    """Return the vectors of these keys, which are all there, in the shape of their kind."""
    query = select(key, table.vector).where(table.generation_id == generation.id)
    vectors_by_key = {row[0]: row[1] for row in rows_among(session, query, key, keys)}
    vectors = decode_vectors([vectors_by_key[key] for key in keys], generation.dim)
    return as_blades(vectors, generation.blades, unsigned=generation.unsigned)


def _texts(session: Session, generations: Sequence[Generation], images: Sequence[int]) -> dict[int, str]:
    query = select(TextRow.id, TextRow.text)
    for generation in generations:
        embedded = select(TextEmbeddingRow.text_id).where(TextEmbeddingRow.generation_id == generation.id)
        query = query.where(TextRow.id.in_(embedded))
    return {row.id: row.text for row in rows_among(session, query, TextRow.image_id, images)}


def _relevant(session: Session, texts: Mapping[int, str], images: Sequence[_Image]) -> list[list[int]]:
    """Return for each text the rows of all images that have exactly this sentence."""
    row_of = {image.key: row for row, image in enumerate(images)}
    rows: dict[str, set[int]] = {text: set() for text in texts.values()}
    collection = select(ImageRow.collection_id).where(ImageRow.id == images[0].key).scalar_subquery()
    query = select(TextRow.text, TextRow.image_id).join(ImageRow, ImageRow.id == TextRow.image_id)
    query = query.where(ImageRow.collection_id == collection)
    for text, image in rows_among(session, query, TextRow.text, rows):
        if image in row_of:
            rows[text].add(row_of[image])
    return [sorted(rows[text]) for text in texts.values()]


def _by_text(
    texts: Sequence[Vectors], images: Sequence[Vectors], relevant: Sequence[Sequence[int]]
) -> TextToImage:
    active, new = (
        recall_at(best_ranks(queries, candidates, relevant), _RECALLS)
        for queries, candidates in zip(texts, images, strict=True)
    )
    firsts = [_first(queries, candidates) for queries, candidates in zip(texts, images, strict=True)]
    return TextToImage(
        queries=len(relevant), active=active, new=new, overlap=100 * overlap(firsts[1], firsts[0])
    )


def _by_image(images: Sequence[_Image], count: int, vectors: Sequence[Vectors]) -> ImageToImage:
    rows = range(count)
    firsts = [_first(candidates[rows], candidates, own=rows) for candidates in vectors]
    shared = 100 * overlap(firsts[1], firsts[0])
    labelled = [row for row, image in enumerate(images) if image.labels]
    queries = [row for row in rows if images[row].labels]
    figures = [_precision(images, candidates, queries, labelled) for candidates in vectors]
    active, new = (None if figure is None else figure[0] for figure in figures)
    measured = 0 if figures[0] is None else figures[0][1]
    return ImageToImage(queries=count, overlap=shared, labelled=measured, active=active, new=new)


def _precision(
    images: Sequence[_Image], vectors: Vectors, queries: Sequence[int], candidates: Sequence[int]
) -> tuple[float, int] | None:
    """Return the precision@10 of images among those with labels, and of how many; None where none has 10."""
    try:
        measured = label_precision(
            _labelled(images, vectors, queries), _labelled(images, vectors, candidates), ks=(_DEPTH,)
        )
    except ValueError:
        return None
    value = measured.precision[_DEPTH]
    return None if value is None else (value, measured.queries - measured.short[_DEPTH])


def _labelled(images: Sequence[_Image], vectors: Vectors, rows: Sequence[int]) -> LabelledVectors:
    return LabelledVectors(
        vectors=vectors[list(rows)],
        labels=[images[row].labels for row in rows],
        ids=[images[row].external_id for row in rows],
        groups=[images[row].group_name for row in rows],
    )


def _first(queries: Vectors, candidates: Vectors, own: Sequence[int] | None = None) -> list[list[int]]:
    """Return the rows of the first 10 candidates of each query, in no order, itself left out."""
    rows: list[list[int]] = []
    depth = min(_DEPTH, len(candidates) - (own is not None))
    for start, stop in row_chunks(len(queries), len(candidates)):
        scores = similarity(queries[start:stop], candidates).copy()
        if own is not None:
            scores[np.arange(stop - start), list(own[start:stop])] = -np.inf
        rows += np.argpartition(-scores, depth - 1, axis=1)[:, :depth].tolist()
    return rows
