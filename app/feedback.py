"""Relevance judgements of hits: writes for authorized callers, counts for operators."""

from dataclasses import asdict
from http import HTTPStatus
from typing import Annotated, Self

from fastapi import APIRouter, Depends, Request
from pydantic import Field, model_validator
from sqlalchemy.orm import Session

from app.audit.requests import Noted, note
from app.edge.operations import operation
from app.edge.principal import principal_of
from app.edge.problems import problem_responses
from app.edge.schemas import Answer, Text
from app.edge.schemas import Request as Body
from app.idempotency import IdempotentRoute, idempotency_key
from app.permissions import may
from app.search.read_search import check_length
from app.search.schemas import MAX_EXAMPLES
from app.services import InjectedServices
from index.catalogue.collections import require_active
from index.feedback import JudgedQuery, User, count_feedback, record_judgement

router = APIRouter(
    prefix="/v1/collections/{collection}/feedback", tags=["feedback"], route_class=IdempotentRoute
)

_ImageId = Annotated[str, Field(max_length=255)]


class JudgedExample(Body):
    """An example of a search: exactly one of an image's id and a text."""

    id: _ImageId | None = Field(default=None, description="An image of the collection.")
    text: Text | None = Field(default=None, description="A text.")

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.id is None) == (self.text is None):
            raise ValueError("Give exactly one of id and text.")
        return self


_Examples = Annotated[list[JudgedExample], Field(fail_fast=True, max_length=MAX_EXAMPLES)]


class SearchedQuery(Body):
    """The query, as in the search itself, without files and vectors: they teach nothing."""

    text: Text | None = Field(default=None, examples=["two dogs run through shallow water"])
    like: _Examples = Field(default=[], description="Examples that were searched for.", examples=[[]])
    unlike: _Examples = Field(default=[], description="Examples of what to avoid.", examples=[[]])

    def judged(self) -> JudgedQuery:
        """Return it as it is kept."""
        texts = () if self.text is None else (self.text,)
        return JudgedQuery(
            (*texts, *_texts(self.like)), _ids(self.like), _texts(self.unlike), _ids(self.unlike)
        )

    def parts(self) -> dict[str, tuple[str, ...]]:
        """Return it as the audit trail names the parts of a search."""
        return {
            "text": () if self.text is None else (self.text,),
            "like": _ids(self.like),
            "unlike": _ids(self.unlike),
            "like_text": _texts(self.like),
            "unlike_text": _texts(self.unlike),
        }


class NewJudgement(Body):
    """A relevance judgement of a hit."""

    query: SearchedQuery
    hit: _ImageId = Field(description="Id of the image that was a hit.", examples=["scene00012"])
    relevant: bool | None = Field(
        description="Whether the hit is relevant to the query; null withdraws the judgement."
    )
    missed: bool = Field(
        default=False,
        description="Whether the image was not among the hits: a relevant one supplements them.",
    )

    def write(self, session: Session, collection: str, user: User | None, limit: int) -> bool:
        """Record it; return whether the hit was judged before."""
        return record_judgement(
            session,
            collection,
            self.query.judged(),
            self.hit,
            self.relevant,
            limit=limit,
            user=user,
            missed=self.missed,
        )


class Judged(Answer):
    """The stored judgement."""

    collection: str
    hit: str
    relevant: bool | None


class FeedbackSummary(Answer):
    """Numbers of relevance judgements in a collection."""

    collection: str
    relevant: int
    not_relevant: int
    queries: int = Field(description="Different queries whose hits were judged.")
    latest: str | None = Field(description="Time of the latest judgement; null without judgements.")


def _texts(examples: list[JudgedExample]) -> tuple[str, ...]:
    return tuple(example.text for example in examples if example.text is not None)


def _ids(examples: list[JudgedExample]) -> tuple[str, ...]:
    return tuple(example.id for example in examples if example.id is not None)


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
@operation("judge", "write")
async def judge_hit(
    collection: str, new: NewJudgement, request: Request, services: InjectedServices
) -> Judged:
    """Say whether a hit is what was searched for; models learn from it when they are trained again.

    The last judgement of the same query and image counts, so it can be sent again. It doesn't change
    searches. Images of the collection that the query names must exist.
    """
    limit = services.settings.max_text_length
    check_length("query.text", new.query.text or "", limit)
    for name, examples in (("like", new.query.like), ("unlike", new.query.unlike)):
        for index, example in enumerate(examples):
            check_length(f"query.{name}.{index}.text", example.text or "", limit)
    caller = principal_of(request)
    user = User(caller.id, caller.name) if caller.id else None

    def judge(session: Session) -> str:
        new.write(session, collection, user, services.settings.max_feedback)
        generation, _ = require_active(session, collection)
        return generation.digest

    note(
        request,
        Noted(
            objects=[new.hit],
            query=new.query.parts(),
            model=await services.write(judge),
            details={"relevant": new.relevant, "missed": new.missed},
        ),
    )
    return Judged(collection=collection, hit=new.hit, relevant=new.relevant)


@router.get("", summary="Count judgements", dependencies=[may("curator")])
@operation(None, "read")
async def count_judgements(collection: str, services: InjectedServices) -> FeedbackSummary:
    """Numbers of relevance judgements in a collection."""
    counts = await services.read(count_feedback, collection)
    return FeedbackSummary(collection=collection, **asdict(counts))
