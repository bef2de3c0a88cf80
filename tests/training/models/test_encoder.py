"""Trained encoders: bundles give the same vectors, however they are loaded and whatever else is embedded."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import load_file

from tests.training.models.tiny import (
    AUDIO,
    IMAGE_OPTIONS,
    TEXT_OPTIONS,
    TEXTS,
    image_head,
    saved,
    tiny_audio_encoder,
    tiny_audio_preprocessing,
    tiny_config,
    tiny_model,
    tiny_preprocessing,
    tiny_spectrograms,
    tiny_tokens,
)
from training.common.errors import MissingModalityError, RecipeError
from training.models.encoder import Encoder, choose_device, load_encoder
from training.models.image_input import Pixels
from training.models.preprocessing import Preprocessing

MLP = {"head": {"kind": "mlp", "hidden": 20, "norm": True}}
KINDS: dict[str, dict[str, Any]] = {
    **{
        f"{image} and {text}": {"image": image, "text": text}
        for image, text in zip(sorted(IMAGE_OPTIONS), sorted(TEXT_OPTIONS) * 2, strict=False)
    },
    "2-blades": {"blades": 2},
    "4-blades": {"image": "vit", "text": "bert", "blades": 4},
    "branches": {"image": "vit", "text": "bert", "branches": {}},
    "branches by the unique one": {"image": "clip_vision_model", "branches": {}, "retrieval": "unique"},
    "branches by both": {"image": "dinov2", "text": "roberta", "branches": {}, "retrieval": "concat"},
    "branches by the normal": {"branches": {"kind": "mlp"}, "retrieval": "normal", "dim": 13},
    "batch norm in heads": {"image_settings": MLP, "text_settings": MLP},
    "sentences": {
        "text": "bert",
        "image_settings": {"pooling": "attention"},
        "text_settings": {"pooling": "attention"},
        "local_features": True,
        "local_head": MLP["head"],
    },
    "a shared local head": {"local_features": True, "share_local_head": True},
    "sounds": {"audio": AUDIO},
}
WIDTHS = {"2-blades": 24, "4-blades": 48, "branches by both": 24}


def images(encoder: Encoder, count: int = 5) -> Pixels:
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, size=(count, 40, 52, 3), dtype=np.uint8)
    return np.stack([encoder.prepare_image(Image.fromarray(image)) for image in pixels])


def sounds() -> list[torch.Tensor]:
    batch = tiny_spectrograms()
    return [values[:, mask] for values, mask in zip(batch.values, batch.mask, strict=True)]


def preprocessing_of(kind: str) -> Preprocessing:
    if kind == "sounds":
        return tiny_audio_preprocessing()
    return tiny_preprocessing(text={"max_tokens": 32, "sentences": kind == "sentences"})


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_bundle_or_one_tower_of_it_gives_bit_equal_vectors(tmp_path: Path, kind: str) -> None:
    model = tiny_model(tiny_config(**KINDS[kind]))
    # Statistics of a batch norm are weights too.
    model.train()(torch.randn(4, 3, 32, 32), tiny_tokens())
    encoder = Encoder(model.eval(), preprocessing_of(kind))
    info = saved(tmp_path / "b", model, encoder.preprocessing)
    loaded = load_encoder(info.folder, device="cpu")
    prepared = images(encoder)
    vectors, texts = encoder.embed_images(prepared), encoder.embed_texts(TEXTS).vectors
    # On one thread, products of an attention pool round by where in memory their weights are.
    near = 1e-6 if kind.startswith("clip_resnet") else 0
    np.testing.assert_allclose(loaded.embed_images(images(loaded)), vectors, rtol=0, atol=near)
    assert np.array_equal(loaded.embed_texts(TEXTS).vectors, texts)
    assert (vectors.shape, texts.shape) == ((5, loaded.dim), (len(TEXTS), loaded.dim))
    assert loaded.dim == encoder.dim == info.dim == WIDTHS.get(kind, 12)
    assert loaded.blades == encoder.blades == model.config.blades
    assert loaded.info == info
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), loaded.blades**0.5, atol=1e-6)
    kept = {value.dtype for value in load_file(info.folder / "model.safetensors").values()}
    assert kept <= {torch.float32, torch.int64}
    of_images, of_texts = (load_encoder(info.folder, "cpu", only=only) for only in ("image", "text"))
    assert of_images.modalities == {"image"}
    assert of_texts.modalities == {"text"}
    np.testing.assert_allclose(of_images.embed_images(prepared), vectors, rtol=0, atol=near)
    assert np.array_equal(of_texts.embed_texts(TEXTS).vectors, texts)
    with pytest.raises(MissingModalityError):
        of_texts.embed_images(prepared)
    with pytest.raises(MissingModalityError):
        of_images.embed_texts(TEXTS)
    if kind == "sounds":
        assert np.array_equal(loaded.embed_audio(sounds()), encoder.embed_audio(sounds()))


def test_a_bundle_without_texts_needs_no_tokenizer(tmp_path: Path) -> None:
    encoder = tiny_audio_encoder(texts=False)
    info = saved(tmp_path / "heard", encoder.model, encoder.preprocessing)
    assert not (info.folder / "tokenizer.json").exists()
    card = (info.folder / "README.md").read_text()
    assert "Encoders of images and sounds that map" in card
    assert "* Sounds: audio_cnn, up to 0.2 s at 16000 Hz, 20 mel bands" in card
    loaded = load_encoder(info.folder, "cpu")
    assert np.array_equal(loaded.embed_audio(sounds()), encoder.embed_audio(sounds()))


def test_vectors_have_unit_length_and_do_not_depend_on_the_batch() -> None:
    encoder = tiny_audio_encoder()
    prepared = list(images(encoder))
    together = encoder.embed_images(np.stack(prepared))
    assert together.dtype == np.float32
    pairs = (
        (together, [encoder.embed_images(image[None]) for image in prepared]),
        (encoder.embed_texts(TEXTS).vectors, [encoder.embed_texts([text]).vectors for text in TEXTS]),
        (encoder.embed_audio(sounds()), [encoder.embed_audio([sound]) for sound in sounds()]),
    )
    for vectors, alone in pairs:
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
        np.testing.assert_allclose(np.concatenate(alone), vectors, atol=1e-5)


def test_a_model_in_training_goes_on_training() -> None:
    model = tiny_model(tiny_config(text="bert")).train()
    before = copy.deepcopy(model.state_dict())
    encoder = Encoder(model, tiny_preprocessing())
    first, second = encoder.embed_texts(TEXTS), encoder.embed_texts(TEXTS)
    encoder.embed_images(images(encoder))
    assert np.array_equal(first.vectors, second.vectors)
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_towers_in_bfloat16_give_nearly_the_same_vectors_of_float32() -> None:
    model, kinds = tiny_model(), []
    exact, mixed = (Encoder(model, tiny_preprocessing(), in_bfloat16=bf16) for bf16 in (False, True))
    expected = (exact.embed_images(images(exact)), exact.embed_texts(TEXTS).vectors)
    image_head(model).register_forward_hook(lambda _, __, output: kinds.append(output.dtype))
    actual = (mixed.embed_images(images(mixed)), mixed.embed_texts(TEXTS).vectors)
    assert kinds == [torch.bfloat16]
    for vectors, others in zip(actual, expected, strict=True):
        assert vectors.dtype == np.float32
        assert not np.array_equal(vectors, others)
        assert (vectors * others).sum(axis=1).min() > 0.999


def test_chooses_a_device_and_refuses_preprocessing_that_does_not_fit() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    for name in ("abacus", "cuda:99"):
        with pytest.raises(RecipeError, match=f"no device '{name}'"):
            choose_device(name)
    with pytest.raises(RecipeError, match="32 pixels"):
        Encoder(tiny_model(tiny_config("vit")), tiny_preprocessing(image={"size": 16}))


def blade_cosine(u: NDArray[np.float64], v: NDArray[np.float64]) -> float:
    """det(A) / sqrt(det(B) det(C)) of two k-blades (k, D) (ReCo's supplement, equation 4)."""
    volumes = np.linalg.det(u @ u.T) * np.linalg.det(v @ v.T)
    return float(np.linalg.det(u @ v.T) / np.sqrt(volumes))


@pytest.mark.parametrize("blades", [1, 2, 3, 4])
def test_vectors_alone_define_their_blades_and_orientation(blades: int) -> None:
    model = tiny_model(tiny_config(blades=blades)).eval()
    encoder = Encoder(model, tiny_preprocessing())
    prepared, preprocessing = images(encoder), encoder.preprocessing.image
    bases = encoder.embed_images(prepared).astype(np.float64).reshape(5, blades, 12)
    for basis in bases:
        np.testing.assert_allclose(basis @ basis.T, np.eye(blades), atol=1e-6)
    texts = encoder.embed_texts(TEXTS).vectors.astype(np.float64).reshape(len(TEXTS), blades, 12)
    pixels = preprocessing.normalise(preprocessing.to_unit(torch.from_numpy(prepared)))
    with torch.inference_mode():
        image_blades = model.encode_image(pixels).embedding.double().numpy().reshape(5, blades, 12)
        text_blades = model.encode_text(tiny_tokens()).embedding.double().numpy().reshape(-1, blades, 12)
    expected = [[blade_cosine(u, v) for v in text_blades] for u in image_blades]
    actual = [[np.linalg.det(u @ v.T) for v in texts] for u in bases]
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    assert np.abs(expected).max() > 1e-3


def test_a_text_may_come_as_its_sentences() -> None:
    config = tiny_config(text_settings={"pooling": "attention"}, local_features=True)
    encoder = Encoder(tiny_model(config).eval(), preprocessing_of("sentences"))
    embedded = encoder.embed_texts(["A cat sits. Two dogs run.", ["A cat sits.", "Two dogs run."]])
    assert np.array_equal(*embedded.vectors)
    whole = encoder.embed_texts([["A cat sits. Two dogs run."]]).vectors
    assert not np.allclose(whole, embedded.vectors[:1])
