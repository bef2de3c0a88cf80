"""A weighted sum of objectives, and what an objective takes over from its base."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from tests.training.objectives.cases import build, random_batch
from tests.training.objectives.reference import mask_of, random_embeddings
from training.common.errors import RecipeError
from training.data.labels import Labelling
from training.models.config import Retrieval
from training.models.features import PretrainedLogits
from training.objectives import BYOL, IFM, LTD, InfoNCE, PixPro, ReCo, WeightedSum
from training.objectives.base import (
    Extras,
    LossOutput,
    Objective,
    ObjectiveContext,
    ObjectiveData,
    Requirement,
    SimilarityObjective,
    parse_objective,
)
from training.objectives.similarity import Similarities

CONTEXT = ObjectiveContext(dim=5, embedding_dim=5)


def zeros(texts: Sequence[object]) -> Tensor:
    return torch.zeros(len(texts), 3)


class Counting(SimilarityObjective):
    """Counts its steps, as an objective with a memory does, and takes images of 9 regions."""

    requires: frozenset[Requirement] = frozenset({"local"})
    needs: Mapping[str, str] = {"data.captions": "texts"}
    momentum = 0.9
    retrievals: frozenset[Retrieval] = frozenset({"shared"})
    steps: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.tensor(0))

    def of_similarities(self, pairs: Similarities) -> LossOutput:
        return LossOutput(pairs.rows.values.sum(), {})

    def prepare(self, data: ObjectiveData) -> Extras:
        return Extras(rows=data.labels())

    def check_regions(self, count: int) -> None:
        if count != 9:
            raise RecipeError(f"{count} regions")

    def after_step(self) -> None:
        self.steps.add_(1)


@pytest.mark.parametrize(
    ("objective", "requires", "needs"),
    [
        (
            LTD(Counting(), embedding_dim=5, target_dim=3),
            {"local", "one_vector"},
            {"data.captions", "data.target_encoder"},
        ),
        (WeightedSum([ReCo(), Counting()], [1, 2]), {"local"}, {"data.captions"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_parts_need_and_keep_is_that_of_the_whole(
    objective: Objective, requires: set[str], needs: set[str]
) -> None:
    assert objective.requires == requires
    assert objective.needs.keys() == needs
    assert objective.needs["data.captions"] == "texts"
    data = ObjectiveData((), targets=zeros, captions=zeros, labelling=Labelling(("a",)))
    extras = objective.prepare(data)
    assert (extras.rows["labels"].shape, len(extras.texts)) == ((0, 1), len(needs) - 1)
    assert objective.momentum == 0.9
    assert objective.retrievals == {"shared"}
    objective.check_regions(9)
    with pytest.raises(RecipeError, match="4 regions"):
        objective.check_regions(4)
    objective.after_step()
    (steps,) = (value for name, value in objective.state_dict().items() if name.endswith(".steps"))
    assert steps == 1


def test_ifm_has_the_requirements_and_the_state_of_its_base() -> None:
    objective = IFM(Counting())
    objective.after_step()
    assert objective.requires == {"local"}
    assert objective.state_dict()["base.steps"] == 1


def test_a_sum_adds_weighted_losses_and_keeps_all_terms() -> None:
    (image, text), mask, batch = random_embeddings(5), mask_of(5, (0, 2)), random_batch()
    parts, names = (InfoNCE(0.1), ReCo(negative_power=4), InfoNCE(0.2)), ("InfoNCE", "ReCo", "InfoNCE")
    objective = WeightedSum(parts, [0.5, 1 / 64, 0])
    expected = 0.5 * parts[0](image, text, mask) + parts[1](image, text, mask) / 64
    torch.testing.assert_close(objective(image, text, mask), expected)
    terms = {}
    for number, (part, name) in enumerate(zip(parts, names, strict=True), start=1):
        loss = part.compute(batch)
        terms[f"{number}-{name}"] = loss.total.detach()
        terms |= {f"{number}-{name}/{key}": term for key, term in loss.terms.items()}
    torch.testing.assert_close(dict(objective.compute(batch).terms), terms)
    assert len(list(objective.parameters())) == 2


@pytest.mark.parametrize(
    ("parts", "weights"),
    [
        (["infonce", {"reco": {"negative_weight": 1.2}, "weight": 1 / 64}], [1, 1 / 64]),
        ([{"infonce": None}, {"name": "reco", "negative_weight": 1.2, "weight": 0.5}], [1, 0.5]),
        ([{"name": "infonce", "weight": 0}, {"reco": {"negative_weight": 1.2}}], [0, 1]),
    ],
)
def test_a_recipe_writes_a_sum_as_a_list(parts: list[Any], weights: list[float]) -> None:
    settings, reco = parse_objective({"sum": parts}), {"name": "reco", "negative_weight": 1.2}
    assert settings == parse_objective({"name": "sum", "objectives": ["infonce", reco], "weights": weights})
    image, text = random_embeddings(4)
    expected = WeightedSum([InfoNCE(), ReCo(1.2)], weights)(image, text)
    torch.testing.assert_close(settings.build(CONTEXT)(image, text), expected)


PAIRS = [["image", "text"], ["audio", "text"]]


@pytest.mark.parametrize(
    "tree", [{"sum": ["reco", "vse"]}, {"name": "ifm", "base": "reco"}, {"sum": [{"ifm": {"base": "reco"}}]}]
)
def test_the_parts_of_a_recipe_have_the_pairs_of_the_whole(tree: dict[str, Any]) -> None:
    settings = parse_objective({**tree, "pairs": PAIRS})
    assert settings.modalities == {"image", "text", "audio"}
    whole = build(settings, random_batch())
    pairs = [part.pairs for part in whole.modules() if isinstance(part, Objective)]
    assert pairs == [(("image", "text"), ("audio", "text"))] * len(pairs)
    assert len(pairs) > 1


def test_temperatures_of_towers_reach_every_part() -> None:
    learned: list[Any] = ["infonce", {"ifm": {"base": {"name": "ltd", "base": "quest"}}}]
    settings = parse_objective({"sum": [*learned, {"infonce": {"temperature": 0.5}}]})
    tree = settings.with_temperature(lambda: PretrainedLogits(0.01)).model_dump_json()
    assert [part[:4] for part in tree.split('"temperature":')[1:]] == ["0.01", "0.01", "0.5,"]


@pytest.mark.parametrize(
    ("tree", "sentence"),
    [
        ({"sum": "infonce"}, r"^sum holds a list of objectives, such as \[infonce, \{reco: \{\}, weight: 0"),
        ({"sum": ["infonce", 3]}, r"^3 is no part of a sum: write \{reco: \{\}, weight: 0\.1\}"),
        ({"sum": [{"infonce": {}, "reco": {}}]}, "is no part of a sum"),
        ({"sum": [{"reco": 3, "weight": 1}]}, "is no part of a sum"),
        ({"sum": [{"weight": 1}]}, "is no part of a sum"),
        ({"sum": ["nothing"]}, "'nothing' is not an objective; there are byol"),
        ({"sum": [{"reco": {}, "weight": -1}]}, "greater than or equal to 0"),
        ({"sum": [{"reco": {}, "weight": 0}, {"vse": None, "weight": 0}]}, "all weights of the sum are 0"),
        ({"sum": []}, "at least 1 item"),
        ({"sum": ["reco"], "pair": PAIRS}, "Extra inputs are not permitted"),
        ({"sum": [{"reco": {"pairs": PAIRS}}]}, r"set objective\.pairs, not its base's"),
        ({"name": "ifm", "base": {"name": "reco", "pairs": PAIRS}}, r"set objective\.pairs, not its base's"),
        ({"sum": ["reco", "ltd"], "pairs": [["image", "audio"]]}, "ltd decodes texts"),
    ],
)
def test_recipes_that_make_no_sense_are_refused(tree: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_objective(tree)


def test_a_sum_has_a_weight_for_each_objective_and_one_above_0() -> None:
    for weights in ([1], [1, 2, 3]):
        said = f"^WeightedSum: there are 2 objectives and {len(weights)} weights: give one"
        with pytest.raises(ValueError, match=said):
            WeightedSum([InfoNCE(), ReCo()], weights)
    with pytest.raises(ValueError, match=r"^WeightedSum: all weights of the sum are 0: give one above 0\.$"):
        WeightedSum([InfoNCE(), ReCo()], [0, 0])
    with pytest.raises(ValidationError, match="there are 1 objectives and 2 weights"):
        parse_objective({"name": "sum", "objectives": ["infonce"], "weights": [1, 2]})


class Distance(nn.Module):
    """A loss from outside the package."""

    def forward(self, image: Tensor, text: Tensor) -> Tensor:
        return (image - text).square().sum(dim=1).mean()


def test_a_loss_of_ones_own_may_be_a_part_of_a_sum() -> None:
    image, text = torch.randn(2, 6, 4)
    loss = WeightedSum([ReCo(), Distance()], [1, 0.5])
    torch.testing.assert_close(loss(image, text), ReCo()(image, text) + 0.5 * Distance()(image, text))


def test_parts_with_different_momenta_are_refused() -> None:
    parts = [BYOL(embedding_dim=4, momentum=0.9), PixPro(dim=4, momentum=0.5)]
    with pytest.raises(ValueError, match=r"several momenta, \[0\.5, 0\.9\]: give one"):
        WeightedSum(parts, [1, 1])


def test_a_sum_may_have_parts_that_encode_images_alone() -> None:
    both = parse_objective({"sum": ["labels", "infonce"]})
    assert both.modalities == {"image", "text"}
    assert both.build(ObjectiveContext(dim=4, labels=2)).requires == {"one_vector"}
    assert parse_objective({"sum": ["labels", {"simclr": None}]}).modalities == {"image"}
