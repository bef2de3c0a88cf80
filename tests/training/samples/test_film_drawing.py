"""Boxes around the findings of drawn films."""

import numpy as np
import pytest

from training.samples.film_drawing import draw_radiograph, find_boxes
from training.samples.radiographs import Film, Finding, Patient

SIZE = 128


def _film(*findings: Finding, tilt: float = 0.0) -> Film:
    patient = Patient("p", "M", 60, 3)
    return Film(patient, findings, "PA", "normal", False, tilt, "chest pain", "none", 2020)


def _rng() -> np.random.Generator:
    return np.random.default_rng(4)


@pytest.mark.parametrize("tilt", [0.0, 4.0])
@pytest.mark.parametrize("name", ["Pacemaker", "Central Line", "Lung Nodule", "Pleural Effusion"])
def test_the_film_changes_within_the_box_of_a_finding(name: str, tilt: float) -> None:
    finding = Finding(name, side="left", size="large", zone="middle")
    box = find_boxes(_film(finding, tilt=tilt), _rng(), SIZE)[name]
    with_it, without = (
        np.asarray(draw_radiograph(_film(*findings, tilt=tilt), _rng(), SIZE).reduce(4)).astype(float)
        for findings in ((finding,), ())
    )
    edges = (np.arange(SIZE // 4) + 0.5) * 4 / SIZE
    inside = np.outer(
        (edges > box.y - 0.03) & (edges < box.y + box.height + 0.03),
        (edges > box.x - 0.03) & (edges < box.x + box.width + 0.03),
    )
    changed = np.abs(with_it - without)
    assert changed[inside].max() > 25
    # Texture and grain are others.
    assert changed[inside].max() > 1.5 * changed[~inside].max()


def test_a_large_heart_has_no_box() -> None:
    film = _film(Finding("Cardiomegaly", size="large"), Finding("Atelectasis", side="right"))
    boxes = find_boxes(film, _rng(), SIZE)
    assert list(boxes) == ["Atelectasis"]
    assert boxes["Atelectasis"].x + boxes["Atelectasis"].width < 0.5
