"""Sample data: drawn images, with texts that state what is on them."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image

from training.common.atomic import atomic_folder
from training.common.errors import DataError
from training.common.manifest import write_manifest
from training.common.progress import ProgressBar, progress_bar
from training.common.record import Record, Split
from training.samples.film_drawing import draw_radiograph
from training.samples.radiographs import ABOUT as ABOUT_RADIOGRAPHS
from training.samples.radiographs import describe_film, draw_film, draw_patient
from training.samples.scene_drawing import draw_scene
from training.samples.scenes import ABOUT as ABOUT_SCENES
from training.samples.scenes import describe_scene, draw_scene_factors
from training.samples.sounds import add_scene_sounds

# A group of images that share a split, a record, and its image.
_Item = tuple[int, Record, Image.Image]
_QUALITY: Final = 92
# Streams of random numbers.
_RADIOGRAPHS, _SCENES = 1, 2
_FILMS_PER_PATIENT: Final = (0.6, 0.28, 0.12)
# Splits of ten groups: seven train, one val, two test.
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
        DataError: `out` is not empty, or cannot be written, or a number is out of range.
    """
    if images < 1 or not 32 <= size <= 2048 or seed < 0:
        raise DataError(
            "Sample data needs at least one image, a size from 32 to 2048 and a seed of 0 or more."
        )
    try:
        with atomic_folder(out) as folder, progress_bar("Drawing sample images", 2 * images) as progress:
            radiographs, scenes = folder / "radiographs", folder / "scenes"
            _write(radiographs, islice(_draw_radiographs(seed, size), images), ABOUT_RADIOGRAPHS, progress)
            _write(scenes, islice(_draw_scenes(seed, size), images), ABOUT_SCENES, progress)
            if dicom:
                # An installation of photographs loads no code for DICOM.
                from training.samples.dicom_files import write_dicom_files

                write_dicom_files(radiographs, folder / "dicom", seed=seed)
            if audio:
                add_scene_sounds(scenes, seed=seed)
    except FileExistsError:
        state = "is not empty" if out.is_dir() else "is a file"
        raise DataError(f"{out} {state}; give a new folder, or delete it first.") from None
    except OSError as error:
        raise DataError(f"The sample data cannot be written to {out}: {error.strerror or error}.") from error


def _draw_radiographs(seed: int, size: int) -> Iterator[_Item]:
    number = 0
    for patient_number in count():
        draw = np.random.default_rng([seed, _RADIOGRAPHS, 0, patient_number])
        patient = draw_patient(draw, patient_number)
        for _ in range(draw.choice((1, 2, 3), p=_FILMS_PER_PATIENT)):
            film, rng = draw_film(draw, patient), np.random.default_rng([seed, _RADIOGRAPHS, 1, number])
            record = describe_film(film, f"cxr{number:05d}", rng)
            yield patient_number, record, draw_radiograph(film, rng, size)
            number += 1


def _draw_scenes(seed: int, size: int) -> Iterator[_Item]:
    for number in count():
        rng = np.random.default_rng([seed, _SCENES, number])
        scene = draw_scene_factors(rng, np.random.default_rng([seed, _SCENES, number, 1]))
        yield number, describe_scene(scene, f"scene{number:05d}", rng), draw_scene(scene, rng, size)


def _write(folder: Path, items: Iterator[_Item], about: str, progress: ProgressBar) -> None:
    """Save images as JPEG files, their records, with a split for each numbered group, and a README."""
    (folder / "images").mkdir(parents=True)

    def save_each() -> Iterator[Record]:
        for group, record, image in items:
            image.save(folder / record.image, "JPEG", quality=_QUALITY)
            yield replace(record, split=_SPLITS[group % len(_SPLITS)])
            progress.advance()

    write_manifest(folder, save_each())
    (folder / "README.md").write_text(about, encoding="utf-8")
