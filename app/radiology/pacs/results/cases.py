"""The similar cases that a caller has chosen to be written back, compared anew by the service."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.radiology.schemas.results import MAX_CASES
from app.radiology.schemas.studies import SimilarHit, text_of, whole_number_of
from app.radiology.similar_studies import describe_study
from app.search.read_search import invalid
from index.engine import SearchEngine
from index.errors import shortened
from index.filters.grammar import AnyOf
from index.search.results import ActiveGeneration
from index.studies import FRAME, SOP, SimilarRequest, StudyImage, Wanted, find_similar


@dataclass(frozen=True, slots=True)
class ChosenCases:
    """An image and similar cases.

    Attributes:
        active: Generation that compared them.
        query: The image.
        series: Series Instance UID of the image.
        hits: The cases, the most similar first; each has the UIDs of study, series and instance.
    """

    active: ActiveGeneration
    query: StudyImage
    series: str
    hits: Sequence[SimilarHit]


def compare_cases(
    engine: SearchEngine, collection: str, wanted: Wanted, chosen: Sequence[str]
) -> ChosenCases:
    """Compare an image with cases by their ids, as a search for similar studies does.

    Raises:
        RequestError: The image or a case cannot be written back.
        UnknownCollectionError: No collection has this name.
        NoActiveGenerationError: The collection cannot be searched yet.
    """
    active = engine.active(collection)
    asked = SimilarRequest(len(chosen), AnyOf(field="id", any_of=tuple(chosen)), same_patient=True)
    similar = find_similar(engine, active, wanted, asked)
    if not similar.compared:
        raise invalid("sop", "The collection has no such image of the study that can be compared.")
    if len(similar.compared) > 1:
        raise invalid("frame", "The instance has several frames: name the one that was searched with.")
    query, found = similar.compared[0], {one.hit.id: one for one in similar.hits}
    for name in chosen:
        if name not in found:
            raise invalid(
                "hits",
                f"{shortened(name)!r} is no similar case of the image: the collection lacks it, or it is of "
                "the same study, or of that of another case.",
            )
    hits = [describe_study(one, active.collection, None, "") for one in similar.hits]
    for hit in hits:
        if None in (hit.study, hit.series, hit.sop):
            raise invalid("hits", f"{shortened(hit.id)!r} has no UIDs of study, series and instance.")
    series = text_of(query.metadata, "series")
    if series is None or text_of(query.metadata, SOP) is None:
        raise invalid("sop", "The image has no UID of its series: take it from the archive.")
    return ChosenCases(active, query, series, hits)


def most_similar_cases(
    engine: SearchEngine, collection: str, study: str
) -> tuple[ChosenCases, Sequence[str]] | None:
    """Compare the image of a study that is most like one of another patient with such images.

    Cases of patients that are not known are left out.

    Returns:
        The image and its cases, and the ids of all images of the study; None where there is no such case.

    Raises:
        UnknownCollectionError: No collection has this name.
        NoActiveGenerationError: The collection cannot be searched yet.
    """
    active = engine.active(collection)
    whole = find_similar(engine, active, Wanted(study), SimilarRequest(1))
    if not whole.hits:
        return None
    query = whole.hits[0].query
    series, sop = text_of(query.metadata, "series"), text_of(query.metadata, SOP)
    if series is None or sop is None:
        return None
    wanted = Wanted(study, sop, whole_number_of(query.metadata, FRAME))
    similar = find_similar(engine, active, wanted, SimilarRequest(MAX_CASES))
    hits = [describe_study(one, active.collection, None, "") for one in similar.hits]
    hits = [hit for hit in hits if hit.same_patient is False and None not in (hit.study, hit.series, hit.sop)]
    if not hits:
        return None
    return ChosenCases(active, query, series, hits), [image.id for image in whole.images]
