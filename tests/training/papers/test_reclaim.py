"""RECLAIM's critic, memory and term compared with slow references."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.training.objectives.cases import DIM, INSTANCES, random_batch
from training.common.errors import RecipeError
from training.models.features import Features, ModalityFeatures
from training.objectives import InfoNCE, LoVT
from training.objectives.base import ObjectiveContext, parse_objective
from training.papers import reclaim
from training.papers.reclaim import (
    Critic,
    MemoryBank,
    Reclaim,
    ReclaimTerm,
    ReclaimTermSettings,
    SpectralLinear,
    largest_singular_value,
)

ITEMS = 12
GROUPS = (0, 0, 0, 1, 1, 2, 2, 2, 3, 3)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def trained_critic(width: int, *, steps: int, spectral_norm: bool = True) -> Critic:
    model = Critic(7, 5, width=width, spectral_norm=spectral_norm).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    first, second = draw(16, 7), draw(16, 5, seed=1)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.autograd.backward(-model(first, second).mean() + model(first.flip(0), second).mean())
        optimizer.step()
    return model


@pytest.mark.parametrize(("width", "steps"), [(6, 0), (64, 0), (6, 30)])
def test_every_layer_of_the_critic_has_norm_one(width: int, steps: int) -> None:
    layers = [layer for layer in trained_critic(width, steps=steps).modules() if isinstance(layer, nn.Linear)]
    assert len(layers) == 5
    for layer in layers:
        assert isinstance(layer, SpectralLinear)
        norm = float(torch.linalg.matrix_norm(layer.normalised_weight().detach(), ord=2))
        assert norm == pytest.approx(1, abs=0.001)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])
def test_critic_is_one_lipschitz_in_both_inputs_together(scale: float) -> None:
    """The plain network of the ablation is not."""
    u, change_u = draw(400, 7, seed=2), draw(400, 7, seed=3) * scale
    v, change_v = draw(400, 5, seed=4), draw(400, 5, seed=5) * scale
    distance = (change_u.square().sum(dim=1) + change_v.square().sum(dim=1)).sqrt()
    for spectral_norm in (True, False):
        model = trained_critic(6, steps=30, spectral_norm=spectral_norm)
        change = (model(u + change_u, v + change_v) - model(u, v)).abs()
        assert bool((change <= distance * (1 + 1e-9)).all()) == spectral_norm
        assert (change > 0).any()


def slow_scores(model: Critic, first: Tensor, second: Tensor) -> Tensor:
    """Layer after layer on pairs that are written out."""
    left, right = model.first(first), model.second(second)
    shape = (left[..., :1] + right[..., :1]).shape[:-1]
    joined = torch.cat([left.expand(*shape, -1), right.expand(*shape, -1)], dim=-1)
    for layer in model.hidden:
        joined = layer(joined).clamp(min=0)
    scores: Tensor = model.score(joined).squeeze(-1)
    return scores


@pytest.mark.parametrize("at_once", [1, 10, 2**15])
@pytest.mark.parametrize("shapes", [((6,), (6,)), ((3, 1), (3, 8)), ((3, 1), (1, 8)), ((1, 8), (3, 1))])
@pytest.mark.parametrize("spectral_norm", [True, False])
def test_scores_and_gradients_are_those_of_pairs_written_out(
    shapes: tuple[tuple[int, ...], ...], at_once: int, spectral_norm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reclaim, "PAIRS_AT_ONCE", at_once)
    model = Critic(7, 5, width=6, spectral_norm=spectral_norm).double()
    first = draw(*shapes[0], 7).requires_grad_()
    second = draw(*shapes[1], 5, seed=1).requires_grad_()
    scores, expected = model(first, second), slow_scores(model, first, second)
    torch.testing.assert_close(scores, expected)
    weight, sources = draw(*expected.shape, seed=2), [first, second, *model.parameters()]
    ours, theirs = (torch.autograd.grad((values * weight).sum(), sources) for values in (scores, expected))
    for gradient, slow_gradient in zip(ours, theirs, strict=True):
        torch.testing.assert_close(gradient, slow_gradient)
    with torch.no_grad():
        torch.testing.assert_close(model(first, second), expected)


def test_many_pairs_keep_little_for_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reclaim, "PAIRS_AT_ONCE", 64)
    kept: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    model, items, rows = Critic(7, 5, width=32).double(), 16, 500
    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        model(draw(items, 1, 7).requires_grad_(), draw(1, rows, 5).requires_grad_())
    # A fourth of what one layer of 32 units takes for all pairs.
    assert sum(kept.values()) < 32 * 8 * items * rows / 4


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4), (1, 6)])
def test_largest_singular_value_and_its_gradient(shape: tuple[int, int]) -> None:
    matrix = draw(*shape).requires_grad_()
    torch.testing.assert_close(largest_singular_value(matrix), torch.linalg.svdvals(matrix.detach())[0])
    assert torch.autograd.gradcheck(largest_singular_value, (matrix,))


def test_weights_of_zeros_give_finite_numbers_and_others_that_are_none_give_none() -> None:
    layer = SpectralLinear(3, 2)
    with torch.no_grad():
        layer.weight.zero_()
    scores = layer(torch.randn(4, 3))
    torch.autograd.backward(scores.sum())
    assert scores.isfinite().all()
    for value in (math.nan, math.inf):
        with torch.no_grad():
            layer.weight[0, 0] = value
        assert layer(torch.randn(4, 3)).isnan().all()


def slow_nearest(bank: MemoryBank, query: Tensor, item: int | None, count: int) -> list[int]:
    """Rows by falling cosine, without those of the item's image."""
    cosines = {}
    for row, values in enumerate(bank.rows):
        if item is None or bank.groups[row] != bank.groups[item]:
            cosines[row] = float(query @ values / (query.norm() * values.norm()))
    return sorted(cosines, key=lambda row: -cosines[row])[:count]


@settings(max_examples=40, deadline=None)
@given(
    groups=st.none() | st.lists(st.integers(0, 4), min_size=ITEMS, max_size=ITEMS),
    items=st.lists(st.integers(0, ITEMS - 1), min_size=1, max_size=5),
    known=st.booleans(),
    count=st.integers(1, 20),
    seed=st.integers(0, 99),
)
def test_nearest_rows_are_those_of_a_slow_search(
    groups: list[int] | None, items: list[int], known: bool, count: int, seed: int
) -> None:
    bank = MemoryBank(ITEMS, 4, seed=seed, groups=groups).double()
    queries = draw(len(items), 4, seed=seed + 1)
    near = bank.nearest(queries, torch.tensor(items) if known else None, count)
    for i, item in enumerate(items):
        expected = slow_nearest(bank, queries[i], item if known else None, count)
        assert torch.equal(near.rows[i][near.valid[i]], bank.rows[expected])


def test_a_draw_takes_its_share_anew_each_time_and_leaves_the_own_image_out() -> None:
    bank, items = MemoryBank(10, 5, groups=GROUPS).double(), torch.tensor([4, 0])
    first, second = (bank.drawn(draw(2, 5), items, 0.4) for _ in range(2))
    assert first.rows.shape == second.rows.shape == (1, 4, 5)
    assert not torch.equal(first.rows, second.rows)
    assert bank.drawn(draw(2, 5), None, 0.01).valid.tolist() == [[True], [True]]
    assert bank.drawn(draw(2, 5), items, 1).valid.sum(dim=1).tolist() == [8, 7]


def test_rows_move_by_momentum_as_in_a_loop() -> None:
    """An item that is there twice counts with its mean, in any order; half precision is kept in full."""
    bank = MemoryBank(ITEMS, 4, momentum=0.3).double()
    expected = bank.rows.clone()
    for step, rows in enumerate(([3, 1, 7], [1, 0, 1], [5, 5, 11])):
        new = draw(3, 4, seed=step)
        bank.update(torch.tensor(rows), new.requires_grad_())
        for item in set(rows):
            mean = new.detach()[[row == item for row in rows]].mean(dim=0)
            expected[item] = 0.7 * expected[item] + 0.3 * mean
    torch.testing.assert_close(bank.rows, expected, rtol=0, atol=1e-15)
    assert not bank.rows.requires_grad
    single = MemoryBank(4, 1)
    moved = 0.5 * single.rows[2] + 0.5 * (1 + 2**-9) / 2
    single.update(torch.tensor([2, 2]), torch.tensor([[1.0], [2**-9]]).bfloat16())
    assert torch.equal(single.rows[2], moved)


def test_memory_begins_with_normal_numbers_of_its_seed_and_is_in_the_state() -> None:
    state = torch.get_rng_state()
    rows = MemoryBank(4000, 4, seed=3).rows
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(rows, MemoryBank(4000, 4, seed=3).rows)
    assert not torch.equal(rows, MemoryBank(4000, 4, seed=4).rows)
    assert abs(float(rows.mean())) < 0.03
    assert abs(float(rows.std()) - 1) < 0.03
    assert MemoryBank(4, 3, groups=(0, 0, 1, 1)).state_dict().keys() == {"rows"}
    term = ReclaimTerm(4, 4, 10, ReclaimTermSettings())
    assert not torch.equal(term.first_bank.rows, term.second_bank.rows)


def build_term(groups: tuple[int, ...] | None = None, **options: Any) -> ReclaimTerm:
    """A term on features of 5 and 4 numbers."""
    chosen = ReclaimTermSettings(**{"neighbours": 3, "critic_width": 8, **options})
    return ReclaimTerm(5, 4, 10, chosen, groups).double()


@torch.no_grad()
def slow_term(module: ReclaimTerm, u: Tensor, v: Tensor, items: list[int], count: int) -> dict[str, float]:
    """The term and both probabilities, with explicit sums and a plain logarithm of the sigmoid."""

    def g(first: Tensor, second: Tensor) -> float:
        return 1 / (1 + math.exp(-float(slow_scores(module.critic, first, second))))

    def negatives(bank: MemoryBank, features: Tensor, i: int) -> list[Tensor]:
        if module.settings.negatives == "batch":
            own = bank.groups[items[i]]
            return [row for row, item in zip(features, items, strict=True) if bank.groups[item] != own]
        return [bank.rows[row] for row in slow_nearest(bank, features[i], items[i], count)]

    loss, matched, unmatched, size = 0.0, 0.0, 0.0, len(items)
    for i in range(size):
        others = [g(u[i], row) for row in negatives(module.second_bank, v, i)]
        back = [g(row, v[i]) for row in negatives(module.first_bank, u, i)]
        matched += g(u[i], v[i]) / size
        loss -= math.log(g(u[i], v[i])) / size
        for scores in (others, back):
            loss -= sum(math.log(1 - score) for score in scores) / len(scores) / size
            unmatched += sum(scores) / len(scores) / size / 2
    return {"reclaim": loss, "reclaim_matched": matched, "reclaim_unmatched": unmatched}


@pytest.mark.parametrize(
    "options",
    [
        {"neighbours": 1},
        {"neighbours": 3},
        {"neighbours": 100},
        {"negatives": "random", "random_share": 1.0},
        {"negatives": "batch"},
    ],
)
@pytest.mark.parametrize("groups", [None, GROUPS])
def test_term_equals_the_slow_reference(options: dict[str, Any], groups: tuple[int, ...] | None) -> None:
    module, items = build_term(groups, **options), [4, 0, 7, 5]
    u, v = draw(4, 5), draw(4, 4, seed=1)
    expected = slow_term(module, u, v, items, options.get("neighbours", 10))
    loss, terms = module(u, v, torch.tensor(items))
    assert {name: float(term) for name, term in terms.items()} == pytest.approx(expected, rel=1e-10)
    assert float(loss.detach()) == pytest.approx(expected["reclaim"], rel=1e-10)


def test_a_train_split_of_one_image_has_only_the_matched_part() -> None:
    module, u, v = build_term(groups=(0,) * 10), draw(2, 5), draw(2, 4, seed=1)
    loss, terms = module(u, v, torch.tensor([1, 2]))
    torch.testing.assert_close(loss, -torch.nn.functional.logsigmoid(module.critic(u, v)).mean())
    assert terms["reclaim_unmatched"] == 0


def test_large_features_give_finite_losses_and_gradients() -> None:
    u = (draw(3, 5) * 1e8).requires_grad_()
    loss, _ = build_term()(u, draw(3, 4, seed=1) * 1e8, torch.tensor([1, 2, 3]))
    torch.autograd.backward(loss)
    assert loss.isfinite()
    assert u.grad is not None
    assert u.grad.isfinite().all()


def test_memory_moves_once_after_a_training_step() -> None:
    module, items = build_term(), torch.tensor([1, 2, 3])
    rows, features = [module.first_bank.rows, module.second_bank.rows], (draw(3, 5), draw(3, 4, seed=1))
    expected = [row.clone() for row in rows]
    module(*features, items)
    torch.testing.assert_close(rows, expected)
    for row, new in zip(expected, features, strict=True):
        row[items] = 0.5 * (row[items] + new)
    for _ in range(2):
        module.after_step()
        torch.testing.assert_close(rows, expected)
    module.eval()(*features, items)
    module.after_step()
    torch.testing.assert_close(rows, expected)


def test_items_may_be_unknown_outside_training_only() -> None:
    for negatives in ("nearest", "random", "batch"):
        module = build_term(negatives=negatives)
        with pytest.raises(RecipeError, match="which training items"):
            module(draw(3, 5), draw(3, 4), None)
        assert module.eval()(draw(3, 5), draw(3, 4), None)[0].isfinite()


def build(**options: Any) -> Reclaim:
    options = {"neighbours": 4, "critic_width": 8, **options}
    return Reclaim(embedding_dim=DIM, instances=INSTANCES, **options).double()


def test_objective_adds_the_weighted_term_to_its_base() -> None:
    batch = random_batch()
    for options, weight in (({}, 0.1), ({"weight": 2.0}, 2.0)):
        output = build(**options).compute(batch)
        torch.testing.assert_close(output.total, InfoNCE().double()(batch) + weight * output.terms["reclaim"])
        assert {"temperature", "reclaim_matched", "reclaim_unmatched"} <= output.terms.keys()


def test_several_pairs_have_a_term_each_and_share_them_with_the_base() -> None:
    pairs = [["image", "text"], ["text", "image"]]
    context = ObjectiveContext(dim=DIM, embedding_dim=DIM, instances=INSTANCES)
    objective = parse_objective({"name": "reclaim", "neighbours": 4, "pairs": pairs}).build(context).double()
    assert isinstance(objective, Reclaim)
    assert len(objective.terms) == 2
    terms = objective.compute(random_batch()).terms
    assert {"image-text/reclaim", "text-image/reclaim", "text-image/temperature"} <= terms.keys()


def test_needs_and_updates_of_the_base_are_its_own() -> None:
    assert build().requires == {"one_vector"}
    assert build(base=LoVT(dim=DIM)).requires == {"local", "one_vector"}
    objective = build(base=build(bank_seed=5))
    before = {name: value.clone() for name, value in objective.named_buffers() if name.endswith("rows")}
    assert len(before) == 4
    objective(random_batch())
    objective.after_step()
    after = dict(objective.named_buffers())
    assert all(not torch.equal(after[name], value) for name, value in before.items())


def test_what_does_not_fit_is_refused() -> None:
    blades = ModalityFeatures(draw(6, 2, DIM))
    with pytest.raises(RecipeError, match=r"reclaim reads embeddings of one vector each: set model\.blades"):
        build()(Features({"image": blades, "text": blades}, items=random_batch().items))
    with pytest.raises(RecipeError, match="reclaim needs training items"):
        parse_objective("reclaim").build(ObjectiveContext(dim=DIM, embedding_dim=DIM))
    with pytest.raises(RecipeError, match="keeps a row for each training item, and there are none"):
        MemoryBank(0, 3)
    with pytest.raises(RecipeError, match="2 groups for 3 training items"):
        MemoryBank(3, 3, groups=(0, 1))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"weight": -1}, "weight\n  Input should be greater than or equal to 0"),
        ({"neighbours": 0}, "neighbours\n  Input should be greater than 0"),
        ({"negatives": "far"}, "negatives\n  Input should be 'nearest', 'random' or 'batch'"),
        ({"momentum": 0}, "momentum\n  Input should be greater than 0"),
        ({"temperature": 1}, "temperature\n  Extra inputs are not permitted"),
        (
            {"base": {"name": "infonce", "pairs": [["image", "audio"]]}},
            r"a base takes the pairs of the whole: set objective\.pairs",
        ),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_objective({"name": "reclaim", **wrong})
