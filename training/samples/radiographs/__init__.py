"""Sample radiographs: drawn chest films with known findings, and reports that state them."""
