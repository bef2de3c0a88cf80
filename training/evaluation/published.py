"""Published results on the supported data sets, printed beside measured ones."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PublishedResult:
    """One row of a published table.

    Attributes:
        method: Objective and, where it matters, model.
        figures: Percent by the names of `EvaluationReport.metrics`, plus `mean` for CheXpert 8x200.
        note: Conditions of the measurement, such as the split.
    """

    method: str
    figures: Mapping[str, float]
    note: str = ""


def published_results(dataset: str) -> tuple[PublishedResult, ...]:
    """The results for a data set by its name, however it is written; empty when none is known."""
    plain = "".join(letter for letter in dataset.lower() if letter.isalnum())
    return _RESULTS.get(plain, ())


def _recall(method: str, image: float, text: float, note: str) -> PublishedResult:
    return PublishedResult(method, {"image_recall_at_1": image, "text_recall_at_1": text}, note)


_OWN_SPLIT = "ReCo's own split"
_KARPATHY = "Karpathy split"
_SHORTCUTS = "trained with synthetic shortcuts"

_FLICKR30K = (
    _recall("CLIP RN50, zero-shot", 55.0, 76.0, _OWN_SPLIT),
    _recall("InfoNCE, CLIP RN50", 70.3, 87.4, _OWN_SPLIT),
    _recall("ReCo, CLIP RN50", 71.9, 89.2, _OWN_SPLIT),
    _recall("InfoNCE, CLIP", 72.4, 86.9, _KARPATHY),
    _recall("IFM, CLIP", 73.2, 87.4, _KARPATHY),
    _recall("QUEST, CLIP", 73.9, 89.3, _KARPATHY),
    _recall("InfoNCE, VSE++", 39.5, 52.6, _KARPATHY),
    _recall("QUEST, VSE++", 42.9, 54.7, _KARPATHY),
    _recall("RECLAIM", 48.6, 69.5, "cross attention, not a dual encoder"),
    PublishedResult("InfoNCE, CLIP", {"rsum": 436.2}, _SHORTCUTS),
    PublishedResult("LTD, CLIP", {"rsum": 463.6}, _SHORTCUTS),
    PublishedResult("IFM, CLIP", {"rsum": 495.2}, _SHORTCUTS),
    PublishedResult("QUEST, CLIP", {"rsum": 527.8}, _SHORTCUTS),
)
_CHEXPERT_8X200 = (
    PublishedResult("chance", {"mean": 12.5}),
    PublishedResult("ConVIRT", {"mean": 48.3}),
    PublishedResult("InfoNCE", {"mean": 48.6}),
    PublishedResult("ReCo", {"mean": 51.5}),
)
_RESULTS: Mapping[str, tuple[PublishedResult, ...]] = {
    "flickr30k": _FLICKR30K,
    "f30k": _FLICKR30K,
    "chexpert8x200": _CHEXPERT_8X200,
}
