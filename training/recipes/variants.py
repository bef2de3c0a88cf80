"""One file, many recipes: a file's `variants` name settings that take several values each.

    name: reco-mimic-cxr-lambda-{objective.negative_weight}
    variants:
      objective.negative_weight: [0.1, 0.2]

    name: "{objective}-clip-{data}"
    variants:
      objective: {infonce: {objective: {name: infonce}}, quest: {objective: {name: quest}}}
      data: {flickr30k: {}, coco: {train: {epochs: 3}}}

A list is the values of one setting, by its dotted key; a mapping gives each label its overrides. The recipes
are all combinations, and `{...}` in base, name, description and source is the label that a combination has
there.
"""

import re
from collections.abc import Callable, Collection, Mapping
from itertools import product
from typing import Any

from training.errors import RecipeError
from training.recipes.merge import merge, nested

_TEXTS = ("base", "name", "description", "source")
_PLACE = re.compile(r"\{([^{}]*)\}")

Axes = Mapping[str, Mapping[str, Mapping[str, Any]]]


def expand(tree: Mapping[str, Any], where: str) -> dict[str, dict[str, Any]]:
    """The recipes of a file by name; a file without variants is one recipe.

    Args:
        tree: The file's content; a base is not looked up.
        where: The file, for messages.

    Raises:
        RecipeError: The variants are not of the form above, or two combinations have the same name.
    """
    if "variants" not in tree:
        return {str(tree.get("name", where)): dict(tree)}
    axes = _axes(tree["variants"], where)
    plain = {key: value for key, value in tree.items() if key != "variants"}
    recipes: dict[str, dict[str, Any]] = {}
    for labels in product(*axes.values()):
        chosen = dict(zip(axes, labels, strict=True))
        recipe = plain
        for axis, label in chosen.items():
            recipe = merge(recipe, axes[axis][label])
        recipe = {**recipe, **{key: _fill(recipe[key], chosen, where) for key in _TEXTS if key in recipe}}
        name = str(recipe.get("name"))
        if name in recipes:
            raise RecipeError(f"Recipe {where}: two variants are named {name!r}; name every variant in it.")
        recipes[name] = recipe
    return recipes


def pattern(tree: Mapping[str, Any], where: str) -> str:
    """The names of a file's recipes in a shell's notation: reco-mimic-cxr-lambda-{0.1,0.2}."""
    return _fill_all(tree, "name", where, lambda options: f"{{{','.join(options)}}}")


def summary(tree: Mapping[str, Any], where: str) -> str:
    """What a file's recipes are, with dots for what varies."""
    return _fill_all(tree, "description", where, lambda _: "...")


def _fill_all(tree: Mapping[str, Any], key: str, where: str, show: Callable[[Collection[str]], str]) -> str:
    text = str(tree.get(key, where))
    if "variants" not in tree:
        return text
    axes = _axes(tree["variants"], where)
    return _fill(text, {axis: show(options) for axis, options in axes.items()}, where)


def _axes(variants: object, where: str) -> Axes:
    if not isinstance(variants, Mapping) or not variants:
        raise RecipeError(f"Recipe {where}: variants is a mapping of what varies to its values.")
    return {str(axis): _options(str(axis), options, where) for axis, options in variants.items()}


def _options(axis: str, options: object, where: str) -> Mapping[str, Mapping[str, Any]]:
    if isinstance(options, list) and options:
        return {str(value): nested(axis, value) for value in options}
    if isinstance(options, Mapping) and options:
        for label, overrides in options.items():
            if not isinstance(overrides, Mapping):
                raise RecipeError(
                    f"Recipe {where}: variants.{axis}.{label} is a mapping of settings; {{}} changes none."
                )
        return {str(label): overrides for label, overrides in options.items()}
    raise RecipeError(
        f"Recipe {where}: variants.{axis} is a list of values of that setting, "
        "or a mapping of labels to settings."
    )


def _fill(text: object, labels: Mapping[str, str], where: str) -> str:
    def label(place: re.Match[str]) -> str:
        if place[1] not in labels:
            raise RecipeError(f"Recipe {where}: {place[0]} is none of its variants: {', '.join(labels)}.")
        return labels[place[1]]

    return _PLACE.sub(label, str(text))
