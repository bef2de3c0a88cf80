"""Sample scenes: drawn places and things with known factors, and captions that state them.

Shared factors are what captions and image agree on, so what a search needs. Unique ones are in one of the two
only, and mild: a texture of the paper, the hour and blur in the image; the occasion and how the author ends a
sentence in the captions. What an encoder keeps of each tells objectives apart. All are in the metadata.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image

from training.common.progress import ProgressBar
from training.common.record import MetadataValue, Record
from training.samples.collection import split_of, write_collection
from training.samples.scenes.captions import write_captions
from training.samples.scenes.drawing import draw_scene
from training.samples.scenes.factors import Scene, draw_scene_factors

_STREAM: Final = 2
_ABOUT: Final = """# Sample scenes

Drawn by `recoquest sample-data`. What is known of each image is in `manifest.jsonl`:

| factor | where it shows |
|---|---|
| `place`, `thing`, `colour`, `count`, `other`, `other_colour`, `relation` | image and text |
| `time` (of day), `blur`, `texture` (of the paper) | image only |
| `occasion`, `author` (by how sentences end) | text only |

The kinds of things are the `labels`. Each image has five captions by one author; one of
them at most states the occasion.
"""


def write_scenes(folder: Path, *, images: int, seed: int, size: int, progress: ProgressBar) -> None:
    """Draw `images` scenes into `folder`, with their manifest."""
    write_collection(folder, _draw_scenes(images, seed, size), about=_ABOUT, progress=progress)


def _draw_scenes(images: int, seed: int, size: int) -> Iterator[tuple[Record, Image.Image]]:
    for number in range(images):
        rng = np.random.default_rng([seed, _STREAM, number])
        scene = draw_scene_factors(rng, np.random.default_rng([seed, _STREAM, number, 1]))
        yield _record(scene, number, rng), draw_scene(scene, rng, size)


def _record(scene: Scene, number: int, rng: np.random.Generator) -> Record:
    name = f"scene{number:05d}"
    kinds = [scene.main.kind, *([scene.other.kind] if scene.other else [])]
    return Record(
        id=name,
        image=f"images/{name}.jpg",
        split=split_of(number),
        texts=write_captions(scene, rng),
        labels=tuple(dict.fromkeys([scene.place, *kinds])),
        metadata=_metadata(scene),
    )


def _metadata(scene: Scene) -> dict[str, MetadataValue]:
    known: dict[str, MetadataValue] = {
        "place": scene.place,
        "thing": scene.main.kind,
        "colour": scene.main.colour,
        "count": scene.main.count,
        "time": scene.time,
        "blur": scene.blur,
        "texture": scene.texture,
        "occasion": scene.occasion,
        "author": scene.author,
    }
    if scene.other is not None:
        known |= {"other": scene.other.kind, "other_colour": scene.other.colour, "relation": scene.relation}
    return known
