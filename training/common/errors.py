"""The errors that a person can act on; everything else is a defect and keeps its traceback."""

from typing import Final, Literal


class RecoquestError(Exception):
    """A failure that the user can mend.

    The message is one plain sentence that says what is wrong and what to do. The command line prints it and
    ends with a non-zero code; the service turns it into a problem document.
    """


class DataError(RecoquestError):
    """A manifest, a data set or a file in it cannot be used."""


class ImageError(DataError):
    """Bytes that cannot be used as an image."""


class ImageTooLargeError(ImageError):
    """An image over the limits of bytes, pixels or frames, refused before any pixel was decoded."""


class RecipeError(RecoquestError):
    """A recipe or one of its settings is not valid."""


class BundleError(RecoquestError):
    """A bundle is missing, damaged or of another format."""


class AudioError(DataError):
    """Bytes that cannot be used as a sound."""


class AudioTooLargeError(AudioError):
    """A sound over the limits of bytes or of duration, refused before any sample was decoded."""


class MissingModalityError(RecoquestError):
    """The encoder has no tower for what it was asked to embed."""

    def __init__(self, modality: Literal["image", "text", "audio"]) -> None:
        super().__init__(modality)
        self.modality: Literal["image", "text", "audio"] = modality

    def __str__(self) -> str:
        """Missing modality, and the encoder or query to use instead."""
        return _MISSING[self.modality]


class NoRegionsError(RecoquestError):
    """The encoder has no regions of images, which parts of pictures and maps are made of."""

    def __init__(self) -> None:
        super().__init__(
            "This model has no regions: it can neither search by a part of a picture nor say what matched. "
            "Search by the whole picture, or use a model that pools images by their mean."
        )


# Extras that bring a package; everything else comes with `all`.
_EXTRAS: Final = {
    "faiss": ("all,cpu", "all,gpu"),
    "pi_heif": ("all,heic",),
    "psycopg": ("all,postgresql",),
    "pyarrow": ("all,huggingface",),
}


def what_to_install(error: ModuleNotFoundError) -> str | None:
    """Return the sentence about a missing package; None if a module of this project is missing."""
    package = (error.name or "").partition(".")[0]
    if package in ("", "app", "index", "training"):
        return None
    commands = (f'`pip install "recoquest[{extras}]"`' for extras in _EXTRAS.get(package, ("all",)))
    return f"{package} is not installed: run {' or '.join(commands)}."


_MISSING = {
    "image": "This encoder was loaded without its image tower: load all of it.",
    "text": "This encoder was trained without texts and cannot be searched by one: search by an image.",
    "audio": "This encoder was trained without sounds and cannot embed any: use one that has model.audio.",
}
