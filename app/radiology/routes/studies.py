"""Studies like a study of a viewer, which knows it by its UIDs."""

import json
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from app.access.permissions import GuardedRoute, InjectedPrincipal, may
from app.edge.http.problems import problem_responses
from app.edge.operations import operation
from app.edge.principal import Principal
from app.radiology.schemas.studies import SimilarResponse
from app.radiology.similar_studies import answer_similar
from app.search.read_search import read_filter
from app.services import InjectedServices, Services
from index.studies import SimilarRequest, Wanted

router = APIRouter(tags=["studies"], route_class=GuardedRoute)

MAX_LIMIT: Final = 100
_MAX_UID_LENGTH: Final = 255
_PROBLEMS = problem_responses(
    HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.GATEWAY_TIMEOUT
)
_IN_ONE: Final = [may("reader")]
_IN_ANY: Final = [may("reader", somewhere=True)]

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


class _StudiesWanted(BaseModel):
    # A misspelt parameter would be ignored otherwise, and another question be answered.
    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: int = Field(default=10, ge=1, le=MAX_LIMIT, description="Number of studies.")
    same_patient: bool = Field(
        default=False, description="Whether other studies of the same patient are told too, such as priors."
    )
    filter: str | None = Field(
        default=None,
        description="A filter on the images of hits, as JSON.",
        examples=['{"field": "view", "eq": "PA"}'],
    )


class _ImagesWanted(_StudiesWanted):
    frame: int | None = Field(default=None, ge=1, description="One frame of several, from 1.")


@router.get(
    "/v1/collections/{collection}/studies/{study}/similar",
    summary="Similar studies",
    responses=_PROBLEMS,
    dependencies=_IN_ONE,
)
@operation("search")
async def find_similar_studies(
    collection: str,
    study: StudyUid,
    wanted: Annotated[_StudiesWanted, Query()],
    request: Request,
    services: InjectedServices,
    principal: InjectedPrincipal,
) -> SimilarResponse:
    """Studies like this one, most similar first; two are as similar as the two of their images most alike.

    The study itself is left out, and so are other studies of the patient unless they are asked for. A study
    that the collection does not hold has the state `not_indexed`.
    """
    return await _answer(request, services, principal, collection, Wanted(study), wanted)


@router.get(
    "/v1/collections/{collection}/studies/{study}/instances/{sop}/similar",
    summary="Studies like an image",
    responses=_PROBLEMS,
    dependencies=_IN_ONE,
)
@operation("search")
async def find_studies_like_image(
    collection: str,
    study: StudyUid,
    sop: SopUid,
    wanted: Annotated[_ImagesWanted, Query()],
    request: Request,
    services: InjectedServices,
    principal: InjectedPrincipal,
) -> SimilarResponse:
    """Studies with an image like this one of a study; a viewer asks for its active image."""
    named = Wanted(study, sop, wanted.frame)
    return await _answer(request, services, principal, collection, named, wanted)


@router.get(
    "/v1/studies/{study}/similar",
    summary="Similar studies, wherever the study is",
    responses=_PROBLEMS,
    dependencies=_IN_ANY,
)
@operation("search")
async def find_similar_anywhere(
    study: StudyUid,
    wanted: Annotated[_StudiesWanted, Query()],
    request: Request,
    services: InjectedServices,
    principal: InjectedPrincipal,
) -> SimilarResponse:
    """Studies like this one, for a viewer that knows no collection.

    Of the collections that the caller may read and that hold the study, the first by name is searched: scores
    of several cannot be compared. `collections` names all of them, for a choice.
    """
    return await _answer(request, services, principal, None, Wanted(study), wanted)


@router.get(
    "/v1/studies/{study}/instances/{sop}/similar",
    summary="Studies like an image, wherever it is",
    responses=_PROBLEMS,
    dependencies=_IN_ANY,
)
@operation("search")
async def find_like_image_anywhere(
    study: StudyUid,
    sop: SopUid,
    wanted: Annotated[_ImagesWanted, Query()],
    request: Request,
    services: InjectedServices,
    principal: InjectedPrincipal,
) -> SimilarResponse:
    """Studies with an image like this one, for a viewer that knows no collection."""
    return await _answer(request, services, principal, None, Wanted(study, sop, wanted.frame), wanted)


async def _answer(
    request: Request,
    services: Services,
    principal: Principal,
    collection: str | None,
    named: Wanted,
    wanted: _StudiesWanted,
) -> SimilarResponse:
    asked = SimilarRequest(wanted.limit, read_filter(wanted.filter, services.settings), wanted.same_patient)
    sent_filter = None if wanted.filter is None else json.loads(wanted.filter)
    return await answer_similar(request, services, principal, collection, named, asked, sent_filter)
