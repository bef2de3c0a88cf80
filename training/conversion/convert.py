"""Convert a published encoder to a bundle, after checking that both give the same vectors."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from training.common.errors import BundleError, RecipeError
from training.conversion.open_clip import CONFIG_FILE, read_open_clip
from training.conversion.published import Published, read_published
from training.conversion.references import OpenClipReference, Reference
from training.models.bundle import BundleInfo, save_bundle
from training.models.encoder import Encoder
from training.models.pretrained.folder import local_folder
from training.recipes.library import shipped
from training.recipes.load import dump_recipe, parse_recipe

LOWEST_COSINE: Final = 0.9999
TEXTS: Final = (
    "",
    "a dog",
    "TWO DOGS  Run On\nThe Beach!",
    "No pleural effusion; the heart isn’t enlarged (see above).",
    "Ein Café in Zürich, naïve señor",
    "12.5 mm nodule, 3/4 of 100 %",
    "两只狗在沙滩上奔跑 犬",
    "a man with a red hat walks along the beach with his dog and a ball " * 60,
)
_RECIPE: Final = "fine-tuning"
_LONGEST_NAME: Final = 100
# transformers and PyTorch raise these when the settings of a folder contradict each other.
_UNREADABLE: Final = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True)
class Parity:
    """Lowest cosine between the bundle's vectors of eight images and texts and the reference's."""

    original: str
    images: float
    texts: float | None

    def figures(self) -> dict[str, float]:
        """The cosines under their names on a model card."""
        figures = {"parity_of_images": self.images, "parity_of_texts": self.texts}
        return {name: value for name, value in figures.items() if value is not None}


@dataclass(frozen=True)
class Conversion:
    """A written bundle, its encoder on the CPU, and how close its vectors are to the published encoder's."""

    bundle: BundleInfo
    encoder: Encoder
    parity: Parity


def convert(source: str, out: Path, *, name: str, size: int | None = None) -> Conversion:
    """Write a published encoder (a folder, or a name on the hub) as a bundle.

    `size` is the image side in pixels, for towers that accept any.

    Raises:
        RecipeError: There is no such encoder, or this package can't reproduce it.
        BundleError: The name is invalid, the folder is in use or can't be written, or the bundle's vectors
            would differ from the published encoder's.
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
    """Whether a name fits into a table row and can't be mistaken for a path."""
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
    """The recipe that continues training the encoder; empty for an image-only one."""
    if "text" not in published.model.modalities:
        return ""
    tree: Any = shipped().tree(_RECIPE) | {"name": name}
    tree["model"] = published.model.config.model_dump(mode="json")
    tree["preprocessing"] = published.preprocessing.config.model_dump(mode="json")
    # Start from the published encoder's logits.
    logits = published.logits
    tree["objective"] = {"name": "infonce" if logits is None or logits.bias is None else "sigmoid"}
    if logits is not None:
        tree["objective"]["temperature"] = logits.temperature
        if logits.bias is not None:
            tree["objective"]["bias"] = logits.bias
    return dump_recipe(parse_recipe(tree, f"Recipe {_RECIPE}"))


def check_parity(encoder: Encoder, original: Reference | OpenClipReference) -> Parity:
    """Compare the vectors of eight images and eight texts.

    Raises:
        BundleError: A cosine is below 0.9999.
    """
    images = made_images()
    ours = encoder.embed_images(np.stack([encoder.prepare_image(image) for image in images.values()]))
    theirs, name = original.embed_images(list(images.values())), original.name
    pictures = _lowest(ours, theirs, [f"the {kind} image" for kind in images], name)
    if "text" not in encoder.modalities:
        return Parity(name, pictures, None)
    theirs = original.embed_texts(TEXTS, encoder.preprocessing.text.config.max_tokens)
    texts = [f"the text {text[:40]!r}" for text in TEXTS]
    return Parity(name, pictures, _lowest(encoder.embed_texts(TEXTS).vectors, theirs, texts, name))


def _lowest(ours: NDArray[np.float32], theirs: NDArray[np.float32], inputs: list[str], name: str) -> float:
    if ours.shape != theirs.shape:
        raise BundleError(
            f"{name} gives vectors of {theirs.shape[1]} numbers, the bundle would give "
            f"{ours.shape[1]}: no bundle is written."
        )
    cosines = np.einsum("ij,ij->i", ours.astype(np.float64), theirs.astype(np.float64))
    worst = int(cosines.argmin())
    if not cosines[worst] >= LOWEST_COSINE:
        raise BundleError(
            f"The vector of {inputs[worst]} would have a cosine of {cosines[worst]:.4f} with that of "
            f"{name}, and {LOWEST_COSINE} is the least: no bundle is written."
        )
    return float(cosines[worst])


def made_images() -> dict[str, Image.Image]:
    """Eight synthetic images, by name, that expose differences in preprocessing."""
    noise = np.random.default_rng(11).integers(0, 256, (96, 144, 3), dtype=np.uint8)
    picture = Image.fromarray(noise)
    rows, columns = np.mgrid[:400, :400]
    waves = [(rows * (1 + channel) + columns * (3 - channel)) // 4 % 256 for channel in range(3)]
    gradient = Image.fromarray(np.stack(waves, axis=-1).astype(np.uint8))
    smooth = picture.resize((900, 600), Image.Resampling.BICUBIC)
    return {
        "wide": smooth.resize((700, 200)),
        "tall": smooth.resize((190, 610)),
        "grey": smooth.convert("L"),
        "tiny": picture.crop((0, 0, 7, 5)),
        "square": gradient,
        "large": smooth.resize((1501, 1103)),
        "noisy": picture,
        "bright": Image.fromarray(255 - np.asarray(gradient.resize((333, 251))) // 8),
    }
