import copy
import math

import pytest
import torch
from pydantic import ValidationError
from torch.nn import functional

from training.models.config import HeadConfig
from training.models.heads.projection import ConceptHead, build_head, project_entries
from training.models.tower import Projection


def test_linear_head_is_one_affine_map() -> None:
    head = build_head(HeadConfig(), 6, 4)
    a, b = torch.randn(2, 3, 6)
    middle = head((a + b) / 2)
    torch.testing.assert_close(middle, (head(a) + head(b)) / 2)
    assert middle.shape == (3, 4)


def test_two_layer_head_has_a_relu_between() -> None:
    head = build_head(HeadConfig(kind="mlp", hidden=5), 6, 4)
    first_weight, first_bias, second_weight, second_bias = head.parameters()
    assert first_weight.shape == (5, 6)
    x = torch.randn(3, 6)
    expected = functional.relu(x @ first_weight.T + first_bias) @ second_weight.T + second_bias
    torch.testing.assert_close(head(x), expected)


def test_hidden_width_is_the_outputs_unless_given() -> None:
    assert next(build_head(HeadConfig(kind="mlp"), 6, 4).parameters()).shape == (4, 6)


def test_dropout_only_while_training() -> None:
    for kind in ("linear", "mlp"):
        head = build_head(HeadConfig.model_validate({"kind": kind, "dropout": 0.5}), 64, 4)
        x = torch.randn(3, 64)
        assert not torch.equal(head.train()(x), head(x))
        assert torch.equal(head.eval()(x), head(x))


def test_linear_head_starts_from_a_pretrained_projection_of_its_shape() -> None:
    bias = torch.randn(4)
    projection = Projection(torch.randn(4, 6), bias)
    x = torch.randn(3, 6)
    expected = x @ projection.weight.T + bias
    torch.testing.assert_close(build_head(HeadConfig(), 6, 4, projection)(x), expected)
    without_bias = build_head(HeadConfig(), 6, 4, Projection(projection.weight))
    torch.testing.assert_close(without_bias(x), x @ projection.weight.T)
    assert build_head(HeadConfig(), 6, 5, projection)(x).shape == (3, 5)


def test_batch_norm_stands_before_the_relu() -> None:
    torch.manual_seed(0)
    head = build_head(HeadConfig(kind="mlp", hidden=5, norm=True), 6, 4)
    first_weight, first_bias, scale, shift, second_weight, second_bias = head.parameters()
    x = torch.randn(7, 6)
    hidden = x @ first_weight.T + first_bias
    normed = (hidden - hidden.mean(dim=0)) / (hidden.var(dim=0, unbiased=False) + 1e-5).sqrt() * scale + shift
    expected = functional.relu(normed) @ second_weight.T + second_bias
    torch.testing.assert_close(head.train()(x), expected)
    torch.testing.assert_close(head.eval()(x[:1]), head(x)[:1])


def test_a_linear_head_has_no_place_for_a_batch_norm() -> None:
    with pytest.raises(ValidationError, match="set kind to mlp, or norm to false"):
        HeadConfig(norm=True)


NORMED = HeadConfig(kind="mlp", hidden=5, norm=True)


@pytest.mark.parametrize("config", [HeadConfig(), HeadConfig(kind="mlp"), NORMED])
def test_projects_each_entry_by_itself(config: HeadConfig) -> None:
    torch.manual_seed(0)
    head = build_head(config, 6, 4).eval()
    entries, mask = torch.randn(3, 5, 6), torch.arange(5) < torch.tensor([[5], [2], [1]])
    projected = project_entries(head, entries, mask)
    assert projected.shape == (3, 5, 4)
    for row, count in enumerate((5, 2, 1)):
        torch.testing.assert_close(projected[row, :count], head(entries[row, :count]))
    assert torch.equal(project_entries(head, entries), project_entries(head, entries, torch.ones_like(mask)))


def test_padding_is_no_part_of_the_statistics_of_a_batch_norm() -> None:
    torch.manual_seed(0)
    head = build_head(NORMED, 6, 4)
    entries, mask = torch.randn(3, 5, 6), torch.arange(5) < torch.tensor([[5], [2], [1]])
    heads = [copy.deepcopy(head).train() for _ in range(3)]
    projected = project_entries(heads[0], entries, mask)
    changed = project_entries(heads[1], entries.masked_fill(~mask[..., None], 1e4), mask)
    torch.testing.assert_close(projected[mask], heads[2](entries[mask]))
    assert torch.equal(projected, changed)
    assert (projected[~mask] == 0).all()
    for name, value in heads[2].state_dict().items():
        assert torch.equal(heads[0].state_dict()[name], value)
        assert torch.equal(heads[1].state_dict()[name], value)


def test_gradients_pass_through_the_real_entries_only() -> None:
    torch.manual_seed(0)
    head = build_head(NORMED, 6, 4).double()
    mask = torch.tensor([[True, True], [True, False], [False, False]])
    entries = torch.randn(3, 2, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: project_entries(head, x, mask), (entries,))
    torch.autograd.backward(project_entries(head, entries, mask).square().sum())
    assert entries.grad is not None
    assert torch.equal((entries.grad != 0).any(dim=-1), mask)


@torch.no_grad()
def test_concepts_and_context_are_fused_number_by_number() -> None:
    torch.manual_seed(0)
    head, pooled = ConceptHead(6, 3, 4).double(), torch.randn(2, 6, dtype=torch.float64)
    for row, feature in zip(head(pooled), pooled, strict=True):
        found = [1 / (1 + math.exp(-float(logit))) for logit in head.predict(feature)]
        concepts = head.of_concepts(pooled.new_tensor(found)).tolist()
        context = head.of_context(feature).tolist()
        gates = head.gate(pooled.new_tensor([*found, *feature.tolist()])).tolist()
        for place, value in enumerate(row.tolist()):
            share = 1 / (1 + math.exp(-gates[place]))
            sides = [side[place] / math.hypot(*side) for side in (concepts, context)]
            assert value == pytest.approx(share * sides[0] + (1 - share) * sides[1], abs=1e-9)
