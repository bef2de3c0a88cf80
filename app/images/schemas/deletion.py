"""Schemas of deletions by filter, and of erasures."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from app.edge.schemas import Answer, Request
from app.images.schemas.writes import Refusal
from app.search.schemas import FilterForm

_MAX_IDS = 500


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


class ImagesToErase(Request):
    """Images of a collection, by their ids, their patient or their study."""

    ids: Annotated[
        list[Annotated[str, Field(max_length=255)]],
        Field(default_factory=list, fail_fast=True, min_length=1, max_length=_MAX_IDS),
    ]
    patient: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        default=None,
        description="Patient ID or its keyed hash: all images and reports of the patient are erased.",
    )
    study: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        default=None,
        description="Study Instance UID, accession number or its keyed hash, likewise of a study.",
    )

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if not self.ids and self.patient is None and self.study is None:
            raise ValueError("Give `ids`, `patient` or `study`.")
        return self


class HoldingBackup(Answer):
    """A backup that still holds an image."""

    path: str
    created: str
    digest: str = Field(description="SHA-256 of `backup.json` in it.")
    is_there: bool = Field(description="Whether it lies where it was written.")


class ErasedImages(Answer):
    """An erasure."""

    collection: str
    erased: list[str] = Field(description="Ids of the images that the collection had.")
    unknown: list[str] = Field(
        description="Ids that neither the collection nor the audit trail knows. Backups may hold them."
    )
    shared_files: list[str] = Field(
        description="SHA-256 of files that stay, since another image is the same file."
    )
    reports: int = Field(
        description="Reports that waited for images, or were of the patient, which are gone, too."
    )
    judgements: int = Field(description="Judgements for queries that named them, which are gone, too.")
    jobs: list[int] = Field(description="Jobs whose results or files named them and do no more.")
    retrainings: list[int] = Field(description="Jobs whose models may have learned from them.")
    left_files: list[str] = Field(
        description="Files of jobs that name them, and unfinished files that may hold them: remove these."
    )
    backups: list[HoldingBackup] = Field(description="Backups that still hold them.")
    log_is_empty: bool = Field(
        description="Whether the database's log holds nothing of them any more; else send it again later."
    )
