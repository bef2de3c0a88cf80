"""Words that no text of a collection has are told, in the way in which they were typed."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from index.catalogue.collections import Generation
from index.catalogue.full_text import unknown_words
from index.engine import SearchEngine
from index.search.request import SearchRequest
from tests.index.homes import open_home
from tests.index.samples import begin_generation, make_records, put_vectors, unit_vectors

DIM = 4
TEXTS = (
    "Pleuraerguss links, Röntgen am 3. Mai",
    "Two dogs at a Café",
    "右下肺野に浸潤影を認める。胸水なし。",
    "выпота нет",
    "CTR55",
)


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def filled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[SearchEngine, Generation]]:
    url = None
    if request.param == "postgresql":
        url = request.getfixturevalue("postgresql").new_database()
    engine = open_home(tmp_path_factory.mktemp("unknown"), url)
    generation = begin_generation(engine, "c", DIM)
    for name, texts in (("c", TEXTS), ("other", ("a zebra",))):
        own = generation if name == "c" else begin_generation(engine, name, DIM)
        records = [
            replace(record, texts=(text,), report=None)
            for record, text in zip(make_records(len(texts)), texts, strict=True)
        ]
        put_vectors(engine, own, records, unit_vectors(len(texts), DIM))
    yield engine, generation
    engine.close()


@pytest.mark.parametrize(
    ("words", "unknown"),
    [
        ("", ()),
        ("dogs", ()),
        ("dog", ()),
        ("Erguss", ()),
        ("roentgen", ()),
        ("CAFÉ", ()),
        ("выпот", ()),
        ("ctr", ()),
        ("胸水", ()),
        ("水", ()),
        ("Zebra", ("Zebra",)),
        ("dog Zebra ÉLAN 肺炎 zebra", ("Zebra", "ÉLAN", "肺炎")),
        ("cafe\u0301 Ze\u0301bre", ("Ze\u0301bre",)),
        ("胸水 気胸", ("気胸",)),
        ("浸潤影胸水", ("浸潤影胸水",)),
        ("normal effusion", ("normal", "effusion")),
        ("?! ---", ()),
    ],
)
def test_words_that_no_text_has_in_any_form_are_unknown(
    filled: tuple[SearchEngine, Generation], words: str, unknown: tuple[str, ...]
) -> None:
    engine, generation = filled
    with engine.home.catalogue.read() as session:
        assert unknown_words(session, generation.collection_id, words) == unknown


def test_pages_with_and_without_a_query_tell_them(filled: tuple[SearchEngine, Generation]) -> None:
    engine, _ = filled
    active = engine.active("c")
    vector = unit_vectors(1, DIM)[0]
    request = SearchRequest(k=3, words="dog Zebra")
    assert engine.search(active, vector, request).unknown_words == ("Zebra",)
    assert engine.browse("c", request).unknown_words == ("Zebra",)
    assert engine.browse("c", replace(request, words="zebra")).hits == ()
    assert engine.browse("c", replace(request, words=None)).unknown_words == ()
    assert engine.search(active, vector, replace(request, words=None)).unknown_words == ()
