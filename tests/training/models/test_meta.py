"""Every kind of configuration builds in its full size without memory for a single weight."""

from itertools import chain
from typing import Any

import pytest
import torch

from tests.training.models.tiny import IMAGE_OPTIONS, TEXT_OPTIONS, image_tower, tiny_tokenizer
from training.models.config import DualEncoderConfig
from training.models.dual_encoder import DualEncoder, build_dual_encoder

LOVT_HEAD = {"kind": "mlp", "hidden": 2048, "norm": True}
KINDS: dict[str, dict[str, Any]] = {
    **{f"image {name}": {"image": {"architecture": name}} for name in sorted(IMAGE_OPTIONS)},
    **{f"text {name}": {"text": {"architecture": name, "pooling": "eos"}} for name in sorted(TEXT_OPTIONS)},
    "audio": {"text": None, "audio": {"architecture": "audio_spectrogram_transformer"}},
    "audio cnn": {"audio": {"architecture": "audio_cnn"}},
    "blades": {"blades": 3},
    "branches": {"branches": {}, "audio": {"architecture": "audio_spectrogram_transformer"}},
    "branches of conv nets": {"image": {"architecture": "resnet"}, "branches": {"kind": "mlp"}},
    "LoVT": {
        "image": {"architecture": "resnet", "pooling": "attention", "head": LOVT_HEAD},
        "text": {"architecture": "bert", "pooling": "attention", "head": LOVT_HEAD},
        "local_features": True,
    },
    "a shared local head": {"local_features": True, "share_local_head": True},
    "frozen layers": {
        "image": {"architecture": "vit", "frozen_layers": "all"},
        "text": {"architecture": "bert", "frozen_layers": 6},
    },
}


def build(content: dict[str, Any]) -> DualEncoder:
    defaults = {"image": {"architecture": "vit"}, "text": {"architecture": "bert"}}
    config = DualEncoderConfig.model_validate({**defaults, **content})
    with torch.device("meta"):
        return build_dual_encoder(config, tiny_tokenizer(), load_pretrained=False)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_builds_on_the_meta_device(kind: str) -> None:
    model = build(KINDS[kind])
    assert all(tensor.is_meta for tensor in chain(model.parameters(), model.buffers()))
    assert sum(parameter.numel() for parameter in model.parameters()) > 1_000_000
    again = build(model.config.model_dump(mode="json"))
    assert again.config == model.config
    assert {name: tuple(value.shape) for name, value in again.state_dict().items()} == {
        name: tuple(value.shape) for name, value in model.state_dict().items()
    }


def test_branches_of_full_towers_leave_after_the_ninth_of_twelve_layers() -> None:
    model = build(KINDS["branches"])
    assert model.text is not None
    assert model.audio is not None
    towers = (image_tower(model), model.text, model.audio)
    assert [len(tower.backbone.layers()) for tower in towers] == [12, 12, 12]
    assert [tower.backbone.fork_after for tower in towers] == [9, 9, 9]
    for branch in (model.image_unique, model.text_unique, model.audio_unique):
        assert branch is not None
        assert branch.decoder is not None
        assert len(branch.decoder.layers) == 2
