"""DICOM objects: which are taken, what of them is kept, and what stands for a patient."""
