"""Reports that were received for studies, matched to images or waiting for them."""
