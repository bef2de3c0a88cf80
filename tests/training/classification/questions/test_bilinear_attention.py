"""Bilinear attention against one pair at a time, in float64."""

import pytest
import torch
from torch import Tensor

from training.classification.questions.model import BilinearAttention

MASK = torch.tensor([[True, True, False], [True, False, False]])


def inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    regions = torch.randn(2, 4, 5, generator=generator, dtype=torch.float64)
    words = torch.randn(2, 3, 6, generator=generator, dtype=torch.float64)
    return regions, words


def build() -> BilinearAttention:
    torch.manual_seed(0)
    return BilinearAttention(5, 6, 2, dropout=0.2, last_dropout=0.5).double().eval()


def test_maps_are_those_of_every_pair_for_itself() -> None:
    regions, words = inputs()
    maps = build().maps
    found, form = maps(regions, words, MASK), maps.form.weight
    assert isinstance(form, Tensor)
    for row in range(2):
        for glimpse in range(2):
            weights = {}
            for region in range(4):
                for word in range(3):
                    if MASK[row, word]:
                        left, right = maps.region(regions[row, region]), maps.word(words[row, word])
                        score = (form[glimpse] * left * right).sum()
                        weights[region, word] = score.exp().item()
            for (region, word), weight in weights.items():
                expected = weight / sum(weights.values())
                assert found[row, glimpse, region, word].item() == pytest.approx(expected, abs=1e-12)
    assert found[1, :, :, 1:].abs().max() == 0


def test_glimpses_are_read_one_after_the_other() -> None:
    regions, words = inputs()
    attention = build()
    maps = attention.maps(regions, words, MASK)
    for row, count in enumerate((2, 1)):
        state = words[row, :count]
        for glimpse in range(2):
            left = attention.regions[glimpse](regions[row])
            right = attention.words[glimpse](state)
            read = torch.zeros(6, dtype=torch.float64)
            for region in range(4):
                for word in range(count):
                    read += maps[row, glimpse, region, word] * left[region] * right[word]
            state = state + attention.joined[glimpse](read)
        torch.testing.assert_close(attention(regions, words, MASK)[row], state.sum(dim=0))


def test_padding_does_not_matter() -> None:
    regions, words = inputs()
    attention = build()
    found = attention(regions, words, MASK)
    others = words.masked_fill(~MASK.unsqueeze(-1), 7.0)
    torch.testing.assert_close(attention(regions, others, MASK), found)
    torch.testing.assert_close(attention(regions[:, [3, 1, 0, 2]], words, MASK), found)


def test_gradients_are_right() -> None:
    regions, words = inputs()
    attention = build()
    assert torch.autograd.gradcheck(
        lambda left, right: attention(left, right, MASK), [regions.requires_grad_(), words.requires_grad_()]
    )


def test_every_weight_has_a_gradient() -> None:
    attention = build()
    attention(*inputs(), MASK).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in attention.parameters())
