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
    IMAGE_OPTIONS,
    TEXT_OPTIONS,
    TEXTS,
    image_head,
    tiny_config,
    tiny_model,
    tiny_preprocessing,
    tiny_tokens,
)
from training.common.errors import MissingModalityError, RecipeError
from training.models.bundle_writer import save_bundle
from training.models.config import ImageArchitecture, TextArchitecture
from training.models.encoder import Encoder, choose_device, load_encoder
from training.models.inputs.images import Pixels

PAIRS = list(zip(sorted(IMAGE_OPTIONS), sorted(TEXT_OPTIONS) * 2, strict=False))


def images(encoder: Encoder, count: int = 5) -> Pixels:
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, size=(count, 40, 52, 3), dtype=np.uint8)
    return np.stack([encoder.prepare_image(Image.fromarray(image)) for image in pixels])


@pytest.mark.parametrize(("image", "text"), PAIRS)
def test_a_loaded_bundle_gives_bit_equal_vectors(
    tmp_path: Path, image: ImageArchitecture, text: TextArchitecture
) -> None:
    model, preprocessing = tiny_model(tiny_config(image, text)), tiny_preprocessing()
    encoder = Encoder(model, preprocessing)
    info = save_bundle(
        tmp_path / "b", name="b", model=model, preprocessing=preprocessing, metrics={}, recipe_yaml=""
    )
    loaded = load_encoder(info.folder, device="cpu")
    assert loaded.info == info
    assert loaded.dim == 12
    assert np.array_equal(loaded.embed_images(images(loaded)), encoder.embed_images(images(encoder)))
    assert np.array_equal(loaded.embed_texts(TEXTS).vectors, encoder.embed_texts(TEXTS).vectors)
    assert {v.dtype for v in load_file(info.folder / "model.safetensors").values()} <= {
        torch.float32,
        torch.int64,
    }


@pytest.mark.parametrize(("image", "text"), PAIRS)
def test_one_tower_alone_gives_bit_equal_vectors(
    tmp_path: Path, image: ImageArchitecture, text: TextArchitecture
) -> None:
    info = save_bundle(
        tmp_path / "b",
        name="b",
        model=tiny_model(tiny_config(image, text)),
        preprocessing=tiny_preprocessing(),
        metrics={},
        recipe_yaml="",
    )
    whole = load_encoder(info.folder, "cpu")
    of_texts = load_encoder(info.folder, "cpu", only="text")
    of_images = load_encoder(info.folder, "cpu", only="image")
    assert of_texts.modalities == {"text"}
    assert of_images.modalities == {"image"}
    assert np.array_equal(of_texts.embed_texts(TEXTS).vectors, whole.embed_texts(TEXTS).vectors)
    assert np.array_equal(of_images.embed_images(images(whole)), whole.embed_images(images(whole)))
    with pytest.raises(MissingModalityError):
        of_texts.embed_images(images(whole))
    with pytest.raises(MissingModalityError):
        of_images.embed_texts(TEXTS)


def test_vectors_have_unit_length_and_do_not_depend_on_the_batch() -> None:
    encoder = Encoder(tiny_model().eval(), tiny_preprocessing())
    prepared = images(encoder)
    together = encoder.embed_images(prepared)
    alone = np.concatenate([encoder.embed_images(image[None]) for image in prepared])
    assert together.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(alone, together, atol=1e-5)
    texts = encoder.embed_texts(TEXTS).vectors
    one_by_one = np.concatenate([encoder.embed_texts([text]).vectors for text in TEXTS])
    np.testing.assert_allclose(np.linalg.norm(texts, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(one_by_one, texts, atol=1e-5)


def test_says_which_texts_were_cut() -> None:
    encoder = Encoder(tiny_model().eval(), tiny_preprocessing(text={"max_tokens": 8}))
    embedded = encoder.embed_texts(["x", TEXTS[1]])
    assert embedded.truncations[0] is None
    assert embedded.truncations[1] is not None
    assert embedded.truncations[1].kept == 8


def test_a_model_in_training_goes_on_training() -> None:
    model = tiny_model(tiny_config(text="bert")).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    encoder = Encoder(model, tiny_preprocessing())
    first, second = encoder.embed_texts(TEXTS), encoder.embed_texts(TEXTS)
    encoder.embed_images(images(encoder))
    assert np.array_equal(first.vectors, second.vectors)
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_towers_in_bfloat16_give_nearly_the_same_vectors_of_float32() -> None:
    model, kinds = tiny_model(), []
    exact, mixed = (
        Encoder(model, tiny_preprocessing()),
        Encoder(model, tiny_preprocessing(), in_bfloat16=True),
    )
    expected = (exact.embed_images(images(exact)), exact.embed_texts(TEXTS).vectors)
    image_head(model).register_forward_hook(lambda _, __, output: kinds.append(output.dtype))
    found = (mixed.embed_images(images(mixed)), mixed.embed_texts(TEXTS).vectors)
    assert kinds == [torch.bfloat16]
    for vectors, others in zip(found, expected, strict=True):
        assert vectors.dtype == np.float32
        assert not np.array_equal(vectors, others)
        assert (vectors * others).sum(axis=1).min() > 0.999


def test_refuses_preprocessing_that_does_not_fit() -> None:
    with pytest.raises(RecipeError, match="32 pixels"):
        Encoder(tiny_model(tiny_config("vit")), tiny_preprocessing(image={"size": 16}))


def test_chooses_a_device() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(RecipeError, match="no device 'abacus'"):
        choose_device("abacus")
    with pytest.raises(RecipeError, match="no device 'cuda:99'"):
        choose_device("cuda:99")


MLP = {"kind": "mlp", "hidden": 20, "norm": True}
KINDS: dict[str, dict[str, Any]] = {
    "2-blades": {"blades": 2},
    "4-blades": {"image": "vit", "text": "bert", "blades": 4},
    "branches": {"image": "vit", "text": "bert", "branches": {}},
    "branches by the unique one": {"image": "clip_vision_model", "branches": {}, "retrieval": "unique"},
    "branches by both": {"image": "dinov2", "text": "roberta", "branches": {}, "retrieval": "concat"},
    "branches by the normal": {"branches": {"kind": "mlp"}, "retrieval": "normal", "dim": 13},
    "batch norm in heads": {"image_settings": {"head": MLP}, "text_settings": {"head": MLP}},
    "sentences": {
        "text": "bert",
        "image_settings": {"pooling": "attention"},
        "text_settings": {"pooling": "attention"},
        "local_features": True,
        "local_head": MLP,
    },
    "a shared local head": {"local_features": True, "share_local_head": True},
}
WIDTHS = {"2-blades": 24, "4-blades": 48, "branches by both": 24}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_loaded_bundle_of_every_kind_gives_bit_equal_vectors(tmp_path: Path, kind: str) -> None:
    model = tiny_model(tiny_config(**KINDS[kind]))
    # Statistics of a batch norm are weights too.
    model.train()(torch.randn(4, 3, 32, 32), tiny_tokens())
    preprocessing = tiny_preprocessing(text={"max_tokens": 32, "sentences": kind == "sentences"})
    encoder = Encoder(model.eval(), preprocessing)
    info = save_bundle(
        tmp_path / "b", name="b", model=model, preprocessing=preprocessing, metrics={}, recipe_yaml=""
    )
    loaded = load_encoder(info.folder, device="cpu")
    vectors, texts = loaded.embed_images(images(loaded)), loaded.embed_texts(TEXTS).vectors
    assert np.array_equal(vectors, encoder.embed_images(images(encoder)))
    assert np.array_equal(texts, encoder.embed_texts(TEXTS).vectors)
    assert vectors.shape == (5, loaded.dim)
    assert texts.shape == (len(TEXTS), loaded.dim)
    assert loaded.dim == encoder.dim == info.dim == WIDTHS.get(kind, 12)
    assert loaded.blades == encoder.blades == model.config.blades
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), loaded.blades**0.5, atol=1e-6)


def blade_cosine(u: NDArray[np.float64], v: NDArray[np.float64]) -> float:
    """det(A) / sqrt(det(B) det(C)) of two k-blades (k, D) (ReCo's supplement, equation 4)."""
    volumes = np.linalg.det(u @ u.T) * np.linalg.det(v @ v.T)
    return float(np.linalg.det(u @ v.T) / np.sqrt(volumes))


@pytest.mark.parametrize("blades", [1, 2, 3, 4])
def test_vectors_alone_define_their_blades(blades: int) -> None:
    model = tiny_model(tiny_config(blades=blades)).eval()
    encoder = Encoder(model, tiny_preprocessing())
    prepared = images(encoder)
    bases = encoder.embed_images(prepared).astype(np.float64).reshape(5, blades, 12)
    for basis in bases:
        np.testing.assert_allclose(basis @ basis.T, np.eye(blades), atol=1e-6)
    texts = encoder.embed_texts(TEXTS).vectors.astype(np.float64).reshape(len(TEXTS), blades, 12)
    pixels = encoder.preprocessing.image.normalise(
        encoder.preprocessing.image.to_unit(torch.from_numpy(prepared))
    )
    with torch.inference_mode():
        image_blades = model.encode_image(pixels).embedding.double().numpy().reshape(5, blades, 12)
        text_blades = model.encode_text(tiny_tokens()).embedding.double().numpy().reshape(-1, blades, 12)
    expected = [[blade_cosine(u, v) for v in text_blades] for u in image_blades]
    found = [[np.linalg.det(u @ v.T) for v in texts] for u in bases]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.abs(expected).max() > 1e-3


def test_a_blade_has_an_orientation() -> None:
    model = tiny_model(tiny_config(blades=2)).eval()
    turned = copy.deepcopy(model)
    for parameter in turned.text_head.parameters() if turned.text_head else []:
        parameter.data = parameter.data.reshape(2, 12, -1).flip(0).reshape(parameter.shape)
    prepared = images(Encoder(model, tiny_preprocessing()))
    found = []
    for each in (model, turned):
        encoder = Encoder(each, tiny_preprocessing())
        u = encoder.embed_images(prepared).reshape(5, 2, 12)
        v = encoder.embed_texts(TEXTS).vectors.reshape(len(TEXTS), 2, 12)
        found.append(np.linalg.det(np.einsum("iad,jbd->ijab", u, v)))
    np.testing.assert_allclose(found[1], -found[0], atol=1e-6)
    assert np.abs(found[0]).max() > 1e-3


def test_a_text_may_come_as_its_sentences() -> None:
    config = tiny_config(text_settings={"pooling": "attention"}, local_features=True)
    preprocessing = tiny_preprocessing(text={"max_tokens": 32, "sentences": True})
    encoder = Encoder(tiny_model(config).eval(), preprocessing)
    embedded = encoder.embed_texts(["A cat sits. Two dogs run.", ["A cat sits.", "Two dogs run."]])
    assert np.array_equal(*embedded.vectors)
    whole = encoder.embed_texts([["A cat sits. Two dogs run."]]).vectors
    assert not np.allclose(whole, embedded.vectors[:1])
