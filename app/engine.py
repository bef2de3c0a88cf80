"""Open the search engine that the settings describe; the service and the command line share it."""

from app.settings import Settings
from index.catalogue import open_catalogue
from index.engine import SearchEngine
from index.gpu import Gpu
from index.store import ImageStore, MakeThumbnail
from index.thumbnails import make_thumbnail


def open_engine(settings: Settings, make: MakeThumbnail = make_thumbnail) -> SearchEngine:
    """Open catalogue, image store and bundles below the home folder, which is made when missing.

    Args:
        settings: Say where.
        make: Makes thumbnails; by itself in this process.
    """
    settings.home.mkdir(parents=True, exist_ok=True)
    return SearchEngine(
        open_catalogue(settings.catalogue_url),
        ImageStore(settings.home / "images", make),
        settings.home / "bundles",
        gpu=Gpu(settings.device),
    )
