"""`recoquest evaluate`, also with encoders of sounds: what it prints and writes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from app.cli.training import print_report
from tests.app.commands import run_command
from tests.training.data.sounds import tone, wav16
from tests.training.models.tiny import (
    tiny_audio_model,
    tiny_audio_preprocessing,
    tiny_model,
    tiny_preprocessing,
)
from tests.training.trainer.scenes import write_scenes
from training.common.errors import RecoquestError
from training.common.manifest import read_manifest, write_manifest
from training.evaluation.evaluate import EvaluationReport
from training.evaluation.factors import FactorReading
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


@pytest.fixture(autouse=True)
def wide_and_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")


def evaluated(bundle: Path, data: Path, *options: object) -> str:
    given = ["evaluate", bundle, "--data", data, "--split", "val", "--device", "cpu", *options]
    return run_command(*given).output


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


def test_with_a_shortcut_the_clean_report_comes_first(bundle: Path, data: Path, tmp_path: Path) -> None:
    clean, both = tmp_path / "clean.json", tmp_path / "both.json"
    evaluated(bundle, data, "--json", str(clean))
    printed = evaluated(bundle, data, "--shortcut", "bits:4", "--json", str(both))
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
    return save_bundle(
        folder,
        name="heard",
        model=tiny_audio_model(texts=texts),
        preprocessing=tiny_audio_preprocessing(texts=texts),
        metrics={},
        recipe_yaml="",
    ).folder


@pytest.mark.parametrize("texts", [True, False])
def test_recall_between_all_modalities_is_shown_and_written(
    texts: bool, sounds: Path, tmp_path: Path
) -> None:
    report, heard_by = tmp_path / "report.json", heard(tmp_path / "b", texts=texts)
    printed = evaluated(heard_by, sounds, "--json", report)
    found = EvaluationReport.model_validate_json(report.read_bytes())
    expected = ["image to audio", "audio to image", *(["text to audio", "audio to text"] if texts else [])]
    assert [search.name for search in found.between] == expected
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
    report = EvaluationReport(
        images=9,
        texts=0,
        skipped=0,
        truncated=0,
        captions=None,
        labels=None,
        geometry=None,
        factors=(factor,),
    )
    print_report(report, title="heard")
    printed = capsys.readouterr().out
    assert [name for name in ("Of images", "Of texts", "Of sounds") if name in printed] == columns
    row = next(line for line in printed.splitlines() if "instrument" in line)
    figures = [f"{value:.1f}" for value in (24.1, text, audio, 25.0) if value is not None]
    assert row.replace("│", " ").split() == ["instrument", "4", *figures]
