"""Ranks by words, on the full-text indexes of both databases, and fused ranks."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select, text
from sqlalchemy.orm import Session

from index.catalogue.collections import Generation
from index.catalogue.full_text import matching, texts_with
from index.catalogue.tables import ImageRow, TextRow
from index.catalogue.words import MAX_WORD_LENGTH, MAX_WORDS, fold, tokens
from index.engine import SearchEngine
from index.errors import QueryError
from index.search.orders import fuse
from index.search.request import SearchRequest
from index.vectors.protocol import Keys
from tests.index.homes import open_home
from tests.index.samples import begin_generation, make_records, put_vectors, unit_vectors

DIM = 4
WORDS = (
    "a dog runs on the beach",
    "a dog and another dog",
    "a cat sleeps on a sofa",
    "pleural effusion on the left",
    "a Café at the beach",
    *(f"filler {number}" for number in range(20)),
)


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def filled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[SearchEngine, Generation, list[int]]]:
    """`WORDS` as texts of a collection, with an image of another one that has such a word too."""
    url = None
    if request.param == "postgresql":
        url = request.getfixturevalue("postgresql").new_database()
    engine = open_home(tmp_path_factory.mktemp("words"), url)
    generation = begin_generation(engine, "c", DIM)
    put_texts(engine, generation, WORDS)
    put_texts(engine, begin_generation(engine, "other", DIM), ["a dog in the other collection"])
    yield engine, generation, keys_of(engine, generation)
    engine.close()


def put_texts(engine: SearchEngine, generation: Generation, texts: Sequence[str]) -> None:
    """Write an image for each text, with nothing else that is said of it."""
    records = [
        replace(record, texts=(words,), report=None)
        for record, words in zip(make_records(len(texts)), texts, strict=True)
    ]
    put_vectors(engine, generation, records, unit_vectors(len(texts), DIM))


def keys_of(engine: SearchEngine, generation: Generation) -> list[int]:
    query = select(ImageRow.id).where(ImageRow.collection_id == generation.collection_id)
    with engine.home.catalogue.read() as session:
        return list(session.execute(query.order_by(ImageRow.external_id)).scalars())


def _found(
    filled: tuple[SearchEngine, Generation, list[int]],
    words: str,
    limit: int = 10,
    allowed: list[int] | None = None,
) -> list[int]:
    """Which of `WORDS` were found, in order of rank."""
    engine, generation, keys = filled
    among = None if allowed is None else np.array([keys[place] for place in allowed], dtype=np.int64)
    with engine.home.catalogue.read() as session:
        found = matching(session, generation.collection_id, words, limit, among)
    return [keys.index(key) for key in found.tolist()]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("effusion", [3]),
        ("EFFUSION!", [3]),
        ("dog beach", [0, 1, 4]),
        ("CAFÉ", [4]),
        ("dogs", [0, 1]),
        ("", []),
        ("?! -- ''", []),
    ],
)
def test_images_with_any_of_the_words_are_found(
    filled: tuple[SearchEngine, Generation, list[int]], words: str, found: list[int]
) -> None:
    ranked = _found(filled, words)
    assert sorted(ranked) == found


def test_more_and_rarer_words_come_first(filled: tuple[SearchEngine, Generation, list[int]]) -> None:
    assert _found(filled, "dog beach")[0] == 0
    assert _found(filled, "the effusion")[0] == 3
    assert _found(filled, "dog")[0] == 1


def test_no_more_than_the_limit_and_only_allowed_ones(
    filled: tuple[SearchEngine, Generation, list[int]],
) -> None:
    whole = _found(filled, "dog beach cat")
    assert _found(filled, "dog beach cat", 2) == whole[:2]
    assert _found(filled, "dog beach cat", 1, [whole[2], whole[3]]) == [whole[2]]
    assert _found(filled, "dog", 5, []) == []
    assert _found(filled, "dog", 0) == []


def test_accents_and_case_do_not_count(filled: tuple[SearchEngine, Generation, list[int]]) -> None:
    engine, _, keys = filled
    for words, found in (
        ("cafe", True),
        ("CAFÉ", True),
        ("cafe\u0301", True),
        ("ｃａｆｅ", True),
        ("caf", False),
    ):
        assert _found(filled, words) == [4] * found, words
        with engine.home.catalogue.read() as session:
            assert len(texts_with(session, np.array(keys), words)) == found, words


def test_words_are_the_same_on_both_databases(engine: SearchEngine) -> None:
    written = {
        "opacity/atelectasis": "opacity atelectasis",
        "No pleural fluid.Cardiomegaly": "fluid cardiomegaly",
        "a nodule of 3.5 mm, 2e7 cells, -4": "3 5 2e7 4",
        "s/p CABG": "s p cabg",
        "radiology@example.org or www.example.com/effusions?a=b&c": "radiology example org effusions b c",
        "x-ray <b>bold</b> &amp; \\slash": "x ray bold amp slash",
        "snake_case, the patient's Übelkeit": "snake case patient s übelkeit",
        "cafe\u0301": "café",
        "胸部 正常所見": "胸部 正常所見",
        "w" * 3000: "w" * 3000,
    }
    generation = begin_generation(engine, "c", DIM)
    put_texts(engine, generation, list(written))
    keys = keys_of(engine, generation)
    for place, words in enumerate(written.values()):
        for word in words.split():
            with engine.home.catalogue.read() as session:
                found = matching(session, generation.collection_id, word, 20)
                assert keys[place] in found.tolist(), word
                assert keys[place] in _images_of(session, texts_with(session, found, word)), word
            assert tokens(word) == [fold(word)[:MAX_WORD_LENGTH]]


def test_of_a_long_report_the_words_at_its_beginning_are_found(engine: SearchEngine) -> None:
    """Each of these words is another one: all of them are more than PostgreSQL keeps of a text."""
    generation = begin_generation(engine, "c", DIM)
    report = " ".join(f"{number:07}" for number in range(200_000))
    record = replace(make_records(1)[0], texts=("a text",), report=report)
    put_vectors(engine, generation, [record], unit_vectors(1, DIM))
    with engine.home.catalogue.read() as session:
        for word, found in (("text", 1), ("0000000", 1), ("0024990", 1), ("0025010", 0), ("0199999", 0)):
            assert len(matching(session, generation.collection_id, word, 9)) == found, word


@pytest.mark.slow
def test_the_longest_text_of_the_longest_letters_is_taken_in(engine: SearchEngine) -> None:
    generation = begin_generation(engine, "c", DIM)
    numbers = np.random.default_rng(0).permutation(np.arange(200_000) % 40_000)
    letters = "".join(chr(0x20000 + number) for number in numbers)
    for length in (1, 2, 500):
        words = " ".join(letters[start : start + length] for start in range(0, len(letters), length))
        put_texts(engine, generation, [words])


def _images_of(session: Session, texts: Keys) -> list[int]:
    query = select(TextRow.image_id).where(TextRow.id.in_(texts.tolist()))
    return list(session.execute(query).scalars())


def test_a_rare_word_outweighs_two_common_ones(engine: SearchEngine) -> None:
    common = ["the heart and the lungs are clear"] * 60
    texts = [*common[:30], "pneumothorax of the left", *common[30:], "lungs with a nodule on one side"]
    generation = begin_generation(engine, "c", DIM)
    put_texts(engine, generation, texts)
    keys = keys_of(engine, generation)
    with engine.home.catalogue.read() as session:

        def best(words: str) -> int:
            return keys.index(int(matching(session, generation.collection_id, words, 1)[0]))

        assert best("pneumothorax heart lungs clear") == texts.index("pneumothorax of the left")
        assert best("nodule heart clear") == len(texts) - 1


@pytest.mark.parametrize(
    "words",
    [
        '"',
        "dog*",
        "dog AND",
        "NEAR(dog",
        "words:dog",
        "-dog",
        "'; DROP TABLE images; -- dog",
        "^dog",
        "\0dog",
    ],
)
def test_nothing_typed_is_syntax(filled: tuple[SearchEngine, Generation, list[int]], words: str) -> None:
    assert set(_found(filled, words)) == ({0, 1} if "dog" in words else set())


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_any_text_can_be_searched_for(filled: tuple[SearchEngine, Generation, list[int]], words: str) -> None:
    _found(filled, words)


def test_more_words_than_are_looked_up_are_refused() -> None:
    SearchRequest(words=" ".join(f"word{number % 64}" for number in range(5000))).check()
    with pytest.raises(QueryError, match=r"^There are 65 different words in `keywords`: give at most 64\.$"):
        SearchRequest(words=" ".join(f"word{number}" for number in range(65))).check()


def test_each_word_is_taken_once() -> None:
    assert tokens("Dog dog DOG cat_tail") == ["dog", "cat", "tail"]


def _keys(*keys: int) -> Keys:
    return np.array(keys, dtype=np.int64)


def test_fused_ranks_golden() -> None:
    keys, sums = fuse([_keys(7, 3, 9), _keys(3, 8)])
    assert keys.tolist() == [3, 7, 8, 9]
    np.testing.assert_allclose(sums, [1 / 62 + 1 / 61, 1 / 61, 1 / 62, 1 / 63], rtol=1e-12)


def test_equal_sums_are_in_order_of_key_and_nothing_fuses_to_nothing() -> None:
    assert fuse([_keys(2, 1), _keys(1, 2)])[0].tolist() == [1, 2]
    assert [part.tolist() for part in fuse([])] == [[], []]
    assert fuse([_keys(), _keys(5)])[0].tolist() == [5]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 30), unique=True, max_size=12), max_size=4))
def test_fused_ranks_equal_the_sum_by_definition(rankings: list[list[int]]) -> None:
    keys, sums = fuse([np.array(ranking, dtype=np.int64) for ranking in rankings], k0=10)
    expected = {
        key: sum(1 / (11 + ranking.index(key)) for ranking in rankings if key in ranking)
        for ranking in rankings
        for key in ranking
    }
    assert dict(zip(keys.tolist(), sums.tolist(), strict=True)) == pytest.approx(expected)
    assert (np.diff(sums) <= 1e-15).all()


def test_written_images_are_found_by_their_words_on_either_database(engine: SearchEngine) -> None:
    """Texts and reports both count, and quotes, operators and zeros are no syntax of either."""
    generation = begin_generation(engine, "c", DIM)
    records = [
        replace(record, texts=(words,), report="an opacity" if number == 3 else None)
        for number, (record, words) in enumerate(zip(make_records(len(WORDS)), WORDS, strict=True))
    ]
    put_vectors(engine, generation, records, unit_vectors(len(WORDS), DIM))
    keys = keys_of(engine, generation)
    with engine.home.catalogue.read() as session:

        def found(words: str) -> list[int]:
            return [keys.index(key) for key in matching(session, generation.collection_id, words, 9).tolist()]

        assert found("effusion") == [3]
        assert found("opacity") == [3]
        assert found("dog beach")[0] == 0
        assert set(found("dog beach")) == {0, 1, 4}
        for words in ("dog'", 'dog"', "dog & !", "dog | (", "dog:*", "\\dog", "dog\0", "<-> dog"):
            assert set(found(words)) == {0, 1}


_MANY = 30_000
_WRITTEN = (
    "INSERT INTO images (id, collection_id, external_id, sha256, media_type, width, height, split, labels, "
    "details, record_digest) SELECT number, :collection, number::text, '', '', 1, 1, 'train', '[]', '{}', '' "
    "FROM generate_series(1, :many) AS number",
    "INSERT INTO image_words (image_id, words) "
    "SELECT number, ('word' || number || ' seen')::tsvector FROM generate_series(1, :many) AS number",
    "ANALYZE image_words",
)


@pytest.mark.slow
def test_long_words_are_looked_up_and_not_compared_with_every_image(
    postgresql_url: str, tmp_path: Path
) -> None:
    engine = open_home(tmp_path / "home", postgresql_url)
    collection = begin_generation(engine, "c", 2).collection_id
    with engine.home.catalogue.write() as session:
        for statement in _WRITTEN:
            values = {"collection": collection, "many": _MANY}
            session.execute(
                text(statement), {name: values[name] for name in values if f":{name}" in statement}
            )
    asked = ["word7", *(f"{'x' * 150}{number}" for number in range(MAX_WORDS - 1))]
    with engine.home.catalogue.read() as session:
        # To look them up takes a hundredth of it, to compare them with all many times as long.
        session.execute(text("SET LOCAL statement_timeout = 1000"))
        assert matching(session, collection, " ".join(asked), 9).tolist() == [7]
    engine.close()
