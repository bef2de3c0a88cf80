import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from tests.training.objectives.reference import CONTEXT, features, mask_of, of_square, slow_info_nce
from training.common.errors import RecipeError
from training.models.features import Features, ModalityFeatures
from training.models.heads import normal_of
from training.objectives.infonce import InfoNCESettings, info_nce
from training.objectives.quest import (
    Quest,
    QuestSettings,
    UnitOutputs,
    branch_cosine,
    normal_similarities,
    quadruple_contrast,
    self_penalised,
)
from training.objectives.registry import parse_objective
from training.objectives.similarity import Similarities, cosine_matrix, similarities


def outputs(shared: Tensor, unique: Tensor) -> ModalityFeatures:
    return ModalityFeatures(embedding=shared, shared=shared, unique=unique)


def rows(*values: list[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


IMAGE = outputs(
    rows([1, 2, 0, 1, 0, -1], [0, 1, 3, -1, 2, 1], [2, -1, 1, 0, 1, 1]),
    rows([0, 1, 1, 2, 1, 0], [1, 0, -1, 1, 1, -2], [1, 1, 0, -1, 0, 2]),
)
TEXT = outputs(
    rows([1, 1, 1, 1, 0, -1], [-1, 2, 2, 0, 1, 1], [2, 0, -1, 1, 1, 0]),
    rows([1, 0, 1, 1, 2, 0], [0, 1, -1, 2, 0, -1], [1, 2, 0, 0, -1, 1]),
)
# 0.696594699015: the |cosines| of the three images and of the three texts, written out.
RIGHT_ANGLES = (4 / 7 + 4 / 128**0.5 + 3 / 56**0.5 + 3 / 35**0.5 + 1 / 77**0.5 + 1 / 7) / 3

ABLATION: dict[str, tuple[dict[str, Any], set[str]]] = {
    "SIC": ({"unique": "none"}, {"sic"}),
    "SIC + SIC": ({"unique": "sic"}, {"sic", "unique_sic"}),
    "SIC + UIC": ({"unique": "uic"}, {"sic", "uic", "cosine"}),
    "SIC + P-UIC": ({}, {"sic", "p_uic", "cosine"}),
    "UIC": ({"shared": False, "unique": "uic"}, {"uic", "cosine"}),
    "P-UIC": ({"shared": False}, {"p_uic", "cosine"}),
}


def random_modalities(batch: int, dim: int = 8, seed: int = 0) -> list[ModalityFeatures]:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn((4, batch, dim), generator=generator, dtype=torch.float64)
    return [outputs(values[0], values[1]), outputs(values[2], values[3])]


def tensors(*modalities: ModalityFeatures) -> list[Tensor]:
    """Shared and unique outputs of both, ready for gradients."""
    found = []
    for modality in modalities:
        assert modality.shared is not None
        assert modality.unique is not None
        found += [modality.shared.clone().requires_grad_(), modality.unique.clone().requires_grad_()]
    return found


def batch_of(*values: Tensor, mask: Tensor | None = None) -> Features:
    return Features({"image": outputs(*values[:2]), "text": outputs(*values[2:])}, mask)


def quest(**settings: Any) -> Quest:
    return QuestSettings(temperature=0.1, learnable_temperature=False, **settings).build(CONTEXT).double()


def shared_pairs(
    first: ModalityFeatures, second: ModalityFeatures, mask: Tensor | None = None
) -> Similarities:
    assert first.shared is not None
    assert second.shared is not None
    return similarities(first.shared, second.shared, mask)


def normal_pairs(image: ModalityFeatures, text: ModalityFeatures, mask: Tensor | None = None) -> Similarities:
    return normal_similarities(UnitOutputs.of(image), UnitOutputs.of(text), mask)


def slow_terms(
    image: ModalityFeatures, text: ModalityFeatures, mask: Tensor, penalty: float
) -> dict[str, float]:
    """Every part of QUEST at scale 10, term by term."""
    s_img, u_img, s_txt, u_txt = (value.detach() for value in tensors(image, text))

    def cosine(a: Tensor, b: Tensor) -> float:
        return float(a @ b / (a.norm() * b.norm()))

    def normal(s: Tensor, u: Tensor) -> Tensor:
        blocks = [torch.linalg.cross(s[i : i + 3], u[i : i + 3]) for i in range(0, len(s) - len(s) % 3, 3)]
        return torch.cat(blocks)

    def contrast(logits: list[list[float]], matches: list[list[bool]]) -> float:
        total = 0.0
        for i, row in enumerate(logits):
            kept = [value for j, value in enumerate(row) if j == i or not matches[i][j]]
            total += math.log(sum(math.exp(value) for value in kept)) - row[i]
        return total / len(logits)

    def both(matrix: list[list[float]]) -> float:
        columns = [list(column) for column in zip(*matrix, strict=True)]
        return contrast(matrix, mask.tolist()) + contrast(columns, mask.T.tolist())

    count = range(len(mask))
    n_img = [normal(s, u) for s, u in zip(s_img, u_img, strict=True)]
    n_txt = [normal(s, u) for s, u in zip(s_txt, u_txt, strict=True)]
    plain = [[10 * abs(cosine(n_img[i], n_txt[j])) for j in count] for i in count]
    resemblance = [[min(1.0, max(0.0, cosine(s_img[i], s_txt[j]))) for j in count] for i in count]
    factor = [[1.0 if i == j else math.exp(penalty * resemblance[i][j]) for j in count] for i in count]
    penalised = [[plain[i][j] * factor[i][j] for j in count] for i in count]
    shared, unique = cosine_matrix(s_img, s_txt), cosine_matrix(u_img, u_txt)
    angles = [abs(cosine(s_img[i], u_img[i])) + abs(cosine(s_txt[i], u_txt[i])) for i in count]
    return {
        "sic": slow_info_nce(shared, 0.1, 0.5, mask),
        "unique_sic": slow_info_nce(unique, 0.1, 0.5, mask),
        "uic": both(plain),
        "p_uic": both(penalised),
        "cosine": sum(angles) / len(angles),
    }


def test_golden_values() -> None:
    normals = normal_pairs(IMAGE, TEXT)
    penalised = self_penalised(normals, shared_pairs(IMAGE, TEXT), 1.0)
    assert float(quadruple_contrast(normals, 10.0)) == pytest.approx(4.597174182412, abs=1e-11)
    assert float(quadruple_contrast(penalised, 10.0)) == pytest.approx(8.136674686113, abs=1e-11)
    angles = sum(float(branch_cosine(UnitOutputs.of(modality))) for modality in (IMAGE, TEXT))
    assert angles == pytest.approx(RIGHT_ANGLES, abs=1e-11)


def test_module_adds_the_three_parts_with_weight_1() -> None:
    output = quest()(Features({"image": IMAGE, "text": TEXT}))
    terms = {name: float(value) for name, value in output.terms.items()}
    assert terms["p_uic"] == pytest.approx(8.136674686113, abs=1e-5)
    assert terms["cosine"] == pytest.approx(RIGHT_ANGLES, abs=1e-11)
    sic = float(info_nce(shared_pairs(IMAGE, TEXT), 10.0)[0])
    assert terms["sic"] == pytest.approx(sic, abs=1e-6)
    assert float(output.total) == pytest.approx(8.136674686113 + RIGHT_ANGLES + sic, abs=1e-5)


@pytest.mark.parametrize("row", ABLATION)
@pytest.mark.parametrize("pairs", [(), ((0, 2),), ((0, 2), (2, 0), (1, 3))])
def test_every_row_of_the_ablation_equals_the_slow_reference(
    row: str, pairs: tuple[tuple[int, int], ...]
) -> None:
    settings, parts = ABLATION[row]
    image, text = random_modalities(5)
    mask = mask_of(5, *pairs)
    output = quest(**settings)(Features({"image": image, "text": text}, mask))
    expected = slow_terms(image, text, mask, 1.0)
    assert set(output.terms) & set(expected) == parts
    for part in parts:
        assert float(output.terms[part]) == pytest.approx(expected[part], abs=1e-5)
    assert float(output.total) == pytest.approx(sum(expected[part] for part in parts), abs=1e-5)


@pytest.mark.parametrize("penalty", [0.0, 0.5, 3.0])
def test_penalty_has_its_strength(penalty: float) -> None:
    image, text = random_modalities(5)
    penalised = self_penalised(normal_pairs(image, text), shared_pairs(image, text), penalty)
    expected = slow_terms(image, text, mask_of(5), penalty)["p_uic"]
    assert float(quadruple_contrast(penalised, 10.0)) == pytest.approx(expected, abs=1e-11)


def test_cosine_term_has_its_weight_and_terms_are_detached() -> None:
    batch = batch_of(*tensors(*random_modalities(4)))
    plain, heavy = quest()(batch), quest(cosine_weight=3.0)(batch)
    difference = float((heavy.total - plain.total).detach())
    assert difference == pytest.approx(2 * float(plain.terms["cosine"]), abs=1e-12)
    assert not any(term.requires_grad for term in plain.terms.values())


@pytest.mark.parametrize("row", ["SIC", "SIC + SIC", "SIC + UIC", "UIC"])
def test_gradient_is_right(row: str) -> None:
    objective = quest(**ABLATION[row][0])
    mask = mask_of(4, (0, 2), (3, 1))

    def loss(*values: Tensor) -> Tensor:
        total: Tensor = objective(batch_of(*values, mask=mask)).total
        return total

    assert torch.autograd.gradcheck(loss, tensors(*random_modalities(4, dim=7)))


def test_gradient_is_right_with_the_self_penalisation_held_fixed() -> None:
    image, text = random_modalities(4, dim=7)
    mask = mask_of(4, (0, 2), (3, 1))
    fixed = shared_pairs(image, text, mask)

    def loss(penalty: Tensor, *values: Tensor) -> Tensor:
        normals = normal_pairs(outputs(*values[:2]), outputs(*values[2:]), mask)
        return quadruple_contrast(self_penalised(normals, fixed, penalty), 10.0)

    strength = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loss, (strength, *tensors(image, text)))
    inputs = tensors(image, text)
    torch.autograd.backward(quest(shared=False, cosine_weight=0.0)(batch_of(*inputs, mask=mask)).total)
    again = tensors(image, text)
    torch.autograd.backward(loss(torch.ones((), dtype=torch.float64), *again))
    for ours, theirs in zip(inputs, again, strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=1e-5)


def test_no_gradient_flows_through_the_self_penalisation() -> None:
    cosines = torch.rand((3, 3), dtype=torch.float64, requires_grad=True)
    normals = torch.rand((3, 3), dtype=torch.float64, requires_grad=True)
    penalised = self_penalised(of_square(normals), of_square(cosines), 1.0)
    torch.autograd.backward(quadruple_contrast(penalised, 10.0))
    assert cosines.grad is None
    assert normals.grad is not None


def test_factor_is_1_for_partners_and_for_what_points_apart() -> None:
    cosines = torch.tensor([[0.9, -0.5], [0.5, 2.0]], dtype=torch.float64)
    ones = of_square(torch.ones((2, 2), dtype=torch.float64))
    factor = self_penalised(ones, of_square(cosines), 2.0)
    expected = torch.tensor([[1.0, 1.0], [math.e, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(factor.rows.values, expected, rtol=0, atol=1e-14)
    torch.testing.assert_close(factor.columns.values, expected.T, rtol=0, atol=1e-14)
    assert float(self_penalised(ones, of_square(3 * cosines), 2.0).rows.values[1, 0]) == pytest.approx(
        math.e**2
    )


def test_sign_of_an_output_does_not_matter_to_normals_and_right_angles() -> None:
    image, text = random_modalities(5)
    assert image.unique is not None
    sign = torch.tensor([1, -1, 1, -1, -1], dtype=torch.float64).unsqueeze(1)
    objective = quest()
    there = objective(Features({"image": image, "text": text})).total
    flipped = replace(image, unique=sign * image.unique)
    back = objective(Features({"image": flipped, "text": text})).total
    torch.testing.assert_close(back, there, rtol=0, atol=1e-12)


def test_modalities_may_change_places() -> None:
    values, mask = tensors(*random_modalities(5)), mask_of(5, (0, 3))
    there = quest()(batch_of(*values, mask=mask)).total
    back = quest()(batch_of(*values[2:], *values[:2], mask=mask.T)).total
    torch.testing.assert_close(back, there, rtol=0, atol=1e-11)


def test_its_first_part_alone_is_infonce_and_needs_no_branches() -> None:
    values = tensors(*random_modalities(5))
    plain = features(values[0], values[2], mask_of(5, (0, 3)))
    objective = QuestSettings(unique="none").build(CONTEXT)
    assert objective.requires == frozenset()
    expected = InfoNCESettings().build(CONTEXT)(plain).total
    torch.testing.assert_close(objective(plain).total, expected)


@pytest.mark.parametrize("unique", ["sic", "uic", "p_uic"])
def test_a_model_without_branches_is_refused(unique: str) -> None:
    objective = QuestSettings.model_validate({"unique": unique}).build(CONTEXT)
    assert objective.requires == {"branches"}
    values = tensors(*random_modalities(3))
    with pytest.raises(RecipeError, match=r"model\.branches"):
        objective(features(values[0], values[2]))


def test_one_scale_serves_all_parts_and_learns_from_them() -> None:
    objective = QuestSettings(shared=False).build(CONTEXT)
    assert [name for name, _ in objective.named_parameters()] == ["scale.log_scale"]
    torch.autograd.backward(objective(batch_of(*tensors(*random_modalities(4)))).total)
    assert objective.scale.log_scale is not None
    assert objective.scale.log_scale.grad is not None
    assert objective.scale.log_scale.grad != 0


def test_a_learned_penalty_starts_where_it_is_told_and_only_falls() -> None:
    objective = QuestSettings(penalty=0.5, learnable_penalty=True).build(CONTEXT)
    output = objective(batch_of(*tensors(*random_modalities(4))))
    assert float(output.terms["penalty"]) == pytest.approx(0.5)
    torch.autograd.backward(output.total)
    assert objective.raw_penalty.grad is not None
    assert objective.raw_penalty.grad > 0
    with torch.no_grad():
        objective.raw_penalty.fill_(-50)
    assert 0 < float(torch.as_tensor(objective.penalty()).detach()) < 1e-20


@pytest.mark.parametrize("factor", [1.0, -1.0, 3.7, 0.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_parallel_outputs_give_a_finite_loss_and_gradient(factor: float, dtype: torch.dtype) -> None:
    values = [value.detach().to(dtype) for value in tensors(*random_modalities(4, dim=64))]
    values[1] = factor * values[0]
    values[3][:2] = values[2][:2]
    values = [value.requires_grad_() for value in values]
    total = quest()(batch_of(*values)).total
    torch.autograd.backward(total)
    assert torch.isfinite(total)
    for value in values:
        assert value.grad is not None
        assert torch.isfinite(value.grad).all()


def test_zero_vectors_give_a_finite_loss_and_gradient() -> None:
    values = [torch.zeros((3, 6), requires_grad=True) for _ in range(4)]
    total = QuestSettings().build(CONTEXT)(batch_of(*values)).total
    torch.autograd.backward(total)
    assert float(total.detach()) == pytest.approx(3 * math.log(3))
    assert all(value.grad is not None and torch.isfinite(value.grad).all() for value in values)


@pytest.mark.parametrize("row", ABLATION)
def test_a_batch_in_which_everything_matches_stays_finite(row: str) -> None:
    for size in (1, 3):
        values = tensors(*random_modalities(size))
        everything = torch.ones((size, size), dtype=torch.bool)
        torch.autograd.backward(quest(**ABLATION[row][0])(batch_of(*values, mask=everything)).total)
        grads = [value.grad for value in values if value.grad is not None]
        assert grads
        assert all(torch.isfinite(grad).all() for grad in grads)


@pytest.mark.parametrize("place", range(4))
def test_a_vector_that_is_no_number_is_not_hidden(place: int) -> None:
    values = [value.detach() for value in tensors(*random_modalities(3))]
    values[place][0, 0] = math.nan
    assert not torch.isfinite(quest()(batch_of(*values)).total)


@pytest.mark.parametrize("row", ABLATION)
def test_free_outputs_learn_to_find_each_other(row: str) -> None:
    settings, parts = ABLATION[row]
    values = tensors(*random_modalities(12, dim=12))
    optimizer = torch.optim.Adam(values, lr=0.05)
    objective = QuestSettings(**settings).build(CONTEXT)
    for _ in range(150):
        optimizer.zero_grad()
        torch.autograd.backward(objective(batch_of(*values)).total)
        optimizer.step()
    s_img, u_img, s_txt, u_txt = (value.detach() for value in values)
    if "sic" in parts:
        assert torch.equal(cosine_matrix(s_img, s_txt).argmax(dim=1), torch.arange(12))
    if "unique_sic" in parts:
        assert torch.equal(cosine_matrix(u_img, u_txt).argmax(dim=1), torch.arange(12))
    if "cosine" in parts:
        normals = normal_of(s_img, u_img) @ normal_of(s_txt, u_txt).T
        assert torch.equal(normals.abs().argmax(dim=1), torch.arange(12))
        assert torch.equal(normals.abs().argmax(dim=0), torch.arange(12))
        assert float(branch_cosine(UnitOutputs.of(outputs(s_img, u_img)))) < 0.1


@pytest.mark.parametrize(
    "wrong",
    [
        {"shared": False, "unique": "none"},
        {"unique": "none", "cosine_weight": 0.5},
        {"unique": "sic", "cosine_weight": 0.0},
        {"unique": "uic", "penalty": 2.0},
        {"unique": "uic", "learnable_penalty": True},
        {"penalty": 0.0, "learnable_penalty": True},
        {"penalty": -1.0},
        {"penalty": 1e3},
        {"unique": "quad"},
        {"temperature": 0.0},
        {"lambda": 1.0},
    ],
)
def test_settings_refuse_what_has_no_meaning(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        QuestSettings.model_validate(wrong)


@pytest.mark.parametrize("row", ABLATION)
def test_settings_written_out_in_full_are_read_again(row: str) -> None:
    settings = QuestSettings(**ABLATION[row][0])
    assert parse_objective(settings.model_dump(mode="json")) == settings
