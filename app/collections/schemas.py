"""Schemas of collections, of their names, and of what their fields hold."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from app.edge.schemas import Answer, Request, Text
from app.generations.schemas import GenerationName
from app.search.schemas.filter_form import FilterForm
from app.search.schemas.query import CountQuery
from index.filters.facets import Facet, FilteredFacets, FindingCounts, Overview
from index.filters.grammar import FieldName
from index.search.results import CollectionInfo
from training.clinical.findings import State

MAX_CONTAINING = 200


class FacetQuery(Request):
    """Values to count: of all fields or of one, among the images that pass a filter."""

    filter: FilterForm | None = Field(
        default=None, description="A filter, as in a search.", examples=[{"field": "view", "eq": "PA"}]
    )
    field: FieldName | None = Field(
        default=None, description="Only this field, which may be id or group.", examples=[None]
    )
    containing: str = Field(
        default="",
        max_length=MAX_CONTAINING,
        description="Only values that contain this text, in whatever case; goes with field.",
    )
    keywords: Text | None = Field(
        default=None, description="Only images that have any of these words, as in a count.", examples=[None]
    )
    keywords_state: State | None = Field(default=None, description="As in a search.", examples=[None])

    def counted(self) -> CountQuery:
        """Return the count of the same images."""
        return CountQuery(filter=self.filter, keywords=self.keywords, keywords_state=self.keywords_state)


class FilterField(Answer):
    """A field that a filter may name."""

    name: str
    kinds: list[str] = Field(
        description="Kinds of values seen in it: text, number, boolean; date where every value is one, which "
        "is told with the values."
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
        description="Settings of the service that still have the old name: change them, and start it anew.",
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


class CountedFinding(Answer):
    """A finding, and how many images say each thing of it."""

    finding: str
    present: int = Field(description="Images whose texts and report, taken together, say that it is there.")
    uncertain: int
    absent: int


class CountedFields(Answer):
    """The images that pass a filter, and the values of their fields."""

    count: int = Field(description="Images that pass the filter.")
    fields: list[FacetField]
    findings: list[CountedFinding] = Field(
        description="Findings that texts and reports mention, those of most images first; empty where one "
        "field is asked for."
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
        description="Whether it can be searched by a part of a picture, and tells what matched in an image."
    )
    fields: list[FacetField] = Field(description="Fields, but for id and group, which tell images apart.")
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


def overview_from(
    info: CollectionInfo, overview: Overview, hidden: Sequence[str] = (), *, regions: bool
) -> CollectionOverview:
    """Describe a collection with its fields' values and a few of its images; its model may have regions."""
    summary = collection_from(info)
    return CollectionOverview(
        name=summary.name,
        count=summary.count,
        generation=summary.generation,
        regions=regions,
        fields=_facets_from(overview.facets),
        findings=_findings_from(overview.findings),
        hidden_fields=list(hidden),
        examples=[ExampleImage(id=example.id, text=example.text) for example in overview.examples],
    )


def counted_from(counted: FilteredFacets) -> CountedFields:
    """Describe what passes a filter."""
    return CountedFields(
        count=counted.count,
        fields=_facets_from(counted.facets),
        findings=_findings_from(counted.findings),
    )


def _findings_from(findings: Sequence[FindingCounts]) -> list[CountedFinding]:
    return [CountedFinding(**counts._asdict()) for counts in findings]


def _facets_from(facets: Sequence[Facet]) -> list[FacetField]:
    return [
        FacetField(
            name=facet.name,
            kinds=list(facet.kinds),
            values=[FacetValue(value=item.value, count=item.count) for item in facet.values],
            distinct=facet.distinct,
            minimum=facet.minimum,
            maximum=facet.maximum,
        )
        for facet in facets
    ]


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
