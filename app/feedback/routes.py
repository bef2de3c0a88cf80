"""Relevance judgements of hits: writes for authorized callers, counts for operators."""

from http import HTTPStatus

from fastapi import APIRouter, Depends, Request

from app.access.permissions import may
from app.audit.noted import Noted, note
from app.edge.http.problems import problem_responses
from app.edge.operations import operation
from app.edge.principal import Principal, principal_of
from app.feedback.schemas import FeedbackSummary, Judged, NewJudgement
from app.idempotency import IdempotentRoute, idempotency_key
from app.search.read_search import check_length
from app.services import InjectedServices, Services
from index.catalogue.collections import require_active
from index.feedback import FeedbackCounts, User, count_feedback, record_judgement

router = APIRouter(
    prefix="/v1/collections/{collection}/feedback", tags=["feedback"], route_class=IdempotentRoute
)


@router.post(
    "",
    summary="Judge a hit",
    responses=problem_responses(
        HTTPStatus.CONFLICT,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.INSUFFICIENT_STORAGE,
    ),
    dependencies=[may("judge"), Depends(idempotency_key)],
)
@operation("judge")
async def judge_hit(
    collection: str, new: NewJudgement, request: Request, services: InjectedServices
) -> Judged:
    """Say whether a hit is what was searched for; models learn from it when they are trained again.

    The last judgement of the same query and image stands, so it can be sent again. Searches do not change by
    it. Images of the collection that are named in the query must be there.
    """
    for field, text in new.query.texts().items():
        check_length(field, text, services.settings.max_text_length)
    model = await services.threads.write(_judge, services, collection, new, principal_of(request))
    note(
        request,
        Noted(
            objects=[new.hit],
            query=new.query.parts(),
            model=model,
            details={"relevant": new.relevant, "missed": new.missed},
        ),
    )
    return Judged(collection=collection, hit=new.hit, relevant=new.relevant)


@router.get(
    "",
    summary="Count judgements",
    dependencies=[may("curator")],
)
async def count_judgements(collection: str, services: InjectedServices) -> FeedbackSummary:
    """Numbers of relevance judgements in a collection."""
    return FeedbackSummary.of(collection, await services.threads.read(_count, services, collection))


def _judge(services: Services, collection: str, new: NewJudgement, principal: Principal) -> str:
    """Write the judgement down, and return the digest of the model that it is of."""
    user = User(principal.id, principal.name) if principal.id else None
    with services.engine.home.catalogue.write() as session:
        record_judgement(
            session,
            collection,
            new.query.judged(),
            new.hit,
            new.relevant,
            limit=services.settings.max_feedback,
            user=user,
            missed=new.missed,
        )
        generation, _ = require_active(session, collection)
        return generation.digest


def _count(services: Services, collection: str) -> FeedbackCounts:
    with services.engine.home.catalogue.read() as session:
        return count_feedback(session, collection)
