"""The objectives that a recipe can name: all settings found in the modules of `training.objectives`."""

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from inspect import isabstract
from typing import Annotated

from pydantic import BeforeValidator, SerializeAsAny

import training.objectives
from training.objectives.base import ObjectiveConfig


@cache
def objective_types() -> Mapping[str, type[ObjectiveConfig]]:
    """The settings class of every objective by its name; a module in the package is enough to be found."""
    package = training.objectives
    found = {}
    for module in pkgutil.iter_modules(package.__path__):
        members = vars(importlib.import_module(f"{package.__name__}.{module.name}"))
        for member in members.values():
            if isinstance(member, type) and issubclass(member, ObjectiveConfig) and not isabstract(member):
                found[str(member.model_fields["name"].default)] = member
    return dict(sorted(found.items()))


def parse_objective(value: object) -> ObjectiveConfig:
    """The settings that a mapping with a `name` describes.

    Raises:
        ValueError: The name is missing or unknown, or (pydantic's own) a setting is wrong.
    """
    if isinstance(value, ObjectiveConfig):
        return value
    if not isinstance(value, Mapping):
        raise ValueError("an objective is a mapping with a name, such as {name: reco}")
    types = objective_types()
    name = value.get("name")
    if name is None:
        raise ValueError(f"name is missing; there are {', '.join(types)}")
    if name not in types:
        raise ValueError(f"{name!r} is no objective; there are {', '.join(types)}")
    return types[str(name)].model_validate(value)


ObjectiveSettings = Annotated[SerializeAsAny[ObjectiveConfig], BeforeValidator(parse_objective)]
