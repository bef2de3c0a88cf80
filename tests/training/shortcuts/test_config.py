"""Settings of shortcuts in both notations, alone and in recipes."""

import pytest
import yaml
from pydantic import ValidationError

from training.recipes.load import dump_recipe, load_recipe, parse_recipe
from training.shortcuts.config import ShortcutConfig


@pytest.mark.parametrize(
    ("given", "kind", "bits", "modalities"),
    [
        ("unique", "unique", None, ("image", "text")),
        ("bits:4", "bits", 4, ("image", "text")),
        ("bits:0", "bits", 0, ("image", "text")),
        ({"kind": "bits", "bits": 13, "modalities": ["text"]}, "bits", 13, ("text",)),
        ({"kind": "unique", "modalities": ["image"]}, "unique", None, ("image",)),
    ],
)
def test_both_ways_to_write_it(
    given: object, kind: str, bits: int | None, modalities: tuple[str, ...]
) -> None:
    config = ShortcutConfig.model_validate(given)
    assert (config.kind, config.bits, config.modalities) == (kind, bits, modalities)
    assert ShortcutConfig.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    "given", ["bits", "bits:", "bits:-1", "bits:14", "bits:x", "unique:3", "other", "", 4]
)
def test_words_that_are_refused(given: object) -> None:
    with pytest.raises(ValidationError):
        ShortcutConfig.model_validate(given)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "unique"},
        {"modalities": []},
        {"modalities": ["text", "text"]},
        {"modalities": ["audio"]},
        {"digits": 6},
        {"modalities": ["image"], "in_targets": True},
    ],
)
def test_settings_that_are_refused(change: dict[str, object]) -> None:
    good = {"kind": "bits", "bits": 4, "in_targets": False}
    ShortcutConfig.model_validate(good)
    with pytest.raises(ValidationError):
        ShortcutConfig.model_validate(good | change)


def test_a_recipe_takes_the_short_form_and_has_none_by_default() -> None:
    assert load_recipe("demo-scenes").data.shortcut is None
    shortcut = load_recipe("demo-scenes", ["data.shortcut=bits:4"]).data.shortcut
    assert shortcut == ShortcutConfig(kind="bits", bits=4)
    whole = load_recipe("demo-scenes", ["data.shortcut={kind: unique, modalities: [image]}"])
    assert whole.data.shortcut == ShortcutConfig(kind="unique", modalities=("image",))
    assert parse_recipe(yaml.safe_load(dump_recipe(whole)), "again") == whole
