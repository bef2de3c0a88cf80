"""Examples that a search is given as options: stored images, texts, and files of vectors."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
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


def given_examples(
    option: str, ids: Sequence[str] | None, texts: Sequence[str] | None, vectors: Sequence[Path] | None
) -> list[Given]:
    """Gather the examples of `--like` or `--unlike` and of the options that go with it.

    Raises:
        BadParameter: A file holds no vector.
    """
    return [
        *(Given(option, {"id": name}) for name in ids or ()),
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
