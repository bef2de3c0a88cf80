"""Sweeps that come along: what a run is named after is what it does."""

from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from operator import getitem
from typing import Any

import pytest

from training.papers import load as papers
from training.recipes.library import Library, shipped
from training.recipes.load import load_recipe
from training.recipes.schema import NamedRecipe

Load = Callable[[str], NamedRecipe]
LIBRARIES: tuple[tuple[Library, Load], ...] = (
    (shipped(), load_recipe),
    (papers.classification_recipes(), papers.load_classification_recipe),
    (papers.language_model_recipes(), papers.load_language_recipe),
)
TEXTS = ("base", "name", "description", "source")
SWEEPS = {
    name: (library, file, load)
    for library, load in LIBRARIES
    for file in library.files
    for name in file.listed
    if library.runs(name)
}


def test_there_are_far_fewer_recipes_than_runs() -> None:
    """The rows of papers have names; what differs from them by a value is a run of a sweep."""
    files = [file for library, _ in LIBRARIES for file in library.files]
    assert sum(len(file.listed) for file in files) < 200
    assert sum(len(file.recipes) for file in files) > 400


@pytest.mark.parametrize("name", SWEEPS)
def test_every_run_has_the_settings_of_its_name(name: str) -> None:
    library, file, load = SWEEPS[name]
    different = set()
    for run in library.runs(name):
        resolved = load(run).model_dump(mode="json")
        assert resolved["name"] == run.replace("::", "-")
        own = {key: value for key, value in file.recipes[run].items() if key not in TEXTS}
        for path, value in leaves(own):
            assert reduce(getitem, path, resolved) == value, run
        different.add(repr({key: value for key, value in resolved.items() if key not in TEXTS}))
    assert len(different) == len(library.runs(name))


def leaves(tree: Mapping[str, Any], *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The settings of a tree, by their places."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from leaves(value, *path, key)
        else:
            yield (*path, key), value
