"""A process that drops a generation; its import brings no torch, which takes seconds."""

from pathlib import Path

from index.generations.activation import drop_generation
from tests.index.homes import open_home


def drop(home: Path, url: str, number: int) -> None:
    """Drop a generation of the collection `c`."""
    engine = open_home(home, url)
    drop_generation(engine.home, "c", number)
    engine.close()
