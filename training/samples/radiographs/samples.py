"""Sample radiographs: drawn chest films with known findings, and reports that state them.

Shared factors are what report and film agree on: findings (the labels) with their sides and severity, and
the view. Unique to the film are exposure, marker and tilt; to the report age, indication and comparison. The
year is in neither. What an encoder keeps of each tells objectives apart. All are in the metadata.
"""

from collections.abc import Iterator
from itertools import count
from typing import Final

import numpy as np
from PIL import Image

from training.common.record import MetadataValue, Record
from training.samples.canvas import pick
from training.samples.radiographs.drawing import draw_radiograph
from training.samples.radiographs.factors import Film, Finding, draw_film, draw_patient

_STREAM: Final = 1
_FILMS_OF_A_PATIENT: Final = (0.6, 0.28, 0.12)
_SIZE_WORDS: Final = {
    "small": ("small", "mild", "slight"),
    "moderate": ("moderate", "medium-sized"),
    "large": ("large", "marked", "massive"),
}
_HEART_WORDS: Final = {"small": "mildly", "moderate": "moderately", "large": "severely"}
_EDEMA_WORDS: Final = {"small": "mild", "moderate": "moderate", "large": "severe"}
_SENTENCES: Final[dict[str, tuple[str, ...]]] = {
    "Cardiomegaly": (
        "The heart is {grade} enlarged.",
        "There is a {grade} enlarged cardiac silhouette, in keeping with cardiomegaly.",
        "Cardiomegaly, {grade} pronounced.",
        "The cardiothoracic ratio is increased; the heart is {grade} enlarged.",
    ),
    "Pleural Effusion": (
        "There is a {size} {side} pleural effusion.",
        "A {size} amount of pleural fluid is seen on the {side}.",
        "The {side} costophrenic angle is blunted by a {size} effusion.",
        "{Size} {side}-sided pleural effusion.",
    ),
    "Pneumothorax": (
        "There is a {size} {side} pneumothorax.",
        "A visceral pleural line shows a {size} pneumothorax on the {side}.",
        "{Size} {side}-sided pneumothorax with partial collapse of the lung.",
    ),
    "Lung Nodule": (
        "There {are} {count} {size} {nodules} in the {side} {zone} zone.",
        "{Count} {size} pulmonary {nodules} in the {zone} part of the {side} lung.",
        "The {side} {zone} lung field shows {count} {size} round {nodules}.",
    ),
    "Consolidation": (
        "There is consolidation in the {side} {zone} lobe.",
        "Airspace opacity in the {side} {zone} lobe, in keeping with pneumonia.",
        "The {side} {zone} lobe is consolidated.",
        "Patchy dense opacification of the {side} {zone} lobe.",
    ),
    "Edema": (
        "{Grade} pulmonary edema with perihilar haze.",
        "Bilateral perihilar opacities suggest {grade} pulmonary edema.",
        "There is {grade} interstitial edema in both lungs.",
    ),
    "Atelectasis": (
        "Linear atelectasis at the {side} base.",
        "There are bands of atelectasis in the {side} lower lung.",
        "Plate-like atelectasis is seen at the {side} lung base.",
    ),
    "Pacemaker": (
        "A pacemaker is seen in the left chest wall with its lead in the right ventricle.",
        "Left-sided cardiac pacemaker in place.",
        "A pacemaker projects over the left upper chest.",
    ),
    "Central Line": (
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


def draw_radiographs(seed: int, size: int) -> Iterator[tuple[int, Record, Image.Image]]:
    """Draw films without end, each with the number of its patient and its record."""
    number = 0
    for patient_number in count():
        draw = np.random.default_rng([seed, _STREAM, 0, patient_number])
        patient = draw_patient(draw, patient_number)
        for _ in range(draw.choice((1, 2, 3), p=_FILMS_OF_A_PATIENT)):
            film, rng = draw_film(draw, patient), np.random.default_rng([seed, _STREAM, 1, number])
            yield patient_number, _record(film, f"cxr{number:05d}", rng), draw_radiograph(film, rng, size)
            number += 1


def _record(film: Film, name: str, rng: np.random.Generator) -> Record:
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
        **({"sides": sides} if sides else {}),
        **({"severity": sizes[0]} if sizes else {}),
    }
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
    said = [*stated, *(_ABSENT[name] for name in absent if film.findings)]
    report = (
        f"INDICATION: {_capital(who)}, {film.indication}. COMPARISON: {_capital(film.comparison)}. "
        f"FINDINGS: {_capital(view)}. {' '.join(said)} IMPRESSION: {_capital(impression)}"
    )
    return report, (*stated, _capital(impression), with_history)


def _state(finding: Finding, rng: np.random.Generator) -> str:
    grades = _HEART_WORDS if finding.name == "Cardiomegaly" else _EDEMA_WORDS
    sizes = _SIZE_WORDS.get(finding.size, ("",))
    if finding.name == "Lung Nodule":
        sizes = ("medium-sized" if finding.size == "moderate" else finding.size,)
    words = {
        "side": finding.side or "",
        "zone": finding.zone,
        "size": pick(rng, sizes),
        "grade": grades.get(finding.size, ""),
        "count": ("one", "two", "three")[finding.count - 1],
        "are": "is" if finding.count == 1 else "are",
        "nodules": "nodule" if finding.count == 1 else "nodules",
    }
    words |= {name.capitalize(): _capital(words[name]) for name in ("size", "grade", "count")}
    return pick(rng, _SENTENCES[finding.name]).format(**words)


def _impression(film: Film, rng: np.random.Generator) -> str:
    if not film.findings:
        return pick(rng, ("no acute finding.", "normal chest.", "clear lungs."))
    names = [_short(finding) for finding in film.findings]
    return f"{', '.join(names[:-1])}{' and ' if len(names) > 1 else ''}{names[-1]}."


def _short(finding: Finding) -> str:
    nodules = "nodule" if finding.count == 1 else "nodules"
    return {
        "Cardiomegaly": "cardiomegaly",
        "Pleural Effusion": f"{finding.side} pleural effusion",
        "Pneumothorax": f"{finding.side} pneumothorax",
        "Lung Nodule": f"{finding.side} {finding.zone} zone {nodules}",
        "Consolidation": f"{finding.side} {finding.zone} lobe consolidation",
        "Edema": "pulmonary edema",
        "Atelectasis": f"{finding.side} basal atelectasis",
        "Pacemaker": "pacemaker",
        "Central Line": "central line",
    }[finding.name]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
