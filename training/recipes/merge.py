"""Trees of settings put over each other, as a recipe is over its base and an override over a recipe."""

from collections.abc import Mapping
from typing import Any

# Under these keys is one of several kinds; settings of one mean nothing to another.
_OF_A_KIND = ("objective", "base")
# Keys that say which; `sum` is short for the objective of this name.
_KIND = frozenset({"name", "sum"})


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """A tree with the settings of both; where both have one, that of `above`.

    Mappings are merged key by key, everything else is replaced. An objective that is named replaces the whole
    one below it, and so does the base of a composed objective. A tower of another architecture keeps no
    `options` from below, which it would not know.
    """
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        if (
            isinstance(old, dict)
            and isinstance(value, dict)
            and not (key in _OF_A_KIND and _KIND & value.keys())
        ):
            if value.get("architecture", old.get("architecture")) != old.get("architecture"):
                old = {name: setting for name, setting in old.items() if name != "options"}
            merged[key] = merge(old, value)
        else:
            merged[key] = value
    return merged


def nested(dotted: str, value: Any) -> dict[str, Any]:
    """The tree in which only the setting at a dotted key is given."""
    for part in reversed(dotted.split(".")):
        value = {part: value}
    tree: dict[str, Any] = value
    return tree
