"""Umlauts, digraphs and plain vowels find each other, behind what is written as it was typed."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.catalogue.full_text import matching, texts_with
from index.catalogue.words import matched_spans, parse_words
from index.engine import SearchEngine
from index.vectors.protocol import Keys
from tests.index.catalogue.full_text.test_ranking import keys_of, put_texts
from tests.index.homes import open_home
from tests.index.samples import begin_generation

DIM = 4
SAID = (
    "Röntgen des Thorax",
    "Roentgen des Thorax",
    "Rontgen des Thorax",
    "kein Ödem",
    "kein Oedem",
    "ein Lungenödem",
    "ein Lungenoedem",
    "großer Erguß",
    "grosser Erguss",
    "die neue Dauer ist aktuell",
    "true to a poet",
    "mehrere Ergüsse",
    "mehrere Erguesse",
)


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def filled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[SearchEngine, int, list[int]]]:
    url = None
    if request.param == "postgresql":
        url = request.getfixturevalue("postgresql").new_database()
    engine = open_home(tmp_path_factory.mktemp("words"), url)
    generation = begin_generation(engine, "c", DIM)
    put_texts(engine, generation, SAID)
    yield engine, generation.collection_id, keys_of(engine, generation)
    engine.close()


@pytest.mark.parametrize(
    ("words", "first", "found"),
    [
        ("Röntgen", {0, 2}, {0, 1, 2}),
        ("Roentgen", {1}, {0, 1, 2}),
        ("rontgen", {0, 2}, {0, 1, 2}),
        ("Ödem", {3}, {3, 4, 5, 6}),
        ("OEDEM", {4}, {3, 4, 5, 6}),
        ("O\u0308dem", {3}, {3, 4, 5, 6}),
        ("Erguss", {7, 8}, {7, 8, 11, 12}),
        ("Erguß", {7, 8}, {7, 8, 11, 12}),
        ("Ergüsse", {11}, {7, 8, 11, 12}),
        ("Erguesse", {12}, {7, 8, 11, 12}),
        ("gross", {7, 8}, {7, 8}),
        ("neue", {9}, {9}),
        ("Dauer", {9}, {9}),
        ("aktuell", {9}, {9}),
        ("true", {10}, {10}),
        ("poet", {10}, {10}),
    ],
)
def test_spellings_find_each_other(
    filled: tuple[SearchEngine, int, list[int]], words: str, first: set[int], found: set[int]
) -> None:
    engine, collection, keys = filled
    with engine.home.catalogue.read() as session:
        ranked = [keys.index(key) for key in matching(session, collection, words, 20).tolist()]
        images: Keys = matching(session, collection, words, 20)
        assert len(texts_with(session, images, words)) == len(found)
    assert set(ranked) == found
    exact = {at for at in ranked if at in first}
    assert set(ranked[: len(exact)]) == exact


def test_the_places_of_another_spelling_are_marked() -> None:
    assert matched_spans("Ein Roentgen, ein Röntgen.", "Röntgen") == [(4, 12), (18, 25)]
    assert matched_spans("Lungenoedem", "Ödem") == [(0, 11)]


@given(st.text(alphabet="aouäöüÄÖÜeiqnrß \u0308\u0301-胸水", max_size=60))
def test_each_word_is_looked_for_in_a_few_spellings(words: str) -> None:
    query = parse_words(words)
    assert all(word.text not in word.inflections for word in query.words)
    assert all(len(word.inflections) <= 80 for word in query.words)
