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
# The classifier, and a counter that is missing in old checkpoints.
_NOT_NEEDED, _MAY_BE_MISSING = "fc.", "num_batches_tracked"
_SHOWN = 5
# Patterns of transformers' names, and torchvision's names, whose numbers in <> are greater by one.
_LAYER = r"encoder\.stages\.(\d+)\.layers\.(\d+)\."
_NAMES = (
    (r"embedder\.embedder\.convolution\.(.+)", r"conv1.\1"),
    (r"embedder\.embedder\.normalization\.(.+)", r"bn1.\1"),
    (_LAYER + r"shortcut\.convolution\.(.+)", r"layer<\1>.\2.downsample.0.\3"),
    (_LAYER + r"shortcut\.normalization\.(.+)", r"layer<\1>.\2.downsample.1.\3"),
    (_LAYER + r"layer\.(\d+)\.convolution\.(.+)", r"layer<\1>.\2.conv<\3>.\4"),
    (_LAYER + r"layer\.(\d+)\.normalization\.(.+)", r"layer<\1>.\2.bn<\3>.\4"),
)


def is_weight_file(pretrained: str) -> bool:
    """Whether `pretrained` is a weight file, not a folder or a model of the hub."""
    return pretrained.endswith(_SUFFIXES) and not Path(pretrained).expanduser().is_dir()


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors or .pth file, by name; nothing in the file is ever executed.

    Weights may be nested under `state_dict` or `model`, and have the prefix `module.`.

    Raises:
        RecipeError: The file is missing or damaged, or contains more than tensors.
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
        # Damaged pickles can raise any exception.
        raise RecipeError(f"{path} is damaged: fetch it again. ({error})") from error
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping):
        raise RecipeError(f"{path} holds no weights by name: save the model's state_dict.")
    return {
        str(name).removeprefix("module."): value
        for name, value in content.items()
        if isinstance(value, Tensor)
    }


def resnet_options(weights: Mapping[str, Tensor], path: Path) -> dict[str, Any]:
    """Options of ResNetConfig for the weights of a ResNet-18, 34, 50, 101, 152 or similar.

    Raises:
        RecipeError: They aren't those of a ResNet for colour images.
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


def load_torchvision(model: nn.Module, weights: Mapping[str, Tensor], path: Path) -> None:
    """Load weights with torchvision's names into a ResNetModel, in float32, without the classifier.

    Raises:
        RecipeError: Weights are missing, unknown, or have other shapes.
    """
    expected = {name: torchvision_name(name) for name in model.state_dict()}
    missing = [n for n in expected.values() if n not in weights and not n.endswith(_MAY_BE_MISSING)]
    expected_names = set(expected.values())
    unexpected = [name for name in weights if name not in expected_names and not name.startswith(_NOT_NEEDED)]
    if missing or unexpected:
        wrong = [f"it lacks {_listed(missing)}"] if missing else []
        wrong += [f"it has {_listed(unexpected)} too many"] if unexpected else []
        raise RecipeError(f"{path} is not a whole torchvision ResNet: {' and '.join(wrong)}.")
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


def torchvision_name(name: str) -> str:
    """The torchvision name of a weight of transformers' ResNetModel."""
    for pattern, replacement in _NAMES:
        if match := re.fullmatch(pattern, name):
            return re.sub(r"<(\d+)>", lambda number: str(int(number[1]) + 1), match.expand(replacement))
    return name


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return f"{', '.join(listed[:_SHOWN]) or 'nothing'}{more}"
