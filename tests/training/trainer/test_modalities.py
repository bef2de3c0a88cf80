"""Whole runs of sounds, of images alone that learn labels or write texts, and of pairs that are compared."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.training.data.sounds import tone, wav16
from tests.training.runs import assert_same, lines
from tests.training.trainer.scenes import (
    COLOURS,
    run,
    stop_and_resume,
    tiny_recipe,
    weights,
    write_scenes,
)
from training.common.errors import BundleError, DataError, MissingModalityError, RecipeError
from training.common.manifest import read_manifest, write_manifest
from training.evaluation.embedding import embed_manifest
from training.evaluation.evaluate import evaluate, measure
from training.evaluation.retrieval import pair_retrieval
from training.imaging.images import decode_image
from training.models.encoder import load_encoder
from training.recipes.schema import Recipe

GRU = {"architecture": "gru", "options": {"word_width": 4, "width": 8}, "pooling": "eos"}
ALL_PAIRS = [["image", "text"], ["image", "audio"], ["text", "audio"]]


def heard_recipe(*, text: dict[str, Any] | None = None, **data: Any) -> Recipe:
    options = {"mels": 16, "width": 8, "layers": 2, "dropout": 0.2}
    return tiny_recipe(
        model={"text": text, "audio": {"architecture": "audio_cnn", "options": options}},
        preprocessing={"audio": {"mels": 16, "seconds": 0.1}},
        objective={"name": "infonce", "pairs": ALL_PAIRS if text else [["image", "audio"]]},
        data=data,
    )


def write_sounding(folder: Path) -> Path:
    """The scenes, each with a tone of its colour."""
    write_scenes(folder)
    records = []
    for number, record in enumerate(read_manifest(folder).records):
        pitch = 400.0 * (1 + list(COLOURS).index(record.labels[0]))
        (folder / f"{number}.wav").write_bytes(wav16(tone(pitch, 0.05 + 0.002 * number)))
        records.append(replace(record, audio=f"{number}.wav"))
    write_manifest(folder, records)
    return folder


@pytest.mark.parametrize("text", [None, GRU], ids=["without texts", "with texts"])
def test_sounds_are_trained_with_images_and_texts(tmp_path: Path, text: dict[str, Any] | None) -> None:
    result = run(heard_recipe(text=text), write_sounding(tmp_path / "data"), tmp_path / "out")
    assert result.rejected == 0
    recalls = [value for name, value in result.metrics.items() if "recall" in name]
    assert load_encoder(result.bundle, "cpu").modalities == {"image", "audio"} | ({"text"} if text else set())
    if text is None:
        assert result.metrics["rsum"] == pytest.approx(sum(recalls))
        assert "image_precision_at_5" in result.metrics
    else:
        assert result.metrics.keys() >= {
            "image_recall_at_1",
            "text_to_audio_recall_at_1",
            "audio_to_image_recall_at_1",
        }


@pytest.mark.slow
def test_cached_streamed_and_resumed_runs_of_sounds_are_equal_bit_by_bit(tmp_path: Path) -> None:
    data = write_sounding(tmp_path / "data")
    run(heard_recipe(cache_images=True), data, tmp_path / "straight")
    run(heard_recipe(cache_images=False), data, tmp_path / "streamed")
    stop_and_resume(heard_recipe(cache_images=True), data, tmp_path / "resumed", 4)
    for name in ("streamed", "resumed"):
        assert_same(weights(tmp_path / name), weights(tmp_path / "straight"))


def test_broken_sounds_are_named_and_left_out(tmp_path: Path) -> None:
    data = write_sounding(tmp_path / "data")
    for name in ("3.wav", "16.wav"):
        (data / name).write_bytes(b"RIFF")
    result = run(heard_recipe(cache_images=True, max_rejected=0.2), data, tmp_path / "out")
    reason = "The file is not a sound that can be read: give WAV, FLAC, OGG (Vorbis or Opus) or MP3"
    assert [(item.line, item.reason) for item in result.rejections] == [
        (4, f"3.wav: {reason}"),
        (17, f"16.wav: {reason}"),
    ]


def test_data_without_sounds_are_refused_before_any_work(scenes: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has a sound: name one under 'audio'"):
        run(heard_recipe(), scenes, tmp_path / "out")


@pytest.mark.slow
def test_labels_are_learned_and_images_of_one_are_found(tmp_path: Path) -> None:
    """Four colours: an untrained encoder ranks at random, one in four."""
    scenes = write_scenes(tmp_path / "scenes", train=24, val=24)
    recipe = tiny_recipe(epochs=25, select_by="loss", model={"text": None}, objective={"name": "labels"})
    result = run(recipe, scenes, tmp_path / "out")
    assert [line for line in lines(tmp_path / "out") if line["kind"] == "train"][-1]["right"] > 0.9
    assert result.metrics["precision_at_5"] > 80
    assert load_encoder(result.bundle, "cpu").modalities == {"image"}


def writing_recipe(**train: Any) -> Recipe:
    return tiny_recipe(
        model={"text": None, "local_features": True, "share_local_head": True},
        objective={"name": "caption_lstm", "width": 16},
        data={"captions": {}},
        **{"select_by": "loss", **train},
    )


def test_an_encoder_that_learned_to_write_is_measured_by_image(tmp_path: Path) -> None:
    scenes = write_scenes(tmp_path / "scenes", train=8, val=12)
    result = run(writing_recipe(steps=2, select_by="precision_at_10"), scenes, tmp_path / "out")
    assert result.metrics["precision_at_5"] == result.metrics["image_precision_at_5"]
    encoder = load_encoder(result.bundle, "cpu")
    assert encoder.modalities == {"image"}
    pixels = encoder.prepare_image(Image.new("RGB", (20, 20), "red"))
    assert encoder.embed_images(pixels[None]).shape == (1, 8)
    with pytest.raises(MissingModalityError, match="trained without texts"):
        encoder.embed_texts(["a red square"])
    report = evaluate(encoder, read_manifest(scenes), show_progress=False)
    assert report.labels is not None
    assert report.labels.text_to_image is None


def test_writing_trains_the_head_that_is_searched_by(scenes: Path, tmp_path: Path) -> None:
    for steps in (1, 3):
        run(writing_recipe(steps=steps, seed=3), scenes, tmp_path / str(steps))
    first, last = weights(tmp_path / "1"), weights(tmp_path / "3")
    heads = {name for name in first if "image_head" in name}
    assert heads
    assert not [name for name in heads if torch.equal(first[name], last[name])]


@pytest.mark.slow
def test_texts_are_learned(scenes: Path, tmp_path: Path) -> None:
    """The four colours are in the images; after some epochs most words of the train split are known."""
    run(writing_recipe(epochs=25), scenes, tmp_path / "out")
    trained = [line for line in lines(tmp_path / "out") if line["kind"] == "train"]
    assert trained[-1]["loss"] < 0.5 * trained[0]["loss"]
    assert trained[-1]["words_right"] > 0.5


def pair_recipe(objective: str = "scan", **train: Any) -> Recipe:
    attention = {"queries": "words"} if objective == "scan" else None
    model = {"local_features": True, "share_local_head": True, "pair_attention": attention}
    return tiny_recipe(model=model, objective={"name": objective}, **train)


def test_recall_is_that_of_the_pairs_and_the_bundle_is_taken_only_to_measure(
    scenes: Path, tmp_path: Path
) -> None:
    """The loss of each pair on its own, whatever else is compared."""
    bundle = run(pair_recipe(epochs=2), scenes, tmp_path / "out").bundle
    with pytest.raises(BundleError, match=r"no vectors to search by.*`recoquest evaluate`"):
        load_encoder(bundle, "cpu")
    assert "Vectors: none to search by" in (bundle / "README.md").read_text(encoding="utf-8")
    encoder = load_encoder(bundle, "cpu", for_pairs=True)
    assert encoder.pair_attention is not None
    manifest = read_manifest(scenes).split("val")
    embedded = embed_manifest(encoder, manifest, batch_size=4, show_progress=False)
    scores = embedded.pair_scores
    assert scores is not None
    assert scores.shape == (6, 12)
    pixels = [encoder.prepare_image(decode_image(manifest.image_path(record))) for record in manifest.records]
    for row, image in enumerate(pixels):
        regions = encoder.image_entries(image[None])
        alone = [encoder.compare(regions, encoder.text_entries([text]))[0, 0] for text in embedded.texts]
        np.testing.assert_allclose(scores[row], alone, atol=1e-5)
    report = measure(encoder, embedded)
    assert report.captions == pair_retrieval(scores, embedded.text_matches())
    assert report.geometry is None
    assert report.labels is not None
    assert report.labels.image_to_image is not None
    assert report.labels.text_to_image is None


@pytest.mark.slow
def test_pairs_of_a_known_colour_are_found(scenes: Path, tmp_path: Path) -> None:
    """Validation ranks by pairs: after some epochs the texts of a colour are found far above chance."""
    result = run(pair_recipe(epochs=30), scenes, tmp_path / "out")
    # A random order of 6 images and of 12 texts has 17 + 83 + 100 and 17 + 68 + 98.
    assert result.metrics["rsum"] > 420
    assert "alignment" not in result.metrics


def test_an_encoder_of_vectors_compares_no_pairs(scenes: Path, tmp_path: Path) -> None:
    encoder = load_encoder(
        run(pair_recipe("infonce", steps=1), scenes, tmp_path / "out").bundle, "cpu", for_pairs=True
    )
    assert encoder.pair_attention is None
    with pytest.raises(RecipeError, match="by their vectors"):
        encoder.compare([], [])
    embedded = embed_manifest(encoder, read_manifest(scenes).split("val"), show_progress=False)
    assert embedded.pair_scores is None
