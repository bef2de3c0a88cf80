"""The fourteen labels of the CheXpert data set, from the findings that a report states.

Irvin et al., "CheXpert: A Large Chest Radiograph Dataset with Uncertainty Labels and Expert Comparison", AAAI
2019. docs/findings.md says which findings each label has.
"""

from typing import Final

from training.clinical.findings.findings import STATES, State, find_findings, image_states, is_normal
from training.clinical.text.language import has_other_words
from training.clinical.text.vocabulary import DEVICE

NO_FINDING: Final = "No Finding"
_FINDINGS: Final[dict[str, tuple[str, ...]]] = {
    "Enlarged Cardiomediastinum": ("enlarged cardiomediastinum",),
    "Cardiomegaly": ("cardiomegaly",),
    "Lung Lesion": ("cavitation", "lesion", "mass", "nodule"),
    "Lung Opacity": ("lung opacity",),
    "Edema": ("pulmonary edema", "vascular congestion"),
    "Consolidation": ("consolidation",),
    "Pneumonia": ("pneumonia",),
    "Atelectasis": ("atelectasis",),
    "Pneumothorax": ("pneumothorax",),
    "Pleural Effusion": ("pleural effusion",),
    "Pleural Other": ("pleural thickening",),
    "Fracture": ("fracture",),
    "Support Devices": (DEVICE,),
}
CHEXPERT_LABELS: Final = (NO_FINDING, *_FINDINGS)


def chexpert_labels(text: str) -> dict[str, State]:
    """Return the labels that a report mentions, with their states, in the order of `CHEXPERT_LABELS`.

    "No Finding" is present where the text calls something normal or denies something, every word of it is
    understood, and no finding of the vocabulary is present or uncertain; otherwise it is left out. Support
    devices count as findings here, unlike in the labeler of CheXpert. A text that is not in English or German
    has no labels.
    """
    if has_other_words(text):
        return {}
    stated = image_states(find_findings(text))
    labels: dict[str, State] = {}
    for label, findings in _FINDINGS.items():
        if states := [stated[name] for name in findings if name in stated]:
            labels[label] = min(states, key=STATES.index)
    stated_any = any(state != "absent" for state in stated.values())
    return labels if stated_any or not is_normal(text) else {NO_FINDING: "present", **labels}
