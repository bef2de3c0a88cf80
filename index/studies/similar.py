"""The studies that are most like a study or an image of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Final, NamedTuple

from index.engine import SearchEngine
from index.filters.grammar import Filter
from index.search.grouping import STUDY
from index.search.hit_reader import vectors_of
from index.search.request import BatchEntry, SearchRequest
from index.search.results import ActiveGeneration, Hit, SearchPage
from index.studies.members import StudyImage, Wanted, images_of, spread
from index.studies.sentences import Told, read_told
from index.vectors.protocol import Vectors

# Images of a study that are compared, evenly spread over a larger one.
MAX_COMPARED: Final = 64


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
    """A study that was found.

    Attributes:
        hit: The image of the study that is most like one of the query's.
        query: That image of the query.
        z_score: Z-score of their cosine; None where it cannot be told.
        told: Its sentence, and whether it has a report.
    """

    hit: Hit
    query: StudyImage
    z_score: float | None
    told: Told


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
    engine: SearchEngine, active: ActiveGeneration, wanted: Wanted, request: SimilarRequest
) -> SimilarStudies:
    """Find the studies most like a study: their similarity is that of the two images most alike.

    Images of different views are not mixed into one query, which would be like neither.

    Args:
        engine: Engine of the collection.
        active: Generation to search.
        wanted: The study, or an instance of it.
        request: Number and choice of studies.

    Raises:
        UnknownCollectionError: The collection is gone.
        GenerationError: The generation is gone.
        FilterError: The filter does not fit the collection.
    """
    with engine.home.catalogue.read() as session:
        images = images_of(session, active.collection, wanted)
        chosen = spread(images, MAX_COMPARED)
        vectors = vectors_of(session, active, [image.key for image in chosen], texts=False)
    compared = [image for image in chosen if (image.key, None) in vectors]
    if not compared:
        return SimilarStudies((), images, (), exact=True)
    queries = [vectors[image.key, None] for image in compared]
    pages = _pages(engine, active, compared, queries, request)
    best = _best_of_each_study(pages, request.limit)
    with engine.home.catalogue.read() as session:
        told = read_told(
            session,
            active,
            [hit for _, hit, _ in best],
            [queries[place] for place, _, _ in best],
            [image.key for image in compared],
        )
    hits = [
        SimilarStudy(hit._replace(rank=rank), compared[place], z_score, one)
        for rank, ((place, hit, z_score), one) in enumerate(zip(best, told, strict=True), 1)
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
    asked = SearchRequest(
        k=request.limit,
        filter=request.filter,
        group_by=STUDY,
        exclude_groups_of=ids,
        exclude_groups_by=STUDY,
        exclude_patients_of=() if request.same_patient else ids,
        kind="image",
    )
    pages = []
    for page in engine.search_batch(active, [BatchEntry(vector, asked, None) for vector in queries]):
        if not isinstance(page, SearchPage):
            raise page
        pages.append(page)
    return pages


def _best_of_each_study(pages: Sequence[SearchPage], limit: int) -> list[tuple[int, Hit, float | None]]:
    """Return the query's place, the hit and its z-score for the best pair of each study, best first."""
    best: dict[object, tuple[int, Hit, float | None]] = {}
    for place, page in enumerate(pages):
        for hit, z_score in zip(page.hits, page.z_scores or repeat(None), strict=False):
            # An image without a study is a group of its own.
            study = hit.image.metadata.get(STUDY, ("", hit.id))
            if study not in best or hit.score > best[study][1].score:
                best[study] = (place, hit, z_score)
    ranked = sorted(best.values(), key=lambda one: (-one[1].score, one[1].id))
    return ranked[:limit]
