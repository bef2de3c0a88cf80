"""`recoquest evaluate` with encoders of sounds."""

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.main import build
from app.cli.training import print_report
from tests.training.data.sounds import tone, wav16
from tests.training.models.tiny import tiny_audio_model, tiny_audio_preprocessing
from tests.training.trainer.scenes import write_scenes
from training.common.errors import RecoquestError
from training.common.manifest import read_manifest, write_manifest
from training.evaluation.evaluate import EvaluationReport
from training.evaluation.factors import FactorReading
from training.models.bundle_writer import save_bundle


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = write_scenes(tmp_path / "data", train=0, val=4)
    records = []
    for number, record in enumerate(read_manifest(folder).records):
        (folder / f"{number}.wav").write_bytes(wav16(tone(300.0 + 200 * number, 0.05)))
        records.append(replace(record, audio=f"{number}.wav"))
    write_manifest(folder, records)
    return folder


def bundle(folder: Path, *, texts: bool) -> Path:
    return save_bundle(
        folder,
        name="heard",
        model=tiny_audio_model(texts=texts),
        preprocessing=tiny_audio_preprocessing(texts=texts),
        metrics={},
        recipe_yaml="",
    ).folder


@pytest.mark.parametrize("texts", [True, False])
def test_recall_between_all_modalities_is_shown_and_written(texts: bool, data: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    options = ["--data", str(data), "--split", "val", "--device", "cpu", "--json", str(report)]
    result = CliRunner().invoke(build(), ["evaluate", str(bundle(tmp_path / "b", texts=texts)), *options])
    assert result.exit_code == 0, result.output
    found = EvaluationReport.model_validate_json(report.read_bytes())
    expected = ["image to audio", "audio to image", *(["text to audio", "audio to text"] if texts else [])]
    assert [search.name for search in found.between] == expected
    assert all(name in result.output for name in expected)
    assert f"4 images, {8 if texts else 0} texts, 4 sounds" in result.output
    assert ("text to image" in result.output) is texts


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


def test_a_shortcut_needs_an_encoder_of_texts(data: Path, tmp_path: Path) -> None:
    options = ["--data", str(data), "--split", "val", "--device", "cpu", "--shortcut", "unique"]
    result = CliRunner().invoke(build(), ["evaluate", str(bundle(tmp_path / "b", texts=False)), *options])
    assert isinstance(result.exception, RecoquestError)
    assert "leave --shortcut out" in str(result.exception)
