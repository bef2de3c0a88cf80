"""Schemas of deletions by filter."""

from typing import Annotated

from pydantic import Field

from app.schemas.changes.writes import Refusal
from app.schemas.search.body import Request
from app.schemas.search.filter_form import FilterForm
from app.schemas.search.page import Answer


class ImagesToDelete(Request):
    """Images of a collection, by a filter."""

    filter: FilterForm = Field(
        description="A filter, as in a search; an empty one is refused.",
        examples=[{"field": "view", "eq": "PA"}],
    )
    dry_run: bool = Field(default=False, description="Count the images, and delete none.")
    expected_count: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="Delete only if the filter finds as many images; else the answer is 409."
    )


class DeletedImages(Answer):
    """A deletion by filter; it is whole where nothing remains."""

    collection: str
    dry_run: bool
    matched: int = Field(description="Images that passed the filter when the request began.")
    deleted: int = Field(description="Images that are gone; 0 of a dry run.")
    remaining: int = Field(description="Images that pass the filter now; send it again to delete these.")
    ids: list[str] = Field(description="Ids of the first ten images that matched.")
    problem: Refusal | None = Field(
        default=None,
        description="What stopped the deletion, or the count of what remains; null: nothing did.",
    )
