import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.recipes.shrink import first_runs
from training.common.errors import RecipeError
from training.models.config import DualEncoderConfig
from training.objectives.base import ObjectiveConfig, parse_objective
from training.recipes.library import shipped
from training.recipes.load import dump_recipe, first_difference, list_recipes, load_recipe, parse_recipe

NAMES = first_runs(shipped())
PUBLISHED = ["reco-mimic-cxr", "infonce-mimic-cxr", "reco-flickr30k", "infonce-flickr30k"]
SMALL = ["reco-flickr-small", "infonce-flickr-small", "reco-cxr-small", "infonce-cxr-small"]

PAIRS = list(zip(PUBLISHED[::2] + SMALL[::2], PUBLISHED[1::2] + SMALL[1::2], strict=True))


def test_all_promised_recipes_are_there() -> None:
    assert {*PUBLISHED, *SMALL, "demo-radiographs", "demo-scenes"} <= set(NAMES)


def objective(name: str, **settings: Any) -> ObjectiveConfig:
    return parse_objective({"name": name, **settings})


@pytest.mark.parametrize("name", NAMES)
def test_recipe_says_who_it_is_and_survives_writing(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name.replace("::", "-")
    assert recipe.description
    assert recipe.source
    path = tmp_path / "copy.yaml"
    path.write_text(dump_recipe(recipe), encoding="utf-8")
    assert load_recipe(str(path)) == recipe


@pytest.mark.parametrize(("reco", "infonce"), PAIRS)
def test_both_objectives_train_under_the_same_settings(reco: str, infonce: str) -> None:
    ours, theirs = load_recipe(reco), load_recipe(infonce)
    assert (ours.objective.name, theirs.objective.name) == ("reco", "infonce")
    named = {"name", "description", "source", "objective"}
    assert ours.model_dump(exclude=named) == theirs.model_dump(exclude=named)


# What an objective cannot do without, beside itself.
NEEDS: dict[str, set[str]] = {
    "orthogonality-flickr-small": set(),
    "vse-flickr-small": set(),
    "ifm-flickr-small": set(),
    "reclaim-flickr-small": set(),
    "blade2-flickr-small": {"model.blades"},
    "quest-flickr-small": {"model.branches"},
    "ltd-flickr-small": {"data.target_encoder"},
    "lovt-cxr-small": {
        "model.image.pooling",
        "model.text.pooling",
        "model.local_features",
        "preprocessing.text.sentences",
        "data.text_unit",
    },
}
NEEDS["uniformity-cxr-small"] = NEEDS["lovt-cxr-small"] | {"model.share_local_head"}


@pytest.mark.parametrize("name", NEEDS)
def test_small_recipes_differ_in_their_objective_and_what_it_needs(name: str) -> None:
    base = load_recipe(f"reco-{name.partition('-')[2]}")
    dumps = [one.model_dump(exclude={"name", "description", "source"}) for one in (load_recipe(name), base)]
    ours, theirs = (dict(leaves(dump)) for dump in dumps)
    changed = {key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)}
    assert {key for key in changed if not key.startswith("objective.")} == NEEDS[name]


def leaves(tree: Mapping[str, Any], key: str = "") -> Iterator[tuple[str, object]]:
    """Every setting by its dotted key; branches as one."""
    for name, value in tree.items():
        inner = f"{key}.{name}".removeprefix(".")
        if isinstance(value, dict) and name != "branches":
            yield from leaves(value, inner)
        else:
            yield inner, value


def test_mimic_settings_are_the_paper_s() -> None:
    recipe = load_recipe("reco-mimic-cxr")
    assert recipe.objective == objective("reco", negative_weight=0.6, reduction="paper")
    assert (recipe.train.batch_size, recipe.train.steps, recipe.model.dim) == (64, 300_000, 512)
    optimizer = recipe.optimizer
    assert (optimizer.name, optimizer.lr, optimizer.weight_decay) == ("adam", 1e-4, 1e-6)
    assert recipe.schedule.name == "cosine"
    text = recipe.model.text
    assert text is not None
    assert (text.frozen_layers, text.pooling) == (6, "max")
    assert recipe.model.image.head.kind == text.head.kind == "mlp"
    baseline = load_recipe("infonce-mimic-cxr").objective
    assert baseline == objective("infonce", image_weight=0.75, temperature=0.1, learnable_temperature=False)


def test_flickr30k_settings_are_the_paper_s() -> None:
    recipe = load_recipe("reco-flickr30k")
    assert (recipe.train.batch_size, recipe.train.steps) == (64, 80_000)
    assert (recipe.optimizer.lr, recipe.optimizer.weight_decay) == (1e-6, 1e-2)
    assert recipe.model.image.architecture == "clip_resnet"
    assert recipe.model.text is not None
    assert recipe.model.image.head.kind == recipe.model.text.head.kind == "linear"


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_augmentation(name: str) -> None:
    changes = load_recipe(name).augmentation
    assert (changes.flip, changes.rotation, changes.translation) == (0.5, 20, 0.1)
    assert changes.scale == (0.75, 1.25)
    assert (changes.brightness, changes.contrast) == (0.4, 0.4)
    assert (changes.blur_kernel, changes.blur_sigma) == (5, (0.1, 3.0))


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("optimizer.lr=1e-4", "optimizer.lr", 1e-4),
        ("optimizer.tower_lr=null", "optimizer.tower_lr", None),
        ("optimizer.betas=[0.9, 0.98]", "optimizer.betas", (0.9, 0.98)),
        ("augmentation.scale=[0.5, 2]", "augmentation.scale", (0.5, 2.0)),
        ("data.label_sentences=true", "data.label_sentences", True),
        ("model.image.frozen_layers=all", "model.image.frozen_layers", "all"),
        ("model.text.pretrained=/a/b=c", "model.text.pretrained", "/a/b=c"),
        ("name=other", "name", "other"),
        ("model.text.options={width: 32}", "model.text.options", {"width": 32}),
        ("model.text.options.width=32", "model.text.options.width", 32),
    ],
)
def test_override_has_the_type_that_yaml_gives_it(override: str, key: str, value: object) -> None:
    found: object = load_recipe("demo-scenes", [override])
    for part in key.split("."):
        found = found[part] if isinstance(found, dict) else getattr(found, part)
    assert found == value
    assert type(found) is type(value)


def test_later_override_wins() -> None:
    recipe = load_recipe("demo-scenes", ["train.seed=1", "train.seed=2"])
    assert recipe.train.seed == 2


def test_another_objective_starts_from_its_own_settings() -> None:
    recipe = load_recipe("reco-mimic-cxr", ["objective.name=infonce", "objective.temperature=0.2"])
    assert recipe.objective == objective("infonce", temperature=0.2)
    same = load_recipe("reco-mimic-cxr", ["objective.name=reco", "objective.negative_weight=0.3"])
    assert same.objective == objective("reco", negative_weight=0.3)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.batch_sise=3", r"no setting train\.batch_sise; the nearest is train\.batch_size\.$"),
        (
            "objective.temprature=3",
            r"no setting objective\.temprature; the nearest is objective\.temperature\.",
        ),
        (
            "model.image.head.kindd=mlp",
            r"no setting model\.image\.head\.kindd; the nearest is model\.image\.head\.kind\.",
        ),
        ("zzz=1", "no setting zzz; there are name, description"),
        ("objective.name=softmax", r"objective: 'softmax' is not an objective; there are .*infonce"),
        ("optimizer.lr=fast", r"optimizer\.lr: .*number.*'fast'"),
        ("train.chunk_size=many", r"train\.chunk_size: .*integer.* or 'auto' or null, not 'many'\.$"),
        ("optimizer.betas=0.9", r"optimizer\.betas: give a list, such as \[0\.9, 0\.999\], not 0\.9\.$"),
        ("optimizer.betas=[0.9]", r"optimizer\.betas has too few values: give a list, such as \[0\.9, 0"),
        ("optimizer.lr=-1", r"optimizer\.lr: .*greater than 0, not -1"),
        ("model.image.architecture=resnat", r"model\.image\.architecture: .*'resnet'.*'resnat'"),
        ("augmentation.scale=[1, x]", r"augmentation\.scale\.1: "),
        ("objective.base.name=reco", r"objective\.base: this objective has no base.*ifm, ltd, reclaim"),
        (
            "data.shortcut={kind: unique, modalities: [audio]}",
            r"data\.shortcut\.modalities: choose \[image, text\], \[image\] or \[text\]\.$",
        ),
        ("augmentation.blur_kernel=4", "blur_kernel is odd"),
        ("augmentation.scale=[2, 1]", "scale goes from a smaller to a larger"),
        ("data.label_template=nothing here", "needs {labels}"),
        ("train.steps=5", r"exactly one of train\.steps and train\.epochs"),
        ("model=3", "model: "),
        ("train.seed", "not of the form"),
        ("=3", "not of the form"),
        ("train..seed=3", "not of the form"),
        ("train.seed=[", "not valid YAML"),
    ],
)
def test_wrong_override_is_one_sentence_that_names_the_key(override: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message) as caught:
        load_recipe("infonce-mimic-cxr" if override == "train.batch_sise=3" else "demo-scenes", [override])
    assert "\n" not in str(caught.value)


def test_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(
        RecipeError, match=r"recipe 'reco-flikr30k' \(the nearest is reco-flickr30k\): choose"
    ):
        load_recipe("reco-flikr30k")
    with pytest.raises(RecipeError, match="cannot be read"):
        load_recipe("nowhere/recipe.yaml")


def write(path: Path, content: dict[str, object]) -> str:
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return str(path)


def test_file_may_build_on_a_recipe(tmp_path: Path) -> None:
    path = write(
        tmp_path / "mine.yaml",
        {"base": "demo-scenes", "name": "mine", "train": {"seed": 7}, "objective": {"name": "reco"}},
    )
    mine, base = load_recipe(path), load_recipe("demo-scenes")
    assert mine.objective == objective("reco")
    assert mine.train == base.train.model_copy(update={"seed": 7})
    assert mine.model == base.model


def test_a_tower_of_another_architecture_starts_from_its_own_options(tmp_path: Path) -> None:
    small = {"architecture": "vit", "options": {"hidden_size": 96}}
    path = write(tmp_path / "vit.yaml", {"base": "demo-scenes", "model": {"image": small}})
    assert load_recipe(path).model.image.options == {"hidden_size": 96}
    set_one = load_recipe(
        "demo-scenes", ["model.image.architecture=vit", "model.image.options.hidden_size=96"]
    )
    assert set_one.model.image == load_recipe(path).model.image
    base = load_recipe("demo-scenes")
    assert set_one.model.text == base.model.text
    assert load_recipe("demo-scenes", ["model.image.architecture=resnet"]).model == base.model


def test_bases_have_bases(tmp_path: Path) -> None:
    first = write(tmp_path / "first.yaml", {"base": "demo-scenes", "train": {"seed": 7}})
    second = write(tmp_path / "second.yaml", {"base": first, "name": "second"})
    expected = load_recipe("demo-scenes", ["name=second", "train.seed=7"])
    assert load_recipe(second) == expected


def test_bases_that_lead_back_are_named(tmp_path: Path) -> None:
    first, second = str(tmp_path / "first.yaml"), str(tmp_path / "second.yaml")
    write(Path(first), {"base": second})
    write(Path(second), {"base": first})
    with pytest.raises(RecipeError, match=r"loop, .*first\.yaml > .*second\.yaml > .*first\.yaml\."):
        load_recipe(first)


def test_overrides_leave_the_next_reader_alone() -> None:
    before = load_recipe("demo-radiographs")
    load_recipe("demo-radiographs", ["model.text.options.width=32"])
    assert load_recipe("demo-radiographs") == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a\nname: b\n", "name is given twice"),
        ("- a\n- b\n", "not a mapping"),
        ("name: [\n", "not valid YAML"),
        ("name: !!python/object/apply:os.getcwd []\n", "not valid YAML"),
        ("name: a\n", "is missing"),
        ("[1]: a\n", "not valid YAML"),
    ],
)
def test_wrong_file_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RecipeError, match=message) as caught:
        load_recipe(str(path))
    assert "\n" not in str(caught.value)


@settings(max_examples=10, deadline=None)
@given(st.floats(min_value=1e-12, max_value=1e6), st.integers(2, 10**9), st.text(max_size=20))
def test_every_value_survives_writing(lr: float, batch: int, description: str) -> None:
    recipe = load_recipe("demo-scenes")
    changed = recipe.model_copy(
        update={
            "description": description,
            "optimizer": recipe.optimizer.model_copy(update={"lr": lr}),
            "train": recipe.train.model_copy(update={"batch_size": batch}),
        }
    )
    assert parse_recipe(yaml.safe_load(dump_recipe(changed)), "copy") == changed


def test_where_images_are_kept_makes_no_other_recipe() -> None:
    recipe = load_recipe("demo-scenes")
    for kept in ("true", "memory", "false"):
        assert first_difference(recipe, load_recipe("demo-scenes", [f"data.cache_images={kept}"])) is None


def test_first_difference_is_a_dotted_key() -> None:
    recipe = load_recipe("demo-scenes")
    assert first_difference(recipe, load_recipe("demo-scenes")) is None
    assert first_difference(recipe, load_recipe("demo-scenes", ["optimizer.lr=1"])) == "optimizer.lr"
    other = load_recipe("demo-scenes", ["objective.name=reco"])
    assert (first_difference(recipe, other) or "").startswith("objective.")
    assert isinstance(recipe.model, DualEncoderConfig)


def test_papers_that_count_epochs_of_captions_go_through_all_of_them() -> None:
    """QUEST's rows and RECLAIM's table 3, but for sounds; what counts steps visits images."""
    recipes = {name: load_recipe(name) for name in NAMES}
    found = {name for name, recipe in recipes.items() if recipe.data.epoch_of == "texts"}
    groups = {summary.name: summary.group for summary in list_recipes()}
    assert found == {
        name for name, group in groups.items() if group in ("quest", "reclaim") and "-audio-" not in name
    }
    assert len(found) == 62
    assert all(recipes[name].train.epochs is not None for name in found)


def test_clip_is_fine_tuned_as_by_the_framework_of_shortcuts() -> None:
    """No weight decay, and gradients clipped at 2, whichever the objective."""
    rows = [name for name in NAMES if re.match(r"(infonce|ltd|ifm|quest)(-\S+)?-clip-", name)]
    assert len(rows) == 24
    for name in rows:
        optimizer = load_recipe(name).optimizer
        assert (optimizer.name, optimizer.lr) == ("adamw", 2e-5)
        assert (optimizer.weight_decay, optimizer.max_grad_norm) == (0.0, 2.0)


def test_vse_models_are_evaluated_on_the_centre_of_a_larger_image() -> None:
    rows = [name for name in NAMES if "-gru-" in name]
    assert len(rows) == 34
    for name in rows:
        recipe = load_recipe(name)
        image = recipe.preprocessing.image
        assert (image.size, image.resize, image.resize_to) == (224, "crop", 256)
        assert (recipe.augmentation.crop_scale, recipe.augmentation.crop_ratio) == ((0.08, 1), (3 / 4, 4 / 3))


def test_the_state_of_a_gru_is_the_embedding_but_where_two_outputs_leave_it() -> None:
    for name in (name for name in NAMES if "-gru-" in name):
        text = load_recipe(name).model.text
        assert text is not None
        assert text.head.kind == ("linear" if name.startswith("quest") else "identity")


def test_dpc_ranks_from_the_middle_of_its_epochs_on() -> None:
    """By the captions of Karpathy's train splits."""
    for name, captions in (("dpc-flickr30k", 145_000), ("dpc-coco", 566_747)):
        recipe = load_recipe(name)
        assert recipe.train.epochs is not None
        half = recipe.train.epochs // 2 * (captions // recipe.train.batch_size)
        assert recipe.objective.model_dump()["instance_steps"] == half


@pytest.mark.parametrize(
    ("name", "override"),
    [
        ("infonce-flickr-small", "data.text_unit=report"),
        ("infonce-flickr-small", "data.one_image_per=study"),
        ("simclr-mimic-cxr", "data.one_image_per=null"),
    ],
)
def test_an_epoch_of_texts_needs_single_texts_of_all_images(name: str, override: str) -> None:
    with pytest.raises(RecipeError, match=r"set .*epoch_of to images"):
        load_recipe(name, ["data.text_unit=sentence", override, "data.epoch_of=texts"])


@pytest.mark.parametrize("name", NAMES)
def test_new_models_decode_large_files_at_a_scale_unless_told_otherwise(name: str) -> None:
    assert load_recipe(name).preprocessing.image.scaled_decoding
    told = load_recipe(name, ["preprocessing.image.scaled_decoding=false"])
    assert told.preprocessing.image.min_side is None
