"""Whole runs: they learn an easy rule, stop and go on bit by bit, and leave what they say."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training.classification.texts.samples import tiny_recipe, write_sst, write_sts
from tests.training.models.tiny import write_tokenizer
from tests.training.runs import assert_same_checkpoints, assert_same_runs, before_step, lines, terminate
from training.classification.load import load_classification_recipe
from training.classification.texts.config import TextRecipe
from training.classification.texts.run import classify_texts
from training.common.errors import DataError
from training.tasks.opening import RunOptions, TaskResult
from training.trainer.loop import TrainingLoop
from training.trainer.run_state.checkpoint import load_checkpoint
from training.trainer.run_state.errors import TrainingError, TrainingInterruptedError

STEPS = 12  # two epochs of the 48 examples of 64 that are not held out, by 8


@pytest.fixture(scope="module")
def sst(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sst(tmp_path_factory.mktemp("sst"))


def run(recipe: TextRecipe, data: Path, out: Path, *, resume: bool = False) -> TaskResult[dict[str, float]]:
    return classify_texts(recipe, data, RunOptions(out, resume=resume, device="cpu", show_progress=False))


@pytest.fixture(scope="module")
def straight(sst: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with RECLAIM's term that nobody stopped."""
    out = tmp_path_factory.mktemp("straight") / "out"
    run(tiny_recipe(reclaim=True), sst, out)
    return out


@pytest.mark.parametrize("reclaim", [False, True])
def test_learns_an_easy_rule(sst: Path, tmp_path: Path, reclaim: bool) -> None:
    result = run(tiny_recipe(reclaim=reclaim, epochs=6), sst, tmp_path / "out")
    assert result.test["accuracy"] >= 0.9


def test_learns_scores_of_pairs(tmp_path: Path) -> None:
    data = write_sts(tmp_path / "data")
    result = run(tiny_recipe("sts-b", reclaim=True, epochs=6), data, tmp_path / "out")
    assert result.test["pearson"] > 0.5
    assert result.test.keys() == {"pearson", "spearman"}


@pytest.mark.parametrize("step", [1, 6, 9])
def test_stopped_and_resumed_it_is_bit_equal(sst: Path, straight: Path, tmp_path: Path, step: int) -> None:
    recipe, out = tiny_recipe(reclaim=True), tmp_path / "out"
    stopped = pytest.raises(TrainingInterruptedError, match=f"after step {step} of {STEPS}.*--resume")
    with before_step(TrainingLoop, step, terminate), stopped:
        run(recipe, sst, out)
    assert not (out / "results.json").exists()
    torch.manual_seed(99)
    run(recipe, sst, out, resume=True)
    assert_same_runs(out, straight)


def test_killed_it_goes_on_from_its_last_checkpoint(sst: Path, straight: Path, tmp_path: Path) -> None:
    def die() -> None:
        raise MemoryError

    out = tmp_path / "out"
    with before_step(TrainingLoop, 10, die), pytest.raises(MemoryError):
        run(tiny_recipe(reclaim=True), sst, out)
    assert load_checkpoint(out / "checkpoints/last.pt").position.step == 6
    run(tiny_recipe(reclaim=True), sst, out, resume=True)
    assert_same_runs(out, straight)


def test_what_a_run_leaves(straight: Path) -> None:
    results = json.loads((straight / "results.json").read_text())
    assert results["task"] == "sst-2"
    assert results["examples"] == {"train": 48, "validation": 16, "dev": 16}
    assert results["steps"] == STEPS
    validations = [line for line in lines(straight) if line["kind"] == "validation"]
    assert [line["step"] for line in validations] == [6, 12]
    assert results["validation"]["accuracy"] == max(line["accuracy"] for line in validations)
    assert results["metrics"].keys() == {"accuracy"}
    training = [line for line in lines(straight) if line["kind"] == "train"]
    assert [line["step"] for line in training] == list(range(1, STEPS + 1))
    assert {"loss", "task", "reclaim", "learning_rate"} <= training[0].keys()
    assert load_classification_recipe(str(straight / "recipe.yaml")) == tiny_recipe(reclaim=True)
    banks = [name for name in load_checkpoint(straight / "checkpoints/last.pt").task if name.endswith("rows")]
    assert len(banks) == 2


def test_the_development_set_is_reported_and_chooses_nothing(
    sst: Path, straight: Path, tmp_path: Path
) -> None:
    """With its labels turned round, weights and choice are the same, and the report is another."""
    lines_of = (sst / "dev.tsv").read_text().splitlines()
    turned = [lines_of[0], *(f"{line[:-1]}{1 - int(line[-1])}" for line in lines_of[1:])]
    data = tmp_path / "data"
    data.mkdir()
    (data / "train.tsv").write_bytes((sst / "train.tsv").read_bytes())
    (data / "dev.tsv").write_text("\n".join(turned) + "\n")
    result = run(tiny_recipe(reclaim=True), data, tmp_path / "out")
    assert_same_checkpoints(tmp_path / "out", straight)
    before = json.loads((straight / "results.json").read_text())
    assert result.validation == before["validation"]
    assert result.test["accuracy"] == pytest.approx(1 - before["metrics"]["accuracy"])


def test_the_term_changes_what_is_learned(sst: Path, straight: Path, tmp_path: Path) -> None:
    run(tiny_recipe(), sst, tmp_path / "out")
    words = "classifier.tower.backbone.embeddings.tokens.weight"
    with_term, without = (
        load_checkpoint(folder / "checkpoints/last.pt").task[words] for folder in (straight, tmp_path / "out")
    )
    assert not torch.allclose(with_term, without, atol=1e-4)


def test_several_development_sets_are_measured_by_name(tmp_path: Path) -> None:
    columns = "sentence1\tsentence2\tgold_label"
    rows = [
        f"a good film {number}\tit is {word}\t{label}"
        for number in range(4)
        for word, label in (("good", "entailment"), ("bad", "neutral"))
    ]
    for name in ("train", "dev_matched", "dev_mismatched"):
        (tmp_path / f"{name}.tsv").write_text("\n".join([columns, *rows]) + "\n")
    result = run(tiny_recipe("mnli"), tmp_path, tmp_path / "out")
    assert result.test.keys() == {"dev_matched/accuracy", "dev_mismatched/accuracy"}


def test_broken_lines_are_counted_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = write_sst(tmp_path / "data", train=200)
    with (data / "train.tsv").open("a") as file:
        file.write("no label\n")
    result = run(tiny_recipe(epochs=1, batch_size=64), data, tmp_path / "out")
    assert result.rejected == 1
    assert "Line 202" in caplog.text
    assert json.loads((tmp_path / "out/results.json").read_text())["rejected"] == 1


def test_a_pretrained_folder_is_fine_tuned_and_needed_only_once_for_its_weights(
    sst: Path, tmp_path: Path
) -> None:
    from transformers import BertConfig, BertModel

    folder = tmp_path / "bert"
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    BertModel(BertConfig(vocab_size=300, intermediate_size=32, **sizes)).save_pretrained(folder)
    write_tokenizer(folder)
    recipe = tiny_recipe(reclaim=True, epochs=1)
    model = {"architecture": "bert", "pretrained": str(folder), "options": {}}
    recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update=model)})
    result = run(recipe, sst, tmp_path / "out")
    assert 0 <= result.test["accuracy"] <= 1


def test_a_used_folder_and_wrong_resumes_are_refused(sst: Path, straight: Path, tmp_path: Path) -> None:
    recipe = tiny_recipe(reclaim=True)
    with pytest.raises(TrainingError, match="is not empty"):
        run(recipe, sst, straight)
    with pytest.raises(TrainingError, match="no run to resume"):
        run(recipe, sst, tmp_path / "new", resume=True)
    with pytest.raises(TrainingError, match="another reclaim"):
        run(tiny_recipe(), sst, straight, resume=True)
    other = write_sst(tmp_path / "other", train=47)
    with pytest.raises(TrainingError, match="training data or the encoder are not those"):
        run(recipe, other, straight, resume=True)


def test_missing_files_are_named_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train\.tsv"):
        run(tiny_recipe(), tmp_path / "nowhere", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_a_loss_or_a_gradient_that_is_no_number_stops_the_run(
    sst: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    from training.classification.texts.model import TextTask

    original: Callable[..., Any] = TextTask.forward

    def poisoned(task: TextTask, *arguments: Tensor) -> Any:
        total, terms = original(task, *arguments)
        # The slope of the root at 0 is infinite.
        root = (0 * next(task.parameters()).sum()).sqrt()
        return total + (float("nan") if what == "loss" else root), terms

    monkeypatch.setattr(TextTask, "forward", poisoned)
    with pytest.raises(TrainingError, match=f"{what} of step 1 is not a finite number"):
        run(tiny_recipe(), sst, tmp_path / "out")
