"""A seeded corpus: the same cases in every run, of all kinds in equal parts."""

import random
from collections.abc import Iterator
from itertools import islice

from tests.hostile.bodies import hostile_bodies, hostile_filters
from tests.hostile.case import Case, image_search, image_upload
from tests.hostile.heads import hostile_heads
from tests.hostile.images import hostile_images


def corpus(seed: int, count: int) -> list[Case]:
    """`count` cases: images, heads, bodies and filters in turn."""
    draw = random.Random(seed)
    kinds = (_images(draw), hostile_heads(draw), hostile_bodies(draw), hostile_filters(draw))
    cases = [case for kind in kinds for case in islice(kind, (count + len(kinds) - 1) // len(kinds))]
    # All kinds at once are worse than one after another.
    draw.shuffle(cases)
    return cases[:count]


def _images(draw: random.Random) -> Iterator[Case]:
    for number, (name, content) in enumerate(hostile_images(draw)):
        if number % 4 == 3:
            sent = image_upload(f"hostile-{number}", content)
            yield Case(f"upload of {name}", (sent,), leave=number % 16 == 15)
        else:
            yield Case(f"search by {name}", (image_search(content),), leave=number % 16 == 14)
