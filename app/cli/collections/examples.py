"""Examples that a search is given as options: stored images, texts, and files of vectors."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import typer

_NUMPY = b"\x93NUMPY"


@dataclass(frozen=True)
class Given:
    """An example of a query, and the option that it was given by."""

    option: str
    example: dict[str, Any]


def given_boxes(
    boxes: Sequence[str] | None, *, files: Sequence[Path] | None, ids: Sequence[str] | None
) -> list[dict[str, float]]:
    """Read the boxes of `--box`, each of an image file, or of a stored image where no file is given.

    Raises:
        BadParameter: One is no four numbers, or there are more than images.
    """
    pictures = len(files or ids or ())
    if len(boxes or ()) > pictures:
        message = f"{len(boxes or ())} boxes for {pictures} images: give an --image or a --like for each."
        raise typer.BadParameter(message, param_hint="--box")
    return [_given_box(text) for text in boxes or ()]


def _given_box(text: str) -> dict[str, float]:
    try:
        x, y, width, height = (float(number) for number in text.split(","))
    except ValueError:
        message = f"{text!r} is not x,y,width,height in fractions of the picture, such as 0.1,0.2,0.3,0.4."
        raise typer.BadParameter(message, param_hint="--box") from None
    return {"x": x, "y": y, "width": width, "height": height}


def given_examples(
    option: str,
    ids: Sequence[str] | None,
    texts: Sequence[str] | None,
    vectors: Sequence[Path] | None,
    boxes: Sequence[dict[str, float]] = (),
) -> list[Given]:
    """Gather the examples of `--like` or `--unlike` and of the options that go with it.

    Args:
        option: The option of ids.
        ids: Stored images.
        texts: Texts.
        vectors: Files of vectors.
        boxes: Parts of the first stored images.

    Raises:
        BadParameter: A file holds no vector.
    """
    return [
        *(
            Given(option, {"id": name} | ({} if box is None else {"box": box}))
            for name, box in zip(ids or (), chain(boxes, repeat(None)), strict=False)
        ),
        *(Given(f"{option}-text", {"text": text}) for text in texts or ()),
        *(_given_vector(f"{option}-vector {path}", path) for path in vectors or ()),
    ]


def _given_vector(option: str, path: Path) -> Given:
    try:
        values = _read_list(path)
    except OSError as error:
        raise typer.BadParameter(f"it cannot be read: {error.strerror}.", param_hint=option) from None
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, list):
        message = "it is neither a .npy file of numbers nor a list of numbers in JSON."
        raise typer.BadParameter(message, param_hint=option)
    if any(isinstance(value, list) for value in values):
        raise typer.BadParameter("it holds several vectors: give a file of one.", param_hint=option)
    return Given(option, {"vector": values})


def _read_list(path: Path) -> Any:
    content = path.read_bytes()
    if content.startswith(_NUMPY):
        return np.load(BytesIO(content), allow_pickle=False).tolist()
    return json.loads(content)
