"""Pages of hits and their descriptions."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, Literal, NamedTuple

from index.catalogue.schema import RULES
from index.filters.grammar import FieldKind
from index.scoring.background import ScoreScale
from index.search.cursors import PageEnd, PagePosition, encode_cursor
from index.vectors.protocol import Vectors
from training.clinical.findings import State, are_prior
from training.common.manifest import MetadataValue

# The list that a hit comes from.
FoundBy = Literal["vector", "keywords", "findings"]
# What an answer may tell of the image of a hit.
HitPart = Literal["texts", "findings", "labels", "metadata", "report", "vector"]
_REVISION_DIGITS: Final = 32


@dataclass(frozen=True, slots=True)
class FieldInfo:
    """A field that filters can name, and the kinds of values seen in it."""

    name: str
    kinds: tuple[FieldKind, ...]


@dataclass(frozen=True, slots=True)
class CollectionInfo:
    """A collection as a list shows it; without an active generation it cannot be searched yet."""

    name: str
    count: int
    generation: int | None
    model: str | None
    digest: str | None
    fields: tuple[FieldInfo, ...]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A registered encoder and the collections that are searched with it."""

    name: str
    digest: str
    dim: int
    blades: int
    unsigned: bool
    recipe: str
    created: str
    metrics: Mapping[str, float]
    collections: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ActiveGeneration:
    """The embedding of a collection that answers searches, and the encoder that queries must go through."""

    collection: str
    generation: int
    model: str
    digest: str
    dim: int
    blades: int
    unsigned: bool
    bundle: Path
    count: int


@dataclass(frozen=True, slots=True)
class FoundText:
    """A text that was found, and its position among its image's texts, from 0."""

    position: int
    text: str


class MatchedText(NamedTuple):
    """A text, or a sentence of a report, and the places (start, end) of words in it, in characters."""

    text: str
    spans: tuple[tuple[int, int], ...]


class FoundImage(NamedTuple):
    """Image of a hit, with its metadata.

    Attributes:
        id: The image's id.
        text: The found text; None where images are searched.
        group: The image's group.
        texts: All texts of the image.
        findings: What texts and report say of findings: the names in each state.
        labels: Labels of the image.
        metadata: Metadata of the image.
    """

    id: str
    text: FoundText | None
    group: str | None
    texts: tuple[str, ...]
    findings: Mapping[State, tuple[str, ...]]
    labels: tuple[str, ...]
    metadata: Mapping[str, MetadataValue]


# A tuple is made in a third of the time of a frozen dataclass, and a page has up to hundreds of hits.
class Hit(NamedTuple):
    """One found image, or one found text with its image.

    Attributes:
        image: Found image.
        rank: Counts from 1 over all pages.
        score: Score that orders the hits: the cosine, or the sum of a fused ranking; NaN without a query.
        cosine: Similarity of query and hit, by the model's own kind of cosine; NaN without a query.
        found_by: The lists that the hit is in: of vectors, of exact words, of what says the same of findings.
        others: Group size - 1, among images that pass the filter and are not left out; only with groups.
        matched: Text with the words that were asked for; None without words, or where it has none.
    """

    image: FoundImage
    rank: int
    score: float
    cosine: float
    found_by: tuple[FoundBy, ...]
    others: int | None
    matched: MatchedText | None

    @property
    def id(self) -> str:
        """The image's id."""
        return self.image.id


@dataclass(frozen=True)
class SearchPage:
    """Hits, best first.

    Attributes:
        hits: At most as many as were asked for.
        place: Start of the page; None for the first.
        end: Tells where it ends, given whether it is confident; None on the last.
        measure: Tells what the query's cosines usually are, and which are confident; None where there is
            nothing to compare it with.
        exact: Whether nothing nearer can have been missed.
        search_ms: Time from the query vector to the hits.
        fused: Whether scores are sums of a fused ranking.
        count: Number of hits on all pages; None with a query, and of more than are ranked by words.
        unknown_words: Words of the request, as typed, that no text of the collection has.
    """

    hits: tuple[Hit, ...]
    place: PagePosition | None = field(compare=False)
    end: Callable[[bool | None], PageEnd] | None = field(compare=False)
    measure: Callable[[], ScoreScale] | None = field(compare=False)
    exact: bool
    search_ms: float
    fused: bool
    count: int | None = None
    unknown_words: tuple[str, ...] = ()

    @cached_property
    def scale(self) -> ScoreScale | None:
        """The query's cosines with a sample of the collection; measured when it is wanted."""
        return None if self.measure is None else self.measure()

    @cached_property
    def z_scores(self) -> list[float] | None:
        """Z-score of each hit's cosine; see `index.scoring.background`."""
        return None if self.scale is None else self.scale.z_scores(hit.cosine for hit in self.hits)

    @cached_property
    def confident(self) -> bool | None:
        """Whether held-out queries with such a best score find what they ask for; None where nobody knows."""
        if self.place is not None:
            return self.place.confident
        if self.scale is None or not self.hits:
            return None
        return self.scale.confident(hit.cosine for hit in self.hits)

    @property
    def has_more(self) -> bool:
        """Whether there are hits behind this page."""
        return self.end is not None

    @cached_property
    def next_cursor(self) -> str | None:
        """Asks for the next page; None on the last. Made when it is wanted: it holds the whole query."""
        return None if self.end is None else encode_cursor(self.end(self.confident))


class StoredFinding(NamedTuple):
    """A mention of a finding in a text of an image, by its position, or in the report: None.

    Attributes:
        finding: Name of the finding.
        state: What the text says of it.
        position: Position of the text; None for the report.
        start: Offset of the mention's first character.
        end: Offset behind its last character.
    """

    finding: str
    state: State
    position: int | None
    start: int
    end: int


class HitDetails(NamedTuple):
    """Details of a hit's image beyond those of every hit; empty where no request names them.

    Attributes:
        report: The image's report.
        vector: The vector (D,) of the found image or text; None also where it went meanwhile.
    """

    report: str | None = None
    vector: Vectors | None = None


@dataclass(frozen=True, slots=True)
class StoredImage:
    """Catalogue entry of one image."""

    id: str
    texts: tuple[str, ...]
    report: str | None
    findings: tuple[StoredFinding, ...]
    labels: tuple[str, ...]
    metadata: Mapping[str, MetadataValue]
    split: str
    group: str | None
    width: int
    height: int
    media_type: str
    sha256: str
    record_digest: str

    @property
    def revision(self) -> str:
        """Names this state of the image; see `revision_of`."""
        return revision_of(self.record_digest, self.sha256)

    def priors(self) -> list[bool]:
        """Tell of each finding whether its sentence compares with an earlier examination, or tells of one.

        The texts are read anew: their length decides how long it takes.
        """
        places: dict[int | None, list[int]] = {}
        for found in self.findings:
            places.setdefault(found.position, []).append(found.start)
        prior = {
            (position, start): one
            for position, starts in places.items()
            for start, one in zip(starts, are_prior(self._text(position), starts), strict=True)
        }
        return [prior[found.position, found.start] for found in self.findings]

    def _text(self, position: int | None) -> str:
        return self.texts[position] if position is not None else self.report or ""


def revision_of(record_digest: str, sha256: str) -> str:
    """Name a state of an image, by record and file; equal states have equal names, also after a restore.

    Args:
        record_digest: Digest of the record, as `index.writes.intake.record_digest` makes it.
        sha256: Digest of the stored file.
    """
    # Other rules read other findings from the same record.
    return hashlib.sha256(f"{RULES} {record_digest} {sha256}".encode()).hexdigest()[:_REVISION_DIGITS]
