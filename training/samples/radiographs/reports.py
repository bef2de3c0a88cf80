"""Writes the reports of sample radiographs."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from training.samples.radiographs.factors import Film, Finding

_SIZE_WORDS: Final = {
    "small": ("small", "mild", "slight"),
    "moderate": ("moderate", "medium-sized"),
    "large": ("large", "marked", "massive"),
}
_HEART_WORDS: Final = {"small": "mildly", "moderate": "moderately", "large": "severely"}
_EDEMA_WORDS: Final = {"small": "mild", "moderate": "moderate", "large": "severe"}
_NODULE_WORDS: Final = {"small": "small", "moderate": "medium-sized", "large": "large"}
_COUNT_WORDS: Final = {1: "one", 2: "two", 3: "three"}
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


@dataclass(frozen=True)
class Report:
    """A whole report, and those of its sentences that say something about the image."""

    text: str
    sentences: tuple[str, ...]


def write_report(film: Film, rng: np.random.Generator) -> Report:
    """Put a film into words.

    Every finding is stated; the wording, the absent findings that are mentioned, the indication and the
    comparison vary.
    """
    who = f"{film.patient.age}-year-old {'woman' if film.patient.sex == 'F' else 'man'}"
    article = "an" if film.patient.age // 10 == 8 else "a"
    view = _pick(rng, _VIEWS[film.view])
    stated = [_state(finding, rng) for finding in film.findings] or _normal_sentences(rng)
    impression = _impression(film, rng)
    with_history = f"{_capital(view)} of {article} {who}, {film.indication}: {impression}"
    absent = _absent(film, rng)
    text = (
        f"INDICATION: {_capital(who)}, {film.indication}. COMPARISON: {_capital(film.comparison)}. "
        f"FINDINGS: {_capital(view)}. {' '.join([*stated, *absent])} IMPRESSION: {_capital(impression)}"
    )
    return Report(text, (*stated, _capital(impression), with_history))


def _normal_sentences(rng: np.random.Generator) -> list[str]:
    return [str(sentence) for sentence in rng.choice(_NORMAL, size=2, replace=False)]


def _absent(film: Film, rng: np.random.Generator) -> list[str]:
    names = [name for name in _ABSENT if film.finding(name) is None and rng.random() < 0.6]
    return [_ABSENT[name] for name in names] if film.findings else []


def _state(finding: Finding, rng: np.random.Generator) -> str:
    grades = _HEART_WORDS if finding.name == "Cardiomegaly" else _EDEMA_WORDS
    sizes = (
        (_NODULE_WORDS[finding.size],)
        if finding.name == "Lung Nodule"
        else _SIZE_WORDS.get(finding.size, ("",))
    )
    words = {
        "side": finding.side or "",
        "zone": finding.zone,
        "size": _pick(rng, sizes),
        "grade": grades.get(finding.size, ""),
        "count": _COUNT_WORDS[finding.count],
        "are": "is" if finding.count == 1 else "are",
        "nodules": "nodule" if finding.count == 1 else "nodules",
    }
    words |= {
        "Size": _capital(words["size"]),
        "Grade": _capital(words["grade"]),
        "Count": _capital(words["count"]),
    }
    return _pick(rng, _SENTENCES[finding.name]).format(**words)


def _impression(film: Film, rng: np.random.Generator) -> str:
    if not film.findings:
        return _pick(rng, ("no acute finding.", "normal chest.", "clear lungs."))
    names = [_short(finding) for finding in film.findings]
    return f"{', '.join(names[:-1])}{' and ' if len(names) > 1 else ''}{names[-1]}."


def _short(finding: Finding) -> str:
    side = f"{finding.side} " if finding.side and finding.name not in ("Pacemaker",) else ""
    zone = f"{finding.zone} " if finding.zone else ""
    return {
        "Cardiomegaly": "cardiomegaly",
        "Pleural Effusion": f"{side}pleural effusion",
        "Pneumothorax": f"{side}pneumothorax",
        "Lung Nodule": f"{side}{zone}zone {'nodule' if finding.count == 1 else 'nodules'}",
        "Consolidation": f"{side}{zone}lobe consolidation",
        "Edema": "pulmonary edema",
        "Atelectasis": f"{side}basal atelectasis",
        "Pacemaker": "pacemaker",
        "Central Line": "central line",
    }[finding.name]


def _pick(rng: np.random.Generator, choices: tuple[str, ...]) -> str:
    return choices[int(rng.integers(len(choices)))]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
