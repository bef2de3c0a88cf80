"""What hits show: the sentence that has the words of a query, with their places, and all that is read."""

import pytest

from index.catalogue.database import DirectRead
from index.engine import SearchEngine
from index.search.request import SearchRequest
from index.search.results import FoundImages, Hit
from tests.index.meanwhile import note_calls
from tests.index.samples import begin_generation, make_records, put_vectors, unit_vectors
from training.common.manifest import Record

# What SQLite takes unless it was built otherwise.
MAX_VALUES = 32_766
REPORT = (
    "FINDINGS: The heart is normal.\nThere is a small left\npleural effusion. Dr. Roe saw an effusion "
    "and a nodule.\n\nIMPRESSION: none."
)


@pytest.fixture
def films(engine: SearchEngine) -> SearchEngine:
    records = [
        Record(id="texts", image="x", split="val", texts=("clear", "an effusion", "nodule, effusion, 胸水")),
        Record(id="report", image="x", split="val", texts=("a film",), report=REPORT),
        Record(id="long", image="x", split="val", texts=(f"{'so ' * 300}nodule {'on ' * 300}",)),
        Record(id="neither", image="x", split="val", texts=("a film",), report="Nothing."),
    ]
    generation = begin_generation(engine, "c", 4)
    put_vectors(engine, generation, records, unit_vectors(4, 4), unit_vectors(4, 4, seed=2))
    return engine


def marked(hit: Hit) -> tuple[str, list[str]] | None:
    if hit.matched is None:
        return None
    return hit.matched.text, [hit.matched.text[start:end] for start, end in hit.matched.spans]


def test_the_text_with_most_of_the_words_is_shown_with_their_places(films: SearchEngine) -> None:
    found = {hit.id: hit for hit in films.browse("c", SearchRequest(words="effusion nodule")).hits}
    assert marked(found["texts"]) == ("nodule, effusion, 胸水", ["nodule", "effusion"])
    assert marked(found["report"]) == ("Dr. Roe saw an effusion and a nodule.", ["effusion", "nodule"])
    assert found.keys() == {"texts", "report", "long"}
    (hit,) = films.browse("c", SearchRequest(words="left")).hits
    assert marked(hit) == ("There is a small left pleural effusion.", ["left"])
    (hit,) = films.browse("c", SearchRequest(words="胸水")).hits
    assert marked(hit) == ("nodule, effusion, 胸水", ["胸水"])
    # A long text is cut around its words.
    text, words = marked(found["long"]) or ("", [])
    assert (words, len(text)) == (["nodule"], 402)
    assert text[0] == text[-1] == "\u2026"


def test_a_fused_search_marks_what_has_the_words_and_nothing_else(films: SearchEngine) -> None:
    query = unit_vectors(1, 4, seed=5)[0]
    hits = films.search(films.active("c"), query, SearchRequest(words="effusion")).hits
    assert {hit.id for hit in hits if hit.matched} == {"texts", "report"}
    assert {hit.id for hit in hits if "keywords" in hit.found_by} == {"texts", "report"}
    assert all(hit.matched is None for hit in films.search(films.active("c"), query, SearchRequest()).hits)


def test_a_found_text_is_looked_at_alone(films: SearchEngine) -> None:
    request = SearchRequest(words="effusion", target="texts")
    found = [(hit.image.text, marked(hit)) for hit in films.browse("c", request).hits]
    assert [(text.text, match) for text, match in found if text is not None] == [
        ("an effusion", ("an effusion", ["effusion"])),
        ("nodule, effusion, 胸水", ("nodule, effusion, 胸水", ["effusion"])),
    ]


def test_no_read_has_more_values_than_databases_take(
    engine: SearchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_vectors(engine, begin_generation(engine, "c", 4), make_records(3), unit_vectors(3, 4))
    asked = note_calls(monkeypatch, DirectRead, "rows", lambda read, _, keys: (read, len(keys)))
    found = FoundImages(engine.home.catalogue).of(range(MAX_VALUES + 10, 0, -1))
    assert {image.id for image in found if image is not None} == {record.id for record in make_records(3)}
    assert found[-3:] == [image for image in found if image is not None]
    counts = [count for _, count in asked]
    # One reads images with their texts, the other findings.
    assert len({read for read, _ in asked}) == 2
    assert sum(counts) == 2 * (MAX_VALUES + 10)
    assert max(counts) <= MAX_VALUES
