"""One file, many recipes: `variants` name settings that take several values each, and `sweep` does for runs.

    name: glue-bert-{term}
    variants:
      term: {base: {}, reclaim: {reclaim: {weight: 0.1}}}
    sweep:
      task: [cola, rte]
      reclaim.weight: [0.1, 0.5]

A list is the values of one setting, by its dotted key; a mapping gives each label its overrides. The recipes
are all combinations of `variants`, each with a name. A combination of `sweep` is a run of such a recipe,
`glue-bert-base::rte-0.5`: the values in their order, with dashes between. `{...}` in base, name, description
and source is the label that a combination has there; a name has none of `sweep`.
"""

import re
from collections.abc import Mapping
from itertools import product
from math import prod
from typing import Any, Final

from training.common.errors import RecipeError
from training.recipes.merge import merge, nested

# Between the name of a sweep and the values of one of its runs.
OF_SWEEP: Final = "::"
_TEXTS = ("base", "description", "source")
_PLACE = re.compile(r"\{([^{}]*)\}")

Axes = Mapping[str, Mapping[str, Mapping[str, Any]]]


def expand(tree: Mapping[str, Any], where: str) -> dict[str, dict[str, Any]]:
    """The recipes of a file by name, of a sweep its runs; a file without variants is one recipe.

    Args:
        tree: The file's content; a base is not looked up.
        where: The file, for messages.

    Raises:
        RecipeError: The variants are not of the form above, or two combinations have the same name.
    """
    axes, swept = _axes(tree, "variants", where), _axes(tree, "sweep", where)
    if not axes and not swept:
        return {str(tree.get("name", where)): dict(tree)}
    plain = {key: value for key, value in tree.items() if key not in ("variants", "sweep")}
    recipes: dict[str, dict[str, Any]] = {}
    for labels in product(*axes.values(), *swept.values()):
        chosen = dict(zip((*axes, *swept), labels, strict=True))
        recipe = plain
        for axis, label in chosen.items():
            recipe = merge(recipe, {**axes, **swept}[axis][label])
        filled = {key: _fill(recipe[key], chosen, where) for key in _TEXTS if key in recipe}
        name = _fill(recipe.get("name", where), {axis: chosen[axis] for axis in axes}, where)
        values = "-".join(chosen[axis] for axis in swept)
        key = f"{name}{OF_SWEEP}{values}" if swept else name
        if key in recipes:
            raise RecipeError(f"Recipe {where}: two variants are named {key!r}; name every variant in it.")
        recipes[key] = {**recipe, **filled, "name": f"{name}-{values}" if swept else name}
    return recipes


def pattern(tree: Mapping[str, Any], where: str) -> str:
    """The names of a file's recipes in a shell's notation: infonce-mimic-cxr-batch-{32,96}."""
    axes = _axes(tree, "variants", where)
    shown = {axis: f"{{{','.join(options)}}}" for axis, options in axes.items()}
    return _fill(tree.get("name", where), shown, where)


def listed(tree: Mapping[str, Any], where: str) -> dict[str, dict[str, str]]:
    """The names of a file's recipes, each with its description, and its source where the file has one.

    Dots are for what a sweep changes.
    """
    axes, swept = _axes(tree, "variants", where), _axes(tree, "sweep", where)
    names = {}
    for labels in product(*axes.values()):
        chosen = dict(zip(axes, labels, strict=True))
        filled = {**chosen, **dict.fromkeys(swept, "...")}
        texts = {"description": where, **{key: tree[key] for key in ("description", "source") if key in tree}}
        texts = {key: _fill(text, filled, where) for key, text in texts.items()}
        texts["description"] = _with_runs(texts["description"], swept)
        names[_fill(tree.get("name", where), chosen, where)] = texts
    return names


def summary(tree: Mapping[str, Any], where: str) -> str:
    """What a file's recipes are, with dots for what varies."""
    axes, swept = _axes(tree, "variants", where), _axes(tree, "sweep", where)
    text = _fill(tree.get("description", where), dict.fromkeys((*axes, *swept), "..."), where)
    return _with_runs(text, swept)


def _with_runs(text: str, swept: Axes) -> str:
    if not swept:
        return text
    return f"{text} {prod(map(len, swept.values()))} runs over {' x '.join(swept)}."


def _axes(tree: Mapping[str, Any], kind: str, where: str) -> Axes:
    if kind not in tree:
        return {}
    axes = tree[kind]
    if not isinstance(axes, Mapping) or not axes:
        raise RecipeError(f"Recipe {where}: {kind} is a mapping of what varies to its values.")
    return {str(axis): _options(kind, str(axis), options, where) for axis, options in axes.items()}


def _options(kind: str, axis: str, options: object, where: str) -> Mapping[str, Mapping[str, Any]]:
    if isinstance(options, list) and options:
        return {str(value): nested(axis, value) for value in options}
    if isinstance(options, Mapping) and options:
        for label, overrides in options.items():
            if not isinstance(overrides, Mapping):
                raise RecipeError(
                    f"Recipe {where}: {kind}.{axis}.{label} is a mapping of settings; {{}} changes none."
                )
        return {str(label): overrides for label, overrides in options.items()}
    raise RecipeError(
        f"Recipe {where}: {kind}.{axis} is a list of values of that setting, "
        "or a mapping of labels to settings."
    )


def _fill(text: object, labels: Mapping[str, str], where: str) -> str:
    def label(match: re.Match[str]) -> str:
        if match[1] not in labels:
            raise RecipeError(f"Recipe {where}: {match[0]} is none of its variants: {', '.join(labels)}.")
        return labels[match[1]]

    return _PLACE.sub(label, str(text))
