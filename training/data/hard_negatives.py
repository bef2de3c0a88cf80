"""Batches in which a text meets an image that it seems to fit and does not."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from training.common.record import Record


class HardNegatives:
    """The images that texts do not fit, by what the records say of them.

    A contrastive loss compares a text with the images of its batch, so that a hard negative teaches something
    where it is in the batch of a pair with that text.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self._rows: dict[object, list[int]] = {}
        for row, record in enumerate(records):
            for text in record.not_texts:
                self._rows.setdefault(text, []).append(row)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._rows)

    def bring_together(
        self,
        order: NDArray[np.int64],
        texts: Sequence[object],
        batch_size: int,
        generator: np.random.Generator,
    ) -> NDArray[np.int64]:
        """The rows of an epoch with a hard negative of each drawn text, if it has any, moved into its batch.

        What is moved changes places with a random row. A text stays without where all its hard negatives are
        needed elsewhere, or its batch is full of those that are needed.

        Args:
            order: The rows in the order that they are drawn in.
            texts: What is drawn with each of them.
            batch_size: Rows of a batch.
            generator: Of the epoch.
        """
        order = order.copy()
        place_of = {row: place for place, row in enumerate(order.tolist())}
        needed: set[int] = set()
        for row, text in zip(order.tolist(), texts, strict=True):
            places = [place_of[other] for other in self._rows.get(text, ()) if other in place_of]
            if not places:
                continue
            needed.add(place_of[row])
            first = place_of[row] // batch_size * batch_size
            batch = range(first, min(first + batch_size, len(order)))
            here = [place for place in places if place in batch]
            sources = [place for place in places if place not in needed]
            targets = [place for place in batch if place not in needed]
            if here or not sources or not targets:
                needed.update(here[:1])
                continue
            moved = [int(generator.choice(sources)), int(generator.choice(targets))]
            order[moved] = order[moved[::-1]]
            place_of |= {int(order[place]): place for place in moved}
            needed.add(moved[1])
        return order
