"""InfoNCE: golden values, the formula pair by pair, and the temperature, learned or of towers."""

import math

import pytest
import torch

from tests.training.objectives.reference import (
    MATCHES,
    U,
    V,
    features,
    mask_of,
    random_embeddings,
    slow_info_nce,
)
from training.common.errors import RecipeError
from training.models.features import PretrainedLogits
from training.objectives import InfoNCE
from training.objectives.base import parse_objective
from training.objectives.similarity import cosine_matrix


def test_golden_values() -> None:
    """A fixed temperature is float64, so that these values are met."""
    output = InfoNCE(0.1, learnable_temperature=False, image_weight=0.75).compute(features(U, V))
    terms = {name: float(value) for name, value in output.terms.items()}
    assert terms["first_to_second"] == pytest.approx(0.141026832192, abs=1e-11)
    assert terms["second_to_first"] == pytest.approx(0.251424492128, abs=1e-11)
    assert float(output.total) == pytest.approx(0.168626247176, abs=1e-11)
    assert terms["temperature"] == pytest.approx(0.1, abs=1e-15)
    assert float(InfoNCE(0.1, learnable_temperature=False)(U, V)) == pytest.approx(0.196225662160, abs=1e-11)
    assert float(InfoNCE(0.07, learnable_temperature=False)(U, V)) == pytest.approx(0.160671892250, abs=1e-11)


def test_the_defaults_are_clip_s() -> None:
    objective = InfoNCE()
    assert float(objective(U, V).detach()) == pytest.approx(0.160671892250, abs=1e-7)
    assert [name for name, _ in objective.named_parameters()] == ["scale.log_scale"]
    assert not list(InfoNCE(learnable_temperature=False).parameters())
    assert not objective.double().state_dict().keys() - {"scale.log_scale"}


@pytest.mark.parametrize("pairs", MATCHES)
def test_equals_the_formula_pair_by_pair(pairs: tuple[tuple[int, int], ...]) -> None:
    (image, text), mask = random_embeddings(5), mask_of(5, *pairs)
    loss = InfoNCE(0.2, image_weight=0.7, learnable_temperature=False)
    expected = slow_info_nce(cosine_matrix(image, text), 0.2, 0.7, mask)
    assert float(loss(image, text, mask)) == pytest.approx(expected, abs=1e-12)


def test_scale_is_limited_but_can_come_down_again() -> None:
    for objective, limit in ((InfoNCE(), 100), (InfoNCE(max_scale=20), 20)):
        log_scale = objective.scale.log_scale
        assert log_scale is not None
        with torch.no_grad():
            log_scale.fill_(math.log(150))
        output = objective.compute(features(U, V.flip(0)))
        assert float(output.terms["temperature"]) == pytest.approx(1 / limit)
        torch.autograd.backward(output.total)
        assert log_scale.grad is not None
        assert log_scale.grad > 0


CLIP, SIGLIP = PretrainedLogits(0.01), PretrainedLogits(0.009, -12.9)


@pytest.mark.parametrize("name", ["infonce", "quest"])
@pytest.mark.parametrize(
    ("temperature", "towers", "start"),
    [
        ("auto", CLIP, 0.01),
        ("auto", SIGLIP, 0.07),
        ("auto", None, 0.07),
        ("pretrained", CLIP, 0.01),
        (0.5, CLIP, 0.5),
    ],
)
def test_towers_bring_the_temperature_of_a_softmax(
    name: str, temperature: float | str, towers: PretrainedLogits | None, start: float
) -> None:
    settings = parse_objective({"name": name, "temperature": temperature})
    assert InfoNCE.logits(settings) == (None if isinstance(temperature, str) else PretrainedLogits(start))
    assert InfoNCE.logits(settings.with_temperature(lambda: towers)) == PretrainedLogits(start)


@pytest.mark.parametrize("towers", [SIGLIP, None])
def test_a_temperature_that_towers_do_not_bring_is_refused(towers: PretrainedLogits | None) -> None:
    settings = parse_objective({"name": "infonce", "temperature": "pretrained"})
    with pytest.raises(RecipeError, match=r"^The temperature is to be that of the towers, and they bring"):
        settings.with_temperature(lambda: towers)
