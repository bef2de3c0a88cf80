import pytest
import torch

from training.errors import RecipeError
from training.models.pooling import PoolingName, build_pooling

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
    pooled, weights = build_pooling(name, 2)(FEATURES, MASK)
    torch.testing.assert_close(pooled, torch.tensor(expected))
    assert weights is None


@pytest.mark.parametrize("name", POOLINGS)
def test_what_stands_at_padding_does_not_matter(name: PoolingName) -> None:
    torch.manual_seed(0)
    pooling = build_pooling(name, 16).eval()
    features, mask = torch.randn(3, 6, 16), torch.arange(6) < torch.tensor([[6], [4], [1]])
    changed = features.masked_fill(~mask[..., None], 1e4)
    torch.testing.assert_close(pooling(changed, mask)[0], pooling(features, mask)[0])
    shorter = pooling(features[2:, :1], mask[2:, :1])[0]
    torch.testing.assert_close(pooling(features, mask)[0][2:], shorter)


def test_attention_equals_a_slow_reference() -> None:
    torch.manual_seed(0)
    pooling = build_pooling("attention", 16).eval()
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
        build_pooling("attention", 12)
