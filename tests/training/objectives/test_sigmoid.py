"""The sigmoid loss: the formula pair by pair, and where scale and bias begin."""

import math

import pytest
import torch

from tests.training.objectives.reference import MATCHES, U, V, features, mask_of, random_embeddings
from training.common.errors import RecipeError
from training.models.features import PretrainedLogits
from training.objectives import Sigmoid
from training.objectives.base import parse_objective
from training.objectives.similarity import cosine_matrix

SCALE, BIAS = 7.0, -3.0


@pytest.mark.parametrize("pairs", MATCHES)
def test_equals_the_formula_pair_by_pair(pairs: tuple[tuple[int, int], ...]) -> None:
    (image, text), mask = random_embeddings(5), mask_of(5, *pairs)
    expected = 0.0
    for i, row in enumerate(cosine_matrix(image, text).tolist()):
        for j, cosine in enumerate(row):
            if i == j or not mask[i, j]:
                expected += math.log1p(math.exp((-1 if i == j else 1) * (SCALE * cosine + BIAS))) / 5
    loss = Sigmoid(1 / SCALE, BIAS, learnable_temperature=False)
    assert float(loss(image, text, mask)) == pytest.approx(expected, abs=1e-12)


def test_begins_as_published_and_learns_scale_and_bias() -> None:
    objective = Sigmoid()
    output = objective.compute(features(U, V))
    assert float(output.terms["temperature"]) == pytest.approx(0.1)
    assert float(output.terms["bias"]) == -10
    torch.autograd.backward(output.total)
    assert {name for name, value in objective.named_parameters() if value.grad is not None} == {
        "scale.log_scale",
        "bias",
    }
    fixed = Sigmoid(learnable_temperature=False)
    assert not [parameter for parameter in fixed.parameters() if parameter.requires_grad]


def test_the_scale_of_siglip_is_not_cut() -> None:
    terms = Sigmoid(1 / 117, -12.9).compute(features(U, V)).terms
    assert float(terms["temperature"]) == pytest.approx(1 / 117)
    limited = Sigmoid(1 / 117, max_scale=50).compute(features(U, V)).terms
    assert float(limited["temperature"]) == pytest.approx(1 / 50)


CLIP, SIGLIP = PretrainedLogits(0.01), PretrainedLogits(1 / 117, -12.9)


@pytest.mark.parametrize(
    ("settings", "towers", "start"),
    [
        ({}, SIGLIP, SIGLIP),
        ({}, CLIP, PretrainedLogits(0.1, -10)),
        ({}, None, PretrainedLogits(0.1, -10)),
        ({"temperature": 0.5}, SIGLIP, PretrainedLogits(0.5, -12.9)),
        ({"bias": -5, "temperature": "pretrained"}, SIGLIP, PretrainedLogits(1 / 117, -5)),
        ({"temperature": 0.5, "bias": -5}, SIGLIP, PretrainedLogits(0.5, -5)),
    ],
)
def test_towers_bring_temperature_and_bias_together(
    settings: dict[str, object], towers: PretrainedLogits | None, start: PretrainedLogits
) -> None:
    read = parse_objective({"name": "sigmoid", **settings})
    named = settings == {"temperature": 0.5, "bias": -5}
    assert Sigmoid.logits(read) == (start if named else None)
    assert Sigmoid.logits(read.with_temperature(lambda: towers)) == start


@pytest.mark.parametrize("settings", [{"bias": "pretrained"}, {"temperature": "pretrained"}])
@pytest.mark.parametrize("towers", [CLIP, None])
def test_what_towers_do_not_bring_is_refused(
    settings: dict[str, object], towers: PretrainedLogits | None
) -> None:
    with pytest.raises(RecipeError, match=r"^Temperature and bias are to be .* give one SigLIP to both"):
        parse_objective({"name": "sigmoid", **settings}).with_temperature(lambda: towers)
