"""Passes that show whether an encoder works, and how fast."""

from collections.abc import Callable, Sequence

import numpy as np
from PIL import Image

from app.encoding.jobs import ServedEncoder

_FIRST_TEXT = "ready"


def warm_up(encoder: ServedEncoder) -> None:
    """Embed an image, and a text if the encoder reads any: a broken encoder fails before a query needs it."""
    for one in passes_of(encoder, size=1, text=_FIRST_TEXT):
        one()


def passes_of(encoder: ServedEncoder, *, size: int, text: str) -> Sequence[Callable[[], object]]:
    """A pass of a batch for each kind of query that the encoder takes."""
    images = np.stack([encoder.prepare_image(Image.new("RGB", (8, 8)))] * size)
    passes: list[Callable[[], object]] = [lambda: encoder.embed_images(images)]
    if "text" in encoder.modalities:
        passes.append(lambda: encoder.embed_texts([text] * size))
    return passes
