"""What a view of any kind says keys score is what its searches give them."""

import numpy as np
import pytest

from index.vectors.view import VectorView, new_view
from tests.index.samples import unit_vectors
from tests.index.vectors.reference import ReferenceView

DIM = 12
COUNT = 700


@pytest.mark.parametrize(("blades", "unsigned"), [(1, False), (1, True), (3, False)])
def test_scores_are_those_of_a_search_and_of_the_reference(blades: int, unsigned: bool) -> None:
    views: list[VectorView | ReferenceView] = [
        new_view(DIM, blades, unsigned=unsigned),
        ReferenceView(DIM, blades, unsigned=unsigned),
    ]
    keys, query = np.arange(COUNT) * 3, unit_vectors(1, DIM, seed=1)[0]
    asked = np.random.default_rng(2).permutation(3 * COUNT)[:400]
    for view in views:
        view.add(keys, unit_vectors(COUNT, DIM))
        held, scores = view.scores(query, asked)
        assert held.tolist() == [key for key in asked.tolist() if key % 3 == 0]
        found = view.search(query, COUNT)
        searched = dict(zip(found.keys.tolist(), found.scores.tolist(), strict=True))
        assert scores.tolist() == [searched[key] for key in held.tolist()]
        assert [len(part) for part in view.scores(query, asked[:0])] == [0, 0]
        one, score = view.scores(query, held[:1])
        assert (one.tolist(), score.tolist()) == (held[:1].tolist(), scores[:1].tolist())
