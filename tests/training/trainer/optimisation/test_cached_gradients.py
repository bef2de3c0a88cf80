"""Batches encoded in chunks give the gradient of the whole batch."""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.training.models.tiny import SIZE, tiny_config, tiny_model, tiny_preprocessing
from training.models.dual_encoder import DualEncoder
from training.models.features import Features, ModalityFeatures
from training.models.preprocessing import TokenBatch
from training.objectives.base import Objective, ObjectiveContext, parse_objective
from training.trainer.batches import Inputs
from training.trainer.optimisation.cached_gradients import FeaturesBySource, backward_in_chunks, even_chunks

CPU = torch.device("cpu")
TEXTS = (
    "One. Two of them here. Three.",
    "A cat sits on the mat.",
    "Two dogs. A ball.",
    "x-ray",
    "No effusion. Clear lungs. A large heart. Old.",
    "red",
    "green grass",
)
MASK = torch.eye(len(TEXTS), dtype=torch.bool)
MASK[0, 3] = MASK[3, 0] = True


def encoder(**settings: Any) -> DualEncoder:
    """A model without batch norm, in float64 and in training mode."""
    config = tiny_config("convnext", "gru", **settings)
    return tiny_model(config).double().train()


def tokens() -> TokenBatch:
    preprocessing = tiny_preprocessing(text={"max_tokens": 32, "sentences": True})
    return preprocessing.text(TEXTS)


def inputs() -> Inputs:
    pixels = torch.rand((len(TEXTS), 3, SIZE, SIZE), generator=torch.Generator().manual_seed(1)).double()
    return Inputs(torch.arange(len(TEXTS)), len(TEXTS), pixels, tokens())


def objective_of(settings: dict[str, Any]) -> Objective:
    context = ObjectiveContext(dim=12, instances=20, target_dim=4)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return parse_objective(settings).build(context).double().train()


def whole_batch(objective: Objective, features: FeaturesBySource) -> Any:
    generator = torch.Generator().manual_seed(3)
    targets = torch.randn((len(TEXTS), 4), generator=generator).double()
    return objective.compute(Features(features, MASK, torch.arange(len(TEXTS)) * 2, {"targets": targets}))


def gradients(
    model: DualEncoder, objective: Objective, chunks: Sequence[slice] | None
) -> tuple[Tensor, dict[str, Tensor | None]]:
    """The loss and all gradients; None as chunks: in one ordinary backward pass."""
    both = nn.ModuleList([model, objective])
    both.zero_grad()
    batch = inputs()

    def encode(rows: slice) -> FeaturesBySource:
        some = batch.rows(rows)
        features: Features = model(some.images, some.tokens)
        return features.modalities

    if chunks is None:
        output = whole_batch(objective, encode(slice(None)))
        torch.autograd.backward(output.total)
    else:
        output = backward_in_chunks(model, encode, lambda f: whole_batch(objective, f), chunks, CPU)
    found = {name: p.grad for name, p in both.named_parameters() if p.requires_grad}
    return output.total.detach(), {name: None if g is None else g.clone() for name, g in found.items()}


BRANCHES = {"branches": {"kind": "mlp"}}
LOCAL = {"local_features": True, "local_head": {"kind": "mlp"}}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "infonce": ({"name": "infonce"}, {}),
    "sums": ({"name": "reco"}, {"blades": 2}),
    "quest": ({"name": "quest"}, BRANCHES),
    "quest concat": ({"name": "infonce"}, {**BRANCHES, "retrieval": "concat"}),
    "lovt": ({"name": "lovt"}, LOCAL),
    "uniformity": ({"name": "local_uniformity"}, LOCAL),
    "reclaim": ({"name": "reclaim", "neighbours": 4}, {}),
    "ltd": ({"name": "ltd"}, {}),
    "frozen": ({"name": "infonce"}, {"image_settings": {"frozen_layers": "all"}}),
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=() if case in ("sums", "reclaim", "ltd", "frozen") else pytest.mark.slow)
        for case in CASES
    ],
)
def test_chunks_give_the_gradient_of_the_whole_batch(case: str) -> None:
    settings, model_settings = CASES[case]
    model = encoder(**model_settings)
    loss, expected = gradients(model, objective_of(settings), None)
    assert sum(gradient is not None and bool(gradient.any()) for gradient in expected.values()) > 10
    for size in (1, 3):
        total, found = gradients(model, objective_of(settings), even_chunks(len(TEXTS), size))
        torch.testing.assert_close(total, loss, rtol=0, atol=1e-12)
        for name, gradient in expected.items():
            ours = found[name]
            if gradient is None or ours is None:
                # What the loss does not use gets nothing, or exactly nothing.
                assert gradient is None or not gradient.any()
                assert ours is None or not ours.any()
            else:
                torch.testing.assert_close(ours, gradient, rtol=0, atol=1e-10, msg=name)


def test_chunks_are_even_and_none_is_a_single_item_unless_asked_for() -> None:
    for largest in range(1, 6):
        for count in range(1, 20):
            chunks = even_chunks(count, largest)
            sizes = [chunk.stop - chunk.start for chunk in chunks]
            assert [place for chunk in chunks for place in range(count)[chunk]] == list(range(count))
            assert max(sizes) - min(sizes) <= 1
            assert max(sizes) <= (3 if largest == 2 else largest)
            assert min(sizes) > 1 or largest == 1 or count == 1
    for count, largest, expected in ((7, 3, [2, 2, 3]), (8, 4, [4, 4]), (3, 9, [3])):
        assert [chunk.stop - chunk.start for chunk in even_chunks(count, largest)] == expected


def test_every_field_of_features_is_carried() -> None:
    model = encoder(**BRANCHES, **LOCAL, concepts=3, text_settings={"pooling": "attention"})
    both = model(inputs().images, inputs().tokens).modalities.values()
    filled = {
        f.name for features in both for f in fields(ModalityFeatures) if getattr(features, f.name) is not None
    }
    # The frame of views is carried in test_momentum; regions are embedded outside of training alone.
    assert filled == {field.name for field in fields(ModalityFeatures)} - {"frame", "regions"}


@pytest.fixture
def dropping() -> Iterator[DualEncoder]:
    """An encoder whose every pass is another without the same random numbers."""
    model = encoder(text_settings={"head": {"kind": "mlp", "dropout": 0.5}})
    assert any(isinstance(module, nn.Dropout) and module.p == 0.5 for module in model.modules())
    yield model


def test_one_chunk_is_the_ordinary_pass_with_the_same_dropout(dropping: DualEncoder) -> None:
    def seeded(chunks: Sequence[slice] | None) -> tuple[Tensor, dict[str, Tensor | None], Tensor]:
        torch.manual_seed(11)
        loss, found = gradients(dropping, objective_of({"name": "infonce"}), chunks)
        return loss, found, torch.rand(3)

    loss, expected, drawn = seeded(None)
    total, found, drawn_then = seeded([slice(0, len(TEXTS))])
    assert torch.equal(total, loss)
    assert torch.equal(drawn, drawn_then)
    for name, gradient in expected.items():
        assert gradient is not None
        torch.testing.assert_close(found[name], gradient, rtol=0, atol=1e-12)
    torch.manual_seed(12)
    other, _ = gradients(dropping, objective_of({"name": "infonce"}), None)
    assert other != loss


def test_the_second_pass_of_a_chunk_drops_what_the_first_dropped(dropping: DualEncoder) -> None:
    """Were it not so, the recomputed features would not be those that the loss has seen."""
    seen: dict[int, list[Tensor]] = {}
    batch = inputs()

    def encode(rows: slice) -> FeaturesBySource:
        some = batch.rows(rows)
        features: Features = dropping(some.images, some.tokens)
        seen.setdefault(rows.start, []).append(features["text"].embedding.detach())
        return features.modalities

    objective = objective_of({"name": "infonce"})
    chunks = even_chunks(len(TEXTS), 3)
    backward_in_chunks(dropping, encode, lambda f: whole_batch(objective, f), chunks, CPU)
    assert len(seen) == 3
    for first, second in seen.values():
        assert torch.equal(first, second)


def test_batch_norm_counts_each_chunk_once() -> None:
    model = tiny_model(tiny_config("resnet", "gru")).double().train()
    gradients(model, objective_of({"name": "infonce"}), even_chunks(len(TEXTS), 3))
    counts = {int(value) for name, value in model.named_buffers() if name.endswith("num_batches_tracked")}
    assert counts == {3}
