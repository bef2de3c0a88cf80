"""The catalogue: an SQL database that is the source of truth for all that can be searched."""

from index.catalogue.connections import PATIENT, Patience
from index.catalogue.database import (
    PAUSE_SECONDS,
    Catalogue,
    Reading,
    ReadThroughCache,
    VersionedCache,
    open_catalogue,
)

__all__ = [
    "PATIENT",
    "PAUSE_SECONDS",
    "Catalogue",
    "Patience",
    "ReadThroughCache",
    "Reading",
    "VersionedCache",
    "open_catalogue",
]
