"""DICOM images: their elements, frames and samples, and the grey levels that their attributes ask for."""
