"""Schemas of studies that are like another one."""

from collections.abc import Mapping
from datetime import date
from typing import Final, Literal, Self

from pydantic import Field

from app.archive_settings import ResultForm
from app.edge.schemas import Answer
from app.search.schemas.findings import StatedByImage
from app.search.schemas.page import ServedBy
from index.studies import Sentence, StudyImage
from training.common.manifest import MetadataValue

_YEARS_OF_A_BAND: Final = 10
# DICOM's de-identification profile joins all ages from here on.
_OLDEST: Final = 90
_DAY_LENGTH: Final = len("2024-01-15")
_SHIFTED: Final = "Whether de-identification has shifted the date; null where this is not known."


class QueryImage(Answer):
    """An image of the study that was asked for."""

    id: str
    series: str | None
    sop: str | None
    view: str | None
    date: str | None
    date_shifted: bool | None = Field(description=_SHIFTED)

    @classmethod
    def of(cls, image: StudyImage) -> Self:
        """Describe an image."""
        known = image.metadata
        return cls(
            id=image.id,
            series=text_of(known, "series"),
            sop=text_of(known, "sop"),
            view=text_of(known, "view"),
            date=text_of(known, "date"),
            date_shifted=date_shifted(known),
        )


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
    end: int | None = Field(description="Offset behind its last character.")
    prior: bool = Field(description="Whether it compares with an earlier examination, or tells of one.")

    @classmethod
    def of(cls, sentence: Sentence) -> Self:
        """Describe a sentence."""
        return cls(**sentence._asdict())


class SimilarHit(Answer):
    """A study that was found, shown by its image that is most like one of the query's."""

    id: str = Field(description="The image's id.")
    rank: int
    score: float = Field(description="Cosine of the two images that are most alike; not a probability.")
    z_score: float | None = Field(
        description="By how many standard deviations the score lies above the query image's mean."
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
    """Studies that are like the one that was asked for."""

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
        description="Of a study that is not indexed, the request that brings it over from the archive; null "
        "where the settings describe no archive, or the caller may not put images in."
    )
    write_back: WriteBack | None = Field(
        description="The request that writes hits back to the archive; null where the settings allow no form "
        "of it, the caller may not, or the study is not indexed."
    )
    served_by: ServedBy | None


def text_of(metadata: Mapping[str, MetadataValue], name: str) -> str | None:
    """Return a field as text; None where there is none, or another kind of value."""
    value = metadata.get(name)
    return value if isinstance(value, str) else None


def whole_number_of(metadata: Mapping[str, MetadataValue], name: str) -> int | None:
    """Return a field as a whole number; None where it is none."""
    value = metadata.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def days_between(query: Mapping[str, MetadataValue], hit: Mapping[str, MetadataValue]) -> int | None:
    """Return the days from a query's date to a hit's; None where one of them has none."""
    first, second = day_of(query), day_of(hit)
    return None if first is None or second is None else (second - first).days


def date_shifted(metadata: Mapping[str, MetadataValue]) -> bool | None:
    """Tell whether a date was shifted; None: it is not known, or there is no date."""
    shifted = metadata.get("date_shifted")
    return shifted if isinstance(shifted, bool) else None


def age_band(metadata: Mapping[str, MetadataValue]) -> str | None:
    """Return the ten years that an age lies in."""
    age = whole_number_of(metadata, "age")
    if age is None or age < 0:
        return None
    if age >= _OLDEST:
        return f"{_OLDEST}+"
    first = age - age % _YEARS_OF_A_BAND
    return f"{first}-{first + _YEARS_OF_A_BAND - 1}"


def day_of(metadata: Mapping[str, MetadataValue]) -> date | None:
    """Return the date of a study; None where there is none."""
    text = text_of(metadata, "date")
    try:
        return None if text is None else date.fromisoformat(text[:_DAY_LENGTH])
    except ValueError:
        return None
