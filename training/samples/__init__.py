"""Sample data: drawn images, with texts that state what is on them."""

from pathlib import Path

from training.common.atomic import atomic_folder
from training.common.errors import DataError
from training.common.progress import progress_bar
from training.samples.radiographs.samples import write_radiographs
from training.samples.scenes.samples import write_scenes
from training.samples.scenes.sounds import add_scene_sounds

__all__ = ["write_sample_data"]


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
            write_radiographs(folder / "radiographs", images=images, seed=seed, size=size, progress=progress)
            write_scenes(folder / "scenes", images=images, seed=seed, size=size, progress=progress)
            if dicom:
                # An installation of photographs loads no code for DICOM.
                from training.samples.radiographs.dicom_files import write_dicom_files

                write_dicom_files(folder / "radiographs", folder / "dicom", seed=seed)
            if audio:
                add_scene_sounds(folder / "scenes", seed=seed)
    except FileExistsError:
        found = "is not empty" if out.is_dir() else "is a file"
        raise DataError(f"{out} {found}; give a new folder, or delete it first.") from None
    except OSError as error:
        raise DataError(f"The sample data cannot be written to {out}: {error.strerror or error}.") from error
