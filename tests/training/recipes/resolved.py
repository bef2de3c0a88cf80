"""The settings of every recipe that comes with the project, whatever it trains."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from training.classification import load as classification
from training.language_models import load as language_models
from training.recipes.library import shipped
from training.recipes.load import load_recipe

_LOADERS: Final = (
    (shipped(), load_recipe),
    (classification.shipped(), classification.load_classification_recipe),
    (language_models.shipped(), language_models.load_language_recipe),
)
_LOADER_OF: Final = {
    name: load for library, load in _LOADERS for file in library.files for name in file.recipes
}
NAMES: Final = tuple(_LOADER_OF)


def is_encoder(name: str) -> bool:
    """Whether a recipe is one of `recoquest train`, whose batches are pairs."""
    return _LOADER_OF[name] is load_recipe


@cache
def settings(name: str) -> Mapping[str, Any]:
    """All settings of a recipe by dotted key; those with settings below them, too."""
    return dict(_flat(_LOADER_OF[name](name).model_dump(mode="json")))


def _flat(tree: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        key = f"{place}{name}"
        yield key, value
        if isinstance(value, dict):
            yield from _flat(value, f"{key}.")
