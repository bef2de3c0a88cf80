"""What a run is made of: towers, devices, words, labels, groups, and the temperature that towers bring."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tests.training.models.test_pretrained import DIM, config_of, write_clip, write_siglip
from tests.training.models.tiny import SIZE, write_tokenizer
from tests.training.runs import lines
from tests.training.trainer.scenes import run, tiny_recipe
from training.common.errors import RecipeError
from training.common.manifest import Manifest, Record, Rejections, read_manifest, write_manifest
from training.models.bundle import read_bundle
from training.models.config import DualEncoderConfig
from training.recipes.library import shipped
from training.recipes.load import load_recipe
from training.recipes.schema import Recipe
from training.samples import write_sample_data
from training.trainer.run_state import devices
from training.trainer.run_state.devices import build_fabric
from training.trainer.setup import (
    ObjectiveResources,
    build_objective,
    thaw_random_towers,
    usable_records,
    with_temperature,
)

CPU = torch.device("cpu")
WRITES: dict[str, Any] = {
    "model": {"text": None, "local_features": True, "share_local_head": True},
    "objective": {"name": "caption_lstm", "width": 16},
    "select_by": "loss",
}


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


@pytest.mark.parametrize(("tower", "layers"), [("image", 2), ("text", 1), ("audio", 2)])
def test_more_frozen_layers_than_there_are_are_refused_for_random_towers_too(tower: str, layers: int) -> None:
    def frozen(count: int) -> Recipe:
        audio = {"architecture": "audio_cnn", "options": {"mels": 16, "width": 8, "layers": 2}}
        towers: dict[str, Any] = {"image": {}, "text": {}, "audio": audio}
        towers[tower] = towers[tower] | {"frozen_layers": count}
        return tiny_recipe(model=towers)

    thaw_random_towers(frozen(layers))
    with pytest.raises(RecipeError, match=rf"model\.{tower}\.frozen_layers is .* has {layers} layers"):
        thaw_random_towers(frozen(layers + 1))


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What Fabric is made with, on a machine whose devices are all there."""
    settings: dict[str, Any] = {}
    monkeypatch.setattr(devices, "choose_device", torch.device)
    monkeypatch.setattr(devices, "Fabric", lambda **given: settings.update(given))
    return settings


@pytest.mark.parametrize(("native", "precision"), [(True, "bf16-mixed"), (False, "32-true")])
def test_bfloat16_is_chosen_only_where_the_gpu_itself_has_it(
    chosen: dict[str, Any], monkeypatch: pytest.MonkeyPatch, native: bool, precision: str
) -> None:
    def supported(including_emulation: bool = True) -> bool:
        return native or including_emulation

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
    build_fabric("auto", "cuda:1")
    assert chosen == {"accelerator": "cuda", "devices": [1], "precision": precision}


def test_processes_have_a_gpu_each_and_speak_over_nccl_and_those_of_cpus_over_gloo(
    chosen: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "launched_processes", lambda: 2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(RecipeError, match=r"1 GPUs here for 2 processes.*--nproc-per-node"):
        build_fabric("fp32", "cuda")
    with pytest.raises(RecipeError, match="without a number"):
        build_fabric("fp32", "cuda:1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for device, backend, places in (("cuda", "nccl", [0, 1]), ("cpu", "gloo", 2)):
        build_fabric("bf16", device)
        assert chosen["strategy"].process_group_backend == backend
        assert (chosen["devices"], chosen["num_nodes"], chosen["precision"]) == (places, 1, "bf16-mixed")


def test_images_that_show_the_same_share_a_group(tmp_path: Path) -> None:
    def record(number: int, image: str, study: str | None = None) -> Record:
        metadata = {} if study is None else {"study": study}
        return Record(id=str(number), image=image, split="train", texts=("a",), metadata=metadata)

    records = (record(0, "a.png", "x"), record(1, "b.png", "x"), record(2, "c.png"), record(3, "c.png", "y"))
    split = Manifest(tmp_path, records, Rejections(len(records)))
    for one_per, expected in ((None, [0, 1, 2, 2]), ("study", [0, 0, 1, 2])):
        recipe = tiny_recipe(objective={"name": "reclaim"}, data={"one_image_per": one_per})
        objective = build_objective(recipe, split, ObjectiveResources())
        (groups,) = (value for name, value in objective.named_buffers() if name.endswith("first_bank.groups"))
        assert groups.tolist() == expected


def test_words_are_learned_from_the_train_split_or_those_of_a_folder(scenes: Path, tmp_path: Path) -> None:
    train_split = read_manifest(scenes).split("train")

    def captions(**settings: Any) -> Any:
        recipe = tiny_recipe(data={"captions": settings}, **WRITES)
        return ObjectiveResources.of_run(recipe, train_split, CPU).captions

    learned = captions()
    (ids,) = learned(["a red zebra"]).input_ids.tolist()
    backend = json.loads(learned.tokenizer.to_json())
    words = {number: word for word, number in backend["model"]["vocab"].items()}
    assert [words[number] for number in ids] == ["<start>", "a", "red", "<unknown>", "<end>"]
    assert len(captions(vocabulary="pieces", vocabulary_size=300)(["zebra"]).input_ids[0]) > 3
    write_tokenizer(tmp_path)
    assert captions(pretrained=str(tmp_path)).tokenizer.size == 300
    with pytest.raises(RecipeError, match="none"):
        captions(pretrained=str(tmp_path / "none"))


def test_images_without_a_text_are_left_out(scenes: Path) -> None:
    split = read_manifest(scenes).split("train")
    silent = replace(split.records[0], texts=(), labels=())
    some = replace(split, records=(silent, *split.records[1:]))
    recipe = tiny_recipe(data={"captions": {}}, **WRITES)
    assert usable_records(recipe, some, frozenset({"image"})).records == split.records[1:]


def test_concepts_are_the_words_of_texts_and_no_more_than_there_are(scenes: Path, tmp_path: Path) -> None:
    def recipe(concepts: int, name: str = "sco") -> Recipe:
        objective = {"name": name, "width": 8} if name == "sco" else {"name": name}
        data: dict[str, Any] = {"captions": {}} if name == "sco" else {}
        return tiny_recipe(steps=2, model={"concepts": concepts}, objective=objective, data=data)

    labelling = ObjectiveResources.of_run(recipe(4), read_manifest(scenes).split("train"), CPU).labelling
    assert labelling is not None
    # Of "a red square number 3" and "something red and 3 more".
    assert labelling.names == ("more", "number", "something", "square")
    assert labelling.of_texts
    assert read_bundle(run(recipe(4), scenes, tmp_path / "out").bundle).config.text is not None
    with pytest.raises(RecipeError, match=r"8 words .* set model\.concepts to 8 or less"):
        run(recipe(9), scenes, tmp_path / "wrong")
    with pytest.raises(RecipeError, match=r"vse doesn't use model\.concepts"):
        run(recipe(4, "vse"), scenes, tmp_path / "wrong")


def test_data_without_labels_are_refused(scenes: Path, tmp_path: Path) -> None:
    (tmp_path / "images").symlink_to(scenes / "images")
    records = read_manifest(scenes).records
    write_manifest(tmp_path, [replace(record, labels=()) for record in records])
    recipe = tiny_recipe(select_by="loss", model={"text": None}, objective={"name": "labels"})
    with pytest.raises(RecipeError, match="add `labels` to images of the train split"):
        run(recipe, tmp_path, tmp_path / "out")


def recipe_of(model: DualEncoderConfig, objective: dict[str, Any], **train: Any) -> Recipe:
    tree = model.model_dump(mode="json")
    return tiny_recipe(model=tree, objective=objective, preprocessing={"image": {"size": SIZE}}, **train)


def temperature_of(recipe: Recipe) -> Any:
    settings: Any = recipe.objective
    while hasattr(settings, "base"):
        settings = settings.base
    return settings.temperature


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_clip(tmp_path_factory.mktemp("clip"))


@pytest.mark.parametrize(
    "objective",
    [
        {"name": "infonce"},
        {"name": "infonce", "temperature": "pretrained"},
        {"name": "quest", "unique": "none"},
        {"name": "ifm"},
        {"name": "ltd"},
        {"name": "reclaim", "base": {"name": "ltd"}},
    ],
    ids=str,
)
def test_a_recipe_without_a_temperature_takes_that_of_its_towers(
    objective: dict[str, Any], clip: Path
) -> None:
    settled = with_temperature(recipe_of(config_of(clip), objective))
    assert temperature_of(settled) == pytest.approx(0.01, rel=1e-6)
    if "temperature" not in objective:
        assert temperature_of(with_temperature(recipe_of(config_of(None), objective))) == 0.07
    named = recipe_of(config_of(clip), {"name": "ifm", "base": {"name": "infonce", "temperature": 0.1}})
    assert with_temperature(named) == named


def test_a_temperature_that_towers_do_not_bring_is_refused(tmp_path: Path) -> None:
    siglip = config_of(write_siglip(tmp_path), family="siglip", dim=16)
    for model in (config_of(None), siglip):
        asked = recipe_of(model, {"name": "quest", "unique": "none", "temperature": "pretrained"})
        with pytest.raises(RecipeError, match=r"give one CLIP to both .* or set the objective's temperature"):
            with_temperature(asked)


def test_a_run_starts_there_and_one_that_starts_from_its_bundle_too(clip: Path, tmp_path: Path) -> None:
    write_sample_data(tmp_path / "data", images=16, size=32)
    start = None
    for name in ("first", "second"):
        recipe = recipe_of(config_of(clip), {"name": "infonce"}, steps=1, start_from=start)
        bundle = read_bundle(run(recipe, tmp_path / "data/scenes", tmp_path / name).bundle)
        figures = next(line for line in lines(tmp_path / name) if line["kind"] == "train")
        assert figures["temperature"] == pytest.approx(0.01, rel=1e-4)
        assert bundle.dim == DIM
        start = str(bundle.folder)
    first = read_bundle(tmp_path / "first/bundle")
    assert yaml.safe_load(first.recipe)["objective"]["temperature"] == pytest.approx(0.01, rel=1e-6)


def test_shipped_recipes_of_clip_alone_name_no_temperature() -> None:
    library = shipped()
    named = {}
    for name in (name for file in library.files for name in file.recipes):
        tree = library.tree(name)
        towers = [tree.get("model", {}).get(modality) or {} for modality in ("image", "text")]
        if all("clip" in str(tower.get("architecture")) for tower in towers):
            recipe = load_recipe(name)
            if '"temperature"' in recipe.objective.model_dump_json():
                named[name] = temperature_of(recipe)
    assert len(named) == 26
    assert set(named.values()) == {"auto"}
