"""The catalogue: an SQL database that is the source of truth for all that can be searched."""

from index.catalogue.database import PAUSE_SECONDS, Catalogue, open_catalogue
from index.catalogue.direct import DirectRead
from index.catalogue.reading import Reading
from index.catalogue.remembered import Kept, Remembered

__all__ = ["PAUSE_SECONDS", "Catalogue", "DirectRead", "Kept", "Reading", "Remembered", "open_catalogue"]
