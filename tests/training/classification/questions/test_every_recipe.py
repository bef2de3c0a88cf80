"""Every recipe of visual question answering: it resolves, its model can be built, and it trains."""

import math
from pathlib import Path

import pytest
import torch

from tests.training.classification.questions.samples import write_vqa
from tests.training.models.tiny import IMAGE_OPTIONS, tiny_tokenizer
from training.classification.load import load_classification_recipe, shipped
from training.classification.questions.config import QuestionRecipe
from training.classification.questions.model import AnswerModel
from training.classification.questions.run import answer_questions, published
from training.recipes.load import parse_as
from training.tasks.opening import RunOptions

RECIPES = {
    name: recipe
    for name in shipped().names
    if name.startswith("vqa-") and isinstance(recipe := load_classification_recipe(name), QuestionRecipe)
}


def test_there_is_one_for_each_row_and_one_to_try() -> None:
    assert set(RECIPES) == {"vqa-ban-base", "vqa-ban-reclaim", "vqa-small-base", "vqa-small-reclaim"}
    for name, recipe in RECIPES.items():
        assert (recipe.reclaim is not None) is name.endswith("-reclaim")
        assert bool(published(recipe)) is ("-ban-" in name)
    ban = RECIPES["vqa-ban-base"]
    assert (ban.model.glimpses, ban.model.question.width, ban.data.min_answer_count) == (8, 1280, 9)
    assert (ban.train.batch_size, ban.train.epochs, ban.optimizer.max_grad_norm) == (256, 13, 0.25)
    assert ban.model.image.frozen
    # 443,757 questions, of which the held-out share chooses.
    kept = 443_757 - math.floor(ban.data.validation_share * 443_757)
    assert ban.schedule.warmup_steps == 4 * math.ceil(kept / ban.train.batch_size)


@pytest.mark.parametrize("name", RECIPES)
def test_model_is_built_on_no_device(name: str) -> None:
    tree = RECIPES[name].model_dump(mode="json")
    if tree["model"]["image"]["pretrained"] is not None:
        assert tree["model"]["image"]["pretrained"] == "microsoft/resnet-101"
        tree["model"]["image"] |= {"pretrained": None, "options": {"depths": [3, 4, 23, 3]}}
    recipe = parse_as(QuestionRecipe, tree, name)
    with torch.device("meta"):
        model = AnswerModel(recipe.model, tiny_tokenizer(), 3129, load=False)
    assert all(parameter.is_meta for parameter in model.parameters())
    assert sum(parameter.numel() for parameter in model.parameters()) > 1e6


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_trains(name: str, tmp_path: Path) -> None:
    """Two steps at small scale end in a score."""
    tree = RECIPES[name].model_dump(mode="json")
    image = tree["model"]["image"]
    image |= {"pretrained": None, "options": IMAGE_OPTIONS[image["architecture"]]}
    tree["model"]["question"] |= {"word_width": 8, "width": 12}
    tree["preprocessing"]["size"] = 32
    tree["data"] |= {"min_answer_count": 1, "validation_share": 0.2}
    tree["train"] |= {"batch_size": 8, "epochs": 1, "precision": "fp32"}
    data = write_vqa(tmp_path / "data", train=10, val=4)
    recipe = parse_as(QuestionRecipe, tree, name)
    result = answer_questions(recipe, data, RunOptions(tmp_path / "out", device="cpu", show_progress=False))
    assert 0 <= result.test["vqa_score"] <= 1
