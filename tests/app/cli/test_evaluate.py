"""`recoquest evaluate`: what it prints and writes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.main import build
from tests.training.models.tiny import tiny_model, tiny_preprocessing
from tests.training.trainer.scenes import write_scenes
from training.models.bundle_writer import save_bundle


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle") / "tiny"
    model, preprocessing = tiny_model().eval(), tiny_preprocessing()
    save_bundle(folder, name="tiny", model=model, preprocessing=preprocessing, metrics={}, recipe_yaml="")
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scenes(tmp_path_factory.mktemp("data") / "scenes", train=2, val=40)


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    return CliRunner()


def evaluated(runner: CliRunner, bundle: Path, data: Path, *options: str) -> str:
    arguments = ["evaluate", str(bundle), "--data", str(data), "--split", "val", "--device", "cpu", *options]
    result = runner.invoke(build(), arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_without_a_shortcut_there_is_one_report(
    runner: CliRunner, bundle: Path, data: Path, tmp_path: Path
) -> None:
    printed = evaluated(runner, bundle, data, "--json", str(tmp_path / "report.json"))
    assert printed.count("RSUM") == 1
    assert "shortcut" not in printed
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["with_shortcut"] is None
    assert [reading["name"] for reading in report["factors"]] == ["labels"]
    assert "Read from vectors" in printed


def test_the_device_is_that_of_the_settings_unless_one_is_given(
    runner: CliRunner, bundle: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOQUEST_DEVICE", "cuda:99")
    refused = runner.invoke(build(), ["evaluate", str(bundle), "--data", str(data), "--split", "val"])
    assert "no device 'cuda:99' here" in str(refused.exception)
    evaluated(runner, bundle, data)


def test_with_a_shortcut_the_clean_report_comes_first(
    runner: CliRunner, bundle: Path, data: Path, tmp_path: Path
) -> None:
    clean, both = tmp_path / "clean.json", tmp_path / "both.json"
    evaluated(runner, bundle, data, "--json", str(clean))
    printed = evaluated(runner, bundle, data, "--shortcut", "bits:4", "--json", str(both))
    assert printed.count("RSUM") == 2
    assert printed.index("40 images") < printed.index("with the shortcut bits:4 in images and texts")
    report = json.loads(both.read_text())
    marked = report.pop("with_shortcut")
    assert {**report, "with_shortcut": None} == json.loads(clean.read_text())
    assert marked["images"] == 40
    assert marked["texts"] == 80
    assert marked["geometry"] != report["geometry"]
    assert marked["with_shortcut"] is None


@pytest.mark.parametrize("words", ["bits", "bits:14", "bits:x", "both", ""])
def test_a_wrong_shortcut_is_explained_before_any_work(runner: CliRunner, words: str) -> None:
    result = runner.invoke(build(), ["evaluate", "no-bundle", "--data", "d", "--shortcut", words])
    assert result.exit_code == 2
    assert "is not unique, or bits:N with N from 0 to 13" in " ".join(result.output.split())
