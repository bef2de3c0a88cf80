"""The catalogue: an SQL database that is the source of truth for all that can be searched."""

# With the package, so that whoever copies or makes all tables knows them.
from index.catalogue import audit_tables
from index.catalogue.archives import tables as archive_tables
from index.catalogue.cache import ReadThroughCache, VersionedCache
from index.catalogue.cases import tables as case_tables
from index.catalogue.connections import PATIENT, Patience
from index.catalogue.database import PAUSE_SECONDS, Catalogue, open_catalogue
from index.catalogue.reading import DirectRead, Reading

__all__ = [
    "PATIENT",
    "PAUSE_SECONDS",
    "Catalogue",
    "DirectRead",
    "Patience",
    "ReadThroughCache",
    "Reading",
    "VersionedCache",
    "archive_tables",
    "audit_tables",
    "case_tables",
    "open_catalogue",
]
