"""What hospitals send: DICOM attributes and their removal, HL7, FHIR, structured reports, findings."""
