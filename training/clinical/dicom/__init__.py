"""DICOM objects: which are taken, and what of them is kept."""
