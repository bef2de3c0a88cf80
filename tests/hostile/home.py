"""A home with a small collection, to be served."""

from pathlib import Path

from app.engine import open_engine
from app.settings import Settings
from index.ingest import ingest_manifest
from tests.access import OPEN
from tests.app.conftest import COLLECTION, make_bundle, make_manifest
from training.models.encoder import load_encoder


def make_home(folder: Path, database_url: str | None) -> Settings:
    """Index a few images by an encoder of a few thousand weights; the settings that serve them."""
    settings = Settings(home=folder / "home", database_url=database_url, device="cpu", **OPEN)
    manifest = make_manifest(folder / "data", images=24)
    encoder = load_encoder(make_bundle(folder / "bundle", seed=0), "cpu")
    engine = open_engine(settings)
    ingest_manifest(engine, COLLECTION, encoder, manifest)
    engine.close()
    return settings
