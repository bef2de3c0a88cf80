import math

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from tests.training.models.tiny import tiny_config
from training.models.config import DualEncoderConfig, PairAttentionConfig
from training.models.pair_attention import pair_similarities

pytestmark = pytest.mark.usefixtures("one_thread")

FORMS = [
    PairAttentionConfig(queries=queries, pooling=pooling, sharpness=4, pooling_sharpness=5)
    for queries in ("words", "regions")
    for pooling in ("logsumexp", "mean")
]


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def cosine(a: list[float], b: list[float]) -> float:
    return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


def slow_similarity(
    queries: list[list[float]], entries: list[list[float]], config: PairAttentionConfig
) -> float:
    """One pair, as Lee et al. write it: what each query sees is made, and compared with the query."""
    units = [[x / math.sqrt(dot(entry, entry)) for x in entry] for entry in entries]
    clipped = [[max(0.0, c) + 0.1 * min(0.0, c) for c in (cosine(q, e) for e in entries)] for q in queries]
    lengths = [math.sqrt(sum(row[k] ** 2 for row in clipped)) for k in range(len(entries))]
    actual = []
    for query, row in zip(queries, clipped, strict=True):
        shares = [math.exp(config.sharpness * c / length) for c, length in zip(row, lengths, strict=True)]
        weights = [share / sum(shares) for share in shares]
        seen = [dot(weights, list(column)) for column in zip(*units, strict=True)]
        actual.append(cosine(query, seen))
    if config.pooling == "mean":
        return sum(actual) / len(actual)
    return math.log(sum(math.exp(config.pooling_sharpness * c) for c in actual)) / config.pooling_sharpness


def some(count: int, longest: int, seed: int) -> tuple[Tensor, Tensor]:
    """Entries (count, longest, 5) of different numbers of items, and which are real."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn((count, longest, 5), generator=generator, dtype=torch.float64)
    mask = torch.arange(longest) < (torch.arange(count).unsqueeze(1) % longest + 1)
    return values * mask.unsqueeze(2), mask


@pytest.mark.parametrize("config", FORMS, ids=lambda form: f"{form.queries}-{form.pooling}")
def test_equals_the_slow_reference(config: PairAttentionConfig) -> None:
    (regions, region_mask), (words, word_mask) = some(3, 4, 0), some(5, 3, 1)
    actual = pair_similarities(regions, region_mask, words, word_mask, config)
    assert actual.shape == (3, 5)
    for image in range(3):
        for text in range(5):
            seen = regions[image][region_mask[image]].tolist()
            read = words[text][word_mask[text]].tolist()
            sides = (read, seen) if config.queries == "words" else (seen, read)
            assert float(actual[image, text]) == pytest.approx(slow_similarity(*sides, config), abs=1e-9)


@pytest.mark.parametrize("config", FORMS, ids=lambda form: f"{form.queries}-{form.pooling}")
def test_a_pair_is_as_alike_in_any_company(config: PairAttentionConfig) -> None:
    """Neither other items nor longer padding change it."""
    (regions, region_mask), (words, word_mask) = some(3, 4, 0), some(5, 3, 1)
    whole = pair_similarities(regions, region_mask, words, word_mask, config)
    longer = torch.nn.functional.pad(words[:1], (0, 0, 0, 2)), torch.nn.functional.pad(word_mask[:1], (0, 2))
    alone = pair_similarities(regions[2:], region_mask[2:], *longer, config)
    torch.testing.assert_close(alone[0, 0], whole[2, 0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("config", FORMS, ids=lambda form: f"{form.queries}-{form.pooling}")
def test_regions_that_are_the_words_are_the_most_alike(config: PairAttentionConfig) -> None:
    words, mask = torch.eye(12, dtype=torch.float64).view(4, 3, 12), torch.ones((4, 3), dtype=torch.bool)
    actual = pair_similarities(words, mask, words, mask, config)
    assert torch.equal(actual.argmax(dim=0), torch.arange(4))
    assert torch.equal(actual.argmax(dim=1), torch.arange(4))


def test_a_model_compares_pairs_only_with_regions_and_words() -> None:
    content = tiny_config().model_dump()
    content |= {"pair_attention": {"queries": "words"}}
    for lacking in ({}, {"local_features": True, "text": None}):
        with pytest.raises(ValidationError, match="pair_attention compares regions with words"):
            DualEncoderConfig.model_validate(content | lacking)
    assert DualEncoderConfig.model_validate(content | {"local_features": True}).pair_attention is not None
