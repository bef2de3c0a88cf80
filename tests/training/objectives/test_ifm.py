"""IFM: golden values, and its base on perturbed similarities."""

import pytest
import torch
from torch import Tensor

from tests.training.objectives.reference import MATCHES, U, V, features, mask_of, random_embeddings
from training.common.errors import RecipeError
from training.objectives import IFM, LTD, VSE, InfoNCE, ReCo
from training.objectives.base import ObjectiveContext, SimilarityObjective, parse_objective
from training.objectives.similarity import Similarities, cosine_matrix

FIXED = InfoNCE(0.2, learnable_temperature=False)


def by_hand(cosines: Tensor, mask: Tensor, epsilon: float) -> Tensor:
    """C + epsilon M: M is -1 for partners, 0 for other matches, and 1 for what doesn't match."""
    return cosines + epsilon * (1 - mask.double() - torch.eye(len(mask)))


def test_golden_values_are_those_of_the_defaults() -> None:
    output = IFM(InfoNCE(learnable_temperature=False)).compute(features(U, V))
    assert float(output.terms["clean"]) == pytest.approx(0.160671892250, abs=1e-11)
    assert float(output.terms["perturbed"]) == pytest.approx(0.862077536518, abs=1e-11)
    assert float(output.total) == pytest.approx(0.511374714384, abs=1e-11)
    objective = IFM()
    assert float(objective(U, V).detach()) == pytest.approx(0.511374714384, abs=1e-6)
    assert [name for name, _ in objective.named_parameters()] == ["base.scale.log_scale"]


@pytest.mark.parametrize("base", [FIXED, ReCo(), VSE(margin=0.5)], ids=lambda base: type(base).__name__)
@pytest.mark.parametrize("pairs", MATCHES)
def test_is_the_mean_of_its_base_on_both(
    base: SimilarityObjective, pairs: tuple[tuple[int, int], ...]
) -> None:
    (image, text), mask = random_embeddings(5), mask_of(5, *pairs)
    cosines = cosine_matrix(image, text)
    clean, worse = (
        base.of_similarities(Similarities.of_square(each, mask))
        for each in (cosines, by_hand(cosines, mask, 0.15))
    )
    output = IFM(base, epsilon=0.15).compute(features(image, text, mask))
    torch.testing.assert_close(output.total, (clean.total + worse.total) / 2)
    torch.testing.assert_close(
        dict(output.terms), {**clean.terms, "clean": clean.total, "perturbed": worse.total}
    )
    torch.testing.assert_close(IFM(base, epsilon=0)(image, text, mask), clean.total)


def test_a_base_that_needs_more_than_similarities_is_refused() -> None:
    sentence = r"{} needs more than these: set the base to infonce \(which is what quest's SIC is alone\)"
    with pytest.raises(RecipeError, match=sentence.format("QUEST")):
        parse_objective({"name": "ifm", "base": "quest"}).build(ObjectiveContext(dim=5, embedding_dim=5))
    with pytest.raises(ValueError, match=sentence.format("LTD")):
        IFM(LTD(embedding_dim=5, target_dim=3))
