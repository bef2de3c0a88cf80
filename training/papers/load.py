"""The recipes of `recoquest classify` and `recoquest language-model` by name or path."""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, get_args

from training.common.errors import RecipeError
from training.recipes.library import Library
from training.recipes.load import parse_as, task_tree

# The tasks import far more than a list of recipes needs, so that each function imports its own.
if TYPE_CHECKING:
    from training.classification.recipe import ImageRecipe
    from training.papers.glue import TextRecipe
    from training.papers.language_models import LanguageModelRecipe
    from training.papers.vqa import QuestionRecipe


@cache
def classification_recipes() -> Library:
    """The recipes of `recoquest classify`; they do not change while the project runs."""
    packages = "training.classification.recipes", "training.papers.recipes.classification"
    files = [file for package in packages for file in Library.of_package(package).files]
    recipes = {name: tree for file in files for name, tree in file.recipes.items()}
    return Library(tuple(sorted(files, key=lambda file: file.pattern)), recipes)


@cache
def language_model_recipes() -> Library:
    """The recipes of `recoquest language-model`; they do not change while the project runs."""
    return Library.of_package("training.papers.recipes.language_models")


def load_classification_recipe(
    name_or_path: str, overrides: Sequence[str] = ()
) -> "TextRecipe | ImageRecipe | QuestionRecipe":
    """Read a recipe of `classification_recipes`, or a YAML file, with overrides `dotted.key=value`.

    Raises:
        RecipeError: No such recipe, not YAML, an unknown task or key, or a value that does not fit.
    """
    from training.classification.recipe import ImageRecipe
    from training.papers.glue import TaskName, TextRecipe
    from training.papers.vqa import QuestionRecipe

    tree = task_tree(classification_recipes(), "classification", name_or_path, overrides)
    kinds: dict[str, type[TextRecipe | ImageRecipe | QuestionRecipe]]
    kinds = {"labels": ImageRecipe, "vqa": QuestionRecipe, **dict.fromkeys(get_args(TaskName), TextRecipe)}
    task, where = str(tree.get("task")), f"Recipe {name_or_path}"
    if task not in kinds:
        raise RecipeError(f"{where}: task is one of {', '.join(kinds)}, not {task!r}.")
    return parse_as(kinds[task], tree, where)


def load_language_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> "LanguageModelRecipe":
    """Read a recipe of `language_model_recipes`, or a YAML file, with overrides `dotted.key=value`.

    Raises:
        RecipeError: No such recipe, not YAML, an unknown key or a value that does not fit.
    """
    from training.papers.language_models import LanguageModelRecipe

    tree = task_tree(language_model_recipes(), "language models", name_or_path, overrides)
    return parse_as(LanguageModelRecipe, tree, f"Recipe {name_or_path}")
