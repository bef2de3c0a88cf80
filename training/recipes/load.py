"""Recipes by name or path: inheritance, overrides, and errors that name the wrong key.

A recipe file may begin with `base: NAME`. It then holds only what differs from that recipe, which has no base
itself; mappings are merged key by key, everything else is replaced. Another objective replaces the base's
whole, because its settings mean nothing to it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from training.errors import RecipeError
from training.objectives.base import ObjectiveConfig
from training.objectives.registry import objective_types
from training.recipes.document import parse_document, parse_value
from training.recipes.schema import Recipe

SUFFIX = ".yaml"


@dataclass(frozen=True, slots=True)
class RecipeSummary:
    """A recipe that comes with the project."""

    name: str
    description: str
    source: str


def load_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe that comes with the project, or a YAML file.

    Args:
        name_or_path: A name that `list_recipes` gives, or the path of a `.yaml` file.
        overrides: `dotted.key=value` each; values are YAML, so `null`, `true`, `[1, 2]` and `1e-4` have their
            types.

    Raises:
        RecipeError: No such recipe, not YAML, an unknown key or a value that does not fit.
    """
    tree = _read_tree(name_or_path)
    for override in overrides:
        _apply(tree, override)
    return parse_recipe(tree, f"Recipe {name_or_path}")


def parse_recipe(tree: Mapping[str, Any], where: str) -> Recipe:
    """Check a recipe that was read already; `where` begins the error's sentence.

    Raises:
        RecipeError: An unknown key or a value that does not fit.
    """
    try:
        return Recipe.model_validate(tree)
    except ValidationError as error:
        problems = [_explain(dict(item), tree) for item in error.errors()]
        raise RecipeError(f"{where}: {'; '.join(problems[:4])}.") from None


def list_recipes() -> list[RecipeSummary]:
    """The recipes that come with the project, by name."""
    recipes = [load_recipe(name) for name in _names()]
    return [RecipeSummary(recipe.name, recipe.description, recipe.source) for recipe in recipes]


def dump_recipe(recipe: Recipe) -> str:
    """The resolved recipe as YAML, every setting written out; loading it gives an equal recipe."""
    return yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def first_difference(ours: Recipe, theirs: Recipe) -> str | None:
    """The dotted key of the first setting in which two recipes differ; None when they are equal."""
    return _difference(ours.model_dump(mode="json"), theirs.model_dump(mode="json"))


def _difference(ours: Any, theirs: Any, key: str = "") -> str | None:
    if not (isinstance(ours, dict) and isinstance(theirs, dict)):
        return None if ours == theirs else key
    for name in [*ours, *(name for name in theirs if name not in ours)]:
        inner = f"{key}.{name}" if key else name
        if (name in ours) != (name in theirs):
            return inner
        found = _difference(ours[name], theirs[name], inner)
        if found is not None:
            return found
    return None


def _names() -> list[str]:
    files = resources.files("training.recipes").iterdir()
    return sorted(file.name.removesuffix(SUFFIX) for file in files if file.name.endswith(SUFFIX))


def _read_tree(name_or_path: str) -> dict[str, Any]:
    tree = _read_file(name_or_path)
    base = tree.pop("base", None)
    if base is None:
        return tree
    below = _read_file(str(base))
    if "base" in below:
        raise RecipeError(f"Recipe {name_or_path}: its base {base} has a base itself; name that one instead.")
    return _merge(below, tree)


def _read_file(name_or_path: str) -> dict[str, Any]:
    is_path = name_or_path.endswith((SUFFIX, ".yml")) or "/" in name_or_path
    if is_path:
        try:
            text = Path(name_or_path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise RecipeError(f"Recipe {name_or_path} cannot be read: {error}.") from None
        return parse_document(text, name_or_path)
    names = _names()
    if name_or_path not in names:
        hint = _nearest(name_or_path, names) or f"there are {', '.join(names)}"
        raise RecipeError(f"There is no recipe {name_or_path!r}; {hint}, or give the path of a .yaml file.")
    file = resources.files("training.recipes").joinpath(name_or_path + SUFFIX)
    return parse_document(file.read_text(encoding="utf-8"), name_or_path)


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, dict) and not (key == "objective" and "name" in value):
            merged[key] = _merge(old, value)
        else:
            merged[key] = value
    return merged


def _apply(tree: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise RecipeError(
            f"--set {override!r} is not of the form dotted.key=value, such as optimizer.lr=1e-4."
        )
    value = parse_value(text, override)
    if parts == ["objective", "name"]:
        tree.update(_merge(tree, {"objective": {"name": value}}))
        return
    for part in parts[:-1]:
        if not isinstance(tree.get(part), dict):
            tree[part] = {}
        tree = tree[part]
    tree[parts[-1]] = value


def _explain(error: Mapping[str, Any], tree: Mapping[str, Any]) -> str:
    location = tuple(str(part) for part in error["loc"])
    key = ".".join(location) or "the recipe"
    match error["type"]:
        case "extra_forbidden":
            known = _known_keys(tree, location[:-1])
            hint = _nearest(location[-1], known)
            return f"there is no setting {key}; {hint or 'there are ' + ', '.join(known)}"
        case "missing":
            return f"{key} is missing"
        case "value_error":
            return f"{key}: {error['ctx']['error']}".rstrip(".")
        case _:
            message = str(error["msg"])
            return f"{key}: {message[:1].lower()}{message[1:]}, not {error['input']!r}"


def _nearest(wrong: str, known: Sequence[str]) -> str | None:
    close = get_close_matches(wrong, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}" if close else None


def _known_keys(tree: Mapping[str, Any], location: Sequence[str]) -> list[str]:
    """The settings that exist at a place of the recipe; an objective's are those of the one it names."""
    models: list[type[BaseModel]] = [Recipe]
    value: Any = tree
    for part in location:
        models = _models_below(models, part)
        value = value.get(part) if isinstance(value, Mapping) else None
        if models == [ObjectiveConfig] and isinstance(value, Mapping):
            models = [objective_types()[value["name"]]]
    return [name for model in models for name in model.model_fields]


def _models_below(models: Sequence[type[BaseModel]], part: str) -> list[type[BaseModel]]:
    found: list[type[BaseModel]] = []
    for model in models:
        if part in model.model_fields:
            found += _models_in(model.model_fields[part].annotation)
    return found


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models_in(inner)]
