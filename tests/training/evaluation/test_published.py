"""Published figures are of their protocol's own queries."""

from typing import Any

import pytest

from training.evaluation.evaluate import EvaluationReport, LabelRetrieval
from training.evaluation.published import published_results
from training.evaluation.retrieval import CaptionRetrieval, LabelPrecision

_FIVE = frozenset({5})


def _report(
    images: int, captions: tuple[int, int] | None = None, labels: tuple[int, int] | None = None
) -> EvaluationReport:
    none: dict[str, Any] = {"skipped": 0, "truncated": 0, "geometry": None}
    actual = None
    if labels is not None:
        by_image, by_text = (LabelPrecision({}, {}, {}, 12.5, queries) for queries in labels)
        actual = LabelRetrieval(by_image, by_text, 50.0)
    recall = None
    if captions is not None:
        recall = CaptionRetrieval({}, {}, 100.0, 1.0, 1.0, images=captions[0], texts=captions[1])
    return EvaluationReport(images=images, texts=0, captions=recall, labels=actual, **none)


def _differs(dataset: str, report: EvaluationReport, texts: frozenset[int] = _FIVE) -> str | None:
    known = published_results(dataset)
    assert known is not None
    return known[0].differs(report, texts)


def test_results_are_found_however_the_data_set_is_written() -> None:
    assert published_results("Flickr30K") == published_results("flickr-30k") == published_results("f30k")
    assert published_results("CheXpert 8x200")
    assert published_results("flickr8k") is published_results("") is None


@pytest.mark.parametrize(
    ("images", "queries", "same"),
    [(1600, (80, 40), True), (1600, (1600, 8), False), (1600, (80, 8), False), (200, (80, 40), False)],
)
def test_chexpert_is_searched_by_80_images_and_40_sentences(
    images: int, queries: tuple[int, int], same: bool
) -> None:
    reason = _differs("chexpert8x200", _report(images, labels=queries))
    assert (reason is None) == same
    if not same:
        assert f"this is of {queries[0]:,} and {queries[1]:,} among {images:,}" in str(reason)


@pytest.mark.parametrize(
    ("images", "captions", "texts", "same"),
    [
        (1000, (1000, 5000), _FIVE, True),
        (1000, (1000, 5000), frozenset({4, 5, 6}), False),
        (1000, (1000, 1000), frozenset({1}), False),
        (1014, (1014, 5070), _FIVE, False),
        (1200, (1000, 5000), frozenset({0, 5}), False),
        (31_783, (31_783, 158_915), _FIVE, False),
    ],
)
def test_flickr30k_is_a_thousand_images_of_five_captions(
    images: int, captions: tuple[int, int], texts: frozenset[int], same: bool
) -> None:
    assert (_differs("flickr30k", _report(images, captions), texts) is None) == same
