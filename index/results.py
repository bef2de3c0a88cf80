"""What the search engine answers with."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from index.filters import FieldKind
from training.data.manifest import MetadataValue


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
class Hit:
    """One found image; `score` is the likeness to the query, `rank` counts from 1 over all pages."""

    id: str
    rank: int
    score: float
    texts: tuple[str, ...]
    labels: tuple[str, ...]
    metadata: Mapping[str, MetadataValue]


@dataclass(frozen=True, slots=True)
class SearchPage:
    """Hits in falling order of score; `next_cursor` is None on the last page."""

    hits: tuple[Hit, ...]
    next_cursor: str | None
    exact: bool
    search_ms: float


@dataclass(frozen=True, slots=True)
class StoredImage:
    """Everything the catalogue knows of one image."""

    id: str
    texts: tuple[str, ...]
    report: str | None
    labels: tuple[str, ...]
    metadata: Mapping[str, MetadataValue]
    split: str
    group: str | None
    width: int
    height: int
    media_type: str
    sha256: str
