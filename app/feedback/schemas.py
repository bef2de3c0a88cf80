"""Schemas of relevance judgements."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from app.edge.schemas import Answer, Request, Text
from app.search.schemas.query import MAX_EXAMPLES
from index.feedback import FeedbackCounts, JudgedQuery

_ImageId = Annotated[str, Field(max_length=255)]


class JudgedExample(Request):
    """An example of a search: exactly one of an image's id and a text."""

    id: _ImageId | None = Field(default=None, description="An image of the collection.")
    text: Text | None = Field(default=None, description="A text.")

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.id is None) == (self.text is None):
            raise ValueError("Give exactly one of id and text.")
        return self


_Examples = Annotated[list[JudgedExample], Field(fail_fast=True, max_length=MAX_EXAMPLES)]


class SearchedQuery(Request):
    """The query, as in the search itself, without files and vectors: they teach nothing."""

    text: Text | None = Field(default=None, examples=["two dogs run through shallow water"])
    like: _Examples = Field(default=[], description="Examples of what was wanted.", examples=[[]])
    unlike: _Examples = Field(default=[], description="Examples of what was not wanted.", examples=[[]])

    def judged(self) -> JudgedQuery:
        """Return it as it is kept."""
        asked = () if self.text is None else (self.text,)
        return JudgedQuery(
            (*asked, *_texts(self.like)), _ids(self.like), _texts(self.unlike), _ids(self.unlike)
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

    def texts(self) -> dict[str, str]:
        """Return the texts by the place where they stand in the query."""
        texts = {} if self.text is None else {"query.text": self.text}
        for name, examples in (("like", self.like), ("unlike", self.unlike)):
            for place, example in enumerate(examples):
                if example.text is not None:
                    texts[f"query.{name}.{place}.text"] = example.text
        return texts


class NewJudgement(Request):
    """A relevance judgement of a hit."""

    query: SearchedQuery
    hit: _ImageId = Field(description="Id of the image that was found.", examples=["scene00012"])
    relevant: bool | None = Field(
        description="Whether the hit is relevant to the query; null withdraws the judgement."
    )
    missed: bool = Field(
        default=False,
        description="Whether the image was not among the hits: a relevant one supplements them.",
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

    @classmethod
    def of(cls, collection: str, counts: FeedbackCounts) -> Self:
        """Describe the counts."""
        return cls(
            collection=collection,
            relevant=counts.relevant,
            not_relevant=counts.not_relevant,
            queries=counts.queries,
            latest=counts.latest,
        )


def _texts(examples: list[JudgedExample]) -> tuple[str, ...]:
    return tuple(example.text for example in examples if example.text is not None)


def _ids(examples: list[JudgedExample]) -> tuple[str, ...]:
    return tuple(example.id for example in examples if example.id is not None)
