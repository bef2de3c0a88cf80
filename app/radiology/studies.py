"""Similar studies for viewers, by DICOM UIDs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Final, Literal, Self
from urllib.parse import quote

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from app.audit.requests import Noted, note
from app.audit.trail import filter_parts
from app.edge.operations import operation
from app.edge.principal import Principal
from app.edge.problems import problem_responses
from app.edge.schemas import Answer, image_path
from app.metadata_values import age_band, day_of, text_of, whole_number_of
from app.permissions import GuardedRoute, InjectedPrincipal, may
from app.radiology.jobs import synced_collection
from app.radiology.settings import ResultForm
from app.radiology.viewer import viewer_link, viewer_template
from app.search.read_search import read_condition
from app.search.schemas import ServedBy, StatedByImage, stated_from
from app.services import InjectedServices
from app.settings import Settings
from index.engine import SearchEngine
from index.errors import NoActiveGenerationError
from index.filters.grammar import parse_filter
from index.search.grouping import PATIENT, STUDY
from index.search.results import ActiveGeneration
from index.studies import (
    FRAME,
    SOP,
    SimilarRequest,
    SimilarStudies,
    SimilarStudy,
    StudyImage,
    StudyReference,
    collections_with,
    find_similar,
)
from training.clinical.reports.study_report import is_uid
from training.common.manifest import MetadataValue

_SHIFTED: Final = "Whether de-identification has shifted the date; null if unknown."
router = APIRouter(tags=["studies"], route_class=GuardedRoute)
MAX_LIMIT: Final = 100
_MAX_UID_LENGTH: Final = 255
_PROBLEMS = problem_responses(
    HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.GATEWAY_TIMEOUT
)
_IN_ONE: Final = [may("reader")]
_IN_ANY: Final = [may("reader", somewhere=True)]
# Fields of a hit that are texts of its metadata.
_TEXTS: Final = (STUDY, "series", SOP, "modality", "view", "laterality", "body_part", "date", "sex")
StudyUid = Annotated[
    str,
    Path(
        max_length=_MAX_UID_LENGTH,
        description="Study Instance UID: the `study` of images.",
        examples=["1.2.826.0.1.3680043.8.498.3"],
    ),
]
SopUid = Annotated[
    str, Path(max_length=_MAX_UID_LENGTH, description="SOP Instance UID: the `sop` of images.")
]


class QueryImage(Answer):
    """An image of the requested study."""

    id: str
    series: str | None
    sop: str | None
    view: str | None
    date: str | None
    date_shifted: bool | None = Field(description=_SHIFTED)

    @classmethod
    def from_image(cls, image: StudyImage) -> Self:
        """Describe an image."""
        metadata = image.metadata
        texts = {name: text_of(metadata, name) for name in ("series", "sop", "view", "date")}
        return cls(id=image.id, date_shifted=date_shifted(metadata), **texts)


class SimilarLinks(Answer):
    """Paths and addresses of a similar study."""

    image: str
    thumbnail: str
    rendition: str
    report: str | None = Field(
        description="The record whose `report` is the image's report; null without one."
    )
    viewer: str | None = Field(
        description="Opens the study in the viewer of the settings, or the installed one; null without a "
        "viewer, or where the image lacks a UID."
    )


class MatchedSentence(Answer):
    """The sentence of the hit that fits the query's image best, or that states the same of a finding."""

    text: str
    position: int | None = Field(
        description="Position among the image's texts, from 0; null for a sentence of the report alone."
    )
    start: int | None = Field(
        description="Offset of its first character in the report, in Unicode code points; null where the "
        "report does not have it so."
    )
    end: int | None = Field(description="Offset after its last character.")
    prior: bool = Field(description="Whether it compares with an earlier examination, or mentions one.")


class SimilarHit(Answer):
    """A similar study, shown by its image that is most similar to one of the query's."""

    id: str = Field(description="The image's id.")
    rank: int
    score: float = Field(description="Cosine of the two images that are most alike; not a probability.")
    z_score: float | None = Field(
        description="By how many standard deviations the score is above the query image's mean."
    )
    query_image: str = Field(description="Id of the query's image that it is most like.")
    images: int = Field(description="Images of the study that pass the filter.")
    study: str | None
    series: str | None
    sop: str | None
    frame: int | None = Field(description="Number of the frame, from 1; null of single images.")
    modality: str | None
    view: str | None
    laterality: str | None
    body_part: str | None
    date: str | None = Field(description="Date of the study, as the collection keeps it.")
    date_shifted: bool | None = Field(description=_SHIFTED)
    days: int | None = Field(
        description="Days from the query's image to the hit; negative: the hit is older. null where a date "
        "is missing, or is shifted and the patient is another one."
    )
    age_band: str | None = Field(description="Ten years of age, such as 60-69; 90+ above.")
    sex: str | None
    same_patient: bool | None = Field(
        description="Whether it is of the query's patient; null where one of them is unknown."
    )
    findings: StatedByImage
    sentence: MatchedSentence | None = Field(description="null where no sentence can be named.")
    links: SimilarLinks


class IndexNow(Answer):
    """A request that begins a job, which brings the study over from the archive."""

    method: Literal["POST"] = "POST"
    path: str


class WriteBack(Answer):
    """A request that writes hits back to the archive; its body names the image and the hits."""

    method: Literal["POST"] = "POST"
    path: str
    forms: list[ResultForm]


class SimilarResponse(Answer):
    """Studies similar to the requested one."""

    state: Literal["indexed", "not_indexed"] = Field(
        description="not_indexed: no image of the study can be searched with here, so that there are no hits."
    )
    collection: str | None = Field(
        description="The collection that was searched; null where no collection that may be read holds it."
    )
    collections: list[str] = Field(description="All collections that the caller may read and that hold it.")
    study: str
    images: list[QueryImage] = Field(
        description="The images that were compared, up to 64: those of a larger study are spread over it."
    )
    hits: list[SimilarHit]
    index_now: IndexNow | None = Field(
        description="For a study that is not indexed, the request that imports it from the archive; null "
        "where the settings describe no archive, or the caller may not put images in."
    )
    write_back: WriteBack | None = Field(
        description="The request that writes hits back to the archive; null where the settings allow no form "
        "of it, the caller may not, or the study is not indexed."
    )
    served_by: ServedBy | None


def date_shifted(metadata: Mapping[str, MetadataValue]) -> bool | None:
    """Return whether a date was shifted; None if unknown, or without a date."""
    shifted = metadata.get("date_shifted")
    return shifted if isinstance(shifted, bool) else None


class _StudiesQuery(BaseModel):
    # A misspelt parameter would be ignored otherwise, and another question be answered.
    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: int = Field(default=10, ge=1, le=MAX_LIMIT, description="Number of studies.")
    same_patient: bool = Field(
        default=False, description="Whether to include other studies of the same patient, such as priors."
    )
    filter: str | None = Field(
        default=None,
        description="A filter on the images of hits, as JSON.",
        examples=['{"field": "view", "eq": "PA"}'],
    )


class _ImagesQuery(_StudiesQuery):
    frame: int | None = Field(default=None, ge=1, description="One frame of several, from 1.")


@dataclass(frozen=True, slots=True)
class _Caller:
    """The caller of a request for similar studies."""

    request: Request
    services: InjectedServices
    principal: InjectedPrincipal

    async def similar(
        self, collection: str | None, reference: StudyReference, parameters: _StudiesQuery
    ) -> SimilarResponse:
        """Answer with the studies like one; without a collection, of the first that holds it."""
        services, principal = self.services, self.principal
        condition = read_condition(parameters.filter, services.settings)
        filter = None if condition is None else parse_filter(condition)
        similar_request = SimilarRequest(parameters.limit, filter, parameters.same_patient)
        holding, active, similar = await services.threads.read(
            _find, services.engine, principal, collection, reference, similar_request
        )
        _note(self.request, active, similar, parameters)
        prefix, template = self.request.scope.get("root_path", ""), viewer_template(services.settings)
        name = None if active is None else active.collection
        is_indexed = bool(similar.compared)
        settings, study = services.settings, reference.study
        return SimilarResponse(
            state="indexed" if is_indexed else "not_indexed",
            collection=name,
            collections=holding,
            study=study,
            images=[QueryImage.from_image(image) for image in similar.compared],
            hits=[describe_study(one, name or "", template, prefix) for one in similar.hits],
            index_now=None if is_indexed else _index_now(settings, principal, study, prefix),
            write_back=_write_back(settings, principal, name, study, prefix) if is_indexed else None,
            served_by=ServedBy.from_generation(active, exact=similar.exact),
        )


_Asking = Annotated[_Caller, Depends()]


@router.get(
    "/v1/collections/{collection}/studies/{study}/similar",
    summary="Similar studies",
    responses=_PROBLEMS,
    dependencies=_IN_ONE,
)
@operation("search", "read")
async def find_similar_studies(
    collection: str, study: StudyUid, parameters: Annotated[_StudiesQuery, Query()], caller: _Asking
) -> SimilarResponse:
    """Studies like this one, most similar first; two are as similar as the two of their images most alike.

    The study itself is left out, and so are other studies of the patient unless they are requested. A study
    that isn't in the collection has the state `not_indexed`.
    """
    return await caller.similar(collection, StudyReference(study), parameters)


@router.get(
    "/v1/collections/{collection}/studies/{study}/instances/{sop}/similar",
    summary="Studies like an image",
    responses=_PROBLEMS,
    dependencies=_IN_ONE,
)
@operation("search", "read")
async def find_studies_like_image(
    collection: str,
    study: StudyUid,
    sop: SopUid,
    parameters: Annotated[_ImagesQuery, Query()],
    caller: _Asking,
) -> SimilarResponse:
    """Studies with an image like this one of a study; viewers use it for the active image."""
    return await caller.similar(collection, StudyReference(study, sop, parameters.frame), parameters)


@router.get(
    "/v1/studies/{study}/similar",
    summary="Similar studies, wherever the study is",
    responses=_PROBLEMS,
    dependencies=_IN_ANY,
)
@operation("search", "read")
async def find_similar_anywhere(
    study: StudyUid, parameters: Annotated[_StudiesQuery, Query()], caller: _Asking
) -> SimilarResponse:
    """Studies like this one, for a viewer that knows no collection.

    Of the collections that the caller may read and that hold the study, the first by name is searched: scores
    of several cannot be compared. `collections` names all of them, for a choice.
    """
    return await caller.similar(None, StudyReference(study), parameters)


@router.get(
    "/v1/studies/{study}/instances/{sop}/similar",
    summary="Studies like an image, wherever it is",
    responses=_PROBLEMS,
    dependencies=_IN_ANY,
)
@operation("search", "read")
async def find_like_image_anywhere(
    study: StudyUid, sop: SopUid, parameters: Annotated[_ImagesQuery, Query()], caller: _Asking
) -> SimilarResponse:
    """Studies with an image like this one, for a viewer that knows no collection."""
    return await caller.similar(None, StudyReference(study, sop, parameters.frame), parameters)


def _note(
    request: Request, active: ActiveGeneration | None, similar: SimilarStudies, parameters: _StudiesQuery
) -> None:
    note(
        request,
        Noted(
            collection=None if active is None else active.collection,
            objects=[one.hit.id for one in similar.hits],
            query={
                "like": [image.id for image in similar.compared],
                **filter_parts(None if parameters.filter is None else json.loads(parameters.filter)),
            },
            model=None if active is None else active.digest,
            generation=None if active is None else active.generation,
            details={"limit": parameters.limit, "same_patient": parameters.same_patient},
        ),
    )


def _find(
    engine: SearchEngine,
    principal: Principal,
    collection: str | None,
    reference: StudyReference,
    similar_request: SimilarRequest,
) -> tuple[list[str], ActiveGeneration | None, SimilarStudies]:
    """Search a collection; None: the first one, by name, that the caller may read and that holds the study.

    Scores of several collections, by different models, could not be compared. Also returns all that hold it.
    """
    named = [name for name in engine.names() if principal.may("reader", name)]
    with engine.home.catalogue.read() as session:
        holding = collections_with(session, named, reference)
    for name in holding if collection is None else [collection]:
        try:
            active = engine.active(name)
        except NoActiveGenerationError:
            if collection is not None:
                raise
            continue
        similar = find_similar(engine, active, reference, similar_request)
        if similar.compared or collection is not None:
            return holding, active, similar
    return holding, None, SimilarStudies((), (), (), exact=True)


def describe_study(one: SimilarStudy, collection: str, template: str | None, prefix: str) -> SimilarHit:
    """Describe a similar study.

    `template`: template of a viewer's address; None: there is no viewer.
    """
    hit, query = one.hit, one.query
    metadata = hit.image.metadata
    path = image_path(collection, hit.id, prefix=prefix)
    patients = query.metadata.get(PATIENT), metadata.get(PATIENT)
    same_patient = None if None in patients else patients[0] == patients[1]
    first, second = day_of(query.metadata), day_of(metadata)
    # Each patient has its own shift.
    is_comparable = same_patient or not (date_shifted(query.metadata) or date_shifted(metadata))
    days = None if first is None or second is None or not is_comparable else (second - first).days
    return SimilarHit(
        id=hit.id,
        rank=hit.rank,
        score=hit.score,
        z_score=one.z_score,
        query_image=query.id,
        images=(hit.others or 0) + 1,
        frame=whole_number_of(metadata, FRAME),
        date_shifted=date_shifted(metadata),
        days=days,
        age_band=age_band(metadata),
        same_patient=same_patient,
        findings=stated_from(hit.image.findings),
        sentence=None if one.context.sentence is None else MatchedSentence(**one.context.sentence._asdict()),
        links=SimilarLinks(
            image=path,
            thumbnail=f"{path}/thumbnail",
            rendition=f"{path}/rendition",
            report=path if one.context.has_report else None,
            viewer=viewer_link(template, metadata, prefix=prefix),
        ),
        **{name: text_of(metadata, name) for name in _TEXTS},
    )


def _index_now(settings: Settings, principal: Principal, study: str, prefix: str) -> IndexNow | None:
    if settings.pacs_url is None or settings.pacs_sync is None or not is_uid(study):
        return None
    collection = synced_collection(settings.pacs_sync)
    if not principal.may("curator", collection):
        return None
    return IndexNow(path=f"{prefix}/v1/collections/{quote(collection, safe='')}/studies/{study}/index")


def _write_back(
    settings: Settings, principal: Principal, collection: str | None, study: str, prefix: str
) -> WriteBack | None:
    if collection is None or not settings.pacs_write_back or principal.kind == "anonymous":
        return None
    if not principal.may("judge", collection):
        return None
    path = f"{prefix}/v1/collections/{quote(collection, safe='')}/studies/{quote(study, safe='')}/results"
    return WriteBack(path=path, forms=list(settings.pacs_write_back))
