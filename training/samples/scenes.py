"""Sample scenes: drawn places and things with known factors, and captions that state them.

Shared factors are what captions and image agree on, so what a search needs. Unique ones are in one of the two
only, and mild: a texture of the paper, the hour and blur in the image; the occasion and how the author ends a
sentence in the captions. What an encoder keeps of each tells objectives apart. All are in the metadata.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from training.common.record import MetadataValue, Record
from training.samples.canvas import pick

COLOURS: Final[dict[str, tuple[int, int, int]]] = {
    "red": (204, 44, 40), "blue": (38, 84, 188), "green": (40, 140, 62), "yellow": (240, 202, 48),
    "white": (240, 240, 236), "black": (38, 36, 42), "orange": (240, 130, 36), "purple": (122, 60, 160),
    "brown": (128, 82, 46),
}  # fmt: skip
# Birds and dogs come in natural colours, and dogs alone in brown.
_NATURAL_COLOURS: Final = {"dog": ("white", "black", "brown"), "bird": ("white", "black")}
_PAINTS: Final = tuple(COLOURS)[:-1]
GROUND_THINGS: Final[dict[str, tuple[str, ...]]] = {
    "beach": ("person", "dog", "ball", "umbrella", "sailboat"),
    "street": ("person", "dog", "car", "bicycle", "bench"),
    "snow": ("person", "dog", "sled", "house", "car"),
    "meadow": ("person", "dog", "ball", "bicycle", "house", "bench"),
    "desert": ("person", "car", "tent", "ball"),
    "lake": ("sailboat", "person", "tent", "dog", "bench"),
}
SKY_THINGS: Final = ("balloon", "kite", "bird")
PLACES: Final = tuple(GROUND_THINGS)
_OCCASIONS: Final = (
    *("on a Sunday", "during the holidays", "for a postcard", "on a family trip", "after a long drive"),
    "before lunch",
)
# Surface that the picture is printed on.
TEXTURES: Final = ("smooth", "canvas", "ribbed", "dotted")


@dataclass(frozen=True)
class Thing:
    """A kind of object in one colour, once or several times."""

    kind: str
    colour: str
    count: int = 1


@dataclass(frozen=True)
class Scene:
    """The factors of one scene.

    Attributes:
        place: Shared: the image shows it and the captions state it.
        main, other: Shared: the things.
        relation: Shared: where `main` is as seen from `other`; "above" when `main` is in the sky, empty
            without another thing.
        time, blur, texture: Of the image only.
        occasion, author: Of the text only.
    """

    place: str
    main: Thing
    other: Thing | None
    relation: str
    time: str
    blur: float
    texture: str
    occasion: str
    author: str


def draw_scene_factors(rng: np.random.Generator, style: np.random.Generator) -> Scene:
    """Make the factors of one scene up.

    Args:
        rng: Decides what there is.
        style: Decides texture and author, which nothing else depends on.
    """
    place = pick(rng, PLACES)
    kinds = [str(kind) for kind in rng.permutation(GROUND_THINGS[place])]
    relation = str(rng.choice(("left of", "right of", "above", ""), p=(0.27, 0.27, 0.26, 0.2)))
    main_kind = pick(rng, SKY_THINGS) if relation == "above" else kinds[0]
    other = _draw_thing(rng, kinds[1], 1) if relation else None
    counts = (1, 1, 2, 3) if relation in ("above", "") else (1, 1, 2)
    return Scene(
        place=place,
        main=_draw_thing(rng, main_kind, int(rng.choice(counts))),
        other=other,
        relation=relation,
        time=str(rng.choice(("morning", "noon", "sunset", "night"), p=(0.25, 0.35, 0.25, 0.15))),
        blur=float(rng.choice((0.0, 0.0, 0.0, 0.7, 1.2))),
        occasion=pick(rng, _OCCASIONS),
        texture=pick(style, TEXTURES),
        author=str(style.choice(("reporter", "admirer", "dreamer", "poet"), p=(0.4, 0.2, 0.2, 0.2))),
    )


def _draw_thing(rng: np.random.Generator, kind: str, count: int) -> Thing:
    return Thing(kind, pick(rng, _NATURAL_COLOURS.get(kind, _PAINTS)), count)


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


def describe_scene(scene: Scene, name: str, rng: np.random.Generator) -> Record:
    """Make the record of a scene: its captions, its labels, and its factors as metadata."""
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
