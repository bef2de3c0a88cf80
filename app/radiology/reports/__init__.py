"""Reports on their way to the images of their studies: by a command, or as messages of HL7."""
