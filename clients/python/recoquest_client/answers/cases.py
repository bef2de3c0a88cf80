"""Answers about cases that people keep."""

from __future__ import annotations

from dataclasses import dataclass

from recoquest_client.answers.images import ListedImage


@dataclass(frozen=True)
class CaseList:
    """A named list of images of a collection; `etag` is the condition of a change of its name."""

    id: str
    name: str
    images: int
    created: str
    etag: str = ""


@dataclass(frozen=True)
class SavedCase:
    """An image in a list, with the note on it and who wrote that; `etag` is the condition of its change."""

    image: ListedImage
    note: str
    saved: str
    saved_by: str | None = None
    etag: str = ""


@dataclass(frozen=True)
class CasePage:
    """A list with a page of its images."""

    id: str
    name: str
    images: int
    created: str
    cases: tuple[SavedCase, ...]
    next_cursor: str | None = None
    etag: str = ""
