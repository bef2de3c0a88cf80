"""Findings of radiology reports: what a report says is present, absent or uncertain."""

from training.reports.findings import STATES, Finding, State, find_findings, image_states
from training.reports.language import is_read
from training.reports.vocabulary import FINDINGS, finding_called

__all__ = [
    "FINDINGS",
    "STATES",
    "Finding",
    "State",
    "find_findings",
    "finding_called",
    "image_states",
    "is_read",
]
