"""Figures for Prometheus."""

from app.observability.metrics import Metrics
from index.vectors.ann.search import OperatingPoint


def test_recall_is_that_of_the_collections_that_have_codes_now() -> None:
    metrics = Metrics()
    metrics.recalls_measured([("films", "images", OperatingPoint(96, 200, 0.999, 0.9, 900))])
    figures = metrics.render().decode()
    assert 'recoquest_search_recall{collection="films",of="mean",target="images"} 0.999' in figures
    assert 'recoquest_search_recall{collection="films",of="lowest query",target="images"} 0.9' in figures
    metrics.recalls_measured([])
    assert "films" not in metrics.render().decode()
