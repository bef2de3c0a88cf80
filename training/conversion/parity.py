"""Whether a bundle gives the vectors of the published encoder that it was made from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from training.common.errors import BundleError
from training.models.encoder import Encoder

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


class Original(Protocol):
    """A published encoder by other code than a bundle's.

    Attributes:
        name: Of this code.
    """

    name: str

    def embed_images(self, images: Sequence[Image.Image]) -> NDArray[np.float32]:
        """Unit vectors (B, D) of images of any size."""

    def embed_texts(self, texts: Sequence[str], limit: int) -> NDArray[np.float32]:
        """Unit vectors (B, D) of texts, cut after `limit` tokens."""


@dataclass(frozen=True)
class Parity:
    """Lowest cosine of the bundle's vectors with the published encoder's.

    Attributes:
        original: Name of the code that gave the published encoder's.
        images: Over eight images.
        texts: Over eight texts; None for an encoder of images alone.
    """

    original: str
    images: float
    texts: float | None

    def figures(self) -> dict[str, float]:
        """By the names on a model card."""
        figures = {"parity_of_images": self.images, "parity_of_texts": self.texts}
        return {name: value for name, value in figures.items() if value is not None}


def check_parity(encoder: Encoder, original: Original) -> Parity:
    """Compare the vectors of eight images and eight texts.

    Raises:
        BundleError: A cosine is below .9999.
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
    """Eight images that tell one way of preparing images from another, by name."""
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
