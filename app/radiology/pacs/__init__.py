"""Films from image archives: fetched over DICOMweb, or sent by them."""
