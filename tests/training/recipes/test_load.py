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
from training.objectives.base import ObjectiveConfig, parse_objective
from training.recipes.library import shipped
from training.recipes.load import dump_recipe, first_difference, list_recipes, load_recipe, parse_recipe

NAMES = first_runs(shipped())
PUBLISHED = ["reco-mimic-cxr", "infonce-mimic-cxr", "reco-flickr30k", "infonce-flickr30k"]
SMALL = ["reco-flickr-small", "infonce-flickr-small", "reco-cxr-small", "infonce-cxr-small"]


def objective(name: str, **settings: Any) -> ObjectiveConfig:
    return parse_objective({"name": name, **settings})


def setting(recipe: object, key: str) -> object:
    """What is at a dotted key."""
    for part in key.split("."):
        recipe = recipe[part] if isinstance(recipe, dict) else getattr(recipe, part)
    return recipe


def test_all_promised_recipes_are_there() -> None:
    assert {*PUBLISHED, *SMALL, "demo-radiographs", "demo-scenes"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_recipe_says_who_it_is_and_survives_writing(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name.replace("::", "-")
    assert recipe.description
    assert recipe.source
    assert recipe.preprocessing.image.scaled_decoding
    path = tmp_path / "copy.yaml"
    path.write_text(dump_recipe(recipe), encoding="utf-8")
    assert load_recipe(str(path)) == recipe


def test_both_objectives_train_under_the_same_settings() -> None:
    for reco, infonce in zip(PUBLISHED[::2] + SMALL[::2], PUBLISHED[1::2] + SMALL[1::2], strict=True):
        ours, theirs = load_recipe(reco), load_recipe(infonce)
        assert (ours.objective.name, theirs.objective.name) == ("reco", "infonce")
        named = {"name", "description", "source", "objective"}
        assert ours.model_dump(exclude=named) == theirs.model_dump(exclude=named)


# What an objective cannot do without, beside itself.
LOCAL = {
    "model.image.pooling",
    "model.text.pooling",
    "model.local_features",
    "preprocessing.text.sentences",
    "data.text_unit",
}
NEEDS: dict[str, set[str]] = {
    **{f"{name}-flickr-small": set() for name in ("orthogonality", "vse", "ifm", "reclaim")},
    "blade2-flickr-small": {"model.blades"},
    "quest-flickr-small": {"model.branches"},
    "ltd-flickr-small": {"data.target_encoder"},
    "lovt-cxr-small": LOCAL,
    "uniformity-cxr-small": LOCAL | {"model.share_local_head"},
}


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


AUGMENTED = {
    "augmentation.flip": 0.5,
    "augmentation.rotation": 20,
    "augmentation.translation": 0.1,
    "augmentation.scale": (0.75, 1.25),
    "augmentation.brightness": 0.4,
    "augmentation.contrast": 0.4,
    "augmentation.blur_kernel": 5,
    "augmentation.blur_sigma": (0.1, 3.0),
}
PAPERS: dict[str, dict[str, object]] = {
    "reco-mimic-cxr": {
        **{"objective.negative_weight": 0.6, "objective.reduction": "paper"},
        **{"train.batch_size": 64, "train.steps": 300_000, "model.dim": 512, "schedule.name": "cosine"},
        **{"optimizer.name": "adam", "optimizer.lr": 1e-4, "optimizer.weight_decay": 1e-6},
        **{"model.text.frozen_layers": 6, "model.text.pooling": "max"},
        **{"model.image.head.kind": "mlp", "model.text.head.kind": "mlp"},
    },
    "infonce-mimic-cxr": {
        **{"objective.image_weight": 0.75, "objective.temperature": 0.1},
        "objective.learnable_temperature": False,
    },
    "reco-flickr30k": {
        **{"train.batch_size": 64, "train.steps": 80_000},
        **{"optimizer.lr": 1e-6, "optimizer.weight_decay": 1e-2},
        **{"model.image.architecture": "clip_resnet"},
        **{"model.image.head.kind": "linear", "model.text.head.kind": "linear"},
    },
    "infonce-flickr30k": {},
}


@pytest.mark.parametrize("name", PAPERS)
def test_settings_are_the_paper_s(name: str) -> None:
    recipe, expected = load_recipe(name), PAPERS[name] | AUGMENTED
    assert {key: setting(recipe, key) for key in expected} == expected


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
    before = load_recipe("demo-scenes")
    changed = setting(load_recipe("demo-scenes", [override]), key)
    assert changed == value
    assert type(changed) is type(value)
    # The next reader has none of it.
    assert load_recipe("demo-scenes") == before


def test_later_override_wins_and_another_objective_starts_from_its_own_settings() -> None:
    assert load_recipe("demo-scenes", ["train.seed=1", "train.seed=2"]).train.seed == 2
    recipe = load_recipe("reco-mimic-cxr", ["objective.name=infonce", "objective.temperature=0.2"])
    assert recipe.objective == objective("infonce", temperature=0.2)
    same = load_recipe("reco-mimic-cxr", ["objective.name=reco", "objective.negative_weight=0.3"])
    assert same.objective == objective("reco", negative_weight=0.3)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "objective.temprature=3",
            r"no setting objective\.temprature; .* is objective\.temperature\.",
        ),
        (
            "model.image.head.kindd=mlp",
            r"no setting model\.image\.head\.kindd; .* is model\.image\.head\.kind\.",
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
        load_recipe("demo-scenes", [override])
    assert "\n" not in str(caught.value)


EPOCH = "set .*epoch_of to images"


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("reco-flikr30k", [], r"recipe 'reco-flikr30k' \(the nearest is reco-flickr30k\): choose"),
        ("nowhere/recipe.yaml", [], "cannot be read"),
        (
            "infonce-mimic-cxr",
            ["train.batch_sise=3"],
            r"no setting train\.batch_sise; the .* is train\.batch_size\.$",
        ),
        # An epoch of texts needs single texts of all images.
        (
            "infonce-flickr-small",
            ["data.text_unit=report", "data.epoch_of=texts"],
            EPOCH,
        ),
        (
            "infonce-flickr-small",
            ["data.one_image_per=study", "data.epoch_of=texts"],
            EPOCH,
        ),
        ("simclr-mimic-cxr", ["data.one_image_per=null", "data.epoch_of=texts"], EPOCH),
    ],
)
def test_wrong_names_and_settings_are_one_sentence(name: str, overrides: list[str], message: str) -> None:
    if "data.epoch_of=texts" in overrides:
        overrides = ["data.text_unit=sentence", *overrides]
    with pytest.raises(RecipeError, match=message):
        load_recipe(name, overrides)


def write(path: Path, content: Mapping[str, object]) -> str:
    path.write_text(yaml.safe_dump(dict(content)), encoding="utf-8")
    return str(path)


def test_file_may_build_on_a_recipe_or_on_a_file(tmp_path: Path) -> None:
    tree = {"base": "demo-scenes", "name": "mine", "train": {"seed": 7}, "objective": {"name": "reco"}}
    mine, base = load_recipe(write(tmp_path / "mine.yaml", tree)), load_recipe("demo-scenes")
    assert mine.objective == objective("reco")
    assert mine.train == base.train.model_copy(update={"seed": 7})
    assert mine.model == base.model
    first = write(tmp_path / "first.yaml", {"base": "demo-scenes", "train": {"seed": 7}})
    second = write(tmp_path / "second.yaml", {"base": first, "name": "second"})
    assert load_recipe(second) == load_recipe("demo-scenes", ["name=second", "train.seed=7"])
    write(Path(first), {"base": second})
    with pytest.raises(RecipeError, match=r"loop, .*first\.yaml > .*second\.yaml > .*first\.yaml\."):
        load_recipe(first)


def test_a_file_may_put_a_sum_of_objectives_over_the_one_of_its_base(tmp_path: Path) -> None:
    file = tmp_path / "mixed.yaml"
    file.write_text("base: demo-scenes\nname: mixed\nobjective: {sum: [infonce, {reco: {}, weight: 0.5}]}\n")
    objective = load_recipe(str(file)).objective
    assert (objective.name, [part.name for part in objective.parts()]) == ("sum", ["infonce", "reco"])


def test_a_tower_of_another_architecture_starts_from_its_own_options(tmp_path: Path) -> None:
    small = {"architecture": "vit", "options": {"hidden_size": 96}}
    path = write(tmp_path / "vit.yaml", {"base": "demo-scenes", "model": {"image": small}})
    assert load_recipe(path).model.image.options == {"hidden_size": 96}
    overrides = ["model.image.architecture=vit", "model.image.options.hidden_size=96"]
    changed, base = load_recipe("demo-scenes", overrides), load_recipe("demo-scenes")
    assert changed.model.image == load_recipe(path).model.image
    assert changed.model.text == base.model.text
    assert load_recipe("demo-scenes", ["model.image.architecture=resnet"]).model == base.model


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


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("name=demo-scenes", None),
        ("data.cache_images=true", None),
        ("data.cache_images=memory", None),
        ("data.cache_images=false", None),
        ("optimizer.lr=1", r"optimizer\.lr"),
        ("objective.name=reco", r"objective\..*"),
    ],
)
def test_first_difference_is_a_dotted_key(override: str, key: str | None) -> None:
    different = first_difference(load_recipe("demo-scenes"), load_recipe("demo-scenes", [override]))
    assert different is None if key is None else re.fullmatch(key, different or "")


def test_new_models_decode_large_files_whole_if_told_so() -> None:
    whole = load_recipe("demo-scenes", ["preprocessing.image.scaled_decoding=false"])
    assert whole.preprocessing.image.min_side is None


def test_papers_that_count_epochs_of_captions_go_through_all_of_them() -> None:
    """QUEST's rows and RECLAIM's table 3, but for sounds; what counts steps visits images."""
    recipes = {name: load_recipe(name) for name in NAMES}
    rows = {name for name, recipe in recipes.items() if recipe.data.epoch_of == "texts"}
    groups = {summary.name: summary.group for summary in list_recipes()}
    assert rows == {
        name for name, group in groups.items() if group in ("quest", "reclaim") and "-audio-" not in name
    }
    assert len(rows) == 62
    assert all(recipes[name].train.epochs is not None for name in rows)


def test_clip_is_fine_tuned_as_by_the_framework_of_shortcuts() -> None:
    """No weight decay, and gradients clipped at 2, whichever the objective."""
    rows = [name for name in NAMES if re.match(r"(infonce|ltd|ifm|quest)(-\S+)?-clip-", name)]
    assert len(rows) == 24
    for name in rows:
        optimizer = load_recipe(name).optimizer
        assert (optimizer.name, optimizer.lr) == ("adamw", 2e-5)
        assert (optimizer.weight_decay, optimizer.max_grad_norm) == (0.0, 2.0)


def test_vse_models_are_evaluated_on_the_centre_and_the_state_of_a_gru_is_the_embedding() -> None:
    """But where two outputs leave it."""
    rows = [name for name in NAMES if "-gru-" in name]
    assert len(rows) == 34
    for name in rows:
        recipe = load_recipe(name)
        image, text = recipe.preprocessing.image, recipe.model.text
        assert (image.size, image.resize, image.resize_to) == (224, "crop", 256)
        assert (recipe.augmentation.crop_scale, recipe.augmentation.crop_ratio) == ((0.08, 1), (3 / 4, 4 / 3))
        assert text is not None
        assert text.head.kind == ("linear" if name.startswith("quest") else "identity")


def test_quest_without_sic_is_searched_by_the_normal() -> None:
    for constraints in ("uic", "p-uic"):
        for towers in ("clip", "gru"):
            assert load_recipe(f"quest-{constraints}-{towers}-flickr30k").model.retrieval == "normal"


def test_dpc_ranks_from_the_middle_of_its_epochs_on() -> None:
    """By the captions of Karpathy's train splits."""
    for name, captions in (("dpc-flickr30k", 145_000), ("dpc-coco", 566_747)):
        recipe = load_recipe(name)
        assert recipe.train.epochs is not None
        half = recipe.train.epochs // 2 * (captions // recipe.train.batch_size)
        assert recipe.objective.model_dump()["instance_steps"] == half
