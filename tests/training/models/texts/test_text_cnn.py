import pytest
import torch
from torch import Tensor

from training.common.errors import RecipeError
from training.models.texts.towers import TextCNN, build_text_cnn

pytestmark = pytest.mark.usefixtures("one_thread")

OPTIONS = {"word_width": 5, "widths": [8, 12], "depths": [1, 2]}


def tiny() -> TextCNN:
    torch.manual_seed(0)
    return build_text_cnn(OPTIONS, vocabulary_size=20).double()


@torch.no_grad()
def by_words(backbone: TextCNN, ids: list[int]) -> Tensor:
    """The states of one text, word by word."""
    states = [backbone.words.weight[number] for number in ids]
    for block in backbone.blocks:
        enter, mix, leave, skip = (block.get_submodule(name) for name in ("enter", "mix", "leave", "skip"))
        assert isinstance(mix, torch.nn.Conv1d)
        assert mix.bias is not None
        narrow = [enter(state) for state in states]
        nothing = torch.zeros_like(narrow[0])
        around = zip([nothing, *narrow[:-1]], narrow, [*narrow[1:], nothing], strict=True)
        mixed = [
            mix.bias + torch.stack([mix.weight[:, :, n] @ word for n, word in enumerate(words)]).sum(dim=0)
            for words in around
        ]
        states = [torch.relu(skip(s) + leave(word)) for s, word in zip(states, mixed, strict=True)]
    return torch.stack(states)


@torch.no_grad()
def test_a_state_is_what_its_word_and_those_around_it_give() -> None:
    backbone = tiny()
    ids = torch.tensor([[3, 4, 9, 11], [5, 6, 0, 0], [7, 0, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]])
    found = backbone(ids, mask).tokens
    assert found.shape == (3, 4, 12)
    for row, length in enumerate((4, 2, 1)):
        expected = by_words(backbone, ids[row, :length].tolist())
        torch.testing.assert_close(found[row, :length], expected, rtol=0, atol=1e-12)
        assert not found[row, length:].any()


@torch.no_grad()
def test_the_order_of_words_matters() -> None:
    backbone, mask = tiny(), torch.ones((1, 3), dtype=torch.long)
    there, back = (backbone(torch.tensor([ids]), mask).tokens.mean(dim=1) for ids in ([3, 4, 5], [5, 4, 3]))
    assert (there - back).abs().max() > 1e-4


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(RecipeError, match="as many widths as depths"):
        build_text_cnn({"widths": [8, 8]}, 20)
    with pytest.raises(RecipeError, match="depth"):
        build_text_cnn({"depth": 3}, 20)


def test_its_size_is_about_that_of_a_resnet_50() -> None:
    with torch.device("meta"):
        backbone = build_text_cnn({}, 20)
    assert len(backbone.layers()) == 16
    assert 15e6 < sum(parameter.numel() for parameter in backbone.parameters()) < 30e6
