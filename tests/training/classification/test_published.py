"""The published figures belong to the measures that a run gives."""

import pytest

from training.classification.published import published
from training.classification.tasks import GLUE


@pytest.mark.parametrize("task", sorted(GLUE))
def test_every_row_has_a_figure_for_each_name(task: str) -> None:
    names, rows = published(task)
    metrics, sets = GLUE[task].metrics, GLUE[task].dev
    given = {f"{name}/{metric}" for name in sets for metric in metrics} if len(sets) > 1 else set(metrics)
    assert set(names) <= given
    for row in rows:
        assert len(row.base) == len(row.reclaim) == len(names)
        assert all(new >= old for old, new in zip(row.base, row.reclaim, strict=True))
