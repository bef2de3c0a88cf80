"""RECLAIM's term against a slow reference, and what the objective around it keeps."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training.objectives.cases import DIM, INSTANCES, random_batch
from training.common.errors import RecipeError
from training.models.features import Features, ModalityFeatures
from training.objectives.base import ObjectiveContext
from training.objectives.infonce import InfoNCESettings
from training.objectives.reclaim import Reclaim, ReclaimSettings, ReclaimTerm, ReclaimTermSettings
from training.objectives.registry import parse_objective

CONTEXT = ObjectiveContext(dim=DIM, instances=INSTANCES)


def term(groups: tuple[int, ...] | None = None, **settings: Any) -> ReclaimTerm:
    torch.manual_seed(0)
    chosen = ReclaimTermSettings(**{"neighbours": 3, "critic_width": 8, **settings})
    return ReclaimTerm(5, 4, 10, chosen, groups).double()


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def slow_term(module: ReclaimTerm, u: Tensor, v: Tensor, items: list[int]) -> float:
    """-L_ANS with explicit sums and a plain logarithm of the sigmoid."""

    def g(first: Tensor, second: Tensor) -> float:
        return 1 / (1 + math.exp(-float(module.critic(first, second).detach())))

    def near(bank: Any, query: Tensor, item: int) -> list[Tensor]:
        others = [row for number, row in enumerate(bank.rows) if bank.groups[number] != bank.groups[item]]
        others.sort(key=lambda row: -float(query @ row / (query.norm() * row.norm())))
        return others[: module.settings.neighbours]

    total = 0.0
    for i, item in enumerate(items):
        near_u, near_v = near(module.first_bank, u[i], item), near(module.second_bank, v[i], item)
        total += math.log(g(u[i], v[i]))
        total += sum(math.log(1 - g(u[i], row)) for row in near_v) / len(near_v)
        total += sum(math.log(1 - g(row, v[i])) for row in near_u) / len(near_u)
    return -total / len(items)


@pytest.mark.parametrize("neighbours", [1, 3, 100])
@pytest.mark.parametrize("groups", [None, (0, 0, 0, 1, 1, 2, 2, 2, 3, 3)])
def test_equals_the_slow_reference(neighbours: int, groups: tuple[int, ...] | None) -> None:
    module, items = term(groups, neighbours=neighbours), [4, 0, 7]
    u, v = draw(3, 5), draw(3, 4, seed=1)
    loss, _ = module(u, v, torch.tensor(items))
    torch.testing.assert_close(loss.item(), slow_term(module, u, v, items), rtol=1e-10, atol=0)


@pytest.mark.parametrize("groups", [None, (0, 0, 0, 1, 1, 2, 2, 2, 3, 3)])
def test_a_draw_of_all_rows_is_every_other_row(groups: tuple[int, ...] | None) -> None:
    module, items = term(groups, negatives="random", random_share=1.0, neighbours=10), [4, 0, 7]
    u, v = draw(3, 5), draw(3, 4, seed=1)
    loss, _ = module(u, v, torch.tensor(items))
    # As many neighbours as there are rows are all of them too.
    torch.testing.assert_close(loss.item(), slow_term(module, u, v, items), rtol=1e-10, atol=0)


def test_a_draw_takes_its_share_anew_each_time() -> None:
    module, items = term(negatives="random", random_share=0.4), torch.tensor([4, 0, 7])
    first, second = (module.first_bank.drawn(draw(3, 5), items, 0.4) for _ in range(2))
    assert first.rows.shape == second.rows.shape == (1, 4, 5)
    assert not torch.equal(first.rows, second.rows)


@pytest.mark.parametrize("groups", [None, (0, 0, 0, 1, 1, 2, 2, 2, 3, 3)])
def test_negatives_of_the_batch_are_its_other_images(groups: tuple[int, ...] | None) -> None:
    module, items = term(groups, negatives="batch", neighbours=10), [4, 0, 7, 5]
    u, v = draw(4, 5), draw(4, 4, seed=1)
    loss, _ = module(u, v, torch.tensor(items))
    full = term(groups, neighbours=10)
    for bank, features in ((full.first_bank, u), (full.second_bank, v)):
        # A memory of nothing but the batch.
        bank.rows = features
        bank.groups = bank.groups[torch.tensor(items)]
    expected, _ = full(u, v, torch.arange(4))
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=0)


def test_without_spectral_norm_the_critic_is_a_plain_network() -> None:
    module = term(spectral_norm=False)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(10)
    u, v = draw(3, 5), draw(3, 4, seed=1)
    change = module.critic(u, v) - module.critic(u + 1e-3, v)
    assert float(change.detach().abs().max()) > 1e-3 * math.sqrt(5)


def test_better_critics_have_lower_losses() -> None:
    """The sign: matching pairs above and neighbours below, both must lower the loss."""
    module, items = term(), torch.arange(6)
    u, v = draw(6, 5), draw(6, 4, seed=1)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
    _, start = module(u, v, items)
    for _ in range(100):
        optimizer.zero_grad()
        loss, found = module(u, v, items)
        torch.autograd.backward(loss)
        optimizer.step()
    assert found["reclaim"] < start["reclaim"] - 0.1
    assert found["reclaim_matched"] > found["reclaim_unmatched"] + 0.1


def test_gradients_reach_features_and_critic_but_not_the_memory() -> None:
    module = term()
    u, v = draw(3, 5).requires_grad_(), draw(3, 4, seed=1).requires_grad_()
    items = torch.tensor([1, 2, 3])
    assert torch.autograd.gradcheck(lambda a, b: module(a, b, items)[0], (u, v))
    torch.autograd.backward(module(u, v, items)[0])
    assert all(parameter.grad is not None for parameter in module.parameters())
    assert not module.first_bank.rows.requires_grad


def test_memory_moves_after_a_training_step_and_only_then() -> None:
    module = term()
    u, v, items = draw(3, 5), draw(3, 4, seed=1), torch.tensor([1, 2, 3])
    before = module.first_bank.rows.clone(), module.second_bank.rows.clone()
    module(u, v, items)
    assert torch.equal(module.first_bank.rows, before[0])
    module.after_step()
    torch.testing.assert_close(module.first_bank.rows[items], 0.5 * (before[0][items] + u))
    torch.testing.assert_close(module.second_bank.rows[items], 0.5 * (before[1][items] + v))
    rest = [0, 4, 5, 6, 7, 8, 9]
    assert torch.equal(module.first_bank.rows[rest], before[0][rest])
    moved = module.first_bank.rows.clone()
    module.after_step()
    assert torch.equal(module.first_bank.rows, moved)
    module.eval()
    module(u, v, items)
    module.after_step()
    assert torch.equal(module.first_bank.rows, moved)


def test_both_banks_begin_differently() -> None:
    module = ReclaimTerm(4, 4, 10, ReclaimTermSettings())
    assert not torch.equal(module.first_bank.rows, module.second_bank.rows)


def test_items_may_be_unknown_outside_training_only() -> None:
    module = term()
    with pytest.raises(RecipeError, match="which training items"):
        module(draw(3, 5), draw(3, 4), None)
    loss, _ = module.eval()(draw(3, 5), draw(3, 4), None)
    assert loss.isfinite()


def test_extreme_features_give_finite_losses_and_gradients() -> None:
    module = term()
    for scale in (0.0, 1e-30, 1e8):
        u = (draw(3, 5) * scale).requires_grad_()
        loss, _ = module(u, draw(3, 4, seed=1) * scale, torch.tensor([1, 2, 3]))
        torch.autograd.backward(loss)
        assert loss.isfinite()
        assert u.grad is not None
        assert u.grad.isfinite().all()


def test_a_train_split_of_one_image_has_only_the_matched_part() -> None:
    module = term(groups=(0,) * 10)
    u, v, items = draw(2, 5), draw(2, 4, seed=1), torch.tensor([1, 2])
    loss, terms = module(u, v, items)
    expected = -torch.nn.functional.logsigmoid(module.critic(u, v)).mean()
    torch.testing.assert_close(loss, expected)
    assert terms["reclaim_unmatched"] == 0


def test_works_in_half_precision_under_autocast() -> None:
    module = term().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, _ = module(draw(3, 5).bfloat16(), draw(3, 4).bfloat16(), torch.tensor([1, 2, 3]))
    assert loss.dtype == torch.float32


def test_objective_adds_the_weighted_term_to_its_base() -> None:
    batch = random_batch(6)
    for weight in (0.0, 0.1, 2.0):
        torch.manual_seed(0)
        objective = ReclaimSettings(weight=weight, neighbours=4).build(CONTEXT).double()
        output = objective(batch)
        base = InfoNCESettings().build(CONTEXT).double()(batch).total
        torch.testing.assert_close(output.total, base + weight * output.terms["reclaim"])
        assert {"temperature", "reclaim_matched", "reclaim_unmatched"} <= output.terms.keys()


def test_needs_items_and_what_its_base_needs() -> None:
    assert ReclaimSettings().build(CONTEXT).requires == {"items", "one_vector"}
    local = parse_objective({"name": "reclaim", "base": {"name": "lovt"}}).build(CONTEXT)
    assert local.requires == {"items", "local", "one_vector"}


def test_updates_reach_a_base_with_a_memory() -> None:
    settings = parse_objective({"name": "reclaim", "base": {"name": "reclaim", "bank_seed": 5}})
    objective = settings.build(CONTEXT).double()
    before = {name: value.clone() for name, value in objective.named_buffers() if name.endswith("rows")}
    objective(random_batch(6))
    objective.after_step()
    after = dict(objective.named_buffers())
    assert len(before) == 4
    assert all(not torch.equal(after[name], value) for name, value in before.items())


def test_several_pairs_have_a_term_each_and_share_them_with_the_base() -> None:
    settings = ReclaimSettings(pairs=(("image", "text"), ("text", "image")), neighbours=4)
    objective = settings.build(CONTEXT).double()
    output = objective(random_batch(6))
    assert {"image-text/reclaim", "text-image/reclaim", "text-image/temperature"} <= output.terms.keys()
    assert isinstance(objective, Reclaim)
    assert len(objective.terms) == 2


def test_pairs_of_the_base_alone_are_refused() -> None:
    with pytest.raises(ValueError, match=r"objective\.pairs"):
        ReclaimSettings(base=InfoNCESettings(pairs=(("image", "audio"),)))


def test_blades_are_refused() -> None:
    batch = random_batch(6)
    blades = ModalityFeatures(draw(6, 2, DIM))
    objective = ReclaimSettings().build(CONTEXT).double()
    with pytest.raises(RecipeError, match=r"model\.blades"):
        objective(Features({"image": blades, "text": blades}, items=batch.items))


def test_resumed_training_is_bit_equal() -> None:
    def steps(objective: Any, values: Tensor, start: int, end: int) -> None:
        optimizer = torch.optim.SGD(objective.parameters(), lr=0.1)
        for step in range(start, end):
            batch = random_batch(6, seed=step)
            optimizer.zero_grad()
            torch.autograd.backward(objective(batch).total)
            optimizer.step()
            objective.after_step()

    def fresh(seed: int) -> Any:
        torch.manual_seed(seed)
        return ReclaimSettings(neighbours=4, critic_width=8).build(CONTEXT).double()

    straight, first, second = fresh(0), fresh(0), fresh(1)
    steps(straight, draw(1), 0, 4)
    steps(first, draw(1), 0, 2)
    second.load_state_dict(first.state_dict())
    steps(second, draw(1), 2, 4)
    for name, value in straight.state_dict().items():
        assert torch.equal(second.state_dict()[name], value), name
