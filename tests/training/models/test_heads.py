import torch
from torch.nn import functional

from training.models.config import HeadConfig
from training.models.heads import build_head
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
