"""From a study to the studies that are like it."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from fastapi import Request

from app.audit.noted import Noted, note
from app.audit.trail import filter_parts
from app.edge.principal import Principal
from app.edge.schemas import image_path
from app.jobs.queue import synced_collection
from app.radiology.schemas.studies import (
    IndexNow,
    MatchedSentence,
    QueryImage,
    SimilarHit,
    SimilarLinks,
    SimilarResponse,
    WriteBack,
    age_band,
    date_shifted,
    days_between,
    text_of,
    whole_number_of,
)
from app.radiology.viewer.installation import viewer_template
from app.radiology.viewer.links import viewer_link
from app.search.schemas.findings import stated_from
from app.search.schemas.page import ServedBy
from app.services import Services
from app.settings import Settings
from index.engine import SearchEngine
from index.errors import NoActiveGenerationError
from index.search.grouping import PATIENT, STUDY
from index.search.results import ActiveGeneration
from index.studies import (
    FRAME,
    SOP,
    SimilarRequest,
    SimilarStudies,
    SimilarStudy,
    StudyImage,
    Wanted,
    collections_with,
    find_similar,
)
from training.clinical.reports.study_report import is_uid


@dataclass(frozen=True, slots=True)
class Found:
    """Similar studies of one collection.

    Attributes:
        collections: All collections of the caller that hold the study.
        active: Generation that was searched; None: no collection holds it.
        similar: Its studies; None: no collection holds it.
    """

    collections: Sequence[str]
    active: ActiveGeneration | None
    similar: SimilarStudies | None


async def answer_similar(
    request: Request,
    services: Services,
    principal: Principal,
    collection: str | None,
    wanted: Wanted,
    asked: SimilarRequest,
    filter: object,
) -> SimilarResponse:
    """Find studies like one.

    Args:
        request: The request.
        services: Services of the running application.
        principal: The caller.
        collection: Collection to search; None: the first one, by name, that the caller may read and that
            holds the study. Scores of several collections, by different models, could not be compared.
        wanted: The study, or an instance of it.
        asked: Number and choice of studies.
        filter: The filter as it was sent, for the audit trail.

    Raises:
        UnknownCollectionError: No collection has this name.
        NoActiveGenerationError: The collection cannot be searched yet.
        FilterError: The filter does not fit the collection.
    """
    found = await services.threads.read(_find, services.engine, principal, collection, wanted, asked)
    active, similar = found.active, found.similar
    hits = () if similar is None else similar.hits
    note(
        request,
        Noted(
            collection=None if active is None else active.collection,
            objects=[one.hit.id for one in hits],
            query={
                "like": [] if similar is None else [image.id for image in similar.compared],
                **filter_parts(filter),
            },
            model=None if active is None else active.digest,
            generation=None if active is None else active.generation,
            details={"limit": asked.limit, "same_patient": asked.same_patient},
        ),
    )
    prefix, template = request.scope.get("root_path", ""), viewer_template(services.settings)
    is_indexed = similar is not None and bool(similar.compared)
    return SimilarResponse(
        state="indexed" if is_indexed else "not_indexed",
        collection=None if active is None else active.collection,
        collections=list(found.collections),
        study=wanted.study,
        images=[] if similar is None else [QueryImage.of(image) for image in similar.compared],
        hits=[
            describe_study(one, "" if active is None else active.collection, template, prefix) for one in hits
        ],
        index_now=None if is_indexed else _index_now(services.settings, principal, wanted.study, prefix),
        write_back=_write_back(services.settings, principal, active, wanted.study, prefix)
        if is_indexed
        else None,
        served_by=None
        if active is None or similar is None
        else ServedBy(
            collection=active.collection,
            generation=active.generation,
            model=active.model,
            digest=active.digest,
            exact=similar.exact,
        ),
    )


def _find(
    engine: SearchEngine,
    principal: Principal,
    collection: str | None,
    wanted: Wanted,
    asked: SimilarRequest,
) -> Found:
    named = [name for name in engine.names() if principal.may("reader", name)]
    with engine.home.catalogue.read() as session:
        holding = collections_with(session, named, wanted)
    if collection is not None:
        active = engine.active(collection)
        return Found(holding, active, find_similar(engine, active, wanted, asked))
    for name in holding:
        try:
            active = engine.active(name)
        except NoActiveGenerationError:
            continue
        similar = find_similar(engine, active, wanted, asked)
        if similar.compared:
            return Found(holding, active, similar)
    return Found(holding, None, None)


def describe_study(one: SimilarStudy, collection: str, template: str | None, prefix: str) -> SimilarHit:
    """Describe a study that was found.

    Args:
        one: The study.
        collection: Collection that holds it.
        template: Template of a viewer's address; None: there is no viewer.
        prefix: Path of the service.
    """
    hit, query = one.hit, one.query
    known = hit.image.metadata
    path = image_path(collection, hit.id, prefix=prefix)
    same_patient = _is_same_patient(query, one)
    # Patients have shifts of their own.
    is_comparable = same_patient or not (date_shifted(query.metadata) or date_shifted(known))
    return SimilarHit(
        id=hit.id,
        rank=hit.rank,
        score=hit.score,
        z_score=one.z_score,
        query_image=query.id,
        images=(hit.others or 0) + 1,
        study=text_of(known, STUDY),
        series=text_of(known, "series"),
        sop=text_of(known, SOP),
        frame=whole_number_of(known, FRAME),
        modality=text_of(known, "modality"),
        view=text_of(known, "view"),
        laterality=text_of(known, "laterality"),
        body_part=text_of(known, "body_part"),
        date=text_of(known, "date"),
        date_shifted=date_shifted(known),
        days=days_between(query.metadata, known) if is_comparable else None,
        age_band=age_band(known),
        sex=text_of(known, "sex"),
        same_patient=same_patient,
        findings=stated_from(hit.image.findings),
        sentence=None if one.told.sentence is None else MatchedSentence.of(one.told.sentence),
        links=SimilarLinks(
            image=path,
            thumbnail=f"{path}/thumbnail",
            rendition=f"{path}/rendition",
            report=path if one.told.has_report else None,
            viewer=viewer_link(template, known, prefix=prefix),
        ),
    )


def _index_now(settings: Settings, principal: Principal, study: str, prefix: str) -> IndexNow | None:
    if settings.pacs_url is None or settings.pacs_sync is None or not is_uid(study):
        return None
    collection = synced_collection(settings.pacs_sync)
    if not principal.may("curator", collection):
        return None
    return IndexNow(path=f"{prefix}/v1/collections/{quote(collection, safe='')}/studies/{study}/index")


def _write_back(
    settings: Settings, principal: Principal, active: ActiveGeneration | None, study: str, prefix: str
) -> WriteBack | None:
    if active is None or not settings.pacs_write_back or principal.kind == "anonymous":
        return None
    if not principal.may("judge", active.collection):
        return None
    path = (
        f"{prefix}/v1/collections/{quote(active.collection, safe='')}/studies/{quote(study, safe='')}/results"
    )
    return WriteBack(path=path, forms=list(settings.pacs_write_back))


def _is_same_patient(query: StudyImage, one: SimilarStudy) -> bool | None:
    first, second = query.metadata.get(PATIENT), one.hit.image.metadata.get(PATIENT)
    return None if first is None or second is None else first == second
