"""Sample scenes: drawn places and things with known factors, and captions that state them.

Shared factors are what captions and image agree on, so what a search needs. Unique ones are in one of the two
only, and mild: a texture of the paper, the hour and blur in the image; the occasion and how the author ends a
sentence in the captions. What an encoder keeps of each tells objectives apart. All are in the metadata.
"""

from collections.abc import Iterator
from itertools import count
from typing import Final

import numpy as np
from PIL import Image

from training.common.record import MetadataValue, Record
from training.samples.canvas import pick
from training.samples.scenes.drawing import draw_scene
from training.samples.scenes.factors import Scene, Thing, draw_scene_factors

_STREAM: Final = 2
# Names of things that have others than their kind.
_NAMES: Final = {
    "person": ("person", "hiker", "visitor"),
    "umbrella": ("umbrella", "parasol"),
    "sailboat": ("sailboat", "sailing boat"),
    "bicycle": ("bicycle", "bike"),
    "sled": ("sled", "sledge"),
    "balloon": ("balloon", "hot-air balloon"),
}
_PLACES: Final = {
    "beach": ("on the beach", "at the seaside", "on the sand by the sea"),
    "street": ("on a city street", "on the street", "in front of tall buildings"),
    "snow": ("in the snow", "in a snowy landscape", "on a snow-covered field"),
    "meadow": ("on a green meadow", "in a grassy field", "on the grass"),
    "desert": ("in the desert", "between sand dunes", "in a dry desert"),
    "lake": ("by a lake", "at a mountain lake", "on the shore of a lake"),
}
_COUNTS: Final = {2: "two", 3: "three"}
_RELATIONS: Final = {
    "left of": ("to the left of", "on the left side of", "left of"),
    "right of": ("to the right of", "on the right side of", "right of"),
    "above": ("above", "in the sky over", "over"),
}
_TWO_THINGS: Final = (
    "{Main} {relation} {other} {place}.",
    "{Place}, {main} {verb} {relation} {other}.",
    "{Main} and {other} {place}.",
    "There {verb} {main} {relation} {other} {place}.",
    "{Other} {place} with {main} {relation} it.",
    "A picture of {main} and {other}, taken {place} {occasion}.",
)
_ONE_THING: Final = (
    "{Main} {place}.",
    "{Place}, there {verb} {main}.",
    "A view of {main} {place}.",
    "{Main} {verb} seen {place}.",
    "Nothing but {main} {place}.",
    "A picture of {main}, taken {place} {occasion}.",
)
# Ending of each author's sentences; no longer, so that captions are equally easy to search by.
_ENDINGS: Final = {"reporter": ".", "admirer": "!", "dreamer": " ...", "poet": ""}
ABOUT: Final = """# Sample scenes

Drawn by `recoquest sample-data`. What is known of each image is in `manifest.jsonl`:

| factor | where it shows |
|---|---|
| `place`, `thing`, `colour`, `count`, `other`, `other_colour`, `relation` | image and text |
| `time` (of day), `blur`, `texture` (of the paper) | image only |
| `occasion`, `author` (by how sentences end) | text only |

The kinds of things are the `labels`. Each image has five captions by one author; one of
them at most states the occasion.
"""


def draw_scenes(seed: int, size: int) -> Iterator[tuple[int, Record, Image.Image]]:
    """Draw scenes without end, each with its number and its record."""
    for number in count():
        rng = np.random.default_rng([seed, _STREAM, number])
        scene = draw_scene_factors(rng, np.random.default_rng([seed, _STREAM, number, 1]))
        yield number, _record(scene, f"scene{number:05d}", rng), draw_scene(scene, rng, size)


def _record(scene: Scene, name: str, rng: np.random.Generator) -> Record:
    metadata: dict[str, MetadataValue] = {
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
    labels = [scene.place, scene.main.kind]
    if (other := scene.other) is not None:
        metadata |= {"other": other.kind, "other_colour": other.colour, "relation": scene.relation}
        labels.append(other.kind)
    return Record(
        id=name,
        image=f"images/{name}.jpg",
        texts=_write_captions(scene, rng),
        labels=tuple(dict.fromkeys(labels)),
        metadata=metadata,
    )


def _write_captions(scene: Scene, rng: np.random.Generator) -> tuple[str, ...]:
    """Put a scene into five sentences of its author; each names the main thing and the place."""
    patterns = _TWO_THINGS if scene.other else _ONE_THING
    chosen = rng.choice(len(patterns), size=5, replace=False)
    ending = _ENDINGS[scene.author]
    return tuple(_fill(patterns[number], scene, rng).removesuffix(".") + ending for number in chosen)


def _fill(pattern: str, scene: Scene, rng: np.random.Generator) -> str:
    words = {
        "main": _name(scene.main, rng),
        "other": _name(scene.other, rng) if scene.other else "",
        "place": pick(rng, _PLACES[scene.place]),
        "relation": pick(rng, _RELATIONS[scene.relation]) if scene.relation else "",
        "verb": "is" if scene.main.count == 1 else "are",
        "occasion": scene.occasion,
    }
    words |= {
        name.capitalize(): words[name][:1].upper() + words[name][1:] for name in ("main", "other", "place")
    }
    return pattern.format(**words)


def _name(thing: Thing, rng: np.random.Generator) -> str:
    name = pick(rng, _NAMES.get(thing.kind, (thing.kind,)))
    if thing.count > 1:
        name = "people" if name == "person" else f"{name}es" if name.endswith("ch") else f"{name}s"
    described = f"{name} in {thing.colour}" if thing.kind == "person" else f"{thing.colour} {name}"
    if thing.count > 1:
        return f"{_COUNTS[thing.count]} {described}"
    return f"{'an' if described[0] in 'aeiou' else 'a'} {described}"
