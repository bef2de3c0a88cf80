import pytest
import torch
from torch import Tensor

from tests.training.objectives.local_reference import DIM, random_entries, slow_attention
from training.objectives.cross_attention import CrossAttention
from training.objectives.local_entries import LocalEntries

LONG = random_entries((4, 2, 3), seed=1)
SHORT = random_entries((2, 3, 1), seed=2)


def shaken_attention(width: int = DIM) -> CrossAttention:
    """One whose weights and biases are all random."""
    torch.manual_seed(0)
    attention = CrossAttention(width).double()
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return attention


def assert_equals_reference(found: Tensor, queries: LocalEntries, expected: list[list[Tensor]]) -> None:
    for sample, vectors in enumerate(expected):
        for ours, theirs in zip(found[sample][queries.mask[sample]], vectors, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("first", "second"), [(LONG, SHORT), (SHORT, LONG), (LONG, LONG)])
def test_equals_the_slow_reference(first: LocalEntries, second: LocalEntries) -> None:
    attention = shaken_attention()
    with torch.no_grad():
        of_second, of_first = (found.vectors() for found in attention(first, second))
        assert_equals_reference(of_second, first, slow_attention(attention, first, second))
        assert_equals_reference(of_first, second, slow_attention(attention, second, first))


def test_modalities_may_change_places() -> None:
    attention = shaken_attention()
    of_short, of_long = (found.vectors() for found in attention(LONG, SHORT))
    long_again, short_again = (found.vectors() for found in attention(SHORT, LONG))
    torch.testing.assert_close(short_again, of_short, rtol=0, atol=1e-12)
    torch.testing.assert_close(long_again, of_long, rtol=0, atol=1e-12)


def test_gradient_is_right() -> None:
    attention = shaken_attention(3)
    first, second = random_entries((3, 2), seed=1, dim=3), random_entries((1, 2), seed=2, dim=3)

    def attend(a: Tensor, b: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        of_second, of_first = attention(
            LocalEntries(a, first.mask, first.weights), LocalEntries(b, second.mask, second.weights)
        )
        return of_second.vectors()[first.mask], of_first.vectors()[second.mask]

    inputs = (first.values.clone().requires_grad_(), second.values.clone().requires_grad_())
    assert torch.autograd.gradcheck(attend, (*inputs, *attention.parameters()))


def test_starts_with_projections_that_keep_the_variance() -> None:
    torch.manual_seed(0)
    attention = CrossAttention(256)
    values = torch.randn(64, 256)
    for layer in (attention.key, attention.value, attention.output):
        assert 0.9 < float(layer(values).detach().std()) < 1.1
        assert layer.bias is not None
        assert not layer.bias.any()
