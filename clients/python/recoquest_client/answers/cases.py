"""Answers about cases that people keep."""

from __future__ import annotations

from dataclasses import dataclass

from recoquest_client.answers.images import ListedImage


@dataclass(frozen=True)
class CaseList:
    """A named list of images of a collection."""

    id: str
    name: str
    images: int
    created: str


@dataclass(frozen=True)
class SavedCase:
    """An image in a list, with the note on it and the name of who wrote that."""

    image: ListedImage
    note: str
    saved: str
    saved_by: str | None = None


@dataclass(frozen=True)
class CasePage:
    """A list with a page of its images."""

    id: str
    name: str
    images: int
    created: str
    cases: tuple[SavedCase, ...]
    next_cursor: str | None = None
