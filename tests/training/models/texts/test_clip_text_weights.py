import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from tests.training.models.tiny import TEXTS, tiny_tokenizer, tiny_tokens
from training.models.config import TextTowerConfig
from training.models.texts.towers import TextTower, build_text_tower

WIDTH, LAYERS, CONTEXT = 64, 2, 40


class OpenClipText(nn.Module):
    """CLIP's text transformer with parameters named as open_clip names them, written on torch.nn alone."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(vocabulary, WIDTH)
        self.positional_embedding = nn.Parameter(torch.randn(CONTEXT, WIDTH))
        blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "ln_1": nn.LayerNorm(WIDTH),
                    "attn": nn.MultiheadAttention(WIDTH, WIDTH // 64, batch_first=True),
                    "ln_2": nn.LayerNorm(WIDTH),
                    "mlp": nn.ModuleDict(
                        {"c_fc": nn.Linear(WIDTH, 96), "c_proj": nn.Linear(96, WIDTH)},
                    ),
                }
            )
            for _ in range(LAYERS)
        )
        self.transformer = nn.ModuleDict({"resblocks": blocks})
        self.ln_final = nn.LayerNorm(WIDTH)
        self.text_projection = nn.Parameter(torch.randn(WIDTH, 6))

    def forward(self, ids: Tensor, last: Tensor, *, quick: bool) -> Tensor:
        x = self.token_embedding(ids) + self.positional_embedding[: ids.shape[1]]
        future = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)
        for block in self.transformer.get_submodule("resblocks").children():
            attention, mlp = block.get_submodule("attn"), block.get_submodule("mlp")
            h = block.get_submodule("ln_1")(x)
            x = x + attention(h, h, h, attn_mask=future, need_weights=False)[0]
            h = mlp.get_submodule("c_fc")(block.get_submodule("ln_2")(x))
            h = h * torch.sigmoid(1.702 * h) if quick else functional.gelu(h)
            x = x + mlp.get_submodule("c_proj")(h)
        pooled: Tensor = self.ln_final(x)[torch.arange(len(ids)), last] @ self.text_projection
        return pooled


def load(folder: Path) -> TextTower:
    config = TextTowerConfig(architecture="clip_text_model", pretrained=str(folder), pooling="eos")
    return build_text_tower(config, tiny_tokenizer(), load_pretrained=True).eval()


@pytest.mark.parametrize(("settings", "quick"), [(None, True), ({"quick_gelu": True}, True), ({}, False)])
def test_text_of_an_open_clip_file_is_the_same(
    tmp_path: Path, settings: dict[str, bool] | None, quick: bool
) -> None:
    torch.manual_seed(0)
    reference = OpenClipText(tiny_tokenizer().size).eval()
    nn.init.normal_(reference.ln_final.bias)
    save_file(
        {**reference.state_dict(), "visual.conv1.weight": torch.zeros(1), "logit_scale": torch.zeros(1)},
        tmp_path / "open_clip_model.safetensors",
    )
    if settings is not None:
        (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": settings}))
    tower, tokens = load(tmp_path), tiny_tokens()
    last = tokens.attention_mask.sum(dim=1) - 1
    with torch.no_grad():
        expected = reference(tokens.input_ids, last, quick=quick)
        pooled = tower(tokens).pooled
    assert tower.projection is not None
    assert tower.backbone.max_tokens == CONTEXT
    torch.testing.assert_close(pooled @ tower.projection.weight.T, expected, atol=1e-4, rtol=1e-4)
    assert len(expected) == len(TEXTS)
