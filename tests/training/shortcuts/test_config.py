"""Settings of shortcuts in both notations, alone and in recipes."""

import pytest
import yaml
from pydantic import ValidationError

from training.recipes.load import dump_recipe, load_recipe, parse_recipe
from training.shortcuts.config import ShortcutConfig


@pytest.mark.parametrize(
    ("settings", "kind", "bits", "modalities"),
    [
        ("unique", "unique", None, ("image", "text")),
        ("bits:4", "bits", 4, ("image", "text")),
        ("bits:0", "bits", 0, ("image", "text")),
        ({"kind": "bits", "bits": 13, "modalities": ["text"]}, "bits", 13, ("text",)),
        ({"kind": "unique", "modalities": ["image"]}, "unique", None, ("image",)),
    ],
)
def test_both_ways_to_write_it(
    settings: object, kind: str, bits: int | None, modalities: tuple[str, ...]
) -> None:
    config = ShortcutConfig.model_validate(settings)
    assert (config.kind, config.bits, config.modalities) == (kind, bits, modalities)
    assert ShortcutConfig.model_validate(config.model_dump(mode="json")) == config


_GOOD = {"kind": "bits", "bits": 4, "in_targets": False}


@pytest.mark.parametrize(
    "settings",
    [
        *("bits", "bits:", "bits:-1", "bits:14", "bits:x", "unique:3", "other", "", 4),
        _GOOD | {"kind": "unique"},
        _GOOD | {"modalities": []},
        _GOOD | {"modalities": ["text", "text"]},
        _GOOD | {"modalities": ["audio"]},
        _GOOD | {"digits": 6},
        _GOOD | {"modalities": ["image"], "in_targets": True},
    ],
)
def test_settings_that_are_refused(settings: object) -> None:
    ShortcutConfig.model_validate(_GOOD)
    with pytest.raises(ValidationError):
        ShortcutConfig.model_validate(settings)


def test_a_recipe_takes_the_short_form_and_has_none_by_default() -> None:
    assert load_recipe("demo-scenes").data.shortcut is None
    shortcut = load_recipe("demo-scenes", ["data.shortcut=bits:4"]).data.shortcut
    assert shortcut == ShortcutConfig(kind="bits", bits=4)
    whole = load_recipe("demo-scenes", ["data.shortcut={kind: unique, modalities: [image]}"])
    assert whole.data.shortcut == ShortcutConfig(kind="unique", modalities=("image",))
    assert parse_recipe(yaml.safe_load(dump_recipe(whole)), "again") == whole
