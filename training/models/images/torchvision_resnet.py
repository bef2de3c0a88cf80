"""ResNet weights with torchvision's names (`layer1.0.conv1.weight`) for transformers' ResNetModel."""

import pickle
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from training.common.errors import RecipeError

_SUFFIXES = (".safetensors", ".pth", ".pt")
_BLOCK = re.compile(r"layer([1-4])\.(\d+)\.")
# The classifier; a counter that old checkpoints lack.
_NOT_NEEDED, _MAY_BE_MISSING = "fc.", "num_batches_tracked"
_SHOWN = 5
_NAMES = (
    (re.compile(r"embedder\.embedder\.convolution\.(.+)"), r"conv1.\1"),
    (re.compile(r"embedder\.embedder\.normalization\.(.+)"), r"bn1.\1"),
    (
        re.compile(r"encoder\.stages\.(\d+)\.layers\.(\d+)\.shortcut\.convolution\.(.+)"),
        r"layer<\1>.\2.downsample.0.\3",
    ),
    (
        re.compile(r"encoder\.stages\.(\d+)\.layers\.(\d+)\.shortcut\.normalization\.(.+)"),
        r"layer<\1>.\2.downsample.1.\3",
    ),
    (
        re.compile(r"encoder\.stages\.(\d+)\.layers\.(\d+)\.layer\.(\d+)\.convolution\.(.+)"),
        r"layer<\1>.\2.conv<\3>.\4",
    ),
    (
        re.compile(r"encoder\.stages\.(\d+)\.layers\.(\d+)\.layer\.(\d+)\.normalization\.(.+)"),
        r"layer<\1>.\2.bn<\3>.\4",
    ),
)


def is_weight_file(pretrained: str) -> bool:
    """Whether `pretrained` names a file of weights and not a folder or a model of the hub."""
    return pretrained.endswith(_SUFFIXES) and not Path(pretrained).expanduser().is_dir()


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors or .pth file, by name; nothing in the file is ever executed.

    Weights under `state_dict` or `model`, and names that begin with `module.`, are taken as well.

    Raises:
        RecipeError: The file is missing or damaged, or holds more than tensors.
    """
    if not path.is_file():
        raise RecipeError(f"There is no file {path}: give the file of a pretrained ResNet's weights.")
    try:
        if path.suffix == ".safetensors":
            content: Any = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise RecipeError(
            f"{path} is not a file of tensors alone, and no other is ever loaded: save the model's "
            "state_dict, as safetensors if you can."
        ) from error
    except Exception as error:
        # A damaged pickle makes torch raise whatever its bytes happen to lead to.
        raise RecipeError(f"{path} is damaged: fetch it again. ({error})") from error
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping):
        raise RecipeError(f"{path} holds no weights by name: save the model's state_dict.")
    return {str(name).removeprefix("module."): value for name, value in content.items() if _is_tensor(value)}


def resnet_options(weights: Mapping[str, Tensor], path: Path) -> dict[str, Any]:
    """The options of ResNetConfig that the weights of a ResNet-18, 34, 50, 101, 152 or the like have.

    Raises:
        RecipeError: They are not those of a ResNet for images in colour.
    """
    blocks = {match.group(1, 2) for name in weights if (match := _BLOCK.match(name))}
    depths = [sum(stage == str(number) for stage, _ in blocks) for number in (1, 2, 3, 4)]
    last = "conv3" if "layer1.0.conv3.weight" in weights else "conv2"
    names = ("conv1.weight", *(f"layer{number}.0.{last}.weight" for number in (1, 2, 3, 4)))
    convolutions = [weights[name] for name in names if name in weights and weights[name].dim() == 4]
    if len(convolutions) != len(names) or convolutions[0].shape[1] != 3:
        raise RecipeError(
            f"{path} does not hold a ResNet for images in colour with torchvision's names (conv1.weight, "
            f"layer1.0.conv1.weight): its first are {_listed(weights)}."
        )
    return {
        "embedding_size": convolutions[0].shape[0],
        "hidden_sizes": [weight.shape[0] for weight in convolutions[1:]],
        "depths": depths,
        "layer_type": "bottleneck" if last == "conv3" else "basic",
    }


def load_torchvision(model: nn.Module, weights: Mapping[str, Tensor], path: Path) -> nn.Module:
    """The same ResNetModel with weights in torchvision's naming, in float32; the classifier is left out.

    Raises:
        RecipeError: Weights are missing, are too many, or have other shapes.
    """
    expected = {name: torchvision_name(name) for name in model.state_dict()}
    missing = [n for n in expected.values() if n not in weights and not n.endswith(_MAY_BE_MISSING)]
    known = set(expected.values())
    unexpected = [name for name in weights if name not in known and not name.startswith(_NOT_NEEDED)]
    if missing or unexpected:
        found = [f"it lacks {_listed(missing)}"] if missing else []
        found += [f"it has {_listed(unexpected)} too many"] if unexpected else []
        raise RecipeError(f"{path} is not a whole torchvision ResNet: {' and '.join(found)}.")
    try:
        model.load_state_dict(
            {
                name: weights[theirs].float() if weights[theirs].is_floating_point() else weights[theirs]
                for name, theirs in expected.items()
                if theirs in weights
            },
            strict=False,
        )
    except RuntimeError as error:
        raise RecipeError(
            f"{path} is a ResNet of another kind, such as a wide or a grouped one: {error}"
        ) from error
    return model


def torchvision_name(name: str) -> str:
    """The name that torchvision gives a weight of transformers' ResNetModel."""
    for pattern, replacement in _NAMES:
        if match := pattern.fullmatch(name):
            # Stages and convolutions are counted from 1 there.
            return re.sub(r"<(\d+)>", lambda found: str(int(found[1]) + 1), match.expand(replacement))
    return name


def _is_tensor(value: object) -> bool:
    return isinstance(value, Tensor)


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return f"{', '.join(listed[:_SHOWN]) or 'nothing'}{more}"
