"""Recipes of language models by name or path."""

from collections.abc import Sequence
from functools import cache

from training.language_models.config import LanguageModelRecipe
from training.recipes.library import Library
from training.recipes.load import parse_as
from training.tasks.load import task_tree


@cache
def shipped() -> Library:
    """The recipes that come with the project; they do not change while it runs."""
    return Library.of_package("training.language_models.recipes")


def load_language_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> LanguageModelRecipe:
    """Read a recipe of `shipped`, or a YAML file, with overrides `dotted.key=value`.

    Raises:
        RecipeError: No such recipe, not YAML, an unknown key or a value that does not fit.
    """
    tree = task_tree(shipped(), "language models", name_or_path, overrides)
    return parse_as(LanguageModelRecipe, tree, f"Recipe {name_or_path}")
