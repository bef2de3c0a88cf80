"""How many candidates are sure to hold the hits, told from where the true neighbours of queries stand."""

import numpy as np
import pytest

from index.vectors.judging import enough_candidates, judge, places_of, recall_of, steps, with_spare
from index.vectors.planner import Usual
from index.vectors.positions import Rows

FAR = np.iinfo(np.int64).max


def _easy(count: int, depth: int = 10) -> Rows:
    """Queries whose hits are their first candidates."""
    return np.tile(np.arange(depth), (count, 1))


def test_places_are_those_among_the_candidates() -> None:
    rows = np.array([[7, 3, -1], [5, 9, 1]])
    found = np.array([[3, 8, 7, -1], [2, 9, 4, 6]])
    assert places_of(rows, found).tolist() == [[2, 0, -1], [FAR, 1, FAR]]


def test_rows_that_are_none_do_not_count_in_a_recall() -> None:
    assert recall_of(np.array([[0, 5, -1], [FAR, 1, -1]]), candidates=5) == 0.5


def test_what_is_usual_is_the_worst_of_the_kinds() -> None:
    far = np.tile(np.arange(20, 30), (10, 1))
    assert judge([_easy(30), far], candidates=50).usual == Usual(late=5, place=24.5 / 50)


def test_a_query_with_late_hits_is_hard_and_counts_in_no_recall() -> None:
    places = _easy(20)
    places[0] = [30, 31, 32, 33, 34, FAR, FAR, FAR, FAR, FAR]
    judged = judge([places], candidates=40)
    assert (judged.hard, judged.recall) == (1 / 20, 1)
    assert judged.sure


def test_a_query_that_does_not_show_its_losses_counts() -> None:
    places = _easy(20)
    places[0, 5:] = FAR
    judged = judge([places], candidates=40)
    assert (judged.hard, judged.recall) == (0, 195 / 200)
    assert not judged.sure


def test_the_fewest_candidates_that_are_sure() -> None:
    places = _easy(100)
    # One of ten hits of each stands at 50.
    places[:, 9] = 50
    judged = enough_candidates([places], depth=10, most=400, hard=0.1)
    assert judged is not None
    assert 51 <= judged.candidates <= 51 * 1.15
    assert judged.recall == 1


@pytest.mark.parametrize("most", [40, 400])
def test_none_are_enough_for_what_codes_do_not_name(most: int) -> None:
    places = _easy(100)
    places[:, 9] = FAR
    assert enough_candidates([places], depth=10, most=most, hard=0.1) is None


def test_more_candidates_until_few_queries_seem_hard() -> None:
    places = _easy(100)
    places[::5, 9] = 60
    few, many = (enough_candidates([places], depth=10, most=400, hard=hard) for hard in (0.1, 0.3))
    assert few is not None
    assert many is not None
    # One hit in the last half makes a query hard where one in five has one.
    assert few.hard <= 0.1 < many.hard
    assert few.candidates > 120 > many.candidates > 60


@pytest.mark.parametrize("share", [0.3, 0.8])
def test_many_may_be_hard_where_the_others_are_sure(share: float) -> None:
    random, places = np.random.default_rng(0), _easy(100)
    # What codes cannot tell apart lies anywhere, and some of it behind what is looked at.
    alike = round(share * 100)
    places[:alike] = random.permuted(np.tile(np.arange(500), (alike, 1)), axis=1)[:, :10]
    assert enough_candidates([places], depth=10, most=400, hard=0.1) is None
    judged = enough_candidates([places], depth=10, most=400, hard=0.1, many_hard=True)
    if share > 0.5:
        assert judged is None
    else:
        assert judged is not None
        assert judged.hard == share
        assert judged.recall == 1


def test_steps_end_with_the_most() -> None:
    tried = list(steps(20, 100))
    assert tried[0] == 20
    assert tried[-1] == 100
    assert tried == sorted(set(tried))
    assert with_spare(50, 100) == 70
    assert with_spare(90, 100) == 100
