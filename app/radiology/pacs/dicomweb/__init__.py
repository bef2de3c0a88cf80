"""An image archive as it is seen over HTTP: DICOMweb, and what Orthanc has beside it."""
