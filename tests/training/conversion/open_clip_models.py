"""Models with parameters named as open_clip and timm name them, written on torch.nn alone."""

import json
import math
from collections import OrderedDict
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from tests.training.conversion.folders import seeded
from tests.training.models.tiny import tiny_tokenizer, write_tokenizer

WIDTH: Final = 128
HEADS: Final = 2
# As timm's vit_tiny has them.
TIMM_WIDTH: Final = 192
TIMM_HEADS: Final = 3
LAYERS: Final = 2
SIZE: Final = 32
PATCH: Final = 16
CONTEXT: Final = 32
DIM: Final = 24


class QuickGelu(nn.Module):
    def forward(self, hidden: Tensor) -> Tensor:
        return hidden * torch.sigmoid(1.702 * hidden)


class Block(nn.Module):
    """A residual block of open_clip's own transformers."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.attn = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.ln_2 = nn.LayerNorm(WIDTH)
        layers = {"c_fc": nn.Linear(WIDTH, 4 * WIDTH), "gelu": activation}
        self.mlp = nn.Sequential(OrderedDict({**layers, "c_proj": nn.Linear(4 * WIDTH, WIDTH)}))

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        normed = self.ln_1(hidden)
        hidden = hidden + self.attn(normed, normed, normed, attn_mask=mask, need_weights=False)[0]
        added: Tensor = hidden + self.mlp(self.ln_2(hidden))
        return added


class Transformer(nn.Module):
    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.resblocks = nn.ModuleList(Block(activation) for _ in range(LAYERS))

    def forward(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        for block in self.resblocks:
            hidden = block(hidden, mask)
        return hidden


class OwnVision(nn.Module):
    """open_clip's own vision transformer."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, WIDTH, PATCH, PATCH, bias=False)
        self.class_embedding = nn.Parameter(torch.randn(WIDTH))
        self.positional_embedding = nn.Parameter(torch.randn((SIZE // PATCH) ** 2 + 1, WIDTH))
        self.ln_pre = nn.LayerNorm(WIDTH)
        self.transformer = Transformer(activation)
        self.ln_post = nn.LayerNorm(WIDTH)
        self.proj = nn.Parameter(torch.randn(WIDTH, DIM))

    def forward(self, pixels: Tensor) -> Tensor:
        patches = self.conv1(pixels).flatten(2).transpose(1, 2)
        first = self.class_embedding.expand(len(pixels), 1, -1)
        hidden = torch.cat([first, patches], dim=1) + self.positional_embedding
        found: Tensor = self.ln_post(self.transformer(self.ln_pre(hidden))[:, 0]) @ self.proj
        return found


class OwnClip(nn.Module):
    """CLIP as open_clip builds it."""

    def __init__(self, *, quick: bool) -> None:
        super().__init__()
        activation = QuickGelu() if quick else nn.GELU()
        self.visual = OwnVision(activation)
        self.positional_embedding = nn.Parameter(torch.randn(CONTEXT, WIDTH))
        self.token_embedding = nn.Embedding(tiny_tokenizer().size, WIDTH)
        self.transformer = Transformer(activation)
        self.ln_final = nn.LayerNorm(WIDTH)
        self.text_projection = nn.Parameter(torch.randn(WIDTH, DIM))
        self.logit_scale = nn.Parameter(torch.tensor(4.6))

    def encode_text(self, ids: Tensor, mask: Tensor) -> Tensor:
        length = ids.shape[1]
        hidden = self.token_embedding(ids) + self.positional_embedding[:length]
        future = torch.full((length, length), -math.inf).triu(1)
        hidden = self.ln_final(self.transformer(hidden, future))
        pooled: Tensor = hidden[torch.arange(len(ids)), mask.sum(dim=1) - 1] @ self.text_projection
        return pooled


class TimmAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(TIMM_WIDTH, 3 * TIMM_WIDTH)
        self.proj = nn.Linear(TIMM_WIDTH, TIMM_WIDTH)

    def forward(self, hidden: Tensor) -> Tensor:
        parts = (
            self.qkv(hidden).unflatten(2, (3, TIMM_HEADS, TIMM_WIDTH // TIMM_HEADS)).permute(2, 0, 3, 1, 4)
        )
        attended = functional.scaled_dot_product_attention(*parts)
        projected: Tensor = self.proj(attended.transpose(1, 2).flatten(2))
        return projected


class TimmBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(TIMM_WIDTH, eps=1e-6)
        self.attn = TimmAttention()
        self.norm2 = nn.LayerNorm(TIMM_WIDTH, eps=1e-6)
        layers: dict[str, nn.Module] = {"fc1": nn.Linear(TIMM_WIDTH, 4 * TIMM_WIDTH), "act": nn.GELU()}
        self.mlp = nn.Sequential(OrderedDict({**layers, "fc2": nn.Linear(4 * TIMM_WIDTH, TIMM_WIDTH)}))

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attn(self.norm1(hidden))
        added: Tensor = hidden + self.mlp(self.norm2(hidden))
        return added


class TimmTrunk(nn.Module):
    """timm's vision transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(torch.randn(1, 1, TIMM_WIDTH))
        self.pos_embed = nn.Parameter(torch.randn(1, (SIZE // PATCH) ** 2 + 1, TIMM_WIDTH))
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, TIMM_WIDTH, PATCH, PATCH)})
        self.blocks = nn.Sequential(*(TimmBlock() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(TIMM_WIDTH, eps=1e-6)

    def forward(self, pixels: Tensor) -> Tensor:
        patches = self.patch_embed["proj"](pixels).flatten(2).transpose(1, 2)
        hidden = torch.cat([self.cls_token.expand(len(pixels), 1, -1), patches], dim=1) + self.pos_embed
        pooled: Tensor = self.norm(self.blocks(hidden))[:, 0]
        return pooled


class TimmVision(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = TimmTrunk()
        self.head = nn.ModuleDict({"proj": nn.Linear(TIMM_WIDTH, DIM, bias=False)})

    def forward(self, pixels: Tensor) -> Tensor:
        projected: Tensor = self.head["proj"](self.trunk(pixels))
        return projected


class HubText(nn.Module):
    """A BERT or RoBERTa with a projection of two layers."""

    def __init__(self, *, roberta: bool) -> None:
        super().__init__()
        sizes: dict[str, Any] = {
            "vocab_size": tiny_tokenizer().size,
            "hidden_size": WIDTH,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "intermediate_size": 2 * WIDTH,
            "max_position_embeddings": CONTEXT + 2,
            "pad_token_id": tiny_tokenizer().pad_id,
        }
        self.roberta = roberta
        config: Any = (
            transformers.RobertaConfig(**sizes, type_vocab_size=1, layer_norm_eps=1e-5)
            if roberta
            else transformers.BertConfig(**sizes)
        )
        kind: Any = transformers.RobertaModel if roberta else transformers.BertModel
        self.transformer = kind(config)
        self.proj = nn.Sequential(nn.Linear(WIDTH, 40, bias=False), nn.GELU(), nn.Linear(40, DIM, bias=False))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        hidden = self.transformer(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(2).to(hidden.dtype)
        pooled = (hidden * weights).sum(dim=1) / weights.sum(dim=1) if self.roberta else hidden[:, 0]
        projected: Tensor = self.proj(pooled)
        return projected


class HubClip(nn.Module):
    """BiomedCLIP's kind: timm's vision transformer and a BERT; or LAION's with a RoBERTa."""

    def __init__(self, *, roberta: bool) -> None:
        super().__init__()
        self.visual = TimmVision()
        self.text = HubText(roberta=roberta)
        self.logit_scale = nn.Parameter(torch.tensor(4.6))

    def encode_text(self, ids: Tensor, mask: Tensor) -> Tensor:
        encoded: Tensor = self.text(ids, mask)
        return encoded


def _save(folder: Path, model: nn.Module, config: dict[str, Any], preprocessing: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    weights = {name: value.contiguous() for name, value in model.state_dict().items()}
    save_file(weights, folder / "open_clip_model.safetensors")
    content = {"model_cfg": {"embed_dim": DIM, **config}, "preprocess_cfg": preprocessing}
    (folder / "open_clip_config.json").write_text(json.dumps(content))
    write_tokenizer(folder)


def own_clip(folder: Path, *, quick: bool = False) -> OwnClip:
    """Write a CLIP of open_clip's own transformers."""
    model: OwnClip = seeded(lambda: OwnClip(quick=quick))
    vision = {"image_size": SIZE, "layers": LAYERS, "width": WIDTH, "patch_size": PATCH}
    text = {
        "context_length": CONTEXT,
        "vocab_size": tiny_tokenizer().size,
        "width": WIDTH,
        "heads": HEADS,
        "layers": LAYERS,
    }
    settings = {"vision_cfg": vision, "text_cfg": text, "quick_gelu": quick}
    _save(folder, model, settings, {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.25]})
    return model


def hub_clip(folder: Path, *, roberta: bool = False) -> HubClip:
    """Write a model of timm's vision transformer and a BERT or RoBERTa."""
    model: HubClip = seeded(lambda: HubClip(roberta=roberta))
    vision = {
        "timm_model_name": "vit_tiny_patch16_224",
        "timm_model_pretrained": False,
        "timm_pool": "",
        "timm_proj": "linear",
        "image_size": SIZE,
    }
    name = "xlm-roberta-base" if roberta else "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract"
    text = {
        "hf_model_name": name,
        "hf_tokenizer_name": name,
        "hf_proj_type": "mlp",
        "hf_pooler_type": "mean_pooler" if roberta else "cls_last_hidden_state_pooler",
        "context_length": CONTEXT,
    }
    processing = {"interpolation": "bilinear", "resize_mode": "squash"}
    _save(folder, model, {"vision_cfg": vision, "text_cfg": text}, processing)
    return model
