"""`recoquest bundle`, `classify`, `language-model`, `evaluate` and `--track`: what they print and refuse."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import torch

from app.cli.training import _image_table, _label_table, _text_table, print_report
from tests.app.commands import run_command
from tests.e2e.work import COMMAND
from tests.training.classification.samples import tiny_recipe as tiny_image_recipe
from tests.training.classification.samples import write_squares
from tests.training.conversion import folders, open_clip_folders
from tests.training.data.sounds import tone, wav16
from tests.training.models.tiny import (
    tiny_audio_model,
    tiny_audio_preprocessing,
    tiny_model,
    tiny_preprocessing,
)
from tests.training.papers.samples import (
    text_recipe,
    tiny_language_recipe,
    tiny_question_recipe,
    tiny_text_recipe,
    write_sentences,
    write_sst,
    write_vqa,
)
from tests.training.trainer.scenes import write_scenes
from training.classification.recipe import ImageRecipe
from training.classification.run import Scores
from training.common.errors import RecipeError, RecoquestError
from training.common.manifest import read_manifest, write_manifest
from training.common.progress import console
from training.evaluation.evaluate import EvaluationReport
from training.evaluation.factors import FactorReading
from training.models.bundle import read_bundle, save_bundle
from training.models.encoder import load_encoder
from training.models.onnx import load_onnx_encoder
from training.papers.load import classification_recipes, load_classification_recipe
from training.recipes.load import dump_recipe
from training.recipes.schema import NamedRecipe
from training.trainer.run_state.checkpoint import load_checkpoint
from training.trainer.run_state.errors import TrainingError


@pytest.mark.slow
def test_a_published_encoder_searches_without_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOQUEST_HOME", str(tmp_path / "home"))
    folders.clip(tmp_path / "clip-tiny")
    bundle = tmp_path / "bundle"
    run_command("sample-data", tmp_path / "samples", "--images", 12)
    made = run_command("bundle", tmp_path / "clip-tiny", "--out", bundle)
    assert "Images: 64 x 64 pixels (shortest_edge, bicubic)" in made.output
    assert "Texts: up to 24 tokens" in made.output
    assert "Lowest cosine with transformers: 1.000000 for images, 1.000000 for texts" in made.output
    assert "On a CPU by ONNX Runtime" in made.output
    assert read_bundle(bundle).name == "clip-tiny"
    assert load_onnx_encoder(bundle) is not None
    run_command("index", "scenes", "--bundle", bundle, "--data", tmp_path / "samples" / "scenes")
    assert run_command("search", "scenes", "a dog on the beach", "-k", 3).output.count("scene") >= 3


def test_an_encoder_of_images_alone_says_so(tmp_path: Path) -> None:
    folders.dinov2(tmp_path / "dinov2")
    named = ("--out", tmp_path / "b", "--image-size", 112, "--name", "films")
    made = run_command("bundle", tmp_path / "dinov2", *named)
    assert "Images: 112 x 112 pixels" in made.output
    assert "Texts: none" in made.output
    assert read_bundle(tmp_path / "b").name == "films"


def test_a_folder_of_open_clip_is_proved_as_well(tmp_path: Path) -> None:
    open_clip_folders.own_clip(tmp_path / "own")
    made = run_command("bundle", tmp_path / "own", "--out", tmp_path / "b")
    assert "Lowest cosine with open_clip's definition: 1.000000 for images, 1.000000 for" in made.output
    metrics = read_bundle(tmp_path / "b").metrics
    assert min(metrics["parity_of_images"], metrics["parity_of_texts"]) > 0.9999
    assert load_onnx_encoder(tmp_path / "b") is not None


def test_a_bundle_without_graphs_is_whole_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise torch.onnx.errors.UnsupportedOperatorError("aten::unheard_of", 18, None)

    monkeypatch.setattr(torch.onnx, "export", refused)
    folders.clip(tmp_path / "clip")
    made = run_command("bundle", tmp_path / "clip", "--out", tmp_path / "bundle")
    assert "On a CPU by PyTorch, which takes longer: No ONNX graphs of clip can be made" in made.output
    assert "unheard_of" in made.output
    assert load_encoder(tmp_path / "bundle", "cpu").modalities == {"image", "text"}


def test_no_bundle_is_left_where_none_can_be_made(tmp_path: Path) -> None:
    folders.clip(tmp_path / "clip")
    (tmp_path / "clip" / "preprocessor_config.json").unlink()
    made = run_command("bundle", tmp_path / "clip", "--out", tmp_path / "bundle", code=1)
    assert isinstance(made.exception, RecipeError)
    assert not (tmp_path / "bundle").exists()


CLASSIFIES: Final = classification_recipes().names[0]


def _trained(command: str, recipe: NamedRecipe, data: Path, out: Path, *options: str) -> tuple[str, Any]:
    """What is printed by a training of one epoch, and its results."""
    file = out.with_suffix(".yaml")
    file.write_text(dump_recipe(recipe))
    words = (command, file, "--data", data, "--out", out, "--set", "train.epochs=1", "--device", "cpu")
    printed = run_command(*words, *options).output
    return printed, json.loads((out / "results.json").read_text())


def test_classifies_says_what_it_found_and_takes_overrides(tmp_path: Path) -> None:
    command = ("classify", tiny_text_recipe(reclaim=True), write_sst(tmp_path / "data"), tmp_path / "out")
    printed, result = _trained(*command)
    assert result["steps"] == 6
    assert f"{100 * result['metrics']['accuracy']:.2f}" in printed
    assert "published" not in printed
    _trained(*command, "--resume")


def test_classifies_images_and_says_how_well_labels_are_told_apart(tmp_path: Path) -> None:
    data = write_squares(tmp_path / "data")
    printed, result = _trained("classify", tiny_image_recipe(), data, tmp_path / "out")
    assert result["steps"] == 5
    for figure in result["test"].values():
        assert f"{100 * figure:.2f}" in printed
    assert "6 of 12" in printed


def test_answers_questions_and_says_how_well(tmp_path: Path) -> None:
    data = write_vqa(tmp_path / "data")
    printed, result = _trained("classify", tiny_question_recipe(reclaim=True), data, tmp_path / "out")
    assert f"{100 * result['metrics']['vqa_score']:.2f}" in printed
    assert "100.00" in printed
    assert "published" not in printed


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_several_processes_are_started_and_speak_once(tmp_path: Path) -> None:
    data = write_sst(tmp_path / "data")
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(dump_recipe(tiny_text_recipe(reclaim=True)))
    arguments = ["classify", str(recipe), "--data", str(data), "--out", str(tmp_path / "out")]
    settings = ["--device", "cpu", "--processes", "2", "--set", "train.epochs=1"]
    ended = subprocess.run([*COMMAND, *arguments, *settings], capture_output=True, text=True, check=True)
    assert len(load_checkpoint(tmp_path / "out/checkpoints/last.pt").random) == 2
    result = json.loads((tmp_path / "out/results.json").read_text())
    assert ended.stdout.count(f"{100 * result['metrics']['accuracy']:.2f}") == 1


def test_a_run_stands_beside_the_figures_of_its_own_share(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(name: str) -> str:
        metrics = {"f1": 0.5, "accuracy": 0.25}
        console().print(_text_table(text_recipe(name), metrics))
        return capsys.readouterr().out

    whole = printed("glue-bert-reclaim::mrpc")
    assert "published, BERT-large + RECLAIM" in whole
    assert re.search(r"BERT-base +│ +89.47 +│ +85.29", whole)
    share = printed("glue-share-reclaim::mrpc-0.1")
    assert re.search(r"BERT-base +│ +80.07 +│ +69.40", share)
    assert re.search(r"BERT-base \+ RECLAIM +│ +80.38 +│ +70.59", share)
    assert "89.47" not in share and "large" not in share
    assert "published" not in printed("glue-neighbours::mrpc-10")


def test_labels_stand_one_by_one_and_their_mean_beside_the_paper_s(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scores = Scores({"Edema": 0.75, "Pneumonia": 0.5}, {"Edema": 3, "Fracture": 0, "Pneumonia": 4}, 20)

    def printed(name: str) -> str:
        recipe = load_classification_recipe(name)
        assert isinstance(recipe, ImageRecipe)
        console().print(_label_table(scores), _image_table(recipe, scores), sep="\n")
        return capsys.readouterr().out

    table = printed("chexpert-bundle-linear::10")
    assert re.search(r"Edema +│ +3 of 20 +│ +75.00", table)
    assert re.search(r"Fracture +│ +0 of 20 +│ +–", table)
    assert re.search(r"this run +│ +62.50 +│ +2", table)
    assert re.search(r"published, ReCo +│ +88.28 +│ +8", table)
    assert re.search(r"published, ReCo +│ +88.33", printed("chexpert-bundle-finetune::10"))
    assert "published" not in printed("labels-bundle-linear")


@pytest.mark.parametrize("tracker", ["wandb", "mlflow"])
@pytest.mark.parametrize(
    "command",
    [
        ["train", "demo-scenes", "--data", "nowhere"],
        ["language-model", "lm-ptb-vae", "--data", "nowhere"],
        ["classify", "labels-small-linear", "--data", "nowhere"],
        ["retrain", "photos"],
    ],
)
def test_a_package_that_is_missing_is_told_before_any_work(
    command: list[str], tracker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, tracker, None)
    result = run_command(*command, "--out", tmp_path / "out", "--track", tracker, code=1)
    assert isinstance(result.exception, TrainingError)
    assert f"pip install 'recoquest[{tracker}]'" in str(result.exception)


def test_trains_says_what_it_found_and_resumes(tmp_path: Path) -> None:
    data = write_sentences(tmp_path / "data")
    with (data / "train.txt").open("ab") as file:
        file.write(b"\xff\n")
    command = ("language-model", tiny_language_recipe(), data, tmp_path / "out")
    printed, result = _trained(*command, "--set", "data.max_rejected=0.1")
    assert result["steps"] == 6
    assert f"{result['test']['perplexity']:.2f}" in printed
    assert "Left out: 1 lines" in printed
    assert "published" not in printed
    _trained(*command, "--set", "data.max_rejected=0.1", "--resume")


def test_a_row_of_a_table_has_the_published_figures_beside_it(tmp_path: Path) -> None:
    data = write_sentences(tmp_path / "data", train=16, valid=8, test=8)
    small = ["model.width=8", "model.word_width=8", "train.epochs=1"]
    settings = [part for setting in small for part in ("--set", setting)]
    arguments = ("--data", data, "--out", tmp_path / "out", "--device", "cpu", *settings)
    assert "110.50" in run_command("language-model", "lm-ptb-cyc-vae", *arguments).output


@pytest.mark.parametrize(
    ("command", "recipe", "message"),
    [
        ("language-model", "lm-ptb", "lm-small"),
        ("train", "lm-small::vae", "give it to `recoquest language-model`"),
        ("classify", "bert", "glue-small"),
        ("train", CLASSIFIES, f"{CLASSIFIES} is a recipe of classification: give it to `recoquest classify`"),
    ],
)
def test_a_wrong_recipe_is_a_plain_sentence(tmp_path: Path, command: str, recipe: str, message: str) -> None:
    result = run_command(command, recipe, "--data", tmp_path, "--out", tmp_path / "out", code=1)
    assert isinstance(result.exception, RecipeError)
    assert message in str(result.exception)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle") / "tiny"
    model, preprocessing = tiny_model().eval(), tiny_preprocessing()
    save_bundle(folder, name="tiny", model=model, preprocessing=preprocessing, metrics={}, recipe_yaml="")
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scenes(tmp_path_factory.mktemp("data") / "scenes", train=2, val=40)


@pytest.fixture(autouse=True)
def wide_and_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")


def evaluated(bundle: Path, data: Path, *options: object) -> str:
    command = ["evaluate", bundle, "--data", data, "--split", "val", "--device", "cpu", *options]
    return run_command(*command).output


def test_without_a_shortcut_there_is_one_report(bundle: Path, data: Path, tmp_path: Path) -> None:
    printed = evaluated(bundle, data, "--json", str(tmp_path / "report.json"))
    assert printed.count("RSUM") == 1
    assert "shortcut" not in printed
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["with_shortcut"] is None
    assert [reading["name"] for reading in report["factors"]] == ["labels"]
    assert "Read from vectors" in printed


def test_the_device_is_that_of_the_settings_unless_one_is_given(
    bundle: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOQUEST_DEVICE", "cuda:99")
    with pytest.raises(RecoquestError, match="no device 'cuda:99' here"):
        run_command("evaluate", bundle, "--data", data, "--split", "val")
    evaluated(bundle, data)


@pytest.mark.slow
def test_with_a_shortcut_the_clean_report_comes_first(bundle: Path, data: Path, tmp_path: Path) -> None:
    clean, both = tmp_path / "clean.json", tmp_path / "both.json"
    evaluated(bundle, data, "--json", str(clean))
    printed = evaluated(bundle, data, "--shortcut", "bits:4", "--json", str(both))
    assert printed.count("RSUM") == 2
    assert printed.index("40 images") < printed.index("with the shortcut bits:4 in images and texts")
    report = json.loads(both.read_text())
    marked = report.pop("with_shortcut")
    assert {**report, "with_shortcut": None} == json.loads(clean.read_text())
    assert (marked["images"], marked["texts"]) == (40, 80)
    assert marked["geometry"] != report["geometry"]
    assert marked["with_shortcut"] is None


@pytest.mark.parametrize("words", ["bits", "bits:14", "bits:x", "both", ""])
def test_a_wrong_shortcut_is_explained_before_any_work(words: str) -> None:
    result = run_command("evaluate", "no-bundle", "--data", "d", "--shortcut", words, code=2)
    assert "is not unique, or bits:N with N from 0 to 13" in " ".join(result.output.split())


@pytest.fixture
def sounds(tmp_path: Path) -> Path:
    folder = write_scenes(tmp_path / "data", train=0, val=4)
    records = []
    for number, record in enumerate(read_manifest(folder).records):
        (folder / f"{number}.wav").write_bytes(wav16(tone(300.0 + 200 * number, 0.05)))
        records.append(replace(record, audio=f"{number}.wav"))
    write_manifest(folder, records)
    return folder


def heard(folder: Path, *, texts: bool) -> Path:
    model, preprocessing = tiny_audio_model(texts=texts), tiny_audio_preprocessing(texts=texts)
    nothing: dict[str, Any] = {"metrics": {}, "recipe_yaml": ""}
    return save_bundle(folder, name="heard", model=model, preprocessing=preprocessing, **nothing).folder


@pytest.mark.parametrize("texts", [True, False])
def test_recall_between_all_modalities_is_shown_and_written(
    texts: bool, sounds: Path, tmp_path: Path
) -> None:
    report, heard_by = tmp_path / "report.json", heard(tmp_path / "b", texts=texts)
    printed = evaluated(heard_by, sounds, "--json", report)
    result = EvaluationReport.model_validate_json(report.read_bytes())
    expected = ["image to audio", "audio to image", *(["text to audio", "audio to text"] if texts else [])]
    assert [search.name for search in result.between] == expected
    assert all(name in printed for name in expected)
    assert f"4 images, {8 if texts else 0} texts, 4 sounds" in printed
    assert ("text to image" in printed) is texts
    if not texts:
        with pytest.raises(RecoquestError, match="leave --shortcut out"):
            evaluated(heard_by, sounds, "--shortcut", "unique")


@pytest.mark.parametrize(
    ("text", "audio", "columns"),
    [
        (None, 71.3, ["Of images", "Of sounds"]),
        (62.5, None, ["Of images", "Of texts"]),
        (62.5, 71.3, ["Of images", "Of texts", "Of sounds"]),
    ],
)
def test_factors_have_a_column_for_each_modality_of_the_encoder(
    text: float | None, audio: float | None, columns: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    factor = FactorReading("instrument", 4, 9, image=24.1, text=text, chance=25.0, audio=audio)
    counts = {"images": 9, "texts": 0, "skipped": 0, "truncated": 0}
    others = {"captions": None, "labels": None, "geometry": None}
    print_report(EvaluationReport.model_validate({**counts, **others, "factors": (factor,)}), title="heard")
    printed = capsys.readouterr().out
    assert [name for name in ("Of images", "Of texts", "Of sounds") if name in printed] == columns
    row = next(line for line in printed.splitlines() if "instrument" in line)
    figures = [f"{value:.1f}" for value in (24.1, text, audio, 25.0) if value is not None]
    assert row.replace("│", " ").split() == ["instrument", "4", *figures]
