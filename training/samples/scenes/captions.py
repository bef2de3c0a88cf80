"""Writes the captions of sample scenes."""

from typing import Final

import numpy as np

from training.samples.scenes.factors import Scene, Thing

_PLURALS: Final = {"person": "people"}
_NAMES: Final = {
    "person": ("person", "hiker", "visitor"),
    "dog": ("dog",),
    "ball": ("ball",),
    "umbrella": ("umbrella", "parasol"),
    "sailboat": ("sailboat", "sailing boat"),
    "car": ("car",),
    "bicycle": ("bicycle", "bike"),
    "bench": ("bench",),
    "sled": ("sled", "sledge"),
    "house": ("house",),
    "tent": ("tent",),
    "balloon": ("balloon", "hot-air balloon"),
    "kite": ("kite",),
    "bird": ("bird",),
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


def write_captions(scene: Scene, rng: np.random.Generator, *, captions: int = 5) -> tuple[str, ...]:
    """Put a scene into `captions` different sentences; each names the main thing and the place.

    All are written in the way of the author.
    """
    patterns = _TWO_THINGS if scene.other else _ONE_THING
    chosen = rng.choice(len(patterns), size=captions, replace=False)
    ending = _ENDINGS[scene.author]
    return tuple(_fill(patterns[int(number)], scene, rng).removesuffix(".") + ending for number in chosen)


def _fill(pattern: str, scene: Scene, rng: np.random.Generator) -> str:
    words = {
        "main": _name(scene.main, rng),
        "other": _name(scene.other, rng) if scene.other else "",
        "place": _pick(rng, _PLACES[scene.place]),
        "relation": _pick(rng, _RELATIONS[scene.relation]) if scene.relation else "",
        "verb": "is" if scene.main.count == 1 else "are",
        "occasion": scene.occasion,
    }
    words |= {
        name.capitalize(): words[name][:1].upper() + words[name][1:] for name in ("main", "other", "place")
    }
    return pattern.format(**words)


def _name(thing: Thing, rng: np.random.Generator) -> str:
    name = _pick(rng, _NAMES[thing.kind])
    if thing.count > 1:
        plural = _PLURALS.get(name, f"{name}es" if name.endswith("ch") else f"{name}s")
        described = f"{plural} in {thing.colour}" if thing.kind == "person" else f"{thing.colour} {plural}"
        return f"{_COUNTS[thing.count]} {described}"
    described = f"{name} in {thing.colour}" if thing.kind == "person" else f"{thing.colour} {name}"
    return f"{'an' if described[0] in 'aeiou' else 'a'} {described}"


def _pick(rng: np.random.Generator, choices: tuple[str, ...]) -> str:
    return choices[int(rng.integers(len(choices)))]
