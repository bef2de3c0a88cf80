"""The parts of a home folder that index code shares: the catalogue, and the folders next to it."""

from dataclasses import dataclass
from pathlib import Path

from index.catalogue import Catalogue
from index.files.image_store import ImageStore


@dataclass(frozen=True)
class Home:
    """A catalogue and its files.

    Attributes:
        catalogue: The source of truth.
        store: The image files.
        bundles_folder: Registered bundles, each in a folder named by its digest.
        snapshots_folder: Snapshots of vector views.
    """

    catalogue: Catalogue
    store: ImageStore
    bundles_folder: Path
    snapshots_folder: Path

    @classmethod
    def at(cls, folder: Path, catalogue: Catalogue, store: ImageStore | None = None) -> "Home":
        """Return the home in a folder; image files are in `images` below it."""
        return cls(
            catalogue, store or ImageStore(folder / "images"), folder / "bundles", folder / "snapshots"
        )
