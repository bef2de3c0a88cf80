"""Sample radiographs: drawn chest films with known findings, and reports that state them.

Shared factors are what report and film agree on: findings (the labels) with their sides and severity, and
the view. Unique to the film are exposure, marker and tilt; to the report age, indication and comparison. The
year is in neither. What an encoder keeps of each tells objectives apart. All are in the metadata.
"""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from training.common.record import MetadataValue, Record
from training.samples.canvas import pick

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


_SIZE_WORDS: Final = {
    "small": ("small", "mild", "slight"),
    "moderate": ("moderate", "medium-sized"),
    "large": ("large", "marked", "massive"),
}
_HEART_WORDS: Final = {"small": "mildly", "moderate": "moderately", "large": "severely"}
_EDEMA_WORDS: Final = {"small": "mild", "moderate": "moderate", "large": "severe"}
# How an impression names each finding, and sentences that state it.
_SENTENCES: Final[dict[str, tuple[str, ...]]] = {
    "Cardiomegaly": (
        "cardiomegaly",
        "The heart is {grade} enlarged.",
        "There is a {grade} enlarged cardiac silhouette, in keeping with cardiomegaly.",
        "Cardiomegaly, {grade} pronounced.",
        "The cardiothoracic ratio is increased; the heart is {grade} enlarged.",
    ),
    "Pleural Effusion": (
        "{side} pleural effusion",
        "There is a {size} {side} pleural effusion.",
        "A {size} amount of pleural fluid is seen on the {side}.",
        "The {side} costophrenic angle is blunted by a {size} effusion.",
        "{Size} {side}-sided pleural effusion.",
    ),
    "Pneumothorax": (
        "{side} pneumothorax",
        "There is a {size} {side} pneumothorax.",
        "A visceral pleural line shows a {size} pneumothorax on the {side}.",
        "{Size} {side}-sided pneumothorax with partial collapse of the lung.",
    ),
    "Lung Nodule": (
        "{side} {zone} zone {nodules}",
        "There {are} {count} {size} {nodules} in the {side} {zone} zone.",
        "{Count} {size} pulmonary {nodules} in the {zone} part of the {side} lung.",
        "The {side} {zone} lung field shows {count} {size} round {nodules}.",
    ),
    "Consolidation": (
        "{side} {zone} lobe consolidation",
        "There is consolidation in the {side} {zone} lobe.",
        "Airspace opacity in the {side} {zone} lobe, in keeping with pneumonia.",
        "The {side} {zone} lobe is consolidated.",
        "Patchy dense opacification of the {side} {zone} lobe.",
    ),
    "Edema": (
        "pulmonary edema",
        "{Grade} pulmonary edema with perihilar haze.",
        "Bilateral perihilar opacities suggest {grade} pulmonary edema.",
        "There is {grade} interstitial edema in both lungs.",
    ),
    "Atelectasis": (
        "{side} basal atelectasis",
        "Linear atelectasis at the {side} base.",
        "There are bands of atelectasis in the {side} lower lung.",
        "Plate-like atelectasis is seen at the {side} lung base.",
    ),
    "Pacemaker": (
        "pacemaker",
        "A pacemaker is seen in the left chest wall with its lead in the right ventricle.",
        "Left-sided cardiac pacemaker in place.",
        "A pacemaker projects over the left upper chest.",
    ),
    "Central Line": (
        "central line",
        "A right central venous catheter ends in the superior vena cava.",
        "Right internal jugular central line in place.",
        "The tip of the right central line projects over the superior vena cava.",
    ),
}
_NORMAL: Final = (
    "The lungs are clear and the heart is of normal size.",
    "Normal chest film without focal opacity.",
    "No acute cardiopulmonary abnormality.",
    "Both lungs are well aerated and clear.",
    "Clear lungs, no pleural fluid, no enlarged heart.",
    "Unremarkable appearance of heart and lungs.",
)
_ABSENT: Final = {
    "Cardiomegaly": "The heart is of normal size.",
    "Pleural Effusion": "No pleural effusion.",
    "Pneumothorax": "No pneumothorax.",
    "Consolidation": "No focal consolidation.",
    "Edema": "No sign of pulmonary edema.",
}
_VIEWS: Final = {
    "PA": ("PA view", "Upright PA chest film"),
    "AP": ("Portable AP view", "AP chest film at the bedside"),
    "LATERAL": ("Lateral view", "Lateral chest film"),
}
ABOUT: Final = """# Sample radiographs

Drawn by `recoquest sample-data`; no patient is on them. What is known of each image is in `manifest.jsonl`:

| factor | where it shows |
|---|---|
| findings (`labels`), their `sides`, size, zone, number | image and text |
| `severity`: size of the first finding that has one | image and text |
| `view` | image and text |
| `sex` | faintly in the image; text |
| `exposure`, `marker` (the letter R), `tilt` | image only |
| `age`, `indication`, `comparison` | text only |
| `year` | neither |

Films of one patient share their `group` and their split.
"""


def describe_film(film: Film, name: str, rng: np.random.Generator) -> Record:
    """Make the record of a film: its report, its labels, and its factors as metadata."""
    report, sentences = _write_report(film, rng)
    sides = tuple(sorted({finding.side for finding in film.findings if finding.side is not None}))
    sizes = [finding.size for finding in film.findings if finding.size]
    metadata: dict[str, MetadataValue] = {
        "view": film.view,
        "sex": film.patient.sex,
        "age": film.patient.age,
        "year": film.year,
        "exposure": film.exposure,
        "marker": film.marker,
        "tilt": round(film.tilt, 1) + 0.0,
        "indication": film.indication,
        "comparison": film.comparison,
    }
    if sides:
        metadata["sides"] = sides
    if sizes:
        metadata["severity"] = sizes[0]
    return Record(
        id=name,
        image=f"images/{name}.jpg",
        texts=sentences,
        group=film.patient.name,
        labels=tuple(dict.fromkeys(finding.name for finding in film.findings)) or ("No Finding",),
        report=report,
        metadata=metadata,
    )


def _write_report(film: Film, rng: np.random.Generator) -> tuple[str, tuple[str, ...]]:
    """Put a film into words: the report, and those of its sentences that say something about the image.

    Every finding is stated; the wording, the absent findings that are mentioned, the indication and the
    comparison vary.
    """
    who = f"{film.patient.age}-year-old {'woman' if film.patient.sex == 'F' else 'man'}"
    article = "an" if film.patient.age // 10 == 8 else "a"
    view = pick(rng, _VIEWS[film.view])
    stated = [_state(finding, rng) for finding in film.findings]
    if not stated:
        stated = [str(sentence) for sentence in rng.choice(_NORMAL, size=2, replace=False)]
    impression = _impression(film, rng)
    with_history = f"{_capital(view)} of {article} {who}, {film.indication}: {impression}"
    absent = [name for name in _ABSENT if film.finding(name) is None and rng.random() < 0.6]
    sentences = [*stated, *(_ABSENT[name] for name in absent if film.findings)]
    report = (
        f"INDICATION: {_capital(who)}, {film.indication}. COMPARISON: {_capital(film.comparison)}. "
        f"FINDINGS: {_capital(view)}. {' '.join(sentences)} IMPRESSION: {_capital(impression)}"
    )
    return report, (*stated, _capital(impression), with_history)


def _state(finding: Finding, rng: np.random.Generator) -> str:
    sizes = _SIZE_WORDS.get(finding.size, ("",))
    if finding.name == "Lung Nodule":
        sizes = ("medium-sized" if finding.size == "moderate" else finding.size,)
    words = _words(finding) | {"size": pick(rng, sizes)}
    words |= {name.capitalize(): _capital(words[name]) for name in ("size", "grade", "count")}
    return pick(rng, _SENTENCES[finding.name][1:]).format(**words)


def _impression(film: Film, rng: np.random.Generator) -> str:
    if not film.findings:
        return pick(rng, ("no acute finding.", "normal chest.", "clear lungs."))
    names = [_SENTENCES[finding.name][0].format(**_words(finding)) for finding in film.findings]
    return f"{', '.join(names[:-1])}{' and ' if len(names) > 1 else ''}{names[-1]}."


def _words(finding: Finding) -> dict[str, str]:
    grades = _HEART_WORDS if finding.name == "Cardiomegaly" else _EDEMA_WORDS
    return {
        "side": finding.side or "",
        "zone": finding.zone,
        "grade": grades.get(finding.size, ""),
        "count": ("one", "two", "three")[finding.count - 1],
        "are": "is" if finding.count == 1 else "are",
        "nodules": "nodule" if finding.count == 1 else "nodules",
    }


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
