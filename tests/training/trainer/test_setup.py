"""What a run is made of."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.trainer.scenes import tiny_recipe
from training.common.errors import RecipeError
from training.common.manifest import Manifest, Record, Rejections
from training.recipes.load import load_recipe, parse_recipe
from training.recipes.schema import Recipe
from training.trainer.run_state import devices
from training.trainer.run_state.devices import build_fabric
from training.trainer.setup import Extras, build_objective, thaw_random_towers


def test_random_towers_are_not_frozen_and_pretrained_ones_are(caplog: pytest.LogCaptureFixture) -> None:
    recipe = load_recipe("reco-flickr-small", ["model.text.pretrained=somewhere"])
    assert recipe.model.text is not None
    assert recipe.model.image.frozen_layers and recipe.model.text.frozen_layers

    with caplog.at_level(logging.WARNING):
        thawed = thaw_random_towers(recipe)

    assert thawed.model.image.frozen_layers == 0
    assert thawed.model.text == recipe.model.text
    assert "model.image.pretrained" in caplog.text
    assert "model.text.pretrained" not in caplog.text


@pytest.mark.parametrize("tower", ["image", "text", "audio"])
def test_more_frozen_layers_than_there_are_are_refused_for_random_towers_too(tower: str) -> None:
    tree = tiny_recipe().model_dump(mode="json")
    tree["model"]["audio"] = {"architecture": "audio_cnn", "options": {"mels": 16, "width": 8, "layers": 2}}
    layers = 1 if tower == "text" else 2
    tree["model"][tower]["frozen_layers"] = layers
    thaw_random_towers(parse_recipe(tree, "As many"))
    tree["model"][tower]["frozen_layers"] = layers + 1
    with pytest.raises(RecipeError, match=rf"model\.{tower}\.frozen_layers is .* has {layers} layers"):
        thaw_random_towers(parse_recipe(tree, "Too many"))


@pytest.mark.parametrize(("native", "precision"), [(True, "bf16-mixed"), (False, "32-true")])
def test_bfloat16_is_chosen_only_where_the_gpu_itself_has_it(
    monkeypatch: pytest.MonkeyPatch, native: bool, precision: str
) -> None:
    chosen: dict[str, Any] = {}

    def supported(including_emulation: bool = True) -> bool:
        return native or including_emulation

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
    monkeypatch.setattr(devices, "choose_device", torch.device)
    monkeypatch.setattr(devices, "Fabric", lambda **settings: chosen.update(settings))
    build_fabric("auto", "cuda:1")
    assert chosen == {"accelerator": "cuda", "devices": [1], "precision": precision}


@pytest.fixture
def two_of_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process as one of two that torchrun has started."""
    monkeypatch.setattr(devices, "launched_processes", lambda: 2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")


@pytest.mark.usefixtures("two_of_torchrun")
def test_each_process_needs_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "choose_device", torch.device)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(RecipeError, match=r"1 GPUs here for 2 processes.*--nproc-per-node"):
        build_fabric("fp32", "cuda")
    with pytest.raises(RecipeError, match="without a number"):
        build_fabric("fp32", "cuda:1")


@pytest.mark.usefixtures("two_of_torchrun")
def test_gpus_speak_over_nccl_and_cpus_over_gloo(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: dict[str, Any] = {}
    monkeypatch.setattr(devices, "choose_device", torch.device)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(devices, "Fabric", lambda **settings: chosen.update(settings))
    for device, backend, places in (("cuda", "nccl", [0, 1]), ("cpu", "gloo", 2)):
        build_fabric("bf16", device)
        assert chosen["strategy"].process_group_backend == backend
        assert (chosen["devices"], chosen["num_nodes"], chosen["precision"]) == (places, 1, "bf16-mixed")


def test_images_that_show_the_same_share_a_group(tmp_path: Path) -> None:
    def record(number: int, image: str, study: str | None = None) -> Record:
        metadata = {} if study is None else {"study": study}
        return Record(id=str(number), image=image, split="train", texts=("a",), metadata=metadata)

    recipe = tiny_recipe()
    remembering = parse_recipe(
        {**recipe.model_dump(mode="json"), "objective": {"name": "reclaim"}}, "The recipe"
    )
    by_study = remembering.model_copy(
        update={"data": remembering.data.model_copy(update={"one_image_per": "study"})}
    )
    records = (record(0, "a.png", "x"), record(1, "b.png", "x"), record(2, "c.png"), record(3, "c.png", "y"))

    def groups(recipe: Recipe, records: tuple[Record, ...]) -> list[int] | None:
        split = Manifest(tmp_path, records, Rejections(len(records)))
        found = dict(build_objective(recipe, split, Extras()).named_buffers())
        name = next((name for name in found if name.endswith("first_bank.groups")), None)
        return None if name is None else found[name].tolist()

    assert groups(remembering, records) == [0, 1, 2, 2]
    assert groups(by_study, records) == [0, 0, 1, 2]
