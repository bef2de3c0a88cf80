"""Recipes of classification by name or path, in the manner of `training.recipes`."""

from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Final, get_args

from training.classification.images.config import ImageRecipe
from training.classification.questions.config import QuestionRecipe
from training.classification.texts.config import TextRecipe
from training.classification.texts.tasks import TaskName
from training.common.errors import RecipeError
from training.recipes.library import Library
from training.recipes.load import parse_as, task_tree

ClassificationRecipe = TextRecipe | ImageRecipe | QuestionRecipe

_OF_OTHERS: Final[Mapping[str, type[ImageRecipe | QuestionRecipe]]] = MappingProxyType(
    {"labels": ImageRecipe, "vqa": QuestionRecipe}
)


@cache
def shipped() -> Library:
    """The recipes that come with the project; they do not change while it runs."""
    return Library.of_package("training.classification.recipes")


def load_classification_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> ClassificationRecipe:
    """Read a recipe of `shipped`, or a YAML file, with overrides `dotted.key=value`.

    Raises:
        RecipeError: No such recipe, not YAML, an unknown key or a value that does not fit.
    """
    tree = task_tree(shipped(), "classification", name_or_path, overrides)
    return parse_classification_recipe(tree, f"Recipe {name_or_path}")


def parse_classification_recipe(tree: Mapping[str, Any], where: str) -> ClassificationRecipe:
    """Check a recipe that was read already; `where` begins the error's sentence.

    Raises:
        RecipeError: An unknown task or key, or a value that does not fit.
    """
    task = str(tree.get("task"))
    if task in _OF_OTHERS:
        return parse_as(_OF_OTHERS[task], tree, where)
    if task not in get_args(TaskName):
        known = ", ".join([*_OF_OTHERS, *get_args(TaskName)])
        raise RecipeError(f"{where}: task is one of {known}, not {task!r}.")
    return parse_as(TextRecipe, tree, where)
