"""Vision, text and audio models of transformers as backbones, and open_clip's text weights."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Literal

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional

from training.common.errors import RecipeError
from training.models.config import ImageArchitecture, TextArchitecture
from training.models.pretrained.architecture import (
    architecture_options,
    configuration,
    load_pretrained,
    pretrained_configuration,
    read_projection,
)
from training.models.pretrained.folder import read_json, read_tensors, tensor_names
from training.models.text_input import Tokenizer
from training.models.torchvision_resnet import load_torchvision, read_weights, resnet_options
from training.models.tower import (
    AudioBackbone,
    Backbone,
    BackboneOutput,
    ImageBackbone,
    Projection,
    TextBackbone,
    run_layers,
    use_channels_last,
)

# Most ViT checkpoints were trained to classify by the class token, without a pooler.
_NO_POOLER: Final = {"add_pooling_layer": False}
_TOP: Final = ("encoder.top_conv", "encoder.top_bn", "encoder.top_activation")
_STAGES: Final = "encoder.stages"
# Pooling of the text feature that image-text models project into their common space.
PROJECTED_POOLING: Final[Mapping[TextArchitecture, Literal["cls", "eos"]]] = {
    "altclip_text_model": "cls",
    "bert": "cls",
    "clip_text_model": "eos",
    "siglip_text_model": "eos",
}
# AST was trained on sounds padded with a log energy of 0, normalised with AudioSet's mean and deviation.
_AST_PADDING: Final = 4.2677393 / 9.1379948
# Names of text weights: open_clip's, then those of transformers' CLIPTextModel.
_CLIP_HEAD_WIDTH = 64
TEXT_NAMES: Final[Mapping[str, str]] = {
    "positional_embedding": "embeddings.position_embedding.weight",
    "token_embedding.weight": "embeddings.token_embedding.weight",
    "ln_final.weight": "final_layer_norm.weight",
    "ln_final.bias": "final_layer_norm.bias",
}
_BLOCK_PARTS = {
    "ln_1": "layer_norm1",
    "ln_2": "layer_norm2",
    "attn.out_proj": "self_attn.out_proj",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
}
_BLOCK = re.compile(r"transformer\.resblocks\.(\d+)\.(.+)[._](weight|bias)")
_TEXT_PREFIXES = ("positional_embedding", "token_embedding.", "ln_final.", "transformer.resblocks.")


@dataclass(frozen=True, slots=True)
class _Family:
    """Names of the parts of a transformers model.

    `output` is the kind of its last hidden state: a map, patches or tokens, or a class token and patches. In
    a conv net, `tail` follows the layers and `norm` the mean of the map. With `any_size`, a transformer
    accepts images of any whole number of patches.
    """

    config: str
    model: str
    layers: str
    output: Literal["map", "tokens", "cls_patches"] = "tokens"
    stem: tuple[str, ...] = ("embeddings",)
    settings: Mapping[str, Any] = field(default_factory=dict)
    tail: tuple[str, ...] = ()
    norm: str | None = None
    any_size: bool = False


_IMAGES: Final[Mapping[str, _Family]] = {
    "resnet": _Family("ResNetConfig", "ResNetModel", _STAGES, "map", ("embedder",)),
    "convnext": _Family("ConvNextConfig", "ConvNextModel", _STAGES, "map", norm="layernorm"),
    "efficientnet": _Family("EfficientNetConfig", "EfficientNetModel", "encoder.blocks", "map", tail=_TOP),
    "mobilenet_v2": _Family(
        "MobileNetV2Config", "MobileNetV2Model", "layer", "map", ("conv_stem",), tail=("conv_1x1",)
    ),
    "vit": _Family("ViTConfig", "ViTModel", "layers", "cls_patches", settings=_NO_POOLER),
    "clip_vision_model": _Family(
        "CLIPVisionConfig", "CLIPVisionModel", "encoder.layers", "cls_patches", ("embeddings", "pre_layrnorm")
    ),
    "dinov2": _Family("Dinov2Config", "Dinov2Model", "encoder.layer", "cls_patches", any_size=True),
    "dinov2_with_registers": _Family(
        "Dinov2WithRegistersConfig", "Dinov2WithRegistersModel", "encoder.layer", "cls_patches", any_size=True
    ),
    "dinov3_vit": _Family("DINOv3ViTConfig", "DINOv3ViTModel", "model.layer", "cls_patches", any_size=True),
    "siglip_vision_model": _Family("SiglipVisionConfig", "SiglipVisionModel", "encoder.layers"),
}
_TEXTS: Final[Mapping[str, _Family]] = {
    "altclip_text_model": _Family(
        "AltCLIPTextConfig", "AltCLIPTextModel", "roberta.encoder.layers", stem=("roberta.embeddings",)
    ),
    "bert": _Family("BertConfig", "BertModel", "encoder.layer", settings=_NO_POOLER),
    "roberta": _Family("RobertaConfig", "RobertaModel", "encoder.layer", settings=_NO_POOLER),
    "distilbert": _Family("DistilBertConfig", "DistilBertModel", "transformer.layer"),
    "clip_text_model": _Family("CLIPTextConfig", "CLIPTextModel", "encoder.layers"),
    "siglip_text_model": _Family("SiglipTextConfig", "SiglipTextModel", "encoder.layers"),
}
_SOUNDS: Final[Mapping[str, _Family]] = {
    "audio_spectrogram_transformer": _Family("ASTConfig", "ASTModel", "layers")
}
# Model types of transformers that text towers support.
TEXT_TYPES: Final = tuple(_TEXTS)


def _configured(
    families: Mapping[str, _Family], architecture: str, options: Mapping[str, Any], folder: Path | None
) -> "transformers.PreTrainedConfig":
    """The configuration from options, or that of a pretrained folder."""
    kind = getattr(transformers, families[architecture].config)
    return (
        configuration(kind, options) if folder is None else pretrained_configuration(kind, folder, families)
    )


def _model(family: _Family, config: "transformers.PreTrainedConfig", folder: Path | None) -> nn.Module:
    """The model with a folder's weights; None: random ones."""
    kind: Any = getattr(transformers, family.model)
    if folder is not None:
        return load_pretrained(kind, config, folder, **family.settings)
    model: nn.Module = kind(config, **family.settings)
    return model


class _TransformersBackbone(Backbone):
    """A model of transformers."""

    def __init__(self, family: _Family, model: nn.Module, options: dict[str, Any]) -> None:
        super().__init__()
        self._family = family
        self.model = model
        self.options = options
        self.stem_paths = tuple(f"model.{path}" for path in family.stem)
        self.layer_path = f"model.{family.layers}"

    def _run(self, **inputs: Tensor) -> tuple[Any, Tensor | None]:
        """The model's output, and the hidden states after layer `fork_after`."""
        if self.fork_after is None:
            return self.model(**inputs), None
        output = self.model(**inputs, output_hidden_states=True)
        return output, output.hidden_states[self.fork_after]


class TransformersImageBackbone(_TransformersBackbone, ImageBackbone):
    """A vision model of transformers; conv nets run in channels-last memory, which is faster on a CPU."""

    def __init__(self, family: _Family, model: nn.Module, options: dict[str, Any]) -> None:
        super().__init__(family, model, options)
        self.has_cls = family.output == "cls_patches"
        # Register tokens come between the class token and the patches.
        self.prefix = int(self.has_cls) + int(options.get("num_register_tokens", 0))
        self.width = self.local_width = _width(family, model, options)
        if family.output == "map":
            use_channels_last(self)
            return
        self.heads = int(options["num_attention_heads"])
        if family.any_size:
            self.size_multiple = int(options["patch_size"])
        else:
            self.image_size = int(options["image_size"])

    def forward(self, pixels: Tensor) -> BackboneOutput:
        """Features of normalised images (B, 3, S, S)."""
        if self._family.output == "map":
            return self._map(pixels.contiguous(memory_format=torch.channels_last))
        output, fork = self._run(pixel_values=pixels)
        hidden: Tensor = output.last_hidden_state
        if not self.has_cls:
            pooled = output.pooler_output
            return BackboneOutput(hidden, hidden.mean(dim=1) if pooled is None else pooled, fork=fork)
        final_norm = getattr(self.model, "post_layernorm", None)
        if final_norm is not None:
            hidden = final_norm(hidden)
        return BackboneOutput(hidden[:, self.prefix :], hidden[:, 0], fork=fork)

    def _map(self, pixels: Tensor) -> BackboneOutput:
        """The model's own forward, but layer by layer, so that frozen layers can run on slices."""
        layers = [*self.stem(), *(module for layer in self.layers() for module in layer)]
        layers += [attrgetter(path)(self.model) for path in self._family.tail]
        hidden = run_layers(layers, pixels)
        pooled = hidden.mean(dim=(-2, -1))
        if self._family.norm is not None:
            pooled = attrgetter(self._family.norm)(self.model)(pooled)
        return BackboneOutput(hidden.flatten(2).transpose(1, 2), pooled)

    def layers(self) -> list[list[nn.Module]]:
        """Transformer layers, or the blocks of a conv net; a downsampling belongs to the next block."""
        if self._family.layers != _STAGES:
            return super().layers()
        layers: list[list[nn.Module]] = []
        for stage in self.get_submodule(self.layer_path).children():
            before = list(getattr(stage, "downsampling_layer", []))
            for block in stage.get_submodule("layers").children():
                layers.append([*before, block])
                before = []
        return layers


def _width(family: _Family, model: nn.Module, options: dict[str, Any]) -> int:
    if "hidden_size" in options:
        return int(options["hidden_size"])
    if "hidden_sizes" in options:
        return int(options["hidden_sizes"][-1])
    tail = attrgetter(family.tail[0])(model)
    return int(getattr(tail, "convolution", tail).out_channels)


def build_image_backbone(
    architecture: ImageArchitecture, options: dict[str, Any], folder: Path | None, *, weights: bool
) -> TransformersImageBackbone:
    """A vision model from options, or from a pretrained folder with or without its weights.

    Raises:
        RecipeError: An option or the folder is invalid.
    """
    family, source = _IMAGES[architecture], folder if weights else None
    config = _configured(_IMAGES, architecture, options, folder)
    model = _model(family, config, source)
    backbone = TransformersImageBackbone(family, model, architecture_options(config))
    if source is not None and architecture == "clip_vision_model":
        backbone.projection = read_projection(source, "visual_projection.weight")
    elif source is not None and architecture == "siglip_vision_model":
        backbone.projection = Projection(torch.eye(backbone.width))
    return backbone


def build_torchvision_resnet(file: Path, *, weights: bool) -> TransformersImageBackbone:
    """A ResNet with the depth and width of a weight file with torchvision's names.

    Raises:
        RecipeError: The file doesn't contain a ResNet.
    """
    tensors, family = read_weights(file), _IMAGES["resnet"]
    config = configuration(transformers.ResNetConfig, resnet_options(tensors, file))
    model = _model(family, config, None)
    if weights:
        load_torchvision(model, tensors, file)
    return TransformersImageBackbone(family, model, architecture_options(config))


class TransformersTextBackbone(_TransformersBackbone, TextBackbone):
    """A text model of transformers."""

    def __init__(self, family: _Family, model: nn.Module, options: dict[str, Any]) -> None:
        super().__init__(family, model, options)
        # AltCLIP projects its tokens to its teacher's width.
        width = options.get("project_dim") or options.get("hidden_size") or options["dim"]
        self.width = self.local_width = int(width)
        if self.width == int(options.get("hidden_size", self.width)):
            self.heads = int(options.get("num_attention_heads") or options["n_heads"])
        self.max_tokens = _most_tokens(family, options)
        self.causal = family.model == "CLIPTextModel"

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> BackboneOutput:
        """Tokens (B, T, C) of ids and mask (B, T)."""
        output, fork = self._run(input_ids=input_ids, attention_mask=self._mask(attention_mask))
        return BackboneOutput(output.last_hidden_state, fork=fork)

    def _mask(self, attention_mask: Tensor) -> Tensor:
        """The mask (B, T) on a CPU; on a GPU, the mask (B, 1, T, T) that attention uses.

        transformers would check a mask (B, T) for padding, which synchronizes with the GPU.
        """
        if attention_mask.device.type == "cpu":
            return attention_mask
        return attended(attention_mask, causal=self.causal)

    def forward_pairs(self, input_ids: Tensor, attention_mask: Tensor, segments: Tensor) -> BackboneOutput:
        """Tokens (B, T, C) of rows (B, T) that may hold two texts each.

        `segments` (B, T) is 0 in the first text and 1 in the second. BERT has an embedding for each; other
        architectures ignore it.
        """
        if int(self.options.get("type_vocab_size", 0)) < 2:
            return self.forward(input_ids, attention_mask)
        mask = self._mask(attention_mask)
        output = self.model(input_ids=input_ids, attention_mask=mask, token_type_ids=segments)
        return BackboneOutput(output.last_hidden_state)


def attended(attention_mask: Tensor, *, causal: bool) -> Tensor:
    """Which token (row) attends to which (column) (B, 1, T, T), by a mask (B, T) of real tokens."""
    real = attention_mask.bool()[:, None, None, :].expand(-1, 1, attention_mask.shape[1], -1)
    return real.tril() if causal else real


class SiglipTextBackbone(TransformersTextBackbone):
    """SigLIP's text model, which was trained on texts padded to full length and attends to the padding.

    It pads every text itself; the caller's padding has no effect. Its pooled feature is the last position's.
    """

    pools_itself = True

    def __init__(self, family: _Family, model: nn.Module, options: dict[str, Any], pad_id: int) -> None:
        super().__init__(family, model, options)
        self.width = int(options["projection_size"])
        self._pad_id = pad_id

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> BackboneOutput:
        """Tokens (B, T, C) and the pooled feature (B, W) of ids and mask (B, T)."""
        real = input_ids.masked_fill(attention_mask == 0, self._pad_id)[:, : self.max_tokens]
        full = functional.pad(real, (0, self.max_tokens - real.shape[1]), value=self._pad_id)
        output, fork = self._run(input_ids=full)
        length = input_ids.shape[1]
        return BackboneOutput(
            output.last_hidden_state[:, :length],
            output.pooler_output,
            fork=None if fork is None else fork[:, :length],
        )


def build_text_backbone(
    architecture: TextArchitecture,
    options: dict[str, Any],
    folder: Path | None,
    tokenizer: Tokenizer,
    *,
    weights: bool,
) -> TransformersTextBackbone:
    """A text model from options, or from a pretrained folder with or without its weights.

    Special-token ids, and the vocabulary size if options don't set it, come from the tokenizer.

    Raises:
        RecipeError: An option or the folder is invalid.
    """
    family, source = _TEXTS[architecture], folder if weights else None
    named = {
        "vocab_size": tokenizer.size,
        "pad_token_id": tokenizer.pad_id,
        "bos_token_id": tokenizer.cls_id,
        "eos_token_id": tokenizer.eos_id,
    }
    if folder is not None and architecture == "clip_text_model" and is_open_clip(folder):
        config = _configured(_TEXTS, architecture, {**named, **open_clip_text_options(folder)}, None)
        model = _model(family, config, None)
        if weights:
            load_open_clip_text(model, folder)
    else:
        config = _configured(_TEXTS, architecture, {**named, **options}, folder)
        model = _model(family, config, source)
    resolved = architecture_options(config)
    backbone = (
        SiglipTextBackbone(family, model, resolved, tokenizer.pad_id)
        if architecture == "siglip_text_model"
        else TransformersTextBackbone(family, model, resolved)
    )
    if source is not None:
        backbone.projection = pretrained_projection(architecture, source, backbone.width)
        backbone.projected_pooling = PROJECTED_POOLING.get(architecture)
    return backbone


def _most_tokens(family: _Family, options: Mapping[str, Any]) -> int:
    """Maximum number of tokens of a text."""
    positions = int(options["max_position_embeddings"])
    if family.model in ("RobertaModel", "AltCLIPTextModel"):
        # Their positions start after the padding id.
        positions -= int(options["pad_token_id"]) + 1
    return positions


def pretrained_projection(architecture: TextArchitecture, folder: Path, width: int) -> Projection | None:
    """The projection of pooled text features of this width in a pretrained folder; None if it has none."""
    if architecture not in PROJECTED_POOLING:
        return None
    if architecture == "siglip_text_model":
        return Projection(torch.eye(width))
    if architecture == "clip_text_model" and is_open_clip(folder):
        stored = read_projection(folder, "text_projection")
        # open_clip stores the transpose.
        return None if stored is None else Projection(stored.weight.T)
    return read_projection(folder, "text_projection.weight")


def pretrained_width(architecture: TextArchitecture, folder: Path) -> int | None:
    """Width of a pretrained model's common space of images and texts; None if it has none."""
    if architecture == "siglip_text_model":
        stored = read_tensors(folder, prefixes=["text_model.head.weight"])
        return next((len(weight) for weight in stored.values()), None)
    projection = pretrained_projection(architecture, folder, 0)
    return None if projection is None else len(projection.weight)


@dataclass(frozen=True, slots=True)
class TrainedTexts:
    """Text settings of an image-text model: pooling of its projected feature, and its token limit."""

    pooling: Literal["cls", "eos"]
    max_tokens: int


def trained_texts(architecture: TextArchitecture, folder: Path) -> TrainedTexts | None:
    """Text settings of the image-text model in a folder; None for other models.

    Raises:
        RecipeError: The folder contains another architecture.
    """
    pooling, settings = PROJECTED_POOLING.get(architecture), folder / "config.json"
    if pooling is None:
        return None
    family = _TEXTS[architecture]
    if architecture == "clip_text_model" and is_open_clip(folder):
        return TrainedTexts(pooling, _most_tokens(family, open_clip_text_options(folder)))
    if not settings.is_file() or read_json(settings).get("model_type") == "bert":
        return None
    tokens = _most_tokens(family, architecture_options(_configured(_TEXTS, architecture, {}, folder)))
    tokenizer = folder / "tokenizer_config.json"
    named = read_json(tokenizer).get("model_max_length") if tokenizer.is_file() else None
    return TrainedTexts(pooling, tokens if named is None else min(tokens, int(named)))


class AstBackbone(_TransformersBackbone, AudioBackbone):
    """The Audio Spectrogram Transformer (Gong, Chung and Glass, 2021), which attends to padding.

    It pads every sound to full length itself; the caller's padding has no effect. Its pooled feature is the
    mean of its two class tokens; its local features are the patches, lowest bands first.
    """

    has_cls = True
    prefix = 2
    max_frames: int

    def __init__(self, family: _Family, model: nn.Module, options: dict[str, Any]) -> None:
        super().__init__(family, model, options)
        self.width = self.local_width = int(options["hidden_size"])
        self.heads = int(options["num_attention_heads"])
        self.mels = int(options["num_mel_bins"])
        self.max_frames = int(options["max_length"])

    def forward(self, values: Tensor, mask: Tensor) -> BackboneOutput:
        """Features of spectrograms (B, M, T) with the mask of their frames (B, T)."""
        missing = self.max_frames - mask.shape[1]
        mask = functional.pad(mask, (0, missing))
        values = torch.where(mask.unsqueeze(1), functional.pad(values, (0, missing)), _AST_PADDING)
        output, fork = self._run(input_values=values.transpose(1, 2))
        patches = output.last_hidden_state[:, self.prefix :]
        return BackboneOutput(patches, output.pooler_output, self._patch_mask(mask, patches.shape[1]), fork)

    def _patch_mask(self, mask: Tensor, patches: int) -> Tensor:
        """(B, K), True for patches that start in a real frame."""
        patch, stride = int(self.options["patch_size"]), int(self.options["time_stride"])
        columns = (self.max_frames - patch) // stride + 1
        begins = mask[:, : columns * stride : stride][:, :columns]
        return begins.repeat(1, patches // columns)


def build_ast(options: dict[str, Any], folder: Path | None, *, weights: bool) -> AstBackbone:
    """AST from options, or from a pretrained folder with or without its weights.

    Raises:
        RecipeError: An option or the folder is invalid.
    """
    architecture = "audio_spectrogram_transformer"
    config = _configured(_SOUNDS, architecture, options, folder)
    resolved = architecture_options(config)
    if min(int(resolved["max_length"]), int(resolved["num_mel_bins"])) < int(resolved["patch_size"]):
        raise RecipeError(
            "audio_spectrogram_transformer's patches are larger than its spectrogram: "
            "choose a smaller patch_size, or more num_mel_bins and max_length."
        )
    family = _SOUNDS[architecture]
    return AstBackbone(family, _model(family, config, folder if weights else None), resolved)


def is_open_clip(folder: Path) -> bool:
    """Whether a folder's weights have open_clip's names."""
    return "ln_final.weight" in tensor_names(folder)


def open_clip_text_options(folder: Path) -> dict[str, Any]:
    """Options of CLIPTextConfig for a folder's weights."""
    tensors = read_tensors(folder, prefixes=_TEXT_PREFIXES)
    vocabulary, width = tensors["token_embedding.weight"].shape
    layers = {match[1] for name in tensors if (match := _BLOCK.fullmatch(name))}
    return {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "num_hidden_layers": len(layers),
        "num_attention_heads": max(1, width // _CLIP_HEAD_WIDTH),
        "intermediate_size": tensors["transformer.resblocks.0.mlp.c_fc.weight"].shape[0],
        "max_position_embeddings": tensors["positional_embedding"].shape[0],
        "hidden_act": "quick_gelu" if _quick_gelu(folder) else "gelu",
    }


def load_open_clip_text(model: nn.Module, folder: Path) -> None:
    """Load a folder's weights into a CLIPTextModel.

    Raises:
        RecipeError: Weights are missing.
    """
    mapped = map_weights(read_tensors(folder, prefixes=_TEXT_PREFIXES), TEXT_NAMES)
    try:
        model.load_state_dict(mapped)
    except RuntimeError as error:
        raise RecipeError(f"The text weights in {folder} are not those of CLIP: {error}") from error


def map_weights(tensors: Mapping[str, Tensor], names: Mapping[str, str]) -> dict[str, Tensor]:
    """Rename weights of open_clip's transformer to those of CLIP's models; unknown names are kept."""
    mapped: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        mapped |= {names[name]: tensor} if name in names else _block(name, tensor)
    return mapped


def _block(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """Rename a weight of a block; the input projection becomes three."""
    match = _BLOCK.fullmatch(name)
    if match is None:
        return {name: tensor}
    layer, part, kind = match.groups()
    if part == "attn.in_proj":
        return {
            f"encoder.layers.{layer}.self_attn.{target}_proj.{kind}": piece
            for target, piece in zip("qkv", tensor.chunk(3), strict=True)
        }
    return {f"encoder.layers.{layer}.{_BLOCK_PARTS.get(part, part)}.{kind}": tensor}


def _quick_gelu(folder: Path) -> bool:
    """Whether to use QuickGELU, as OpenAI's weights do; files without a configuration count as theirs."""
    path = folder / "open_clip_config.json"
    if not path.is_file():
        return True
    return bool(read_json(path).get("model_cfg", {}).get("quick_gelu", False))
