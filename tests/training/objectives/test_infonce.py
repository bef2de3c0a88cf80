import math

import pytest
import torch
from pydantic import ValidationError

from tests.training.objectives.reference import (
    CONTEXT,
    C,
    U,
    V,
    features,
    mask_of,
    of_square,
    random_embeddings,
    slow_info_nce,
)
from training.objectives.infonce import InfoNCESettings, info_nce
from training.objectives.similarity import cosine_matrix


def test_golden_values() -> None:
    cosines = cosine_matrix(U, V)
    mean, image_to_text, text_to_image = (float(value) for value in info_nce(of_square(cosines), 10.0))
    assert image_to_text == pytest.approx(0.141026832192, abs=1e-11)
    assert text_to_image == pytest.approx(0.251424492128, abs=1e-11)
    assert mean == pytest.approx(0.196225662160, abs=1e-11)
    weighted = info_nce(of_square(cosines), 10.0, image_weight=0.75)[0]
    assert float(weighted) == pytest.approx(0.168626247176, abs=1e-11)
    assert float(info_nce(of_square(cosines), 1 / 0.07)[0]) == pytest.approx(0.160671892250, abs=1e-11)


def test_module_has_both_published_forms() -> None:
    clip = InfoNCESettings().build(CONTEXT)
    assert float(clip(features(U, V)).total.detach()) == pytest.approx(0.160671892250, abs=1e-6)
    assert [name for name, _ in clip.named_parameters()] == ["scale.log_scale"]
    convirt = InfoNCESettings(image_weight=0.75, temperature=0.1, learnable_temperature=False).build(CONTEXT)
    assert float(convirt(features(U, V)).total) == pytest.approx(0.168626247176, abs=1e-6)
    assert not list(convirt.parameters())


def test_terms_are_detached_and_say_what_they_are() -> None:
    image, text = random_embeddings(3)
    output = InfoNCESettings(temperature=0.1).build(CONTEXT)(features(image.requires_grad_(), text))
    assert not any(term.requires_grad for term in output.terms.values())
    assert output.total.requires_grad
    terms = {name: float(value) for name, value in output.terms.items()}
    assert terms["temperature"] == pytest.approx(0.1)
    half = (terms["first_to_second"] + terms["second_to_first"]) / 2
    assert float(output.total.detach()) == pytest.approx(half)
    cosines = cosine_matrix(image, text).detach()
    assert terms["positive_similarity"] == pytest.approx(float(cosines.diagonal().mean()))
    others = cosines[~torch.eye(3, dtype=torch.bool)]
    assert terms["negative_similarity"] == pytest.approx(float(others.mean()))


@pytest.mark.parametrize("masked", [False, True])
def test_gradient_is_right(masked: bool) -> None:
    image, text = random_embeddings(4)
    scale = torch.tensor(7.0, dtype=torch.float64, requires_grad=True)
    mask = mask_of(4, (0, 2), (3, 1)) if masked else None

    def loss(a: torch.Tensor, b: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return info_nce(of_square(cosine_matrix(a, b), mask), s, image_weight=0.6)[0]

    assert torch.autograd.gradcheck(loss, (image.requires_grad_(), text.requires_grad_(), scale))


@pytest.mark.parametrize("pairs", [(), ((0, 2),), ((0, 2), (2, 0), (1, 3))])
def test_equals_the_slow_reference(pairs: tuple[tuple[int, int], ...]) -> None:
    image, text = random_embeddings(5)
    cosines, mask = cosine_matrix(image, text), mask_of(5, *pairs)
    loss = info_nce(of_square(cosines, mask), 1 / 0.2, image_weight=0.7)[0]
    assert float(loss) == pytest.approx(slow_info_nce(cosines, 0.2, 0.7, mask), abs=1e-12)


def test_matching_columns_have_no_influence_and_no_gradient() -> None:
    cosines = C.clone().requires_grad_()
    mask = mask_of(3, (0, 1))
    _, image_to_text, _ = info_nce(of_square(cosines, mask), 10.0)
    torch.autograd.backward(image_to_text)
    assert cosines.grad is not None
    assert cosines.grad[0, 1] == 0
    assert cosines.grad[0, 2] != 0


def test_mask_with_the_diagonal_only_changes_nothing() -> None:
    plain, masked = info_nce(of_square(C), 10.0), info_nce(of_square(C, mask_of(3)), 10.0)
    torch.testing.assert_close(masked[0], plain[0], rtol=0, atol=1e-11)


def test_row_in_which_everything_matches_costs_nothing_and_stays_finite() -> None:
    image, text = random_embeddings(3)
    image.requires_grad_()
    total = (
        InfoNCESettings().build(CONTEXT)(features(image, text, torch.ones((3, 3), dtype=torch.bool))).total
    )
    torch.autograd.backward(total)
    assert float(total.detach()) == 0
    assert image.grad is not None
    assert torch.isfinite(image.grad).all()


def test_scale_is_limited_but_can_come_down_again() -> None:
    objective = InfoNCESettings(max_scale=100.0).build(CONTEXT)
    log_scale = objective.scale.log_scale
    assert log_scale is not None
    with torch.no_grad():
        log_scale.fill_(math.log(150))
    output = objective(features(*(batch.flip(0) for batch in (U, V.flip(0)))))
    assert float(output.terms["temperature"]) == pytest.approx(0.01)
    torch.autograd.backward(output.total)
    assert log_scale.grad is not None
    assert log_scale.grad > 0


@pytest.mark.parametrize("wrong", [{"image_weight": 1.5}, {"temperature": 0.0}, {"tau": 0.1}])
def test_settings_refuse_what_has_no_meaning(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        InfoNCESettings.model_validate(wrong)


def test_a_fixed_temperature_is_exact() -> None:
    """methods.md's values, which a temperature rounded to float32 would miss in the ninth digit."""
    settings = InfoNCESettings(temperature=0.1, learnable_temperature=False, image_weight=0.75)
    output = settings.build(CONTEXT).double()(features(U, V))
    assert float(output.terms["first_to_second"]) == pytest.approx(0.141026832192, abs=1e-11)
    assert float(output.terms["second_to_first"]) == pytest.approx(0.251424492128, abs=1e-11)
    assert float(output.total) == pytest.approx(0.168626247176, abs=1e-11)
