"""The catalogue: an SQL database that is the source of truth for all that can be searched."""

from index.catalogue.database import Catalogue, open_catalogue

__all__ = ["Catalogue", "open_catalogue"]
