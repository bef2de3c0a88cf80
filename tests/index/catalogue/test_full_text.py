"""Which images words find, and in which order, in every script and on both databases alike."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from sqlalchemy import select, text
from sqlalchemy.orm import Session

from index.catalogue.collections import Generation
from index.catalogue.full_text import matching, texts_with, unknown_words
from index.catalogue.tables import ImageRow, TextRow, VocabularyRow
from index.catalogue.words import MAX_WORD_LENGTH, MAX_WORDS, fold, matched_spans, split_words, tokens
from index.engine import SearchEngine
from index.search.request import SearchRequest
from index.writes.deletion import delete_images
from tests.index.catalogue.scripts import draw_texts, multilingual
from tests.index.homes import in_read, in_write, open_home, scalars
from tests.index.samples import begin_generation, make_records, put_vectors, unit_vectors
from tests.postgresql import PostgresqlServer


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SearchEngine]:
    """An engine on either database for all tests of a module."""
    url = None
    if request.param == "postgresql":
        url = request.getfixturevalue("postgresql").new_database()
    opened = open_home(tmp_path_factory.mktemp("words"), url)
    yield opened
    opened.close()


DIM = 4


class Written(NamedTuple):
    """A collection of texts, and the keys of their images in order."""

    engine: SearchEngine
    generation: Generation
    keys: list[int]

    def found(self, words: str, limit: int = 1000, allowed: list[int] | None = None) -> list[int]:
        """Places of the texts that are found, best first."""
        among = None if allowed is None else np.array([self.keys[position] for position in allowed], np.int64)
        keys = in_read(self.engine, matching, self.generation.collection_id, words, limit, among).tolist()
        return [self.keys.index(key) for key in keys]

    def texts(self, words: str) -> list[int]:
        """Places of the texts that have any of the words themselves."""
        with self.engine.home.catalogue.read() as session:
            keys = texts_with(session, np.array(self.keys), words).tolist()
            rows = [session.get_one(TextRow, key).image_id for key in keys]
        return [self.keys.index(key) for key in rows]


def put_texts(
    engine: SearchEngine, generation: Generation, texts: Sequence[str], report: str | None = None
) -> None:
    """Write an image for each text, with nothing else that is said of it but a report of all."""
    records = [
        replace(record, texts=(words,), report=report)
        for record, words in zip(make_records(len(texts)), texts, strict=True)
    ]
    put_vectors(engine, generation, records, unit_vectors(len(texts), DIM))


def write(
    engine: SearchEngine, texts: Sequence[str], report: str | None = None, *, collection: str = "c"
) -> Written:
    generation = begin_generation(engine, collection, DIM)
    put_texts(engine, generation, texts, report)
    query = select(ImageRow.id).where(ImageRow.collection_id == generation.collection_id)
    keys = scalars(engine, query.order_by(ImageRow.external_id))
    return Written(engine, generation, keys)


WORDS = (
    "a dog runs on the beach",
    "a dog and another dog",
    "a cat sleeps on a sofa",
    "pleural effusion on the left",
    "a Café at the beach",
    *(f"filler {number}" for number in range(20)),
)
REPORTS = (
    "両側に胸水を認めます。肺野は清明です。",
    "右侧少量胸腔积液。左肺上叶结节，建议复查CT。",
    "胸部CT検査：肺炎の所見なし。",
    "흉수가 양쪽에 있습니다. 심장은 정상입니다.",
    "พบน้ำในช่องเยื่อหุ้มปอดข้างขวา หัวใจโต",
    "Großer Pleuraerguss rechts, V.a. Lungenödem.",
    "Beidseits Ergüsse, keine Rippenfrakturen.",
    "Ein Erguss links, alte Fraktur.",
    "Small pleural effusion.IMPRESSION: Opacity on the left.",
    "Bilateral effusions, several opacities; an abnormal film.",
    "ＰＡ　ｆｉｌｍ, café au lait spots",
    "Плевральный выпот справа.",
)
SPELLINGS = (
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
COMPOUNDS = (
    "Pleuraerguss",
    "Winkelerguss",
    "Perikarderguss",
    "Resterguss",
    "Gelenkerguss",
    "Randwinkelerguss",
    "Begleiterguss",
)
KNOWN = (
    "Pleuraerguss links, Röntgen am 3. Mai",
    "Two dogs at a Café",
    "右下肺野に浸潤影を認める。胸水なし。",
    "выпота нет",
    "CTR55",
)


@pytest.fixture(scope="module")
def filled(shared: SearchEngine) -> Written:
    """`WORDS`, and an image of another collection that also has such a word."""
    write(shared, ["a dog in the other collection", "a zebra"], collection="other")
    return write(shared, WORDS, collection="words")


@pytest.fixture(scope="module")
def reports(shared: SearchEngine) -> Written:
    return write(shared, REPORTS, collection="reports")


@pytest.fixture(scope="module")
def spellings(shared: SearchEngine) -> Written:
    return write(shared, SPELLINGS, collection="spellings")


@pytest.fixture(scope="module")
def known(shared: SearchEngine) -> Written:
    return write(shared, KNOWN, collection="known")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("effusion", [3]),
        ("EFFUSION!", [3]),
        ("dog beach", [0, 1, 4]),
        ("CAFÉ", [4]),
        ("dogs", [0, 1]),
        ("", []),
        ("?! -- ''", []),
        # Nothing that is typed is syntax.
        ('"', []),
        *(
            (typed, [0, 1])
            for typed in (
                *("dog*", "dog AND", "NEAR(dog", "words:dog", "-dog", "^dog", "\0dog", "dog\0", "dog'"),
                *('dog"', "'; DROP TABLE images; -- dog", "dog & !", "dog | (", "dog:*", "\\dog", "<-> dog"),
            )
        ),
    ],
)
def test_images_with_any_of_the_words_are_found(filled: Written, words: str, expected: list[int]) -> None:
    assert sorted(filled.found(words)) == expected


def test_more_and_rarer_words_come_first(filled: Written) -> None:
    assert filled.found("dog beach")[0] == 0
    assert filled.found("the effusion")[0] == 3
    assert filled.found("dog")[0] == 1


def test_no_more_than_the_limit_and_only_allowed_ones(filled: Written) -> None:
    whole = filled.found("dog beach cat")
    assert filled.found("dog beach cat", 2) == whole[:2]
    assert filled.found("dog beach cat", 1, [whole[2], whole[3]]) == [whole[2]]
    assert filled.found("dog", 5, []) == []
    assert filled.found("dog", 0) == []


def test_words_are_the_same_on_both_databases(engine: SearchEngine) -> None:
    expected = {
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
    written = write(engine, list(expected))
    for index, words in enumerate(expected.values()):
        for word in words.split():
            assert index in written.found(word), word
            assert index in written.texts(word), word
            assert tokens(word) == [fold(word)[:MAX_WORD_LENGTH]]


def test_of_a_long_report_the_words_at_its_beginning_are_found(engine: SearchEngine) -> None:
    """Each of these words is another one: all of them are more than PostgreSQL keeps of a text."""
    written = write(engine, ["a text"], " ".join(f"{number:07}" for number in range(200_000)))
    for word, expected in (("text", 1), ("0000000", 1), ("0024990", 1), ("0025010", 0), ("0199999", 0)):
        assert len(written.found(word)) == expected, word


@pytest.mark.slow
def test_the_longest_text_of_the_longest_letters_is_taken_in(engine: SearchEngine) -> None:
    generation = begin_generation(engine, "c", DIM)
    numbers = np.random.default_rng(0).permutation(np.arange(200_000) % 40_000)
    letters = "".join(chr(0x20000 + number) for number in numbers)
    for length in (1, 2, 500):
        words = " ".join(letters[start : start + length] for start in range(0, len(letters), length))
        put_texts(engine, generation, [words])


def test_a_rare_word_outweighs_two_common_ones(engine: SearchEngine) -> None:
    common = ["the heart and the lungs are clear"] * 60
    texts = [*common[:30], "pneumothorax of the left", *common[30:], "lungs with a nodule on one side"]
    written = write(engine, texts)
    assert written.found("pneumothorax heart lungs clear", 1) == [30]
    assert written.found("nodule heart clear", 1) == [len(texts) - 1]


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
    requests = ["word7", *(f"{'x' * 150}{number}" for number in range(MAX_WORDS - 1))]
    with engine.home.catalogue.read() as session:
        # To look them up takes a hundredth of it, to compare them with all many times as long.
        session.execute(text("SET LOCAL statement_timeout = 1000"))
        assert matching(session, collection, " ".join(requests), 9).tolist() == [7]
    engine.close()


@pytest.mark.parametrize(
    ("expected", "requested"),
    [
        ([], ("水胸", "胸積", "caf", "normal")),
        ([0], ("胸水", "清明です。")),
        ([1], ("积液", "结节")),
        ([2], ("肺炎", "検査")),
        ([0, 1, 2], ("肺",)),
        # Two words: CT is in both.
        ([1, 2], ("CT", "ct検査")),
        ([3], ("흉수", "심장은 정상")),
        ([4], ("น้ำ", "ปอด", "หัวใจโต")),
        ([11], ("выпот",)),
        ([10], ("pa", "ＣＡＦＥ", "cafe", "cafe\u0301")),
        ([9, 10], ("FILM",)),
        ([5], ("ödem", "Lunge")),
        ([6], ("Rippe",)),
        ([6, 7], ("Fraktur",)),
        ([5, 6, 7], ("Erguss", "Ergüsse")),
        ([8], ("impression",)),
        ([8, 9], ("effusion", "effusions", "opacity")),
    ],
)
def test_words_of_every_script_are_found(
    reports: Written, expected: list[int], requested: Sequence[str]
) -> None:
    for words in requested:
        assert sorted(reports.found(words)) == reports.texts(words) == expected, words
        assert [index for index, text in enumerate(REPORTS) if matched_spans(text, words)] == expected, words


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("Erguss", [7, 6, 5]),  # The word itself, its plural, a compound.
        ("Ergüsse", [6, 7, 5]),
        ("effusion", [8, 9]),
        ("effusions", [9, 8]),
        ("Fraktur", [7, 6]),
        ("small effusions", [8, 9]),  # Two words outweigh one, though one of them is in another number.
    ],
)
def test_exact_words_come_first_then_their_inflections_then_compounds(
    reports: Written, words: str, first: list[int]
) -> None:
    assert reports.found(words) == first


def test_an_exact_word_comes_first_however_common_it_is(engine: SearchEngine) -> None:
    texts = ["a mass", "masses " * 9, *["a mass and more of it"] * 20, "the massive one", "nothing"]
    result = write(engine, texts).found("mass")
    assert result[0] == 0
    assert sorted(result[:21]) == [0, *range(2, 22)]
    assert result[21:] == [1, 22]


def test_words_that_most_images_have_are_left_out_where_others_find_enough(engine: SearchEngine) -> None:
    texts = [f"pet {('dog', 'cat', 'bird')[number % 3]} {number}" for number in range(30)]
    written = write(engine, texts)
    assert written.found("pet dog", 5) == written.found("dog", 5)
    assert sorted(written.found("pet dog", 10)) == list(range(0, 30, 3))
    # All dogs, and then others that only have the common word.
    assert sorted(written.found("pet dog", 20)[:10]) == list(range(0, 30, 3))
    assert len(written.found("pet dog", 20)) == 20
    assert len(written.found("pet", 5)) == 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_both_databases_find_the_same(seed: int, tmp_path: Path, postgresql: PostgresqlServer) -> None:
    """Texts of many scripts; every word and part of a run of them, and others, in either database."""
    texts = draw_texts(60, seed)
    homes = [open_home(tmp_path / "sqlite"), open_home(tmp_path / "server", postgresql.new_database())]
    sqlite, server = (write(engine, texts) for engine in homes)
    queries = draw_texts(100, seed + 1000)
    for index, message in enumerate(texts):
        for word in split_words(fold(message)):
            parts = {word.text, word.text[:1], word.text[1:3]} if word.unspaced else {word.text}
            for part in parts - {""}:
                assert index in sqlite.found(part), (message, part)
                queries.append(part)
    for words in queries:
        result = sorted(sqlite.found(words))
        assert sorted(server.found(words)) == result, words
        assert sqlite.texts(words) == server.texts(words) == result, words
        assert [index for index, message in enumerate(texts) if matched_spans(message, words)] == result, (
            words
        )
    for engine in homes:
        engine.close()


@settings(max_examples=200, deadline=None)
@given(multilingual)
def test_no_query_is_syntax(reports: Written, words: str) -> None:
    assert sorted(reports.found(words)) == reports.texts(words)


def test_a_long_sentence_without_spaces_is_one_phrase(engine: SearchEngine) -> None:
    sentence = "左侧胸腔积液心影增大双肺未见明显结节纵隔未见肿大淋巴结" * 30
    written = write(engine, [f"复查。{sentence}无变化", sentence[:-1], "胸腔积液"])
    assert written.found(sentence) == [0]
    assert sorted(written.found(sentence[5:400])) == [0, 1]


@pytest.mark.parametrize(
    ("text", "expected", "lost"),
    [
        ("心胸比CTR55%の拡大", ("CTR", "CTR55", "心胸比"), ("CT", "TR", "C")),
        ("SpO2 98%, vitamin B12", ("SpO2", "spo", "B12"), ("B", "sp", "B1")),
        ("Wirbel T12 und L4", ("T12", "L4"), ("T", "T1", "T2", "L")),
        ("Небольшой плевральный выпот.", ("плеврального", "выпота", "выпоты", "ВЫПОТ"), ("вып", "плевра")),
        ("Признаки пневмонии, лёгкие чистые.", ("пневмония", "пневмонию", "легкие"), ("пнев",)),
        ("Μικρή πλευριτική συλλογή.", ("πλευριτικη", "ΣΥΛΛΟΓΗ", "συλλογές"), ("συλ",)),
        ("İki taraflı plevral efüzyon, kalp ılımlı", ("IKI", "ILIMLI", "efuzyon"), ("fuzy",)),
        ("Tràn dịch màng phổi", ("tran dich", "PHỔI"), ("pho1",)),
        ("Płyn w jamie opłucnej, odma", ("płyn", "PLYN", "opłucnej"), ("wody",)),
        ("Épanchement pleural à gauche", ("epanchement", "ÉPANCHEMENT"), ("gau",)),
        ("انصباب جنبي", ("انصباب",), ("جن",)),
        ("फुफ्फुस बहाव नहीं", ("बहाव", "फुफ्फुस"), ("फु",)),
        ("תפליט פלאורלי", ("תפליט",), ("תפ",)),
    ],
)
def test_words_are_found_with_their_endings_and_beside_digits(
    engine: SearchEngine, text: str, expected: Sequence[str], lost: Sequence[str]
) -> None:
    written = write(engine, [text, "Other words."])
    for words in expected:
        assert (words, written.found(words), written.texts(words)) == (words, [0], [0])
        assert matched_spans(text, words)
    for words in lost:
        assert (words, written.found(words), matched_spans(text, words)) == (words, [], [])


def test_a_word_itself_comes_before_the_same_with_digits_or_an_ending(engine: SearchEngine) -> None:
    written = write(engine, ["CTR55%の、выпота", "CTR は、выпот"])
    assert written.found("CTR") == [1, 0]
    assert written.found("выпот") == [1, 0]


@pytest.mark.parametrize(
    ("requested", "first", "expected"),
    [
        ("Röntgen rontgen", {0, 2}, {0, 1, 2}),
        ("Roentgen", {1}, {0, 1, 2}),
        ("Ödem O\u0308dem", {3}, {3, 4, 5, 6}),
        ("OEDEM", {4}, {3, 4, 5, 6}),
        ("Erguss Erguß", {7, 8}, {7, 8, 11, 12}),
        ("Ergüsse", {11}, {7, 8, 11, 12}),
        ("Erguesse", {12}, {7, 8, 11, 12}),
        ("gross", {7, 8}, {7, 8}),
        ("neue Dauer aktuell", {9}, {9}),
        ("true poet", {10}, {10}),
    ],
)
def test_spellings_find_each_other_behind_what_was_typed(
    spellings: Written, requested: str, first: set[int], expected: set[int]
) -> None:
    for words in requested.split():
        ranked = spellings.found(words)
        assert set(ranked) == set(spellings.texts(words)) == expected, words
        assert set(ranked[: len(first)]) == first, words


@pytest.mark.parametrize("count", [7, 50, 500, 950])
def test_all_compounds_of_a_word_are_found_by_it(engine: SearchEngine, count: int) -> None:
    letters = "abcdefghij"
    compounds = [
        *COMPOUNDS,
        *("".join(letters[int(digit)] for digit in str(n + 100)) + "erguss" for n in range(count)),
    ]
    texts = [f"{compound} links" for compound in compounds[:count]]
    written = write(engine, [*texts, "Kein Rundherd rechts", "Erguss", "Ergüsse"])
    for words in ("erguss", "Erguss", "ERGÜSSE", "ergüsse"):
        result = written.found(words)
        # The word itself and its plural come first.
        assert set(result[:2]) == {count + 1, count + 2}, words
        assert sorted(result[2:]) == list(range(count)), words
    assert len(written.found("erguss", 5)) == 5
    # The compounds of the rarer word come first.
    assert written.found("erguss herd")[0] == count


@pytest.mark.parametrize(
    ("words", "unknown"),
    [
        *((words, ()) for words in ("", "dogs", "dog", "Erguss", "roentgen", "CAFÉ", "выпот", "ctr")),
        *((words, ()) for words in ("胸水", "水", "?! ---")),
        ("Zebra", ("Zebra",)),
        ("dog Zebra ÉLAN 肺炎 zebra", ("Zebra", "ÉLAN", "肺炎")),
        ("cafe\u0301 Ze\u0301bre", ("Ze\u0301bre",)),
        ("胸水 気胸", ("気胸",)),
        ("浸潤影胸水", ("浸潤影胸水",)),
        ("normal effusion", ("normal", "effusion")),
    ],
)
@pytest.mark.usefixtures("filled")
def test_words_that_no_text_has_in_any_form_are_unknown(
    known: Written, words: str, unknown: tuple[str, ...]
) -> None:
    assert in_read(known.engine, unknown_words, known.generation.collection_id, words) == unknown


def test_pages_with_and_without_a_query_tell_unknown_words(known: Written) -> None:
    engine, active = known.engine, known.engine.active("known")
    vector = unit_vectors(1, DIM)[0]
    request = SearchRequest(k=3, words="dog Zebra")
    assert engine.search(active, vector, request).unknown_words == ("Zebra",)
    assert engine.browse("known", request).unknown_words == ("Zebra",)
    assert engine.browse("known", replace(request, words="zebra")).hits == ()
    assert engine.browse("known", replace(request, words=None)).unknown_words == ()
    assert engine.search(active, vector, replace(request, words=None)).unknown_words == ()


def _vocabulary(session: Session) -> dict[str, int]:
    rows = session.execute(select(VocabularyRow.word, VocabularyRow.images)).all()
    return {row.word: row.images for row in rows}


def test_long_words_are_counted_by_images_and_go_with_the_last(engine: SearchEngine) -> None:
    catalogue = engine.home.catalogue
    written = write(engine, ["Pleuraerguss, pleuraerguss", "Pleuraerguß im Liegen", "Lungenödem 2026"])
    assert in_read(catalogue, _vocabulary) == {"pleuraerguss": 2, "lungenodem": 1}
    changed = replace(make_records(1)[0], texts=("Rippenfraktur",), report=None)
    put_vectors(engine, written.generation, [changed], unit_vectors(1, 4))
    assert in_read(catalogue, _vocabulary) == {"pleuraerguss": 1, "lungenodem": 1, "rippenfraktur": 1}
    in_write(catalogue, delete_images, "c", ["image-001", "image-002"])
    assert in_read(catalogue, _vocabulary) == {"rippenfraktur": 1}
    assert written.found("erguss") == []
    assert written.found("fraktur") == [0]


def test_compounds_of_another_collection_are_not_looked_for(engine: SearchEngine) -> None:
    first, second = write(engine, ["Pleuraerguss"]), write(engine, ["Perikarderguss"], collection="d")
    assert first.found("Erguss") == second.found("Erguss") == [0]


@pytest.mark.parametrize("filler", ["胸部異常", "w "])
def test_a_phrase_is_found_anywhere_in_a_long_report(engine: SearchEngine, filler: str) -> None:
    """PostgreSQL itself keeps 256 places of a pair, and none beyond the 16,383rd."""
    written = write(engine, ["a text"], filler * 20_000 + "。右肺浸潤影")
    for words in ("肺浸潤影", "浸潤", "潤"):
        assert written.found(words) == [0], words
    for words in ("影浸潤", "浸潤影胸", "肺浸影"):
        assert written.found(words) == [], words
