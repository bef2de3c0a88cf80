"""Answers about studies of patients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recoquest_client.answers.images import Stated


@dataclass(frozen=True)
class StudyImage:
    """An image of the study that was asked for."""

    id: str
    series: str | None = None
    sop: str | None = None
    view: str | None = None
    date: str | None = None
    date_shifted: bool | None = None


@dataclass(frozen=True)
class StudyLinks:
    """Paths of a hit on the service; `viewer` may be of another one."""

    image: str
    thumbnail: str
    rendition: str
    report: str | None = None
    viewer: str | None = None


@dataclass(frozen=True)
class Sentence:
    """A sentence of a hit; `start` and `end` are its place in the report, in code points.

    `prior` says whether it compares with an earlier examination, or mentions one.
    """

    text: str
    position: int | None = None
    start: int | None = None
    end: int | None = None
    prior: bool | None = None


@dataclass(frozen=True)
class SimilarStudy:
    """A study, shown by its image most like one of the query's; `days` are from that to the hit."""

    id: str
    rank: int
    score: float
    query_image: str
    images: int
    links: StudyLinks
    z_score: float | None = None
    study: str | None = None
    series: str | None = None
    sop: str | None = None
    frame: int | None = None
    modality: str | None = None
    view: str | None = None
    laterality: str | None = None
    body_part: str | None = None
    date: str | None = None
    date_shifted: bool | None = None
    days: int | None = None
    age_band: str | None = None
    sex: str | None = None
    same_patient: bool | None = None
    findings: Stated | None = None
    sentence: Sentence | None = None


@dataclass(frozen=True)
class IndexNow:
    """A request that brings a study over from the archive; `Client.index_study` sends such a one."""

    method: str
    path: str


@dataclass(frozen=True)
class WriteBack:
    """Forms in which `Client.write_results` may write hits back to the archive."""

    method: str
    path: str
    forms: tuple[str, ...]


@dataclass(frozen=True)
class WrittenObject:
    """An object that was sent to the archive; `reason` says why it refused it."""

    form: str
    status: str
    sop_class: str
    study: str
    series: str
    sop: str
    reason: str | None = None


@dataclass(frozen=True)
class WrittenResults:
    """Similar cases, as they were written back; `selection` is a FHIR Bundle."""

    collection: str
    study: str
    objects: tuple[WrittenObject, ...] = ()
    selection: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class SimilarStudies:
    """Studies like another one; none where `state` is `not_indexed`."""

    state: str
    study: str
    hits: tuple[SimilarStudy, ...]
    images: tuple[StudyImage, ...] = ()
    collection: str | None = None
    collections: tuple[str, ...] = ()
    index_now: IndexNow | None = None
    write_back: WriteBack | None = None
