"""With the pretrained towers of the real data, whose folder RECOQUEST_TEST_DATA names."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as BackendTokenizer

from training.models.config import DualEncoderConfig, PreprocessingConfig
from training.models.dual_encoder import build_dual_encoder
from training.models.encoder import Encoder
from training.models.learned_tokenizer import build_tokenizer
from training.models.preprocessing import Preprocessing

DATA = os.environ.get("RECOQUEST_TEST_DATA")
pytestmark = [
    pytest.mark.real_data,
    pytest.mark.skipif(not DATA, reason="RECOQUEST_TEST_DATA is not set"),
]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    towers = Path(str(DATA)) / "towers"
    config = DualEncoderConfig.model_validate(
        {
            "image": {"architecture": "mobilenet_v2", "pretrained": str(towers / "mobilenetv2")},
            "text": {"architecture": "bert", "pretrained": str(towers / "minilm")},
            "dim": 384,
        }
    )
    torch.manual_seed(0)
    assert config.text is not None
    tokenizer = build_tokenizer(config.text, ())
    model = build_dual_encoder(config, tokenizer, load_pretrained=True).eval()
    assert model.text_head is not None
    head = model.text_head[-1]
    assert isinstance(head, torch.nn.Linear)
    with torch.no_grad():
        head.weight.copy_(torch.eye(384))
        head.bias.zero_()
    return Encoder(model, Preprocessing(PreprocessingConfig(), tokenizer))


def test_sentences_of_like_meaning_are_near(encoder: Encoder) -> None:
    texts = ["a dog runs over grass", "a puppy is running in a meadow", "the stock market fell"]
    vectors = encoder.embed_texts(texts).vectors
    assert vectors[0] @ vectors[1] > 0.5 > 0.2 > vectors[0] @ vectors[2]


def test_tokens_are_those_of_the_file(encoder: Encoder) -> None:
    raw = BackendTokenizer.from_file(str(Path(str(DATA)) / "towers" / "minilm" / "tokenizer.json"))
    raw.no_padding()
    raw.no_truncation()
    texts = ["A man's dog, naïve café; Two-kids!", "x-ray 12 ° été", ""]
    found = encoder.preprocessing.text.tokenizer.encode(texts)
    assert [encoding.ids for encoding in found] == [encoding.ids for encoding in raw.encode_batch(texts)]


def test_images_alone_and_in_a_batch(encoder: Encoder) -> None:
    images = np.random.default_rng(0).integers(0, 256, (4, 3, 224, 224), np.uint8)
    alone = np.concatenate([encoder.embed_images(image[None]) for image in images])
    np.testing.assert_allclose(alone, encoder.embed_images(images), atol=1e-5)
