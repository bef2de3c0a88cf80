import math

import pytest
import torch
import transformers
from torch.nn.functional import normalize

from tests.training.objectives.reference import (
    CONTEXT,
    U,
    V,
    features,
    mask_of,
    of_square,
    random_embeddings,
)
from training.common.errors import RecipeError
from training.models.features import PretrainedLogits
from training.objectives.sigmoid import SigmoidSettings, sigmoid_loss
from training.objectives.similarity import cosine_matrix

SCALE, BIAS = 7.0, -3.0


def slow(image: torch.Tensor, text: torch.Tensor, mask: torch.Tensor | None = None) -> float:
    """The formula pair by pair."""
    cosines, total = cosine_matrix(image, text), 0.0
    for row in range(len(cosines)):
        for column in range(len(cosines)):
            if mask is not None and mask[row, column] and row != column:
                continue
            sign = 1 if row == column else -1
            logit = SCALE * float(cosines[row, column]) + BIAS
            total += math.log1p(math.exp(-sign * logit))
    return total / len(cosines)


@pytest.mark.parametrize("masked", [False, True])
def test_equals_the_formula_pair_by_pair(masked: bool) -> None:
    image, text = random_embeddings(5)
    mask = mask_of(5, (0, 2), (2, 0), (3, 4)) if masked else None
    found = sigmoid_loss(of_square(cosine_matrix(image, text), mask), SCALE, BIAS)
    assert float(found) == pytest.approx(slow(image, text, mask), abs=1e-10)


def test_equals_the_loss_of_siglip_in_transformers() -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.SiglipConfig(
        vision_config={**sizes, "image_size": 32, "patch_size": 16},
        text_config={**sizes, "vocab_size": 40, "projection_size": 16},
    )
    torch.manual_seed(0)
    model = transformers.SiglipModel(config)
    with torch.no_grad():
        model.logit_scale.fill_(math.log(SCALE))
        model.logit_bias.fill_(BIAS)
        output = model(
            pixel_values=torch.rand(4, 3, 32, 32), input_ids=torch.randint(40, (4, 64)), return_loss=True
        )
    cosines = normalize(output.image_embeds, dim=1) @ normalize(output.text_embeds, dim=1).T
    found = sigmoid_loss(of_square(cosines), SCALE, BIAS)
    assert float(found) == pytest.approx(float(output.loss), rel=1e-5)


def test_begins_as_published_and_learns_scale_and_bias() -> None:
    objective = SigmoidSettings().build(CONTEXT)
    output = objective(features(U, V))
    assert float(output.terms["temperature"]) == pytest.approx(0.1)
    assert float(output.terms["bias"]) == -10
    output.total.backward()
    assert {name for name, value in objective.named_parameters() if value.grad is not None} == {
        "scale.log_scale",
        "bias",
    }
    fixed = SigmoidSettings(learnable_temperature=False).build(CONTEXT)
    assert not [parameter for parameter in fixed.parameters() if parameter.requires_grad]


def test_the_scale_of_siglip_is_not_cut() -> None:
    objective = SigmoidSettings(temperature=1 / 117, bias=-12.9).build(CONTEXT)
    assert float(objective(features(U, V)).terms["temperature"]) == pytest.approx(1 / 117)


def test_towers_bring_temperature_and_bias_together() -> None:
    settings = SigmoidSettings()
    theirs = PretrainedLogits(1 / 117, -12.9)
    assert settings.with_temperature(lambda: theirs).logits() == theirs
    # CLIP's temperature belongs to a softmax.
    assert settings.with_temperature(lambda: PretrainedLogits(0.01)).logits() == PretrainedLogits(0.1, -10)
    assert settings.with_temperature(lambda: None).logits() == PretrainedLogits(0.1, -10)
    named = SigmoidSettings(temperature=0.5).with_temperature(lambda: theirs)
    assert named.logits() == PretrainedLogits(0.5, -12.9)
    with pytest.raises(RecipeError, match="give one SigLIP to both"):
        SigmoidSettings(bias="pretrained").with_temperature(lambda: PretrainedLogits(0.01))
