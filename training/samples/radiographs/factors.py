"""Factors of a sample radiograph: visible in the image, stated in the report, or both."""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

Side = Literal["right", "left"]
View = Literal["PA", "AP", "LATERAL"]

# Findings, with the chance of each on a film.
FINDINGS: Final = {
    "Cardiomegaly": 0.24, "Pleural Effusion": 0.26, "Pneumothorax": 0.12, "Lung Nodule": 0.16,
    "Consolidation": 0.22, "Edema": 0.10, "Atelectasis": 0.12, "Pacemaker": 0.12, "Central Line": 0.12,
}  # fmt: skip
LATERAL_FINDINGS: Final = ("Cardiomegaly", "Pleural Effusion", "Pacemaker")
# Severity of a finding by its size, from 0 to 1; 0.5 for findings without a size.
SEVERITY: Final = {"small": 0.0, "moderate": 0.5, "large": 1.0, "": 0.5}
_INDICATIONS: Final = (
    *("fever and cough", "shortness of breath", "chest pain", "a fall from a ladder"),
    *("a check before surgery", "weight loss", "a check after the placement of a line", "weakness"),
)
_COMPARISONS: Final = ("none", "a film of last week", "a film of last year")
_CHANCE_OF_NONE: Final = 0.22


@dataclass(frozen=True)
class Finding:
    """One finding; what a finding has no use for is empty."""

    name: str
    side: Side | None = None
    size: str = ""
    zone: str = ""
    count: int = 1


@dataclass(frozen=True)
class Patient:
    """Patient of a film; the build of the body is the same on all films of a patient."""

    name: str
    sex: Literal["F", "M"]
    age: int
    build_seed: int


@dataclass(frozen=True)
class Film:
    """The factors of one film.

    Attributes:
        patient: Patient of the film.
        findings: Shared: the image shows them and the report states them.
        view: Shared.
        exposure, marker, tilt: Factors of the image only.
        indication, comparison: Factors of the text only.
        year: Metadata only: in neither image nor text.
    """

    patient: Patient
    findings: tuple[Finding, ...]
    view: View
    exposure: str
    marker: bool
    tilt: float
    indication: str
    comparison: str
    year: int

    def finding(self, name: str) -> Finding | None:
        """The first finding of that name."""
        return next((finding for finding in self.findings if finding.name == name), None)


def draw_patient(rng: np.random.Generator, number: int) -> Patient:
    """Make one patient up."""
    return Patient(
        name=f"p{number:05d}",
        sex="F" if rng.random() < 0.5 else "M",
        age=int(rng.integers(19, 92)),
        build_seed=int(rng.integers(2**31)),
    )


def draw_film(rng: np.random.Generator, patient: Patient) -> Film:
    """Make the factors of one film up."""
    view: View = "PA" if (chance := rng.random()) < 0.58 else "AP" if chance < 0.88 else "LATERAL"
    return Film(
        patient=patient,
        findings=tuple(_draw_finding(rng, name) for name in _draw_names(rng, view)),
        view=view,
        exposure=str(rng.choice(("low", "normal", "high"), p=(0.2, 0.6, 0.2))),
        marker=rng.random() < 0.7,
        tilt=float(np.clip(rng.normal(0.0, 1.6), -4.0, 4.0)),
        indication=str(rng.choice(_INDICATIONS)),
        comparison=str(rng.choice(_COMPARISONS)),
        year=int(rng.integers(2012, 2024)),
    )


def _draw_names(rng: np.random.Generator, view: View) -> list[str]:
    """The names of at most three findings, of those that the view can show."""
    if rng.random() < _CHANCE_OF_NONE:
        return []
    shown = LATERAL_FINDINGS if view == "LATERAL" else tuple(FINDINGS)
    names = [name for name in shown if rng.random() < FINDINGS[name]]
    return names[:3] or [str(rng.choice(shown))]


def _draw_finding(rng: np.random.Generator, name: str) -> Finding:
    side: Side = "right" if rng.random() < 0.5 else "left"
    size = str(rng.choice(("small", "moderate", "large")))
    zone = str(rng.choice(("upper", "middle", "lower")))
    match name:
        case "Cardiomegaly" | "Edema":
            return Finding(name, size=size)
        case "Pleural Effusion" | "Pneumothorax":
            return Finding(name, side, size)
        case "Lung Nodule":
            return Finding(name, side, size, zone, count=int(rng.choice((1, 1, 2, 3))))
        case "Consolidation":
            # The left lung has no middle lobe.
            return Finding(name, side, zone="lower" if (side, zone) == ("left", "middle") else zone)
        case "Atelectasis":
            return Finding(name, side)
        case _:
            return Finding(name, "left" if name == "Pacemaker" else "right")
