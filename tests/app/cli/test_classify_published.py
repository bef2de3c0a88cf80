"""The published figures that `recoquest classify` prints."""

import re

import pytest

from app.cli.classify import _table
from app.cli.output import console
from training.classification.load import load_classification_recipe


def test_a_run_stands_beside_the_figures_of_its_own_share(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def printed(name: str) -> str:
        metrics = {"f1": 0.5, "accuracy": 0.25}
        console().print(_table(load_classification_recipe(name), metrics))
        return capsys.readouterr().out

    whole = printed("glue-mrpc-bert-reclaim")
    assert "published, BERT-large + RECLAIM" in whole
    assert re.search(r"BERT-base +│ +89.47 +│ +85.29", whole)
    share = printed("glue-mrpc-reclaim-share-0.1")
    assert re.search(r"BERT-base +│ +80.07 +│ +69.40", share)
    assert re.search(r"BERT-base \+ RECLAIM +│ +80.38 +│ +70.59", share)
    assert "89.47" not in share and "large" not in share
    assert "published" not in printed("glue-mrpc-bert-reclaim-neighbours-10")
