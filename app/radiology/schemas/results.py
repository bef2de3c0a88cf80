"""Schemas of results that are written back to the archive."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from app.edge.schemas import Answer, Request
from app.radiology_settings import ResultForm

MAX_CASES = 6
_Uid = Annotated[str, Field(max_length=64, pattern=r"^[0-9]+(\.[0-9]+)*$")]
_ImageId = Annotated[str, Field(max_length=255)]


class NewResults(Request):
    """Similar cases of an image, to be written back."""

    sop: _Uid = Field(
        description="SOP Instance UID of the image that was searched with.",
        examples=["1.2.826.0.1.3680043.8.498.3.1.9"],
    )
    frame: int | None = Field(
        default=None, ge=1, description="Its frame, from 1; null of an image with one frame."
    )
    hits: list[_ImageId] = Field(
        min_length=1,
        max_length=MAX_CASES,
        description="Ids of similar cases, as `similar` gives them; they are compared anew.",
        examples=[["1.2.826.0.1.3680043.8.498.7.1.2"]],
    )
    forms: list[ResultForm] | None = Field(
        default=None,
        min_length=1,
        description="Forms to write; null: all that the settings allow.",
        examples=[["capture"]],
    )

    @field_validator("hits")
    @classmethod
    def _are_different(cls, value: list[str]) -> list[str]:
        if len(set(value)) < len(value):
            raise ValueError("Name each hit once.")
        return value


class WrittenObject(Answer):
    """An object that was sent to the archive."""

    form: Literal["capture", "report"]
    status: Literal["stored", "refused"]
    reason: str | None = Field(description="Why the archive refused it, in words; null where it is stored.")
    sop_class: str
    study: str
    series: str
    sop: str


class WrittenResults(Answer):
    """Results of a search, as they were written."""

    collection: str
    study: str
    objects: list[WrittenObject] = Field(description="Objects in the archive, each in a series of its own.")
    selection: dict[str, Any] | None = Field(
        description="A FHIR Bundle (R5) of ImagingSelections, which is sent nowhere; null without that form."
    )
