"""Open the search engine that the settings describe; the service and the command line share it."""

from collections.abc import Callable
from typing import Final

from app.settings import Settings
from index.catalogue import PATIENT, Patience, open_catalogue
from index.engine import SearchEngine
from index.files.home_identity import bind_identity
from index.files.image_store import ImageStore, MakeThumbnail
from index.files.renditions import make_thumbnail
from index.home import Home
from index.vectors.gpu import Gpu

# A request that writes is refused when others have been writing for so long.
_LOCK_SECONDS: Final = 5.0


def service_patience(settings: Settings) -> Patience:
    """Wait limits of a service for the database."""
    return Patience(settings.database_timeout_s, _LOCK_SECONDS)


def open_engine(
    settings: Settings,
    patience: Patience = PATIENT,
    make: MakeThumbnail = make_thumbnail,
    is_main: Callable[[], bool] | None = None,
    *,
    bound: bool = True,
) -> SearchEngine:
    """Open catalogue, image store and bundles below the home folder, which is made when missing.

    `is_main` as in `Views`. Without `bound`, the caller checks later or never that catalogue and home folder
    belong together.

    Raises:
        CatalogueError: The catalogue cannot be used.
        HomeError: The catalogue does not belong to the home folder.
    """
    # For its user alone: it holds images and reports.
    settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    catalogue = open_catalogue(settings.catalogue_url, patience)
    home = Home.at(settings.home, catalogue, ImageStore(settings.home / "images", make))
    engine = SearchEngine(home, gpu=Gpu(settings.device), is_main=is_main)
    try:
        if bound:
            bind_identity(catalogue, home.store, settings.home)
    except BaseException:
        engine.close()
        raise
    return engine
