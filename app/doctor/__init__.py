"""What is wrong with an installation, and what to do about it."""

from app.doctor.examination import examine
from app.doctor.finding import Finding

__all__ = ["Finding", "examine"]
