"""The engine of a home folder; its import brings no torch, for processes that need none."""

from pathlib import Path

from index.catalogue import open_catalogue
from index.catalogue.collections import hide_collection
from index.engine import SearchEngine
from index.home import Home
from index.vectors.gpu import Gpu
from index.writes.deletion import collect_garbage


def open_home(home: Path, url: str | None = None, gpu: Gpu | None = None) -> SearchEngine:
    """Open the engine of a folder, by default on an SQLite catalogue in it."""
    catalogue = open_catalogue(url or f"sqlite:///{home / 'catalogue.db'}")
    return SearchEngine(Home.at(home, catalogue), gpu=gpu)


def remove_collection(engine: SearchEngine, collection: str) -> None:
    """Remove a collection, and what the engine and its home hold of it."""
    with engine.home.catalogue.write() as session:
        hide_collection(session, collection)
    engine.forget_removed()
    collect_garbage(engine.home)
