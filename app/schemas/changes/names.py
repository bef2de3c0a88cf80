"""Schemas of the names of collections."""

from typing import Literal

from pydantic import Field

from app.schemas.search.body import Request
from app.schemas.search.page import Answer


class NewName(Request):
    """A new name of a collection."""

    name: str = Field(description="Up to 100 letters, digits, dots, hyphens and underscores.")


class AliasTarget(Request):
    """A collection that an alias leads to."""

    collection: str = Field(description="Its own name; no alias.")


class Alias(Answer):
    """An alias of a collection."""

    alias: str
    collection: str = Field(description="The collection that it leads to.")
    etag: str = Field(description="ETag of the alias: If-Match of the next change.")


class Aliases(Answer):
    """Aliases, by name."""

    aliases: list[Alias]


class RemovedAlias(Answer):
    """A removed alias."""

    status: Literal["removed"] = "removed"
    alias: str
    collection: str = Field(description="The collection that it led to, which stays.")
