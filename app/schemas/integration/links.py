"""Schemas of links to pictures."""

from typing import Annotated, Final, Literal

from pydantic import Field

from app.schemas.search.body import Request
from app.schemas.search.page import Answer

MAX_SIZE: Final = 65_500
_DAY_S: Final = 86_400


class LinkedRendition(Request):
    """Parameters of a rendition."""

    size: Annotated[int, Field(ge=1, le=MAX_SIZE)] | None = Field(
        default=None, description="Longest side in pixels; without it the whole."
    )
    window: str = Field(default="auto", description="Centre and width in stored values, or `auto`.")


class LinkWanted(Request):
    """A picture, and how long others may see it."""

    rendition: LinkedRendition | Literal["thumbnail", "content"] = Field(
        default=LinkedRendition(),
        description="The image as it is searched; `thumbnail`: a small picture; `content`: the stored file.",
        examples=[{"size": 1024}],
    )
    expires_in: Annotated[int, Field(ge=1, le=_DAY_S)] = Field(
        default=3600, description="Seconds that the link holds; a day at most."
    )


class PictureLink(Answer):
    """A link to a picture."""

    url: str = Field(description="Path on this server, with parameters and signature.")
    expires: str = Field(description="Time of its end, in UTC.", examples=["2026-03-01T12:00:00Z"])
