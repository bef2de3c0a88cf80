"""Recipes of tasks by name or path, in the manner of `training.recipes`."""

from collections.abc import Sequence
from typing import Any

from training.common.errors import RecipeError
from training.recipes.library import Library
from training.recipes.load import apply_overrides


def task_tree(library: Library, kind: str, name_or_path: str, overrides: Sequence[str]) -> dict[str, Any]:
    """All settings of a recipe of a library, or of a YAML file, with overrides `dotted.key=value`.

    Raises:
        RecipeError: No such recipe, not YAML, or an override of another form.
    """
    is_path = "/" in name_or_path or ".y" in name_or_path
    if not library.has(name_or_path) and not is_path:
        patterns = "; ".join(file.pattern for file in library.files)
        raise RecipeError(f"There is no recipe {name_or_path!r} of {kind}; there are {patterns}.")
    tree = library.tree(name_or_path)
    apply_overrides(tree, overrides)
    return tree
