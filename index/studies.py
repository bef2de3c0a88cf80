"""Studies of patients: their images, and the studies that are most like them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Final, NamedTuple

import numpy as np
from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from index.catalogue.collections import NOT_DELETED, require_collection
from index.catalogue.lookup import storable_text
from index.catalogue.tables import REPORT_POSITION, AttributeRow, CollectionRow, FindingRow, ImageRow
from index.engine import SearchEngine
from index.filters.grammar import Filter
from index.search.grouping import STUDY
from index.search.request import BatchEntry, SearchRequest
from index.search.results import ActiveGeneration, Hit, SearchPage, vectors_of
from index.vectors.protocol import Vectors
from training.clinical.findings import are_prior, prior_sentences
from training.clinical.text.sections import span_in_report
from training.clinical.text.sentences import split_sentences
from training.common.manifest import MetadataValue

SOP: Final = "sop"
FRAME: Final = "frame"
# Slices of the largest studies that are looked at.
_MOST_IMAGES: Final = 10_000
# Images of a study that are compared, evenly spread over a larger one.
MAX_COMPARED: Final = 64


class StudyImage(NamedTuple):
    """An image of a study, by its key and id."""

    key: int
    id: str
    metadata: Mapping[str, MetadataValue]


class StudyReference(NamedTuple):
    """A study, an instance of it, or a frame of an instance.

    Attributes:
        study: Study Instance UID.
        sop: SOP Instance UID; None: the whole study.
        frame: Number of a frame, from 1; None: all.
    """

    study: str
    sop: str | None = None
    frame: int | None = None


def images_of(session: Session, collection: str, reference: StudyReference) -> list[StudyImage]:
    """Return the images of a study, in the order in which they were added; none if the study is unknown."""
    row = require_collection(session, collection)
    if not _storable(reference):
        return []
    query = select(ImageRow.id, ImageRow.external_id, ImageRow.details).where(
        ImageRow.collection_id == row.id, *_conditions([row.id], reference)
    )
    rows = session.execute(query.order_by(ImageRow.id).limit(_MOST_IMAGES)).all()
    images = [StudyImage(key, name, details) for key, name, details in rows]
    if reference.frame is None:
        return images
    return [image for image in images if image.metadata.get(FRAME, 1) == reference.frame]


def collections_with(session: Session, names: Collection[str], reference: StudyReference) -> list[str]:
    """Return the collections, among some, that contain a study or an instance of it, by name."""
    if not _storable(reference) or not names:
        return []
    query = select(CollectionRow.id, CollectionRow.name).where(NOT_DELETED, CollectionRow.name.in_(names))
    named = dict(session.execute(query).all())
    holding = select(ImageRow.collection_id).where(*_conditions(list(named), reference)).distinct()
    return sorted(named[key] for key in session.execute(holding).scalars())


def spread(images: Sequence[StudyImage], most: int) -> list[StudyImage]:
    """Return up to `most` of some images, evenly spread over them."""
    if len(images) <= most:
        return list(images)
    return [images[index * len(images) // most] for index in range(most)]


def _storable(reference: StudyReference) -> bool:
    return storable_text(reference.study) and (reference.sop is None or storable_text(reference.sop))


def _conditions(collections: Sequence[int], reference: StudyReference) -> list[ColumnElement[bool]]:
    named = (
        {STUDY: reference.study} if reference.sop is None else {STUDY: reference.study, SOP: reference.sop}
    )
    images = select(AttributeRow.image_id).where(AttributeRow.collection_id.in_(collections))
    return [
        ImageRow.id.in_(images.where(AttributeRow.name == name, AttributeRow.text_value == value))
        for name, value in named.items()
    ]


class Sentence(NamedTuple):
    """A sentence of an image's texts or of its report.

    Attributes:
        text: The sentence.
        position: Position of the text; None: it is of the report alone.
        start: Offset of its first character in the report; None: the report has no such sentence.
        end: Offset after its last character.
        prior: Whether it compares with an earlier examination, or mentions one.
    """

    text: str
    position: int | None
    start: int | None
    end: int | None
    prior: bool


class HitContext(NamedTuple):
    """Text of a hit: a sentence, and whether there is a report."""

    sentence: Sentence | None
    has_report: bool


def read_contexts(
    session: Session,
    active: ActiveGeneration,
    hits: Sequence[Hit],
    queries: Sequence[Vectors],
    query_keys: Collection[int],
) -> list[HitContext]:
    """Return for each hit the text nearest to its query, or a sentence with a finding that both have."""
    collection = require_collection(session, active.collection)
    query = select(ImageRow.external_id, ImageRow.id, ImageRow.report).where(
        ImageRow.collection_id == collection.id, ImageRow.external_id.in_({hit.id for hit in hits})
    )
    rows = {name: (key, report) for name, key, report in session.execute(query)}
    keys = [key for key, _ in rows.values()]
    # Texts of blades, and of vectors without a sign, are not compared one by one.
    comparable = active.blades == 1 and not active.unsigned
    vectors = vectors_of(session, active, keys, texts=True) if comparable else {}
    shared = _shared_mentions(session, keys, query_keys)
    contexts = []
    for hit, vector in zip(hits, queries, strict=True):
        # The image may have been removed since it was found.
        key, report = rows.get(hit.id, (-1, None))
        positions = [position for position in range(len(hit.image.texts)) if (key, position) in vectors]
        sentence = None
        if positions:
            cosines = np.stack([vectors[key, position] for position in positions]) @ vector
            best = positions[int(np.argmax(cosines))]
            sentence = _text_sentence(hit.image.texts[best], best, report)
        elif report is not None and key in shared:
            sentence = _report_sentence(report, *shared[key])
        contexts.append(HitContext(sentence, report is not None))
    return contexts


def _shared_mentions(
    session: Session, keys: Collection[int], query_keys: Collection[int]
) -> Mapping[int, tuple[int, int]]:
    """Return the first mention, in each image's report, of a finding that the query has in the same state."""
    stated = select(FindingRow.image_finding).where(FindingRow.image_id.in_(query_keys)).distinct()
    names = list(session.execute(stated).scalars())
    if not names:
        return {}
    query = (
        select(FindingRow.image_id, FindingRow.start, FindingRow.stop)
        .where(
            FindingRow.image_id.in_(keys),
            FindingRow.position == REPORT_POSITION,
            FindingRow.image_finding.in_(names),
        )
        .order_by(FindingRow.image_id, FindingRow.start.desc())
    )
    return {key: (start, stop) for key, start, stop in session.execute(query)}


def _text_sentence(text: str, position: int, report: str | None) -> Sentence:
    prior = bool(prior_sentences(text))
    start = None if report is None else span_in_report(text, report)
    if start is None:
        return Sentence(text, position, None, None, prior)
    return Sentence(text, position, start, start + len(text), prior)


def _report_sentence(report: str, start: int, stop: int) -> Sentence:
    """Return the sentence around a mention; the mention alone where its sentence is not written so."""
    end = 0
    for sentence in split_sentences(report, fragments=True):
        begin = report.find(sentence, end)
        if begin < 0:
            continue
        end = begin + len(sentence)
        if begin <= start < end:
            return Sentence(sentence, None, begin, end, bool(prior_sentences(sentence)))
    return Sentence(report[start:stop], None, start, stop, *are_prior(report, [start]))


@dataclass(frozen=True, slots=True)
class SimilarRequest:
    """Number and choice of the studies to find.

    Attributes:
        limit: Number of studies.
        filter: Filter on their images.
        same_patient: Whether other studies of the same patient may be among them.
    """

    limit: int
    filter: Filter | None = None
    same_patient: bool = False


class SimilarStudy(NamedTuple):
    """A similar study.

    Attributes:
        hit: The image of the study that is most like one of the query's.
        query: The query's image of the best pair.
        z_score: Z-score of their cosine; None if unknown.
        context: Its sentence, and whether it has a report.
    """

    hit: Hit
    query: StudyImage
    z_score: float | None
    context: HitContext


class SimilarStudies(NamedTuple):
    """Studies, the most alike first, and what they were compared with.

    Attributes:
        hits: The studies.
        images: All images of the query; none where the collection does not hold it.
        compared: Those that were compared; none where none has a vector yet.
        exact: Whether every candidate was compared.
    """

    hits: Sequence[SimilarStudy]
    images: Sequence[StudyImage]
    compared: Sequence[StudyImage]
    exact: bool


def find_similar(
    engine: SearchEngine, active: ActiveGeneration, reference: StudyReference, request: SimilarRequest
) -> SimilarStudies:
    """Find the studies most like a study: their similarity is that of the two images most alike.

    Images of different views are not mixed into one query, which would be like neither.
    """
    with engine.home.catalogue.read() as session:
        images = images_of(session, active.collection, reference)
        chosen = spread(images, MAX_COMPARED)
        vectors = vectors_of(session, active, [image.key for image in chosen], texts=False)
    compared = [image for image in chosen if (image.key, None) in vectors]
    if not compared:
        return SimilarStudies((), images, (), exact=True)
    queries = [vectors[image.key, None] for image in compared]
    pages = _pages(engine, active, compared, queries, request)
    best = _best_of_each_study(pages, request.limit)
    with engine.home.catalogue.read() as session:
        contexts = read_contexts(
            session,
            active,
            [hit for _, hit, _ in best],
            [queries[index] for index, _, _ in best],
            [image.key for image in compared],
        )
    hits = [
        SimilarStudy(hit._replace(rank=rank), compared[index], z_score, one)
        for rank, ((index, hit, z_score), one) in enumerate(zip(best, contexts, strict=True), 1)
    ]
    return SimilarStudies(hits, images, compared, all(page.exact for page in pages))


def _pages(
    engine: SearchEngine,
    active: ActiveGeneration,
    compared: Sequence[StudyImage],
    queries: Sequence[Vectors],
    request: SimilarRequest,
) -> list[SearchPage]:
    ids = tuple(image.id for image in compared)
    search = SearchRequest(
        k=request.limit,
        filter=request.filter,
        group_by=STUDY,
        exclude_groups_of=ids,
        exclude_groups_by=STUDY,
        exclude_patients_of=() if request.same_patient else ids,
        kind="image",
    )
    pages = []
    for page in engine.search_batch(active, [BatchEntry(vector, search, None) for vector in queries]):
        if not isinstance(page, SearchPage):
            raise page
        pages.append(page)
    return pages


def _best_of_each_study(pages: Sequence[SearchPage], limit: int) -> list[tuple[int, Hit, float | None]]:
    """Return the query's index, the hit and its z-score for the best pair of each study, best first."""
    best: dict[object, tuple[int, Hit, float | None]] = {}
    for index, page in enumerate(pages):
        for hit, z_score in zip(page.hits, page.z_scores or repeat(None), strict=False):
            # An image without a study is a group of its own.
            study = hit.image.metadata.get(STUDY, ("", hit.id))
            if study not in best or hit.score > best[study][1].score:
                best[study] = (index, hit, z_score)
    ranked = sorted(best.values(), key=lambda one: (-one[1].score, one[1].id))
    return ranked[:limit]
