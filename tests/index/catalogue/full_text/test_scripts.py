"""Words of every script, plurals and compounds, on both databases alike."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings

from index.catalogue.collections import Generation
from index.catalogue.full_text import matching, texts_with
from index.catalogue.tables import TextRow
from index.catalogue.words import fold, matched_spans, split_words
from index.engine import SearchEngine
from tests.index.catalogue.full_text.scripts import draw_texts, multilingual
from tests.index.catalogue.full_text.test_ranking import keys_of, put_texts
from tests.index.homes import open_home
from tests.index.samples import begin_generation
from tests.postgresql import PostgresqlServer

DIM = 4
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


class Written(NamedTuple):
    """A collection of texts, and the keys of their images in order."""

    engine: SearchEngine
    generation: Generation
    keys: list[int]

    def found(self, words: str) -> list[int]:
        """Places of the texts that are found, best first."""
        with self.engine.home.catalogue.read() as session:
            keys = matching(session, self.generation.collection_id, words, 1000).tolist()
        return [self.keys.index(key) for key in keys]

    def texts(self, words: str) -> list[int]:
        """Places of the texts that have any of the words themselves."""
        with self.engine.home.catalogue.read() as session:
            keys = texts_with(session, np.array(self.keys), words).tolist()
            rows = [session.get_one(TextRow, key).image_id for key in keys]
        return [self.keys.index(key) for key in rows]


def _write(engine: SearchEngine, name: str, texts: Sequence[str]) -> Written:
    generation = begin_generation(engine, name, DIM)
    put_texts(engine, generation, texts)
    return Written(engine, generation, keys_of(engine, generation))


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def reports(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    url = None
    if request.param == "postgresql":
        url = request.getfixturevalue("postgresql").new_database()
    engine = open_home(tmp_path_factory.mktemp("reports"), url)
    yield _write(engine, "c", REPORTS)
    engine.close()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("胸水", [0]),
        ("积液", [1]),
        ("结节", [1]),
        ("肺炎", [2]),
        ("肺", [0, 1, 2]),
        ("CT", [1, 2]),
        ("ct検査", [1, 2]),  # Two words: CT is in both.
        ("検査", [2]),
        ("清明です。", [0]),
        ("水胸", []),
        ("胸積", []),
        ("흉수", [3]),
        ("심장은 정상", [3]),
        ("น้ำ", [4]),
        ("ปอด", [4]),
        ("หัวใจโต", [4]),
        ("выпот", [11]),
        ("pa", [10]),
        ("FILM", [9, 10]),
        ("ＣＡＦＥ", [10]),
        ("Erguss", [5, 6, 7]),
        ("Ergüsse", [5, 6, 7]),
        ("ödem", [5]),
        ("Lunge", [5]),
        ("Fraktur", [6, 7]),
        ("Rippe", [6]),
        ("effusion", [8, 9]),
        ("effusions", [8, 9]),
        ("opacity", [8, 9]),
        ("normal", []),
        ("impression", [8]),
    ],
)
def test_words_of_every_script_are_found(reports: Written, words: str, found: list[int]) -> None:
    assert sorted(reports.found(words)) == found
    assert reports.texts(words) == found
    assert [place for place, text in enumerate(REPORTS) if matched_spans(text, words)] == found


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
    written = _write(engine, "c", texts)
    found = written.found("mass")
    assert found[0] == 0
    assert sorted(found[:21]) == [0, *range(2, 22)]
    assert found[21:] == [1, 22]


def test_words_that_most_images_have_are_left_out_where_others_find_enough(engine: SearchEngine) -> None:
    texts = [f"pet {('dog', 'cat', 'bird')[number % 3]} {number}" for number in range(30)]
    written = _write(engine, "c", texts)
    with engine.home.catalogue.read() as session:

        def keys(words: str, limit: int) -> list[int]:
            found = matching(session, written.generation.collection_id, words, limit).tolist()
            return [written.keys.index(key) for key in found]

        assert keys("pet dog", 5) == keys("dog", 5)
        assert sorted(keys("pet dog", 10)) == list(range(0, 30, 3))
        # All dogs, and then others that only have the common word.
        assert sorted(keys("pet dog", 20)[:10]) == list(range(0, 30, 3))
        assert len(keys("pet dog", 20)) == 20
        assert len(keys("pet", 5)) == 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_both_databases_find_the_same(seed: int, tmp_path: Path, postgresql: PostgresqlServer) -> None:
    """Texts of many scripts; every word and part of a run of them, and others, in either database."""
    texts = draw_texts(60, seed)
    homes = [open_home(tmp_path / "sqlite"), open_home(tmp_path / "server", postgresql.new_database())]
    sqlite, server = (_write(engine, "c", texts) for engine in homes)
    queries = draw_texts(100, seed + 1000)
    for place, text in enumerate(texts):
        for word in split_words(fold(text)):
            parts = {word.text, word.text[:1], word.text[1:3]} if word.unspaced else {word.text}
            for part in parts - {""}:
                assert place in sqlite.found(part), (text, part)
                queries.append(part)
    for words in queries:
        found = sorted(sqlite.found(words))
        assert sorted(server.found(words)) == found, words
        assert sqlite.texts(words) == server.texts(words) == found, words
        assert [place for place, text in enumerate(texts) if matched_spans(text, words)] == found, words
    for engine in homes:
        engine.close()


@settings(max_examples=200, deadline=None)
@given(multilingual)
def test_no_query_is_syntax(reports: Written, words: str) -> None:
    assert sorted(reports.found(words)) == reports.texts(words)


def test_a_long_sentence_without_spaces_is_one_phrase(engine: SearchEngine) -> None:
    sentence = "左侧胸腔积液心影增大双肺未见明显结节纵隔未见肿大淋巴结" * 30
    written = _write(engine, "c", [f"复查。{sentence}无变化", sentence[:-1], "胸腔积液"])
    assert written.found(sentence) == [0]
    assert sorted(written.found(sentence[5:400])) == [0, 1]


@pytest.mark.parametrize(
    ("text", "found", "lost"),
    [
        ("心胸比CTR55%の拡大", ("CTR", "CTR55", "心胸比"), ("CT", "TR", "C")),
        ("SpO2 98%, vitamin B12", ("SpO2", "spo", "B12"), ("B", "sp", "B1")),
        ("Wirbel T12 und L4", ("T12", "L4"), ("T", "T1", "T2", "L")),
        ("Небольшой плевральный выпот.", ("плеврального", "выпота", "выпоты", "ВЫПОТ"), ("вып", "плевра")),
        ("Признаки пневмонии, лёгкие чистые.", ("пневмония", "пневмонию", "легкие"), ("пнев",)),
        ("Μικρή πλευριτική συλλογή.", ("πλευριτικη", "ΣΥΛΛΟΓΗ", "συλλογές"), ("συλ",)),
        (
            "İki taraflı plevral efüzyon, kalp ılımlı",
            ("IKI", "ILIMLI", "efuzyon"),
            ("fuzy",),
        ),
        ("Tràn dịch màng phổi", ("tran dich", "PHỔI"), ("pho1",)),
        ("Płyn w jamie opłucnej, odma", ("płyn", "PLYN", "opłucnej"), ("wody",)),
        ("Épanchement pleural à gauche", ("epanchement", "ÉPANCHEMENT"), ("gau",)),
        ("انصباب جنبي", ("انصباب",), ("جن",)),
        ("फुफ्फुस बहाव नहीं", ("बहाव", "फुफ्फुस"), ("फु",)),
        ("תפליט פלאורלי", ("תפליט",), ("תפ",)),
    ],
)
def test_words_are_found_with_their_endings_and_beside_digits(
    engine: SearchEngine, text: str, found: Sequence[str], lost: Sequence[str]
) -> None:
    reports = _write(engine, "c", [text, "Other words."])
    for words in found:
        assert (words, reports.found(words), reports.texts(words)) == (words, [0], [0])
        assert matched_spans(text, words)
    for words in lost:
        assert (words, reports.found(words), matched_spans(text, words)) == (words, [], [])


def test_a_word_itself_comes_before_the_same_with_digits_or_an_ending(engine: SearchEngine) -> None:
    reports = _write(engine, "c", ["CTR55%の、выпота", "CTR は、выпот"])
    assert reports.found("CTR") == [1, 0]
    assert reports.found("выпот") == [1, 0]
