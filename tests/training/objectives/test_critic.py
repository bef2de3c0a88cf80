"""The critic's layers have largest singular value 1, so the critic stretches no joint distance."""

import pytest
import torch
from torch import Tensor

from training.objectives import critic as critic_module
from training.objectives.critic import Critic, SpectralLinear, largest_singular_value

LIMIT = 1.001


def critic(seed: int = 0, width: int = 6) -> Critic:
    torch.manual_seed(seed)
    return Critic(7, 5, width=width)


def largest_of_each(module: torch.nn.Module) -> list[float]:
    layers = [layer for layer in module.modules() if isinstance(layer, SpectralLinear)]
    return [float(torch.linalg.matrix_norm(layer.normalised_weight().detach(), ord=2)) for layer in layers]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def trained(model: Critic, steps: int = 30) -> Critic:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    first, second = draw(16, 7), draw(16, 5, seed=1)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.autograd.backward(-model(first, second).mean() + model(first.flip(0), second).mean())
        optimizer.step()
    return model


def test_every_layer_has_norm_one_from_the_start_and_after_training() -> None:
    for model in (critic(), critic(width=64), trained(critic())):
        norms = largest_of_each(model)
        assert len(norms) == 5
        assert max(norms) <= LIMIT
        assert min(norms) >= 1 / LIMIT


def test_every_layer_of_the_critic_is_spectral() -> None:
    linear = [layer for layer in critic().modules() if isinstance(layer, torch.nn.Linear)]
    assert all(isinstance(layer, SpectralLinear) for layer in linear)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])
def test_is_one_lipschitz_in_both_inputs_together(scale: float) -> None:
    model = trained(critic()).double()
    u, other_u = draw(400, 7, seed=2).double(), draw(400, 7, seed=3).double() * scale
    v, other_v = draw(400, 5, seed=4).double(), draw(400, 5, seed=5).double() * scale
    change = (model(u + other_u, v + other_v) - model(u, v)).abs()
    distance = (other_u.square().sum(dim=1) + other_v.square().sum(dim=1)).sqrt()
    assert (change <= distance * (1 + 1e-9)).all()
    assert (change > 0).any()


def test_gradient_never_exceeds_one_and_comes_near_it_when_trained() -> None:
    model = trained(critic(), steps=200)
    joint = torch.cat([draw(200, 7, seed=6), draw(200, 5, seed=7)], dim=1).requires_grad_()
    torch.autograd.backward(model(joint[:, :7], joint[:, 7:]).sum())
    assert joint.grad is not None
    lengths = joint.grad.norm(dim=1)
    assert lengths.max() <= LIMIT
    assert lengths.max() > 0.3


def test_weights_of_any_size_give_the_same_critic() -> None:
    model, first, second = critic().double(), draw(4, 7).double(), draw(4, 5).double()
    before = model(first, second)
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, SpectralLinear):
                layer.weight.mul_(37)
    torch.testing.assert_close(model(first, second), before)


def test_saved_and_loaded_it_is_bit_equal() -> None:
    model = trained(critic())
    other = critic(seed=9)
    other.load_state_dict(model.state_dict())
    first, second = draw(8, 7), draw(8, 5)
    assert torch.equal(other(first, second), model(first, second))
    assert max(largest_of_each(other)) <= LIMIT


def test_one_stands_against_many_on_either_side() -> None:
    model, first, second = critic().double(), draw(3, 4, 7).double(), draw(3, 4, 5).double()
    one_first = model(first[:, :1], second)
    one_second = model(first, second[:, :1])
    for i in range(3):
        for k in range(4):
            torch.testing.assert_close(one_first[i, k], model(first[i, 0], second[i, k]))
            torch.testing.assert_close(one_second[i, k], model(first[i, k], second[i, 0]))


def slow_scores(model: Critic, first: Tensor, second: Tensor) -> Tensor:
    """Layer after layer on pairs that are written out."""
    left, right = model.first(first), model.second(second)
    shape = (left[..., :1] + right[..., :1]).shape[:-1]
    joined = torch.cat([left.expand(*shape, -1), right.expand(*shape, -1)], dim=-1)
    for layer in model.hidden:
        joined = layer(joined).clamp(min=0)
    scores: Tensor = model.score(joined).squeeze(-1)
    return scores


@pytest.mark.parametrize("at_once", [1, 10, 16, 2**15])
@pytest.mark.parametrize("shapes", [((6,), (6,)), ((3, 1), (3, 8)), ((3, 1), (1, 8)), ((1, 8), (3, 1))])
@pytest.mark.parametrize("spectral_norm", [True, False])
def test_scores_and_gradients_are_those_of_pairs_written_out(
    shapes: tuple[tuple[int, ...], ...],
    at_once: int,
    spectral_norm: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(critic_module, "PAIRS_AT_ONCE", at_once)
    model = Critic(7, 5, width=6, spectral_norm=spectral_norm).double()
    first = draw(*shapes[0], 7).double().requires_grad_()
    second = draw(*shapes[1], 5, seed=1).double().requires_grad_()
    scores, expected = model(first, second), slow_scores(model, first, second)
    torch.testing.assert_close(scores, expected)
    weight = draw(*expected.shape, seed=2).double()
    sources = [first, second, *model.parameters()]
    ours, theirs = (torch.autograd.grad((values * weight).sum(), sources) for values in (scores, expected))
    for gradient, slow_gradient in zip(ours, theirs, strict=True):
        torch.testing.assert_close(gradient, slow_gradient)
    with torch.no_grad():
        torch.testing.assert_close(model(first, second), expected)


def test_many_pairs_keep_little_for_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(critic_module, "PAIRS_AT_ONCE", 64)
    kept: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    model, items, rows = critic(width=32), 16, 500
    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        model(draw(items, 1, 7).requires_grad_(), draw(1, rows, 5).requires_grad_())
    # A fourth of what one layer of 32 units takes for all pairs.
    assert sum(kept.values()) < 32 * 4 * items * rows / 4


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4), (1, 6)])
def test_largest_singular_value_and_its_gradient(shape: tuple[int, int]) -> None:
    matrix = draw(*shape).double().requires_grad_()
    torch.testing.assert_close(largest_singular_value(matrix), torch.linalg.svdvals(matrix.detach())[0])
    assert torch.autograd.gradcheck(largest_singular_value, (matrix,))


def test_weight_of_zeros_gives_no_nan() -> None:
    layer = SpectralLinear(3, 2)
    with torch.no_grad():
        layer.weight.zero_()
    torch.autograd.backward(layer(draw(4, 3)).sum())
    assert layer.weight.grad is not None
    assert layer(draw(4, 3)).isfinite().all()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weight_that_is_not_finite_gives_no_number_rather_than_a_failed_solver(value: float) -> None:
    layer = SpectralLinear(3, 2)
    with torch.no_grad():
        layer.weight[0, 0] = value
    assert layer(draw(4, 3)).isnan().all()
