"""Sample data: drawn images, with texts that state what is on them."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final

from PIL import Image

from training.common.atomic import atomic_folder
from training.common.errors import DataError
from training.common.manifest import write_manifest
from training.common.progress import ProgressBar, progress_bar
from training.common.record import Record, Split
from training.samples.radiographs.samples import ABOUT as ABOUT_RADIOGRAPHS
from training.samples.radiographs.samples import draw_radiographs
from training.samples.scenes.samples import ABOUT as ABOUT_SCENES
from training.samples.scenes.samples import draw_scenes
from training.samples.scenes.sounds import add_scene_sounds

_QUALITY: Final = 92
# Of ten groups, seven train, one val, two test.
_SPLITS: Final[tuple[Split, ...]] = (
    *("train", "train", "val", "train", "test"),
    *("train", "train", "test", "train", "train"),
)


def write_sample_data(
    out: Path, *, images: int = 600, seed: int = 0, size: int = 256, audio: bool = False, dicom: bool = False
) -> None:
    """Draw two collections, `out`/radiographs and `out`/scenes, each a folder with a manifest.

    The same arguments give the same bytes. `out` appears when all is done; a stopped run leaves nothing.

    Args:
        out: A folder that does not exist yet, or is empty.
        images: Number of images in each collection.
        seed: Seed of images and texts.
        size: Width and height of an image in pixels.
        audio: Give each scene a short sound as well; the images and texts are the same without.
        dicom: Write the radiographs as DICOM files as well, into `out`/dicom.

    Raises:
        DataError: `out` holds something already, or cannot be written, or a number is out of range.
    """
    if images < 1 or not 32 <= size <= 2048 or seed < 0:
        raise DataError(
            "Sample data needs at least one image, a size from 32 to 2048 and a seed of 0 or more."
        )
    try:
        with atomic_folder(out) as folder, progress_bar("Drawing sample images", 2 * images) as progress:
            radiographs, scenes = folder / "radiographs", folder / "scenes"
            _write(radiographs, islice(draw_radiographs(seed, size), images), ABOUT_RADIOGRAPHS, progress)
            _write(scenes, islice(draw_scenes(seed, size), images), ABOUT_SCENES, progress)
            if dicom:
                # An installation of photographs loads no code for DICOM.
                from training.samples.radiographs.dicom_files import write_dicom_files

                write_dicom_files(radiographs, folder / "dicom", seed=seed)
            if audio:
                add_scene_sounds(scenes, seed=seed)
    except FileExistsError:
        state = "is not empty" if out.is_dir() else "is a file"
        raise DataError(f"{out} {state}; give a new folder, or delete it first.") from None
    except OSError as error:
        raise DataError(f"The sample data cannot be written to {out}: {error.strerror or error}.") from error


def _write(
    folder: Path, items: Iterator[tuple[int, Record, Image.Image]], about: str, progress: ProgressBar
) -> None:
    """Save images as JPEG files, their records, with a split for each numbered group, and a README."""
    (folder / "images").mkdir(parents=True)

    def save_each() -> Iterator[Record]:
        for group, record, image in items:
            image.save(folder / record.image, "JPEG", quality=_QUALITY)
            yield replace(record, split=_SPLITS[group % len(_SPLITS)])
            progress.advance()

    write_manifest(folder, save_each())
    (folder / "README.md").write_text(about, encoding="utf-8")
