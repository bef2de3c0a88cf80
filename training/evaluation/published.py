"""Published results on the supported data sets, comparable only for the same queries."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from training.evaluation.evaluate import EvaluationReport


@dataclass(frozen=True, slots=True)
class Protocol:
    """The queries of published results: searched images, and images and texts as queries.

    `texts_an_image` is None if matches are defined by labels.
    """

    images: int
    image_queries: int
    text_queries: int
    texts_an_image: int | None = None

    def differs(self, report: EvaluationReport, texts_an_image: frozenset[int]) -> str | None:
        """How an evaluation differs, by its report and each image's number of texts; None if it doesn't."""
        captions, labels = report.captions, report.labels
        if self.texts_an_image is not None:
            queries = (0, 0) if captions is None else (captions.images, captions.texts)
            same_texts = texts_an_image == {self.texts_an_image}
        else:
            sides = (None, None) if labels is None else (labels.image_to_image, labels.text_to_image)
            by_image, by_text = (0 if one is None else one.queries for one in sides)
            queries = by_image, by_text
            same_texts = True
        if same_texts and (report.images, *queries) == (self.images, self.image_queries, self.text_queries):
            return None
        each = "" if self.texts_an_image is None else f", {self.texts_an_image} of each image"
        return (
            f"they are of {self.image_queries:,} images and {self.text_queries:,} texts{each}, among "
            f"{self.images:,} images; this is of {queries[0]:,} and {queries[1]:,} among {report.images:,}"
        )


@dataclass(frozen=True, slots=True)
class PublishedResult:
    """A row of a published table: objective, model, and percentages named as in `EvaluationReport.metrics`.

    `mean` is that of CheXpert 8x200; the note has conditions such as the split.
    """

    method: str
    figures: Mapping[str, float]
    note: str = ""


def published_results(dataset: str) -> tuple[Protocol, tuple[PublishedResult, ...]] | None:
    """Published results for a data set, in any spelling, and their protocol; None if unknown."""
    plain = "".join(letter for letter in dataset.lower() if letter.isalnum())
    return _RESULTS.get(plain)


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
_TEST_1K: Final = Protocol(images=1000, image_queries=1000, text_queries=5000, texts_an_image=5)
# Its 80 query images aren't candidates; `recoquest evaluate` uses every image as a query.
_CHEXPERT: Final = Protocol(images=1600, image_queries=80, text_queries=40)
_RESULTS: Mapping[str, tuple[Protocol, tuple[PublishedResult, ...]]] = {
    "flickr30k": (_TEST_1K, _FLICKR30K),
    "f30k": (_TEST_1K, _FLICKR30K),
    "chexpert8x200": (_CHEXPERT, _CHEXPERT_8X200),
}
