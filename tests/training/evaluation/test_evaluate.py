from dataclasses import replace
from typing import TypeVar

import pytest

from tests.training.evaluation.conftest import WriteManifest
from tests.training.evaluation.encoders import BladeEncoder, BlindToTexts, ColourEncoder, FlippingEncoder
from training.common.errors import DataError
from training.common.manifest import Record
from training.evaluation.evaluate import EvaluationReport, evaluate

T = TypeVar("T")


def some(value: T | None) -> T:
    assert value is not None
    return value


def colours(count: int, *, texts: bool, labels: bool) -> list[Record]:
    names = ["red", "green", "blue"]
    return [
        Record(
            id=f"{name}-{row}",
            image="",
            split="test",
            texts=(f"a {name} thing",) if texts else (),
            labels=(name,) if labels else (),
            group=f"patient-{row // 6}",
        )
        for row, name in ((row, names[row % 3]) for row in range(count))
    ]


def measured(manifest_of: WriteManifest, records: list[Record]) -> EvaluationReport:
    return evaluate(
        ColourEncoder(), manifest_of(records), label_template="the {labels} one", show_progress=False
    )


def test_a_perfect_encoder(manifest_of: WriteManifest) -> None:
    report = measured(manifest_of, colours(36, texts=True, labels=True))
    assert some(report.captions).rsum == 600
    assert some(report.captions).texts == 36
    assert some(report.geometry).alignment == pytest.approx(0, abs=1e-3)
    assert some(some(report.labels).text_to_image).queries == 3
    assert some(some(report.labels).text_to_image).precision == {5: 100, 10: 100, 50: None}
    # Each image has 30 candidates of other patients, ten of its colour.
    assert some(some(report.labels).image_to_image).precision == {5: 100, 10: 100, 50: None}
    assert some(some(report.labels).image_to_image).chance == pytest.approx(100 / 3)
    assert some(report.labels).mean == 100


def test_the_sign_of_vectors_without_one_changes_no_figure(manifest_of: WriteManifest) -> None:
    records = [
        replace(record, metadata={"tone": record.labels[0]})
        for record in colours(36, texts=True, labels=True)
    ]
    manifest = manifest_of(records)
    straight, flipped, other = (
        evaluate(FlippingEncoder(seed), manifest, show_progress=False) for seed in (None, 0, 1)
    )
    assert straight == flipped == other
    assert some(straight.captions).rsum == 600
    assert some(straight.geometry).alignment == pytest.approx(0, abs=1e-3)
    assert some(straight.labels).mean == 100
    assert {reading.image for reading in straight.factors} == {100}


def test_a_blade_model_is_measured_without_texts(manifest_of: WriteManifest) -> None:
    report = evaluate(BladeEncoder(), manifest_of(colours(36, texts=False, labels=True)), show_progress=False)
    assert (report.texts, report.captions) == (0, None)
    assert some(report.labels).mean == 100


def test_metrics_are_flat_and_without_gaps(manifest_of: WriteManifest) -> None:
    report = measured(manifest_of, colours(36, texts=True, labels=True))
    assert EvaluationReport.model_validate_json(report.model_dump_json()) == report
    metrics = report.metrics()
    assert metrics["rsum"] == 600
    assert metrics["image_recall_at_1"] == metrics["precision_at_10"] == metrics["text_precision_at_5"] == 100
    assert "precision_at_50" not in metrics
    assert all(isinstance(value, float | int) for value in metrics.values())


def test_texts_alone_and_labels_alone(manifest_of: WriteManifest) -> None:
    only_texts = measured(manifest_of, colours(12, texts=True, labels=False))
    assert only_texts.labels is None
    only_labels = measured(manifest_of, colours(12, texts=False, labels=True))
    assert only_labels.captions is None
    assert only_labels.geometry is None
    with pytest.raises(DataError, match="neither texts nor labels"):
        measured(manifest_of, colours(3, texts=False, labels=False))


def test_what_is_unknown_takes_no_part(manifest_of: WriteManifest) -> None:
    described = colours(12, texts=True, labels=True)
    unknown = [Record(id=f"red-unknown-{row}", image="", split="test") for row in range(6)]
    report = measured(manifest_of, unknown + described)
    assert report.images == 18
    assert some(report.captions).images == 12
    assert some(report.captions).rsum == 600
    assert some(some(report.labels).image_to_image).queries == 12
    assert some(some(report.labels).image_to_image).chance == pytest.approx(100 / 3)


def test_images_of_one_patient_find_none_of_their_own(manifest_of: WriteManifest) -> None:
    report = measured(manifest_of, colours(6, texts=False, labels=True))
    assert some(report.labels).image_to_image is None
    assert some(some(report.labels).text_to_image).queries == 3


def test_an_encoder_of_images_alone_is_measured_from_image_to_image(manifest_of: WriteManifest) -> None:
    records = colours(36, texts=True, labels=True)
    report = evaluate(BlindToTexts(), manifest_of(records), show_progress=False)
    both = measured(manifest_of, records).labels
    assert report.captions is None
    assert both is not None
    assert some(report.labels).image_to_image == both.image_to_image
    assert (some(report.labels).text_to_image, some(report.labels).mean) == (None, None)
    figures = report.metrics()
    assert figures["precision_at_10"] == figures["image_precision_at_10"] == 100
    assert not [name for name in figures if name.startswith("text")]
    with pytest.raises(DataError, match="nothing to measure"):
        evaluate(BlindToTexts(), manifest_of(colours(36, texts=True, labels=False)), show_progress=False)
