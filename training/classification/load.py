"""Recipes of text classification by name or path, in the manner of `training.recipes`."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import yaml
from pydantic import ValidationError

from training.classification.config import ClassificationRecipe
from training.errors import RecipeError
from training.recipes.document import parse_value
from training.recipes.library import Library
from training.recipes.merge import merge, nested


@cache
def shipped() -> Library:
    """The recipes that come with the project; they do not change while it runs."""
    return Library.of_package("training.classification.recipes")


def load_classification_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> ClassificationRecipe:
    """Read a recipe of `shipped`, or a YAML file, with overrides `dotted.key=value`.

    Raises:
        RecipeError: No such recipe, not YAML, an unknown key or a value that does not fit.
    """
    is_path = "/" in name_or_path or ".y" in name_or_path
    if name_or_path not in shipped().names and not is_path:
        patterns = "; ".join(file.pattern for file in shipped().files)
        raise RecipeError(
            f"There is no recipe {name_or_path!r} of text classification; there are {patterns}."
        )
    tree = shipped().tree(name_or_path)
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not all(key.strip().split(".")):
            raise RecipeError(
                f"--set {override!r} is not of the form dotted.key=value, such as optimizer.lr=1e-4."
            )
        tree = merge(tree, nested(key.strip(), parse_value(text, override)))
    return parse_classification_recipe(tree, f"Recipe {name_or_path}")


def parse_classification_recipe(tree: Mapping[str, Any], where: str) -> ClassificationRecipe:
    """Check a recipe that was read already; `where` begins the error's sentence.

    Raises:
        RecipeError: An unknown key or a value that does not fit.
    """
    try:
        return ClassificationRecipe.model_validate(tree)
    except ValidationError as error:
        problems = [_explain(dict(item)) for item in error.errors()]
        raise RecipeError(f"{where}: {'; '.join(problems[:4])}.") from None


def dump_classification_recipe(recipe: ClassificationRecipe) -> str:
    """The resolved recipe as YAML, every setting written out; loading it gives an equal recipe."""
    return yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _explain(error: Mapping[str, Any]) -> str:
    key = ".".join(str(part) for part in error["loc"]) or "the recipe"
    match error["type"]:
        case "extra_forbidden":
            return f"there is no setting {key}"
        case "missing":
            return f"{key} is missing"
        case _:
            message = str(error["msg"])
            return f"{key}: {message[:1].lower()}{message[1:]}, not {error['input']!r}"
