"""No step of a classifier or of a language model waits for its device."""

from pathlib import Path

import pytest
import torch

from tests.training.classification.samples import tiny_recipe as tiny_image_recipe
from tests.training.models.tiny import BERT_SIZE
from tests.training.papers.samples import tiny_language_recipe, tiny_text_recipe
from tests.training.steps import run_steps
from tests.training.tasks.test_memory import RUNS, WRITERS, Run
from training.classification.run import classify_images
from training.papers.glue import TextRecipe, classify_texts
from training.papers.language_models import train_language_model
from training.recipes.load import parse_as
from training.tasks.opening import RunOptions


def with_bert() -> TextRecipe:
    """The tiny recipe with a backbone of transformers."""
    tree = tiny_text_recipe().model_dump(mode="json")
    tree["model"] |= {"architecture": "bert", "options": BERT_SIZE}
    return parse_as(TextRecipe, tree, "The tiny recipe")


FORMS: dict[str, dict[str, Run]] = {
    "images": {"frozen": lambda data, to: classify_images(tiny_image_recipe(frozen=True), data, to)},
    "texts": {"bert": lambda data, to: classify_texts(with_bert(), data, to)},
    "questions": {},
    "sentences": {
        "gaussian": lambda data, to: train_language_model(tiny_language_recipe(), data, to),
        "refined": lambda data, to: train_language_model(
            tiny_language_recipe(reclaim=True, refinement={"steps": 2}), data, to
        ),
    },
}
CASES = [(task, form) for task, forms in FORMS.items() for form in ("", *forms)]


@pytest.mark.slow
@pytest.mark.parametrize(("task", "form"), CASES, ids=[" ".join(case).strip() for case in CASES])
def test_no_step_waits(
    task: str, form: str, device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = WRITERS[task](tmp_path / "data")
    run = FORMS[task].get(form, RUNS[task])
    run_steps(
        lambda name: run(data, RunOptions(tmp_path / "run", device=name, show_progress=False)),
        device,
        monkeypatch,
    )
