"""Open the search engine that the settings describe; the service and the command line share it."""

from app.settings import Settings
from index.catalogue import open_catalogue
from index.engine import SearchEngine
from index.gpu import Gpu
from index.store import ImageStore


def open_engine(settings: Settings) -> SearchEngine:
    """Open catalogue, image store and bundles below the home folder, which is made when missing."""
    settings.home.mkdir(parents=True, exist_ok=True)
    return SearchEngine(
        open_catalogue(settings.catalogue_url),
        ImageStore(settings.home / "images"),
        settings.home / "bundles",
        gpu=Gpu(settings.device),
    )
