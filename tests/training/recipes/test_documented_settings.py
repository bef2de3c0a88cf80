"""docs: every setting of training is named on some page, and how compared recipes differ."""

from pathlib import Path

from tests.training.recipes.resolved import settings
from training.recipes.schema import TrainConfig

DOCS = Path(__file__).parents[3] / "docs"


def test_every_setting_of_training_is_named_on_a_page() -> None:
    text = "".join(page.read_text("utf-8") for page in DOCS.glob("*.md"))
    assert [name for name in TrainConfig.model_fields if f"train.{name}" not in text] == []


def test_the_page_of_small_recipes_names_all_settings_that_differ_beside_the_kind_of_objective() -> None:
    recipes = [settings(f"{objective}-flickr-small") for objective in ("infonce", "reco", "quest")]
    keys = {key for recipe in recipes for key in recipe if "." not in key}
    apart = {key for key in keys if len({repr(recipe[key]) for recipe in recipes}) > 1}
    assert apart == {"name", "description", "source", "model", "objective"}
    models = [recipe["model"] for recipe in recipes]
    parts = {f"model.{part}" for part in models[0] if len({repr(model[part]) for model in models}) > 1}
    page = (DOCS / "results" / "small.md").read_text("utf-8")
    named = {*parts, f"objective.reduction={settings('reco-flickr-small')['objective.reduction']}"}
    assert [key for key in sorted(named) if f"`{key}`" not in page] == []
