import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as BackendTokenizer
from tokenizers import models, pre_tokenizers, processors

from tests.training.conversion import folders
from tests.training.models.tiny import TEXTS, tiny_tokenizer
from training.common.errors import BundleError, RecipeError
from training.models.config import TextTowerConfig
from training.models.learned_tokenizer import build_tokenizer, learn_tokenizer, learn_word_tokenizer
from training.models.pretrained.tokens import load_tokenizer
from training.models.text_input import Tokenizer

Learn = Callable[[Sequence[str]], Tokenizer]


def learn_pieces(texts: Sequence[str]) -> Tokenizer:
    return learn_tokenizer(texts, 300)


def learn_words(texts: Sequence[str]) -> Tokenizer:
    return learn_word_tokenizer(texts, 300)


EVERY = pytest.mark.parametrize("learn", [learn_pieces, learn_words])


@EVERY
def test_the_same_texts_give_the_same_bytes(learn: Learn) -> None:
    texts = [f"word{i * 7919 % 97} and thing{i * 31 % 53}" for i in range(300)]
    assert len({learn(texts).to_json() for _ in range(5)}) == 1
    with pytest.raises(RecipeError, match="No text"):
        learn(["  ", ""])


def test_pieces_are_learned_from_the_given_texts_only() -> None:
    tokenizer = learn_pieces(["zebra crossing"] * 5)
    assert len(tokenizer.encode(["zebra"])[0].ids) == 3
    assert len(tokenizer.encode(["giraffe"])[0].ids) > 3
    assert tokenizer.size <= 300
    assert max(tokenizer.encode(["any text"])[0].ids) < tokenizer.size


@EVERY
def test_special_tokens_enclose_a_text_and_cannot_be_written_in_it(learn: Learn) -> None:
    tokenizer = learn([*TEXTS, "start end unknown pad < >"])
    assert tokenizer.pad_id == 0
    assert tokenizer.encode([""])[0].ids == [tokenizer.cls_id, tokenizer.eos_id]
    ids = tokenizer.encode(["<pad> a <start> b <unknown> c <end>"])[0].ids
    assert (ids[0], ids[-1]) == (tokenizer.cls_id, tokenizer.eos_id)
    assert {tokenizer.pad_id, tokenizer.cls_id, tokenizer.eos_id}.isdisjoint(ids[1:-1])
    plain, loud = tokenizer.encode(["two dogs run", "  Two\n DOGS   run "])
    assert plain.ids == loud.ids


@EVERY
@settings(max_examples=30, deadline=None)
@given(text=st.text(max_size=30))
def test_survives_being_saved(learn: Learn, text: str) -> None:
    tokenizer = learn(TEXTS)
    again = Tokenizer.from_json(tokenizer.to_json())
    assert again.encode([text])[0].ids == tokenizer.encode([text])[0].ids
    known, expected = ((each.pad_id, each.cls_id, each.eos_id) for each in (again, tokenizer))
    assert known == expected
    assert again.to_json() == tokenizer.to_json()


@pytest.mark.parametrize("text", ["{}", "no json", '{"model": 3}'])
def test_refuses_a_damaged_file(text: str) -> None:
    with pytest.raises(BundleError, match="cannot be read"):
        Tokenizer.from_json(text)


def test_refuses_a_file_without_a_padding_token() -> None:
    content = json.loads(tiny_tokenizer().to_json()) | {"padding": None}
    with pytest.raises(BundleError, match="padding token"):
        Tokenizer.from_json(json.dumps(content))


def test_words_are_numbered_by_how_often_they_occur() -> None:
    tokenizer = learn_word_tokenizer(["A dog runs.", "a DOG sits", "the dog"], 300)
    # <pad>, <unknown>, <start>, <end>, then dog (3), a (2), and the words that occur once by their letters.
    assert tokenizer.encode(["A dog\n  runs."])[0].ids == [2, 5, 4, 7, 6, 3]
    assert tokenizer.encode(["the"])[0].ids == [2, 9, 3]
    assert (tokenizer.pad_id, tokenizer.cls_id, tokenizer.eos_id, tokenizer.size) == (0, 2, 3, 10)


def test_words_outside_the_vocabulary_are_one_unknown_word() -> None:
    tokenizer = learn_word_tokenizer(["zebra crossing"] * 5 + ["a lone giraffe"], 300, min_count=5)
    assert tokenizer.encode(["zebra giraffe okapi crossing"])[0].ids == [2, 5, 1, 1, 4, 3]
    assert tokenizer.size == 6
    assert learn_word_tokenizer(["b a a c c c"], 6).encode(["a b c"])[0].ids == [2, 5, 1, 4, 3]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"architecture": "gru"}, True),
        ({"architecture": "text_cnn"}, True),
        ({"architecture": "small_transformer"}, False),
        ({"architecture": "gru", "vocabulary": "pieces"}, False),
        ({"architecture": "bert", "vocabulary": "words"}, True),
    ],
)
def test_the_architecture_and_the_recipe_choose_words_or_pieces(
    settings: dict[str, str], words: bool
) -> None:
    tokenizer = build_tokenizer(TextTowerConfig.model_validate(settings), ["zebra crossing"] * 5)
    assert (len(tokenizer.encode(["giraffe"])[0].ids) == 3) is words


def write_bert_tokenizer(folder: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "sits", "##s"]
    backend = BackendTokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    backend.enable_truncation(4)
    backend.enable_padding(length=4)
    backend.save(str(folder / "tokenizer.json"))
    specials = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    settings = {"tokenizer_class": "BertTokenizer", "mask_token": "[MASK]", **specials}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def test_loads_a_pretrained_tokenizer_without_its_cutting_and_padding(tmp_path: Path) -> None:
    write_bert_tokenizer(tmp_path)
    config = TextTowerConfig(architecture="bert", pretrained=str(tmp_path))
    tokenizer = build_tokenizer(config, texts=())
    assert tokenizer.encode(["a cats sits a cat sits", "a"])[0].ids == [2, 5, 6, 8, 7, 5, 6, 7, 3]
    assert tokenizer.encode(["a"])[0].ids == [2, 5, 3]
    assert (tokenizer.pad_id, tokenizer.cls_id, tokenizer.eos_id, tokenizer.size) == (0, 2, 3, 9)


@pytest.fixture(scope="module")
def siglip(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, transformers.SiglipTokenizer]:
    folder = tmp_path_factory.mktemp("models") / "siglip"
    folders.siglip(folder)
    return load_tokenizer(folder), transformers.SiglipTokenizer.from_pretrained(folder)


# Names of special tokens count as letters here, but not in transformers.
_CHARACTERS = st.one_of(
    st.sampled_from("adoge Two.,'-ſ\u00a0\n\tÉé…ﬁ½"),
    st.characters(exclude_characters="<", exclude_categories=["Cs"]),
)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=_CHARACTERS, max_size=40))
def test_sentencepiece_of_siglip_has_the_ids_of_transformers(
    siglip: tuple[Tokenizer, transformers.SiglipTokenizer], text: str
) -> None:
    ours, theirs = siglip
    assert ours.encode([text])[0].ids == theirs(text)["input_ids"]


@pytest.fixture(scope="module")
def siglip_2(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("models") / "siglip-2"
    folders.siglip_2(folder)
    return load_tokenizer(folder)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ΑΣσςaZß1 .,'·-\n\u0301\u0345\u02b0\u200d两", max_size=20))
def test_the_lower_case_of_siglip_is_python_s(siglip_2: Tokenizer, text: str) -> None:
    """The end of a Greek word included."""
    ours, lower = siglip_2.encode([text, text.lower()])
    assert ours.ids == lower.ids


@pytest.mark.parametrize("named", [True, False])
def test_a_siglip_without_its_pieces_is_rejected(named: bool, tmp_path: Path) -> None:
    folders.siglip(tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").write_text(load_tokenizer(tmp_path / "model").to_json())
    (tmp_path / "model" / "spiece.model").unlink()
    if not named:
        (tmp_path / "model" / "tokenizer_config.json").unlink()
    with pytest.raises(RecipeError, match=r"so put its spiece\.model there"):
        load_tokenizer(tmp_path / "model")


def test_advice_on_a_tokenizer_is_about_files_that_are_missing(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"put a tokenizer\.json there"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(RecipeError, match=r"its tokenizer\.json is damaged or of another kind, so fetch it"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "SiglipTokenizer"}))
    (tmp_path / "spiece.model").write_bytes(b"damaged")
    with pytest.raises(RecipeError, match=r"its spiece\.model is damaged or of another kind, so fetch it"):
        load_tokenizer(tmp_path)
