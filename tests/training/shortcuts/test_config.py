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
    "given",
    [
        "bits",
        "bits:",
        "bits:-1",
        "bits:14",
        "bits:four",
        "unique:3",
        "random",
        "",
        4,
        {"kind": "unique", "bits": 0},
        {"kind": "bits", "bits": 4, "modalities": []},
        {"kind": "bits", "bits": 4, "modalities": ["text", "text"]},
        {"kind": "bits", "bits": 4, "modalities": ["audio"]},
        {"kind": "bits", "bits": 4, "digits": 6},
        {"kind": "unique", "modalities": ["image"], "in_targets": True},
    ],
)
def test_what_is_refused(given: object) -> None:
    with pytest.raises(ValidationError):
        ShortcutConfig.model_validate(given)


def test_a_recipe_takes_the_short_form_and_has_none_by_default() -> None:
    assert load_recipe("demo-scenes").data.shortcut is None
    shortcut = load_recipe("demo-scenes", ["data.shortcut=bits:4"]).data.shortcut
    assert shortcut == ShortcutConfig(kind="bits", bits=4)
    whole = load_recipe("demo-scenes", ["data.shortcut={kind: unique, modalities: [image]}"])
    assert whole.data.shortcut == ShortcutConfig(kind="unique", modalities=("image",))
    assert parse_recipe(yaml.safe_load(dump_recipe(whole)), "again") == whole
