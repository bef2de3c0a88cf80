"""Writes an image with a random vector each second into a built home folder, until it is ended."""

import sys
import time
from itertools import count
from pathlib import Path

from app.engine import open_engine
from app.settings import Settings
from index.catalogue.collections import require_active
from tests.benchmarks.search.contestants.our_engine import COLLECTION
from tests.benchmarks.search.workload import FIELDS
from tests.index.samples import put_vectors, unit_vectors
from training.common.manifest import MetadataValue, Record


def main() -> None:
    """Write into the home folder that the first argument names."""
    engine = open_engine(Settings(home=Path(sys.argv[1])))
    with engine.home.catalogue.read() as session:
        generation, _ = require_active(session, COLLECTION)
    for number in count():
        name = f"written-{time.time_ns()}"
        fields: dict[str, MetadataValue] = dict.fromkeys(FIELDS, number)
        record = Record(
            id=name, image=f"{name}.png", split="test", texts=(f"text of {name}",), metadata=fields
        )
        vectors, texts = (unit_vectors(1, generation.dim, seed=2 * number + place) for place in range(2))
        put_vectors(engine, generation, [record], vectors, texts)
        time.sleep(1)


if __name__ == "__main__":
    main()
