"""The published figures that `recoquest classify` prints."""

import re

import pytest

from app.cli.training import _image_table, _label_table, _text_table
from app.edge.console import console
from tests.training.classification.texts.samples import text_recipe
from training.classification.images.config import ImageRecipe
from training.classification.images.scores import Scores
from training.classification.load import load_classification_recipe


def test_a_run_stands_beside_the_figures_of_its_own_share(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def printed(name: str) -> str:
        metrics = {"f1": 0.5, "accuracy": 0.25}
        console().print(_text_table(text_recipe(name), metrics))
        return capsys.readouterr().out

    whole = printed("glue-bert-reclaim::mrpc")
    assert "published, BERT-large + RECLAIM" in whole
    assert re.search(r"BERT-base +│ +89.47 +│ +85.29", whole)
    share = printed("glue-share-reclaim::mrpc-0.1")
    assert re.search(r"BERT-base +│ +80.07 +│ +69.40", share)
    assert re.search(r"BERT-base \+ RECLAIM +│ +80.38 +│ +70.59", share)
    assert "89.47" not in share and "large" not in share
    assert "published" not in printed("glue-neighbours::mrpc-10")


def test_labels_stand_one_by_one_and_their_mean_beside_the_paper_s(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scores = Scores({"Edema": 0.75, "Pneumonia": 0.5}, {"Edema": 3, "Fracture": 0, "Pneumonia": 4}, 20)

    def printed(name: str) -> str:
        recipe = load_classification_recipe(name)
        assert isinstance(recipe, ImageRecipe)
        console().print(_label_table(scores), _image_table(recipe, scores), sep="\n")
        return capsys.readouterr().out

    known = printed("chexpert-bundle-linear::10")
    assert re.search(r"Edema +│ +3 of 20 +│ +75.00", known)
    assert re.search(r"Fracture +│ +0 of 20 +│ +–", known)
    assert re.search(r"this run +│ +62.50 +│ +2", known)
    assert re.search(r"published, ReCo +│ +88.28 +│ +8", known)
    assert re.search(r"published, ReCo +│ +88.33", printed("chexpert-bundle-finetune::10"))
    assert "published" not in printed("labels-bundle-linear")
