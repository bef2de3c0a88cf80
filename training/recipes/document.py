"""YAML as recipes use it: safe, without keys given twice, and with 1e-4 a number."""

import re
from typing import Any

import yaml

from training.common.errors import RecipeError


class _Loader(yaml.SafeLoader):
    """PyYAML follows YAML 1.1, in which `1e-4` is a text and a repeated key silently wins."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(problem="a key is a list or a mapping")
            if key.value in seen:
                raise yaml.constructor.ConstructorError(problem=f"the key {key.value} is given twice")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def parse_document(text: str, where: str) -> dict[str, Any]:
    """A YAML document that is a mapping.

    Raises:
        RecipeError: The text is not YAML or not a mapping.
    """
    try:
        tree = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise RecipeError(f"Recipe {where} is not valid YAML: {_one_line(error)}.") from None
    if not isinstance(tree, dict):
        raise RecipeError(f"Recipe {where} is not a mapping of settings.")
    return tree


def parse_value(text: str, where: str) -> Any:
    """The value of an override, typed as YAML types it; `where` begins the error's sentence.

    Raises:
        RecipeError: The text is not YAML.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise RecipeError(f"{where} is not valid YAML: {_one_line(error)}.") from None


def _one_line(error: yaml.YAMLError) -> str:
    return " ".join(str(error).split()).rstrip(".")
