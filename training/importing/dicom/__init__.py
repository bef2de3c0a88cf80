"""Films as DICOM files, folders, archives and media; names of files are kept nowhere."""
