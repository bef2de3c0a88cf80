"""docs: every setting of training is named on some page."""

from pathlib import Path

from training.recipes.schema import TrainConfig

DOCS = Path(__file__).parents[3] / "docs"


def test_every_setting_of_training_is_named_on_a_page() -> None:
    text = "".join(page.read_text("utf-8") for page in DOCS.glob("*.md"))
    assert [name for name in TrainConfig.model_fields if f"train.{name}" not in text] == []
