"""Compounds that share an ending or a beginning are found by it, however many there are."""

from collections.abc import Iterator

import pytest

from index.catalogue.collections import Generation
from index.catalogue.full_text import matching
from index.engine import SearchEngine
from tests.index.catalogue.full_text.test_ranking import DIM, keys_of, put_texts
from tests.index.homes import open_home
from tests.index.samples import begin_generation

SEVEN = (
    "Pleuraerguss",
    "Winkelerguss",
    "Perikarderguss",
    "Resterguss",
    "Gelenkerguss",
    "Randwinkelerguss",
    "Begleiterguss",
)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SearchEngine]:
    url = None
    if request.param == "postgresql":
        url = request.getfixturevalue("postgresql").new_database()
    engine = open_home(tmp_path_factory.mktemp("compounds"), url)
    yield engine
    engine.close()


def _found(engine: SearchEngine, generation: Generation, words: str, limit: int) -> list[int]:
    with engine.home.catalogue.read() as session:
        return list(matching(session, generation.collection_id, words, limit).tolist())


@pytest.mark.parametrize("count", [7, 50, 500, 950])
def test_all_compounds_of_a_word_are_found_by_it(engine: SearchEngine, count: int) -> None:
    generation = begin_generation(engine, "c", DIM)
    compounds = list(SEVEN)
    letters = "abcdefghij"
    compounds += ["".join(letters[int(digit)] for digit in str(n + 100)) + "erguss" for n in range(count)]
    texts = [f"{compound} links" for compound in compounds[:count]]
    put_texts(engine, generation, [*texts, "Kein Rundherd rechts", "Erguss", "Ergüsse"])
    keys = keys_of(engine, generation)
    for words in ("erguss", "Erguss", "ERGÜSSE", "ergüsse"):
        found = _found(engine, generation, words, count + 10)
        # The word itself and its plural come first.
        assert set(found[:2]) == set(keys[-2:]), words
        assert sorted(found[2:]) == keys[:count], words
    assert len(_found(engine, generation, "erguss", 5)) == 5
    # The compounds of the rarer word come first.
    assert _found(engine, generation, "erguss herd", count + 10)[0] == keys[count]
