"""Where true neighbours stand among the candidates of codes, and how many are sure to hold them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from index.vectors.planner import Usual
from index.vectors.positions import Rows

# How many candidates are tried first for each hit, and in what steps they become more.
_FEWEST_FOR_A_HIT: Final = 2
_STEP: Final = 1.15
# What is promised is 0.99; queries of another kind than those that are tried are a little harder.
_RECALL: Final = 0.997
# What some queries need, others need more of. With more candidates fewer seem hard, and those that are show
# it better; beside the rest of a search it takes next to no longer (measured).
_MORE: Final = 1.4
# The share of queries whose hits lie no farther back among the candidates than is usual.
_USUALLY: Final = 0.9
# Where vectors of some kind are more alike than codes can tell, so many queries may be hard at most, and what
# is usual is told by the others.
MANY_HARD: Final = 0.5


@dataclass(frozen=True)
class Judgement:
    """What queries find by so many of their candidates.

    Attributes:
        candidates: How many.
        usual: Where the hits usually lie among these.
        hard: The share of queries whose hits lie farther back, and so are looked for again deeper.
        recall: The share of true neighbours that the others find.
    """

    candidates: int
    usual: Usual
    hard: float
    recall: float

    @property
    def sure(self) -> bool:
        """Whether as much is found as must be."""
        return self.recall >= _RECALL


def places_of(rows: Rows, found: Rows) -> Rows:
    """Return where rows (Q, T) stand among those found (Q, C): far behind if they do not, -1 for no row."""
    places = np.full(rows.shape, np.iinfo(np.int64).max)
    for place, wanted, named in zip(places, rows, found, strict=True):
        order = np.argsort(named)
        at = order[np.minimum(np.searchsorted(named, wanted, sorter=order), len(named) - 1)]
        there = named[at] == wanted
        place[there] = at[there]
        place[wanted < 0] = -1
    return places


def recall_of(places: Rows, candidates: int) -> float:
    """Return the share of true neighbours that stand among the first candidates; see `places_of`."""
    there = places >= 0
    found = there & (places < candidates)
    return float(found.sum() / max(1, there.sum()))


def judge(kinds: Sequence[Rows], candidates: int, *, many_hard: bool = False) -> Judgement:
    """Tell what queries of some kinds find by so many candidates: the worst of what each kind does.

    Args:
        kinds: The places (Q, T) of true neighbours for the queries of each; see `places_of`.
        candidates: How many.
        many_hard: Whether what is usual is told by those queries alone whose hits lie farthest in front.
    """
    stand = [_standing(places, candidates) for places in kinds]
    easy = [_farthest_in_front(*standing) for standing in stand] if many_hard else stand
    # What is usual for one of the kinds is.
    usual = Usual(
        late=max(float(late.mean()) for late, _ in easy),
        place=max(float(np.quantile(mean, _USUALLY)) for _, mean in easy),
    )
    hard = [(late > usual.most_late) | (mean > usual.farthest) for late, mean in stand]
    recall = min(recall_of(places[~those], candidates) for places, those in zip(kinds, hard, strict=True))
    return Judgement(candidates, usual, max(float(those.mean()) for those in hard), recall)


def enough_candidates(
    kinds: Sequence[Rows], depth: int, most: int, hard: float, *, many_hard: bool = False
) -> Judgement | None:
    """Return with how many candidates queries find their neighbours down to a depth, if that is not too many.

    Args:
        kinds: The places (Q, T) of true neighbours for the queries of each; see `places_of`.
        depth: How deep these lie at most.
        most: How many there are.
        hard: The share of queries that may seem hard.
        many_hard: Whether `MANY_HARD` may; see `judge`.
    """
    for candidates in steps(_FEWEST_FOR_A_HIT * depth, most):
        judged = judge(kinds, candidates, many_hard=many_hard)
        if judged.sure and judged.hard <= (MANY_HARD if many_hard else hard):
            return judged
    return None


def with_spare(candidates: int, most: int) -> int:
    """Return how many candidates other queries should take where those that were tried need so many."""
    return min(most, round(_MORE * candidates))


def steps(fewest: int, most: int) -> Iterator[int]:
    """Give how many candidates to try, from the fewest to the most."""
    candidates = float(fewest)
    while candidates < most:
        yield round(candidates)
        candidates *= _STEP
    yield most


def _farthest_in_front(
    late: NDArray[np.int64], mean: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the standing of those queries that are not hard where as many are as may be."""
    first = np.argsort(mean)[: max(1, round((1 - MANY_HARD) * len(mean)))]
    return late[first], mean[first]


def _standing(places: Rows, candidates: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return how many hits (Q,) the last half of the candidates has, and their mean place (Q,) as a share."""
    there = (places >= 0) & (places < candidates)
    late = np.count_nonzero(there & (places >= candidates // 2), axis=1)
    means = np.where(there, places, 0).sum(axis=1) / np.maximum(there.sum(axis=1), 1)
    return late, means / candidates
