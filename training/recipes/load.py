"""Recipes by name or path: inheritance, overrides, and errors that name the wrong key.

A recipe file may begin with `base: NAME`. It then holds only what differs from that recipe, which may have a
base in turn. `training.recipes.merge` says how both are put together, and `training.recipes.variants` how one
file holds several recipes.
"""

import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from training.common.errors import RecipeError
from training.recipes.document import parse_value
from training.recipes.library import Library, is_path, nearest, shipped
from training.recipes.merge import merge, nested
from training.recipes.schema import WITHOUT_OBJECTIVE, NamedRecipe, Recipe
from training.recipes.variants import OF_SWEEP

Kind = TypeVar("Kind", bound=NamedRecipe)
# Settings that change no result.
_NOT_COMPARED: Final = ("data.cache_images", "tuned")
# Parts that pydantic adds to the path of a setting with several kinds of value.
_KIND_OF_VALUE: Final = re.compile(r"constrained-|literal\[|(?:int|float|str|bool)$")


@dataclass(frozen=True, slots=True)
class RecipeSummary:
    """A recipe that comes with the project.

    Attributes:
        group: The paper that it belongs to, by its folder; empty for those of the project itself.
    """

    name: str
    description: str
    source: str
    group: str


def load_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe that comes with the project, or a YAML file.

    Args:
        name_or_path: As `Library.tree` takes it.
        overrides: `dotted.key=value` each; values are YAML, so `null`, `true`, `[1, 2]` and `1e-4` have their
            types.

    Raises:
        RecipeError: No such recipe, not YAML, an unknown key or a value that does not fit.
    """
    tree = shipped().tree(name_or_path)
    apply_overrides(tree, overrides)
    folder = str(Path(name_or_path.partition(OF_SWEEP)[0]).resolve().parent)
    if is_path(name_or_path) and folder not in sys.path:
        # Modules next to a recipe can be named in it, such as my_losses:MyLoss.
        sys.path.append(folder)
    return parse_recipe(tree, f"Recipe {name_or_path}")


def task_tree(library: Library, kind: str, name_or_path: str, overrides: Sequence[str]) -> dict[str, Any]:
    """All settings of a recipe of a library, or of a YAML file, with overrides `dotted.key=value`.

    Raises:
        RecipeError: No such recipe, not YAML, or an override of another form.
    """
    if not library.has(name_or_path) and not is_path(name_or_path):
        patterns = "; ".join(file.pattern for file in library.files)
        raise RecipeError(f"There is no recipe {name_or_path!r} of {kind}; there are {patterns}.")
    tree = library.tree(name_or_path)
    apply_overrides(tree, overrides)
    return tree


def parse_recipe(tree: Mapping[str, Any], where: str) -> Recipe:
    """Check a recipe of `recoquest train`; see `parse_as`."""
    return parse_as(Recipe, tree, where)


def parse_as(kind: type[Kind], tree: Mapping[str, Any], where: str) -> Kind:
    """Check a recipe that was read already; `where` begins the error's sentence.

    Raises:
        RecipeError: An unknown key or a value that does not fit.
    """
    try:
        # Most mistakes are reported at once, without the second that importing torch takes.
        kind.model_validate(tree, context=WITHOUT_OBJECTIVE)
        return kind.model_validate(tree)
    except ValidationError as error:
        problems = [_explain(kind, item, tree) for item in _by_setting(error)]
        raise RecipeError(f"{where}: {'; '.join(problems[:4])}.") from None


def apply_overrides(tree: dict[str, Any], overrides: Sequence[str]) -> None:
    """Put `dotted.key=value` into a recipe that was read but not checked, one after another.

    Raises:
        RecipeError: One is not of that form.
    """
    for override in overrides:
        _apply(tree, override)


def list_recipes() -> list[RecipeSummary]:
    """The recipes that come with the project, by group and file; a sweep is one."""
    library = shipped()
    return [
        RecipeSummary(
            name, texts["description"], str(texts.get("source", tree.get("source", ""))), file.group
        )
        for file in library.files
        for name, texts in file.listed.items()
        for tree in [library.tree(next(iter(library.runs(name)), name))]
    ]


def dump_recipe(recipe: NamedRecipe) -> str:
    """The resolved recipe as YAML, every setting written out; loading it gives an equal recipe."""
    return yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def commented_recipe(recipe: NamedRecipe) -> str:
    """The resolved recipe as YAML for a person to edit: the same, each setting below what it means."""
    return "".join(f"{line}\n" for line in _commented(recipe, recipe.model_dump(mode="json"), ""))


def _commented(settings: BaseModel, tree: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, plain in tree.items():
        if description := type(settings).model_fields[name].description:
            yield from textwrap.wrap(
                description, 100, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# "
            )
        value = getattr(settings, name)
        if isinstance(value, BaseModel) and isinstance(plain, Mapping):
            yield f"{indent}{name}:"
            yield from _commented(value, plain, f"{indent}  ")
        else:
            text = yaml.safe_dump({name: plain}, sort_keys=False, allow_unicode=True)
            yield from textwrap.indent(text, indent).splitlines()


def first_difference(ours: NamedRecipe, theirs: NamedRecipe) -> str | None:
    """The dotted key of the first setting in which two recipes differ; None when they train the same model.

    Where images are kept and how settings were tuned do not count.
    """
    return _difference(ours.model_dump(mode="json"), theirs.model_dump(mode="json"))


def _difference(ours: Any, theirs: Any, key: str = "") -> str | None:
    if not (isinstance(ours, dict) and isinstance(theirs, dict)):
        return None if ours == theirs else key
    for name in [*ours, *(name for name in theirs if name not in ours)]:
        inner = f"{key}.{name}" if key else name
        if inner in _NOT_COMPARED:
            continue
        if (name in ours) != (name in theirs):
            return inner
        difference = _difference(ours[name], theirs[name], inner)
        if difference is not None:
            return difference
    return None


def _apply(tree: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise RecipeError(
            f"--set {override!r} is not of the form dotted.key=value, such as optimizer.lr=1e-4."
        )
    value = parse_value(text, f"--set {override!r}")
    if (parts[0] == "objective" and parts[-1] == "name") or parts[-1] == "architecture":
        tree.update(merge(tree, nested(".".join(parts), value)))
        return
    for part in parts[:-1]:
        if not isinstance(tree.get(part), dict):
            tree[part] = {}
        tree = tree[part]
    tree[parts[-1]] = value


def _by_setting(error: ValidationError) -> list[dict[str, Any]]:
    """The errors, those about kinds of value that one setting may have put together."""
    by_location: dict[tuple[int | str, ...], dict[str, Any]] = {}
    for details in error.errors():
        item: dict[str, Any] = {**details}
        while item["loc"] and _KIND_OF_VALUE.match(str(item["loc"][-1])):
            item["loc"] = item["loc"][:-1]
        if item["loc"] in by_location:
            by_location[item["loc"]]["msg"] += f" or {item['msg'].removeprefix('Input should be ')}"
        else:
            by_location[item["loc"]] = item
    return list(by_location.values())


def _explain(kind: type[NamedRecipe], error: Mapping[str, Any], tree: Mapping[str, Any]) -> str:
    location = tuple(str(part) for part in error["loc"])
    key = ".".join(location) or "the recipe"
    match error["type"]:
        case "extra_forbidden" if location[0] == "objective" and location[-1] == "base":
            from training.objectives.base import objective_names, objective_settings

            composed = [name for name in objective_names() if "base" in objective_settings(name).model_fields]
            return (
                f"there is no setting {key}: this objective has no base; remove it, or set "
                f"{'.'.join(location[:-1])}.name to one that has, which are {', '.join(composed)}"
            )
        case "extra_forbidden":
            keys = _known_keys(kind, tree, location[:-1])
            close = nearest(location[-1], keys)
            if close is None:
                return f"there is no setting {key}; there are {', '.join(keys)}"
            return f"there is no setting {key}; the nearest is {'.'.join((*location[:-1], close))}"
        case "missing" if isinstance(error["loc"][-1], int):
            *path, _ = location
            return f"{'.'.join(path)} has too few values: give a list{_example(kind, tree, path)}"
        case "missing":
            return f"{key} is missing"
        case "tuple_type" | "list_type":
            return f"{key}: give a list{_example(kind, tree, location)}, not {error['input']!r}"
        case "value_error":
            return f"{key}: {error['ctx']['error']}".rstrip(".")
        case _:
            message = str(error["msg"])
            nothing = " or null" if _may_be_null(kind, tree, location) else ""
            return f"{key}: {message[:1].lower()}{message[1:]}{nothing}, not {error['input']!r}"


def _example(kind: type[NamedRecipe], tree: Mapping[str, Any], location: Sequence[str]) -> str:
    """The default of a setting that is a list, as an example."""
    *path, name = location
    fields = [model.model_fields.get(name) for model in _models_at(kind, tree, path)]
    defaults = [field.default for field in fields if field is not None and isinstance(field.default, tuple)]
    return f", such as {[*defaults[0]]}" if defaults and defaults[0] else ""


def _may_be_null(kind: type[NamedRecipe], tree: Mapping[str, Any], location: Sequence[str]) -> bool:
    *path, name = location
    fields = [model.model_fields.get(name) for model in _models_at(kind, tree, path)]
    return any(field is not None and type(None) in get_args(field.annotation) for field in fields)


def _known_keys(kind: type[NamedRecipe], tree: Mapping[str, Any], location: Sequence[str]) -> list[str]:
    return [name for model in _models_at(kind, tree, location) for name in model.model_fields]


def _models_at(
    kind: type[NamedRecipe], tree: Mapping[str, Any], location: Sequence[str]
) -> list[type[BaseModel]]:
    """Return the models of the settings at a path of the recipe; of the objective that it names."""
    models: list[type[BaseModel]] = [kind]
    value: Any = tree
    for part in location:
        models = _models_below(models, part)
        value = value.get(part) if isinstance(value, Mapping) else None
        if part in ("objective", "base") and isinstance(value, Mapping) and "name" in value:
            from training.objectives.base import objective_settings

            models = [objective_settings(value["name"])]
    return models


def _models_below(models: Sequence[type[BaseModel]], part: str) -> list[type[BaseModel]]:
    return [
        below
        for model in models
        if part in model.model_fields
        for below in _models_in(model.model_fields[part].annotation)
    ]


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models_in(inner)]
