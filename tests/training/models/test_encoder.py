from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from tests.training.models.tiny import (
    IMAGE_OPTIONS,
    TEXT_OPTIONS,
    TEXTS,
    tiny_config,
    tiny_model,
    tiny_preprocessing,
)
from training.errors import RecipeError
from training.models.bundle import save_bundle
from training.models.config import ImageArchitecture, TextArchitecture
from training.models.encoder import Encoder, choose_device, load_encoder

PAIRS = list(zip(sorted(IMAGE_OPTIONS), sorted(TEXT_OPTIONS) * 2, strict=False))


def images(encoder: Encoder, count: int = 5) -> Tensor:
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, size=(count, 40, 52, 3), dtype=np.uint8)
    return torch.stack([encoder.prepare_image(Image.fromarray(image)) for image in pixels])


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
