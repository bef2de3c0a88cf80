from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from training.common.errors import RecipeError
from training.models.config import ImageTowerConfig
from training.models.image_towers import ImageTower, build_image_tower
from training.models.torchvision_resnet import (
    is_weight_file,
    read_weights,
)

Weights = dict[str, Tensor]
STEM = "model.embedder.embedder.convolution.weight"
KINDS = {
    18: ("basic", [2, 2, 2, 2]),
    34: ("basic", [3, 4, 6, 3]),
    50: ("bottleneck", [3, 4, 6, 3]),
    101: ("bottleneck", [3, 4, 23, 3]),
    152: ("bottleneck", [3, 8, 36, 3]),
}


def torchvision_weights(depth: int, width: int = 4) -> Weights:
    """Random weights with the names and shapes of torchvision's ResNets, made from its own description."""
    kind, blocks = KINDS[depth]
    generator = torch.Generator().manual_seed(depth)
    weights: Weights = {}

    def convolution(name: str, out: int, into: int, size: int) -> None:
        scale = (into * size * size) ** -0.5
        weights[f"{name}.weight"] = scale * torch.randn(out, into, size, size, generator=generator)

    def norm(name: str, channels: int) -> None:
        for part in ("weight", "running_var"):
            weights[f"{name}.{part}"] = torch.rand(channels, generator=generator) + 0.5
        for part in ("bias", "running_mean"):
            weights[f"{name}.{part}"] = 0.2 * torch.randn(channels, generator=generator)
        weights[f"{name}.num_batches_tracked"] = torch.tensor(7)

    convolution("conv1", width, 3, 7)
    norm("bn1", width)
    into, expansion = width, 4 if kind == "bottleneck" else 1
    for stage, count in enumerate(blocks):
        inner = width * 2**stage
        for block in range(count):
            name = f"layer{stage + 1}.{block}"
            sizes = [(inner, into, 3), (inner, inner, 3)]
            if kind == "bottleneck":
                sizes = [(inner, into, 1), (inner, inner, 3), (4 * inner, inner, 1)]
            for number, size in enumerate(sizes, 1):
                convolution(f"{name}.conv{number}", *size)
                norm(f"{name}.bn{number}", size[0])
            if block == 0 and (stage > 0 or into != expansion * inner):
                convolution(f"{name}.downsample.0", expansion * inner, into, 1)
                norm(f"{name}.downsample.1", expansion * inner)
            into = expansion * inner
    weights["fc.weight"], weights["fc.bias"] = torch.randn(10, into), torch.zeros(10)
    return weights


def torchvision_forward(weights: Weights, pixels: Tensor) -> Tensor:
    """The last map of torchvision's ResNet (v1.5: the 3 x 3 convolution of a bottleneck has the stride)."""

    def norm(name: str, value: Tensor) -> Tensor:
        mean, variance = weights[f"{name}.running_mean"], weights[f"{name}.running_var"]
        weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
        return functional.batch_norm(value, mean, variance, weight, bias)

    def block(name: str, value: Tensor, stride: int) -> Tensor:
        hidden = value
        bottleneck = f"{name}.conv3.weight" in weights
        for number in (1, 2, 3) if bottleneck else (1, 2):
            weight = weights[f"{name}.conv{number}.weight"]
            here = stride if number == (2 if bottleneck else 1) else 1
            hidden = functional.conv2d(hidden, weight, stride=here, padding=weight.shape[-1] // 2)
            hidden = norm(f"{name}.bn{number}", hidden)
            if number < (3 if bottleneck else 2):
                hidden = functional.relu(hidden)
        if f"{name}.downsample.0.weight" in weights:
            value = functional.conv2d(value, weights[f"{name}.downsample.0.weight"], stride=stride)
            value = norm(f"{name}.downsample.1", value)
        return functional.relu(hidden + value)

    hidden = functional.conv2d(pixels, weights["conv1.weight"], stride=2, padding=3)
    hidden = functional.max_pool2d(functional.relu(norm("bn1", hidden)), 3, stride=2, padding=1)
    for stage in (1, 2, 3, 4):
        blocks = {name.rsplit(".", 2)[0] for name in weights if name.startswith(f"layer{stage}.")}
        for number in range(sum(name.count(".") == 1 for name in blocks)):
            stride = 2 if stage > 1 and number == 0 else 1
            hidden = block(f"layer{stage}.{number}", hidden, stride)
    return hidden


def tower(path: Path, *, load_pretrained: bool = True) -> ImageTower:
    config = ImageTowerConfig(architecture="resnet", pretrained=str(path))
    return build_image_tower(config, load_pretrained=load_pretrained).eval()


@pytest.mark.parametrize("depth", sorted(KINDS))
def test_the_forward_pass_is_torchvisions(depth: int, tmp_path: Path) -> None:
    weights = torchvision_weights(depth)
    save_file(weights, tmp_path / "resnet.safetensors")
    pixels = torch.randn(2, 3, 75, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = torchvision_forward(weights, pixels)
        output = tower(tmp_path / "resnet.safetensors")(pixels)
    scale = expected.abs().max()
    assert expected.std() > 1e-3
    torch.testing.assert_close(
        output.local / scale, expected.flatten(2).transpose(1, 2) / scale, atol=1e-5, rtol=0
    )
    torch.testing.assert_close(output.pooled / scale, expected.mean(dim=(2, 3)) / scale, atol=1e-5, rtol=0)


def wrapped(weights: Weights) -> object:
    return {"epoch": 3, "state_dict": {f"module.{name}": value for name, value in weights.items()}}


def halves(weights: Weights) -> object:
    return {name: value.half() if value.is_floating_point() else value for name, value in weights.items()}


def old(weights: Weights) -> object:
    return {name: value for name, value in weights.items() if "num_batches" not in name}


@pytest.mark.parametrize("form", [dict, wrapped, halves, old])
def test_reads_the_usual_forms_of_a_pth_file(form: Callable[[Weights], object], tmp_path: Path) -> None:
    weights = torchvision_weights(18)
    torch.save(form(weights), tmp_path / "resnet18.pth")
    stem = tower(tmp_path / "resnet18.pth").backbone.get_parameter(STEM)
    assert stem.dtype == torch.float32
    tolerance = 1e-3 if form is halves else 0.0
    torch.testing.assert_close(stem, weights["conv1.weight"], atol=tolerance, rtol=0)


def test_without_loading_only_the_architecture_is_taken(tmp_path: Path) -> None:
    weights = torchvision_weights(50)
    save_file(weights, tmp_path / "r.safetensors")
    empty = tower(tmp_path / "r.safetensors", load_pretrained=False)
    assert empty.config.pretrained is None
    assert empty.config.options["depths"] == [3, 4, 6, 3]
    stem = empty.backbone.get_parameter(STEM)
    assert not torch.equal(stem, weights["conv1.weight"])
    again = build_image_tower(empty.config, load_pretrained=True)
    assert again.config == empty.config


class Trap:
    """Would write a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return (Path.touch, (self.path,))


def test_code_in_a_file_is_never_run(tmp_path: Path) -> None:
    torch.save({"conv1.weight": Trap(tmp_path / "sprung")}, tmp_path / "evil.pth")
    with pytest.raises(RecipeError, match="is not a file of tensors alone"):
        tower(tmp_path / "evil.pth")
    assert not (tmp_path / "sprung").exists()


def without(weights: Weights, *names: str) -> Weights:
    return {name: value for name, value in weights.items() if name not in names}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: without(w, "layer2.0.bn1.bias"), "it lacks layer2.0.bn1.bias"),
        (lambda w: without(w, "bn1.bias") | {"extra": torch.zeros(1)}, "lacks bn1.bias and it has extra too"),
        (lambda w: w | {f"extra{n}": torch.zeros(1) for n in range(7)}, "extra4 and 2 more too many"),
        (lambda w: without(w, "conv1.weight"), "does not hold a ResNet"),
        (lambda w: w | {"layer3.0.conv2.weight": torch.tensor(1.0)}, "does not hold a ResNet"),
        (lambda w: w | {"conv1.weight": torch.zeros(4, 1, 7, 7)}, "not hold a ResNet for images in colour"),
        (lambda w: without(w, *w), "its first are nothing"),
        (lambda w: w | {"layer1.0.conv1.weight": torch.zeros(8, 4, 3, 3)}, "ResNet of another kind"),
    ],
)
def test_what_does_not_fit_is_named(
    change: Callable[[Weights], Weights], message: str, tmp_path: Path
) -> None:
    torch.save(change(torchvision_weights(18)), tmp_path / "r.pth")
    with pytest.raises(RecipeError, match=message):
        tower(tmp_path / "r.pth")


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    assert is_weight_file("~/resnet50.pth")
    assert not is_weight_file("microsoft/resnet-50")
    with pytest.raises(RecipeError, match="There is no file"):
        tower(tmp_path / "none.pth")
    for name in ("bad.pth", "bad.safetensors"):
        (tmp_path / name).write_bytes(b"not weights at all")
        with pytest.raises(RecipeError, match="fetch it again" if name.endswith("s") else "tensors alone"):
            tower(tmp_path / name)
    torch.save([torch.zeros(2)], tmp_path / "list.pth")
    with pytest.raises(RecipeError, match="no weights by name"):
        read_weights(tmp_path / "list.pth")
