"""Findings of radiology reports: what a report says is present, absent or uncertain."""

from training.clinical.findings.chexpert import CHEXPERT_LABELS, chexpert_labels
from training.clinical.findings.findings import (
    STATES,
    Finding,
    State,
    are_prior,
    find_findings,
    image_states,
    prior_sentences,
    unread_words,
)
from training.clinical.text.language import is_read
from training.clinical.text.vocabulary import FINDINGS, finding_called

__all__ = [
    "CHEXPERT_LABELS",
    "FINDINGS",
    "STATES",
    "Finding",
    "State",
    "are_prior",
    "chexpert_labels",
    "find_findings",
    "finding_called",
    "image_states",
    "is_read",
    "prior_sentences",
    "unread_words",
]
