"""SimCLR, BYOL and PixPro compared with slow references."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from tests.training.objectives.cases import DIM, build_case, random_batch
from tests.training.objectives.local_reference import set_plain_weights, without
from tests.training.objectives.reference import U, V, random_embeddings
from training.common.errors import RecipeError
from training.models.features import Features, ModalityFeatures, Source
from training.objectives import BYOL, PixPro, SimCLR
from training.objectives.base import parse_objective
from training.objectives.similarity import cosine_matrix

pytestmark = pytest.mark.usefixtures("one_thread")

SOURCES: tuple[Source, ...] = ("image", "view", "momentum", "momentum_view")
# Which view predicts what the copy says of which other one.
WAYS: tuple[tuple[Source, Source], ...] = (("image", "momentum_view"), ("view", "momentum"))

WHOLE = torch.eye(2, 3, dtype=torch.float64)
LEFT = torch.tensor([[0.5, 0, 0], [0, 1, 0]], dtype=torch.float64)
CORNER = torch.tensor([[0.5, 0, 0], [0, 0.5, 0]], dtype=torch.float64)
OPPOSITE = torch.tensor([[0.5, 0, 0.5], [0, 0.5, 0.5]], dtype=torch.float64)
MIRRORED = torch.tensor([[-1.0, 0, 1], [0, 1, 0]], dtype=torch.float64)


def views(*embeddings: Tensor) -> Features:
    """Both views of a batch, and perhaps what the copy says of them."""
    return Features(dict(zip(SOURCES, map(ModalityFeatures, embeddings), strict=False)))


def unit(values: list[float]) -> list[float]:
    length = math.sqrt(sum(x * x for x in values))
    return [x / length for x in values]


def dot(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def slow_nt_xent(first: Tensor, second: Tensor, temperature: float) -> float:
    """Chen et al.'s equation 1, with the views one after another: 0 and 1 of an image, 2 and 3, and so on."""
    every = [unit(view.tolist()) for pair in zip(first, second, strict=True) for view in pair]
    total = 0.0
    for place, view in enumerate(every):
        others = [other for other in range(len(every)) if other != place]
        closeness = {other: math.exp(dot(view, every[other]) / temperature) for other in others}
        total -= math.log(closeness[place ^ 1] / sum(closeness.values()))
    return total / len(every)


@pytest.mark.parametrize(("temperature", "golden"), [(0.1, 0.254299691234), (0.5, 0.954501792464)])
def test_simclr_equals_the_slow_reference(temperature: float, golden: float) -> None:
    assert slow_nt_xent(U, V, temperature) == pytest.approx(golden, abs=1e-11)
    for first, second in ((U, V), *map(random_embeddings, (1, 2, 7))):
        output = SimCLR(temperature).compute(views(first, second))
        assert float(output.total) == pytest.approx(slow_nt_xent(first, second, temperature), abs=1e-11)
        similarity = cosine_matrix(first, second).diagonal().mean()
        torch.testing.assert_close(output.terms["view_similarity"], similarity)


def test_simclr_compares_blades_by_their_determinants() -> None:
    """Views whose blades are one vector and another that all share: the cosine is that of the first."""
    first, second = random_embeddings(5)
    shared = torch.eye(6, dtype=torch.float64)[5].expand(5, 6)
    blades = [torch.stack((pad(vectors, (0, 1)), shared), dim=1) for vectors in (first, second)]
    torch.testing.assert_close(SimCLR()(views(*blades)), SimCLR()(views(first, second)), rtol=0, atol=1e-12)


@torch.no_grad()
def slow_byol(objective: BYOL, batch: Features) -> float:
    """Squared distances of unit vectors, both ways, with the predictor written out."""
    enter, norm, _, leave = objective.predictor
    assert isinstance(norm, torch.nn.BatchNorm1d)
    total = 0.0
    for online, target in WAYS:
        hidden = enter(batch[online].embedding)
        if norm.training:
            mean = hidden.mean(dim=0)
            hidden = (hidden - mean) / ((hidden - mean).square().mean(dim=0) + norm.eps).sqrt()
        else:
            hidden = hidden / math.sqrt(1 + norm.eps)
        predicted = leave((hidden * norm.weight + norm.bias).clamp(min=0)).tolist()
        for ours, theirs in zip(predicted, batch[target].embedding.tolist(), strict=True):
            total += sum((x - y) ** 2 for x, y in zip(unit(ours), unit(theirs), strict=True))
    return total / len(batch["image"].embedding)


@pytest.mark.parametrize(("training", "golden"), [(True, 4.616837089854), (False, 4.873253796506)])
def test_byol_equals_the_slow_reference(training: bool, golden: float) -> None:
    plain, free = (BYOL(embedding_dim=dim, hidden=3).double().train(training) for dim in (4, DIM))
    set_plain_weights(plain)
    assert slow_byol(plain, views(U, V, V.flip(0), U.flip(1))) == pytest.approx(golden, abs=1e-11)
    for objective, batch in ((plain, views(U, V, V.flip(0), U.flip(1))), (free, random_batch())):
        expected, output = slow_byol(objective, batch), objective.compute(batch)
        assert float(output.total.detach()) == pytest.approx(expected, abs=1e-11)
        assert 4 - 4 * float(output.terms["similarity"]) == pytest.approx(expected)


def regions_of_views(first: Tensor, second: Tensor) -> Features:
    """Two images of 2 x 2 regions that are plain numbers, with these frames of both views."""
    modalities: dict[Source, ModalityFeatures] = {}
    for start, source in enumerate(SOURCES):
        values = (torch.arange(2 * 4 * 2, dtype=torch.float64) * 5 + start) % 13 - 6
        local = values.view(2, 4, 2) / 4
        frame = {"image": first, "view": second}.get(source)
        frames = None if frame is None else frame.repeat(2, 1, 1)
        modalities[source] = ModalityFeatures(local.mean(dim=1), local=local, frame=frames)
    return Features(modalities)


@torch.no_grad()
def slow_pixpro(objective: PixPro, batch: Features, side: int = 2) -> float:
    """Minus the mean cosine of all pairs of regions that are near, image by image, pair by pair."""

    def places(source: Source, image: int) -> tuple[list[list[float]], float]:
        frame = batch[source].frame
        assert frame is not None
        (a, b, c), (d, e, f) = frame[image].tolist()
        steps = [(n + 0.5) / side for n in range(side)]
        points = [[a * x + b * y + c, d * x + e * y + f] for y in steps for x in steps]
        return points, math.sqrt(2 * abs(a * e - b * d)) / side

    def propagated(regions: list[list[float]]) -> list[list[float]]:
        values = [unit(objective.value(WHOLE.new_tensor(region)).tolist()) for region in regions]
        mixed = []
        for one in regions:
            shares = [max(0.0, dot(unit(one), unit(other))) ** objective.sharpness for other in regions]
            mixed.append([dot(shares, column) for column in zip(*values, strict=True)])
        return mixed

    total, count = 0.0, len(batch["image"].embedding)
    others: dict[Source, Source] = {"image": "view", "view": "image"}
    for online, target in WAYS:
        local, targets = batch[online].local, batch[target].local
        assert local is not None
        assert targets is not None
        for image in range(count):
            predicted, answers = propagated(local[image].tolist()), targets[image].tolist()
            here, diagonal = places(online, image)
            there, other_diagonal = places(others[online], image)
            reach = objective.reach * max(diagonal, other_diagonal)
            cosines = [
                dot(unit(predicted[i]), unit(answers[j]))
                for i, a in enumerate(here)
                for j, b in enumerate(there)
                if math.dist(a, b) < reach
            ]
            total += sum(cosines) / max(1, len(cosines)) / count
    return -total


@pytest.mark.parametrize("settings", [{}, {"reach": 0.4}, {"reach": 3}, {"sharpness": 1}])
def test_pixpro_equals_the_slow_reference(settings: dict[str, Any]) -> None:
    plain, free = (PixPro(dim=dim, **settings).double() for dim in (2, DIM))
    set_plain_weights(plain)
    for objective, batch in ((plain, regions_of_views(LEFT, CORNER)), (free, random_batch())):
        expected, output = slow_pixpro(objective, batch), objective.compute(batch)
        assert float(output.total.detach()) == pytest.approx(expected, abs=1e-11)
        assert -2 * float(output.terms["similarity"]) == pytest.approx(expected)
    if not settings:
        golden = -0.224282415588
        assert slow_pixpro(plain, regions_of_views(LEFT, CORNER)) == pytest.approx(golden, abs=1e-11)


def test_pixpro_compares_regions_that_show_the_same_place() -> None:
    objective = PixPro(dim=2, reach=0.5).double()

    def near(first: Tensor, second: Tensor) -> tuple[list[list[int]], float]:
        batch = regions_of_views(first, second)
        output = objective.compute(batch)
        return objective.near(batch["image"], batch["view"])[0].int().tolist(), float(output.terms["overlap"])

    identity = [[int(i == j) for j in range(4)] for i in range(4)]
    assert near(WHOLE, WHOLE) == (identity, 1)
    assert near(WHOLE, MIRRORED) == ([identity[place] for place in (1, 0, 3, 2)], 1)
    # The corner's four regions are a quarter of the whole's first.
    assert near(WHOLE, CORNER) == ([[1, 1, 1, 1], [0] * 4, [0] * 4, [0] * 4], 0.25)
    assert near(CORNER, OPPOSITE) == ([[0] * 4] * 4, 0)
    assert float(objective(regions_of_views(CORNER, OPPOSITE)).detach()) == 0


@pytest.mark.parametrize(("name", "kind"), [("byol", "embedding"), ("pixpro", "local")])
def test_targets_get_no_gradient(name: str, kind: str) -> None:
    batch = random_batch()
    leaves = {source: getattr(batch[source], kind).clone().requires_grad_() for source in SOURCES}
    changed = {source: replace(batch[source], **{kind: leaf}) for source, leaf in leaves.items()}
    torch.autograd.backward(build_case(name, batch)(Features(changed)))
    assert {source for source, leaf in leaves.items() if leaf.grad is not None} == {"image", "view"}


def test_needs() -> None:
    assert SimCLR().requires == {"views"}
    byol, pixpro = BYOL(embedding_dim=4, hidden=3), PixPro(dim=4, momentum=0.5)
    assert byol.requires == {"views", "momentum", "one_vector"}
    assert pixpro.requires == {"local", "views", "momentum"}
    assert pixpro.needs.keys() == {"model.share_local_head"}
    assert (byol.momentum, pixpro.momentum) == (0.99, 0.5)


@pytest.mark.parametrize(
    ("name", "missing", "sentence"),
    [
        ("simclr", "view", "compares two views of an image: give augmentation"),
        ("byol", "view", "compares two views of an image: give augmentation"),
        ("byol", "momentum", "learns from a copy of the encoder"),
        ("pixpro", "momentum_view", "learns from a copy of the encoder"),
    ],
)
def test_batches_without_a_view_are_refused(name: str, missing: str, sentence: str) -> None:
    batch = random_batch()
    rest = {source: features for source, features in batch.modalities.items() if source != missing}
    with pytest.raises(RecipeError, match=sentence):
        build_case(name, batch)(Features(rest))


def test_pixpro_needs_frames_and_a_square_of_regions() -> None:
    objective, batch = PixPro(dim=DIM).double(), random_batch()
    for source, name in (("image", "frame"), ("view", "frame")):
        with pytest.raises(RecipeError, match="where views overlap"):
            objective(without(batch, source, name))
    objective.check_regions(49)
    with pytest.raises(RecipeError, match="gives 48 regions, whose positions pixpro can"):
        objective.check_regions(48)


@pytest.mark.parametrize(
    ("recipe", "sentence"),
    [
        ({"name": "simclr", "temperature": 0}, "temperature\n  Input should be greater than 0"),
        ({"name": "simclr", "pairs": [["image", "text"]]}, r"images alone: leave objective\.pairs out"),
        ({"name": "byol", "momentum": 1.1}, "momentum\n  Input should be less than or equal to 1"),
        ({"name": "byol", "hidden": 0}, "hidden\n  Input should be greater than 0"),
        ({"name": "pixpro", "reach": 0}, "reach\n  Input should be greater than 0"),
        ({"name": "pixpro", "sharpness": 0.5}, "sharpness\n  Input should be greater than or equal to 1"),
        ({"name": "pixpro", "momentum": -0.1}, "momentum\n  Input should be greater than or equal to 0"),
    ],
)
def test_wrong_settings_are_refused(recipe: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_objective(recipe)
