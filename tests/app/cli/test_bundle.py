from pathlib import Path

import pytest
import torch

from tests.app.commands import run_command
from tests.training.conversion import folders, open_clip_folders
from training.common.errors import RecipeError
from training.models.bundle import read_bundle
from training.models.encoder import load_encoder
from training.models.onnx.loading import load_onnx_encoder


def test_a_published_encoder_searches_without_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOQUEST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
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
