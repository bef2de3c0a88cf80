"""Results of RECLAIM's paper on the validation questions of VQA v2, in percent (table 11)."""

from collections.abc import Mapping
from types import MappingProxyType

from training.classification.questions.config import QuestionRecipe

_ROWS: Mapping[str, float] = MappingProxyType({"BAN": 66.06, "BAN + RECLAIM": 66.36})


def published(recipe: QuestionRecipe) -> Mapping[str, float]:
    """The score of each row; of a tower from random weights there are none."""
    return _ROWS if recipe.model.image.pretrained is not None else {}
