import pytest
import torch

from training.common.errors import RecipeError
from training.models.pooling import Pooling, PoolingName, pool_sentences

POOLINGS: tuple[PoolingName, ...] = ("cls", "eos", "mean", "max", "attention")
FEATURES = torch.tensor([[[1.0, -4.0], [3.0, -2.0], [9.0, 9.0]], [[5.0, 0.0], [-1.0, 2.0], [0.0, 1.0]]])
MASK = torch.tensor([[True, True, False], [True, True, True]])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cls", [[1.0, -4.0], [5.0, 0.0]]),
        ("eos", [[3.0, -2.0], [0.0, 1.0]]),
        ("mean", [[2.0, -3.0], [4 / 3, 1.0]]),
        ("max", [[3.0, -2.0], [5.0, 2.0]]),
    ],
)
def test_pools_real_entries(name: PoolingName, expected: list[list[float]]) -> None:
    pooled, weights = Pooling(name, 2)(FEATURES, MASK)
    torch.testing.assert_close(pooled, torch.tensor(expected))
    assert weights is None


@pytest.mark.parametrize("name", POOLINGS)
def test_values_at_padding_do_not_matter(name: PoolingName) -> None:
    torch.manual_seed(0)
    pooling = Pooling(name, 16).eval()
    features, mask = torch.randn(3, 6, 16), torch.arange(6) < torch.tensor([[6], [4], [1]])
    changed = features.masked_fill(~mask[..., None], 1e4)
    torch.testing.assert_close(pooling(changed, mask)[0], pooling(features, mask)[0])
    shorter = pooling(features[2:, :1], mask[2:, :1])[0]
    torch.testing.assert_close(pooling(features, mask)[0][2:], shorter)


def test_attention_equals_a_slow_reference() -> None:
    torch.manual_seed(0)
    pooling = Pooling("attention", 16).eval()
    state = pooling.state_dict()
    features, mask = torch.randn(2, 5, 16), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    pooled, weights = pooling(features, mask)
    for row in range(2):
        real = features[row][mask[row]]
        weight, bias = state["attention.in_proj_weight"], state["attention.in_proj_bias"]
        query = weight[:16] @ real.mean(0) + bias[:16]
        key, value = real @ weight[16:32].T + bias[16:32], real @ weight[32:].T + bias[32:]
        parts, expected_weights = [], torch.zeros(len(real))
        for head in range(8):
            at = slice(2 * head, 2 * head + 2)
            share = torch.softmax(key[:, at] @ query[at] / 2**0.5, dim=0)
            expected_weights += share / 8
            parts.append(share @ value[:, at])
        expected = state["attention.out_proj.weight"] @ torch.cat(parts) + state["attention.out_proj.bias"]
        torch.testing.assert_close(pooled[row], expected)
        torch.testing.assert_close(weights[row][mask[row]], expected_weights)
        assert (weights[row][~mask[row]] == 0).all()


def test_attention_needs_a_width_for_eight_heads() -> None:
    with pytest.raises(RecipeError, match="8 divides"):
        Pooling("attention", 12)


SENTENCES = torch.tensor([[-1, 0, 0, 1, 2, -1, -1], [-1, 0, -1, -1, -1, -1, -1], [-1, 2, 1, 0, 1, 0, -1]])


def slow_sentences(tokens: torch.Tensor, ids: torch.Tensor, count: int) -> list[list[torch.Tensor | None]]:
    """The sentences of every text one after another; None where it has none of that number."""
    actual: list[list[torch.Tensor | None]] = []
    for row, numbers in zip(tokens, ids, strict=True):
        groups = [[t for t, n in zip(row, numbers.tolist(), strict=True) if n == k] for k in range(count)]
        actual.append([torch.stack(group).amax(dim=0) if group else None for group in groups])
    return actual


@pytest.mark.parametrize("count", [0, 3, 5])
def test_a_sentence_is_the_largest_of_its_tokens(count: int) -> None:
    torch.manual_seed(0)
    tokens = torch.randn(3, 7, 4) - 3
    sentences, mask = pool_sentences(tokens, SENTENCES, count)
    expected = slow_sentences(tokens, SENTENCES, count or 3)
    assert sentences.shape == (3, count or 3, 4)
    assert mask.tolist() == [[sentence is not None for sentence in row] for row in expected]
    for row, column in mask.nonzero().tolist():
        assert torch.equal(sentences[row, column], expected[row][column])
    assert (sentences[~mask] == 0).all()


def test_tokens_without_a_sentence_do_not_matter() -> None:
    torch.manual_seed(0)
    tokens = torch.randn(3, 7, 4)
    changed = tokens.masked_fill((SENTENCES < 0)[..., None], 1e4)
    assert torch.equal(pool_sentences(changed, SENTENCES)[0], pool_sentences(tokens, SENTENCES)[0])


def test_gradients_of_a_sentence_reach_its_largest_tokens() -> None:
    torch.manual_seed(0)
    tokens = torch.randn(3, 7, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: pool_sentences(x, SENTENCES)[0], (tokens,))
    torch.autograd.backward(pool_sentences(tokens, SENTENCES)[0].sum())
    assert tokens.grad is not None
    assert tokens.grad.sum() == 7 * 2
    assert (tokens.grad[SENTENCES < 0] == 0).all()
