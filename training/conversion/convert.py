"""A published encoder becomes a bundle that gives the same vectors."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from training.common.errors import BundleError, RecipeError
from training.conversion.open_clip.config import CONFIG_FILE
from training.conversion.open_clip.read import read_open_clip
from training.conversion.open_clip.reference import OpenClipReference
from training.conversion.parity import Parity, check_parity
from training.conversion.published import Published, read_published
from training.conversion.reference import Reference
from training.models.bundle import BundleInfo
from training.models.bundle_writer import save_bundle
from training.models.encoder import Encoder
from training.models.logits import PretrainedLogits
from training.models.pretrained.folder import local_folder
from training.recipes.library import shipped
from training.recipes.load import dump_recipe, parse_recipe

_RECIPE: Final = "fine-tuning"
_LONGEST_NAME: Final = 100
# Raised by transformers and PyTorch where settings of a folder do not fit each other.
_UNREADABLE: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True)
class Conversion:
    """A bundle and the proof that it is the published encoder.

    Attributes:
        bundle: As written.
        encoder: The bundle's, on the CPU.
        parity: Of its vectors and the published encoder's.
    """

    bundle: BundleInfo
    encoder: Encoder
    parity: Parity


def convert(source: str, out: Path, *, name: str, size: int | None = None) -> Conversion:
    """Write a published encoder as a bundle.

    Args:
        source: Its folder, or its name on the hub.
        out: Folder of the bundle.
        name: Of the bundle.
        size: Side of images in pixels in place of the encoder's own; None: its own.

    Raises:
        RecipeError: There is no such encoder, or it cannot be followed.
        BundleError: The name cannot be one, the folder is in use or cannot be written, or the bundle would
            give other vectors than the published encoder.
    """
    if not _is_name(name):
        raise BundleError(
            f"A bundle cannot have the name {name!r}: give one by --name that begins with a letter or a "
            f"digit, has no slash and is at most {_LONGEST_NAME} characters long."
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BundleError(f"{out} is not empty: give a new folder.")
    folder = local_folder(source)
    try:
        published, parity = _read(folder, size)
    except _UNREADABLE as error:
        raise RecipeError(
            f"{folder} cannot be read as an encoder: {type(error).__name__}: {error}"
        ) from error
    bundle = save_bundle(
        out,
        name=name,
        model=published.model,
        preprocessing=published.preprocessing,
        metrics=parity.figures(),
        recipe_yaml=_recipe(published, name),
    )
    encoder = Encoder(published.model.eval(), published.preprocessing, info=bundle)
    return Conversion(bundle, encoder, parity)


def _is_name(name: str) -> bool:
    """Tell if a name fits a line of a table and cannot be taken for a path."""
    return (
        name[:1].isalnum()
        and name.isprintable()
        and not set(name) & {"/", "\\"}
        and len(name.strip()) == len(name) <= _LONGEST_NAME
    )


def _read(folder: Path, size: int | None) -> tuple[Published, Parity]:
    of_open_clip = (folder / CONFIG_FILE).is_file() and not (folder / "config.json").is_file()
    published = read_open_clip(folder, size) if of_open_clip else read_published(folder, size)
    encoder = Encoder(published.model.eval().requires_grad_(False), published.preprocessing)
    original = OpenClipReference(folder) if of_open_clip else Reference(folder, size)
    return published, check_parity(encoder, original)


def _recipe(published: Published, name: str) -> str:
    """The recipe that goes on training the encoder; empty for one of images alone."""
    if "text" not in published.model.modalities:
        return ""
    tree: Any = shipped().tree(_RECIPE) | {"name": name}
    tree["model"] = published.model.config.model_dump(mode="json")
    tree["preprocessing"] = published.preprocessing.config.model_dump(mode="json")
    tree["objective"] = _objective(published.logits)
    return dump_recipe(parse_recipe(tree, f"Recipe {_RECIPE}"))


def _objective(logits: PretrainedLogits | None) -> dict[str, Any]:
    """The objective that goes on from the logits of the published encoder."""
    if logits is None:
        return {"name": "infonce"}
    if logits.bias is None:
        return {"name": "infonce", "temperature": logits.temperature}
    return {"name": "sigmoid", "temperature": logits.temperature, "bias": logits.bias}
