"""Everything that a run needs to continue as if it had never stopped, in one file without code."""

import hashlib
import json
import random
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from training.common.atomic import atomic_file
from training.data.pairs import Position
from training.trainer.run_state.errors import TrainingError

_FORMAT: Final = 2
# What the reader of archives and that of tensors raise on bytes that are none, besides OSError.
_DAMAGE: Final = (
    UnpicklingError,
    zipfile.BadZipFile,
    zlib.error,
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True)
class Checkpoint:
    """A run between two steps.

    Attributes:
        position: Steps done and the next batch.
        task: Weights of model and objective.
        optimizer: State of the optimizer; the learning rate follows from the step.
        random: State of every global random number generator, of each process.
        metrics: Figures of the best validation so far; empty before the first.
        recipe: The resolved recipe, YAML.
        data: Fingerprint of the training records in their order.
    """

    position: Position
    task: dict[str, Tensor]
    optimizer: dict[str, Any]
    random: list[dict[str, Any]]
    metrics: dict[str, float]
    recipe: str
    data: str


def fingerprint(values: Iterable[object], rows: Iterable[Tensor] = ()) -> str:
    """Return a SHA-256 of what a run learns from, in order: values of JSON or dataclasses, and tensors."""
    digest = hashlib.sha256()
    for value in values:
        digest.update(json.dumps(value, default=asdict).encode() + b"\n")
    for tensor in rows:
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint next to `path`, and replace `path` by it once it is complete.

    Raises:
        TrainingError: The file cannot be written, for instance because the disk is full.
    """
    content = {
        "format": _FORMAT,
        "position": asdict(checkpoint.position),
        "task": checkpoint.task,
        "optimizer": checkpoint.optimizer,
        "random": checkpoint.random,
        "metrics": checkpoint.metrics,
        "recipe": checkpoint.recipe,
        "data": checkpoint.data,
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file:
            torch.save(content, file)
    except OSError as error:
        raise TrainingError(f"The checkpoint {path} cannot be written: {error.strerror or error}.") from error
    except RuntimeError as error:
        raise TrainingError(f"The checkpoint {path} cannot be written: {error}.") from error


def load_checkpoint(path: Path) -> Checkpoint:
    """Map what `save_checkpoint` wrote, onto the CPU; no code in the file is ever run.

    Only tensors that are used take memory.

    Raises:
        TrainingError: The file is missing, damaged or of another release.
    """
    try:
        content = _content(path)
    except OSError as error:
        raise TrainingError(f"The checkpoint {path} cannot be read: {error.strerror or error}.") from error
    except _DAMAGE as error:
        raise TrainingError(
            f"The checkpoint {path} cannot be read, it is damaged or another file: start the run anew."
        ) from error
    other = TrainingError(f"{path} is not a checkpoint of this release: start the run anew.")
    if not isinstance(content, dict) or content.pop("format", None) != _FORMAT:
        raise other
    try:
        return Checkpoint(**{**content, "position": Position(**content["position"])})
    except (KeyError, TypeError):
        raise other from None


def _content(path: Path) -> Any:
    """What a file of `torch.save` holds, if its checksums are right, which torch does not look at."""
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise zipfile.BadZipFile(damaged)
    return torch.load(path, map_location="cpu", weights_only=True, mmap=True)


def load_weights(module: nn.Module, checkpoint: Checkpoint, path: Path) -> None:
    """Give a module the weights of a checkpoint.

    Raises:
        TrainingError: They are those of another module.
    """
    try:
        module.load_state_dict(checkpoint.task)
    except RuntimeError as error:
        raise TrainingError(
            f"The weights in {path} are not those of this recipe's model: start the run anew."
        ) from error


def random_state(device: torch.device) -> dict[str, Any]:
    """State of the global generators of Python, NumPy, torch and, where the device is a GPU, that GPU."""
    name, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    version, internal, gauss_next = random.getstate()
    return {
        "python": [version, list(internal), gauss_next],
        "numpy": [name, torch.from_numpy(np.asarray(keys, dtype=np.int64)), position, has_gauss, gauss],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def restore_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Set the global generators to what `random_state` gave; the GPU's only when both runs have one."""
    version, internal, gauss_next = state["python"]
    random.setstate((version, tuple(internal), gauss_next))
    name, keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, gauss))
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and state["cuda"] is not None:
        torch.cuda.set_rng_state(state["cuda"], device)


def seed_everything(seed: int, rank: int = 0) -> None:
    """Start the global generators of Python, NumPy, torch and CUDA from one number, another for each rank."""
    if rank:
        seed = int(np.random.SeedSequence([seed, rank]).generate_state(1, np.uint64)[0]) >> 1
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
