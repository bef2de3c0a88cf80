from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from tests.training.models.tiny import tiny_pixels
from training.common.errors import RecipeError
from training.models.images.clip_resnet import ClipResNet, ClipResNetOptions, build_clip_resnet

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
    pooled, _ = functional.multi_head_attention_forward(
        tokens[:1],
        tokens,
        tokens,
        width,
        heads,
        None,
        torch.cat(biases),
        None,
        None,
        False,
        0.0,
        torch.eye(width),
        torch.zeros(width),
        use_separate_proj_weight=True,
        q_proj_weight=state["attnpool.q_proj.weight"],
        k_proj_weight=state["attnpool.k_proj.weight"],
        v_proj_weight=state["attnpool.v_proj.weight"],
        need_weights=False,
    )
    return pooled[0]


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
