"""Diagnosis of an installation, with remedies."""

from app.health.doctor.examination import examine
from app.health.doctor.finding import Finding

__all__ = ["Finding", "examine"]
