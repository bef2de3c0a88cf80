"""Small random encoders of every kind, in folders as the hub keeps them; torchvision is absent."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import sentencepiece
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn

TRANSFORMER: Final[dict[str, Any]] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
VISION: Final[dict[str, Any]] = {**TRANSFORMER, "image_size": 64, "patch_size": 16}
IMAGENET: Final[dict[str, Any]] = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
CLIP_STATISTICS: Final[dict[str, Any]] = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
_TEXT = (
    "a dog runs on the beach with two dogs no pleural effusion heart enlarged see above man red hat walks "
    "along his ball and Ein Café in Zürich nodule mm 两 只 狗 在 沙 滩 上 奔 跑 犬 TWO DOGS Run On The Beach"
)
WORDS: Final = _TEXT.split()
LINES: Final = [" ".join(WORDS[start:] + WORDS[:start]) for start in range(len(WORDS))]


def seeded(build: Callable[[], nn.Module]) -> Any:
    """A model with random weights that are large enough to tell one input from another."""
    torch.manual_seed(0)
    model: Any = build().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.3 if "position" in name else 0.15)
    return model


def crop_of(size: int, crop: int, **settings: Any) -> dict[str, Any]:
    """Settings of a processor that resizes the shortest edge and crops the centre."""
    return {
        "size": {"shortest_edge": size},
        "crop_size": {"height": crop, "width": crop},
        "do_center_crop": True,
        "resample": 3,
        **settings,
    }


def square_of(size: int, **settings: Any) -> dict[str, Any]:
    """Settings of a processor that stretches."""
    return {"size": {"height": size, "width": size}, **settings}


def save(folder: Path, model: Any, processor: str, settings: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    content = {"image_processor_type": processor, **settings}
    (folder / "preprocessor_config.json").write_text(json.dumps(content))


def clip(folder: Path, *, pad_token: str = "<|endoftext|>") -> None:
    """CLIP with its byte-pair tokenizer."""
    vocabulary, merges = _byte_pairs("</w>")
    tokenizer = transformers.CLIPTokenizer(vocabulary, merges, model_max_length=24, pad_token=pad_token)
    _clip_like(folder, tokenizer, transformers.CLIPConfig, transformers.CLIPModel, 24)


def metaclip_2(folder: Path) -> None:
    """MetaCLIP 2 with a tokenizer of XLM-V's kind."""
    _clip_like(folder, _xlm_roberta(24), transformers.MetaClip2Config, transformers.MetaClip2Model, 24)


def altclip(folder: Path) -> None:
    """AltCLIP: an XLM-RoBERTa that was taught the texts of CLIP; its positions begin behind the padding."""
    kinds = (transformers.AltCLIPConfig, transformers.AltCLIPModel)
    _clip_like(folder, _xlm_roberta(40), *kinds, 42, project_dim=20)


def _clip_like(
    folder: Path, tokenizer: Any, config_kind: Any, model_kind: Any, positions: int, **text: Any
) -> None:
    tokenizer.save_pretrained(folder)
    sizes = {"vocab_size": len(tokenizer), "max_position_embeddings": positions}
    config = config_kind(
        vision_config=VISION,
        text_config={**TRANSFORMER, **_ids(tokenizer), **sizes, **text},
        projection_dim=24,
    )
    settings = crop_of(64, 64, **CLIP_STATISTICS)
    save(folder, seeded(lambda: model_kind(config)), "CLIPImageProcessor", settings)


def chinese_clip(folder: Path) -> None:
    """Chinese-CLIP: a BERT whose first token is projected."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(word.lower() for word in WORDS)]
    tokenizer = transformers.BertTokenizer(
        {piece: number for number, piece in enumerate(pieces)}, model_max_length=24
    )
    tokenizer.save_pretrained(folder)
    text = {**TRANSFORMER, "vocab_size": len(tokenizer), "max_position_embeddings": 24}
    config = transformers.ChineseCLIPConfig(vision_config=VISION, text_config=text, projection_dim=24)
    settings = square_of(64, **CLIP_STATISTICS, resample=3, do_center_crop=False)
    save(folder, seeded(lambda: transformers.ChineseCLIPModel(config)), "ChineseCLIPImageProcessor", settings)


def siglip(folder: Path) -> None:
    """SigLIP with the SentencePiece model alone, as many folders have it."""
    folder.mkdir(parents=True)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line.lower() for line in LINES * 20),
        model_prefix=str(folder / "spiece"),
        vocab_size=120,
        hard_vocab_limit=False,
        pad_id=-1,
        bos_id=-1,
        eos_id=1,
        unk_id=2,
        add_dummy_prefix=False,
        minloglevel=2,
    )
    tokenizer = transformers.SiglipTokenizer(str(folder / "spiece.model"), model_input_names=["input_ids"])
    tokenizer.save_pretrained(folder)
    (folder / "spiece.vocab").unlink()
    _siglip(folder, tokenizer, resample=3)


def siglip_2(folder: Path) -> None:
    """SigLIP 2 of a fixed size, whose tokenizer of Gemma's kind keeps the case."""
    vocabulary, merges = _gemma_pairs()
    tokenizer = transformers.GemmaTokenizer(
        vocabulary, merges, padding_side="right", model_input_names=["input_ids"], model_max_length=10**30
    )
    tokenizer.save_pretrained(folder)
    _siglip(folder, tokenizer, resample=2)


def _siglip(folder: Path, tokenizer: Any, *, resample: int) -> None:
    text = {**TRANSFORMER, "vocab_size": len(tokenizer), "max_position_embeddings": 64, "projection_size": 32}
    config = transformers.SiglipConfig(vision_config=VISION, text_config=text)
    settings = square_of(64, image_mean=[0.5] * 3, image_std=[0.5] * 3, resample=resample)
    save(folder, seeded(lambda: transformers.SiglipModel(config)), "SiglipImageProcessor", settings)


def dinov2(folder: Path) -> None:
    """DINOv2, whose position table is larger than its usual input."""
    config = transformers.Dinov2Config(**{**VISION, "image_size": 112, "patch_size": 14}, mlp_ratio=2)
    settings = crop_of(64, 56, **IMAGENET)
    save(folder, seeded(lambda: transformers.Dinov2Model(config)), "BitImageProcessor", settings)


def dinov2_with_registers(folder: Path) -> None:
    """DINOv2 with register tokens."""
    config = transformers.Dinov2WithRegistersConfig(
        **{**VISION, "patch_size": 14, "image_size": 56}, mlp_ratio=2, num_register_tokens=4
    )
    settings = crop_of(64, 56, **IMAGENET)
    save(folder, seeded(lambda: transformers.Dinov2WithRegistersModel(config)), "BitImageProcessor", settings)


def dinov3(folder: Path) -> None:
    """DINOv3, whose processor in transformers needs torchvision."""
    config = transformers.DINOv3ViTConfig(**VISION, num_register_tokens=4)
    settings = square_of(64, **IMAGENET, resample=2)
    save(folder, seeded(lambda: transformers.DINOv3ViTModel(config)), "DINOv3ViTImageProcessorFast", settings)


def vit(folder: Path) -> None:
    """ViT, with a pooler that no task has trained."""
    config = transformers.ViTConfig(**VISION)
    settings = square_of(64, image_mean=[0.5] * 3, image_std=[0.5] * 3, resample=2)
    save(folder, seeded(lambda: transformers.ViTModel(config)), "ViTImageProcessor", settings)


def convnext(folder: Path) -> None:
    """ConvNeXt, which keeps a share of the image."""
    config = transformers.ConvNextConfig(hidden_sizes=[8, 8, 16, 24], depths=[1, 2, 1, 1])
    settings = {"size": {"shortest_edge": 64}, "crop_pct": 0.875, "resample": 3, **IMAGENET}
    save(folder, seeded(lambda: transformers.ConvNextModel(config)), "ConvNextImageProcessor", settings)


def resnet(folder: Path) -> None:
    """ResNet, whose processor is ConvNeXt's, from a size on without a crop."""
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 8, 16, 24], depths=[1, 1, 1, 1])
    settings = {"size": {"shortest_edge": 384}, "crop_pct": 0.875, "resample": 3, **IMAGENET}
    save(folder, seeded(lambda: transformers.ResNetModel(config)), "ConvNextImageProcessor", settings)


def mobilenet_v2(folder: Path) -> None:
    """MobileNetV2."""
    config = transformers.MobileNetV2Config(depth_multiplier=0.25, finegrained_output=False)
    settings = crop_of(72, 64, image_mean=[0.5] * 3, image_std=[0.5] * 3)
    save(folder, seeded(lambda: transformers.MobileNetV2Model(config)), "MobileNetV2ImageProcessor", settings)


def efficientnet(folder: Path) -> None:
    """EfficientNet, whose processor divides by the deviation twice."""
    config = transformers.EfficientNetConfig(
        width_coefficient=0.25, depth_coefficient=0.5, hidden_dim=320, initializer_range=1.0
    )
    settings = square_of(64, **IMAGENET, resample=0, include_top=True)
    save(
        folder, seeded(lambda: transformers.EfficientNetModel(config)), "EfficientNetImageProcessor", settings
    )


OF_IMAGES_AND_TEXTS: Final = (clip, metaclip_2, altclip, chinese_clip, siglip, siglip_2)
OF_IMAGES: Final = (dinov2, dinov2_with_registers, dinov3, vit, convnext, resnet, mobilenet_v2, efficientnet)


def _ids(tokenizer: Any) -> dict[str, int]:
    return {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }


def _byte_pairs(suffix: str) -> tuple[dict[str, int], Any]:
    backend = Tokenizer(models.BPE(end_of_word_suffix=suffix))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=["<|startoftext|>", "<|endoftext|>"],
        initial_alphabet=[*alphabet],
        end_of_word_suffix=suffix,
        show_progress=False,
    )
    backend.train_from_iterator([line.lower() for line in LINES], trainer)
    return _saved(backend, [f"{letter}{suffix}" for letter in alphabet])


def _gemma_pairs() -> tuple[dict[str, int], Any]:
    backend = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    backend.decoder = decoders.ByteFallback()
    bytes_ = [f"<0x{value:02X}>" for value in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *bytes_],
        show_progress=False,
    )
    backend.train_from_iterator([line.replace(" ", "▁") for line in LINES], trainer)
    return _saved(backend, [])


def _saved(backend: Tokenizer, more: list[str]) -> tuple[dict[str, int], Any]:
    content = json.loads(backend.to_str())["model"]
    vocabulary = content["vocab"]
    for piece in more:
        vocabulary.setdefault(piece, len(vocabulary))
    return vocabulary, [tuple(pair) for pair in content["merges"]]


def _xlm_roberta(limit: int) -> Any:
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    letters = sorted({letter for line in LINES for letter in line if letter != " "})
    pieces = [*special, *(f"▁{word}" for word in dict.fromkeys(WORDS)), *letters, "▁", "<mask>"]
    scored = [(piece, 0.0 if piece in special else -float(place)) for place, piece in enumerate(pieces)]
    return transformers.XLMRobertaTokenizer(vocab=scored, model_max_length=limit)
