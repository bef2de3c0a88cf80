"""Schemas of case lists: images that people keep under a name, with notes."""

from typing import Annotated, Final, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from app.edge.operations import etag_of
from app.edge.schemas import Answer, Request, Text
from app.search.schemas import ListedImage, listed_from
from index.cases import MAX_ENTRIES, MAX_LISTS, CaseEntry, CaseList
from index.search.results import HitImage

MAX_NAME: Final = 100
MAX_NOTE: Final = 2_000


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("A name is one line, without control characters.")
    return text


class CaseListName(Request):
    """The name of a list."""

    name: Annotated[Text, Field(max_length=MAX_NAME), AfterValidator(_one_line)] = Field(
        description="Name, as people read it; no other list of the collection has it.",
        examples=["Pneumothorax, teaching"],
    )


class CaseNote(Request):
    """A note on an image."""

    note: Annotated[str, StringConstraints(strip_whitespace=True, max_length=MAX_NOTE)] | None = Field(
        default=None,
        description="Why the image is kept. Without it, an existing note stays.",
        examples=["Small apical one, easily missed."],
    )


class CaseListEntry(Answer):
    """A list of cases."""

    id: str = Field(description="Names the list in addresses.")
    name: str
    images: int = Field(description=f"Number of its images, up to {MAX_ENTRIES:,}.")
    created: str
    etag: str = Field(description="The If-Match of its next change; another one once its name is another.")

    @classmethod
    def from_list(cls, case_list: CaseList) -> Self:
        """Describe a list."""
        return cls(
            id=case_list.id,
            name=case_list.name,
            images=case_list.entries,
            created=case_list.created,
            etag=etag_of(case_list.revision),
        )


class CaseLists(Answer):
    """All lists of a collection, by name."""

    collection: str
    lists: list[CaseListEntry] = Field(description=f"Up to {MAX_LISTS}.")


class SavedCase(Answer):
    """An image in a list, and what was noted on it."""

    image: ListedImage
    note: str
    saved: str = Field(description="Time at which the note was last written.")
    saved_by: str | None = Field(
        description="Name of the key or person that wrote it; null where users aren't distinguished."
    )
    etag: str = Field(description="The If-Match of the next change of its note.")

    @classmethod
    def from_entry(cls, entry: CaseEntry, image: HitImage, images: str) -> Self:
        """Describe an entry; `images` is the path of the collection's images."""
        return cls(
            image=listed_from(image, images),
            note=entry.note,
            saved=entry.saved,
            saved_by=None if entry.user is None else entry.user.name,
            etag=etag_of(entry.revision),
        )


class CasePage(CaseListEntry):
    """A list with a page of its images, in the order in which they came into it."""

    cases: list[SavedCase]
    next_cursor: str | None = Field(description="Send it as `cursor` for the next page; null on the last.")


class CasesQuery(BaseModel):
    """A page of a list."""

    # A parameter that is unknown may be a slip.
    model_config = ConfigDict(extra="forbid", frozen=True)

    cursor: str | None = Field(
        default=None, pattern=r"^\d{1,9}$", description="`next_cursor` of the page before."
    )
    limit: int = Field(default=100, ge=1, le=MAX_ENTRIES, description="Number of images on a page.")


class CaseKept(Answer):
    """An image that is in a list, or is no longer."""

    case_list: str
    id: str = Field(description="The image's id.")
    note: str | None = Field(description="The stored note; null if the image is no longer in the list.")
    saved: str | None = Field(default=None, description="Time at which the note was last written.")
    saved_by: str | None = Field(default=None, description="Name of the key or person that wrote it.")
    etag: str | None = Field(default=None, description="The If-Match of the next change of the note.")


class CaseListGone(Answer):
    """A list that was removed."""

    collection: str
    case_list: str
