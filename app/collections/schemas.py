"""Schemas of collections, of their names, and of what their fields hold."""

from typing import Literal, Self

from pydantic import Field, model_validator

from app.edge.operations import etag_of
from app.edge.schemas import Answer, Request
from app.generations.schemas import GenerationName
from index.generations import names
from index.search.results import CollectionInfo


class FilterField(Answer):
    """A field that a filter may name."""

    name: str
    kinds: list[str] = Field(
        description="Kinds of values seen in it: text, number, boolean; date if every value is one, which "
        "is returned with the values."
    )


class CollectionSummary(Answer):
    """One collection."""

    name: str
    count: int = Field(description="Images that it holds.")
    generation: GenerationName | None = Field(description="null while nothing can be searched.")
    fields: list[FilterField]


class RenamedCollection(CollectionSummary):
    """A collection under its new name."""

    settings: list[str] = Field(
        description="Settings of the service that still have the old name: change them, and restart it.",
        examples=[["RECOQUEST_OIDC_ROLES"]],
    )


class FacetValue(Answer):
    """A value of a field."""

    value: str | bool | float
    count: int = Field(description="Images that have it.")


class FacetField(FilterField):
    """A field with what it holds."""

    values: list[FacetValue] = Field(description="The most frequent texts and booleans.")
    distinct: int = Field(description="Number of different texts and booleans.")
    minimum: float | str | None = Field(
        description="The smallest number, or the earliest date as 2021-03-12; null without either."
    )
    maximum: float | str | None
    date_shifted: bool | None = Field(
        description='Of "date", whether de-identification has shifted some; null if unknown.'
    )


class CountedFinding(Answer):
    """A finding, and how many images say each thing of it."""

    finding: str
    present: int = Field(description="Images whose texts and report, taken together, say that it is there.")
    uncertain: int
    absent: int


class CountedFields(Answer):
    """The images that pass a filter, and the values of their fields."""

    count: int = Field(description="Images that pass the filter.")
    fields: list[FacetField] = Field(validation_alias="facets")
    findings: list[CountedFinding] = Field(
        description="Findings that texts and reports mention, those of most images first; empty if one "
        "field is requested."
    )


class ExampleImage(Answer):
    """An image to begin a search with."""

    id: str
    text: str = Field(description="The shortest of its texts; empty when it has none.")


class CollectionOverview(Answer):
    """One collection, with what a person can filter by and begin with."""

    name: str
    count: int = Field(description="Images that it holds.")
    generation: GenerationName | None = Field(description="null while nothing can be searched.")
    regions: bool = Field(
        description="Whether it can be searched by a part of a picture, and shows what matched in an image."
    )
    fields: list[FacetField] = Field(description="Fields, except id and group, which identify images.")
    findings: list[CountedFinding] = Field(
        description="Findings that texts and reports mention, those of most images first."
    )
    hidden_fields: list[str] = Field(description="Fields that the page does not show, by a setting.")
    examples: list[ExampleImage]


class Collections(Answer):
    """All collections."""

    collections: list[CollectionSummary]


def collection_from(info: CollectionInfo) -> CollectionSummary:
    """Describe a collection."""
    generation = None
    if info.generation is not None and info.model is not None and info.digest is not None:
        generation = GenerationName(
            collection=info.name, number=info.generation, model=info.model, digest=info.digest
        )
    fields = [FilterField(name=field.name, kinds=list(field.kinds)) for field in info.fields]
    return CollectionSummary(name=info.name, count=info.count, generation=generation, fields=fields)


class NewName(Request):
    """A new name of a collection."""

    name: str = Field(description="Up to 100 letters, digits, dots, hyphens and underscores.")


class NewCollection(NewName):
    """A collection to begin, by a registered model or by that of another collection."""

    model: str | None = Field(default=None, description="Digest, or name, of a registered model.")
    same_model_as: str | None = Field(default=None, description="A collection whose model it takes.")

    @model_validator(mode="after")
    def _one_model(self) -> Self:
        if (self.model is None) == (self.same_model_as is None):
            raise ValueError("Give either `model` or `same_model_as`.")
        return self


class Removed(Answer):
    """Removed images."""

    status: Literal["removed"] = "removed"
    id: str | None = Field(default=None, description="The image; null for a whole collection.")
    collection: str


class AliasTarget(Request):
    """A collection that an alias leads to."""

    collection: str = Field(description="Its own name; no alias.")


class Alias(Answer):
    """An alias of a collection."""

    alias: str
    collection: str = Field(description="The collection that it leads to.")
    etag: str = Field(description="ETag of the alias: If-Match of the next change.")

    @classmethod
    def from_alias(cls, alias: names.Alias) -> Self:
        """Describe an alias."""
        return cls(alias=alias.name, collection=alias.collection, etag=etag_of(alias.revision))


class Aliases(Answer):
    """Aliases, by name."""

    aliases: list[Alias]


class RemovedAlias(Answer):
    """A removed alias."""

    status: Literal["removed"] = "removed"
    alias: str
    collection: str = Field(description="The collection that it led to, which stays.")
