"""Tests of DICOM images."""
