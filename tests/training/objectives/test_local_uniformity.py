import math
from typing import Any

import pytest
import torch

from tests.training.objectives.local_reference import local_batch, random_entries, real_vectors, slow_cosine
from tests.training.objectives.reference import mask_of, slow_info_nce
from training.objectives import LocalUniformity
from training.objectives.base import parse_objective
from training.objectives.local import LocalEntries, self_cosines
from training.objectives.local_uniformity import UniformityKind, local_uniformity
from training.objectives.similarity import cosine_matrix

KINDS: tuple[UniformityKind, ...] = ("gauss", "xent")
Z = torch.tensor([[[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]]], dtype=torch.float64)


def slow_uniformity(entries: LocalEntries, kind: str, temperature: float) -> float:
    """Uniformity, one pair of entries after the other."""
    total = 0.0
    for sample in real_vectors(entries):
        sums = [sum(math.exp(slow_cosine(one, two) / temperature) for two in sample) for one in sample]
        if kind == "gauss":
            total += math.log(sum(sums) / len(sample) ** 2)
        else:
            total += sum(math.log(value) for value in sums) / len(sample)
    return total / len(entries.values)


@pytest.mark.parametrize(
    ("kind", "temperature", "golden"),
    [
        ("gauss", 0.2, 3.832581932248),
        ("xent", 0.2, 5.210610635464),
        ("gauss", 0.5, 1.216566159932),
        ("xent", 0.5, 2.589203353137),
    ],
)
def test_golden_values(kind: UniformityKind, temperature: float, golden: float) -> None:
    mask = torch.ones((1, 4), dtype=torch.bool)
    found = local_uniformity(self_cosines(Z), mask, kind=kind, temperature=temperature)
    assert float(found) == pytest.approx(golden, abs=1e-11)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("counts", [(4, 4, 4), (4, 1, 2)])
def test_equals_the_slow_reference(kind: UniformityKind, counts: tuple[int, ...]) -> None:
    entries = random_entries(counts)
    found = local_uniformity(self_cosines(entries.values), entries.mask, kind=kind, temperature=0.3)
    assert float(found) == pytest.approx(slow_uniformity(entries, kind, 0.3), abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_sample_without_entries_adds_nothing(kind: UniformityKind) -> None:
    entries = random_entries((3, 3))
    mask = entries.mask.clone()
    mask[1] = False
    values = entries.values.clone().requires_grad_()
    loss = local_uniformity(self_cosines(values), mask, kind=kind)
    alone = local_uniformity(self_cosines(values[:1]), mask[:1], kind=kind)
    assert float(loss.detach()) == pytest.approx(float(alone.detach()) / 2, abs=1e-14)
    torch.autograd.backward(loss)
    assert values.grad is not None
    assert torch.isfinite(values.grad).all()
    assert not values.grad[1].any()


@pytest.mark.parametrize(
    ("settings", "weight"),
    [({}, 0.25), ({"kind": "xent"}, 0.5), ({"kind": "xent", "uniformity_weight": 0.0}, 0.0)],
)
def test_loss_is_the_global_one_plus_both_uniformities(settings: dict[str, Any], weight: float) -> None:
    batch = local_batch()
    output = LocalUniformity(**settings).compute(batch)
    cosines = cosine_matrix(batch["image"].embedding, batch["text"].embedding)
    kind = settings.get("kind", "gauss")
    image, text = (slow_uniformity(LocalEntries.of(batch[name]), kind, 0.2) for name in ("image", "text"))
    expected = {
        "global": slow_info_nce(cosines, 0.1, 0.75, mask_of(len(cosines))),
        "first_uniformity": image,
        "second_uniformity": text,
    }
    assert {name: float(term) for name, term in output.terms.items()} == pytest.approx(expected, abs=1e-12)
    assert float(output.total) == pytest.approx(expected["global"] + weight * (image + text), abs=1e-12)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"kind": "normal"}, "kind\n  Input should be 'gauss' or 'xent'"),
        ({"uniformity_weight": -0.25}, "uniformity_weight\n  Input should be greater than or equal to 0"),
        ({"uniformity_temperature": 0.0}, "uniformity_temperature\n  Input should be greater than 0"),
        ({"temperature": 0.0}, "temperature\n  Input should be greater than 0"),
        ({"eta": 0.5}, "eta\n  Extra inputs are not permitted"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_objective({"name": "local_uniformity", **wrong})
