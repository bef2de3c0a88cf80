"""Sentences are read as they stand, and words are those of the train split alone."""

from pathlib import Path

import pytest

from training.common.errors import DataError
from training.data.pairs import Position
from training.language_models.corpus import (
    END,
    PAD,
    START,
    UNKNOWN,
    SentenceLoader,
    Vocabulary,
    fingerprint,
    read_corpus,
)

SENTENCES = ("b a a", "a c <unk> b", "a <s> </s> <pad>")


def test_a_line_is_a_sentence_and_empty_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_bytes(b"\xef\xbb\xbf a cat \r\n\n \na\x0bdog\xc2\x85sits\n")
    corpus = read_corpus(path)
    assert corpus.items == ("a cat", "a\x0bdog\x85sits")
    assert len(corpus.rejections) == 0


def test_lines_that_are_no_text_are_named_and_stop_above_their_share(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_bytes(b"one\n\xff\n" + b"more\n" * 200)
    corpus = read_corpus(path)
    assert [(item.line, item.reason) for item in corpus.rejections.items] == [(2, "it is not UTF-8")]
    with pytest.raises(DataError, match=r"train\.txt"):
        read_corpus(path, max_rejected=0.001)


@pytest.mark.parametrize(("content", "message"), [(None, "cannot be read"), (b"\n \n", "has no sentence")])
def test_a_file_without_sentences_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "valid.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=rf"valid\.txt.* {message}"):
        read_corpus(path)


def test_words_are_numbered_by_how_often_they_occur() -> None:
    vocabulary = Vocabulary.learned(SENTENCES, 100)
    first = max(PAD, UNKNOWN, START, END) + 1
    a, b = first, first + 1
    assert vocabulary.ids("a b <unk> new", 10) == [START, a, b, UNKNOWN, UNKNOWN, END]
    assert len(vocabulary) == first + len({"a", "b", "c", "<s>", "</s>", "<pad>"})


def test_whoever_writes_a_special_token_gets_a_word() -> None:
    ids = Vocabulary.learned(SENTENCES, 100).ids("<s> </s> <pad>", 10)[1:-1]
    assert not {PAD, UNKNOWN, START, END} & set(ids)


def test_a_vocabulary_has_an_upper_bound_and_sentences_too() -> None:
    vocabulary = Vocabulary.learned(SENTENCES, 6)
    assert len(vocabulary) == 6
    assert vocabulary.ids("c a a", 2) == [START, UNKNOWN, 4, END]


def test_batches_are_padded_and_know_their_sentences() -> None:
    loader = SentenceLoader(
        SENTENCES, batch_size=2, seed=3, vocabulary=Vocabulary.learned(SENTENCES, 100), max_words=10
    )
    assert (len(loader), loader.batches_per_epoch) == (3, 2)
    first, last = loader.in_order()
    assert first.lengths.tolist() == [5, 6]
    assert first.ids[0, 5] == PAD
    assert (first.ids[0, :5] != PAD).all()
    assert last.items.tolist() == [2]
    batches = loader.from_position(Position())
    drawn = [next(batches).items.tolist() for _ in range(4)]
    assert sorted(drawn[0] + drawn[1]) == sorted(drawn[2] + drawn[3]) == [0, 1, 2]
    assert next(loader.from_position(Position(3, 1, 1))).items.tolist() == drawn[3]


def test_a_fingerprint_knows_where_sentences_end() -> None:
    assert fingerprint(["a b", "c"]) != fingerprint(["a", "b c"])
    assert fingerprint(["a", "b"]) != fingerprint(["b", "a"])
