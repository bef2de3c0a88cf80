"""QUEST: golden values, every row of its ablation term by term, and where gradients are stopped."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training.objectives.reference import MATCHES, features, mask_of, random_embeddings, slow_info_nce
from training.common.errors import RecipeError
from training.models.features import Features, ModalityFeatures
from training.objectives import QUEST, InfoNCE
from training.objectives.base import parse_objective
from training.objectives.quest import self_penalised
from training.objectives.similarity import Similarities, cosine_matrix


def rows(*values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


# Shared and unique outputs of images, and of texts.
GOLDEN = (
    rows([1, 2, 0, 1, 0, -1], [0, 1, 3, -1, 2, 1], [2, -1, 1, 0, 1, 1]),
    rows([0, 1, 1, 2, 1, 0], [1, 0, -1, 1, 1, -2], [1, 1, 0, -1, 0, 2]),
    rows([1, 1, 1, 1, 0, -1], [-1, 2, 2, 0, 1, 1], [2, 0, -1, 1, 1, 0]),
    rows([1, 0, 1, 1, 2, 0], [0, 1, -1, 2, 0, -1], [1, 2, 0, 0, -1, 1]),
)
# The |cosines| of shared and unique outputs of the three images and of the three texts, written out.
RIGHT_ANGLES = (4 / 7 + 4 / 128**0.5 + 3 / 56**0.5 + 3 / 35**0.5 + 1 / 77**0.5 + 1 / 7) / 3

# Settings, terms, and the outputs that such a model is searched by.
COSINES = {"shared", "unique", "concat"}
ABLATION: dict[str, tuple[dict[str, Any], set[str], set[str]]] = {
    "SIC": ({"unique": "none"}, {"sic"}, {"shared"}),
    "SIC + SIC": ({"unique": "sic"}, {"sic", "unique_sic"}, COSINES),
    "SIC alone, on unique outputs": ({"shared": False, "unique": "sic"}, {"unique_sic"}, {"unique"}),
    "SIC + UIC": ({"unique": "uic"}, {"sic", "uic", "cosine"}, {*COSINES, "normal"}),
    "SIC + P-UIC": ({}, {"sic", "p_uic", "cosine"}, {*COSINES, "normal"}),
    "UIC": ({"shared": False, "unique": "uic"}, {"uic", "cosine"}, {"normal"}),
    "P-UIC": ({"shared": False}, {"p_uic", "cosine"}, {"normal"}),
}


def random_outputs(batch: int, dim: int = 8) -> list[Tensor]:
    """Return shared and unique outputs of images, and of texts, ready for gradients."""
    drawn = (*random_embeddings(batch, dim), *random_embeddings(batch, dim, seed=1))
    return [value.clone().requires_grad_() for value in drawn]


def batch_of(*values: Tensor, mask: Tensor | None = None) -> Features:
    image, text = (
        ModalityFeatures(embedding=shared, shared=shared, unique=unique)
        for shared, unique in (values[:2], values[2:])
    )
    return Features({"image": image, "text": text}, mask)


def quest(**settings: Any) -> QUEST:
    return QUEST(0.1, learnable_temperature=False, **settings)


def slow_terms(*values: Tensor, mask: Tensor, penalty: float = 1.0) -> dict[str, float]:
    """Every part of QUEST at scale 10, pair by pair."""
    s_img, u_img, s_txt, u_txt = (value.detach() for value in values)

    def cosine(a: Tensor, b: Tensor) -> float:
        return float(a @ b / (a.norm() * b.norm()))

    def normal(s: Tensor, u: Tensor) -> Tensor:
        blocks = [torch.linalg.cross(s[i : i + 3], u[i : i + 3]) for i in range(0, len(s) - len(s) % 3, 3)]
        return torch.cat(blocks)

    count = range(len(mask))
    n_img = [normal(s, u) for s, u in zip(s_img, u_img, strict=True)]
    n_txt = [normal(s, u) for s, u in zip(s_txt, u_txt, strict=True)]
    plain = rows(*([abs(cosine(n_img[i], n_txt[j])) for j in count] for i in count))
    penalised = plain.clone()
    for i in count:
        for j in count:
            if i != j:
                penalised[i, j] *= math.exp(penalty * min(1.0, max(0.0, cosine(s_img[i], s_txt[j]))))
    angles = [abs(cosine(s_img[i], u_img[i])) + abs(cosine(s_txt[i], u_txt[i])) for i in count]
    return {
        "sic": slow_info_nce(cosine_matrix(s_img, s_txt), 0.1, 0.5, mask),
        "unique_sic": slow_info_nce(cosine_matrix(u_img, u_txt), 0.1, 0.5, mask),
        # Both directions are added up.
        "uic": 2 * slow_info_nce(plain, 0.1, 0.5, mask),
        "p_uic": 2 * slow_info_nce(penalised, 0.1, 0.5, mask),
        "cosine": sum(angles) / len(angles),
    }


def test_golden_values() -> None:
    terms = quest(unique="uic").compute(batch_of(*GOLDEN)).terms
    assert float(terms["uic"]) == pytest.approx(4.597174182412, abs=1e-11)
    assert float(terms["cosine"]) == pytest.approx(RIGHT_ANGLES, abs=1e-11)
    output = quest().compute(batch_of(*GOLDEN))
    assert float(output.terms["p_uic"]) == pytest.approx(8.136674686113, abs=1e-11)
    parts = sum(float(output.terms[name]) for name in ("sic", "p_uic", "cosine"))
    assert float(output.total) == pytest.approx(parts, abs=1e-11)


@pytest.mark.parametrize("row", ABLATION)
def test_every_row_of_the_ablation_equals_the_formulas_pair_by_pair(row: str) -> None:
    settings, parts, retrievals = ABLATION[row]
    objective, values = quest(**settings), random_outputs(5)
    assert objective.retrievals == retrievals
    for pairs in MATCHES:
        mask = mask_of(5, *pairs)
        output, expected = objective.compute(batch_of(*values, mask=mask)), slow_terms(*values, mask=mask)
        assert output.terms.keys() & expected.keys() == parts
        for part in parts:
            assert float(output.terms[part]) == pytest.approx(expected[part], abs=1e-11)
        total = sum(expected[part] for part in parts)
        assert float(output.total.detach()) == pytest.approx(total, abs=1e-11)


@pytest.mark.parametrize(
    ("setting", "weight", "unique", "term"),
    [
        ("unique_weight", 3.0, "sic", "unique_sic"),
        ("unique_weight", 3.0, "uic", "uic"),
        ("cosine_weight", 3.0, "uic", "cosine"),
        ("penalty", 0.5, "p_uic", "p_uic"),
    ],
)
def test_weights_and_penalty_have_their_strength(setting: str, weight: float, unique: str, term: str) -> None:
    values, mask = random_outputs(5), mask_of(5)
    plain, changed = (
        quest(unique=unique, **{setting: value}).compute(batch_of(*values)) for value in (1.0, weight)
    )
    expected = slow_terms(*values, mask=mask, penalty=0.5)[term] * (1 if setting == "penalty" else weight)
    assert float(changed.terms[term]) == pytest.approx(expected, abs=1e-11)
    torch.testing.assert_close(changed.total - plain.total, changed.terms[term] - plain.terms[term])


def test_no_gradient_flows_through_the_self_penalization() -> None:
    normals, shared = torch.rand((3, 3)), torch.rand((3, 3), requires_grad=True)
    penalised = self_penalised(Similarities.of_square(normals), Similarities.of_square(shared), 1.0)
    assert not penalised.rows.values.requires_grad
    assert not penalised.columns.values.requires_grad


def test_sic_alone_is_infonce_and_needs_no_branches() -> None:
    image, text = random_embeddings(5)
    objective, mask = QUEST(unique="none"), mask_of(5, (0, 3))
    assert objective.requires == frozenset()
    torch.testing.assert_close(objective(image, text, mask), InfoNCE()(image, text, mask))
    s_img, u_img, s_txt, u_txt = random_outputs(5)
    first, second = ModalityFeatures(u_img, shared=s_img), ModalityFeatures(u_txt, shared=s_txt)
    batch = Features({"image": first, "text": second})
    torch.testing.assert_close(objective(batch), InfoNCE()(s_img, s_txt))


@pytest.mark.parametrize("unique", ["sic", "uic", "p_uic"])
def test_a_model_without_branches_is_refused(unique: str) -> None:
    objective = quest(unique=unique)
    assert objective.requires == {"branches"}
    with pytest.raises(RecipeError, match=r"^quest needs shared and unique outputs .* give model\.branches"):
        objective(features(*random_embeddings(3)))


def test_one_scale_serves_all_parts() -> None:
    objective = QUEST(shared=False)
    assert [name for name, _ in objective.named_parameters()] == ["scale.log_scale"]
    output = objective.compute(batch_of(*random_outputs(4)))
    assert float(output.terms["temperature"]) == pytest.approx(0.07)
    assert "penalty" not in output.terms


def test_a_learned_penalty_begins_at_its_value_and_only_falls() -> None:
    objective = QUEST(penalty=0.5, learnable_penalty=True)
    output = objective.compute(batch_of(*random_outputs(4)))
    assert float(output.terms["penalty"]) == pytest.approx(0.5)
    torch.autograd.backward(output.total)
    assert objective.raw_penalty is not None
    assert objective.raw_penalty.grad is not None
    assert objective.raw_penalty.grad > 0
    with torch.no_grad():
        objective.raw_penalty.fill_(-50)
    assert 0 < float(torch.as_tensor(objective.penalty()).detach()) < 1e-20


@pytest.mark.parametrize("factor", [1.0, -1.0, 3.7, 0.0])
def test_parallel_outputs_give_a_finite_loss_and_gradient(factor: float) -> None:
    values = [value.detach().float() for value in random_outputs(4, dim=64)]
    values[1] = factor * values[0]
    values[3][:2] = values[2][:2]
    values = [value.requires_grad_() for value in values]
    total = quest()(batch_of(*values))
    torch.autograd.backward(total)
    assert total.isfinite()
    assert all(value.grad is not None and value.grad.isfinite().all() for value in values)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"shared": False, "unique": "none"}, "nothing is left to learn from: set shared to true, or unique"),
        ({"unique": "none", "unique_weight": 2.0}, "unique_weight belongs to unique: sic, uic or p_uic"),
        ({"unique": "none", "cosine_weight": 0.5}, "cosine_weight belongs to unique: uic or p_uic"),
        ({"unique": "sic", "cosine_weight": 0.0}, "cosine_weight belongs to unique: uic or p_uic"),
        ({"unique": "uic", "penalty": 2.0}, "penalty and learnable_penalty belong to unique: p_uic"),
        ({"unique": "uic", "learnable_penalty": True}, "penalty and learnable_penalty belong to unique"),
        ({"penalty": 0.0, "learnable_penalty": True}, "a penalty that is learned starts above 0"),
    ],
)
def test_settings_without_effect_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^QUEST: {sentence}"):
        QUEST(**settings)
    with pytest.raises(ValueError, match=sentence):
        parse_objective({"name": "quest", **settings})
