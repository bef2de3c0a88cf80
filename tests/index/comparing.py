"""What two catalogues are compared by: the answers to searches, and their rows."""

from sqlalchemy import select

from index.catalogue.tables import HomeRow, IdempotencyKeyRow, JobRow, OrphanRow, Table
from index.engine import SearchEngine
from index.search.request import SearchRequest
from training.models.encoder import Encoder

_LEFT_OUT = (OrphanRow, HomeRow, JobRow, IdempotencyKeyRow)


def answers(engine: SearchEngine, collection: str, encoder: Encoder) -> list[str]:
    """Hits of a text, best first, with the files that they show, and what exact words find in any order.

    Without scores: their last bits are not the same in two arrays of the same vectors.
    """
    active = engine.active(collection)
    vector = encoder.embed_texts(["text 3.0"]).vectors[0]
    results = []
    for hit in engine.search(active, vector, SearchRequest(k=20)).hits:
        content = engine.image_path(collection, hit.id).read_bytes()
        results.append(f"{hit.id} {hit.image.texts} {hit.image.labels} {hit.image.metadata} {hash(content)}")
    hits = engine.search(active, vector, SearchRequest(k=20, words="report 7 text 5.1")).hits
    by_words = sorted(hit.id for hit in hits if "keywords" in hit.found_by)
    assert by_words
    return [*results, *by_words]


def rows(engine: SearchEngine) -> dict[str, list[str]]:
    """The rows of every table that a backup holds, but for the uids, which a restore gives again."""
    with engine.home.catalogue.read() as session:
        return {
            table.name: sorted(
                map(repr, session.execute(select(*(c for c in table.c if c.name != "uid"))).all())
            )
            for table in Table.metadata.sorted_tables
            if table.name not in {row.__tablename__ for row in _LEFT_OUT}
        }
