"""Whether the hits among the candidates tell that there are more behind these."""

import numpy as np
import pytest

from index.vectors.candidates import Yardstick, best_of_candidates
from index.vectors.half import HalfRows
from index.vectors.planner import Usual
from index.vectors.positions import Rows
from index.vectors.protocol import Vectors
from tests.index.samples import unit_vectors

DIM = 32
USUAL = Usual(late=0.1, place=0.2)


def _rows_by_nearness(count: int) -> tuple[HalfRows, Vectors]:
    """Rows of which the first is the nearest to the query, and so on."""
    query = unit_vectors(1, DIM, seed=1)[0]
    vectors = unit_vectors(count, DIM, seed=2)
    rows = HalfRows(DIM)
    rows.add(vectors[np.argsort(-(vectors @ query))])
    return rows, query


def _best(order: Rows, more: Rows | None = None, usual: Usual = USUAL) -> Rows | None:
    rows, query = _rows_by_nearness(100)
    return best_of_candidates(query, 5, rows, order, more, Yardstick(5, len(order), usual))


def test_hits_among_the_first_candidates_are_taken() -> None:
    found = _best(np.arange(40))
    assert found is not None
    assert found[:5].tolist() == [0, 1, 2, 3, 4]
    # Those whose rounding may turn the order come as well, others not.
    assert len(found) < 15


def test_one_hit_late_is_too_many_where_that_is_rare() -> None:
    order = np.concatenate(([0, 1, 2, 3], np.arange(5, 30), [4], np.arange(30, 40)))
    assert _best(order) is None
    assert _best(order, usual=Usual(late=0.6, place=0.2)) is not None


def test_hits_that_lie_too_far_back_on_the_mean_are_not_taken() -> None:
    # All in the first half.
    order = np.concatenate((np.arange(5, 19), np.arange(5), np.arange(19, 40)))
    assert _best(order) is None
    assert _best(order, usual=Usual(late=0.1, place=0.4)) is not None


def test_hits_that_were_not_named_by_codes_say_nothing() -> None:
    found = _best(np.arange(50, 90), more=np.arange(20))
    assert found is not None
    assert found[:5].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("named", [3, 40])
def test_fewer_candidates_than_wanted_are_judged_as_if_more_were_named(named: int) -> None:
    rows, query = _rows_by_nearness(100)
    found = best_of_candidates(query, 5, rows, np.arange(named), None, Yardstick(5, 80, USUAL))
    assert found is not None
    assert found[:3].tolist() == [0, 1, 2]
