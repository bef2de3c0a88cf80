from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
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


class Block(nn.Module):
    """A residual block with torchvision's names (v1.5: the stride of a bottleneck is in its 3 x 3)."""

    def __init__(self, into: int, inner: int, out: int, stride: int, kind: str) -> None:
        super().__init__()
        kernels = (1, 3, 1) if kind == "bottleneck" else (3, 3)
        widths = [into, *[inner] * (len(kernels) - 1), out]
        self.parts = len(kernels)
        for n, kernel in enumerate(kernels, 1):
            step = stride if n == self.parts - 1 else 1
            convolution = nn.Conv2d(widths[n - 1], widths[n], kernel, step, kernel // 2, bias=False)
            self.add_module(f"conv{n}", convolution)
            self.add_module(f"bn{n}", nn.BatchNorm2d(widths[n]))
        if stride > 1 or into != out:
            self.downsample = nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, value: Tensor) -> Tensor:
        hidden = value
        for n in range(1, self.parts + 1):
            hidden = self.get_submodule(f"bn{n}")(self.get_submodule(f"conv{n}")(hidden))
            hidden = functional.relu(hidden) if n < self.parts else hidden
        return functional.relu(hidden + (self.downsample(value) if hasattr(self, "downsample") else value))


class TorchvisionResNet(nn.Module):
    """A ResNet with random weights under torchvision's names; returns its last map."""

    def __init__(self, depth: int, width: int = 4) -> None:
        super().__init__()
        kind, blocks = KINDS[depth]
        self.conv1, self.bn1 = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        into = width
        for stage, count in enumerate(blocks):
            inner = width * 2**stage
            out = 4 * inner if kind == "bottleneck" else inner
            strides = [2 if stage else 1, *[1] * (count - 1)]
            layers = [Block(out if n else into, inner, out, stride, kind) for n, stride in enumerate(strides)]
            self.add_module(f"layer{stage + 1}", nn.Sequential(*layers))
            into = out
        self.fc = nn.Linear(into, 10)
        for name, value in self.state_dict().items():
            if name.endswith(("running_mean", "bias")):
                value.normal_(std=0.2)
            elif "bn" in name or "downsample.1" in name:
                value.fill_(7) if name.endswith("tracked") else value.uniform_(0.5, 1.5)

    def forward(self, pixels: Tensor) -> Tensor:
        hidden = functional.relu(self.bn1(self.conv1(pixels)))
        hidden = functional.max_pool2d(hidden, 3, stride=2, padding=1)
        for stage in (1, 2, 3, 4):
            hidden = self.get_submodule(f"layer{stage}")(hidden)
        return hidden


def torchvision_weights(depth: int) -> Weights:
    return dict(TorchvisionResNet(depth).state_dict())


def tower(path: Path, *, load_pretrained: bool = True) -> ImageTower:
    config = ImageTowerConfig(architecture="resnet", pretrained=str(path))
    return build_image_tower(config, load_pretrained=load_pretrained).eval()


@pytest.mark.parametrize("depth", sorted(KINDS))
def test_the_forward_pass_is_torchvisions(depth: int, tmp_path: Path) -> None:
    reference = TorchvisionResNet(depth).eval()
    save_file(reference.state_dict(), tmp_path / "resnet.safetensors")
    pixels = torch.randn(2, 3, 75, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = reference(pixels)
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
