from pathlib import Path

import numpy as np
import pytest
import torch

from tests.training.models.tiny import IMAGE_OPTIONS, tiny_pixels
from training.common.errors import RecipeError
from training.models.bundle_writer import save_bundle
from training.models.config import DualEncoderConfig, PreprocessingConfig
from training.models.dual_encoder import build_dual_encoder
from training.models.encoder import load_encoder
from training.models.preprocessing import Preprocessing
from training.models.texts.learned_tokenizer import build_tokenizer
from training.models.texts.towers import Gru, build_gru

TEXTS = ("a dog runs over the grass", "two people", "a red car and a dog", "the end")


def tiny_gru(layers: int = 1, *, bidirectional: bool = False) -> Gru:
    torch.manual_seed(0)
    options = {"word_width": 5, "width": 7, "layers": layers, "bidirectional": bidirectional}
    return build_gru(options, vocabulary_size=20).double()


def unrolled(backbone: Gru, ids: list[int]) -> torch.Tensor:
    """The last state by the equations of Cho et al. (2014), one word after another."""
    inputs = [backbone.words.weight[number] for number in ids]
    for layer in backbone.recurrent:
        weights = dict(layer.named_parameters())
        state = torch.zeros(7, dtype=torch.float64)
        states = []
        for word in inputs:
            from_word = weights["weight_ih_l0"] @ word + weights["bias_ih_l0"]
            from_state = weights["weight_hh_l0"] @ state + weights["bias_hh_l0"]
            reset = torch.sigmoid(from_word[:7] + from_state[:7])
            update = torch.sigmoid(from_word[7:14] + from_state[7:14])
            new = torch.tanh(from_word[14:] + reset * from_state[14:])
            state = (1 - update) * new + update * state
            states.append(state)
        inputs = states
    return inputs[-1]


@pytest.mark.parametrize("layers", [1, 2])
def test_the_last_real_state_follows_the_equations(layers: int) -> None:
    backbone = tiny_gru(layers)
    ids = torch.tensor([[3, 4, 9, 11], [5, 6, 0, 0], [7, 0, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]])
    with torch.no_grad():
        states = backbone(ids, mask).tokens
        for row, length in enumerate([4, 2, 1]):
            expected = unrolled(backbone, ids[row, :length].tolist())
            torch.testing.assert_close(states[row, length - 1], expected, atol=1e-12, rtol=0)
            assert (states[row, length:] == 0).all()


def test_padding_is_never_read() -> None:
    backbone = tiny_gru()
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]])
    ids = torch.tensor([[5, 6, 0, 0], [3, 4, 9, 11]])
    other = ids.clone()
    other[0, 2:] = 13
    assert torch.equal(backbone(ids, mask).tokens, backbone(other, mask).tokens)
    backbone(other, mask).tokens[:, 1].sum().backward()
    gradient = backbone.words.weight.grad
    assert gradient is not None
    assert gradient[13].abs().max() == 0


def test_defaults_are_those_of_vse() -> None:
    with torch.device("meta"):
        backbone = build_gru({}, vocabulary_size=8481)
    assert backbone.words.weight.shape == (8481, 300)
    assert [layer.hidden_size for layer in backbone.recurrent] == [1024]
    assert backbone.width == backbone.local_width == 1024


def test_says_what_does_not_fit() -> None:
    with pytest.raises(RecipeError, match="options of gru do not fit"):
        build_gru({"width": 0}, vocabulary_size=20)


def test_a_bundle_keeps_the_words_and_the_states(tmp_path: Path) -> None:
    torch.manual_seed(0)
    text = {"architecture": "gru", "options": {"word_width": 5, "width": 8}, "pooling": "eos"}
    image = {"architecture": "resnet", "options": IMAGE_OPTIONS["resnet"]}
    config = DualEncoderConfig.model_validate({"image": image, "text": text, "dim": 6})
    assert config.text is not None
    tokenizer = build_tokenizer(config.text, TEXTS)
    preprocessing = Preprocessing(PreprocessingConfig.model_validate({"image": {"size": 32}}), tokenizer)
    model = build_dual_encoder(config, tokenizer, load_pretrained=True).eval()
    save_bundle(
        tmp_path / "vse",
        name="vse",
        model=model,
        preprocessing=preprocessing,
        metrics={},
        recipe_yaml="",
    )
    encoder = load_encoder(tmp_path / "vse", "cpu")
    with torch.no_grad():
        features = model(tiny_pixels(), preprocessing.text(TEXTS))
    expected = torch.nn.functional.normalize(features["text"].embedding, dim=1).numpy()
    np.testing.assert_allclose(encoder.embed_texts(TEXTS).vectors, expected, atol=1e-6)
    unknown, other = encoder.embed_texts(["an okapi", "an aardvark"]).vectors
    np.testing.assert_array_equal(unknown, other)


@torch.no_grad()
@pytest.mark.parametrize("layers", [1, 2])
def test_read_both_ways_a_state_is_the_mean_of_both(layers: int) -> None:
    """Beside two networks of one direction, one of which is given the words turned round."""
    both = tiny_gru(layers, bidirectional=True)
    ids, mask = torch.tensor([[3, 4, 9, 11], [5, 6, 0, 0]]), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    found = both(ids, mask).tokens
    for row, length in enumerate((4, 2)):
        states = both.words(ids[row, :length])
        for layer in both.recurrent:
            ways = []
            for suffix, turned in (("", states), ("_reverse", states.flip(0))):
                alone = torch.nn.GRU(turned.shape[1], 7, batch_first=True).double()
                weights = {
                    name: layer.get_parameter(f"{name}{suffix}") for name, _ in alone.named_parameters()
                }
                alone.load_state_dict(weights)
                ways.append(alone(turned.unsqueeze(0))[0][0])
            states = (ways[0] + ways[1].flip(0)) / 2
        torch.testing.assert_close(found[row, :length], states, rtol=0, atol=1e-12)
        assert not found[row, length:].any()
    assert not both.causal
    assert tiny_gru().causal
