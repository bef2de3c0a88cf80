"""Folders of small open_clip models, whose weights come from a formula; open_clip itself can load them."""

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor
from transformers.convert_slow_tokenizer import bytes_to_unicode

DIM: Final = 8
SIZE: Final = 32
CONTEXT: Final = 24
WIDTH: Final = 128
LAYERS: Final = 2
PATCH: Final = 16
# Of timm's vit_tiny_patch16_224.
TIMM_WIDTH: Final = 192
TIMM_LAYERS: Final = 12
TIMM_PATCHES: Final = 196


def _pairs(text: str) -> list[tuple[str, str]]:
    """Pairs of pieces, each written with a plus."""
    parted = (pair.partition("+") for pair in text.split())
    return [(first, last) for first, _, last in parted]


_MERGES: Final = _pairs(
    "d+o do+g</w> do+g r+u ru+n</w> t+h th+e</w> b+e be+a bea+c beac+h</w> a+n an+d</w> h+e i+s</w> i+s"
)
_PIECES: Final = "a dog dogs run the beach with his heart pleural effusion in 12 mm two"
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789.,;!?'()/%"

Shapes = Iterator[tuple[str, tuple[int, ...]]]


def _value(name: str, shape: tuple[int, ...]) -> Tensor:
    """A weight from the raw numbers of PCG64, whose stream NumPy never changes."""
    count = int(np.prod(shape, dtype=int))
    raw = np.random.PCG64(zlib.crc32(name.encode())).random_raw(count)
    unit = (raw >> np.uint64(40)).astype(np.float64) / 2**24 - 0.5
    if len(shape) > 1:
        # Small before activations, so that one kind of GELU is told from another, and in timm's many layers.
        small = name.endswith(("c_fc.weight", "embedding"))
        values = unit * (0.2 if small else 0.4 if "trunk" in name else 0.8)
    else:
        values = 0.4 * unit + (name.endswith("weight") or name == "logit_scale")
    return torch.from_numpy(values.astype(np.float32)).reshape(shape)


def _layer(name: str, *shape: int, bias: bool = True) -> Shapes:
    yield f"{name}.weight", shape
    if bias:
        yield f"{name}.bias", shape[:1]


def _own_blocks(prefix: str, width: int) -> Shapes:
    for number in range(LAYERS):
        block = f"{prefix}transformer.resblocks.{number}"
        yield from _layer(f"{block}.ln_1", width)
        yield f"{block}.attn.in_proj_weight", (3 * width, width)
        yield f"{block}.attn.in_proj_bias", (3 * width,)
        yield from _layer(f"{block}.attn.out_proj", width, width)
        yield from _layer(f"{block}.ln_2", width)
        yield from _layer(f"{block}.mlp.c_fc", 4 * width, width)
        yield from _layer(f"{block}.mlp.c_proj", width, 4 * width)


def _own_vision() -> Shapes:
    yield "visual.class_embedding", (WIDTH,)
    yield "visual.positional_embedding", ((SIZE // PATCH) ** 2 + 1, WIDTH)
    yield "visual.proj", (WIDTH, DIM)
    yield "visual.conv1.weight", (WIDTH, 3, PATCH, PATCH)
    yield from _layer("visual.ln_pre", WIDTH)
    yield from _layer("visual.ln_post", WIDTH)
    yield from _own_blocks("visual.", WIDTH)


def _own_text(prefix: str) -> Shapes:
    yield f"{prefix}positional_embedding", (CONTEXT, WIDTH)
    yield f"{prefix}text_projection", (WIDTH, DIM)
    yield f"{prefix}token_embedding.weight", (514 + len(_MERGES), WIDTH)
    yield from _layer(f"{prefix}ln_final", WIDTH)
    yield from _own_blocks(prefix, WIDTH)


def _timm_vision(*, bias: bool) -> Shapes:
    yield "visual.trunk.cls_token", (1, 1, TIMM_WIDTH)
    yield "visual.trunk.pos_embed", (1, TIMM_PATCHES + 1, TIMM_WIDTH)
    yield from _layer("visual.trunk.patch_embed.proj", TIMM_WIDTH, 3, PATCH, PATCH)
    for number in range(TIMM_LAYERS):
        block = f"visual.trunk.blocks.{number}"
        yield from _layer(f"{block}.norm1", TIMM_WIDTH)
        yield from _layer(f"{block}.attn.qkv", 3 * TIMM_WIDTH, TIMM_WIDTH)
        yield from _layer(f"{block}.attn.proj", TIMM_WIDTH, TIMM_WIDTH)
        yield from _layer(f"{block}.norm2", TIMM_WIDTH)
        yield from _layer(f"{block}.mlp.fc1", 4 * TIMM_WIDTH, TIMM_WIDTH)
        yield from _layer(f"{block}.mlp.fc2", TIMM_WIDTH, 4 * TIMM_WIDTH)
    yield from _layer("visual.trunk.norm", TIMM_WIDTH)
    yield from _layer("visual.head.proj", DIM, TIMM_WIDTH, bias=bias)


def _bert(words: int, *, roberta: bool) -> Shapes:
    model = "text.transformer"
    yield f"{model}.embeddings.word_embeddings.weight", (words, WIDTH)
    yield f"{model}.embeddings.position_embeddings.weight", (CONTEXT + 2, WIDTH)
    yield f"{model}.embeddings.token_type_embeddings.weight", (1 if roberta else 2, WIDTH)
    yield from _layer(f"{model}.embeddings.LayerNorm", WIDTH)
    for number in range(LAYERS):
        block = f"{model}.encoder.layer.{number}"
        for part in ("query", "key", "value"):
            yield from _layer(f"{block}.attention.self.{part}", WIDTH, WIDTH)
        yield from _layer(f"{block}.attention.output.dense", WIDTH, WIDTH)
        yield from _layer(f"{block}.attention.output.LayerNorm", WIDTH)
        yield from _layer(f"{block}.intermediate.dense", 2 * WIDTH, WIDTH)
        yield from _layer(f"{block}.output.dense", WIDTH, 2 * WIDTH)
        yield from _layer(f"{block}.output.LayerNorm", WIDTH)


def _mlp() -> Shapes:
    hidden = (WIDTH + DIM) // 2
    yield "text.proj.0.weight", (hidden, WIDTH)
    yield "text.proj.2.weight", (DIM, hidden)


def _clip_tokenizer() -> Any:
    letters, merges = _letters(), list[Any](_MERGES)
    pieces = [*letters, *(letter + "</w>" for letter in letters), *("".join(pair) for pair in _MERGES)]
    pieces += ["<|startoftext|>", "<|endoftext|>"]
    return transformers.CLIPTokenizer(_numbered(pieces), merges, model_max_length=CONTEXT)


def _bert_tokenizer() -> Any:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *_PIECES.split(), *_LETTERS]
    pieces += [f"##{letter}" for letter in _LETTERS]
    return transformers.BertTokenizer(_numbered(dict.fromkeys(pieces)), model_max_length=CONTEXT)


def _roberta_tokenizer() -> Any:
    merges: list[Any] = [*_pairs("Ġ+d Ġd+o Ġdo+g Ġ+a t+h th+e Ġ+the")]
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *_letters()]
    pieces += ["".join(pair) for pair in merges]
    return transformers.RobertaTokenizer(_numbered(pieces), merges, model_max_length=CONTEXT)


def _letters() -> list[str]:
    to_unicode: Any = bytes_to_unicode
    return list(to_unicode().values())


def _numbered(pieces: Any) -> dict[str, int]:
    return {piece: number for number, piece in enumerate(pieces)}


def _save(
    folder: Path, shapes: list[Shapes], tokenizer: Any, config: Mapping[str, Any], pixels: Mapping[str, Any]
) -> None:
    folder.mkdir(parents=True)
    weights = {name: _value(name, shape) for part in shapes for name, shape in part}
    save_file(weights | {"logit_scale": torch.tensor(4.6)}, folder / "open_clip_model.safetensors")
    content = {"model_cfg": {"embed_dim": DIM, **config}, "preprocess_cfg": pixels}
    (folder / "open_clip_config.json").write_text(json.dumps(content))
    tokenizer.save_pretrained(folder)


def own_clip(folder: Path, *, quick: bool = False) -> None:
    """A CLIP of open_clip's own transformers."""
    settings = _own_settings() | {"quick_gelu": quick}
    statistics = {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.25]}
    _save(folder, [_own_vision(), _own_text("")], _clip_tokenizer(), settings, statistics)


def quick_clip(folder: Path) -> None:
    """The same with the quick GELU of OpenAI's weights."""
    own_clip(folder, quick=True)


def custom_text_clip(folder: Path) -> None:
    """The same with the text tower below a name of its own, and stretched images."""
    settings = _own_settings() | {"custom_text": True}
    pixels = {"interpolation": "bilinear", "resize_mode": "squash"}
    _save(folder, [_own_vision(), _own_text("text.")], _clip_tokenizer(), settings, pixels)


def _own_settings() -> dict[str, Any]:
    vision = {"image_size": SIZE, "layers": LAYERS, "width": WIDTH, "patch_size": PATCH}
    text = {"context_length": CONTEXT, "vocab_size": 514 + len(_MERGES), "width": WIDTH, "layers": LAYERS}
    return {"vision_cfg": vision, "text_cfg": {**text, "heads": 4}}


def biomed_clip(folder: Path) -> None:
    """BiomedCLIP's kind: timm's vision transformer and a BERT."""
    text = {
        "hf_model_name": "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract",
        "hf_proj_type": "mlp",
        "hf_pooler_type": "cls_last_hidden_state_pooler",
    }
    tokenizer = _bert_tokenizer()
    shapes = [_timm_vision(bias=False), _bert(len(tokenizer), roberta=False), _mlp()]
    _save(folder, shapes, tokenizer, _hub_settings(text), {})


def roberta_clip(folder: Path) -> None:
    """LAION's kind with a RoBERTa, whose words are averaged."""
    text = {"hf_model_name": "roberta-base", "hf_proj_type": "linear", "hf_pooler_type": "mean_pooler"}
    tokenizer = _roberta_tokenizer()
    shapes = [
        _timm_vision(bias=True),
        _bert(len(tokenizer), roberta=True),
        _layer("text.proj", DIM, WIDTH, bias=False),
    ]
    pixels = {"interpolation": "bilinear", "mean": [0.5] * 3, "std": [0.5] * 3}
    _save(folder, shapes, tokenizer, _hub_settings(text, timm_proj_bias=True), pixels)


def _hub_settings(text: dict[str, Any], **vision: Any) -> dict[str, Any]:
    timm = {"timm_model_name": "vit_tiny_patch16_224", "timm_model_pretrained": False, "timm_pool": ""}
    texts = {**text, "hf_tokenizer_name": text["hf_model_name"], "context_length": CONTEXT}
    return {
        "vision_cfg": {**timm, "timm_proj": "linear", "image_size": 224, **vision},
        "text_cfg": texts,
    }


EVERY: Final[Mapping[str, Callable[[Path], None]]] = {
    "own": own_clip,
    "quick": quick_clip,
    "custom text": custom_text_clip,
    "biomed": biomed_clip,
    "roberta": roberta_clip,
}
