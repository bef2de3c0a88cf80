"""Diagnosis of an installation, with remedies."""

from app.doctor.examination import examine
from app.doctor.finding import Finding

__all__ = ["Finding", "examine"]
