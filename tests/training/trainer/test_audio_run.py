"""Whole runs with sounds: images and sounds alone, and all three modalities."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.training.data.sounds import tone, wav16
from tests.training.trainer.scenes import COLOURS, tiny_recipe, write_scenes
from tests.training.trainer.test_run import run, stop_after
from training.common.errors import DataError, RecipeError
from training.common.manifest import Manifest, read_manifest, write_manifest
from training.models.config import Modality
from training.models.encoder import load_encoder
from training.recipes.load import parse_recipe
from training.recipes.schema import Recipe
from training.trainer.run_state.errors import TrainingInterruptedError
from training.trainer.validation import check_selectable

GRU = {"architecture": "gru", "options": {"word_width": 4, "width": 8}, "pooling": "eos"}
ALL_PAIRS = [["image", "text"], ["image", "audio"], ["text", "audio"]]


def heard_recipe(*, text: dict[str, Any] | None = None, cache: bool = True, **train: object) -> Recipe:
    content = tiny_recipe(**train).model_dump(mode="json")
    content["model"]["text"] = text
    content["model"]["audio"] = {
        "architecture": "audio_cnn",
        "options": {"mels": 16, "width": 8, "layers": 2, "dropout": 0.2},
    }
    content["preprocessing"]["audio"] = {"mels": 16, "seconds": 0.1}
    content["objective"] = {"name": "infonce", "pairs": ALL_PAIRS if text else [["image", "audio"]]}
    content["data"]["cache_images"] = cache
    return parse_recipe(content, "The recipe with sounds")


@pytest.fixture(scope="module")
def sounding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scenes, each with a tone of its colour."""
    folder = write_scenes(tmp_path_factory.mktemp("data") / "sounding")
    records = []
    for number, record in enumerate(read_manifest(folder).records):
        pitch = 400.0 * (1 + list(COLOURS).index(record.labels[0]))
        (folder / f"{number}.wav").write_bytes(wav16(tone(pitch, 0.05 + 0.002 * number)))
        records.append(replace(record, audio=f"{number}.wav"))
    write_manifest(folder, records)
    return folder


def test_images_and_sounds_are_trained_without_texts(sounding: Path, tmp_path: Path) -> None:
    result = run(heard_recipe(), sounding, tmp_path / "out")
    assert result.rejected == 0
    assert result.metrics["rsum"] == pytest.approx(
        sum(value for name, value in result.metrics.items() if "recall" in name)
    )
    assert "image_precision_at_5" in result.metrics
    assert load_encoder(result.bundle, "cpu").modalities == {"image", "audio"}


def test_three_modalities_are_trained_together(sounding: Path, tmp_path: Path) -> None:
    result = run(heard_recipe(text=GRU), sounding, tmp_path / "out")
    assert {"image_recall_at_1", "text_to_audio_recall_at_1", "audio_to_image_recall_at_1"} <= set(
        result.metrics
    )
    assert load_encoder(result.bundle, "cpu").modalities == {"image", "text", "audio"}


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "bundle" / "model.safetensors")


@pytest.mark.slow
def test_cached_streamed_and_resumed_runs_are_equal_bit_by_bit(
    sounding: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(heard_recipe(), sounding, tmp_path / "straight")
    run(heard_recipe(cache=False), sounding, tmp_path / "streamed")
    with monkeypatch.context() as patch:
        stop_after(patch, 4)
        with pytest.raises(TrainingInterruptedError):
            run(heard_recipe(), sounding, tmp_path / "resumed")
    run(heard_recipe(), sounding, tmp_path / "resumed", resume=True)
    expected = weights(tmp_path / "straight")
    for name in ("streamed", "resumed"):
        found = weights(tmp_path / name)
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[key], value) for key, value in expected.items())


def copied(sounding: Path, folder: Path) -> Manifest:
    """The same data in a folder that a test may change."""
    folder.mkdir()
    for entry in sounding.iterdir():
        target = folder / entry.name
        if entry.is_dir():
            target.symlink_to(entry)
        else:
            target.write_bytes(entry.read_bytes())
    return read_manifest(folder)


def test_broken_sounds_are_named_and_left_out(sounding: Path, tmp_path: Path) -> None:
    manifest = copied(sounding, tmp_path / "data")
    (manifest.folder / "3.wav").write_bytes(b"RIFF")
    (manifest.folder / "16.wav").write_bytes(b"RIFF")
    content = heard_recipe().model_dump(mode="json")
    content["data"]["max_rejected"] = 0.2
    result = run(parse_recipe(content, "The recipe"), manifest.folder, tmp_path / "out")
    reason = "The file is not a sound that can be read: give WAV, FLAC, OGG (Vorbis or Opus) or MP3"
    assert [(item.line, item.reason) for item in result.rejections] == [
        (4, f"3.wav: {reason}"),
        (17, f"16.wav: {reason}"),
    ]


def test_data_without_sounds_are_refused_before_any_work(scenes: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has a sound: name one under 'audio'"):
        run(heard_recipe(), scenes, tmp_path / "out")


def test_what_selects_must_be_measurable(sounding: Path) -> None:
    manifest = read_manifest(sounding)
    silent = replace(manifest, records=tuple(replace(record, audio=None) for record in manifest.records))
    heard: frozenset[Modality] = frozenset({"image", "audio"})
    check_selectable("rsum", manifest, heard)
    check_selectable("loss", silent, heard)
    check_selectable("precision_at_10", manifest, heard)
    with pytest.raises(RecipeError, match=r"no sounds: set train\.select_by to precision_at_10 or loss"):
        check_selectable("rsum", silent, heard)
    with pytest.raises(RecipeError, match=r"images alone .* set train\.select_by to precision_at_10 or loss"):
        check_selectable("rsum", manifest, frozenset({"image"}))
    unlabelled = replace(manifest, records=tuple(replace(record, labels=()) for record in manifest.records))
    with pytest.raises(RecipeError, match=r"no labels: set train\.select_by to loss"):
        check_selectable("precision_at_10", unlabelled, frozenset({"image"}))
