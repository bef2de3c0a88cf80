from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import normalize

from tests.training.models.tiny import IMAGE_OPTIONS, SIZE, tiny_pixels
from training.common.errors import RecipeError
from training.models.config import ImageArchitecture, ImageTowerConfig
from training.models.image_towers import (
    ClipResNet,
    ClipResNetOptions,
    ImageTower,
    build_clip_resnet,
    build_image_tower,
    check_image_size,
)

ARCHITECTURES = sorted(IMAGE_OPTIONS)
TOKEN_ARCHITECTURES = ("clip_vision_model", "dinov2", "dinov2_with_registers", "dinov3_vit", "vit")


def build(architecture: ImageArchitecture, **settings: object) -> ImageTower:
    torch.manual_seed(0)
    content = {"architecture": architecture, "options": IMAGE_OPTIONS[architecture], **settings}
    return build_image_tower(ImageTowerConfig.model_validate(content), load_pretrained=True)


def take_statistics(tower: ImageTower, pixels: Tensor) -> None:
    """Without statistics of its own the signal of a random conv net vanishes from layer to layer."""
    for module in tower.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0
    tower.train()(pixels)
    tower.eval()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_returns_pooled_and_local_features(architecture: ImageArchitecture) -> None:
    tower = build(architecture).eval()
    output = tower(tiny_pixels(2))
    regions = 4 if "image_size" in IMAGE_OPTIONS[architecture] and architecture != "clip_resnet" else 1
    assert output.pooled.shape == (2, tower.width)
    assert output.local.shape == (2, regions, tower.local_width)
    assert output.local_mask.all()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_image_alone_equals_the_same_image_in_a_batch(architecture: ImageArchitecture) -> None:
    tower = build(architecture)
    pixels = tiny_pixels(3)
    take_statistics(tower, tiny_pixels(32, seed=1))
    with torch.no_grad():
        together = normalize(tower(pixels).pooled)
        alone = torch.cat([normalize(tower(pixel[None]).pooled) for pixel in pixels])
        backwards = normalize(tower(pixels.flip(0)).pooled).flip(0)
    assert together.std(dim=0).max() > 1e-4
    torch.testing.assert_close(alone, together, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(backwards, together, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("architecture", TOKEN_ARCHITECTURES)
def test_class_token_is_not_among_the_regions(architecture: ImageArchitecture) -> None:
    tower = build(architecture, pooling="cls").eval()
    output = tower(tiny_pixels(1))
    assert not torch.isclose(output.local, output.pooled[:, None], atol=1e-6).all(dim=-1).any()
    torch.testing.assert_close(build(architecture).eval()(tiny_pixels(1)).pooled, output.pooled)
    assert output.local.shape[1] == 4


@pytest.mark.parametrize("architecture", sorted(set(IMAGE_OPTIONS) - set(TOKEN_ARCHITECTURES)))
def test_refuses_the_class_token_where_there_is_none(architecture: ImageArchitecture) -> None:
    with pytest.raises(RecipeError, match="no class token"):
        build(architecture, pooling="cls")


@pytest.mark.parametrize("architecture", ["dinov2", "dinov2_with_registers", "dinov3_vit"])
def test_takes_any_whole_number_of_patches(architecture: ImageArchitecture) -> None:
    tower = build(architecture).eval()
    assert tower(torch.rand(1, 3, 48, 48)).local.shape[1] == 9
    check_image_size(tower.backbone, 48)
    with pytest.raises(RecipeError, match=r"a multiple of 16 pixels, not 56: .* to 64"):
        check_image_size(tower.backbone, 56)


def test_regions_run_row_by_row() -> None:
    tower = build("resnet", options={**IMAGE_OPTIONS["resnet"], "depths": [1, 1, 1, 1]}).eval()
    pixels = torch.zeros(1, 3, 4 * SIZE, 2 * SIZE)
    changed = pixels.clone()
    changed[:, :, -8:, -8:] = 5.0
    difference = (tower(changed).local - tower(pixels).local).abs().sum(dim=-1)[0]
    assert difference.shape == (8,)
    assert difference.argmax() == 7


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_pools_over_regions(pooling: str) -> None:
    output = build("vit", pooling=pooling).eval()(tiny_pixels(2))
    expected = output.local.mean(1) if pooling == "mean" else output.local.amax(1)
    torch.testing.assert_close(output.pooled, expected)


@pytest.mark.parametrize(
    "architecture", ["clip_resnet", "convnext", "efficientnet", "mobilenet_v2", "resnet"]
)
def test_conv_nets_keep_their_weights_channels_last(architecture: ImageArchitecture) -> None:
    kernels = [p for p in build(architecture).parameters() if p.dim() == 4 and min(p.shape[:2]) > 1]
    assert all(kernel.is_contiguous(memory_format=torch.channels_last) for kernel in kernels)


@pytest.mark.parametrize("architecture", ["resnet", "clip_resnet"])
def test_names_an_unknown_option(architecture: ImageArchitecture) -> None:
    with pytest.raises(RecipeError, match="depht"):
        build(architecture, options={"depht": 3})


OPTIONS = {"layers": [1, 2, 1, 1], "width": 8, "heads": 4, "image_size": 32}
EPS = 1e-5


def random_network() -> ClipResNet:
    torch.manual_seed(0)
    model = build_clip_resnet(OPTIONS, None, weights=True).eval()
    for name, value in model.state_dict().items():
        if "running_var" in name:
            value.uniform_(0.5, 2.0)
        elif "running_mean" in name or "bias" in name:
            value.normal_(std=0.1)
    return model


def norm(x: Tensor, state: dict[str, Tensor], name: str) -> Tensor:
    mean, variance = state[f"{name}.running_mean"], state[f"{name}.running_var"]
    scale = state[f"{name}.weight"] / (variance + EPS).sqrt()
    return (x - mean[:, None, None]) * scale[:, None, None] + state[f"{name}.bias"][:, None, None]


def reference(state: dict[str, Tensor], x: Tensor, heads: int) -> Tensor:
    """The network by its published names, attention pooling by PyTorch's function."""
    for index, stride in ((1, 2), (2, 1), (3, 1)):
        x = functional.conv2d(x, state[f"conv{index}.weight"], stride=stride, padding=1)
        x = norm(x, state, f"bn{index}").relu()
    x = functional.avg_pool2d(x, 2)
    blocks = sorted({".".join(name.split(".")[:2]) for name in state if name.startswith("layer")})
    for block in blocks:
        stride = 2 if block.endswith(".0") and not block.startswith("layer1") else 1
        hidden = norm(functional.conv2d(x, state[f"{block}.conv1.weight"]), state, f"{block}.bn1").relu()
        hidden = functional.conv2d(hidden, state[f"{block}.conv2.weight"], padding=1)
        hidden = functional.avg_pool2d(norm(hidden, state, f"{block}.bn2").relu(), stride)
        hidden = norm(functional.conv2d(hidden, state[f"{block}.conv3.weight"]), state, f"{block}.bn3")
        if f"{block}.downsample.0.weight" in state:
            x = functional.conv2d(functional.avg_pool2d(x, stride), state[f"{block}.downsample.0.weight"])
            x = norm(x, state, f"{block}.downsample.1")
        x = (x + hidden).relu()
    tokens = x.flatten(2).permute(2, 0, 1)
    tokens = torch.cat([tokens.mean(0, keepdim=True), tokens])
    tokens = tokens + state["attnpool.positional_embedding"][:, None]
    width = tokens.shape[-1]
    biases = [state[f"attnpool.{part}_proj.bias"] for part in "qkv"]
    attention = nn.MultiheadAttention(width, heads)
    weights = [state[f"attnpool.{part}_proj.weight"] for part in "qkv"]
    attention.in_proj_weight.data, attention.in_proj_bias.data = torch.cat(weights), torch.cat(biases)
    attention.out_proj.weight.data, attention.out_proj.bias.data = torch.eye(width), torch.zeros(width)
    pooled: Tensor = attention(tokens[:1], tokens, tokens)[0][0]
    return pooled


def test_equals_a_slow_reference() -> None:
    model = random_network()
    with torch.no_grad():
        expected = reference(model.state_dict(), tiny_pixels(), heads=4)
        torch.testing.assert_close(model(tiny_pixels()).pooled, expected, atol=1e-4, rtol=1e-4)


def test_default_is_rn50() -> None:
    with torch.device("meta"):
        model = ClipResNet(ClipResNetOptions())
    # CLIP's RN50 has 38,316,896 parameters for images; 2048 x 1024 + 1024 of them are the projection.
    assert sum(parameter.numel() for parameter in model.parameters()) == 38_316_896 - 2048 * 1024 - 1024
    assert (model.width, len(model.layers())) == (2048, 16)


def write_open_clip(folder: Path, options: dict[str, object]) -> tuple[ClipResNet, Tensor, Tensor]:
    torch.manual_seed(1)
    model = build_clip_resnet(options, None, weights=True).eval()
    weight, bias = torch.randn(6, model.width), torch.randn(6)
    tensors = {f"visual.{name}": value.contiguous() for name, value in model.state_dict().items()}
    tensors |= {"visual.attnpool.c_proj.weight": weight, "visual.attnpool.c_proj.bias": bias}
    tensors |= {"logit_scale": torch.tensor(4.6), "ln_final.weight": torch.ones(8)}
    half = {name: value.half() if value.is_floating_point() else value for name, value in tensors.items()}
    save_file(half, folder / "open_clip_model.safetensors")
    return model, weight, bias


def test_loads_a_file_in_open_clips_naming(tmp_path: Path) -> None:
    options: dict[str, object] = {**OPTIONS, "width": 16, "heads": 8, "image_size": 64}
    model, weight, bias = write_open_clip(tmp_path, options)
    loaded = build_clip_resnet({}, tmp_path, weights=True).eval()
    assert loaded.options == options
    assert {value.dtype for value in loaded.parameters()} == {torch.float32}
    pixels = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(loaded(pixels).pooled, model(pixels).pooled, atol=2e-2, rtol=2e-2)
    assert loaded.projection is not None
    assert loaded.projection.bias is not None
    torch.testing.assert_close(loaded.projection.weight, weight.half().float())
    torch.testing.assert_close(loaded.projection.bias, bias.half().float())


def test_names_a_folder_without_a_clip_resnet(tmp_path: Path) -> None:
    save_file({"visual.conv1.weight": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(RecipeError, match=r"no visual\.attnpool"):
        build_clip_resnet({}, tmp_path, weights=True)
