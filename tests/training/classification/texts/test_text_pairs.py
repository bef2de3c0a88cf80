"""Rows of one or two texts: their special tokens, segments and cuts."""

import pytest

from tests.training.models.tiny import tiny_tokenizer
from training.classification.texts.glue import Example
from training.classification.texts.text_pairs import PairTokenizer

LONG, SHORT = "x-ray " * 20, "the heart"


def words(text: str) -> list[int]:
    return list(tiny_tokenizer().encode([text])[0].ids[1:-1])


def row(first: str, second: str | None, limit: int = 64, separators: int = 1) -> tuple[list[int], list[int]]:
    tokens = PairTokenizer(tiny_tokenizer(), limit, separators=separators)([Example(first, second, 0)])
    assert tokens.attention_mask.all()
    return tokens.input_ids[0].tolist(), tokens.segments[0].tolist()


def start_and_end() -> tuple[int, int]:
    tokenizer = tiny_tokenizer()
    assert tokenizer.cls_id is not None
    assert tokenizer.eos_id is not None
    return tokenizer.cls_id, tokenizer.eos_id


def test_one_text_is_as_the_tokenizer_has_it() -> None:
    ids, segments = row(SHORT, None)
    assert ids == tiny_tokenizer().encode([SHORT])[0].ids
    assert set(segments) == {0}


@pytest.mark.parametrize("separators", [1, 2])
def test_two_texts_are_divided(separators: int) -> None:
    start, end = start_and_end()
    ids, segments = row("a cat", "two dogs", separators=separators)
    left = [start, *words("a cat"), *[end] * separators]
    right = [*words("two dogs"), end]
    assert ids == [*left, *right]
    assert segments == [0] * len(left) + [1] * len(right)


@pytest.mark.parametrize(("first", "second"), [(LONG, SHORT), (SHORT, LONG), (LONG, LONG), (LONG, None)])
@pytest.mark.parametrize("limit", [24, 25])
def test_the_longer_text_is_cut_at_its_end(first: str, second: str | None, limit: int) -> None:
    _, end = start_and_end()
    ids, segments = row(first, second, limit)
    assert len(ids) == limit
    assert ids[-1] == end
    left = [token for token, segment in zip(ids, segments, strict=True) if segment == 0][1:]
    left = left[: left.index(end)]
    assert left == words(first)[: len(left)]
    if second is None:
        return
    right = [token for token, segment in zip(ids, segments, strict=True) if segment == 1][:-1]
    assert right == words(second)[: len(right)]
    if second == SHORT:
        assert right == words(SHORT)
    if first == SHORT:
        assert left == words(SHORT)
    if first == second:
        assert abs(len(left) - len(right)) <= 1


def test_rows_are_padded_and_masked() -> None:
    tokenizer = PairTokenizer(tiny_tokenizer(), 64)
    tokens = tokenizer([Example("a", "b", 0), Example(SHORT, "a much longer second text", 0)])
    short = int(tokens.attention_mask[0].sum())
    assert tokens.input_ids.shape == tokens.segments.shape == tokens.attention_mask.shape
    assert short < tokens.input_ids.shape[1]
    assert set(tokens.input_ids[0, short:].tolist()) == {tiny_tokenizer().pad_id}
    assert not tokens.segments[0, short:].any()
