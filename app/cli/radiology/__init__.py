"""Commands of reports, HL7 and the archive."""
