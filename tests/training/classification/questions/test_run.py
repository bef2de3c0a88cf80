"""Whole runs: they learn to look, stop and go on bit by bit, and leave what they say."""

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from tests.training.classification.questions.samples import tiny_recipe, tiny_tree, write_vqa
from tests.training.conversion import folders
from tests.training.models.tiny import tiny_tokenizer
from tests.training.runs import assert_same_checkpoints, assert_same_runs, before_step, lines, terminate
from training.classification.load import load_classification_recipe
from training.classification.questions.batches import QuestionLoader, opened
from training.classification.questions.config import QuestionRecipe
from training.classification.questions.run import answer_questions
from training.classification.questions.vqa import read_questions
from training.common.errors import DataError, RecipeError
from training.models.config import TextPreprocessingConfig
from training.models.preprocessing import TextPreprocessing
from training.recipes.load import parse_as
from training.tasks.opening import RunOptions, TaskResult, open_run
from training.trainer.loop import TrainingLoop
from training.trainer.run_state.errors import TrainingError, TrainingInterruptedError

STEPS = 8  # two epochs of the 48 questions of 64 that are not held out, by 12


@pytest.fixture(scope="module")
def squares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vqa(tmp_path_factory.mktemp("vqa") / "data")


def run(
    recipe: QuestionRecipe, data: Path, out: Path, *, resume: bool = False
) -> TaskResult[dict[str, float]]:
    return answer_questions(recipe, data, RunOptions(out, resume=resume, device="cpu", show_progress=False))


@pytest.fixture(scope="module")
def straight(squares: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with RECLAIM's term that nobody stopped."""
    out = tmp_path_factory.mktemp("straight") / "out"
    run(tiny_recipe(reclaim=True), squares, out)
    return out


@pytest.mark.slow
def test_learns_to_look_where_it_is_asked(tmp_path: Path) -> None:
    data = write_vqa(tmp_path / "data", train=85)
    result = run(tiny_recipe(reclaim=True, epochs=10), data, tmp_path / "out")
    # Of an image alone, and of a question alone, half of the answers are right.
    assert result.test["vqa_score"] > 0.7
    assert result.test["attainable"] == 1


@pytest.mark.parametrize("step", [3, 5])
def test_stopped_and_resumed_it_is_bit_equal(
    squares: Path, straight: Path, tmp_path: Path, step: int
) -> None:
    recipe, out = tiny_recipe(reclaim=True), tmp_path / "out"
    stopped = pytest.raises(TrainingInterruptedError, match=f"after step {step} of {STEPS}.*--resume")
    with before_step(TrainingLoop, step, terminate), stopped:
        run(recipe, squares, out)
    torch.manual_seed(99)
    run(recipe, squares, out, resume=True)
    assert_same_runs(out, straight)


def test_what_a_run_leaves(straight: Path) -> None:
    results = json.loads((straight / "results.json").read_text())
    assert results["task"] == "vqa"
    assert results["answers"] == 4
    assert results["examples"] == {"train": 48, "validation": 16, "val2014": 16}
    assert results["steps"] == STEPS
    assert {"loss", "task", "reclaim"} <= lines(straight)[0].keys()
    assert load_classification_recipe(str(straight / "recipe.yaml")) == tiny_recipe(reclaim=True)


def test_val2014_is_reported_and_chooses_nothing(squares: Path, straight: Path, tmp_path: Path) -> None:
    """With answers that nobody gave there, weights and choice are the same, and the report is another."""
    data = tmp_path / "data"
    shutil.copytree(squares, data)
    path = data / "v2_mscoco_val2014_annotations.json"
    path.write_text(path.read_text().replace('"no"', '"yes"').replace('"green"', '"red"'))
    result = run(tiny_recipe(reclaim=True), data, tmp_path / "out")
    assert_same_checkpoints(tmp_path / "out", straight)
    before = json.loads((straight / "results.json").read_text())
    assert result.validation == before["validation"]
    assert result.test != before["metrics"]


@pytest.mark.parametrize("cache", [True, False])
def test_broken_images_are_left_out_with_their_questions(tmp_path: Path, cache: bool) -> None:
    data = write_vqa(tmp_path / "data")
    broken = data / "train2014/COCO_train2014_000000000003.jpg"
    broken.write_bytes(b"no image")
    recipe = tiny_recipe(cache=cache, epochs=1)
    strict = recipe.model_copy(update={"data": recipe.data.model_copy(update={"max_rejected": 0.01})})
    with pytest.raises(DataError, match="Too much of the images"):
        run(strict, data, tmp_path / "strict")
    result = run(recipe, data, tmp_path / "out")
    assert result.rejected == 1


def test_kept_and_streamed_images_train_alike(squares: Path, tmp_path: Path) -> None:
    kept, streamed = (
        run(tiny_recipe(cache=cache), squares, tmp_path / str(cache)).test for cache in (True, False)
    )
    assert kept == streamed
    assert [line.get("loss") for line in lines(tmp_path / "True")] == [
        line.get("loss") for line in lines(tmp_path / "False")
    ]


def test_answers_that_are_too_rare_and_other_data_are_refused(
    squares: Path, straight: Path, tmp_path: Path
) -> None:
    recipe = tiny_recipe()
    rare = recipe.model_copy(update={"data": recipe.data.model_copy(update={"min_answer_count": 99})})
    with pytest.raises(DataError, match=r"Fewer than two answers occur 99 times.*data\.min_answer_count"):
        run(rare, squares, tmp_path / "out")
    other = write_vqa(tmp_path / "other", train=20)
    with pytest.raises(TrainingError, match="training data or the encoder are not those"):
        run(tiny_recipe(reclaim=True), other, straight, resume=True)
    one_left = recipe.model_copy(update={"train": recipe.train.model_copy(update={"batch_size": 47})})
    with pytest.raises(RecipeError, match="batch norm"):
        run(one_left, squares, tmp_path / "one")


def test_the_largest_batch_has_the_longest_questions(tmp_path: Path) -> None:
    """Made without a file of an image."""
    data, tokenizer = write_vqa(tmp_path / "data", train=8), tiny_tokenizer()
    recipe = parse_as(QuestionRecipe, tiny_tree(cache=False), "The tiny recipe")
    text = TextPreprocessing(TextPreprocessingConfig(max_tokens=16), tokenizer)
    asked = read_questions(data, "train2014").items
    asked = (*asked[:9], replace(asked[9], text="Is " * 12), *asked[10:])
    with (
        open_run(recipe, RunOptions(tmp_path / "out", device="cpu", show_progress=False)) as opening,
        opened(asked, data, recipe, opening) as seen,
    ):
        shutil.rmtree(data / "train2014")
        batch = QuestionLoader(
            seen.items, batch_size=4, seen=seen, text=text, answers={"no": 0, "yes": 1}
        ).largest()
    assert batch.images.shape == (4, 3, 16, 16)
    assert 9 in batch.items
    assert batch.tokens.input_ids.shape == text(["Is " * 12]).input_ids.expand(4, -1).shape
    assert batch.scores.shape == (4, 2)
    assert not seen.broken.items


def test_a_pretrained_tower_brings_its_preprocessing(
    squares: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tower = tmp_path / "resnet"
    folders.resnet(tower)
    tree = tiny_tree()
    tree["model"]["image"] = {"architecture": "resnet", "pretrained": str(tower)}
    tree["preprocessing"] = {"size": 32, "mean": [0.5, 0.5, 0.5]}
    tree["train"]["epochs"] = 1
    with caplog.at_level(logging.WARNING):
        run(parse_as(QuestionRecipe, tree, "The tiny recipe"), squares, tmp_path / "out")
    kept = yaml.safe_load((tmp_path / "out/recipe.yaml").read_text())["preprocessing"]
    assert (kept["size"], kept["resize"], kept["mean"]) == (32, "squash", [0.5, 0.5, 0.5])
    said = [record.getMessage() for record in caplog.records if "trained with" in record.getMessage()]
    theirs = (0.485, 0.456, 0.406)
    assert said == [
        f"preprocessing.mean is (0.5, 0.5, 0.5); {tower} was trained with {theirs}.",
        f"preprocessing.scaled_decoding is True; {tower} was trained with False.",
    ]
