"""Whole runs: they learn, stop and go on bit by bit, and leave what they say."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.language_models.samples import tiny_recipe, write_sentences
from tests.training.runs import assert_same_runs, before_step, lines, terminate
from training.common.errors import DataError, RecipeError
from training.language_models.config import LanguageModelRecipe, load_language_recipe
from training.language_models.run import train_language_model
from training.tasks.opening import RunOptions, TaskResult
from training.trainer.loop import TrainingLoop
from training.trainer.run_state.checkpoint import load_checkpoint
from training.trainer.run_state.errors import TrainingError, TrainingInterruptedError

STEPS = 12  # two epochs of 48 sentences by 8
KINDS: dict[str, dict[str, Any]] = {
    "gaussian": {},
    "refined": {"refinement": {"steps": 2}},
    "implicit": {"posterior": "implicit"},
}


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sentences(tmp_path_factory.mktemp("sentences"))


def run(
    recipe: LanguageModelRecipe, data: Path, out: Path, *, resume: bool = False
) -> TaskResult[dict[str, float]]:
    return train_language_model(
        recipe, data, RunOptions(out, resume=resume, device="cpu", show_progress=False)
    )


@pytest.fixture(scope="module")
def straight(sentences: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with an implicit posterior and RECLAIM's term that nobody stopped."""
    out = tmp_path_factory.mktemp("straight") / "out"
    run(tiny_recipe(reclaim=True, posterior="implicit"), sentences, out)
    return out


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [kind if kind == "implicit" else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
)
def test_learns_the_grammar(sentences: Path, tmp_path: Path, kind: str) -> None:
    result = run(tiny_recipe(epochs=12, **KINDS[kind]), sentences, tmp_path / "out")
    # Of 13 words and ends alike it would be 13; a code that says nothing leaves it at 1.9 or more.
    assert result.test["perplexity"] < 3.5
    assert result.test.keys() == result.validation.keys()
    assert result.validation["elbo"] == max(
        line["elbo"] for line in lines(tmp_path / "out") if line["kind"] == "validation"
    )


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) if kind == "refined" else kind for kind in KINDS]
)
def test_stopped_and_resumed_it_is_bit_equal(
    sentences: Path, straight: Path, tmp_path: Path, kind: str
) -> None:
    recipe, out = tiny_recipe(reclaim=True, **KINDS[kind]), tmp_path / "out"
    if kind != "implicit":
        straight = tmp_path / "straight"
        run(recipe, sentences, straight)
    stopped = pytest.raises(TrainingInterruptedError, match=f"after step 9 of {STEPS}.*--resume")
    with before_step(TrainingLoop, 9, terminate), stopped:
        run(recipe, sentences, out)
    torch.manual_seed(99)
    run(recipe, sentences, out, resume=True)
    assert_same_runs(out, straight)


def test_what_a_run_leaves(straight: Path) -> None:
    results = json.loads((straight / "results.json").read_text())
    assert results["task"] == "language-model"
    assert results["examples"] == {"train": 48, "valid": 16, "test": 16}
    assert results["steps"] == STEPS
    assert results["vocabulary"] == 4 + 9
    training = [line for line in lines(straight) if line["kind"] == "train"]
    assert {"loss", "reconstruction", "kl", "mutual_information", "reclaim"} <= training[0].keys()
    weights = [line["kl_weight"] for line in training]
    assert weights[0] == pytest.approx(0.1 + 1 / 12)
    assert weights[-1] == 1
    recipe = tiny_recipe(reclaim=True, posterior="implicit")
    assert load_language_recipe(str(straight / "recipe.yaml")) == recipe
    rows = [name for name in load_checkpoint(straight / "checkpoints/last.pt").task if name.endswith("rows")]
    assert len(rows) == 2


def test_words_of_validation_and_test_are_not_learned(sentences: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for name in ("train", "valid", "test"):
        text = (sentences / f"{name}.txt").read_text()
        (data / f"{name}.txt").write_text(text if name == "train" else text + "an unseen animal\n" * 3)
    run(tiny_recipe(epochs=1), data, tmp_path / "out")
    assert json.loads((tmp_path / "out/results.json").read_text())["vocabulary"] == 4 + 9


def test_a_share_of_the_sentences_is_trained_on(sentences: Path, tmp_path: Path) -> None:
    recipe = tiny_recipe(epochs=1)
    half = recipe.model_copy(update={"data": recipe.data.model_copy(update={"share": 0.5})})
    run(half, sentences, tmp_path / "out")
    assert json.loads((tmp_path / "out/results.json").read_text())["examples"]["train"] == 24


def test_wrong_resumes_and_missing_files_are_refused(sentences: Path, straight: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="another reclaim"):
        run(tiny_recipe(posterior="implicit"), sentences, straight, resume=True)
    other = write_sentences(tmp_path / "other", valid=15)
    with pytest.raises(TrainingError, match="training data or the encoder are not those"):
        run(tiny_recipe(reclaim=True, posterior="implicit"), other, straight, resume=True)
    (other / "test.txt").unlink()
    with pytest.raises(DataError, match=r"test\.txt cannot be read"):
        run(tiny_recipe(), other, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.posterior=implicit", "model.refinement={steps: 2}"], "has no numbers to refine"),
        (["model.widht=3"], r"no setting model\.widht.*width"),
        (["kl.final=2"], r"kl\.final"),
    ],
)
def test_wrong_recipes_are_named(overrides: list[str], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        load_language_recipe("lm-small::vae", overrides)
    with pytest.raises(RecipeError, match=r"no recipe 'glue-bert-base::rte' of language models; .* lm-"):
        load_language_recipe("glue-bert-base::rte")
