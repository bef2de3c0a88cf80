from pathlib import Path

import pytest
import yaml

from training.common.errors import RecipeError
from training.recipes.library import Library, shipped
from training.recipes.load import load_recipe
from training.recipes.variants import expand, listed, pattern, summary

SWEEP = {
    "base": "demo-scenes",
    "name": "sweep-{optimizer.lr}",
    "description": "With a rate of {optimizer.lr} in all",
    "source": "Table 1, row {optimizer.lr}",
    "variants": {"optimizer.lr": [0.1, 0.01]},
}
PRODUCT = {
    "name": "{objective}-x-{data}{end}",
    "train": {"epochs": 5},
    "objective": {"name": "quest", "weight": 1},
    "variants": {
        "objective": {"reco": {"objective": {"name": "reco"}}, "quest": {"objective": {"weight": 2}}},
        "data": {"coco": {"train": {"epochs": 3}}, "flickr": {}},
        "end": {"": {}, "-cut": {"train": {"steps": 1}}},
    },
}


def test_a_list_is_the_values_of_one_setting() -> None:
    assert expand(SWEEP, "here") == {
        f"sweep-{rate}": {
            "base": "demo-scenes",
            "name": f"sweep-{rate}",
            "description": f"With a rate of {rate} in all",
            "source": f"Table 1, row {rate}",
            "optimizer": {"lr": rate},
        }
        for rate in (0.1, 0.01)
    }


def test_mappings_are_combined() -> None:
    recipes = expand(PRODUCT, "here")
    assert list(recipes) == [
        f"{objective}-x-{data}{end}"
        for objective in ("reco", "quest")
        for data in ("coco", "flickr")
        for end in ("", "-cut")
    ]
    assert recipes["reco-x-coco-cut"] == {
        "name": "reco-x-coco-cut",
        "train": {"epochs": 3, "steps": 1},
        "objective": {"name": "reco"},
    }
    assert recipes["quest-x-flickr"]["objective"] == {"name": "quest", "weight": 2}
    assert recipes["quest-x-flickr"]["train"] == {"epochs": 5}


GRID = {
    "name": "grid-{term}",
    "description": "{term}, for {train.epochs} epochs.",
    "train": {"seed": 3},
    "variants": {"term": {"base": {}, "reco": {"objective": {"name": "reco"}}}},
    "sweep": {"train.epochs": [1, 2], "end": {"cut": {"train": {"steps": 1}}, "whole": {}}},
}


def test_combinations_of_a_sweep_are_runs_of_each_recipe() -> None:
    runs = expand(GRID, "here")
    ends = ("1-cut", "1-whole", "2-cut", "2-whole")
    assert list(runs) == [f"grid-{term}::{end}" for term in ("base", "reco") for end in ends]
    assert runs["grid-reco::2-cut"] == {
        "name": "grid-reco-2-cut",
        "description": "reco, for 2 epochs.",
        "train": {"seed": 3, "epochs": 2, "steps": 1},
        "objective": {"name": "reco"},
    }
    assert pattern(GRID, "here") == "grid-{base,reco}"
    assert summary(GRID, "here") == "..., for ... epochs. 4 runs over train.epochs x end."
    texts = {"description": "base, for ... epochs. 4 runs over train.epochs x end."}
    assert listed(GRID, "here")["grid-base"] == texts


def test_names_are_abbreviated_as_a_shell_does() -> None:
    assert pattern(SWEEP, "here") == "sweep-{0.1,0.01}"
    assert pattern(PRODUCT, "here") == "{reco,quest}-x-{coco,flickr}{,-cut}"
    assert pattern({"name": "one"}, "here") == "one"
    assert summary(SWEEP, "here") == "With a rate of ... in all"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "sweep"}, "two variants are named 'sweep'"),
        ({"name": "sweep-{lr}"}, r"\{lr\} is none of its variants: optimizer\.lr"),
        ({"variants": {}}, "variants is a mapping"),
        ({"variants": [1]}, "variants is a mapping"),
        ({"variants": {"optimizer.lr": []}}, r"variants\.optimizer\.lr is a list of values"),
        ({"variants": {"optimizer.lr": 3}}, r"variants\.optimizer\.lr is a list of values"),
        ({"variants": {"optimizer.lr": {"a": 3}}}, r"variants\.optimizer\.lr\.a is a mapping"),
        ({"variants": {"optimizer.lr": {"a": None}}}, r"variants\.optimizer\.lr\.a is a mapping"),
        ({"sweep": {"train.epochs": 3}}, r"sweep\.train\.epochs is a list of values"),
        ({"sweep": {"train.epochs": [3]}, "name": "{train.epochs}"}, r"\{train\.epochs\} is none of its"),
    ],
)
def test_wrong_variants_are_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        expand({**SWEEP, **changes}, "here")


def test_file_of_several_recipes_is_asked_for_one(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(SWEEP), encoding="utf-8")
    assert load_recipe(f"{path}::sweep-0.01").optimizer.lr == 0.01
    for wrong in (str(path), f"{path}::sweep-3"):
        with pytest.raises(RecipeError, match=r"holds sweep-0\.1, sweep-0\.01: name one of them"):
            load_recipe(wrong)


def test_runs_of_a_sweep_of_an_own_file_are_listed_and_load(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    tree = {"base": "demo-scenes", "name": "mine", "description": "Mine.", "sweep": {"train.seed": [1, 2]}}
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    recipe = load_recipe(f"{path}::mine::2")
    assert (recipe.name, recipe.train.seed) == ("mine-2", 2)
    assert shipped().runs(str(path)) == [f"{path}::mine::1", f"{path}::mine::2"]
    assert shipped().runs(f"{path}::mine") == shipped().runs(str(path))
    assert shipped().runs(f"{path}::mine::1") == []
    for wrong, said in (
        (path, r"holds mine::1, mine::2: name one of them"),
        (f"{path}::mine:1", r"NAME, such as .*mine\.yaml::mine::1\.$"),
    ):
        with pytest.raises(RecipeError, match=said):
            load_recipe(str(wrong))
    del tree["sweep"]
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    assert shipped().runs(str(path)) == []


def package(folder: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, dict[str, object]]) -> Library:
    # A name of its own, because a package stays imported after its test.
    root = folder / f"recipes_of_{folder.name}"
    root.mkdir()
    (root / "__init__.py").touch()
    for name, tree in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(yaml.safe_dump(tree), encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    return Library.of_package(root.name)


def test_folders_are_groups_after_those_of_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files: dict[str, dict[str, object]] = {
        "quest/a.yaml": {"name": "a", "base": "m-2"},
        "z.yaml": {"name": "z", "train": {"epochs": 1, "steps": 2}},
        "lovt/m.yaml": {"name": "m-{train.steps}", "base": "z", "variants": {"train.steps": [1, 2, 3]}},
    }
    library = package(tmp_path, monkeypatch, files)
    assert [(file.group, file.pattern) for file in library.files] == [
        ("", "z"),
        ("lovt", "m-{1,2,3}"),
        ("quest", "a"),
    ]
    assert library.names == ["z", "m-1", "m-2", "m-3", "a"]
    assert library.runs("m-1") == []
    assert library.tree("m-3") == {"name": "m-3", "train": {"epochs": 1, "steps": 3}}
    assert library.tree("a") == {"name": "a", "train": {"epochs": 1, "steps": 2}}


def test_a_name_belongs_to_one_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files: dict[str, dict[str, object]] = {"a.yaml": {"name": "same"}, "b/c.yaml": {"name": "same"}}
    with pytest.raises(RecipeError, match="two recipes named 'same'"):
        package(tmp_path, monkeypatch, files)
