"""Results of a search as objects of the archive and as FHIR resources."""
