"""The engine of a home folder; its import brings no torch, for processes that need none."""

from pathlib import Path

from index.catalogue import open_catalogue
from index.engine import SearchEngine
from index.home import Home
from index.vectors.gpu import Gpu


def open_home(home: Path, url: str | None = None, gpu: Gpu | None = None) -> SearchEngine:
    """Open the engine of a folder, by default on an SQLite catalogue in it."""
    catalogue = open_catalogue(url or f"sqlite:///{home / 'catalogue.db'}")
    return SearchEngine(Home.at(home, catalogue), gpu=gpu)
