"""Low-rank updates of frozen towers, and gradients without kept activations."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.training.conversion import folders
from tests.training.trainer.scenes import run, stop_and_resume, tiny_recipe
from training.common.errors import RecipeError
from training.common.manifest import read_manifest
from training.conversion.convert import convert
from training.evaluation.embedding import embed_manifest
from training.evaluation.evaluate import measure
from training.models.bundle import read_bundle
from training.models.encoder import load_encoder, load_trainable
from training.recipes.schema import LoraSettings, Recipe
from training.trainer.optimisation.lora import add_lora, merge_lora
from training.trainer.setup import checkpoint_gradients


@pytest.fixture(
    scope="module",
    params=[folders.clip, pytest.param(folders.siglip_2, marks=pytest.mark.slow)],
    ids=["clip", "siglip"],
)
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published encoder with a class token and heads, and one without."""
    folder = tmp_path_factory.mktemp("published")
    # From some weights no step leads to a better model, and the bundle has those of the start.
    torch.manual_seed(0)
    request.param(folder / "model")
    return convert(str(folder / "model"), folder / "bundle", name="published").bundle.folder


def lora_recipe(bundle: Path, **settings: Any) -> Recipe:
    lora = {"rank": 2, "lr": 1e-2, "dropout": 0.1}
    return tiny_recipe(start_from=str(bundle), lora=lora, optimizer={"lr": 1e-3}, **settings)


def test_updates_begin_at_zero_are_all_that_is_learned_of_towers_and_are_added_exactly(bundle: Path) -> None:
    model, preprocessing = load_trainable(read_bundle(bundle))
    model.eval()
    pixels, tokens = torch.randn(3, 3, 64, 64), preprocessing.text(["a dog", "two dogs", "a red hat"])
    with torch.no_grad():
        before = model(pixels, tokens)
        add_lora(model, LoraSettings(rank=2))
        same = model(pixels, tokens)
    learned = [name for name, value in model.named_parameters() if value.requires_grad]
    assert [name for name in learned if "backbone" in name]
    assert all("lora_" in name for name in learned if "backbone" in name)
    assert sum(value.numel() for value in model.tower_parameters()) < 20_000
    for parameter in model.tower_parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    with torch.no_grad():
        changed = model(pixels, tokens)
        merge_lora(model)
        merged = model(pixels, tokens)
    for modality in ("image", "text"):
        torch.testing.assert_close(same[modality].embedding, before[modality].embedding)
        assert not torch.allclose(changed[modality].embedding, before[modality].embedding, atol=1e-2)
        torch.testing.assert_close(
            merged[modality].embedding, changed[modality].embedding, atol=1e-4, rtol=1e-4
        )
    assert not [name for name in model.state_dict() if "lora" in name or "base_layer" in name]


@pytest.mark.parametrize("ema_decay", [pytest.param(None, marks=pytest.mark.slow), 0.3])
def test_the_bundle_has_the_updates_in_its_weights(
    bundle: Path, scenes: Path, tmp_path: Path, ema_decay: float | None
) -> None:
    result = run(lora_recipe(bundle, ema_decay=ema_decay), scenes, tmp_path / "out")
    before, after = (load_file(folder / "model.safetensors") for folder in (bundle, result.bundle))
    assert before.keys() == after.keys()
    towers = [name for name in before if ".backbone." in name]
    changed = [name for name in towers if not torch.equal(before[name], after[name])]
    assert changed
    for name in changed:
        update = (after[name] - before[name]).double()
        # Factors are averaged, so the rank stays.
        assert torch.linalg.matrix_rank(update, rtol=1e-3) <= 2
    encoder = load_encoder(result.bundle, "cpu")
    embedded = embed_manifest(encoder, read_manifest(scenes).split("val"), show_progress=False)
    figures = measure(encoder, embedded, label_template="{labels}").metrics()
    assert figures["rsum"] == pytest.approx(result.metrics["rsum"])


def test_a_stopped_run_goes_on_to_the_same_weights(bundle: Path, scenes: Path, tmp_path: Path) -> None:
    recipe = lora_recipe(bundle, epochs=1)
    straight = run(recipe, scenes, tmp_path / "straight").bundle
    resumed = stop_and_resume(recipe, scenes, tmp_path / "out", 2).bundle
    assert read_bundle(resumed).digest == read_bundle(straight).digest


@pytest.mark.parametrize("settings", [{"lora": {"rank": 2}}, {"gradient_checkpointing": True}], ids=str)
def test_convolutional_and_frozen_towers_are_refused(
    settings: dict[str, Any], scenes: Path, tmp_path: Path
) -> None:
    (name,) = settings
    with pytest.raises(RecipeError, match=rf"train\.{name} .* transformer layers of transformers"):
        run(tiny_recipe(**settings), scenes, tmp_path / "out")


def test_gradients_are_those_of_kept_activations(bundle: Path) -> None:
    found = []
    for checkpointed in (False, True):
        model, preprocessing = load_trainable(read_bundle(bundle))
        model.train()
        if checkpointed:
            checkpoint_gradients(model)
        generator = np.random.default_rng(0)
        pixels = torch.from_numpy(generator.normal(size=(3, 3, 64, 64)).astype(np.float32))
        kept: list[int] = []

        def save(value: torch.Tensor, kept: list[int] = kept) -> torch.Tensor:
            kept.append(value.numel())
            return value

        with torch.autograd.graph.saved_tensors_hooks(save, lambda value: value):
            features = model(pixels, preprocessing.text(["a dog", "two dogs", "a red hat"]))
        (features["image"].embedding * features["text"].embedding).sum().backward()
        gradients = {name: value.grad for name, value in model.named_parameters() if value.grad is not None}
        found.append((gradients, sum(kept)))
    (plain, much), (again, little) = found
    assert plain.keys() == again.keys()
    for name, gradient in plain.items():
        torch.testing.assert_close(again[name], gradient)
    assert little < much / 2
