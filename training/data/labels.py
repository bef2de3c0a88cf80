"""Labels of records as numbers."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from training.data.record import Record


def known_labels(records: Sequence[Record]) -> tuple[str, ...]:
    """All labels that occur, in order."""
    return tuple(sorted({label for record in records for label in record.labels}))


def positives(records: Sequence[Record], labels: Sequence[str]) -> NDArray[np.bool_]:
    """(N, L), True where a record has a label; one without labels has none of them."""
    found = [[label in record.labels for label in labels] for record in records]
    return np.array(found, dtype=np.bool_).reshape(len(records), len(labels))
