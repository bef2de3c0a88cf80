"""Radiology: studies, the archive, reports, the viewer; their routes, schemas and settings."""
