"""Models of images and sounds, with and without texts, from features to bundles."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.training.models.tiny import (
    AUDIO,
    tiny_audio_encoder,
    tiny_audio_model,
    tiny_audio_preprocessing,
    tiny_config,
    tiny_pixels,
    tiny_spectrograms,
    tiny_tokens,
)
from training.common.errors import BundleError, MissingModalityError, RecipeError
from training.models.bundle import read_bundle
from training.models.bundle_writer import save_bundle
from training.models.config import AudioPreprocessingConfig, DualEncoderConfig
from training.models.dual_encoder import build_dual_encoder
from training.models.encoder import load_encoder

NO_TEXT = "trained without texts and cannot be searched by one: search by an image"


def test_returns_features_of_what_is_given() -> None:
    model = tiny_audio_model().eval()
    features = model(tiny_pixels(), tiny_tokens(), tiny_spectrograms())
    assert {name: f.embedding.shape for name, f in features.modalities.items()} == {
        "image": (4, 12),
        "text": (4, 12),
        "audio": (4, 12),
    }
    assert model.modalities == {"image", "text", "audio"}
    heard = model(tiny_pixels(), spectrograms=tiny_spectrograms())
    assert set(heard.modalities) == {"image", "audio"}
    assert torch.equal(heard["audio"].embedding, features["audio"].embedding)


def test_local_features_of_a_sound_are_its_frames() -> None:
    model = tiny_audio_model(local_features=True).eval()
    audio = model(spectrograms=tiny_spectrograms())["audio"]
    assert audio.local is not None
    assert audio.local_mask is not None
    assert audio.local.shape == (4, 4, 12)
    assert audio.local_mask.sum(dim=1).tolist() == [2, 2, 3, 4]


def test_a_model_without_texts_says_so() -> None:
    model = tiny_audio_model(texts=False)
    assert model.modalities == {"image", "audio"}
    assert not any(name.startswith("text") for name, _ in model.named_parameters())
    with pytest.raises(MissingModalityError, match=NO_TEXT):
        model.encode_text(tiny_tokens())
    encoder = tiny_audio_encoder(texts=False)
    assert encoder.modalities == {"image", "audio"}
    with pytest.raises(MissingModalityError, match=NO_TEXT):
        encoder.embed_texts(["a bell"])


def test_a_model_without_sounds_says_so() -> None:
    model = build_dual_encoder(tiny_config(), tiny_audio_preprocessing().text.tokenizer, load_pretrained=True)
    with pytest.raises(MissingModalityError, match=r"trained without sounds.*model\.audio"):
        model.encode_audio(tiny_spectrograms())


def test_texts_and_sounds_may_both_be_absent() -> None:
    content = tiny_config().model_dump() | {"text": None}
    assert DualEncoderConfig.model_validate(content | {"audio": AUDIO}).audio is not None
    alone = build_dual_encoder(DualEncoderConfig.model_validate(content), None, load_pretrained=True)
    assert alone.modalities == {"image"}
    with pytest.raises(RecipeError, match="needs a tokenizer"):
        build_dual_encoder(tiny_config(), None, load_pretrained=True)


def test_every_trainable_parameter_is_in_exactly_one_group() -> None:
    model = tiny_audio_model(local_features=True)
    towers, heads = list(model.tower_parameters()), list(model.head_parameters())
    trainable = [id(parameter) for parameter in model.parameters() if parameter.requires_grad]
    assert sorted([*map(id, towers), *map(id, heads)]) == sorted(trainable)
    assert model.audio is not None
    backbone = {id(parameter) for parameter in model.audio.backbone.parameters()}
    assert backbone <= set(map(id, towers))


def test_embeddings_of_sounds_have_length_one_whatever_is_beside_them() -> None:
    encoder = tiny_audio_encoder()
    sounds = [
        torch.randn(20, frames, generator=torch.Generator().manual_seed(frames)) for frames in (3, 9, 17)
    ]
    together = encoder.embed_audio(sounds)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)
    alone = np.concatenate([encoder.embed_audio([sound]) for sound in sounds])
    np.testing.assert_allclose(together, alone, atol=1e-5)


@pytest.mark.parametrize("texts", [True, False])
def test_a_bundle_brings_the_same_encoder_back(texts: bool, tmp_path: Path) -> None:
    model = tiny_audio_model(texts=texts).eval()
    info = save_bundle(
        tmp_path / "heard",
        name="heard",
        model=model,
        preprocessing=tiny_audio_preprocessing(texts=texts),
        metrics={},
        recipe_yaml="",
    )
    assert (info.folder / "tokenizer.json").is_file() is texts
    card = (info.folder / "README.md").read_text()
    assert f"Encoders of images, {'texts and sounds' if texts else ''}" in card or "images and sounds" in card
    assert "* Sounds: audio_cnn, up to 0.2 s at 16000 Hz, 20 mel bands" in card
    encoder = load_encoder(info.folder, "cpu")
    batch = tiny_spectrograms()
    with torch.no_grad():
        expected = torch.nn.functional.normalize(model.encode_audio(batch).embedding, dim=1).numpy()
    sounds = [values[:, mask] for values, mask in zip(batch.values, batch.mask, strict=True)]
    np.testing.assert_allclose(encoder.embed_audio(sounds), expected, atol=1e-6)
    assert read_bundle(info.folder).digest == info.digest


def test_a_bundle_of_texts_needs_its_tokenizer_in_the_seal(tmp_path: Path) -> None:
    silent = save_bundle(
        tmp_path / "silent",
        name="silent",
        model=tiny_audio_model(texts=False),
        preprocessing=tiny_audio_preprocessing(texts=False),
        metrics={},
        recipe_yaml="",
    )
    # Its seal, over files of which one now says that there is a text tower.
    changed = tiny_audio_model().config.model_dump_json()
    (silent.folder / "config.json").write_text(changed)
    with pytest.raises(BundleError, match=r"config\.json is not the file"):
        read_bundle(silent.folder)


def test_refuses_spectrograms_that_do_not_fit() -> None:
    model = tiny_audio_model()
    config = tiny_audio_preprocessing().config
    model.check_preprocessing(config)
    other = config.model_copy(update={"audio": AudioPreprocessingConfig(mels=21)})
    with pytest.raises(RecipeError, match="20 bands, not 21"):
        model.check_preprocessing(other)


def test_a_missing_modality_survives_being_made_again() -> None:
    error = MissingModalityError("text")
    assert str(type(error)(*error.args)) == str(error)
    assert dataclasses.is_dataclass(tiny_spectrograms())
