import math
from typing import Literal

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

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
    slow_reco,
)
from training.common.errors import RecipeError
from training.models.features import Features, ModalityFeatures
from training.objectives.base import LossOutput, ObjectiveConfig, ObjectiveContext, SimilarityObjective
from training.objectives.ifm import IFM, IFMSettings, perturbed
from training.objectives.infonce import InfoNCE, InfoNCESettings, info_nce
from training.objectives.reco import ReCoSettings
from training.objectives.registry import parse_objective
from training.objectives.similarity import Similarities, cosine_matrix
from training.objectives.vse import VSESettings

FIXED = InfoNCESettings(temperature=0.2, learnable_temperature=False)


def by_hand(cosines: Tensor, mask: Tensor, epsilon: float) -> Tensor:
    """C + eps * M entry by entry."""
    changed = cosines.clone()
    for i in range(len(cosines)):
        for j in range(len(cosines)):
            if i == j:
                changed[i, j] -= epsilon
            elif not mask[i, j]:
                changed[i, j] += epsilon
    return changed


def test_golden_values() -> None:
    pairs = of_square(cosine_matrix(U, V))
    clean, worse = (float(info_nce(each, 1 / 0.07)[0]) for each in (pairs, perturbed(pairs, 0.1)))
    assert worse == pytest.approx(0.862077536518, abs=1e-11)
    assert (clean + worse) / 2 == pytest.approx(0.511374714384, abs=1e-11)


def test_module_has_the_paper_s_settings() -> None:
    objective = IFMSettings().build(CONTEXT)
    output = objective(features(U, V))
    assert float(output.total.detach()) == pytest.approx(0.511374714384, abs=1e-6)
    assert float(output.terms["perturbed"]) == pytest.approx(0.862077536518, abs=1e-6)
    assert float(output.terms["clean"]) == pytest.approx(0.160671892250, abs=1e-6)
    assert [name for name, _ in objective.named_parameters()] == ["base.scale.log_scale"]


def test_terms_are_detached_and_those_of_the_base_are_kept() -> None:
    image, text = random_embeddings(3)
    output = IFMSettings().build(CONTEXT)(features(image.requires_grad_(), text))
    assert output.total.requires_grad
    assert not any(term.requires_grad for term in output.terms.values())
    of_base = InfoNCESettings().build(CONTEXT)(features(image, text)).terms
    assert set(output.terms) == {*of_base, "clean", "perturbed"}
    for name, value in of_base.items():
        torch.testing.assert_close(output.terms[name], value.detach())


@pytest.mark.parametrize("pairs", [(), ((0, 2),), ((0, 2), (2, 0), (1, 3))])
def test_equals_the_slow_reference(pairs: tuple[tuple[int, int], ...]) -> None:
    image, text = random_embeddings(5)
    cosines, mask = cosine_matrix(image, text), mask_of(5, *pairs)
    worse = by_hand(cosines, mask, 0.15)
    of_info_nce = [slow_info_nce(each, 0.2, 0.5, mask) for each in (cosines, worse)]
    of_reco = [slow_reco(each, 0.6, mask, one_sided=True) for each in (cosines, worse)]
    for base, expected in ((FIXED, of_info_nce), (ReCoSettings(), of_reco)):
        objective = IFMSettings(epsilon=0.15, base=base).build(CONTEXT)
        loss = float(objective(features(image, text, mask)).total)
        assert loss == pytest.approx(sum(expected) / 2, abs=1e-6)


def test_partners_are_moved_apart_and_others_together_in_both_directions() -> None:
    mask = mask_of(3, (0, 1))
    worse = perturbed(of_square(C, mask), 0.25)
    expected = by_hand(C, mask, 0.25)
    torch.testing.assert_close(worse.rows.values, expected, rtol=0, atol=0)
    torch.testing.assert_close(worse.columns.values, expected.T, rtol=0, atol=0)
    assert worse.rows.values[0, 1] == C[0, 1]


def test_margin_of_a_softmax_is_twice_epsilon_over_the_temperature() -> None:
    pairs = of_square(torch.eye(2, dtype=torch.float64))
    loss = float(info_nce(perturbed(pairs, 0.1), 1 / 0.2)[0])
    assert loss == pytest.approx(math.log1p(math.exp(-(1 / 0.2 - 2 * 0.1 / 0.2))), abs=1e-12)


def test_without_perturbation_it_is_the_base() -> None:
    image, text = random_embeddings(5)
    objective = IFMSettings(epsilon=0.0, base=FIXED).build(CONTEXT)
    torch.testing.assert_close(
        objective(features(image, text)).total, FIXED.build(CONTEXT)(features(image, text)).total
    )


@pytest.mark.parametrize("base", [FIXED, ReCoSettings(), VSESettings(margin=0.5)])
def test_gradient_is_right(base: InfoNCESettings | ReCoSettings | VSESettings) -> None:
    objective = IFMSettings(base=base).build(CONTEXT)
    image, text = random_embeddings(4)
    mask = mask_of(4, (0, 2), (3, 1))

    def loss(a: Tensor, b: Tensor) -> Tensor:
        total: Tensor = objective(features(a, b, mask)).total
        return total

    assert torch.autograd.gradcheck(loss, (image.requires_grad_(), text.requires_grad_()))


def test_a_row_in_which_everything_matches_costs_nothing_and_stays_finite() -> None:
    image, text = random_embeddings(3)
    everything = torch.ones((3, 3), dtype=torch.bool)
    total = IFMSettings().build(CONTEXT)(features(image.requires_grad_(), text, everything)).total
    torch.autograd.backward(total)
    assert float(total.detach()) == 0
    assert image.grad is not None
    assert torch.isfinite(image.grad).all()


def test_a_recipe_names_any_objective_of_similarities_as_its_base() -> None:
    settings = parse_objective({"name": "ifm", "epsilon": 0.05, "base": {"name": "vse", "margin": 0.3}})
    assert settings == IFMSettings(epsilon=0.05, base=VSESettings(margin=0.3))
    assert parse_objective(settings.model_dump()) == settings
    assert isinstance(settings.build(CONTEXT), IFM)
    assert isinstance(IFMSettings().build(CONTEXT).base, InfoNCE)


def test_a_base_that_needs_more_than_similarities_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"quest needs more .* infonce \(which is what quest's SIC is"):
        IFMSettings(base=parse_objective({"name": "quest"})).build(CONTEXT)


def test_pairs_of_the_base_are_refused_and_own_ones_are_used() -> None:
    pairs = (("image", "text"), ("image", "audio"))
    with pytest.raises(ValidationError, match=r"objective\.pairs"):
        IFMSettings.model_validate({"base": {"name": "reco", "pairs": pairs}})
    image, text = random_embeddings(4)
    _, audio = random_embeddings(4, seed=1)
    three = Features(
        {"image": ModalityFeatures(image), "text": ModalityFeatures(text), "audio": ModalityFeatures(audio)}
    )
    settings = IFMSettings.model_validate({"base": {"name": "reco"}, "pairs": pairs})
    total = settings.build(CONTEXT)(three).total
    alone = IFMSettings(base=ReCoSettings()).build(CONTEXT)
    expected = (alone(features(image, text)).total + alone(features(image, audio)).total) / 2
    torch.testing.assert_close(total, expected, rtol=0, atol=1e-12)


class Counting(SimilarityObjective):
    """Counts the steps, as an objective with a memory would."""

    requires = frozenset({"items"})

    def __init__(self) -> None:
        super().__init__(ReCoSettings())
        self.steps = nn.Buffer(torch.zeros(()))

    def of_similarities(self, pairs: Similarities) -> LossOutput:
        return LossOutput(pairs.rows.values.sum(), {})

    def after_step(self) -> None:
        self.steps.add_(1)


class CountingSettings(ObjectiveConfig):
    name: Literal["counting"] = "counting"

    def build(self, context: ObjectiveContext) -> Counting:
        return Counting()


def test_needs_and_updates_of_the_base_are_passed_on() -> None:
    objective = IFMSettings(base=CountingSettings()).build(CONTEXT)
    assert objective.requires == {"items"}
    objective.after_step()
    assert float(objective.state_dict()["base.steps"]) == 1


def test_free_embeddings_learn_to_find_each_other() -> None:
    image, text = (batch.requires_grad_() for batch in random_embeddings(12, 8))
    objective = IFMSettings().build(CONTEXT)
    optimizer = torch.optim.Adam([image, text], lr=0.05)
    for _ in range(100):
        optimizer.zero_grad()
        torch.autograd.backward(objective(features(image, text)).total)
        optimizer.step()
    cosines = cosine_matrix(image, text).detach()
    assert torch.equal(cosines.argmax(dim=1), torch.arange(12))
    assert torch.equal(cosines.argmax(dim=0), torch.arange(12))


@pytest.mark.parametrize("wrong", [{"epsilon": -0.1}, {"eps": 0.1}, {"base": {"name": "none"}}, {"base": {}}])
def test_settings_refuse_what_has_no_meaning(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        IFMSettings.model_validate(wrong)
